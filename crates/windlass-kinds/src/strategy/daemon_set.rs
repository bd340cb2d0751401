//! DaemonSet. Its template's generation lives in an annotation, for clients older than 1.16.

use serde_json::{Value, json};

use super::deployment::immutable_selector;
use super::{Strategy, pod, workload};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, semantically_equal};
use crate::validation::selector::{self, Selector};
use crate::validation::values;

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The strategy of DaemonSets.
pub(crate) struct DaemonSet;

impl Strategy for DaemonSet {
    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        let strategy = spec.struct_mut("updateStrategy");
        strategy.fill_text("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate" {
            strategy.fill("rollingUpdate", json!({}));
            let rolling = strategy.struct_mut("rollingUpdate");
            rolling.fill("maxUnavailable", 1);
            rolling.fill("maxSurge", 0);
        }
        spec.fill("revisionHistoryLimit", 10);
        pod::defaults::template(spec.struct_mut("template"));
    }

    fn prepare_create(&self, object: &mut Value) {
        workload::prepare_create(object, &["spec", "template"]);
        let generation = template_generation(object).max(1);
        set_template_generation(object, generation);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        workload::prepare_update(object, old, &["spec", "template"]);
        let changed = !semantically_equal(object.below(&["spec", "template"]), old.below(&["spec", "template"]));
        set_template_generation(object, template_generation(old) + i64::from(changed));
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        daemon_set(object, &Value::Null, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        immutable_selector(object, old, errors);
        daemon_set(object, old, errors);
    }

    fn validate_status_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        let counts = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        workload::status_counts(object.at("status"), &counts, &[], errors);
        workload::collision_count(object.at("status"), old.at("status"), errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        workload::template_warnings(object, old, false)
    }
}

fn daemon_set(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let spec = object.at("spec");
    let selector_path = path.child("selector");
    let label_selector = spec.at("selector");
    selector::validate(label_selector, &selector_path, errors);
    let template_path = path.child("template");
    if Selector::from_object(label_selector)
        .is_some_and(|parsed| !parsed.matches(spec.below(&["template", "metadata", "labels"])))
    {
        errors.push(workload::unmatched_labels(spec.at("template"), &template_path));
    }
    if workload::selects_everything(label_selector) {
        let detail = "empty selector is invalid for daemonset";
        errors.push(selector::invalid(label_selector, &selector_path, detail));
    }
    pod::template::validate(spec.at("template"), old.below(&["spec", "template"]), &template_path, errors);
    workload::always_restarted(spec.at("template"), "DaemonSet", &template_path, errors);
    values::not_negative_field(spec, "minReadySeconds", &path, errors);
    update_strategy(spec.at("updateStrategy"), &path.child("updateStrategy"), errors);
    values::not_negative_field(spec, "revisionHistoryLimit", &path, errors);
}

fn template_generation(object: &Value) -> i64 {
    object.below(&["metadata", "annotations"]).text(TEMPLATE_GENERATION).parse().unwrap_or_default()
}

fn set_template_generation(object: &mut Value, generation: i64) {
    let annotations = object.struct_mut("metadata").struct_mut("annotations");
    annotations.put(TEMPLATE_GENERATION, generation.to_string());
}

fn update_strategy(strategy: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let rolling_path = path.child("rollingUpdate");
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" if rolling.is_null() => errors.push(FieldError::required(&rolling_path, "")),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            let (unavailable_path, surge_path) = (rolling_path.child("maxUnavailable"), rolling_path.child("maxSurge"));
            values::positive_int_or_percent(unavailable, &unavailable_path, errors);
            values::positive_int_or_percent(surge, &surge_path, errors);
            values::not_more_than_100_percent(unavailable, &unavailable_path, errors);
            values::not_more_than_100_percent(surge, &surge_path, errors);
            match (values::int_or_percent(unavailable) != 0, values::int_or_percent(surge) != 0) {
                (true, true) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    errors.push(FieldError::invalid(&surge_path, surge.clone(), detail));
                }
                (false, false) => {
                    errors.push(FieldError::required(&unavailable_path, "cannot be 0 when maxSurge is 0"));
                }
                _ => {}
            }
        }
        kind => {
            let shown = format!(r#"{{"Type":{},"RollingUpdate":null}}"#, Value::from(kind));
            let detail = r#"supported values: "RollingUpdate", "OnDelete""#;
            errors.push(FieldError::shown(ErrorKind::NotSupported, path, shown, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, created};
    use super::*;

    fn daemon_set() -> Value {
        json!({"metadata": {"name": "ds"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}}}})
    }

    #[test]
    fn the_template_has_a_generation_of_its_own() {
        let old = created(&DaemonSet, &daemon_set());
        assert_eq!(old["metadata"]["annotations"][TEMPLATE_GENERATION], "1");
        assert_eq!(
            old["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
        );
        assert_eq!(create_errors(&DaemonSet, &daemon_set()), "[]");
        let mut new = daemon_set();
        new["spec"]["template"]["spec"]["containers"][0]["image"] = "img:2".into();
        DaemonSet.default(&mut new);
        DaemonSet.prepare_update(&mut new, &old);
        assert_eq!(new["metadata"]["annotations"][TEMPLATE_GENERATION], "2");
    }
}
