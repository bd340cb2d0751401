//! What `/healthz` and `/readyz` answer: `ok`, or which check failed.
//!
//! As in Kubernetes: `?verbose` names every check, `?exclude=x` leaves one out, and
//! `/readyz/x` asks one alone. Why a check failed goes to the log, not to the client. A check that
//! panics has failed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use http::StatusCode;

use super::http::{Answer, Head, text};
use crate::object::panic_message;

/// A check of `/readyz` or `/healthz`, by its name. Clones are the same check.
///
/// [`Manager::ready_checks`](crate::Manager::ready_checks) returns those of a manager, for programs that answer probes
/// themselves.
#[derive(Clone)]
pub struct Check {
    name: Arc<str>,
    /// A failure is shown, but does not make the manager unready.
    advisory: bool,
    run: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Check {
    fn new(name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), advisory: false, run: Arc::new(check) }
    }

    /// The name, as in `/readyz/NAME`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the check passes now; the error says why it does not. A check that panics fails.
    pub fn run(&self) -> Result<(), String> {
        let asked = std::panic::catch_unwind(AssertUnwindSafe(&*self.run));
        asked.unwrap_or_else(|panic| Err(format!("panicked: {}", panic_message(&*panic))))
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(super) struct Checks {
    health: Vec<Check>,
    ready: Vec<Check>,
}

impl Checks {
    pub(super) fn add_health(&mut self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.health.push(Check::new(name, check));
    }

    pub(super) fn add_ready(&mut self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.ready.push(Check::new(name, check));
    }

    /// Adds a check of `/readyz` that shows in `?verbose` and answers `/readyz/NAME`, but does not make the manager
    /// unready.
    pub(super) fn add_advisory(&mut self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.ready.push(Check { advisory: true, ..Check::new(name, check) });
    }

    pub(super) fn with_ready(
        mut self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.add_ready(name, check);
        self
    }

    pub(super) fn ready(&self) -> &[Check] {
        &self.ready
    }

    pub(super) fn answer(&self, request: &Head) -> Answer {
        let path = request.uri().path().trim_matches('/');
        let (endpoint, single) = match path.split_once('/') {
            Some((endpoint, single)) => (endpoint, Some(single)),
            None => (path, None),
        };
        let checks = match endpoint {
            "healthz" => &self.health,
            "readyz" => &self.ready,
            _ => return text(StatusCode::NOT_FOUND, "not found\n"),
        };
        let query = Query::parse(request.uri().query().unwrap_or_default());
        match single {
            Some("ping") => text(StatusCode::OK, "ok"),
            Some(single) => match checks.iter().find(|check| check.name() == single) {
                Some(check) => match check.run() {
                    Ok(()) => text(StatusCode::OK, "ok"),
                    Err(reason) => {
                        tracing::warn!(endpoint, check = check.name(), %reason, "probe failed");
                        text(StatusCode::INTERNAL_SERVER_ERROR, "internal server error: reason withheld\n")
                    }
                },
                None => text(StatusCode::NOT_FOUND, "not found\n"),
            },
            None => run(endpoint, checks, &query),
        }
    }
}

#[derive(Default)]
struct Query {
    verbose: bool,
    exclude: Vec<String>,
}

impl Query {
    fn parse(text: &str) -> Self {
        let mut query = Self::default();
        for pair in text.split('&') {
            match pair.split_once('=') {
                Some(("exclude", name)) => query.exclude.push(name.to_owned()),
                Some(("verbose", _)) => query.verbose = true,
                None if pair == "verbose" => query.verbose = true,
                _ => {}
            }
        }
        query
    }
}

fn run(endpoint: &str, checks: &[Check], query: &Query) -> Answer {
    use std::fmt::Write as _;

    let mut report = String::from("[+]ping ok\n");
    let mut failed = false;
    for check in checks {
        let name = check.name();
        let _ = if query.exclude.iter().any(|excluded| excluded == name) {
            writeln!(report, "[+]{name} excluded: ok")
        } else if let Err(reason) = check.run() {
            failed |= !check.advisory;
            tracing::warn!(endpoint, check = name, %reason, "probe failed");
            let effect = if check.advisory { " (does not affect readiness)" } else { "" };
            writeln!(report, "[-]{name} failed: reason withheld{effect}")
        } else {
            writeln!(report, "[+]{name} ok")
        };
    }
    if failed {
        let _ = writeln!(report, "{endpoint} check failed");
        return text(StatusCode::INTERNAL_SERVER_ERROR, report);
    }
    if query.verbose {
        let _ = writeln!(report, "{endpoint} check passed");
        return text(StatusCode::OK, report);
    }
    text(StatusCode::OK, "ok")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn get(checks: &Checks, uri: &str) -> (u16, String) {
        let request = http::Request::get(uri).body(()).unwrap();
        let answer = checks.answer(&request);
        (answer.status().as_u16(), answer.into_body())
    }

    #[test]
    fn probes_answer_as_in_kubernetes() {
        let mut checks = Checks::default();
        checks.add_ready("a", || Ok(()));
        assert_eq!(get(&checks, "/readyz"), (200, "ok".into()));
        assert_eq!(get(&checks, "/readyz?verbose"), (200, "[+]ping ok\n[+]a ok\nreadyz check passed\n".into()));
        checks.add_ready("b", || Err("secret".into()));
        assert_eq!(
            get(&checks, "/readyz"),
            (500, "[+]ping ok\n[+]a ok\n[-]b failed: reason withheld\nreadyz check failed\n".into())
        );
        assert_eq!(get(&checks, "/readyz?exclude=b").0, 200);
        assert_eq!(get(&checks, "/readyz/a"), (200, "ok".into()));
        assert_eq!(get(&checks, "/readyz/b").0, 500);
        assert_eq!(get(&checks, "/readyz/c").0, 404);
        assert_eq!(get(&checks, "/healthz"), (200, "ok".into()));
        assert_eq!(get(&checks, "/").0, 404);
    }

    #[test]
    fn a_check_that_panics_has_failed() {
        let mut checks = Checks::default();
        checks.add_ready("a", || panic!("secret"));
        checks.add_ready("b", || Ok(()));
        assert_eq!(
            get(&checks, "/readyz"),
            (500, "[+]ping ok\n[-]a failed: reason withheld\n[+]b ok\nreadyz check failed\n".into())
        );
        assert_eq!(get(&checks, "/readyz/a").0, 500);
        assert_eq!(get(&checks, "/readyz/b").0, 200);
    }
}
