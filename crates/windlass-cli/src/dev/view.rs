//! The region at the end of the terminal: cluster, build, operator, objects, reconciles and keys. Pure.

use std::time::{Duration, Instant};

use super::board::Board;
use super::machine::{Build, Machine, Operator};
use super::told::causes;
use crate::paint::{Ink, Paint, duration, fit, printable, width};

/// How a view is drawn.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub paint: Paint,
    pub columns: usize,
    pub rows: usize,
    pub spinner: char,
}

/// How many reconciles are shown.
const RECONCILES: usize = 4;
/// How many lines the terminal keeps for what scrolls.
const SCROLL: usize = 6;

pub(super) fn lines(machine: &Machine, board: &Board, look: Look, now: Instant) -> Vec<String> {
    let mut lines = vec![rule(board, look)];
    lines.push(row("cluster", '✓', Ink::Green, &board.cluster, look));
    lines.push(build(machine, board, look, now));
    lines.push(operator(machine, board, look, now));
    let reconciles: Vec<_> = board.reconciles().take(RECONCILES).collect();
    // At the end: the reconciles with their header, and the keys.
    let below = if reconciles.is_empty() { 1 } else { reconciles.len() + 2 };
    let room = look.rows.saturating_sub(lines.len() + below + SCROLL);
    lines.extend(objects(board, look, room));
    if !reconciles.is_empty() && look.rows > lines.len() + below {
        lines.push(look.paint.ink(Ink::Dim, &fit("  last reconciles", look.columns)));
        for done in reconciles {
            let took = duration(Duration::from_secs_f64(done.seconds.max(0.0)));
            let text = printable(&format!("{} {}  {}  {took}", done.controller, done.key, done.outcome)).into_owned();
            let (mark, ink) = if done.succeeded() { ('✓', Ink::Green) } else { ('✗', Ink::Red) };
            lines.push(row("", mark, ink, &text, look));
        }
    }
    let keys = "  r restart   e events   s samples again   q quit";
    lines.push(look.paint.ink(Ink::Cyan, &fit(keys, look.columns)));
    lines.truncate(look.rows.saturating_sub(1));
    lines
}

fn rule(board: &Board, look: Look) -> String {
    let title = format!("── windlass dev: {} ", board.project);
    let title = fit(&title, look.columns);
    let rest = "─".repeat(look.columns.saturating_sub(width(&title)));
    look.paint.ink(Ink::Dim, &format!("{title}{rest}"))
}

fn row(label: &str, mark: char, ink: Ink, text: &str, look: Look) -> String {
    const LABEL: usize = 10;
    if look.columns < LABEL + 6 {
        return fit(text, look.columns).into_owned();
    }
    let text = fit(text, look.columns - LABEL - 4);
    format!(
        "  {}{} {text}",
        look.paint.ink(Ink::Dim, &format!("{label:<LABEL$}")),
        look.paint.ink(ink, &mark.to_string())
    )
}

fn build(machine: &Machine, board: &Board, look: Look, now: Instant) -> String {
    let files = causes(machine.files());
    let why = if files.is_empty() { String::new() } else { format!("  {files}") };
    let took = |took: Option<Duration>| took.map(duration).unwrap_or_default();
    let (mark, ink, text) = match machine.build() {
        Build::Idle => ('✓', Ink::Green, format!("built in {}{why}", took(board.last_build))),
        Build::Waiting { .. } => (look.spinner, Ink::Yellow, format!("files change{why}")),
        Build::Running { since } => {
            let doing = board.progress.as_deref().unwrap_or("starting");
            (look.spinner, Ink::Yellow, format!("{doing}  {}{why}", seconds(now.duration_since(*since))))
        }
        Build::Failed => ('✗', Ink::Red, format!("failed{why}; the last operator that was built keeps running")),
    };
    row("build", mark, ink, &printable(&text), look)
}

fn operator(machine: &Machine, board: &Board, look: Look, now: Instant) -> String {
    let (ready, all) = board.samples();
    let samples = if all > 0 { format!("; {ready} of {all} samples ready") } else { String::new() };
    let (mark, ink, text) = match machine.operator() {
        Operator::None => ('·', Ink::Dim, "not started".to_owned()),
        Operator::Running { since } => {
            ('✓', Ink::Green, format!("runs for {}{samples}", seconds(now.duration_since(*since))))
        }
        Operator::Stopping => (look.spinner, Ink::Yellow, "stopping".to_owned()),
        Operator::Ended { how, again } => {
            let left = seconds(again.saturating_duration_since(now));
            ('✗', Ink::Red, format!("{how}, starts again in {left}"))
        }
    };
    row("operator", mark, ink, &printable(&text), look)
}

/// Whole seconds: the view is not drawn more often than it changes.
fn seconds(time: Duration) -> String {
    let all = time.as_secs();
    if all < 120 { format!("{all} s") } else { format!("{} min", all / 60) }
}

fn objects(board: &Board, look: Look, room: usize) -> Vec<String> {
    let all = board.objects().count();
    if all == 0 || room < 2 {
        return Vec::new();
    }
    let shown = if all < room { all } else { room.saturating_sub(2) };
    let cells: Vec<[String; 4]> = board
        .objects()
        .take(shown)
        .map(|object| {
            let ready = match object.ready {
                _ if object.deleting => "deleting",
                Some(true) => "True",
                Some(false) => "False",
                None => "…",
            };
            let others = object.conditions.iter().map(|(kind, status)| format!("{kind}={status}"));
            let why: Vec<String> = std::iter::once(object.reason.clone())
                .chain((object.ready != Some(true)).then(|| object.message.clone()))
                .chain(others)
                .filter(|text| !text.is_empty())
                .collect();
            [&object.kind, &object.name, ready, &why.join("  ")].map(|text| printable(text).into_owned())
        })
        .collect();
    let header = ["KIND", "NAME", "READY", "REASON"].map(str::to_owned);
    let mut widths = header.each_ref().map(|text| width(text));
    for row in &cells {
        for (widest, text) in widths.iter_mut().zip(row) {
            *widest = width(text).max(*widest);
        }
    }
    let line = |cells: &[String; 4]| {
        let mut text = String::from("  ");
        for (cell, wide) in cells.iter().zip(widths) {
            text += cell;
            text.extend(std::iter::repeat_n(' ', wide - width(cell) + 2));
        }
        fit(text.trim_end(), look.columns).into_owned()
    };
    let mut lines = vec![look.paint.ink(Ink::Dim, &line(&header))];
    for (cells, object) in cells.iter().zip(board.objects()) {
        let ink = match object.ready {
            _ if object.deleting => Ink::Yellow,
            Some(true) => Ink::Green,
            Some(false) => Ink::Red,
            None => Ink::Yellow,
        };
        lines.push(look.paint.ink(ink, &line(cells)));
    }
    if shown < all {
        lines.push(look.paint.ink(Ink::Dim, &fit(&format!("  and {} more", all - shown), look.columns)));
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::logs::Reconcile;
    use super::super::machine::{Event, Program};
    use super::super::objects::{Change, Object};
    use super::*;
    use crate::against::apply::Version;

    fn board(objects: usize) -> Board {
        let mut board = Board::new("guestbook".into(), "windlass-default".into());
        board.last_build = Some(Duration::from_millis(2300));
        for number in 0..objects {
            let object = Object {
                kind: "Guestbook".into(),
                name: format!("default/sample-{number}"),
                ready: Some(number % 2 == 0),
                reason: "Reconciled".into(),
                message: "all is well".into(),
                conditions: vec![("Synced".into(), "True".into())],
                deleting: false,
                version: Version::default(),
            };
            board.change(Change::Seen(object), Instant::now());
        }
        let key = "default/sample-0".to_owned();
        board.reconciled(Reconcile { controller: "guestbook".into(), key, outcome: "success".into(), seconds: 0.0031 });
        board
    }

    fn machine(now: Instant) -> Machine {
        let mut machine = Machine::new();
        machine.step(Event::Begin, now);
        let program = Program { path: "operator".into(), fresh: false };
        machine.step(Event::Built { build: 1, took: Duration::ZERO, result: Ok(program) }, now);
        machine.step(Event::Prepared { result: Ok(Vec::new()) }, now);
        machine
    }

    #[test]
    fn a_view_of_everything() {
        let now = Instant::now();
        let look = Look { paint: Paint(false), columns: 70, rows: 40, spinner: '⠋' };
        let lines = lines(&machine(now), &board(2), look, now + Duration::from_secs(12));
        assert_eq!(
            lines,
            [
                "── windlass dev: guestbook ───────────────────────────────────────────",
                "  cluster   ✓ windlass-default",
                "  build     ✓ built in 2.3 s",
                "  operator  ✓ runs for 12 s",
                "  KIND       NAME              READY  REASON",
                "  Guestbook  default/sample-0  True   Reconciled  Synced=True",
                "  Guestbook  default/sample-1  False  Reconciled  all is well  Synced…",
                "  last reconciles",
                "            ✓ guestbook default/sample-0  success  3.1 ms",
                "  r restart   e events   s samples again   q quit",
            ]
        );
    }

    #[test]
    fn the_view_fits_every_terminal() {
        let now = Instant::now();
        let (machine, board) = (machine(now), board(30));
        for columns in 0..90 {
            for rows in [1, 2, 5, 10, 24, 60] {
                let look = Look { paint: Paint(false), columns, rows, spinner: '⠋' };
                let lines = lines(&machine, &board, look, now);
                assert!(lines.len() < rows.max(1) + 1, "{} lines in {rows} rows", lines.len());
                for line in lines {
                    assert!(width(&line) <= columns, "{} columns of {columns}: {line}", width(&line));
                }
            }
        }
    }
}
