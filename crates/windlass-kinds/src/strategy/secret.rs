//! Secret: `stringData`, what each well-known type must hold, and the `immutable` flag.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Strategy;
use super::config_map::{DATA_MAX, decoded_length, immutable_data};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, values};

const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// The strategy of Secrets.
pub(crate) struct Secret;

impl Strategy for Secret {
    fn default(&self, object: &mut Value) {
        object.fill_text("type", "Opaque");
        let plain: Vec<(String, String)> = object
            .text_entries("stringData")
            .into_iter()
            .map(|(key, value)| (key.to_owned(), STANDARD.encode(value)))
            .collect();
        if !plain.is_empty() {
            let data = object.struct_mut("data");
            for (key, value) in plain {
                data.put(&key, value);
            }
        }
        object.drop_field("stringData");
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("data");
        let mut size = 0;
        for (key, value) in object.text_entries("data") {
            values::invalid_for_each(&path.key(key), key, names::config_key(key), errors);
            size += decoded_length(value);
        }
        if size > DATA_MAX {
            errors.push(FieldError::too_long(&path, DATA_MAX));
        }
        typed_data(object, &path, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        values::immutable(object, old, "type", &Path::root(), errors);
        immutable_data(object, old, &["data"], errors);
        self.validate(object, errors);
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["type"]
    }
}

fn typed_data(object: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let data = object.at("data");
    // Go tells an empty value from an absent key, so presence is asked of the map.
    let has = |key: &str| data.get(key).is_some();
    let mut require = |key: &str| errors.push(FieldError::required(&path.key(key), ""));
    match object.text("type") {
        "kubernetes.io/service-account-token" => {
            let annotations = Path::new("metadata").child("annotations").to_string();
            let annotations = Path::new(&annotations);
            if object.below(&["metadata", "annotations"]).text(ACCOUNT_NAME).is_empty() {
                errors.push(FieldError::required(&annotations.key(ACCOUNT_NAME), ""));
            }
        }
        "kubernetes.io/dockercfg" => json_map(data, ".dockercfg", path, errors),
        "kubernetes.io/dockerconfigjson" => json_map(data, ".dockerconfigjson", path, errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" if data.text("ssh-privatekey").is_empty() => require("ssh-privatekey"),
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().filter(|key| !has(key)).for_each(require),
        _ => {}
    }
}

/// The value at `key` must be a JSON object.
fn json_map(data: &Value, key: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(text) = data.text_opt(key) else {
        errors.push(FieldError::required(&path.key(key), ""));
        return;
    };
    let bytes = STANDARD.decode(text).unwrap_or_default();
    if serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes).is_err() {
        let why = go_json_error(&bytes);
        errors.push(FieldError::invalid(&path.key(key), "<secret contents redacted>", why));
    }
}

/// What Go's decoder says about bytes that are not a JSON object, for the mistakes people make: text
/// that is not JSON, an empty value, another type.
fn go_json_error(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches([' ', '\t', '\r', '\n']);
    let Some(first) = text.chars().next() else { return "unexpected end of JSON input".to_owned() };
    for literal in ["true", "false", "null"] {
        if literal.starts_with(first) {
            for (expected, found) in literal.chars().zip(text.chars()).skip(1) {
                if expected != found {
                    return format!("invalid character '{found}' in literal {literal} (expecting '{expected}')");
                }
            }
            if text.len() < literal.len() {
                return "unexpected end of JSON input".to_owned();
            }
        }
    }
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => {
            let kind = match value {
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                _ => "object",
            };
            format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
        }
        Err(error) if error.is_eof() => "unexpected end of JSON input".to_owned(),
        Err(_) if !"{[\"-0123456789".contains(first) => {
            format!("invalid character '{first}' looking for beginning of value")
        }
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{create_errors, created, update_errors};
    use super::*;

    #[test]
    fn string_data_goes_into_data() {
        let secret = created(&Secret, &json!({"stringData": {"p": "hello"}, "data": {"p": "eHg=", "q": "eQ=="}}));
        assert_eq!(secret, json!({"data": {"p": "aGVsbG8=", "q": "eQ=="}, "type": "Opaque"}));
    }

    #[test]
    fn types_require_their_keys() {
        let check = |object: Value, expected: &str| assert_eq!(create_errors(&Secret, &object), expected);
        check(json!({"type": "example.com/custom"}), "[]");
        check(json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}), "data[tls.key]: Required value");
        check(
            json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "not json"}}),
            "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": invalid character 'o' in literal \
             null (expecting 'u')",
        );
        check(
            json!({"type": "kubernetes.io/basic-auth"}),
            "[data[username]: Required value, data[password]: Required value]",
        );
        check(
            json!({"type": "kubernetes.io/ssh-auth", "stringData": {"x": "y"}}),
            "data[ssh-privatekey]: Required value",
        );
        check(
            json!({"type": "kubernetes.io/service-account-token"}),
            "metadata.annotations[kubernetes.io/service-account.name]: Required value",
        );
    }

    #[test]
    fn changes() {
        let check = |old: Value, new: Value, expected: &str| assert_eq!(update_errors(&Secret, &old, &new), expected);
        check(
            json!({"type": "example.com/custom"}),
            json!({"type": "Opaque"}),
            "type: Invalid value: \"Opaque\": field is immutable",
        );
        let old = json!({"immutable": true, "stringData": {"k": "v"}});
        check(old.clone(), json!({"immutable": true, "data": {"k": "dg=="}}), "[]");
        check(
            old,
            json!({"immutable": true, "data": {"k": "dg=="}, "stringData": {"k": "w"}}),
            "data: Forbidden: field is immutable when `immutable` is set",
        );
    }
}
