//! The strategy of CustomResourceDefinition objects themselves: defaults, status, generation,
//! warnings. What makes one valid is in [`validation`].

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::validation;
use crate::field::{FieldErrors, quote};
use crate::schema::{Type, format};
use crate::strategy::Strategy;
use crate::validation::access::{Access, AccessMut};

/// The strategy of CustomResourceDefinitions.
pub(crate) struct Definition;

impl Strategy for Definition {
    /// Every rule and pattern is compiled.
    fn is_long(&self, _object: &Value, _old: Option<&Value>) -> bool {
        true
    }

    fn default(&self, crd: &mut Value) {
        default(crd);
    }

    fn prepare_create(&self, crd: &mut Value) {
        crd.put(
            "status",
            json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}),
        );
        store_storage_version(crd);
    }

    fn prepare_update(&self, crd: &mut Value, old: &Value) {
        crd.copy_field("status", old);
        store_storage_version(crd);
    }

    /// A status update leaves the spec alone; what it says about metadata stays, as upstream lets it.
    fn prepare_status_update(&self, crd: &mut Value, old: &Value) {
        crd.copy_field("spec", old);
    }

    fn prepare_delete(&self, crd: &mut Value, now: &str) {
        super::lifecycle::begin_deletion(crd, now);
    }

    fn desired_state_changed(&self, crd: &Value, old: &Value) -> bool {
        crd.at("spec") != old.at("spec")
    }

    fn validate(&self, crd: &Value, errors: &mut FieldErrors) {
        validation::validate(crd, errors);
    }

    fn validate_update(&self, crd: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(crd, old, errors);
    }

    fn validate_status_update(&self, crd: &Value, _old: &Value, errors: &mut FieldErrors) {
        validation::validate_status(crd, errors);
    }

    fn warnings(&self, crd: &Value, old: Option<&Value>) -> Vec<String> {
        let (mut formats, sets) = schema_warnings(crd);
        let (known_formats, known_sets) = old.map(schema_warnings).unwrap_or_default();
        formats.retain(|warning| !known_formats.contains(warning));
        formats.extend(sets.into_iter().filter(|warning| !known_sets.contains(warning)));
        formats
    }
}

/// Fills in what the author left out: the singular name, the kind of lists, no conversion, the port of
/// a conversion service, and which version objects are stored in.
pub(crate) fn default(crd: &mut Value) {
    let spec = crd.struct_mut("spec");
    let names = spec.struct_mut("names");
    let kind = names.text("kind").to_owned();
    if !kind.is_empty() {
        names.fill_text("singular", &kind.to_lowercase());
        names.fill_text("listKind", &format!("{kind}List"));
    }
    spec.fill("conversion", json!({"strategy": "None"}));
    let service = spec
        .child_mut("conversion")
        .and_then(|conversion| conversion.child_mut("webhook"))
        .and_then(|webhook| webhook.child_mut("clientConfig"))
        .and_then(|config| config.child_mut("service"));
    if let Some(service) = service {
        service.fill("port", 443);
    }
    if crd.at("status").list("storedVersions").is_empty() {
        store_storage_version(crd);
    }
}

/// Notes in the status that objects may be stored in the storage version.
fn store_storage_version(crd: &mut Value) {
    let storage = crd.at("spec").list("versions").iter().find(|version| version.flag("storage"));
    let Some(storage) = storage.map(|version| version.text("name").to_owned()) else { return };
    let status = crd.struct_mut("status");
    if status.texts("storedVersions").contains(&storage.as_str()) {
        return;
    }
    match status.get_mut("storedVersions") {
        Some(Value::Array(stored)) => stored.push(storage.into()),
        _ => status.put("storedVersions", json!([storage])),
    }
}

/// Warnings about formats that are not checked, and about sets of things that are not scalars.
fn schema_warnings(crd: &Value) -> (Vec<String>, BTreeSet<String>) {
    let mut formats = Vec::new();
    let mut sets = BTreeSet::new();
    for version in crd.at("spec").list("versions") {
        visit(version.below(&["schema", "openAPIV3Schema"]), &mut |schema| {
            let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
            let name = text("format");
            if !name.is_empty() && format::supported(type_of(text("type")), name).is_none() {
                formats.push(format!("unrecognized format {}", quote(name)));
            }
            if text("x-kubernetes-list-type") != "set" {
                return;
            }
            let items = schema.get("items").map(|items| items.text("type")).unwrap_or_default();
            if matches!(items, "object" | "array") {
                sets.insert(format!(
                    "x-kubernetes-list-type: set for items of type {} is not supported by server-side apply or CEL validation rules",
                    quote(items)
                ));
            }
        });
    }
    (formats, sets)
}

fn type_of(name: &str) -> Type {
    match name {
        "" => Type::Any,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        _ => Type::Object,
    }
}

/// Calls `f` for every schema in `schema`, itself first.
pub(super) fn visit(schema: &Value, f: &mut impl FnMut(&Map<String, Value>)) {
    let Value::Object(map) = schema else { return };
    f(map);
    for (key, value) in map {
        match (key.as_str(), value) {
            ("items" | "additionalProperties" | "additionalItems" | "not", Value::Object(_)) => visit(value, f),
            ("items" | "allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                for schema in schemas {
                    visit(schema, f);
                }
            }
            ("properties" | "patternProperties" | "definitions" | "dependencies", Value::Object(schemas)) => {
                for schema in schemas.values() {
                    visit(schema, f);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minimal() -> Value {
        json!({"metadata": {"name": "lamps.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "lamps", "kind": "Lamp"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    }

    #[test]
    fn names_and_conversion_are_filled_in() {
        let mut crd = minimal();
        default(&mut crd);
        let names = json!({"plural": "lamps", "kind": "Lamp", "singular": "lamp", "listKind": "LampList"});
        assert_eq!(crd["spec"]["names"], names);
        assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(crd["status"], json!({"storedVersions": ["v1"]}));
        let once = crd.clone();
        default(&mut crd);
        assert_eq!(crd, once);
    }

    #[test]
    fn a_new_crd_has_an_empty_status() {
        let mut crd = minimal();
        crd["status"] = json!({"storedVersions": ["v0"]});
        Definition.prepare_create(&mut crd);
        let status = json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]});
        assert_eq!(crd["status"], status);
    }

    #[test]
    fn moving_storage_keeps_the_old_version_stored() {
        let mut old = minimal();
        Definition.prepare_create(&mut old);
        let mut crd = old.clone();
        crd["spec"]["versions"] =
            json!([{"name": "v1", "served": true, "storage": false}, {"name": "v2", "served": true, "storage": true}]);
        assert!(Definition.desired_state_changed(&crd, &old));
        Definition.prepare_update(&mut crd, &old);
        assert_eq!(crd["status"]["storedVersions"], json!(["v1", "v2"]));
    }

    #[test]
    fn unchecked_formats_are_warned_of_once() {
        let mut crd = minimal();
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
            "a": {"type": "string", "format": "fax"}, "b": {"type": "integer", "format": "int32"},
            "c": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object", "x-kubernetes-map-type": "atomic"}}}});
        let expected = [
            "unrecognized format \"fax\"",
            "x-kubernetes-list-type: set for items of type \"object\" is not supported by server-side apply or CEL validation rules",
        ];
        assert_eq!(Definition.warnings(&crd, None), expected);
        assert!(Definition.warnings(&crd, Some(&crd)).is_empty());
    }
}
