//! StatefulSet and ControllerRevision.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::persistent_volume_claim;
use super::{Strategy, pod, workload};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, semantically_equal};
use crate::validation::selector::{self, Selector};
use crate::validation::{names, values};

const UPDATABLE: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// The strategy of StatefulSets.
pub(crate) struct StatefulSet;

/// The strategy of ControllerRevisions.
pub(crate) struct ControllerRevision;

impl Strategy for StatefulSet {
    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        spec.fill_text("podManagementPolicy", "OrderedReady");
        let strategy = spec.struct_mut("updateStrategy");
        if strategy.text("type").is_empty() {
            strategy.put("type", "RollingUpdate");
            strategy.fill("rollingUpdate", json!({}));
        }
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.child_mut("rollingUpdate")
        {
            rolling.fill("partition", 0);
        }
        spec.fill("persistentVolumeClaimRetentionPolicy", json!({}));
        let retention = spec.struct_mut("persistentVolumeClaimRetentionPolicy");
        retention.fill_text("whenDeleted", "Retain");
        retention.fill_text("whenScaled", "Retain");
        spec.fill("replicas", 1);
        spec.fill("revisionHistoryLimit", 10);
        for claim in spec.items_mut("volumeClaimTemplates") {
            claim.fill_text("kind", "PersistentVolumeClaim");
            claim.fill_text("apiVersion", "v1");
            claim.struct_mut("status").fill_text("phase", "Pending");
            persistent_volume_claim::default_spec(claim.struct_mut("spec"));
        }
        pod::defaults::template(spec.struct_mut("template"));
    }

    /// `maxUnavailable` is behind a gate that is off, so dropped.
    fn prepare_create(&self, object: &mut Value) {
        workload::prepare_create(object, &["spec", "template"]);
        drop_max_unavailable(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        workload::prepare_update(object, old, &["spec", "template"]);
        if !old.below(&["spec", "updateStrategy", "rollingUpdate"]).has("maxUnavailable") {
            drop_max_unavailable(object);
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        specification(spec, &Value::Null, &path, errors);
        values::optional_text(spec, "serviceName", names::label, &path, errors);
        let claims_path = path.child("volumeClaimTemplates");
        for (i, claim) in spec.list("volumeClaimTemplates").iter().enumerate() {
            let path = claims_path.index(i);
            persistent_volume_claim::spec_checks(claim.at("spec"), &path.child("spec"), errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        specification(object.at("spec"), old.at("spec"), &path, errors);
        let mut rest = object.at("spec").clone();
        for field in UPDATABLE {
            rest.copy_field(field, old.at("spec"));
        }
        if !semantically_equal(&rest, old.at("spec")) {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                          'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                          'minReadySeconds' are forbidden";
            errors.push(FieldError::forbidden(&path, detail));
        }
    }

    fn validate_status_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        let status = object.at("status");
        let counts = [
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ];
        let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        workload::status_counts(status, &counts, &parts, errors);
        workload::available_are_ready(status, "cannot be greater than status.readyReplicas", errors);
        workload::collision_count(status, old.at("status"), errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut out = workload::template_warnings(object, old, false);
        if object.at("spec").int("revisionHistoryLimit") < 0 {
            out.push(
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                 recommended"
                    .to_owned(),
            );
        }
        out
    }
}

impl Strategy for ControllerRevision {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        values::not_negative_field(object, "revision", &Path::root(), errors);
        let path = Path::new("data");
        match object.at("data") {
            Value::Object(_) => {}
            Value::Null => errors.push(FieldError::required(&path, "data is mandatory")),
            _ => errors.push(FieldError::required(&path, "data must be a valid JSON object")),
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        values::not_negative_field(object, "revision", &Path::root(), errors);
        values::immutable(object, old, "data", &Path::root(), errors);
    }
}

fn drop_max_unavailable(object: &mut Value) {
    if let Some(rolling) = object
        .child_mut("spec")
        .and_then(|spec| spec.child_mut("updateStrategy"))
        .and_then(|strategy| strategy.child_mut("rollingUpdate"))
    {
        rolling.drop_field("maxUnavailable");
    }
}

fn specification(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let policy = spec.text("podManagementPolicy");
    if policy.is_empty() {
        errors.push(FieldError::required(&path.child("podManagementPolicy"), ""));
    } else if !["OrderedReady", "Parallel"].contains(&policy) {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid(&path.child("podManagementPolicy"), policy, detail));
    }
    update_strategy(spec.at("updateStrategy"), &path.child("updateStrategy"), errors);
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    if !retention.is_null() {
        let path = path.child("persistentVolumeClaimRetentionPolicy");
        for field in ["whenDeleted", "whenScaled"] {
            values::one_of(retention, field, &["Retain", "Delete"], &path, errors);
        }
    }
    values::not_negative_field(spec, "replicas", path, errors);
    values::not_negative_field(spec, "minReadySeconds", path, errors);
    values::not_negative(spec.at("ordinals").int("start"), &path.child("ordinals.start"), errors);
    let selector_path = path.child("selector");
    let label_selector = spec.at("selector");
    workload::required_selector(label_selector, "statefulset", &selector_path, errors);
    let template_path = path.child("template");
    match Selector::from_object(label_selector) {
        None => errors.push(selector::invalid(label_selector, &selector_path, "")),
        Some(parsed) => {
            let template = with_claims(spec);
            workload::selected_template(&template, old.at("template"), &parsed, &template_path, errors);
        }
    }
    workload::always_restarted(spec.at("template"), "StatefulSet", &template_path, errors);
}

fn update_strategy(strategy: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.at("rollingUpdate");
    let rolling_path = path.child("rollingUpdate");
    match strategy.text("type") {
        "" => errors.push(FieldError::required(path, "")),
        "OnDelete" => {
            if !rolling.is_null() {
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                errors.push(FieldError::invalid(&rolling_path, rolling.clone(), detail));
            }
        }
        "RollingUpdate" => {
            values::not_negative_field(rolling, "partition", &rolling_path, errors);
            let unavailable = rolling.at("maxUnavailable");
            if !unavailable.is_null() {
                let path = rolling_path.child("maxUnavailable");
                values::positive_int_or_percent(unavailable, &path, errors);
                if values::int_or_percent(unavailable) == 0 {
                    errors.push(FieldError::invalid(&path, unavailable.clone(), "cannot be 0"));
                }
                values::not_more_than_100_percent(unavailable, &path, errors);
            }
        }
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid(path, strategy.clone(), detail));
        }
    }
}

/// The template as its pods will be: with the claims as volumes, and without what the controller
/// overwrites.
fn with_claims(spec: &Value) -> Value {
    let mut template = spec.at("template").clone();
    let claims = spec.list("volumeClaimTemplates");
    let pod_spec = template.struct_mut("spec");
    pod_spec.drop_field("subdomain");
    pod_spec.drop_field("hostname");
    if !claims.is_empty() {
        let claimed: Vec<&str> = claims.iter().map(|claim| claim.at("metadata").text("name")).collect();
        let mut volumes: Vec<Value> =
            claimed.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
        let claimed: HashSet<&str> = claimed.into_iter().collect();
        let others = pod_spec.list("volumes").iter().filter(|volume| !claimed.contains(volume.text("name")));
        volumes.extend(others.cloned());
        pod_spec.put("volumes", volumes);
    }
    template
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, created, update_errors};
    use super::*;

    fn stateful_set() -> Value {
        json!({"metadata": {"name": "s", "namespace": "ns"}, "spec": {"replicas": 0, "serviceName": "x",
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "img:1",
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}]}})
    }

    #[test]
    fn a_stateful_set_gets_its_defaults() {
        let made = created(&StatefulSet, &stateful_set());
        assert_eq!(
            made["spec"]["volumeClaimTemplates"],
            json!([{"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "v"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                    "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}])
        );
        assert_eq!(made["spec"]["updateStrategy"], json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
        assert_eq!(
            made["spec"]["persistentVolumeClaimRetentionPolicy"],
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
        );
        assert_eq!(create_errors(&StatefulSet, &stateful_set()), "[]");
    }

    #[test]
    fn most_of_the_spec_stays() {
        let mut new = stateful_set();
        new["spec"]["serviceName"] = "y".into();
        assert_eq!(
            update_errors(&StatefulSet, &stateful_set(), &new),
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
             'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' \
             are forbidden"
        );
        let mut new = stateful_set();
        new["spec"]["replicas"] = 3.into();
        assert_eq!(update_errors(&StatefulSet, &stateful_set(), &new), "[]");
    }
}
