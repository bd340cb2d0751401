//! Whether the server behind an APIService can be reached, and the condition that says so.
//!
//! Reasons and messages are upstream's: `kube-aggregator/pkg/controllers/status/remote/remote_available_controller.go`.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use windlass_store::{Range, Store};

use crate::api::Api;
use crate::authn::{MASTERS, User};
use crate::field::quote;
use crate::loopback::{self, Failed};
use crate::object;
use crate::remote::{Backend, url};
use crate::stored;
use crate::validation::access::{Access as _, AccessMut as _};

const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// How often a server is asked at once: one answer is enough.
const ATTEMPTS: usize = 5;
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const FAILED_PROBE: &str = "FailedDiscoveryCheck";

/// What the condition `Available` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Condition {
    status: String,
    reason: String,
    message: String,
}

impl Condition {
    /// The condition of an APIService.
    pub(super) fn of(object: &Value) -> Self {
        let conditions = object.at("status").list("conditions");
        let Some(found) = conditions.iter().find(|condition| condition.text("type") == "Available") else {
            return Self::default();
        };
        let text = |field: &str| found.text(field).to_owned();
        Self { status: text("status"), reason: text("reason"), message: text("message") }
    }

    fn new(status: &str, reason: &str, message: String) -> Self {
        Self { status: status.to_owned(), reason: reason.to_owned(), message }
    }

    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Whether the server may answer soon although nothing changes here.
    pub(super) fn should_retry(&self) -> bool {
        self.reason == FAILED_PROBE || self.status == "Unknown"
    }
}

/// Looks at the Service and its endpoints, and asks the server.
pub(super) async fn check(store: &dyn Store, backend: &Backend, spec: &Value) -> Condition {
    if let Some(problem) = problem_of_service(store, backend).await {
        return problem;
    }
    match probe(backend, spec).await {
        Ok(()) => Condition::new("True", "Passed", "all checks passed".to_owned()),
        Err(why) => Condition::new("False", FAILED_PROBE, why),
    }
}

async fn problem_of_service(store: &dyn Store, backend: &Backend) -> Option<Condition> {
    let (namespace, name) = backend.service();
    let named = format!("service/{name} in {}", quote(namespace));
    let unknown = |reason: &str, error: &dyn std::fmt::Display| {
        Some(Condition::new("Unknown", reason, format!("{named} cannot be checked due to: {error}")))
    };
    let service = match store.get(format!("/registry/services/specs/{namespace}/{name}").as_bytes()).await {
        Ok(entry) => entry.and_then(|entry| stored::decode(&entry.value).ok()),
        Err(error) => return unknown("ServiceAccessError", &error),
    };
    let Some(service) = service else {
        return Some(Condition::new("False", "ServiceNotFound", format!("{named} is not present")));
    };
    if service.at("spec").text("type") != "ClusterIP" {
        return None;
    }
    let port = i64::from(backend.port());
    let ports = service.at("spec").list("ports");
    let Some(port) = ports.iter().find(|known| known.int("port") == port) else {
        let message = format!("{named} is not listening on port {port}");
        return Some(Condition::new("False", "ServicePortError", message));
    };
    let slices = match store.range(Range::prefix(format!("/registry/endpointslices/{namespace}/")), None, 0).await {
        Ok(slices) => slices.entries.into_iter().filter_map(|entry| stored::decode(&entry.value).ok()),
        Err(error) => return unknown("EndpointsAccessError", &error),
    };
    let slices: Vec<Value> = slices
        .filter(|slice| slice.below(&["metadata", "labels"]).text("kubernetes.io/service-name") == name)
        .collect();
    if slices.is_empty() {
        return Some(Condition::new("False", "EndpointsNotFound", format!("cannot find endpointslices for {named}")));
    }
    let port_name = port.text("name");
    if !slices.iter().any(|slice| serves(slice, port_name)) {
        let message = format!("endpointslices for {named} have no addresses with port name {}", quote(port_name));
        return Some(Condition::new("False", "MissingEndpoints", message));
    }
    None
}

/// Whether a slice has a ready endpoint and the port.
fn serves(slice: &Value, port_name: &str) -> bool {
    let is_ready = |endpoint: &Value| endpoint.at("conditions").flag_opt("ready") != Some(false);
    slice.list("endpoints").iter().any(is_ready)
        && slice.list("ports").iter().any(|port| port.text("name") == port_name && port.has("port"))
}

/// Asks the server for its discovery document. One answer of several is enough; otherwise the last failure counts.
async fn probe(backend: &Backend, spec: &Value) -> Result<(), String> {
    let (group, version) = (spec.text("group"), spec.text("version"));
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let mut user = User::new("system:kube-aggregator", []);
    user.groups = vec![MASTERS.to_owned()];
    let (path, user) = (&path, &user);
    let attempt = async || {
        let at = backend.resolve().await?;
        let url = url(&at, path);
        let failed = |why: String| format!("failing or missing response from {url}: {why}");
        let fetched = backend.fetch_from(at.clone(), path, "application/json", None, user, PROBE_TIMEOUT).await;
        let (parts, _) = fetched.map_err(&failed)?;
        if parts.status.is_success() {
            return Ok(());
        }
        Err(failed(format!("bad status from {url}: {}", parts.status.as_u16())))
    };
    let mut attempts: FuturesUnordered<_> = (0..ATTEMPTS).map(|_| attempt()).collect();
    let mut result = Ok(());
    while let Some(attempted) = attempts.next().await {
        result = attempted;
        if result.is_ok() {
            return Ok(());
        }
    }
    result
}

/// Writes the condition if the APIService says something else. Whether it says so now.
pub(super) async fn write(api: &Arc<Api>, name: &str, spec: &Value, condition: &Condition) -> bool {
    match put(api, name, spec, condition).await {
        Ok(()) => true,
        Err(Failed { method, path, message }) => {
            tracing::warn!(%method, %path, %message, "an API service cannot be updated");
            false
        }
    }
}

async fn put(api: &Arc<Api>, name: &str, spec: &Value, condition: &Condition) -> Result<(), Failed> {
    let path = format!("{PATH}/{name}");
    let Some(mut object) = loopback::get(api, &path).await? else { return Ok(()) };
    // What has changed meanwhile is checked again.
    if object.at("spec") != spec || Condition::of(&object) == *condition {
        return Ok(());
    }
    set(&mut object, condition, &object::time(Timestamp::now()));
    loopback::send(api, Method::PUT, &format!("{path}/status"), &object).await
}

fn set(object: &mut Value, condition: &Condition, now: &str) {
    let status = object.struct_mut("status");
    let mut conditions = status.list("conditions").to_vec();
    let at = conditions.iter().position(|known| known.text("type") == "Available").unwrap_or_else(|| {
        conditions.push(json!({"type": "Available"}));
        conditions.len() - 1
    });
    let known = &mut conditions[at];
    if known.text("status") != condition.status {
        known.put("lastTransitionTime", now);
    }
    for (field, value) in
        [("status", &condition.status), ("reason", &condition.reason), ("message", &condition.message)]
    {
        known.put(field, value.as_str());
    }
    status.put("conditions", conditions);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_condition_changes_with_its_status() {
        let mut object = json!({"spec": {}});
        set(&mut object, &Condition::new("False", "A", "a".to_owned()), "then");
        set(&mut object, &Condition::new("False", "B", "b".to_owned()), "later");
        let condition = &object["status"]["conditions"][0];
        assert_eq!((&condition["reason"], &condition["lastTransitionTime"]), (&json!("B"), &json!("then")));
        set(&mut object, &Condition::new("True", "Passed", String::new()), "now");
        assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], "now");
        assert_eq!(Condition::of(&object), Condition::new("True", "Passed", String::new()));
    }

    #[test]
    fn an_endpoint_counts_unless_it_is_not_ready() {
        let slice = |endpoints: Value| json!({"endpoints": endpoints, "ports": [{"name": "x", "port": 1}]});
        assert!(serves(&slice(json!([{"conditions": {}}])), "x"));
        assert!(!serves(&slice(json!([{"conditions": {"ready": false}}])), "x"));
        assert!(!serves(&slice(json!([])), "x"));
        assert!(!serves(&slice(json!([{}])), "y"));
    }
}
