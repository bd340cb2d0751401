//! `/healthz`, `/livez`, `/readyz`: checks by name, for people with `?verbose`.
//!
//! The three endpoints share most of the server's own checks. `/readyz` also has those that other parts of the process have
//! [registered](crate::state::ready_checks), such as the built-in controllers. As upstream has it, the answer of an endpoint withholds
//! why a check failed, since everybody may read it. The reason is in the answer of the single check and in the log.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::{Response, StatusCode};

use crate::api::Api;
use crate::body::{Body, text};
use crate::request::Query;
use crate::state::ready_checks::ReadyCheck;

/// A check, where it is asked, and whether it passes.
type Check = (&'static str, Of, fn(&Api) -> Result<(), String>);

/// The endpoints that have a check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    /// `/readyz` only.
    Ready,
}

/// What passes as long as the server answers: it was done before, or has nothing that could fail.
const DONE: fn(&Api) -> Result<(), String> = |_| Ok(());

/// Names and order follow upstream, where tools look for them: `etcd` is the store.
const CHECKS: [Check; 35] = [
    ("ping", Of::All, DONE),
    ("log", Of::All, DONE),
    ("etcd", Of::All, store),
    ("etcd-readiness", Of::Ready, store),
    ("informer-sync", Of::Ready, hub),
    ("poststarthook/start-apiserver-admission-initializer", Of::All, DONE),
    ("poststarthook/generic-apiserver-start-informers", Of::All, DONE),
    ("poststarthook/priority-and-fairness-config-consumer", Of::All, DONE),
    ("poststarthook/priority-and-fairness-filter", Of::All, DONE),
    ("poststarthook/storage-object-count-tracker-hook", Of::All, DONE),
    ("poststarthook/start-apiextensions-informers", Of::All, DONE),
    ("poststarthook/start-apiextensions-controllers", Of::All, DONE),
    ("poststarthook/crd-informer-synced", Of::All, DONE),
    ("poststarthook/start-system-namespaces-controller", Of::All, DONE),
    ("poststarthook/start-cluster-authentication-info-controller", Of::All, DONE),
    ("poststarthook/start-kube-apiserver-identity-lease-controller", Of::All, DONE),
    ("poststarthook/start-kube-apiserver-identity-lease-garbage-collector", Of::All, DONE),
    ("poststarthook/start-legacy-token-tracking-controller", Of::All, DONE),
    ("poststarthook/start-service-ip-repair-controllers", Of::All, DONE),
    ("poststarthook/rbac/bootstrap-roles", Of::All, DONE),
    ("poststarthook/scheduling/bootstrap-system-priority-classes", Of::All, DONE),
    ("poststarthook/priority-and-fairness-config-producer", Of::All, DONE),
    ("poststarthook/bootstrap-controller", Of::All, DONE),
    ("poststarthook/start-kubernetes-service-cidr-controller", Of::All, DONE),
    ("poststarthook/aggregator-reload-proxy-client-cert", Of::All, DONE),
    ("poststarthook/start-kube-aggregator-informers", Of::All, DONE),
    ("poststarthook/apiservice-status-local-available-controller", Of::All, DONE),
    ("poststarthook/apiservice-status-remote-available-controller", Of::All, DONE),
    ("poststarthook/apiservice-registration-controller", Of::All, DONE),
    ("poststarthook/apiservice-discovery-controller", Of::All, DONE),
    ("poststarthook/kube-apiserver-autoregistration", Of::All, DONE),
    ("autoregister-completion", Of::All, DONE),
    ("poststarthook/apiservice-openapi-controller", Of::All, DONE),
    ("poststarthook/apiservice-openapiv3-controller", Of::All, DONE),
    ("shutdown", Of::Ready, DONE),
];

fn store(api: &Api) -> Result<(), String> {
    api.store.takes_writes().map_err(|error| error.to_string())
}

fn hub(api: &Api) -> Result<(), String> {
    if api.hub.is_running() { Ok(()) } else { Err("watch events are not being delivered".into()) }
}

/// The checks of an endpoint, and whether they pass.
struct Checks<'a> {
    api: &'a Api,
    is_ready: bool,
    registered: Vec<(String, ReadyCheck)>,
}

impl<'a> Checks<'a> {
    fn of(api: &'a Api, endpoint: &str) -> Self {
        let is_ready = endpoint == "readyz";
        let registered = if is_ready { api.ready_checks.registered.read().clone() } else { Vec::new() };
        Self { api, is_ready, registered }
    }

    /// The server's own checks that the endpoint has.
    fn own(&self) -> impl Iterator<Item = &'static Check> {
        let is_ready = self.is_ready;
        CHECKS.iter().filter(move |(_, of, _)| is_ready || *of == Of::All)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.own().map(|(name, ..)| *name).chain(self.registered.iter().map(|(name, _)| &**name))
    }

    /// Runs a check; `None` if the endpoint has none of this name.
    fn run(&self, name: &str) -> Option<Result<(), String>> {
        let own = self.own().find(|(known, ..)| *known == name);
        let result = if let Some((_, _, check)) = own {
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
