//! Configuration, nodes, events, quotas, access, admission and flow control.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::super::access::{View, int, list, text};
use super::super::duration;
use super::quantity;

pub(super) fn config_map(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), (view.count("/data") + view.count("/binaryData")).into(), view.age()]
}

pub(super) fn secret(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.text("/type").into(), view.count("/data").into(), view.age()]
}

pub(super) fn namespace(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.text("/status/phase").into(), view.age()]
}

pub(super) fn node(view: &View<'_>) -> Vec<Value> {
    let ready = view.list("/status/conditions").iter().rfind(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if view.flag("/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let roles = node_roles(view).into_iter().collect::<Vec<_>>().join(",");
    let info = |field: &str| view.text_or(&format!("/status/nodeInfo/{field}"), "<unknown>");
    let architecture = view.text("/status/nodeInfo/architecture");
    let kernel = match architecture {
        "" => info("kernelVersion").to_owned(),
        architecture => format!("{} ({architecture})", info("kernelVersion")),
    };
    let address = |ty: &str| {
        let found = view.list("/status/addresses").iter().find(|address| text(address, "/type") == ty);
        Value::from(found.map_or("<none>", |address| text(address, "/address")))
    };
    vec![
        view.name(),
        status.into(),
        if roles.is_empty() { "<none>".into() } else { roles.into() },
        view.age(),
        view.text("/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage").into(),
        kernel.into(),
        info("containerRuntimeVersion").into(),
    ]
}

fn node_roles<'a>(view: &View<'a>) -> BTreeSet<&'a str> {
    let labels = view.get("/metadata/labels").and_then(Value::as_object).map(Map::iter).into_iter().flatten();
    labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect()
}

/// Events of both groups, which name the same things differently.
pub(super) fn event(view: &View<'_>) -> Vec<Value> {
    let either = |core: &str, events: &str| {
        let core = view.text(core);
        if core.is_empty() { view.text(events) } else { core }
    };
    let first = view.time("/firstTimestamp").or_else(|| view.time("/deprecatedFirstTimestamp"));
    let first = first.or_else(|| view.time("/eventTime"));
    let last = view.time("/lastTimestamp").or_else(|| view.time("/deprecatedLastTimestamp")).or(first);
    let (last, count) = match view.at("/series") {
        Some(series) => (series.time("/lastObservedTime"), series.int("/count")),
        None => (last, (view.int("/count") + view.int("/deprecatedCount")).max(1)),
    };
    let kind = either("/involvedObject/kind", "/regarding/kind").to_lowercase();
    let object = match either("/involvedObject/name", "/regarding/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = [
        either("/source/component", "/deprecatedSource/component"),
        either("/reportingComponent", "/reportingController"),
    ];
    let component = component.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    let instance = [either("/source/host", "/deprecatedSource/host"), view.text("/reportingInstance")];
    let source = match instance.into_iter().find(|text| !text.is_empty()) {
        Some(instance) => format!("{component}, {instance}"),
        None => component.to_owned(),
    };
    vec![
        view.elapsed(last).into(),
        view.text("/type").into(),
        view.text("/reason").into(),
        object.into(),
        either("/involvedObject/fieldPath", "/regarding/fieldPath").into(),
        source.into(),
        either("/message", "/note").trim().into(),
        view.elapsed(first).into(),
        count.into(),
        view.name(),
    ]
}

pub(super) fn component_status(view: &View<'_>) -> Vec<Value> {
    let healthy = view.condition("/conditions", "Healthy");
    let status = match healthy.map(|condition| text(condition, "/status")) {
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
        None => "Unknown",
    };
    let detail = |pointer: &str| Value::from(healthy.map(|condition| text(condition, pointer)).unwrap_or_default());
    vec![view.name(), status.into(), detail("/message"), detail("/error")]
}

pub(super) fn resource_quota(view: &View<'_>) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let used = view.get("/status/used");
    for (resource, hard) in view.get("/status/hard").and_then(Value::as_object).map(Map::iter).into_iter().flatten() {
        let used = quantity(used.and_then(|used| used.get(resource)));
        let column = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{resource}: {used}/{}", quantity(Some(hard))));
    }
    vec![view.name(), requests.join(", ").into(), limits.join(", ").into(), view.age()]
}

pub(super) fn role_binding(view: &View<'_>) -> Vec<Value> {
    let role = format!("{}/{}", view.text("/roleRef/kind"), view.text("/roleRef/name"));
    let subjects = |kind: &str| {
        let of_kind = view.list("/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
        let names = of_kind.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
            _ => text(subject, "/name").to_owned(),
        });
        Value::from(names.collect::<Vec<_>>().join(", "))
    };
    vec![view.name(), role.into(), view.age(), subjects("User"), subjects("Group"), subjects("ServiceAccount")]
}

pub(super) fn certificate_signing_request(view: &View<'_>) -> Vec<Value> {
    let has = |ty: &str| view.condition("/status/conditions", ty).is_some();
    let mut status = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied".to_owned(),
        (false, true) => "Approved".to_owned(),
        (false, false) => "Pending".to_owned(),
    };
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !view.text("/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    let expiration = view.get("/spec/expirationSeconds").and_then(Value::as_i64);
    let expiration = expiration.map(|seconds| duration::human(jiff::SignedDuration::from_secs(seconds)));
    vec![
        view.name(),
        view.age(),
        view.text_or("/spec/signerName", "<none>").into(),
        view.text("/spec/username").into(),
        expiration.unwrap_or_else(|| "<none>".to_owned()).into(),
        status.into(),
    ]
}

pub(super) fn lease(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.text("/spec/holderIdentity").into(), view.age()]
}

pub(super) fn priority_class(view: &View<'_>) -> Vec<Value> {
    vec![
        view.name(),
        view.int("/value").into(),
        view.flag("/globalDefault").into(),
        view.age(),
        view.text("/preemptionPolicy").into(),
    ]
}

pub(super) fn runtime_class(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.text("/handler").into(), view.age()]
}

pub(super) fn flow_schema(view: &View<'_>) -> Vec<Value> {
    let dangling = view.condition("/status/conditions", "Dangling");
    vec![
        view.name(),
        view.text("/spec/priorityLevelConfiguration/name").into(),
        view.int("/spec/matchingPrecedence").into(),
        view.at("/spec/distinguisherMethod").map_or("<none>", |method| method.text("/type")).into(),
        view.age(),
        dangling.map_or("?", |condition| text(condition, "/status")).into(),
    ]
}

pub(super) fn priority_level(view: &View<'_>) -> Vec<Value> {
    let limited = view.get("/spec/limited");
    let queuing = view.get("/spec/limited/limitResponse/queuing");
    let number = |from: Option<&Value>, pointer: &str| {
        from.map_or_else(|| Value::from("<none>"), |value| int(value, pointer).into())
    };
    vec![
        view.name(),
        view.text("/spec/type").into(),
        number(limited, "/nominalConcurrencyShares"),
        number(queuing, "/queues"),
        number(queuing, "/handSize"),
        number(queuing, "/queueLengthLimit"),
        view.age(),
    ]
}

pub(super) fn api_service(view: &View<'_>) -> Vec<Value> {
    let service = view.at("/spec/service").map_or_else(
        || "Local".to_owned(),
        |service| format!("{}/{}", service.text("/namespace"), service.text("/name")),
    );
    let available = view.condition("/status/conditions", "Available").map_or_else(
        || "Unknown".to_owned(),
        |condition| match (text(condition, "/status"), text(condition, "/reason")) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    );
    vec![view.name(), service.into(), available.into(), view.age()]
}

pub(super) fn webhook_configuration(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.count("/webhooks").into(), view.age()]
}

pub(super) fn validating_admission_policy(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.count("/spec/validations").into(), param_kind(view), view.age()]
}

pub(super) fn mutating_admission_policy(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.count("/spec/mutations").into(), param_kind(view), view.age()]
}

fn param_kind(view: &View<'_>) -> Value {
    let kind = view.at("/spec/paramKind");
    let kind = kind.map(|kind| format!("{}/{}", kind.text("/apiVersion"), kind.text("/kind")));
    kind.unwrap_or_else(|| "<unset>".to_owned()).into()
}

pub(super) fn admission_policy_binding(view: &View<'_>) -> Vec<Value> {
    let params = view.at("/spec/paramRef").map(|reference| {
        match (reference.text("/name"), reference.text("/namespace"), reference.get("/selector")) {
            ("", _, Some(selector)) => go_selector(selector),
            ("", _, None) => "<unset>".to_owned(),
            (name, "", _) => format!("*/{name}"),
            (name, namespace, _) => format!("{namespace}/{name}"),
        }
    });
    let params = params.unwrap_or_else(|| "<unset>".to_owned());
    vec![view.name(), view.text("/spec/policyName").into(), params.into(), view.age()]
}

/// A selector as Go's generated `String` method writes the struct.
fn go_selector(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object).map(Map::iter).into_iter().flatten();
    let labels: String = labels
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect::<Vec<_>>()
        .concat();
    let expression = |expression: &Value| {
        let values: Vec<&str> = list(expression, "/values").iter().filter_map(Value::as_str).collect();
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            text(expression, "/key"),
            text(expression, "/operator"),
            values.join(" ")
        )
    };
    let expressions = list(selector, "/matchExpressions").iter().map(expression).collect::<Vec<_>>().concat();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
