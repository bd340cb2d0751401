//! Limit ranges: what containers get that ask for nothing, and how much may be asked for.
//!
//! Mirrors `plugin/pkg/admission/limitranger`.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_store::Range;

use super::Act;
use crate::admission_config::AdmissionPlugin;
use crate::context::Context;
use crate::object::{self, metadata_mut};
use crate::quota::{Amounts, amounts, together};
use crate::status::Status;
use crate::stored;
use crate::validation::access::{Access as _, AccessMut as _};
use crate::validation::quantity::Quantity;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Fills in what a pod leaves open and a limit range decides.
pub(super) async fn mutate(
    context: &Context,
    act: Act<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if &*context.served.kind != "Pod" || !concerns(context, act, old) {
        return Ok(());
    }
    // Boxed, here and below: few writes are limited, and all would be as large as one that is.
    for range in Box::pin(ranges(context)).await? {
        fill_in(object, &range);
    }
    Ok(())
}

/// Refuses what a limit range does not allow.
pub(super) async fn validate(
    context: &Context,
    act: Act<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if !concerns(context, act, old) {
        return Ok(());
    }
    for range in Box::pin(ranges(context)).await? {
        let problems = if &*context.served.kind == "Pod" { of_pod(object, &range) } else { of_claim(object, &range) };
        if let Some(why) = aggregate(problems) {
            return Err(Status::forbidden(context.qualified(), object::name(object), why));
        }
    }
    Ok(())
}

/// Whether a write is about what limit ranges limit. The containers of a pod only change in size, and that
/// is a subresource. What is on its way out is let go.
fn concerns(context: &Context, act: Act<'_>, old: Option<&Value>) -> bool {
    let kind = match &*context.served.kind {
        kind @ ("Pod" | "PersistentVolumeClaim") if context.served.group.is_empty() => kind,
        _ => return false,
    };
    let concerned = matches!(
        (kind, act, context.subresource()),
        (_, Act::Create(_), "") | ("Pod", Act::Update(_), "resize") | ("PersistentVolumeClaim", Act::Update(_), "")
    );
    concerned
        && context.runs(AdmissionPlugin::LimitRanger)
        && context.api.restrictions.limit_ranges.has(context.namespace())
        && !old.is_some_and(object::is_deleting)
}

/// The limit ranges of the namespace, by name.
async fn ranges(context: &Context) -> Result<Vec<Value>, Status> {
    let marks = &context.api.restrictions.limit_ranges;
    let prefix = format!("{}{}/", marks.prefix, context.namespace());
    let found = context.api.store.range(Range::prefix(prefix), None, 0).await.map_err(Status::internal)?;
    if found.entries.is_empty() {
        marks.clear(context.namespace(), found.revision);
    }
    found.entries.iter().map(|entry| stored::decode(&entry.value)).collect()
}

/// Gives containers the default amounts of what they do not mention, and says so in an annotation.
fn fill_in(pod: &mut Value, range: &Value) {
    let limits = range.at("spec").list("limits").iter().filter(|limit| limit.text("type") == "Container");
    let (mut default_limits, mut default_requests) = (json!({}), json!({}));
    for limit in limits {
        for (name, amount) in limit.entries("default") {
            default_limits.put(name, amount.clone());
        }
        for (name, amount) in limit.entries("defaultRequest") {
            default_requests.put(name, amount.clone());
        }
    }
    let mut notes = Vec::new();
    let Some(spec) = pod.child_mut("spec") else { return };
    for (list, called) in [("containers", "container"), ("initContainers", "init container")] {
        for container in spec.items_mut(list) {
            for (field, word, defaults) in
                [("requests", "request", &default_requests), ("limits", "limit", &default_limits)]
            {
                let set = fill_list(container, field, defaults);
                if !set.is_empty() {
                    notes.push(format!("{} {word} for {called} {}", set.join(", "), container.text("name")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let annotations = metadata_mut(pod).entry("annotations").or_insert_with(|| json!({}));
        if annotations.is_null() {
            *annotations = json!({});
        }
        annotations.put(ANNOTATION, format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
}

/// The names of what was missing, in order.
fn fill_list(container: &mut Value, field: &str, defaults: &Value) -> Vec<String> {
    let known = container.at("resources").at(field);
    let missing: Vec<(String, Value)> = defaults
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| known.get(name.as_str()).is_none())
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let list = container.struct_mut("resources").struct_mut(field);
    let mut names: Vec<String> = missing.iter().map(|(name, _)| name.clone()).collect();
    for (name, amount) in missing {
        list.put(&name, amount);
    }
    names.sort_unstable();
    names
}

/// What is wrong with a pod.
fn of_pod(pod: &Value, range: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let spec = pod.at("spec");
    for limit in range.at("spec").list("limits") {
        match limit.text("type") {
            "Container" => {
                for container in spec.list("containers").iter().chain(spec.list("initContainers")) {
                    let resources = container.at("resources");
                    let asked =
                        Asked { requests: amounts(resources, "requests"), limits: amounts(resources, "limits") };
                    asked.check(limit, &mut problems);
                }
            }
            "Pod" => Asked { requests: of_whole(pod, "requests"), limits: of_whole(pod, "limits") }
                .check(limit, &mut problems),
            _ => {}
        }
    }
    problems
}

/// What a pod asks for altogether. What it says of itself goes before what its containers say.
fn of_whole(pod: &Value, list: &str) -> Amounts {
    let mut total = together(pod, |container| amounts(container.at("resources"), list));
    let whole = amounts(pod.at("spec").at("resources"), list);
    total.extend(whole.into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")));
    total
}

/// What is wrong with a persistent volume claim, of which only requests count.
fn of_claim(claim: &Value, range: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let requests = amounts(claim.at("spec").at("resources"), "requests");
    let asked = Asked { requests, limits: Amounts::new() };
    let limits = range.at("spec").list("limits").iter();
    for limit in limits.filter(|limit| limit.text("type") == "PersistentVolumeClaim") {
        let rule = Rule { kind: "PersistentVolumeClaim", limit };
        problems.extend(rule.each("min").filter_map(|(name, least)| asked.below(&rule, &name, least)));
        problems.extend(rule.each("max").filter_map(|(name, most)| asked.request_above(&rule, &name, most)));
    }
    problems
}

/// All problems as one text; each is named once.
fn aggregate(problems: Vec<String>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let unique: Vec<String> = problems.into_iter().filter(|problem| seen.insert(problem.clone())).collect();
    match unique.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        all => Some(format!("[{}]", all.join(", "))),
    }
}

/// One limit and what it is on.
struct Rule<'a> {
    kind: &'a str,
    limit: &'a Value,
}

impl Rule<'_> {
    fn each(&self, list: &str) -> impl Iterator<Item = (String, Quantity)> + use<> {
        amounts(self.limit, list).into_iter()
    }
}

/// What is asked for.
struct Asked {
    requests: Amounts,
    limits: Amounts,
}

impl Asked {
    fn check(&self, limit: &Value, problems: &mut Vec<String>) {
        let rule = Rule { kind: limit.text("type"), limit };
        problems.extend(rule.each("min").filter_map(|(name, least)| self.below(&rule, &name, least)));
        problems.extend(rule.each("max").filter_map(|(name, most)| self.above(&rule, &name, most)));
        let ratios = rule.each("maxLimitRequestRatio");
        problems.extend(ratios.filter_map(|(name, most)| self.stretched(&rule, &name, most)));
    }

    fn below(&self, rule: &Rule<'_>, name: &str, least: Quantity) -> Option<String> {
        let minimum = format!("minimum {name} usage per {} is {least}", rule.kind);
        let Some(request) = self.requests.get(name) else {
            return Some(format!("{minimum}.  No request is specified"));
        };
        if *request < least {
            return Some(format!("{minimum}, but request is {request}"));
        }
        let limit = self.limits.get(name).filter(|limit| **limit < least)?;
        Some(format!("{minimum}, but limit is {limit}"))
    }

    fn above(&self, rule: &Rule<'_>, name: &str, most: Quantity) -> Option<String> {
        let maximum = format!("maximum {name} usage per {} is {most}", rule.kind);
        let Some(limit) = self.limits.get(name) else {
            return Some(format!("{maximum}.  No limit is specified"));
        };
        if *limit > most {
            return Some(format!("{maximum}, but limit is {limit}"));
        }
        let request = self.requests.get(name).filter(|request| **request > most)?;
        Some(format!("{maximum}, but request is {request}"))
    }

    fn request_above(&self, rule: &Rule<'_>, name: &str, most: Quantity) -> Option<String> {
        let maximum = format!("maximum {name} usage per {} is {most}", rule.kind);
        let Some(request) = self.requests.get(name) else {
            return Some(format!("{maximum}.  No request is specified"));
        };
        (*request > most).then(|| format!("{maximum}, but request is {request}"))
    }

    fn stretched(&self, rule: &Rule<'_>, name: &str, most: Quantity) -> Option<String> {
        let ratio = format!("{name} max limit to request ratio per {} is {most}", rule.kind);
        let Some(request) = self.requests.get(name).filter(|request| request.sign() != 0) else {
            return Some(format!("{ratio}, but no request is specified or request is 0"));
        };
        let Some(limit) = self.limits.get(name).filter(|limit| limit.sign() != 0) else {
            return Some(format!("{ratio}, but no limit is specified or limit is 0"));
        };
        let actual = limit.milli_value() as f64 / request.milli_value() as f64;
        (actual * 1000.0 > most.milli_value() as f64).then(|| format!("{ratio}, but provided ratio is {actual:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limit: &Value) -> Value {
        json!({"spec": {"limits": [limit]}})
    }

    fn pod(resources: &Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[track_caller]
    fn check(limit: &Value, resources: &Value, expected: Option<&str>) {
        assert_eq!(aggregate(of_pod(&pod(resources), &range(limit))).as_deref(), expected, "{resources}");
    }

    #[test]
    fn containers_stay_between_min_and_max() {
        let limit = json!({"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "1"}});
        check(&limit, &json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}), None);
        check(
            &limit,
            &json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "2"}}),
            Some(
                "[minimum cpu usage per Container is 50m, but request is 10m, maximum cpu usage per Container is 1, but \
                 limit is 2]",
            ),
        );
        check(
            &limit,
            &json!({}),
            Some(
                "[minimum cpu usage per Container is 50m.  No request is specified, maximum cpu usage per Container is \
                 1.  No limit is specified]",
            ),
        );
    }

    #[test]
    fn limits_may_not_be_far_from_requests() {
        let limit = json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "1.5"}});
        check(&limit, &json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "150m"}}), None);
        check(
            &limit,
            &json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "151m"}}),
            Some("cpu max limit to request ratio per Container is 1500m, but provided ratio is 1.510000"),
        );
        check(
            &limit,
            &json!({"requests": {"cpu": "0"}, "limits": {"cpu": "1"}}),
            Some("cpu max limit to request ratio per Container is 1500m, but no request is specified or request is 0"),
        );
    }

    #[test]
    fn pods_are_measured_as_a_whole() {
        let limit = json!({"type": "Pod", "max": {"memory": "1Gi"}});
        let mut two = pod(&json!({"limits": {"memory": "600Mi"}}));
        let container = two["spec"]["containers"][0].clone();
        two["spec"]["containers"].as_array_mut().expect("a list").push(container);
        assert_eq!(
            aggregate(of_pod(&two, &range(&limit))).as_deref(),
            Some("maximum memory usage per Pod is 1Gi, but limit is 1200Mi")
        );
        two["spec"]["resources"] = json!({"limits": {"memory": "1Gi"}});
        assert_eq!(aggregate(of_pod(&two, &range(&limit))), None);
    }

    #[test]
    fn claims_stay_between_min_and_max() {
        let range =
            range(&json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}));
        let of = |storage: &str| {
            aggregate(of_claim(&json!({"spec": {"resources": {"requests": {"storage": storage}}}}), &range))
        };
        assert_eq!(of("1Gi"), None);
        assert_eq!(
            of("3Gi").as_deref(),
            Some("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")
        );
        assert_eq!(
            of("1Mi").as_deref(),
            Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi")
        );
    }

    #[test]
    fn what_is_filled_in_is_noted() {
        let limit =
            json!({"type": "Container", "default": {"memory": "1Gi", "cpu": "1"}, "defaultRequest": {"cpu": "100m"}});
        let mut object = pod(&json!({"limits": {"cpu": "2"}}));
        object["spec"]["initContainers"] = json!([{"name": "i"}]);
        fill_in(&mut object, &range(&limit));
        assert_eq!(
            object["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m"}})
        );
        assert_eq!(
            object["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container c; memory limit for container c; cpu request for init \
             container i; cpu, memory limit for init container i"
        );
        let mut same = object.clone();
        fill_in(&mut same, &range(&json!({"type": "Pod", "max": {"cpu": "1"}})));
        assert_eq!(same, object);
    }
}
