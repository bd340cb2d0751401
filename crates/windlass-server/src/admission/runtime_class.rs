//! Upstream's plugin RuntimeClass: a pod runs where its class can, and costs what its class says.

use serde_json::{Map, Value};

use super::{Act, refused};
use crate::codec::quantity::Quantity;
use crate::context::Context;
use crate::status::Status;
use crate::stored;
use crate::validation::access::{Access as _, AccessMut as _, semantically_equal};

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const UNFOUNDED: &str = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

/// Gives a new pod what its class says.
pub(super) async fn create(context: &Context, pod: &mut Value) -> Result<(), Status> {
    let Some(class) = class_of(context, pod).await? else { return Ok(()) };
    if class.has("overhead") {
        let overhead = class.at("overhead").at("podFixed");
        let given = pod.at("spec").at("overhead");
        if given.as_object().is_some_and(|given| !given.is_empty()) && !same_amounts(given, overhead) {
            return Err(refused(context, pod, MISMATCH));
        }
        match overhead {
            Value::Null => pod.struct_mut("spec").drop_field("overhead"),
            overhead => pod.struct_mut("spec").put("overhead", overhead.clone()),
        }
    }
    let placement = class.at("scheduling");
    if placement.is_null() {
        return Ok(());
    }
    match merged_selector(pod.at("spec"), placement) {
        Ok(selector) if selector.is_empty() => {}
        Ok(selector) => pod.struct_mut("spec").put("nodeSelector", selector),
        Err(why) => return Err(refused(context, pod, why)),
    }
    let tolerations = merge(pod.at("spec").list("tolerations"), placement.list("tolerations"));
    if !tolerations.is_empty() {
        pod.struct_mut("spec").put("tolerations", tolerations);
    }
    Ok(())
}

/// Checks that a new pod costs what its class says.
pub(super) async fn validate(context: &Context, act: Act<'_>, pod: &Value) -> Result<(), Status> {
    let is_new_pod = matches!(act, Act::Create(_))
        && (&*context.served.group, &*context.served.kind, context.subresource()) == ("", "Pod", "");
    if !is_new_pod || !(pod.at("spec").has("overhead") || pod.at("spec").has("runtimeClassName")) {
        return Ok(());
    }
    let given = pod.at("spec").at("overhead");
    match class_of(context, pod).await? {
        Some(class) if class.has("overhead") => {
            let overhead = class.at("overhead").at("podFixed");
            if same_amounts(given, overhead) { Ok(()) } else { Err(refused(context, pod, MISMATCH)) }
        }
        _ if given.is_null() => Ok(()),
        _ => Err(refused(context, pod, UNFOUNDED)),
    }
}

async fn class_of(context: &Context, pod: &Value) -> Result<Option<Value>, Status> {
    let Some(name) = pod.at("spec").text_opt("runtimeClassName") else { return Ok(None) };
    let key = format!("/registry/runtimeclasses/{name}");
    let Some(entry) = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)? else {
        let why = format!("pod rejected: RuntimeClass {} not found", crate::field::quote(name));
        return Err(refused(context, pod, why));
    };
    stored::decode(&entry.value).map(Some)
}

fn same_amounts(a: &Value, b: &Value) -> bool {
    let empty = Map::new();
    let (a, b) = (a.as_object().unwrap_or(&empty), b.as_object().unwrap_or(&empty));
    a.len() == b.len()
        && a.iter().all(|(name, amount)| {
            b.get(name).is_some_and(|other| Quantity::from_value(amount) == Quantity::from_value(other))
        })
}

/// The pod's selector and that of its class.
fn merged_selector(spec: &Value, placement: &Value) -> Result<Map<String, Value>, String> {
    let mut all = spec.at("nodeSelector").as_object().cloned().unwrap_or_default();
    for (key, value) in placement.text_entries("nodeSelector") {
        if let Some(given) = all.get(key).and_then(Value::as_str).filter(|given| *given != value) {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {given}"
            ));
        }
        all.insert(key.to_owned(), value.into());
    }
    Ok(all)
}

/// Both lists without what others cover.
fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (i, toleration) in all.iter().enumerate() {
        let covered = merged.iter().any(|other| covers(other, toleration))
            || all[i + 1..].iter().any(|other| !semantically_equal(toleration, other) && covers(other, toleration));
        if !covered {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// Whether everything that one toleration tolerates is tolerated by the other.
fn covers(wide: &Value, narrow: &Value) -> bool {
    if semantically_equal(wide, narrow) {
        return true;
    }
    let (key, effect) = (wide.text("key"), wide.text("effect"));
    let any_key = key.is_empty() && wide.text("operator") == "Exists";
    if (narrow.text("key") != key && !any_key) || (narrow.text("effect") != effect && !effect.is_empty()) {
        return false;
    }
    if effect == "NoExecute"
        && let Some(seconds) = wide.int_opt("tolerationSeconds")
        && narrow.int_opt("tolerationSeconds").is_none_or(|narrow| narrow > seconds)
    {
        return false;
    }
    match wide.text("operator") {
        "Equal" | "" => narrow.text("operator") == "Equal" && narrow.text("value") == wide.text("value"),
        operator => operator == "Exists",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tolerations_that_others_cover_go() {
        let check = |first: Value, second: Value, expected: Value| {
            let list = |value: Value| value.as_array().cloned().unwrap_or_default();
            assert_eq!(merge(&list(first), &list(second)), list(expected));
        };
        let equal = json!({"key": "a", "operator": "Equal", "value": "1", "effect": "NoSchedule"});
        let exists = json!({"key": "a", "operator": "Exists"});
        let other = json!({"key": "b", "operator": "Exists"});
        check(json!([equal]), json!([exists, other]), json!([exists, other]));
        check(json!([exists, other]), json!([equal, other]), json!([exists, other]));
        let brief = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1});
        let long = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9});
        check(json!([brief]), json!([long]), json!([long]));
        check(json!([long]), json!([]), json!([long]));
    }
}
