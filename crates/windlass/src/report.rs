//! How errors read: the message and its causes on one line, in `Display` and in `Debug`.
//!
//! `fn main() -> Result<(), Box<dyn Error>>` prints an error with `Debug`, and so do `unwrap` and `expect`. The
//! derived form shows fields and variant names, which does not help to run an operator, so the errors that
//! operators return from `main` have the readable form for both.

use std::error::Error;
use std::fmt;

/// Shows an error followed by its causes. A cause that the message before it repeats is left out.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = String::new();
        let mut error = Some(self.0);
        while let Some(current) = error {
            if let Some(text) = text(current) {
                if !said.contains(&text) {
                    write!(f, "{}{text}", if said.is_empty() { "" } else { ": " })?;
                }
                said.push_str(&text);
            }
            error = current.source();
        }
        Ok(())
    }
}

/// The client's error, if this is one. The library's errors keep it in a box, which is a type of its own.
pub(crate) fn kube_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a kube::Error> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
    error.downcast_ref::<kube::Error>().or_else(boxed)
}

/// The message of an error; `None` for one that only wraps others. kube's own messages repeat the whole `Status`, field
/// by field.
fn text(error: &(dyn Error + 'static)) -> Option<String> {
    match kube_error(error) {
        Some(kube::Error::Api(status)) => Some(status.message.clone()),
        Some(kube::Error::Service(_)) => None,
        _ if error.is::<kube::core::Status>() || error.is::<Box<kube::core::Status>>() => None,
        _ => Some(error.to_string()),
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
    fn the_answer_of_a_server_is_its_message() {
        #[derive(Debug, thiserror::Error)]
        #[error("create configmaps/v1 default/a: it exists")]
        struct Refused(#[source] kube::Error);

        let status = kube::core::Status::failure("it exists", "AlreadyExists").with_code(409);
        let refused = Refused(kube::Error::Api(status.boxed()));
        assert_eq!(Chain(&refused).to_string(), "create configmaps/v1 default/a: it exists");
        let unreachable = Refused(kube::Error::Service("connection refused".into()));
        assert_eq!(Chain(&unreachable).to_string(), "create configmaps/v1 default/a: it exists: connection refused");
    }

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
