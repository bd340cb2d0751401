//! The annotation client-side `kubectl apply` keeps, for objects that move to server-side apply.
//!
//! Only the manager called `kubectl` looks at it: it may take over fields that its earlier client-side
//! applies set and no manager changed since, and it keeps the annotation current so that a client can go
//! back.

use serde_json::Value;

use super::compare::{compare, subtract};
use super::fields::Trie;
use super::owned::set_of;
use super::shape::Shape;
use super::validate::validate;
use crate::codec::go_json::write_value;
use crate::schema::Schema;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All annotations of an object together may not be larger.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The fields that the last client-side apply set and that still have the value it gave them.
pub(super) fn still_live(schema: &Schema, live: &Value, api_version: &str) -> Option<Trie> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    let shape = Shape::root(schema);
    if last.get("apiVersion")?.as_str()? != api_version || validate(shape, &last).is_err() {
        return None;
    }
    let mut set = set_of(shape, &last);
    subtract(&mut set, &compare(shape, &last, live));
    Some(set)
}

/// Brings the annotation up to date, if the object has one.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = applied.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let mut text = String::new();
    write_value(&config, &mut text);
    text.push('\n');
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(ANNOTATION.to_owned(), text.into());
        let size: usize = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
        if size > MAX_ANNOTATION_BYTES {
            annotations.remove(ANNOTATION);
        }
    }
}
