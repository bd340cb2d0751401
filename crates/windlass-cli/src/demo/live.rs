//! A display that is redrawn in place on a terminal.
//!
//! What is said stays said: lines are written once and scroll away. Only the region below them is
//! drawn again and again: the step that is under way, and the table.
//!
//! ```text
//!   ✓ operator running      2.1 ms  keeps one entry of the store per Pet    written once
//!   ⠹ waiting for ids                                                       ┐
//!                                                                           │ drawn again
//!       NAME  PET NAME  TYPE  ID                                            │
//!     ⠹ thor  Thor      dog   -                                             ┘
//! ```
//!
//! No line is wider than the terminal, and the region is lower than it.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::display::Board;
use super::table::Look;
use crate::paint::{Ink, Paint, duration, fit, printable, width};
use crate::screen::{Drawn, SPINNER, size};

const FRAME: Duration = Duration::from_millis(80);
/// Where the time and the detail of a milestone stand.
const WHAT: usize = 22;
/// A detail that has less room than this says nothing.
const LEAST: usize = 12;

/// See the [module documentation](self).
pub(crate) struct Live<B: Board> {
    paint: Paint,
    about: &'static str,
    /// Looked at whenever the region is drawn: no milestone is ahead of the table below it.
    board: watch::Receiver<B>,
    region: Mutex<Region>,
}

/// What is drawn again and again.
#[derive(Default)]
struct Region {
    open: bool,
    doing: Option<String>,
    /// The table is no longer part of the region.
    curtain: bool,
    frame: usize,
    drawn: Drawn,
}

impl<B: Board> Live<B> {
    pub(crate) fn new(paint: Paint, about: &'static str, board: watch::Receiver<B>) -> Self {
        Self { paint, about, board, region: Mutex::default() }
    }

    pub(crate) fn open(&self) {
        let mut region = self.region();
        region.open = true;
        let title = self.paint.ink(Ink::Bold, "windlass demo");
        let subtitle = fit(self.about, size().0.saturating_sub(17));
        let subtitle = self.paint.ink(Ink::Dim, &subtitle);
        self.say(&mut region, &[String::new(), format!("  {title}  {subtitle}"), String::new()]);
    }

    pub(crate) fn begin(&self, doing: &str) {
        let mut region = self.region();
        region.doing = Some(doing.to_owned());
        self.draw(&mut region);
    }

    pub(crate) fn done(&self, what: &str, took: Duration, detail: &str) {
        let mut region = self.region();
        region.doing = None;
        let columns = size().0;
        let took = format!("{:>8}", duration(took));
        let mut line = format!("  {} {}", self.paint.ink(Ink::Green, "✓"), fit(what, columns.saturating_sub(4)));
        if let Some(room) = columns.checked_sub(4 + WHAT + 1 + took.len()) {
            line.extend(std::iter::repeat_n(' ', WHAT.saturating_sub(width(what)) + 1));
            line += &self.paint.ink(Ink::Yellow, &took);
            if room >= 2 + LEAST {
                let _ = write!(line, "  {}", self.paint.ink(Ink::Dim, &fit(&printable(detail), room - 2)));
            }
        }
        self.say(&mut region, &[line]);
    }

    pub(crate) fn kept(&self, commands: &[String]) {
        let mut region = self.region();
        region.doing = Some("running until Ctrl-C; the table is live".to_owned());
        let mut lines = vec![String::new(), "  In another terminal:".to_owned(), String::new()];
        // Commands are never cut: they are there to be copied.
        lines.extend(commands.iter().map(|command| format!("    {}", self.paint.ink(Ink::Cyan, command))));
        lines.push(String::new());
        self.say(&mut region, &lines);
    }

    pub(crate) fn interrupted(&self) {
        let mut region = self.region();
        region.doing = None;
        region.curtain = true;
        let line = format!("  {} interrupted", self.paint.ink(Ink::Yellow, "!"));
        self.say(&mut region, &[line]);
    }

    pub(crate) fn finish(&self, all: Duration, worked: Duration) {
        let mut region = self.region();
        region.settle();
        let bold = self.paint.ink(Ink::Bold, &format!("Done: {} of work", duration(worked)));
        let looked = duration(all.saturating_sub(worked));
        let keep = self.paint.ink(Ink::Cyan, "demo --keep");
        self.say(
            &mut region,
            &[
                String::new(),
                format!("  {bold}, {looked} to look."),
                format!("  {keep} leaves it running."),
                String::new(),
            ],
        );
    }

    /// Leaves the table where it is.
    pub(crate) fn close(&self) {
        let mut region = self.region();
        if region.open {
            region.open = false;
            region.doing = None;
            self.draw(&mut region);
            region.settle();
        }
    }

    pub(crate) async fn animate(&self) {
        let mut board = self.board.clone();
        let mut frames = tokio::time::interval(FRAME);
        frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            // Cancel-safe: a change that is not seen now is seen with the next frame.
            tokio::select! {
                changed = board.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                _ = frames.tick() => self.region().frame += 1,
            }
            self.draw(&mut self.region());
        }
    }

    /// Writes lines for good, above the region.
    fn say(&self, region: &mut Region, lines: &[String]) {
        let below = self.lines(region);
        region.drawn.say(lines, &below);
    }

    fn draw(&self, region: &mut Region) {
        self.say(region, &[]);
    }

    fn lines(&self, region: &Region) -> Vec<String> {
        let (columns, rows) = size();
        let spinner = SPINNER[region.frame % SPINNER.len()];
        let mut lines = Vec::new();
        if let Some(doing) = &region.doing {
            let doing = fit(doing, columns.saturating_sub(4));
            lines.push(format!("  {} {doing}", self.paint.ink(Ink::Yellow, &spinner.to_string())));
        }
        let board = self.board.borrow();
        // The region never fills the terminal.
        let most = rows.saturating_sub(lines.len() + 4);
        if !board.is_empty() && !region.curtain && most >= 2 {
            let look = Look { paint: self.paint, room: columns.saturating_sub(2), busy: Some(spinner) };
            let mut table = board.lines(look);
            if table.len() > most {
                let more = format!("and {} more", table.len() - most);
                table.truncate(most);
                table.push(self.paint.ink(Ink::Dim, &more));
            }
            lines.push(String::new());
            lines.extend(table.into_iter().map(|line| format!("  {line}")));
        }
        lines
    }

    fn region(&self) -> MutexGuard<'_, Region> {
        self.region.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Board> Drop for Live<B> {
    fn drop(&mut self) {
        self.close();
    }
}

impl Region {
    /// What was drawn last stays as it is; whatever comes next comes below.
    fn settle(&mut self) {
        self.drawn.settle();
        self.curtain = true;
    }
}
