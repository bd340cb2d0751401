//! Node. Nodes register with their status, so a create may set it.

use std::collections::HashSet;

use serde_json::Value;

use super::pod::resources;
use super::{Strategy, keep_all_but_status};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path, go_json, quote};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, net, values};

mod annotations;

const POD_CIDR: &str = "node updates may not change podCIDR except from \"\" to valid";

const LONGEST_FEATURE: usize = 253;

/// The strategy of Nodes.
pub(crate) struct Node;

impl Strategy for Node {
    fn default(&self, object: &mut Value) {
        if let Some(status) = object.child_mut("status")
            && !status.has("allocatable")
            && status.has("capacity")
        {
            let capacity = status.at("capacity").clone();
            status.put("allocatable", capacity);
        }
        let Some(spec) = object.child_mut("spec") else { return };
        // The single and the plural form are one field upstream; where they differ, the single one
        // counts, because older clients know no other.
        let first = spec.texts("podCIDRs").first().map(|cidr| (*cidr).to_owned());
        let cidr = spec.text("podCIDR").to_owned();
        match first {
            Some(first) if cidr.is_empty() => spec.put("podCIDR", first),
            first if !cidr.is_empty() && first.as_ref() != Some(&cidr) => spec.put("podCIDRs", vec![cidr]),
            _ => {}
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        if let Some(spec) = object.child_mut("spec") {
            spec.drop_field("configSource");
        }
        if let Some(status) = object.child_mut("status") {
            status.drop_field("config");
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        object.copy_field("status", old);
        if let Some(spec) = object.child_mut("spec")
            && !old.at("spec").has("configSource")
        {
            spec.drop_field("configSource");
        }
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let (spec, path) = (object.at("spec"), Path::new("spec"));
        let mut warnings = Vec::new();
        if spec.has("configSource") {
            warnings.push("spec.configSource: the feature is removed".to_owned());
        }
        if !spec.text("externalID").is_empty() {
            warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        let path = path.child("podCIDRs");
        let blocks = spec.texts("podCIDRs");
        warnings.extend(blocks.iter().enumerate().flat_map(|(i, block)| net::cidr_warnings(block, &path.index(i))));
        warnings
    }

    /// Dynamic configuration is gone: what never was there stays away.
    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
        if let Some(status) = object.child_mut("status")
            && !old.at("status").has("config")
        {
            status.drop_field("config");
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let metadata = Path::new("metadata");
        annotations::validate(object.at("metadata"), &metadata, errors);
        // Below the metadata: upstream's path.
        taints(object.at("spec").list("taints"), &metadata.child("taints"), errors);
        amounts(object, errors);
        declared_features(object.at("status"), &Path::new("status"), errors);
        let path = Path::new("spec");
        let path = path.child("podCIDRs");
        let cidrs = object.at("spec").texts("podCIDRs");
        for (i, cidr) in cidrs.iter().enumerate() {
            net::legacy_cidr(cidr, &HashSet::new(), &path.index(i), errors);
        }
        let v6 = |cidr: &&str| cidr.contains(':');
        let one_family = cidrs.iter().all(v6) || !cidrs.iter().any(v6);
        if cidrs.len() > 2 || (cidrs.len() > 1 && one_family) {
            let shown = object.below(&["spec", "podCIDRs"]).clone();
            errors.push(FieldError::invalid(&path, shown, "may specify no more than one CIDR for each IP family"));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
        let path = Path::new("spec");
        let (spec, old_spec) = (object.at("spec"), old.at("spec"));
        if !old_spec.list("podCIDRs").is_empty() && old_spec.at("podCIDRs") != spec.at("podCIDRs") {
            errors.push(FieldError::forbidden(&path.child("podCIDRs"), POD_CIDR));
        }
        let before = old_spec.text("providerID");
        if !before.is_empty() && before != spec.text("providerID") {
            let detail = "node updates may not change providerID except from \"\" to valid";
            errors.push(FieldError::forbidden(&path.child("providerID"), detail));
        }
        if spec.text("externalID") != old_spec.text("externalID") {
            errors.push(FieldError::forbidden(&path.child("externalID"), "may not be updated"));
        }
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        annotations::validate(object.at("metadata"), &Path::new("metadata"), errors);
        amounts(object, errors);
        let status = Path::new("status");
        declared_features(object.at("status"), &status, errors);
        let path = status.child("addresses");
        let addresses = object.at("status").list("addresses").iter().enumerate();
        let mut seen = HashSet::new();
        for (i, address) in addresses.filter(|(_, address)| !seen.insert(*address)) {
            let shown = format!(r#"{{"Type":{},"Address":{}}}"#, address.at("type"), address.at("address"));
            errors.push(FieldError::shown(ErrorKind::Duplicate, &path.index(i), shown, ""));
        }
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }

    fn field_value(&self, object: &Value, _field: &str) -> String {
        object.at("spec").flag("unschedulable").to_string()
    }
}

fn taints(list: &[Value], path: &Path<'_>, errors: &mut FieldErrors) {
    let mut seen = HashSet::new();
    for (i, taint) in list.iter().enumerate() {
        let path = path.index(i);
        let key = taint.text("key");
        values::invalid_for_each(&path.child("key"), key, names::qualified_name(key), errors);
        let reasons = names::label_value(taint.text("value"));
        if !reasons.is_empty() {
            errors.push(FieldError::invalid(&path.child("value"), taint.text("value"), reasons.join(";")));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        values::required_one_of(taint, "effect", &effects, &path, errors);
        if !seen.insert((key, taint.text("effect"))) {
            let [key, value, effect] = ["key", "value", "effect"].map(|field| go_json(&taint.text(field).into()));
            let added = go_json(taint.at("timeAdded"));
            let shown = format!(r#"{{"Key":{key},"Value":{value},"Effect":{effect},"TimeAdded":{added}}}"#);
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::shown(ErrorKind::Duplicate, &path, shown, detail));
        }
    }
}

/// Checks the names of features, which are in order.
fn declared_features(status: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("declaredFeatures");
    let features = status.texts("declaredFeatures");
    for (i, feature) in features.iter().enumerate() {
        let shown = quote(feature);
        if feature.len() > LONGEST_FEATURE {
            let detail = format!("invalid feature name {shown}: must be no more than {LONGEST_FEATURE} characters");
            errors.push(FieldError::invalid(&path.index(i), *feature, detail));
        } else if !is_feature(feature) {
            let detail = format!(
                "invalid feature name {shown}: must start with an UpperCamelCase segment, with subsequent segments \
                 separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric \
                 characters and slashes"
            );
            errors.push(FieldError::invalid(&path.index(i), *feature, detail));
        }
        let Some(next) = features.get(i + 1) else { continue };
        if feature == next {
            errors.push(FieldError::duplicate(&path.index(i + 1), *next));
        } else if feature > next {
            errors.push(FieldError::invalid(&path.index(i + 1), *next, "list must be sorted alphabetically"));
        }
    }
}

fn is_feature(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.split('/').all(|segment| {
            segment.starts_with(|first: char| first.is_ascii_alphabetic())
                && segment.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

fn amounts(object: &Value, errors: &mut FieldErrors) {
    let path = Path::new("status");
    for field in ["capacity", "allocatable"] {
        let path = path.child(field);
        for (name, value) in object.at("status").entries(field) {
            resources::quantity(name, value, &path.child(name), errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{create_errors, created, status_errors, update_errors};
    use super::*;

    #[test]
    fn a_node_is_not_configured_by_the_server() {
        let old = created(&Node, &json!({"spec": {}, "status": {}}));
        let mut new = json!({"spec": {"configSource": {}}, "status": {"config": {"error": "x"}}});
        Node.prepare_status_update(&mut new, &old);
        assert_eq!(new["status"], json!({}));
        let mut new = json!({"spec": {"configSource": {"configMap": {}}}, "status": {}});
        Node.prepare_update(&mut new, &old);
        assert_eq!(new["spec"], json!({}));
    }

    #[test]
    fn declared_features_are_named_and_sorted() {
        let check = |features: Value, expected: &str| {
            assert_eq!(status_errors(&Node, &json!({}), &json!({ "declaredFeatures": features })), expected);
        };
        check(json!(["A", "B/c"]), "[]");
        check(
            json!(["B", "A", "A"]),
            "[status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted alphabetically, \
             status.declaredFeatures[2]: Duplicate value: \"A\"]",
        );
        check(
            json!(["a"]),
            "status.declaredFeatures[0]: Invalid value: \"a\": invalid feature name \"a\": must start with an \
             UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or \
             MyFeature/mySubFeature), and contain only alphanumeric characters and slashes",
        );
    }

    #[test]
    fn nodes() {
        let node = json!({"spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "4"}}});
        let made = created(&Node, &node);
        assert_eq!(made["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
        assert_eq!(made["status"]["allocatable"], json!({"cpu": "4"}));
        assert_eq!(create_errors(&Node, &node), "[]");
        let twice = json!({"key": "a", "effect": "NoSchedule"});
        assert_eq!(
            create_errors(&Node, &json!({"spec": {"taints": [twice, twice]}})),
            r#"metadata.taints[1]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair"#
        );
        assert_eq!(
            update_errors(&Node, &node, &json!({"spec": {"podCIDR": "10.1.0.0/24"}})),
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"
        );
        assert_eq!(Node.field_value(&node, "spec.unschedulable"), "false");
    }

    #[test]
    fn the_single_pod_cidr_counts() {
        let node = |cidr: &str, cidrs: &[&str]| json!({"spec": {"podCIDR": cidr, "podCIDRs": cidrs}});
        let made = created(&Node, &node("10.0.0.0/24", &["10.1.0.0/24", "fd00::/64"]));
        assert_eq!(made["spec"], json!({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}));
        let made = created(&Node, &node("", &["10.1.0.0/24", "fd00::/64"]));
        assert_eq!(made["spec"], json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"]}));
        let old = node("10.0.0.0/24", &["10.0.0.0/24"]);
        assert_eq!(
            update_errors(&Node, &old, &node("10.1.0.0/24", &["10.0.0.0/24"])),
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"
        );
        assert_eq!(update_errors(&Node, &old, &node("10.0.0.0/24", &["10.1.0.0/24"])), "[]");
    }

    #[test]
    fn the_external_id_stays() {
        assert_eq!(
            update_errors(&Node, &json!({"spec": {"externalID": "a"}}), &json!({"spec": {"externalID": "b"}})),
            "spec.externalID: Forbidden: may not be updated"
        );
    }
}
