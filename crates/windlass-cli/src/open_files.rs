//! How many files the process may have open: every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// macOS refuses to set an infinite limit; this is the most that it takes.
const OPEN_MAX: u64 = 10_240;

/// Raises the soft limit to the hard one. Many systems have a soft limit of 1,024 for the sake of programs that use
/// `select`, which this one does not. Stays as it is if the system refuses.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    for most in [limit.maximum, Some(limit.maximum.map_or(OPEN_MAX, |most| most.min(OPEN_MAX)))] {
        let is_more = limit.current.is_some_and(|current| most.is_none_or(|most| most > current));
        if !is_more || setrlimit(Resource::Nofile, Rlimit { current: most, ..limit }).is_ok() {
            return;
        }
    }
}
