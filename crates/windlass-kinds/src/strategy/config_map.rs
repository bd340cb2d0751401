//! ConfigMap: keys, total size, and the `immutable` flag.

use serde_json::Value;

use super::Strategy;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, semantically_equal};
use crate::validation::{names, values};

/// What the values of a ConfigMap or Secret may add up to.
pub(super) const DATA_MAX: usize = 1024 * 1024;

/// The strategy of ConfigMaps.
pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let mut size = 0;
        let path = Path::new("data");
        for (key, value) in object.text_entries("data") {
            values::invalid_for_each(&path.key(key), key, names::config_key(key), errors);
            if object.at("binaryData").has(key) {
                errors.push(FieldError::invalid(&path.key(key), key, "duplicate of key present in binaryData"));
            }
            size += value.len();
        }
        let path = Path::new("binaryData");
        for (key, value) in object.text_entries("binaryData") {
            values::invalid_for_each(&path.key(key), key, names::config_key(key), errors);
            size += decoded_length(value);
        }
        if size > DATA_MAX {
            errors.push(FieldError::too_long(&Path::root().key(""), DATA_MAX));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        immutable_data(object, old, &["data", "binaryData"], errors);
        self.validate(object, errors);
    }
}

/// Once `immutable` is set, neither it nor the data may change. Shared with Secret.
pub(super) fn immutable_data(object: &Value, old: &Value, fields: &[&str], errors: &mut FieldErrors) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !old.flag("immutable") {
        return;
    }
    if !object.flag("immutable") {
        errors.push(FieldError::forbidden(&Path::new("immutable"), DETAIL));
    }
    for field in fields {
        if !semantically_equal(object.at(field), old.at(field)) {
            errors.push(FieldError::forbidden(&Path::new(field), DETAIL));
        }
    }
}

/// How many bytes a base64 text stands for.
pub(super) fn decoded_length(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|b| *b == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{create_errors, update_errors};
    use super::*;

    #[test]
    fn new_config_maps() {
        let check = |object: Value, expected: &str| assert_eq!(create_errors(&ConfigMap, &object), expected);
        check(json!({"data": {"k": "v"}}), "[]");
        check(
            json!({"data": {"t": "x"}, "binaryData": {"t": "AAEC"}}),
            r#"data[t]: Invalid value: "t": duplicate of key present in binaryData"#,
        );
        check(json!({"data": {"k": "x".repeat(1_048_577)}}), "[]: Too long: may not be more than 1048576 bytes");
        check(
            json!({"data": {"a b": "x"}}),
            "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' \
             or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        );
    }

    #[test]
    fn immutable_config_maps() {
        let old = json!({"data": {"k": "v"}, "immutable": true});
        let check = |new: Value, expected: &str| assert_eq!(update_errors(&ConfigMap, &old, &new), expected);
        check(old.clone(), "[]");
        check(
            json!({"data": {"k": "w"}, "immutable": true}),
            "data: Forbidden: field is immutable when `immutable` is set",
        );
        check(
            json!({"data": {"k": "v"}, "binaryData": {"b": "AA=="}, "immutable": true}),
            "binaryData: Forbidden: field is immutable when `immutable` is set",
        );
        check(json!({"data": {"k": "v"}}), "immutable: Forbidden: field is immutable when `immutable` is set");
    }
}
