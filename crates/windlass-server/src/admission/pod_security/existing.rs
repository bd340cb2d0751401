//! What a stricter policy says about the pods that a namespace already has. The pods stay; the answer to the request that changes the labels has a warning.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use serde_json::Value;
use windlass_kinds::pod_security::{Pod, PodSecurityStandard, evaluate, plural, reasons};

use super::configuration::PodSecurity;
use crate::codec::peek::{self, Raw};
use crate::field::quote;
use crate::registry::stored;
use crate::validation::access::Access as _;

/// Of more pods, not all are looked at.
const MOST: usize = 3000;

/// The warnings about pods that do not meet a standard. `is_late` says when there is no more time to look at pods.
pub(super) fn warnings(
    configuration: &PodSecurity,
    namespace: &str,
    standard: PodSecurityStandard,
    pods: &[Bytes],
    mut is_late: impl FnMut() -> bool,
) -> Vec<String> {
    let pods = prioritized(configuration, pods);
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut checked = 0;
    for pod in pods.iter().take(MOST) {
        checked += 1;
        if let Ok(pod) = stored::decode(pod) {
            judge(standard, &pod, &mut found);
        }
        if is_late() {
            break;
        }
    }
    let mut warnings = Vec::new();
    if checked < pods.len() {
        let total = pods.len();
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if !found.is_empty() {
        let (namespace, standard) = (quote(namespace), quote(&standard.to_string()));
        warnings.push(format!(
            "existing pods in namespace {namespace} violate the new PodSecurity enforce level {standard}"
        ));
    }
    let mut each: Vec<String> = found.into_iter().map(|(why, (name, count))| about(&name, count, &why)).collect();
    each.sort_unstable();
    warnings.extend(each);
    warnings
}

/// Notes what is wrong with a pod: pods that share their faults are told of once, by the first of their names.
fn judge(standard: PodSecurityStandard, pod: &Value, found: &mut BTreeMap<String, (String, usize)>) {
    let violations = evaluate(standard, Pod::new(pod));
    if violations.is_empty() {
        return;
    }
    let name = pod.at("metadata").text("name");
    let (first, count) = found.entry(reasons(&violations)).or_insert_with(|| (name.to_owned(), 0));
    if name < first.as_str() {
        name.clone_into(first);
    }
    *count += 1;
}

fn about(name: &str, count: usize, why: &str) -> String {
    match count {
        1 => format!("{name}: {why}"),
        _ => format!("{name} (and {} other {}): {why}", count - 1, plural("pod", "pods", count - 1)),
    }
}

/// The pods to look at: one of each controller first, because the others are like it.
fn prioritized<'a>(configuration: &PodSecurity, pods: &'a [Bytes]) -> Vec<&'a Bytes> {
    let has_exempt_classes = !configuration.exempt_runtime_classes.is_empty();
    let is_exempt = |pod: &Bytes| {
        let class = Raw::new(pod).path(&["spec", "runtimeClassName"]).and_then(|class| class.as_str());
        class.is_some_and(|class| configuration.exempts_runtime_class(&class))
    };
    let (mut first, mut more) = (Vec::with_capacity(pods.len()), Vec::new());
    let mut controllers = HashSet::new();
    for pod in pods.iter().filter(|pod| !(has_exempt_classes && is_exempt(pod))) {
        match controller(pod) {
            Some(uid) if !controllers.insert(uid.clone()) => more.push(pod),
            _ => first.push(pod),
        }
    }
    first.extend(more);
    first
}

/// The uid of the controller that a pod has.
fn controller(pod: &[u8]) -> Option<String> {
    let owners = peek::metadata(pod)?.field("ownerReferences")?;
    let controller = owners.items().find(|owner| owner.field("controller").is_some_and(|is| is.bytes() == b"true"))?;
    Some(controller.field("uid")?.as_str()?.into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use windlass_kinds::pod_security::{PodSecurityLevel, PodSecurityVersion};

    use super::*;

    fn baseline() -> PodSecurityStandard {
        PodSecurityStandard { level: PodSecurityLevel::Baseline, version: PodSecurityVersion::Latest }
    }

    fn pod(name: &str, spec: &Value, owner: Option<&str>) -> Bytes {
        let owners: Vec<Value> = owner.iter().map(|uid| json!({"uid": uid, "controller": true})).collect();
        json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}).to_string().into()
    }

    #[test]
    fn pods_with_equal_faults_are_told_of_once() {
        let check = |pods: &[(&str, Value)], expected: &[&str]| {
            let pods: Vec<Bytes> = pods.iter().map(|(name, spec)| pod(name, spec, None)).collect();
            assert_eq!(warnings(&PodSecurity::default(), "n", baseline(), &pods, || false), expected);
        };
        let all = "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"";
        let network = json!({"hostNetwork": true});
        check(&[("a", json!({}))], &[]);
        check(&[("a", network.clone())], &[all, "a: host namespaces"]);
        check(&[("b", network.clone()), ("a", network.clone())], &[all, "a (and 1 other pod): host namespaces"]);
        let path = json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]});
        check(
            &[("z", network.clone()), ("b", network.clone()), ("c", network), ("a", path)],
            &[all, "a: hostPath volumes", "b (and 2 other pods): host namespaces"],
        );
    }

    #[test]
    fn one_pod_of_each_controller_is_looked_at_first() {
        let bad = json!({"hostPID": true});
        let mut pods: Vec<Bytes> = (0..MOST).map(|n| pod(&format!("a{n}"), &json!({}), Some("set"))).collect();
        pods.push(pod("other", &bad, Some("other")));
        let found = warnings(&PodSecurity::default(), "n", baseline(), &pods, || false);
        assert_eq!(
            found,
            [
                "new PodSecurity enforce level only checked against the first 3000 of 3001 existing pods",
                "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "other: host namespaces",
            ]
        );
    }

    #[test]
    fn pods_that_there_is_no_time_for_are_counted() {
        let pods: Vec<Bytes> = ["a", "b", "c"].iter().map(|name| pod(name, &json!({}), None)).collect();
        let mut left = 2;
        let found = warnings(&PodSecurity::default(), "n", baseline(), &pods, || {
            left -= 1;
            left == 0
        });
        assert_eq!(found, ["new PodSecurity enforce level only checked against the first 2 of 3 existing pods"]);
    }

    #[test]
    fn pods_of_exempt_runtime_classes_are_left_alone() {
        let configuration = PodSecurity { exempt_runtime_classes: vec!["vm".to_owned()], ..PodSecurity::default() };
        let pods = [pod("a", &json!({"hostPID": true, "runtimeClassName": "vm"}), None)];
        assert!(warnings(&configuration, "n", baseline(), &pods, || false).is_empty());
    }
}
