//! SIGINT and SIGTERM.
//!
//! They are heard on a thread of their own: an operator whose threads are all in blocking code must
//! end on a second signal, too, and cannot be asked to.

use std::io;
use std::time::Duration;

use tokio::sync::{OnceCell, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::ManagerError;

/// How long after the second signal the process may end by itself.
const GRACE: Duration = Duration::from_secs(1);
/// How long the log may take to be told why it did not.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// How soon after the first signal the same one again still counts as the first: `timeout` signals a process and
/// then its group, so that the process gets the signal twice.
const REPEATED: Duration = Duration::from_millis(500);

/// How many signals this process has got since it listens.
static HEARD: OnceCell<watch::Receiver<u32>> = OnceCell::const_new();

/// Signals that ask the process to stop. The second ends it, soon, whatever it is doing, also when nothing
/// has this any more.
pub(super) struct Signals {
    heard: watch::Receiver<u32>,
    seen: u32,
}

impl Signals {
    pub(super) async fn install() -> io::Result<Self> {
        // One that came before counts: its sender wants no other manager to start.
        Ok(Self { heard: HEARD.get_or_try_init(listen).await?.clone(), seen: 0 })
    }

    /// Waits for the next one. Cancel-safe.
    pub(super) async fn next(&mut self) {
        if self.heard.wait_for(|heard| *heard > self.seen).await.is_err() {
            std::future::pending::<()>().await;
        }
        self.seen += 1;
    }
}

/// Lets something run. At the first signal it is told to stop, at the second it is not waited for.
pub(super) async fn stop_on(
    mut signals: Signals,
    running: impl Future<Output = Result<(), ManagerError>>,
    shutdown: CancellationToken,
) -> Result<(), ManagerError> {
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => return ended,
        () = signals.next() => {
            tracing::info!("stopping on signal");
            shutdown.cancel();
        }
    }
    tokio::select! {
        ended = &mut running => ended,
        () = signals.next() => Err(ManagerError::Aborted),
    }
}

async fn listen() -> io::Result<watch::Receiver<u32>> {
    let (tell, heard) = watch::channel(0);
    let (installed, listens) = oneshot::channel();
    let hear = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(hear(installed, tell)),
        Err(error) => drop(installed.send(Err(error))),
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(hear)?;
    listens.await.map_err(io::Error::other)??;
    Ok(heard)
}

/// Counts signals and ends the process some time after the second. Nothing ends this: once a signal is
/// taken from the system, it does not end the process any more, and the second one is meant for a
/// process that does not end otherwise.
async fn hear(installed: oneshot::Sender<io::Result<()>>, tell: watch::Sender<u32>) {
    let mut source = match Source::install() {
        Ok(source) => source,
        Err(error) => return drop(installed.send(Err(error))),
    };
    let _ = installed.send(Ok(()));
    let first = source.next().await;
    tell.send_replace(1);
    let repeated = tokio::time::Instant::now() + REPEATED;
    while source.next().await == first && tokio::time::Instant::now() < repeated {}
    tell.send_replace(2);
    tokio::time::sleep(GRACE).await;
    say_so().await;
    std::process::exit(1);
}

/// Logs why the process ends, if that is possible soon: where the log is not read, it blocks.
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

/// Which signal it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Interrupt,
    #[cfg(unix)]
    Terminate,
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

    async fn next(&mut self) -> Kind {
        tokio::select! {
            _ = self.interrupt.recv() => Kind::Interrupt,
            _ = self.terminate.recv() => Kind::Terminate,
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

    async fn next(&mut self) -> Kind {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Kind::Interrupt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_signal_stops_and_the_second_kills() {
        let shutdown = CancellationToken::new();
        let (tell, heard) = watch::channel(0);
        let stubborn = async {
            tell.send_replace(1);
            shutdown.cancelled().await;
            tell.send_replace(2);
            std::future::pending().await
        };
        let ended = stop_on(Signals { heard, seen: 0 }, stubborn, shutdown.clone()).await;
        assert!(matches!(ended, Err(ManagerError::Aborted)), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn two_signals_at_once_are_two() {
        let (tell, heard) = watch::channel(0);
        let mut signals = Signals { heard, seen: 0 };
        tell.send_replace(2);
        signals.next().await;
        signals.next().await;
        assert!(tokio::time::timeout(Duration::from_secs(9), signals.next()).await.is_err(), "no third");
    }
}
