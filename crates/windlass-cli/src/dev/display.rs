//! Where the loop is shown: on a terminal with a region that is drawn again, as lines, or as JSON.

use std::io::IsTerminal as _;
use std::time::{Instant, SystemTime};

use super::board::Board;
use super::machine::Machine;
use super::told::Told;
use super::view::{self, Look};
use crate::args::Format;
use crate::output;
use crate::paint::{Ink, Paint, printable};
use crate::screen::{self, Drawn, SPINNER};

pub(super) enum Display {
    Live { drawn: Drawn, frame: usize },
    Plain,
    Json,
}

impl Display {
    pub(super) fn choose(format: Format) -> Self {
        match format {
            Format::Json => Self::Json,
            Format::Text
                if std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb") =>
            {
                Self::Live { drawn: Drawn::default(), frame: 0 }
            }
            Format::Text => Self::Plain,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    pub(super) fn tell(&mut self, told: &Told, machine: &Machine, board: &Board) {
        match self {
            Self::Json => output::line(told.json(SystemTime::now())),
            Self::Plain => {
                let (label, text, _) = told.line();
                for line in text.lines() {
                    output::line(format_args!("{label:<10}{}", printable(line)));
                }
            }
            Self::Live { drawn, frame } => {
                // The table shows objects and reconciles; as lines they would only push the log away.
                let lines = match told {
                    Told::Object { .. } | Told::Cluster { .. } => Vec::new(),
                    Told::Reconciled(done) if done.succeeded() => Vec::new(),
                    told => live_lines(told),
                };
                drawn.say(&lines, &region(machine, board, *frame));
            }
        }
    }

    /// Draws the region again.
    pub(super) fn draw(&mut self, machine: &Machine, board: &Board) {
        if let Self::Live { drawn, frame } = self {
            *frame += 1;
            drawn.say(&[], &region(machine, board, *frame));
        }
    }

    /// Leaves what was drawn last where it is.
    pub(super) fn close(&mut self) {
        if let Self::Live { drawn, .. } = self {
            // Nothing of it is true any more: the operator has ended.
            drawn.say(&[], &[]);
        }
    }
}

fn region(machine: &Machine, board: &Board, frame: usize) -> Vec<String> {
    let (columns, rows) = screen::size();
    let look = Look { paint: Paint::on(&std::io::stdout()), columns, rows, spinner: SPINNER[frame % SPINNER.len()] };
    view::lines(machine, board, look, Instant::now())
}

fn live_lines(told: &Told) -> Vec<String> {
    let (label, text, ink) = told.line();
    let paint = Paint::on(&std::io::stdout());
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let first = format!("{} {}", paint.ink(Ink::Dim, &format!("{label:<9}")), paint.ink(ink, &printable(first)));
    // The compiler's own colours stay; they are ended on each line.
    let end = if paint.0 { "\x1b[0m" } else { "" };
    std::iter::once(first).chain(lines.map(|line| format!("{line}{end}"))).collect()
}
