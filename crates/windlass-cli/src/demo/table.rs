//! The table of Pets, as lines that fit a width. Pure.

use super::pets::{Phase, Row};
use crate::paint::{Ink, Paint, fit, printable, width};

const HEADER: [&str; COLUMNS] = ["NAME", "PET NAME", "TYPE", "ID", "READY", "IN STORE"];
const COLUMNS: usize = 6;
const ID: usize = 3;
/// What an id shrinks to where there is no room for it.
const SHORT_ID: usize = 9;

/// How a table is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub paint: Paint,
    /// How wide a line may be.
    pub room: usize,
    /// What stands before a row that is being worked on; `None` puts nothing before any row.
    pub busy: Option<char>,
}

/// Text and its colour.
type Cell = (String, Ink);

/// Header and rows.
pub(crate) fn lines<'a>(rows: impl Iterator<Item = &'a Row>, look: Look) -> Vec<String> {
    let header = HEADER.map(|name| (name.to_owned(), Ink::Dim));
    let mut table = vec![((" ".to_owned(), Ink::Plain), header)];
    table.extend(rows.map(|row| (mark(row, look), cells(row))));

    let mut widths = [0; COLUMNS];
    for (_, cells) in &table {
        for (widest, (text, _)) in widths.iter_mut().zip(cells) {
            *widest = width(text).max(*widest);
        }
    }
    let marks = if look.busy.is_some() { 2 } else { 0 };
    let content = marks + widths.iter().sum::<usize>();
    let gap = if content + 3 * (COLUMNS - 1) <= look.room { 3 } else { 2 };
    let excess = (content + gap * (COLUMNS - 1)).saturating_sub(look.room);
    widths[ID] = widths[ID].saturating_sub(excess).max(SHORT_ID.min(widths[ID]));

    // Part of a column says nothing; only the first is better than none.
    let ends = widths.iter().scan(marks, |end, wide| Some(std::mem::replace(end, *end + wide + gap) + wide));
    let whole = ends.take_while(|end| *end <= look.room).count().max(1);
    let line = |(mark, cells): &(Cell, [Cell; COLUMNS])| {
        line(look.busy.and(Some(mark)), &cells[..whole], &widths[..whole], gap, look)
    };
    table.iter().map(line).collect()
}

fn line(mark: Option<&Cell>, cells: &[Cell], widths: &[usize], gap: usize, look: Look) -> String {
    let mut line = String::new();
    let mut room = look.room;
    if let Some((glyph, ink)) = mark {
        line += &look.paint.ink(*ink, glyph);
        line.push(' ');
        room = room.saturating_sub(2);
    }
    for (column, ((text, ink), wide)) in cells.iter().zip(widths).enumerate() {
        let text = fit(text, room.min(*wide));
        line += &look.paint.ink(*ink, &text);
        if column + 1 < cells.len() {
            line.extend(std::iter::repeat_n(' ', wide - width(&text) + gap));
        }
        room = room.saturating_sub(wide + gap);
    }
    line.truncate(line.trim_end().len());
    line
}

/// What stands before a row.
fn mark(row: &Row, look: Look) -> Cell {
    let (glyph, ink) = match row.phase {
        Phase::Syncing | Phase::Deleting => (look.busy.unwrap_or(' '), Ink::Yellow),
        Phase::Ready => ('✓', Ink::Green),
        Phase::Failing => ('✗', Ink::Red),
        Phase::Gone => ('·', Ink::Dim),
    };
    (glyph.to_string(), ink)
}

fn cells(row: &Row) -> [Cell; COLUMNS] {
    let (ready, ink) = match row.phase {
        Phase::Ready => ("True", Ink::Green),
        Phase::Failing => ("False", Ink::Red),
        Phase::Syncing | Phase::Deleting => ("…", Ink::Yellow),
        Phase::Gone => ("gone", Ink::Dim),
    };
    let known = |text: &Option<String>| printable(text.as_deref().unwrap_or("-")).into_owned();
    let cells = [
        (row.resource.clone(), Ink::Bold),
        (printable(&row.pet_name).into_owned(), Ink::Plain),
        (row.pet_type.to_owned(), Ink::Plain),
        (known(&row.id), Ink::Cyan),
        (ready.to_owned(), ink),
        (known(&row.entry), Ink::Plain),
    ];
    match row.phase {
        Phase::Gone => cells.map(|(text, _)| (text, Ink::Dim)),
        _ => cells,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(resource: &str, phase: Phase) -> Row {
        Row {
            resource: resource.to_owned(),
            pet_name: "Thorbert".to_owned(),
            pet_type: "dog",
            id: Some("cef9499f-6214-4227-b217-265fd8f196e6".to_owned()),
            phase,
            message: None,
            entry: (phase != Phase::Gone).then(|| "Thorbert".to_owned()),
        }
    }

    fn table(rows: &[Row], room: usize, busy: Option<char>) -> Vec<String> {
        lines(rows.iter(), Look { paint: Paint(false), room, busy })
    }

    #[test]
    fn a_table_for_a_terminal() {
        let rows = [row("thor", Phase::Ready), row("tron", Phase::Deleting), row("zoe", Phase::Gone)];
        assert_eq!(
            table(&rows, 78, Some('⠋')),
            [
                "  NAME  PET NAME  TYPE  ID                                    READY  IN STORE",
                "✓ thor  Thorbert  dog   cef9499f-6214-4227-b217-265fd8f196e6  True   Thorbert",
                "⠋ tron  Thorbert  dog   cef9499f-6214-4227-b217-265fd8f196e6  …      Thorbert",
                "· zoe   Thorbert  dog   cef9499f-6214-4227-b217-265fd8f196e6  gone   -",
            ]
        );
    }

    #[test]
    fn a_narrow_table_has_whole_columns() {
        assert_eq!(
            table(&[row("thor", Phase::Ready)], 38, Some('⠋')),
            ["  NAME  PET NAME  TYPE  ID", "✓ thor  Thorbert  dog   cef9499f…"]
        );
    }

    #[test]
    fn a_table_for_a_file() {
        let rows = [row("thor", Phase::Ready)];
        assert_eq!(
            table(&rows, 100, None),
            [
                "NAME   PET NAME   TYPE   ID                                     READY   IN STORE",
                "thor   Thorbert   dog    cef9499f-6214-4227-b217-265fd8f196e6   True    Thorbert",
            ]
        );
    }

    #[test]
    fn no_line_is_wider_than_the_room() {
        let rows = [row("thor", Phase::Ready), row("a-name-that-goes-on", Phase::Failing)];
        for room in 0..90 {
            for line in table(&rows, room, Some('⠋')) {
                assert!(width(&line) <= room.max(2), "{} > {room}: {line}", width(&line));
            }
        }
        assert!(table(&rows[..1], 70, Some('⠋'))[1].contains("cef9499f-6214-4227-b217-265f…"));
    }
}
