//! A terminal with a region at its end that is drawn again and again, below lines that stay.
//!
//! No line of the region is wider than the terminal, and the region is lower than it, so going up by the number of lines
//! drawn always leads back to where the region starts.

use std::fmt::Write as _;
use std::io::Write as _;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::paint::width;

pub(crate) const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
pub(crate) const CLEAR_LINE: &str = "\x1b[K";
pub(crate) const CLEAR_BELOW: &str = "\x1b[J";
/// The size of a terminal that does not tell its size.
const USUAL: (usize, usize) = (80, 24);

/// The widths of the lines that were drawn last.
#[derive(Default)]
pub(crate) struct Drawn(Vec<usize>);

impl Drawn {
    /// What leads back to the start of the region. In a terminal that became narrower since, the
    /// lines that were drawn take up more rows.
    pub(crate) fn rewind(&mut self) -> String {
        let columns = size().0.max(1);
        let rows: usize = self.0.drain(..).map(|width| width.div_ceil(columns).max(1)).sum();
        if rows == 0 { "\r".to_owned() } else { format!("\r\x1b[{rows}A") }
    }

    /// Leaves what was drawn last as it is; what comes next comes below.
    pub(crate) fn settle(&mut self) {
        self.0.clear();
    }

    /// Writes `text`, and the region below it. One write, so that no half-drawn region is seen.
    pub(crate) fn draw(&mut self, mut text: String, region: &[String]) {
        for line in region {
            self.0.push(width_shown(line));
            let _ = writeln!(text, "{line}{CLEAR_LINE}");
        }
        text += CLEAR_BELOW;
        write(&text);
    }

    /// Writes lines that stay, and the region below them.
    pub(crate) fn say(&mut self, lines: &[String], region: &[String]) {
        let mut text = self.rewind();
        for line in lines {
            text += line;
            text += CLEAR_LINE;
            text.push('\n');
        }
        self.draw(text, region);
    }
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .filter(|size| size.ws_col > 0 && size.ws_row > 0)
        .map_or(USUAL, |size| (size.ws_col.into(), size.ws_row.into()))
}

fn write(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // A terminal that is gone sends SIGHUP, which ends the command.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// How many columns a line takes, colours left aside.
fn width_shown(line: &str) -> usize {
    let mut shown = 0;
    for (number, part) in line.split("\x1b[").enumerate() {
        let text = if number == 0 { part } else { part.split_once('m').map_or("", |(_, text)| text) };
        shown += width(text);
    }
    shown
}

/// Single keys instead of lines from the terminal at standard input, as long as this is there.
pub(crate) struct Keys {
    before: Termios,
}

impl Keys {
    /// `None` if standard input is no terminal.
    pub(crate) fn take() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut keys = before.clone();
        // Signals such as Ctrl-C stay.
        keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &keys).ok()?;
        Some(Self { before })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
