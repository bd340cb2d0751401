//! SIGINT and SIGTERM.
//!
//! They are heard on a thread of their own: an operator whose threads are all in blocking code must
//! end on a second signal, too, and cannot be asked to.

use std::io;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long after the second signal the process may end by itself.
const GRACE: Duration = Duration::from_secs(1);
/// How long the log may take to be told why it did not.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Signals that ask the process to stop. The second ends it, soon, whatever it is doing, and even if this
/// was dropped meanwhile; nothing does if this was dropped before the first.
pub(super) struct Signals {
    heard: mpsc::UnboundedReceiver<()>,
    _listening: DropGuard,
}

impl Signals {
    pub(super) async fn install() -> io::Result<Self> {
        let (tell, heard) = mpsc::unbounded_channel();
        let (installed, listens) = oneshot::channel();
        let listening = CancellationToken::new();
        let until = listening.clone();
        let hear = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(hear(installed, tell, until)),
            Err(error) => drop(installed.send(Err(error))),
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(hear)?;
        listens.await.map_err(io::Error::other)??;
        Ok(Self { heard, _listening: listening.drop_guard() })
    }

    /// Waits for the next one. Cancel-safe.
    pub(super) async fn next(&mut self) {
        if self.heard.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Passes signals on and ends the process some time after the second. Until the first, the token ends
/// this; from then on nothing does: once a signal was taken from the system, it does not end the process
/// any more, and whoever sends the second one means a process that does not end otherwise.
async fn hear(installed: oneshot::Sender<io::Result<()>>, tell: mpsc::UnboundedSender<()>, until: CancellationToken) {
    let mut source = match Source::install() {
        Ok(source) => source,
        Err(error) => return drop(installed.send(Err(error))),
    };
    let _ = installed.send(Ok(()));
    if until.run_until_cancelled(source.next()).await.is_none() {
        return;
    }
    let _ = tell.send(());
    source.next().await;
    let _ = tell.send(());
    tokio::time::sleep(GRACE).await;
    say_so().await;
    std::process::exit(1);
}

/// Logs why the process ends, if that is possible soon: where nobody reads the log, it blocks.
async fn say_so() {
    let (said, heard) = oneshot::channel();
    let say = move || {
        tracing::error!("still running after a second signal, exiting");
        let _ = said.send(());
    };
    if std::thread::Builder::new().name("last words".to_owned()).spawn(say).is_ok() {
        let _ = tokio::time::timeout(LAST_WORDS, heard).await;
    }
}

#[cfg(unix)]
struct Source {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Source {
    fn install() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Control-C, where there are no signals.
#[cfg(not(unix))]
struct Source;

#[cfg(not(unix))]
impl Source {
    fn install() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
