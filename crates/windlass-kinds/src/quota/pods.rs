//! What pods use: themselves, and what their containers ask for.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Amounts, Scope, add, amounts, largest, one};
use crate::object;
use crate::strategy::pod::resources;
use crate::strategy::quota::COMPUTE;
use crate::validation::access::Access as _;

/// Where a quota limits these, every container must ask for them: upstream regrets it and keeps to it.
const MANDATORY: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const HUGE_PAGES: &str = "hugepages-";
const REQUESTS: &str = "requests.";
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

pub(super) fn measures(name: &str) -> bool {
    if name == "count/pods" || COMPUTE.contains(&name) || name.starts_with(HUGE_PAGES) {
        return true;
    }
    name.strip_prefix(REQUESTS).is_some_and(|asked| {
        asked.starts_with(HUGE_PAGES) || asked.starts_with(DEVICE_CLASS) || !resources::is_native(name)
    })
}

/// A pod that has ended, or should have, is still an object but needs nothing any more.
pub(super) fn usage(pod: &Value, now: Timestamp) -> Amounts {
    let mut used = Amounts::from([("count/pods".to_owned(), one())]);
    if has_ended(pod, now) {
        return used;
    }
    used.insert("pods".to_owned(), one());
    used.extend(named(&requests(pod), &limits(pod)));
    used
}

/// What is asked for, under the names that quotas use.
fn named(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut named = Amounts::new();
    for (name, amount) in requests {
        let is_plain = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with(HUGE_PAGES);
        if is_plain {
            named.insert(name.clone(), *amount);
        }
        if is_plain || resources::is_extended(name) || name.starts_with(DEVICE_CLASS) {
            named.insert(format!("{REQUESTS}{name}"), *amount);
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        named.extend(limits.get(name).map(|amount| (format!("limits.{name}"), *amount)));
    }
    named
}

fn has_ended(pod: &Value, now: Timestamp) -> bool {
    if matches!(pod.at("status").text("phase"), "Succeeded" | "Failed") {
        return true;
    }
    let metadata = pod.at("metadata");
    let (Ok(deleted), Some(grace)) =
        (metadata.text("deletionTimestamp").parse::<Timestamp>(), metadata.int_opt("deletionGracePeriodSeconds"))
    else {
        return false;
    };
    object::is_deleting(pod) && deleted.checked_add(SignedDuration::from_secs(grace)).is_ok_and(|end| now > end)
}

/// What the pod asks for: what its spec says or, after a resize that is not done, what it still has.
fn requests(pod: &Value) -> Amounts {
    let allocated = |status: &Value| status.has("allocatedResources").then(|| amounts(status, "allocatedResources"));
    let actual = |status: &Value| {
        let resources = status.at("resources");
        resources.has("requests").then(|| amounts(resources, "requests")).or_else(|| allocated(status))
    };
    let mut total = of_containers(pod, "requests", &[&allocated, &actual]);
    override_by_pod(&mut total, pod.at("spec"), "requests");
    add(&mut total, amounts(pod.at("spec"), "overhead"));
    total
}

fn limits(pod: &Value) -> Amounts {
    let actual = |status: &Value| {
        let resources = status.at("resources");
        resources.has("limits").then(|| amounts(resources, "limits"))
    };
    let mut total = of_containers(pod, "limits", &[&actual]);
    override_by_pod(&mut total, pod.at("spec"), "limits");
    for (name, amount) in amounts(pod.at("spec"), "overhead") {
        if let Some(limit) = total.get_mut(&name).filter(|limit| limit.sign() != 0) {
            *limit = limit.plus(&amount);
        }
    }
    total
}

/// What is said of the pod as a whole goes before what its containers say.
fn override_by_pod(total: &mut Amounts, spec: &Value, list: &str) {
    let whole = amounts(spec.at("resources"), list);
    total.extend(whole.into_iter().filter(|(name, _)| resources::is_pod_level(name)));
}

/// What a container has according to its status, where that says so.
type Actual<'a> = &'a dyn Fn(&Value) -> Option<Amounts>;

/// What the containers ask for and what they have according to their statuses, whichever is more.
fn of_containers(pod: &Value, list: &str, actual: &[Actual<'_>]) -> Amounts {
    let infeasible = pod.at("status").list("conditions").iter().find(|c| c.text("type") == "PodResizePending");
    let infeasible = infeasible.is_some_and(|condition| condition.text("reason") == "Infeasible");
    let asked = |container: &Value| amounts(container.at("resources"), list);
    let mut total = if infeasible { Amounts::new() } else { together(pod, asked) };
    for actual in actual {
        let has = together(pod, |container| {
            let known = status_of(pod, container.text("name")).and_then(actual);
            known.unwrap_or_else(|| if infeasible { Amounts::new() } else { asked(container) })
        });
        largest(&mut total, has);
    }
    total
}

fn status_of<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let status = pod.at("status");
    let mut all = status.list("containerStatuses").iter().chain(status.list("initContainerStatuses"));
    all.find(|known| known.text("name") == container)
}

/// What a pod needs: of its containers together or of one of those that run before, whichever is more.
pub fn together(pod: &Value, of: impl Fn(&Value) -> Amounts) -> Amounts {
    let spec = pod.at("spec");
    let mut total = Amounts::new();
    for container in spec.list("containers") {
        add(&mut total, of(container));
    }
    let (mut sidecars, mut before) = (Amounts::new(), Amounts::new());
    for container in spec.list("initContainers") {
        let mut at_once = sidecars.clone();
        add(&mut at_once, of(container));
        if container.text("restartPolicy") == "Always" {
            add(&mut total, of(container));
            sidecars.clone_from(&at_once);
        }
        largest(&mut before, at_once);
    }
    largest(&mut total, before);
    total
}

pub(super) fn is_terminating(pod: &Value) -> bool {
    pod.at("spec").int_opt("activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

pub(super) fn is_in_scope(scope: &Scope, pod: &Value) -> bool {
    match scope.name.as_str() {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = pod.at("spec").text("priorityClassName");
            scope.accepts(if class.is_empty() { &[] } else { std::slice::from_ref(&class) })
        }
        "CrossNamespacePodAffinity" => looks_into_other_namespaces(pod),
        _ => false,
    }
}

fn is_best_effort(pod: &Value) -> bool {
    match pod.at("status").text("qosClass") {
        "" => resources::qos_class(pod.at("spec")) == "BestEffort",
        class => class == "BestEffort",
    }
}

fn looks_into_other_namespaces(pod: &Value) -> bool {
    let looks = |term: &Value| !term.list("namespaces").is_empty() || term.has("namespaceSelector");
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let affinity = pod.below(&["spec", "affinity", kind]);
        affinity.list("requiredDuringSchedulingIgnoredDuringExecution").iter().any(looks)
            || affinity
                .list("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|weighted| looks(weighted.at("podAffinityTerm")))
    })
}

/// What containers must ask for and do not.
pub(super) fn unspecified(required: &[&str], pod: &Value) -> Option<String> {
    let spec = pod.at("spec");
    let whole = spec.at("resources");
    let of_whole = whole.entries("requests").into_iter().chain(whole.entries("limits"));
    if of_whole.into_iter().any(|(name, _)| resources::is_pod_level(name)) {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in spec.list("containers").iter().chain(spec.list("initContainers")) {
        let resources = container.at("resources");
        let asked = named(&amounts(resources, "requests"), &amounts(resources, "limits"));
        for name in required.iter().filter(|name| MANDATORY.contains(name) && !asked.contains_key(**name)) {
            missing.entry(name).or_default().insert(container.text("name"));
        }
    }
    let each = |(name, containers): (&str, BTreeSet<&str>)| {
        format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
    };
    let all: Vec<String> = missing.into_iter().map(each).collect();
    (!all.is_empty()).then(|| format!("must specify {}", all.join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(amounts: &Amounts, name: &str) -> String {
        amounts[name].to_string()
    }

    fn epoch() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    #[test]
    fn a_pod_needs_its_containers_or_what_runs_before() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Gi", "example.com/gpu": "1"}});
        let mut spec = json!({
            "containers": [{"name": "a", "resources": requests("100m")}, {"name": "b", "resources": requests("200m")}],
            "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": requests("50m")},
                {"name": "i", "resources": requests("1")},
            ],
            "overhead": {"cpu": "10m"},
        });
        let used = usage(&json!({"spec": spec}), epoch());
        assert_eq!((text(&used, "requests.cpu"), text(&used, "cpu")), ("1060m".into(), "1060m".into()));
        assert_eq!(text(&used, "requests.memory"), "3Gi");
        assert_eq!(text(&used, "requests.example.com/gpu"), "3");
        assert!(!used.contains_key("limits.cpu") && !used.contains_key("example.com/gpu"));
        spec["resources"] = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "3"}});
        let used = usage(&json!({"spec": spec}), epoch());
        assert_eq!((text(&used, "requests.cpu"), text(&used, "limits.cpu")), ("2010m".into(), "3010m".into()));
    }

    #[test]
    fn unfinished_resizes_count_by_the_larger_side() {
        let mut pod = json!({
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]},
            "status": {"containerStatuses": [{"name": "a", "allocatedResources": {"cpu": "2"},
                       "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}}]},
        });
        let used = usage(&pod, epoch());
        assert_eq!((text(&used, "requests.cpu"), text(&used, "limits.cpu")), ("3".into(), "4".into()));
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "9"}, "limits": {"cpu": "9"}});
        assert_eq!(text(&usage(&pod, epoch()), "requests.cpu"), "9");
        pod["status"]["conditions"] = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
        assert_eq!(text(&usage(&pod, epoch()), "requests.cpu"), "3");
    }

    #[test]
    fn a_pod_that_has_ended_is_only_an_object() {
        let mut pod = json!({"spec": {"containers": []}, "status": {"phase": "Failed"}});
        assert_eq!(usage(&pod, epoch()).into_keys().collect::<Vec<_>>(), ["count/pods"]);
        pod = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:10Z", "deletionGracePeriodSeconds": 5}});
        assert!(usage(&pod, epoch()).contains_key("pods"));
        let late = Timestamp::from_second(16).expect("a time");
        assert!(!usage(&pod, late).contains_key("pods"));
    }

    #[test]
    fn scopes_choose_pods() {
        let pod =
            json!({"spec": {"containers": [{"name": "a"}], "activeDeadlineSeconds": 5, "priorityClassName": "high"}});
        let check = |name: &str, operator: &str, values: &[&str], expected: bool| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let scope = Scope { name: name.to_owned(), operator: operator.to_owned(), values };
            assert_eq!(is_in_scope(&scope, &pod), expected, "{scope:?}");
        };
        check("Terminating", "Exists", &[], true);
        check("NotTerminating", "Exists", &[], false);
        check("BestEffort", "Exists", &[], true);
        check("NotBestEffort", "Exists", &[], false);
        check("PriorityClass", "Exists", &[], true);
        check("PriorityClass", "In", &["high", "low"], true);
        check("PriorityClass", "NotIn", &["high"], false);
        check("PriorityClass", "DoesNotExist", &[], false);
        check("CrossNamespacePodAffinity", "Exists", &[], false);
        check("VolumeAttributesClass", "Exists", &[], false);
    }

    #[test]
    fn containers_must_ask_for_what_is_limited() {
        let pod = json!({"spec": {
            "containers": [{"name": "b"}, {"name": "a", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "1"}}}],
        }});
        assert_eq!(
            unspecified(&["requests.cpu", "limits.cpu", "pods", "limits.ephemeral-storage"], &pod).as_deref(),
            Some("must specify limits.cpu for: a,b; requests.cpu for: b,i")
        );
        assert_eq!(unspecified(&["pods", "requests.ephemeral-storage"], &pod), None);
        let whole = json!({"spec": {"containers": [{"name": "b"}], "resources": {"requests": {"cpu": "1"}}}});
        assert_eq!(unspecified(&["requests.cpu"], &whole), None);
    }
}
