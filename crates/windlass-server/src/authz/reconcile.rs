//! What a stored default role or binding lacks, compared with what it should be.
//!
//! Nothing is ever taken away: people may add to the defaults, and what they changed in labels and
//! annotations stays. Mirrors `component-helpers/auth/rbac/reconciliation`.

use serde_json::{Map, Value, json};

use crate::object::{metadata, metadata_mut};
use crate::rbac::{Rule, uncovered};
use crate::validation::access::{Access as _, AccessMut as _};

const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What is to be done about a default object that is there.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing.
    Keep,
    /// It becomes this.
    Change(Value),
    /// It is deleted and made anew, since what differs cannot be changed.
    Replace,
}

/// What is to be done for `there` to be at least what is `wanted`.
pub(super) fn verdict(there: &Value, wanted: &Value) -> Verdict {
    if there.below(&["metadata", "annotations"]).text(AUTO_UPDATE) == "false" {
        return Verdict::Keep;
    }
    if there.at("roleRef") != wanted.at("roleRef") {
        return Verdict::Replace;
    }
    let mut object = there.clone();
    for field in ["labels", "annotations"] {
        add_missing(&mut object, wanted, field);
    }
    if wanted.has("roleRef") {
        add_subjects(&mut object, wanted);
    } else {
        add_rules(&mut object, wanted);
        set_aggregation(&mut object, wanted);
    }
    if object == *there { Verdict::Keep } else { Verdict::Change(object) }
}

fn add_missing(object: &mut Value, wanted: &Value, field: &str) {
    let Some(Value::Object(wanted)) = metadata(wanted).get(field) else { return };
    let there = metadata_mut(object).entry(field).or_insert_with(|| Map::new().into());
    for (key, value) in wanted {
        there.fill(key, value.clone());
    }
}

fn add_subjects(object: &mut Value, wanted: &Value) {
    let mut subjects = object.list("subjects").to_vec();
    for subject in wanted.list("subjects") {
        let same = |known: &Value| {
            ["kind", "apiGroup", "name", "namespace"].iter().all(|field| known.text(field) == subject.text(field))
        };
        if !subjects.iter().any(same) {
            subjects.push(subject.clone());
        }
    }
    if subjects.len() > object.list("subjects").len() {
        object.put("subjects", subjects);
    }
}

/// The rules of a role that gathers others' are found by gathering.
fn add_rules(object: &mut Value, wanted: &Value) {
    if wanted.has("aggregationRule") {
        return;
    }
    let missing = uncovered(&Rule::of_role(object), &Rule::of_role(wanted));
    if !missing.is_empty() {
        let mut rules = object.list("rules").to_vec();
        rules.extend(missing.iter().map(Rule::to_value));
        object.put("rules", rules);
    }
}

fn set_aggregation(object: &mut Value, wanted: &Value) {
    if !wanted.has("aggregationRule") {
        object.drop_field("aggregationRule");
        return;
    }
    let mut selectors = object.at("aggregationRule").list("clusterRoleSelectors").to_vec();
    let before = selectors.len();
    for selector in wanted.at("aggregationRule").list("clusterRoleSelectors") {
        if !selectors.contains(selector) {
            selectors.push(selector.clone());
        }
    }
    if selectors.len() > before {
        object.put("aggregationRule", json!({"clusterRoleSelectors": selectors}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(annotation: &str, verbs: &[&str]) -> Value {
        json!({"metadata": {"name": "r", "annotations": {AUTO_UPDATE: annotation}, "labels": {"a": "b"}},
               "rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}]})
    }

    #[test]
    fn missing_rules_come_back_and_others_stay() {
        let wanted = role("true", &["get", "list"]);
        assert_eq!(verdict(&wanted, &wanted), Verdict::Keep);
        assert_eq!(verdict(&role("true", &["*"]), &wanted), Verdict::Keep);
        let Verdict::Change(changed) = verdict(&role("true", &["get", "delete"]), &wanted) else { panic!("unchanged") };
        let back = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]});
        assert_eq!((changed["rules"].as_array().map(Vec::len), &changed["rules"][1]), (Some(2), &back));
        assert_eq!(verdict(&role("false", &[]), &wanted), Verdict::Keep);
    }

    #[test]
    fn labels_come_back_unless_they_were_changed() {
        let wanted = role("true", &["get"]);
        let mut there = wanted.clone();
        there["metadata"]["labels"] = json!({"a": "mine"});
        assert_eq!(verdict(&there, &wanted), Verdict::Keep);
        there["metadata"] = json!({"name": "r"});
        assert_eq!(verdict(&there, &wanted), Verdict::Change(wanted));
    }

    #[test]
    fn selectors_of_other_roles_come_back() {
        let selector = |label: &str| json!({"matchLabels": {label: "true"}});
        let gathering =
            |selectors: Value| json!({"metadata": {}, "aggregationRule": {"clusterRoleSelectors": selectors}});
        let (mine, theirs) = (selector("mine"), selector("theirs"));
        let expected = gathering(json!([mine, theirs]));
        assert_eq!(verdict(&gathering(json!([mine])), &gathering(json!([theirs]))), Verdict::Change(expected));
        assert_eq!(
            verdict(&gathering(json!([mine])), &json!({"metadata": {}})),
            Verdict::Change(json!({"metadata": {}}))
        );
    }

    #[test]
    fn missing_subjects_return_and_another_role_rebinds() {
        let binding =
            |role: &str, subjects: Value| json!({"metadata": {}, "roleRef": {"name": role}, "subjects": subjects});
        let (a, b) = (json!({"kind": "Group", "name": "a"}), json!({"kind": "Group", "name": "b"}));
        let wanted = binding("r", json!([b]));
        assert_eq!(verdict(&binding("r", json!([a])), &wanted), Verdict::Change(binding("r", json!([a, b]))));
        assert_eq!(verdict(&binding("r", json!([a, b])), &wanted), Verdict::Keep);
        assert_eq!(verdict(&binding("other", json!([b])), &wanted), Verdict::Replace);
    }
}
