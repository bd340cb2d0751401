//! Colours, and text that is safe and fits. Everything that comes from outside goes through
//! [`printable`] before it is shown.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::time::Duration;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Bold,
    Dim,
    Green,
    Red,
    Cyan,
    Yellow,
}

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint(pub bool);

impl Paint {
    /// Colours on a terminal that shows them, unless `NO_COLOR` is set.
    pub(crate) fn on(stream: &impl IsTerminal) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self(stream.is_terminal() && !unwanted && !dumb)
    }

    /// The text in this ink.
    pub(crate) fn ink(self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Plain => return text.to_owned(),
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Red => "31",
            Ink::Green => "32",
            Ink::Yellow => "33",
            Ink::Cyan => "36",
        };
        if self.0 && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The text without characters that would do something to a terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        Cow::Owned(text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// How many columns the text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The text in at most `room` columns, with an ellipsis if something is missing.
pub(crate) fn fit(text: &str, room: usize) -> Cow<'_, str> {
    if width(text) <= room {
        return Cow::Borrowed(text);
    }
    let mut fitted = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used + 1 > room {
            break;
        }
        fitted.push(c);
    }
    if room > 0 {
        fitted.push('…');
    }
    Cow::Owned(fitted)
}

/// A duration in the unit that people think in.
pub(crate) fn duration(took: Duration) -> String {
    if took < Duration::from_micros(100) {
        "<0.1 ms".to_owned()
    } else if took < Duration::from_millis(10) {
        format!("{:.1} ms", took.as_secs_f64() * 1e3)
    } else if took < Duration::from_secs(1) {
        format!("{} ms", took.as_millis())
    } else {
        format!("{:.1} s", took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_fits_where_it_is_put() {
        for (text, room, fitted) in [
            ("Thorbert", 8, "Thorbert"),
            ("Thorbert", 5, "Thor…"),
            ("Thorbert", 1, "…"),
            ("Thorbert", 0, ""),
            ("雷神", 4, "雷神"),
            ("雷神", 3, "雷…"),
            ("雷神", 2, "…"),
        ] {
            assert_eq!(fit(text, room), fitted, "{text} in {room}");
        }
    }

    #[test]
    fn a_pet_cannot_write_on_the_terminal() {
        assert_eq!(printable("Thor\x1b[2J\u{9b}"), "Thor\u{fffd}[2J\u{fffd}");
        assert_eq!(printable("Zoë"), "Zoë");
    }

    #[test]
    fn durations_have_the_right_unit() {
        for (micros, text) in
            [(20, "<0.1 ms"), (310, "0.3 ms"), (9_949, "9.9 ms"), (41_700, "41 ms"), (1_250_000, "1.2 s")]
        {
            assert_eq!(duration(Duration::from_micros(micros)), text);
        }
    }
}
