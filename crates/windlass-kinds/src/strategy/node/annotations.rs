//! Annotations of a Node that hold JSON the scheduler once read: they are still checked, in the words
//! of Go's decoder.

use serde_json::Value;

use crate::codec::json::{go_type_of, parse};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;

const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
const PREFER_AVOID_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

/// Checks the annotations of a node's metadata.
pub(super) fn validate(metadata: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("annotations");
    let annotations = metadata.at("annotations");
    let text = annotations.text(TAINTS);
    if !text.is_empty() {
        match decode(text, &["key", "value", "effect", "timeAdded"], taints) {
            Ok(value) => super::taints(value.as_array().map_or(&[], Vec::as_slice), &path.child(TAINTS), errors),
            Err(why) => errors.push(FieldError::invalid(&path, TAINTS, why)),
        }
    }
    let text = annotations.text(PREFER_AVOID_PODS);
    if !text.is_empty() {
        match decode(text, &["preferAvoidPods", "podSignature", "podController", "controller"], avoid_pods) {
            Ok(value) => entries(value.list("preferAvoidPods"), &path.child(PREFER_AVOID_PODS), errors),
            Err(why) => errors.push(FieldError::invalid(&path.child("AvoidPods"), PREFER_AVOID_PODS, why)),
        }
    }
}

fn entries(entries: &[Value], path: &Path<'_>, errors: &mut FieldErrors) {
    for (i, entry) in entries.iter().enumerate() {
        let path = path.index(i);
        let signature = path.child("PodSignature");
        let controller = entry.below(&["podSignature", "podController"]);
        if controller.is_null() {
            errors.push(FieldError::required(&signature, ""));
        } else if !controller.flag("controller") {
            let path = signature.child("PodController");
            errors.push(FieldError::invalid(&path.child("Controller"), false, "must point to a controller"));
        }
    }
}

fn decode(text: &str, fields: &[&str], check: fn(&Value) -> Result<(), String>) -> Result<Value, String> {
    let mut value = parse(text.as_bytes()).map_err(|error| error.to_string())?.value;
    rename(&mut value, fields);
    check(&value)?;
    Ok(value)
}

/// Gives `fields` the names they are looked for by: Go's decoder takes them in capital and small letters.
fn rename(value: &mut Value, fields: &[&str]) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, fields)),
        Value::Object(map) => {
            for (key, mut value) in std::mem::take(map) {
                rename(&mut value, fields);
                match fields.iter().find(|field| is_same(field, &key)) {
                    // A null leaves what another spelling of the field says.
                    Some(field) if value.is_null() => {
                        map.entry(*field).or_insert(value);
                    }
                    Some(field) => {
                        map.insert((*field).to_owned(), value);
                    }
                    None => {
                        map.insert(key, value);
                    }
                }
            }
        }
        _ => {}
    }
}

fn is_same(field: &str, key: &str) -> bool {
    let folded = |text: &str| text.to_uppercase().to_lowercase();
    field == key || folded(field) == folded(key)
}

/// What of `[]core.Taint` the checks rely on.
fn taints(value: &Value) -> Result<(), String> {
    expect(value, Value::is_array, "value", "[]core.Taint")?;
    for taint in value.as_array().into_iter().flatten() {
        expect(taint, Value::is_object, "value", "core.Taint")?;
        for (field, name, go_type) in
            [("key", "Key", "string"), ("value", "Value", "string"), ("effect", "Effect", "core.TaintEffect")]
        {
            expect(taint.at(field), Value::is_string, &format!("struct field Taint.{name}"), go_type)?;
        }
    }
    Ok(())
}

/// What of `v1.AvoidPods` the checks rely on.
fn avoid_pods(value: &Value) -> Result<(), String> {
    const LIST: &str = "struct field AvoidPods.preferAvoidPods";
    const SIGNATURE: &str = "struct field PreferAvoidPodsEntry.preferAvoidPods.podSignature";
    const CONTROLLER: &str = "struct field PodSignature.preferAvoidPods.podSignature.podController";
    const FLAG: &str = "struct field OwnerReference.preferAvoidPods.podSignature.podController.controller";
    expect(value, Value::is_object, "value", "v1.AvoidPods")?;
    expect(value.at("preferAvoidPods"), Value::is_array, LIST, "[]v1.PreferAvoidPodsEntry")?;
    for entry in value.list("preferAvoidPods") {
        expect(entry, Value::is_object, LIST, "v1.PreferAvoidPodsEntry")?;
        let signature = entry.at("podSignature");
        expect(signature, Value::is_object, SIGNATURE, "v1.PodSignature")?;
        let controller = signature.at("podController");
        expect(controller, Value::is_object, CONTROLLER, "v1.OwnerReference")?;
        expect(controller.at("controller"), Value::is_boolean, FLAG, "bool")?;
    }
    Ok(())
}

/// Fails as Go does where a value is neither null nor what its place holds.
fn expect(value: &Value, fits: fn(&Value) -> bool, place: &str, go_type: &str) -> Result<(), String> {
    if value.is_null() || fits(value) {
        return Ok(());
    }
    Err(format!("json: cannot unmarshal {} into Go {place} of type {go_type}", go_type_of(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::create_errors;
    use super::super::Node;
    use super::*;

    #[test]
    fn annotations_hold_what_they_should() {
        let check = |key: &str, value: &str, expected: &str| {
            let node = json!({"metadata": {"annotations": {key: value}}});
            assert_eq!(create_errors(&Node, &node), expected, "{value}");
        };
        let avoid = |value: &str, expected: &str| check(PREFER_AVOID_PODS, value, expected);
        avoid("", "[]");
        avoid(r#"{"preferAvoidPods":[{"podSignature":{"podController":{"controller":true}}}]}"#, "[]");
        avoid(
            "x",
            "metadata.annotations.AvoidPods: Invalid value: \"scheduler.alpha.kubernetes.io/preferAvoidPods\": \
             invalid character 'x' looking for beginning of value",
        );
        avoid(
            r#"{"preferAvoidPods":{}}"#,
            "metadata.annotations.AvoidPods: Invalid value: \"scheduler.alpha.kubernetes.io/preferAvoidPods\": \
             json: cannot unmarshal object into Go struct field AvoidPods.preferAvoidPods of type \
             []v1.PreferAvoidPodsEntry",
        );
        avoid(
            r#"{"preferAvoidPods":[{}]}"#,
            "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature: Required value",
        );
        avoid(
            r#"{"preferAvoidPods":[{"podSignature":{"podController":{"controller":false}}}]}"#,
            "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature.PodController.Controller: \
             Invalid value: false: must point to a controller",
        );
        check(TAINTS, r#"[{"key":"a","effect":"NoSchedule"}]"#, "[]");
        check(
            TAINTS,
            "{}",
            "metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/taints\": json: cannot unmarshal \
             object into Go value of type []core.Taint",
        );
        check(TAINTS, r#"[{"Key":"a","Effect":"NoSchedule"},{"KEY":"b","eFFect":"NoSchedule"}]"#, "[]");
        avoid(r#"{"PreferAvoidPods":[{"PODSIGNATURE":{"PodController":{"Controller":true}}}]}"#, "[]");
        check(
            TAINTS,
            r#"[{"Key":"a","Effect":"NoSchedule"},{"key":"a","effect":"NoSchedule"}]"#,
            "metadata.annotations.scheduler.alpha.kubernetes.io/taints[1]: Duplicate value: \
             {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be unique by key and \
             effect pair",
        );
        check(
            TAINTS,
            r#"[{"KEY":1}]"#,
            "metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/taints\": json: cannot unmarshal \
             number into Go struct field Taint.Key of type string",
        );
        check(
            TAINTS,
            r#"[{"key":"a"}]"#,
            "metadata.annotations.scheduler.alpha.kubernetes.io/taints[0].effect: Required value",
        );
    }
}
