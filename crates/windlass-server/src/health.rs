//! `/healthz`, `/livez`, `/readyz`: checks by name, for people with `?verbose`.

use std::fmt::Write as _;

use http::{Response, StatusCode};

use crate::api::Api;
use crate::body::Body;
use crate::request::Query;

/// A check and whether it passes.
type Check = (&'static str, fn(&Api) -> Result<(), String>);

/// Names follow upstream, where tools look for them: `etcd` is the store.
const CHECKS: [Check; 6] = [
    ("ping", |_| Ok(())),
    ("log", |_| Ok(())),
    ("etcd", store),
    ("informer-sync", hub),
    ("poststarthook/crd-informer-synced", |_| Ok(())),
    ("shutdown", |_| Ok(())),
];

fn store(api: &Api) -> Result<(), String> {
    api.store.takes_writes().map_err(|error| error.to_string())
}

fn hub(api: &Api) -> Result<(), String> {
    if api.hub.is_running() { Ok(()) } else { Err("watch events are not being delivered".into()) }
}

/// Answers a health request; `None` if the path is none.
pub(crate) fn answer(api: &Api, path: &str, query: &Query) -> Option<Response<Body>> {
    let mut segments = path.trim_start_matches('/').splitn(2, '/');
    let endpoint = segments.next().filter(|name| matches!(*name, "healthz" | "livez" | "readyz"))?;
    if let Some(name) = segments.next().filter(|name| !name.is_empty()) {
        let Some((_, check)) = CHECKS.iter().find(|(known, _)| *known == name) else {
            return Some(text(StatusCode::NOT_FOUND, "404 page not found\n"));
        };
        return Some(match check(api) {
            Ok(()) => text(StatusCode::OK, "ok"),
            Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("internal server error: {why}")),
        });
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    for (name, check) in &CHECKS {
        let line = if excluded.contains(name) {
            format!("[+]{name} excluded: ok\n")
        } else if check(api).is_ok() {
            format!("[+]{name} ok\n")
        } else {
            failed = true;
            format!("[-]{name} failed: reason withheld\n")
        };
        lines.push_str(&line);
    }
    for name in excluded.iter().filter(|name| !CHECKS.iter().any(|(known, _)| known == *name)) {
        let _ = writeln!(lines, "warn: some health checks cannot be excluded: no matches for \"{name}\"");
    }
    if failed {
        let _ = writeln!(lines, "{endpoint} check failed");
        return Some(text(StatusCode::INTERNAL_SERVER_ERROR, &lines));
    }
    if query.has("verbose") {
        let _ = writeln!(lines, "{endpoint} check passed");
        return Some(text(StatusCode::OK, &lines));
    }
    Some(text(StatusCode::OK, "ok"))
}

/// A plain text answer.
pub(crate) fn text(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("x-content-type-options", http::HeaderValue::from_static("nosniff"));
    response
}
