//! Warnings of the operator: they are part of the test's output, and the message of a wait that timed out has the last
//! failure of a reconcile. A subscriber that is there when a test begins is kept; one that is to count in a test must be its
//! thread's (`tracing::subscriber::set_default`).

use std::cell::RefCell;
use std::io::{self, Write};

use tracing::dispatcher::{DefaultGuard, get_default, set_default};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Level, Metadata};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::TestWriter;
use tracing_subscriber::layer::SubscriberExt;

/// How the span of a reconcile begins.
const RECONCILE: &str = "reconcile{";

thread_local! {
    /// A test and all that it runs share a thread.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Shows warnings until the guard is dropped, unless they are shown already.
pub(crate) fn show() -> Option<DefaultGuard> {
    LAST.take();
    if !get_default(Dispatch::is::<NoSubscriber>) {
        return None;
    }
    // The spans say what the warnings are about.
    let level = |metadata: &Metadata<'_>| if metadata.is_span() { Level::INFO } else { Level::WARN };
    let filter = filter_fn(move |metadata| *metadata.level() <= level(metadata)).with_max_level_hint(Level::INFO);
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).without_time().with_writer(Noting::default);
    // Not the subscriber's own way to do so, which takes the process's `log` as well.
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter));
    Some(set_default(&Dispatch::new(subscriber)))
}

/// The last warning about a reconcile.
pub(crate) fn last_failure() -> Option<String> {
    LAST.with_borrow(Clone::clone)
}

/// Prints as tests do, and remembers failures of reconciles.
#[derive(Default)]
struct Noting(TestWriter);

impl Write for Noting {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        if text.contains(RECONCILE) {
            LAST.set(Some(text.trim().to_owned()));
        }
        self.0.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
