//! How long a request may take.
//!
//! Mirrors `WithRequestDeadline` and `WithTimeoutForNonLongRunningRequests` of upstream's generic server: 60 seconds, or
//! less if the query asks for it with `timeout`. Requests that are long by nature have no limit.

use std::time::Duration;

use http::Method;

use crate::codec::duration;
use crate::request::{Query, ResourcePath, Target, Verb};
use crate::status::Status;

/// How long a request may take, as upstream's `--request-timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Subresources whose requests last as long as their clients want.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// How long a request may take; `None` if it is long-running. Fails if the query says something else than a duration.
pub(super) fn timeout(target: &Target, method: &Method, query: &Query) -> Result<Option<Duration>, Status> {
    if let Target::Resource(path) = target
        && is_long_running(path, method, query)
    {
        return Ok(None);
    }
    let Some(text) = query.get("timeout") else { return Ok(Some(REQUEST_TIMEOUT)) };
    let Some(asked) = duration::parse(text) else {
        let why = duration::why_invalid(text);
        return Err(Status::bad_request(format!("invalid timeout specified in the request URL - {why}")));
    };
    let asked = u64::try_from(asked).ok().filter(|nanoseconds| *nanoseconds > 0).map(Duration::from_nanos);
    Ok(Some(asked.map_or(REQUEST_TIMEOUT, |asked| asked.min(REQUEST_TIMEOUT))))
}

/// Whether a request lasts as long as its client wants.
pub(super) fn is_long_running(path: &ResourcePath, method: &Method, query: &Query) -> bool {
    let watch = || query.flag("watch").unwrap_or(false);
    path.subresource.as_deref().is_some_and(|subresource| LONG_RUNNING.contains(&subresource))
        || path.verb(method, watch()) == Some(Verb::Watch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &Method, path: &str, expected: &Result<Option<u64>, &str>) {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let timeout = timeout(&Target::parse(path), method, &Query::parse(query));
        let timeout = timeout.map(|timeout| timeout.map(|timeout| timeout.as_millis() as u64));
        let timeout = timeout.map_err(|status| status.message);
        assert_eq!(timeout.as_ref().map_err(String::as_str), expected.as_ref().map_err(|why| *why), "{path} {query:?}");
    }

    #[test]
    fn requests_have_a_minute_unless_they_are_long_running() {
        let pods = "/api/v1/namespaces/default/pods";
        for (path, expected) in [
            (pods.to_owned(), Ok(Some(60_000))),
            ("/version".to_owned(), Ok(Some(60_000))),
            (format!("{pods}?timeout=5s"), Ok(Some(5_000))),
            ("/version?timeout=1.5s".to_owned(), Ok(Some(1_500))),
            (format!("{pods}?timeout=5m"), Ok(Some(60_000))),
            (format!("{pods}?timeout=0"), Ok(Some(60_000))),
            (format!("{pods}?timeout=-1s"), Ok(Some(60_000))),
            (format!("{pods}?timeout="), Ok(Some(60_000))),
            (
                format!("{pods}?timeout=5"),
                Err("invalid timeout specified in the request URL - time: missing unit in duration \"5\""),
            ),
            (
                format!("{pods}?timeout=soon"),
                Err("invalid timeout specified in the request URL - time: invalid duration \"soon\""),
            ),
            (format!("{pods}?watch=true&timeout=5s"), Ok(None)),
            ("/api/v1/watch/pods".to_owned(), Ok(None)),
            (format!("{pods}/p/log"), Ok(None)),
            (format!("{pods}/p/exec?command=ls"), Ok(None)),
            (format!("{pods}/p/status"), Ok(Some(60_000))),
            ("/api/v1/nodes/n/proxy/metrics".to_owned(), Ok(None)),
        ] {
            check(&Method::GET, &path, &expected);
        }
        check(&Method::POST, "/api/v1/namespaces/default/pods?watch=true", &Ok(Some(60_000)));
        check(&Method::POST, "/api/v1/namespaces/default/pods/p/attach", &Ok(None));
    }
}
