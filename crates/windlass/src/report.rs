//! How errors read: the message and its causes on one line, in `Display` and in `Debug`.
//!
//! `fn main() -> Result<(), Box<dyn Error>>` prints an error with `Debug`, and so do `unwrap` and `expect`. The
//! derived form shows fields and variant names, which helps nobody who runs an operator, so the errors that
//! operators return from `main` have the readable form for both.

use std::error::Error;
use std::fmt;

/// Shows an error followed by its causes. A cause that the message before it repeats is left out.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !said.contains(&text) {
                write!(f, ": {text}")?;
            }
            said.push_str(&text);
            cause = error.source();
        }
        Ok(())
    }
}

/// Implements `Debug` of error types as the message and its causes.
macro_rules! debug_as_message {
    ($($error:ty),+ $(,)?) => {
        $(impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&$crate::report::Chain(self), f)
            }
        })+
    };
}

pub(crate) use debug_as_message;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Link(&'static str, #[source] Option<Box<Link>>);

    #[test]
    fn causes_follow_once() {
        let link = |text, cause: Option<Link>| Link(text, cause.map(Box::new));
        let refused = || link("connection refused", None);
        for (error, expected) in [
            (link("read", Some(link("connect", Some(refused())))), "read: connect: connection refused"),
            (link("connect: connection refused", Some(refused())), "connect: connection refused"),
            (link("read: connection refused", Some(link("dial", Some(refused())))), "read: connection refused: dial"),
        ] {
            assert_eq!(Chain(&error).to_string(), expected);
        }
    }
}
