//! What the user sees: a live table on a terminal, plain lines in a file, one document for programs.
//!
//! The plain form says the same things in the same order in every run; only times, ports and ids
//! differ.

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::live::Live;
use super::table::Look;
use crate::args::Format;
use crate::output;
use crate::paint::{Paint, duration, printable};

/// How long a scene is shown on a terminal before the next one begins.
const SCENE: Duration = Duration::from_millis(900);
/// How wide a table in a file may be, its indentation left aside.
const PAGE: usize = 78;

/// What there is to see of the objects of a demo at a moment.
pub(crate) trait Board: Send + Sync + 'static {
    /// Whether there is nothing to see yet.
    fn is_empty(&self) -> bool;
    /// A table.
    fn lines(&self, look: Look) -> Vec<String>;
    /// The same for programs.
    fn document(&self) -> Value;
}

/// What a demo says about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Playbill {
    /// What runs.
    pub about: &'static str,
    /// What the objects are called in the document for programs.
    pub objects: &'static str,
    /// What to type while the demo is kept running, after `kubectl`.
    pub commands: &'static [&'static str],
}

/// See the [module documentation](self).
pub(crate) struct Display<B: Board> {
    form: Form<B>,
    playbill: Playbill,
    tally: Mutex<Tally>,
}

enum Form<B: Board> {
    Live(Live<B>),
    Plain,
    Json(Mutex<Document>),
}

/// How long everything took.
struct Tally {
    opened: Instant,
    worked: Duration,
}

#[derive(Default)]
struct Document {
    steps: Vec<Value>,
    objects: Value,
}

impl<B: Board> Display<B> {
    /// The form that suits the reader of standard output.
    ///
    /// Logs that go to the same terminal would tear a live table apart, so with them it is plain.
    pub(crate) fn choose(format: Format, logs: bool, playbill: Playbill, board: watch::Receiver<B>) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let logs_beside = logs && std::io::stderr().is_terminal();
        let form = match format {
            Format::Json => Form::Json(Mutex::default()),
            Format::Text if std::io::stdout().is_terminal() && !dumb && !logs_beside => {
                Form::Live(Live::new(Paint::on(&std::io::stdout()), playbill.about, board))
            }
            Format::Text => Form::Plain,
        };
        let tally = Tally { opened: Instant::now(), worked: Duration::ZERO };
        Self { form, playbill, tally: Mutex::new(tally) }
    }

    /// The title.
    pub(crate) fn open(&self) {
        match &self.form {
            Form::Live(live) => live.open(),
            Form::Plain => output::line(format_args!("windlass demo: {}", self.playbill.about)),
            Form::Json(_) => {}
        }
    }

    /// A step begins.
    pub(crate) fn begin(&self, doing: &str) {
        if let Form::Live(live) = &self.form {
            live.begin(doing);
        }
    }

    /// The step that began last is done.
    pub(crate) fn done(&self, what: &str, took: Duration, detail: &str) {
        self.tally().worked += took;
        match &self.form {
            Form::Live(live) => live.done(what, took, detail),
            Form::Plain => output::line(format_args!("{what:<22} {:>8}   {detail}", duration(took))),
            Form::Json(document) => lock(document).steps.push(json!({
                "step": what, "milliseconds": (took.as_secs_f64() * 1e6).round() / 1e3, "detail": detail,
            })),
        }
    }

    /// The objects at a moment worth remembering.
    pub(crate) fn scene(&self, board: &B) {
        match &self.form {
            Form::Live(_) => {}
            Form::Plain => {
                output::line("");
                for line in board.lines(Look { paint: Paint(false), room: PAGE, busy: None }) {
                    output::line(format!("  {line}").trim_end());
                }
                output::line("");
            }
            Form::Json(document) => lock(document).objects = board.document(),
        }
    }

    /// Lets people look. Programs need no time for that.
    pub(crate) async fn pause(&self) {
        if let Form::Live(_) = self.form {
            tokio::time::sleep(SCENE).await;
        }
    }

    /// Everything keeps running until Ctrl-C; this is how to reach it.
    pub(crate) fn kept(&self, kubeconfig: &Path) {
        let kubectl = format!("kubectl --kubeconfig {}", printable(&kubeconfig.display().to_string()));
        let lines: Vec<String> = self.playbill.commands.iter().map(|command| format!("{kubectl} {command}")).collect();
        match &self.form {
            Form::Live(live) => live.kept(&lines),
            Form::Plain => {
                output::line("It keeps running. In another terminal:");
                for line in lines {
                    output::line(format_args!("  {line}"));
                }
                output::line("Ctrl-C stops it and leaves nothing behind.");
            }
            Form::Json(document) => {
                let mut told = lock(document);
                output::json(&json!({
                    "steps": told.steps, (self.playbill.objects): told.objects, "kubeconfig": kubeconfig, "try": lines,
                }));
                // What follows is said by the exit code.
                *told = Document::default();
            }
        }
    }

    /// A signal ends the demo before its end.
    pub(crate) fn interrupted(&self) {
        match &self.form {
            Form::Live(live) => live.interrupted(),
            Form::Plain => output::line("interrupted"),
            Form::Json(_) => {}
        }
    }

    /// The demo ends as it should.
    pub(crate) fn finish(&self) {
        let (all, worked) = {
            let tally = self.tally();
            (tally.opened.elapsed(), tally.worked)
        };
        match &self.form {
            Form::Live(live) => live.finish(all, worked),
            Form::Plain => {
                let worked = duration(worked);
                output::line(format_args!("done in {worked}; `demo --keep` leaves it running for kubectl"));
            }
            Form::Json(document) => {
                let told = lock(document);
                output::json(&json!({
                    "steps": told.steps, (self.playbill.objects): told.objects,
                    "milliseconds": (worked.as_secs_f64() * 1e6).round() / 1e3,
                }));
            }
        }
    }

    /// Gives the terminal back.
    pub(crate) fn close(&self) {
        if let Form::Live(live) = &self.form {
            live.close();
        }
    }

    /// Keeps what is shown up to date. Never returns; dropping it is safe at any time.
    pub(crate) async fn animate(&self) {
        match &self.form {
            Form::Live(live) => live.animate().await,
            Form::Plain | Form::Json(_) => std::future::pending().await,
        }
    }

    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        lock(&self.tally)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing that is locked can be left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
