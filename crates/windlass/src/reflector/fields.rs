//! What a field selector says about an object that this process wrote, as far as that can be told here.
//!
//! Only the server knows what it selects by. Names, namespaces, and nearly all other fields it offers
//! are those of the object's JSON, so a field that is there and has a plain value is taken for what it
//! says. Of one that is not there nothing is known: it may have a default, or be no field at all.

use serde_json::{Value, json};

use crate::key::ObjectKey;

/// Whether a selector selects an object; `None` if that cannot be told.
pub(super) fn selects(selector: &str, object: &Value) -> Option<bool> {
    // Values with escaped letters are left to the server.
    if selector.contains('\\') {
        return None;
    }
    let mut told = Some(true);
    for requirement in selector.split(',').filter(|requirement| !requirement.is_empty()) {
        match is_met(requirement, object) {
            Some(true) => {}
            // One that is not met is enough.
            Some(false) => return Some(false),
            None => told = None,
        }
    }
    told
}

/// Whether a selector selects an object by its name and namespace alone.
pub(super) fn selects_key(selector: &str, key: &ObjectKey) -> bool {
    let object = json!({"metadata": {"name": key.name(), "namespace": key.namespace()}});
    selects(selector, &object) == Some(true)
}

fn is_met(requirement: &str, object: &Value) -> Option<bool> {
    let (field, value) = requirement.split_once('=')?;
    let (field, equal) = match field.strip_suffix('!') {
        Some(field) => (field, false),
        None => (field, true),
    };
    let value = value.strip_prefix('=').filter(|_| equal).unwrap_or(value);
    let found = match object.pointer(&format!("/{}", field.trim().replace('.', "/")))? {
        Value::String(text) => text == value,
        Value::Bool(flag) => flag.to_string() == value,
        Value::Number(number) => number.to_string() == value,
        _ => return None,
    };
    Some(found == equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_compare_as_unknown() {
        let object = serde_json::json!({
            "metadata": {"name": "a", "namespace": "n"}, "type": "Opaque",
            "spec": {"nodeName": "one", "unschedulable": true, "list": []}, "status": {"replicas": 3},
        });
        for (selector, told) in [
            ("metadata.name=a", Some(true)),
            ("metadata.name==a,type=Opaque", Some(true)),
            ("metadata.name=b", Some(false)),
            ("metadata.name!=b,spec.unschedulable=true", Some(true)),
            ("metadata.name!=a", Some(false)),
            ("status.replicas=3", Some(true)),
            ("status.successful=3", None),
            ("status.successful=3,metadata.name=b", Some(false)),
            ("metadata.name=a,status.phase!=Failed", None),
            ("spec.list=x", None),
            (r"metadata.name=a\,b", None),
            ("metadata.name", None),
            ("", Some(true)),
        ] {
            assert_eq!(selects(selector, &object), told, "{selector}");
        }
    }

    #[test]
    fn a_name_decides_where_nothing_else_is_asked_for() {
        let key = ObjectKey::new("n", "a");
        for (selector, decides) in [
            ("metadata.name=a", true),
            ("metadata.name=a,metadata.namespace=n", true),
            ("metadata.name=b", false),
            ("metadata.name=a,type=Opaque", false),
            ("type!=Opaque", false),
        ] {
            assert_eq!(selects_key(selector, &key), decides, "{selector}");
        }
    }
}
