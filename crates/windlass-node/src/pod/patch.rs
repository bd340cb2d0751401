//! The patch that turns one status into another: only what changed.

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};

/// A strategic merge patch of a pod's status; `None` if nothing changed. The uid is part of it, so that another pod of the
/// same name is left alone.
pub(crate) fn status_patch(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    if old == new {
        return None;
    }
    let (before, after) = (fields(old), fields(new));
    let mut changed: Map<String, Value> =
        before.keys().filter(|field| !after.contains_key(*field)).map(|field| (field.clone(), Value::Null)).collect();
    for (field, value) in after {
        match before.get(&field) {
            Some(known) if *known == value => {}
            Some(Value::Array(known)) if field == "conditions" => {
                let own: Vec<&Value> =
                    value.as_array().into_iter().flatten().filter(|condition| !known.contains(condition)).collect();
                if !own.is_empty() {
                    changed.insert(field, cleared(&own, known));
                }
            }
            _ => _ = changed.insert(field, value),
        }
    }
    (!changed.is_empty()).then(|| json!({ "metadata": { "uid": uid }, "status": changed }))
}

/// Conditions with null for what they do not have any more: elements are merged by type.
fn cleared(conditions: &[&Value], known: &[Value]) -> Value {
    let clear = |condition: &&Value| {
        let mut condition = (*condition).clone();
        let before = known.iter().find(|known| known["type"] == condition["type"]).and_then(Value::as_object);
        if let Some(fields) = condition.as_object_mut() {
            for gone in ["reason", "message"] {
                if before.is_some_and(|before| before.contains_key(gone)) && !fields.contains_key(gone) {
                    fields.insert(gone.to_owned(), Value::Null);
                }
            }
        }
        condition
    };
    conditions.iter().map(clear).collect()
}

fn fields(status: &PodStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of values read better without references")]
mod tests {
    use super::*;

    fn check(old: Value, new: Value, expected: Value) {
        let read = |value| serde_json::from_value::<PodStatus>(value).expect("a status");
        let patch = status_patch("u", &read(old), &read(new));
        assert_eq!(patch.map_or(Value::Null, |mut patch| patch["status"].take()), expected);
    }

    #[test]
    fn only_what_changed_is_sent() {
        check(json!({ "phase": "Running" }), json!({ "phase": "Running" }), Value::Null);
        check(
            json!({ "phase": "Pending", "reason": "x", "qosClass": "Burstable" }),
            json!({ "phase": "Running", "qosClass": "Burstable" }),
            json!({ "phase": "Running", "reason": null }),
        );
        check(
            json!({ "conditions": [{ "type": "A", "status": "True" }, { "type": "B", "status": "False", "reason": "r" }] }),
            json!({ "conditions": [{ "type": "A", "status": "True" }, { "type": "B", "status": "True" }] }),
            json!({ "conditions": [{ "type": "B", "status": "True", "reason": null }] }),
        );
    }
}
