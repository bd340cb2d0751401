//! `/healthz`, `/livez`, `/readyz`: checks by name, for people with `?verbose`.
//!
//! The three endpoints share the server's own checks. `/readyz` also has those that other parts of the process have
//! [registered](ReadyChecks), such as the built-in controllers. As upstream has it, the answer of an endpoint withholds
//! why a check failed, since everybody may read it. The reason is in the answer of the single check and in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http::{Response, StatusCode};
use parking_lot::{Mutex, RwLock};

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

type ReadyCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks that other parts of the process have registered for `/readyz`.
#[derive(Default)]
pub(crate) struct ReadyChecks {
    registered: RwLock<Vec<(String, ReadyCheck)>>,
    /// The reason that was logged last for each check that fails. Everybody may ask as often as they like: the log
    /// only grows when a reason changes.
    logged: Mutex<BTreeMap<String, String>>,
}

impl ReadyChecks {
    pub(crate) fn add(&self, name: String, check: ReadyCheck) {
        self.registered.write().push((name, check));
    }

    fn log(&self, name: &str, result: &Result<(), String>) {
        let mut logged = self.logged.lock();
        match result {
            Ok(()) => {
                if logged.remove(name).is_some() {
                    tracing::info!(check = name, "health check passes again");
                }
            }
            Err(reason) if logged.get(name) != Some(reason) => {
                tracing::warn!(check = name, %reason, "health check failed");
                logged.insert(name.to_owned(), reason.clone());
            }
            Err(_) => {}
        }
    }
}

/// The checks of an endpoint, and whether they pass.
struct Checks<'a> {
    api: &'a Api,
    registered: Vec<(String, ReadyCheck)>,
}

impl<'a> Checks<'a> {
    fn of(api: &'a Api, endpoint: &str) -> Self {
        let registered = match endpoint {
            "readyz" => api.ready_checks.registered.read().clone(),
            _ => Vec::new(),
        };
        Self { api, registered }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        CHECKS.iter().map(|(name, _)| *name).chain(self.registered.iter().map(|(name, _)| &**name))
    }

    /// Runs a check; `None` if the endpoint has none of this name.
    fn run(&self, name: &str) -> Option<Result<(), String>> {
        let own = CHECKS.iter().find(|(known, _)| *known == name);
        let result = if let Some((_, check)) = own {
            check(self.api)
        } else {
            let (_, check) = self.registered.iter().find(|(known, _)| known == name)?;
            catch_unwind(AssertUnwindSafe(&**check)).unwrap_or_else(|_| Err("the check panicked".to_owned()))
        };
        self.api.ready_checks.log(name, &result);
        Some(result)
    }
}

/// Answers a health request; `None` if the path is none.
pub(crate) fn answer(api: &Api, path: &str, query: &Query) -> Option<Response<Body>> {
    let mut segments = path.trim_start_matches('/').splitn(2, '/');
    let endpoint = segments.next().filter(|name| matches!(*name, "healthz" | "livez" | "readyz"))?;
    let checks = Checks::of(api, endpoint);
    if let Some(name) = segments.next().filter(|name| !name.is_empty()) {
        return Some(match checks.run(name) {
            None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
            Some(Ok(())) => text(StatusCode::OK, "ok"),
            Some(Err(why)) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("internal server error: {why}\n")),
        });
    }
    let mut excluded: BTreeSet<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    for name in checks.names() {
        let _ = if excluded.remove(name) {
            writeln!(lines, "[+]{name} excluded: ok")
        } else if matches!(checks.run(name), Some(Err(_))) {
            failed = true;
            writeln!(lines, "[-]{name} failed: reason withheld")
        } else {
            writeln!(lines, "[+]{name} ok")
        };
    }
    if !excluded.is_empty() {
        let unknown: Vec<String> = excluded.iter().map(|name| format!("\"{name}\"")).collect();
        let unknown = unknown.join(",");
        let _ = writeln!(lines, "warn: some health checks cannot be excluded: no matches for {unknown}");
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
