//! Reading an object's fields for cells: absent fields read as Go's zero values.

use jiff::Timestamp;
use serde_json::Value;

use super::duration;

/// An object and the present time.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl<'a> View<'a> {
    pub(super) fn new(object: &'a Value, now: Timestamp) -> Self {
        Self { object, now }
    }

    /// A part of the object with the same clock.
    pub(super) fn at(&self, pointer: &str) -> Option<Self> {
        self.get(pointer).map(|object| Self { object, now: self.now })
    }

    pub(super) fn object(&self) -> &'a Value {
        self.object
    }

    /// The field, unless absent or null.
    pub(super) fn get(&self, pointer: &str) -> Option<&'a Value> {
        get(self.object, pointer)
    }

    pub(super) fn has(&self, pointer: &str) -> bool {
        self.get(pointer).is_some()
    }

    pub(super) fn text(&self, pointer: &str) -> &'a str {
        text(self.object, pointer)
    }

    /// The text, or `fallback` where it is absent or empty.
    pub(super) fn text_or(&self, pointer: &str, fallback: &'a str) -> &'a str {
        let text = self.text(pointer);
        if text.is_empty() { fallback } else { text }
    }

    pub(super) fn int(&self, pointer: &str) -> i64 {
        int(self.object, pointer)
    }

    pub(super) fn flag(&self, pointer: &str) -> bool {
        self.get(pointer).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(super) fn list(&self, pointer: &str) -> &'a [Value] {
        list(self.object, pointer)
    }

    /// How many entries a list or map has.
    pub(super) fn count(&self, pointer: &str) -> usize {
        match self.get(pointer) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    pub(super) fn name(&self) -> Value {
        self.text("/metadata/name").into()
    }

    pub(super) fn age(&self) -> Value {
        self.since("/metadata/creationTimestamp").into()
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.has("/metadata/deletionTimestamp")
    }

    pub(super) fn time(&self, pointer: &str) -> Option<Timestamp> {
        time(self.object, pointer)
    }

    /// How long ago the time in a field was.
    pub(super) fn since(&self, pointer: &str) -> String {
        self.elapsed(self.time(pointer))
    }

    pub(super) fn elapsed(&self, then: Option<Timestamp>) -> String {
        then.map_or_else(|| "<unknown>".to_owned(), |then| duration::since(then, self.now))
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&'a str> {
        self.get("/metadata/annotations")?.get(key)?.as_str()
    }

    /// The status of the first condition of a type.
    pub(super) fn condition(&self, pointer: &str, ty: &str) -> Option<&'a Value> {
        self.list(pointer).iter().find(|condition| text(condition, "/type") == ty)
    }
}

pub(super) fn get<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    value.pointer(pointer).filter(|value| !value.is_null())
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn int(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    value.pointer(pointer)?.as_str()?.parse().ok()
}

/// A number or text as people write it: quantities and int-or-string values.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
