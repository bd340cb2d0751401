//! Gathers the rules of aggregated ClusterRoles from those that their selectors name.
//!
//! Mirrors upstream's `pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{Selector, SelectorExt as _};
use serde_json::json;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};

/// The name of the controller, and the name under which it owns rules.
const NAME: &str = "clusterrole-aggregation-controller";

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(
        Controller::<ClusterRole>::new(NAME)
            // Aggregated roles are few, and any role may be a part of each of them.
            .watches::<ClusterRole, _, _>(|_, ctx| -> Vec<ObjectKey> {
                let roles = ctx.lister::<ClusterRole>().list();
                let aggregated = roles.iter().filter(|role| role.aggregation_rule.is_some());
                aggregated.map(|role| ObjectKey::of(&**role)).collect()
            })
            .complete(Aggregation),
    )
}

struct Aggregation;

impl Reconcile<ClusterRole> for Aggregation {
    async fn reconcile(&self, role: Arc<ClusterRole>, ctx: Context) -> windlass::Result {
        if role.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let Some(rules) = gather(&role, ctx.client().lister::<ClusterRole>().list()) else { return Ok(Outcome::Done) };
        if rules == role.rules.as_deref().unwrap_or_default() {
            return Ok(Outcome::Done);
        }
        let key = ObjectKey::of(&*role);
        let mut applied = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": key.name()},
        });
        if !rules.is_empty() {
            applied["rules"] = serde_json::to_value(&rules)?;
        }
        let roles: Api<ClusterRole> = Api::all(ctx.client().kube().clone());
        match roles.patch(key.name(), &PatchParams::apply(NAME).force(), &Patch::Apply(applied)).await {
            // It was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Outcome::Done),
            outcome => outcome.map(|_| Outcome::Done).map_err(Into::into),
        }
    }
}

/// The rules that a role should have, in the order of its selectors and of the names of other roles; `None` if it is not
/// aggregated, or one of its selectors says nothing.
fn gather(role: &ClusterRole, mut all: Vec<Arc<ClusterRole>>) -> Option<Vec<PolicyRule>> {
    let aggregation = role.aggregation_rule.as_ref()?;
    all.retain(|other| other.metadata.name != role.metadata.name);
    all.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    let no_labels = BTreeMap::new();
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in aggregation.cluster_role_selectors.iter().flatten() {
        let selector = Selector::try_from(selector.clone()).ok()?;
        let selected = all.iter().filter(|other| {
            let labels = other.metadata.labels.as_ref();
            selector.matches(labels.unwrap_or(&no_labels))
        });
        for rule in selected.flat_map(|other| other.rules.iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of values read better without references")]
mod tests {
    use super::*;

    fn role(name: &str, labels: serde_json::Value, resources: &[&str]) -> ClusterRole {
        let rules: Vec<_> =
            resources.iter().map(|one| json!({"verbs": ["get"], "apiGroups": [""], "resources": [one]})).collect();
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "rules": rules})).expect("a role")
    }

    /// What a role gathers by the label `a` and then by the label `b`.
    fn check(others: Vec<ClusterRole>, expected: &[&str]) {
        let select = |label: &str| json!({"matchExpressions": [{"key": label, "operator": "Exists"}]});
        let mut gathering = role("m", json!({"a": ""}), &["old"]);
        let rule = json!({"clusterRoleSelectors": [select("a"), select("b")]});
        gathering.aggregation_rule = Some(serde_json::from_value(rule).expect("a rule"));
        let all = others.into_iter().chain([gathering.clone()]).map(Arc::new).collect();
        let rules = gather(&gathering, all).expect("aggregated");
        let resources: Vec<String> = rules.into_iter().flat_map(|rule| rule.resources.unwrap_or_default()).collect();
        assert_eq!(resources, expected);
    }

    #[test]
    fn rules_come_by_selector_and_name_and_only_once() {
        check(vec![], &[]);
        check(vec![role("x", json!({}), &["pods"])], &[]);
        let others = vec![
            role("z", json!({"a": ""}), &["pods", "nodes"]),
            role("n", json!({"b": ""}), &["pods", "events"]),
            role("b", json!({"a": "", "b": ""}), &["secrets", "pods"]),
        ];
        check(others, &["secrets", "pods", "nodes", "events"]);
        assert_eq!(gather(&role("x", json!({}), &["pods"]), vec![]), None);
    }
}
