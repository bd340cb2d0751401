//! Reading and filling fields of JSON objects whose types the schema already checked.
//!
//! In Go an absent field and its zero value are the same thing, so the readers here answer an absent
//! field with the zero value of the type that is asked for. They never panic: a value of another
//! type reads as absent too.

use std::collections::HashMap;

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// Readers of one object's fields.
pub trait Access {
    /// The field, or null.
    fn at(&self, field: &str) -> &Value;
    /// The value reached by going down through `fields`, or null.
    fn below(&self, fields: &[&str]) -> &Value;
    /// Whether the field is there and is not null.
    fn has(&self, field: &str) -> bool;
    /// A string field; absent is empty.
    fn text(&self, field: &str) -> &str;
    /// A string field that may be told from an absent one.
    fn text_opt(&self, field: &str) -> Option<&str>;
    /// A whole number; absent is 0.
    fn int(&self, field: &str) -> i64;
    /// A whole number that may be told from an absent one.
    fn int_opt(&self, field: &str) -> Option<i64>;
    /// A truth value; absent is false.
    fn flag(&self, field: &str) -> bool;
    /// A truth value that may be told from an absent one.
    fn flag_opt(&self, field: &str) -> Option<bool>;
    /// A list; absent is empty.
    fn list(&self, field: &str) -> &[Value];
    /// The strings of a list of strings.
    fn texts(&self, field: &str) -> Vec<&str>;
    /// The entries of a map; absent is empty.
    fn entries(&self, field: &str) -> Vec<(&str, &Value)>;
    /// The entries of a map of strings; absent is empty.
    fn text_entries(&self, field: &str) -> Vec<(&str, &str)>;
}

impl Access for Value {
    fn at(&self, field: &str) -> &Value {
        self.get(field).unwrap_or(&NULL)
    }

    fn below(&self, fields: &[&str]) -> &Value {
        fields.iter().fold(self, |value, field| value.at(field))
    }

    fn has(&self, field: &str) -> bool {
        !self.at(field).is_null()
    }

    fn text(&self, field: &str) -> &str {
        self.text_opt(field).unwrap_or_default()
    }

    fn text_opt(&self, field: &str) -> Option<&str> {
        self.at(field).as_str()
    }

    fn int(&self, field: &str) -> i64 {
        self.int_opt(field).unwrap_or_default()
    }

    fn int_opt(&self, field: &str) -> Option<i64> {
        self.at(field).as_i64()
    }

    fn flag(&self, field: &str) -> bool {
        self.flag_opt(field).unwrap_or_default()
    }

    fn flag_opt(&self, field: &str) -> Option<bool> {
        self.at(field).as_bool()
    }

    fn list(&self, field: &str) -> &[Value] {
        self.at(field).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn texts(&self, field: &str) -> Vec<&str> {
        self.list(field).iter().filter_map(Value::as_str).collect()
    }

    fn entries(&self, field: &str) -> Vec<(&str, &Value)> {
        self.at(field).as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value)).collect()
    }

    fn text_entries(&self, field: &str) -> Vec<(&str, &str)> {
        self.entries(field).into_iter().map(|(key, value)| (key, value.as_str().unwrap_or_default())).collect()
    }
}

/// The items of a list by the text of a field; of two with the same, the first.
pub fn first_by<'a>(items: &'a [Value], field: &str) -> HashMap<&'a str, &'a Value> {
    items.iter().rev().map(|item| (item.text(field), item)).collect()
}

/// The items of a list by the text of a field; of two with the same, the last.
pub fn last_by<'a>(items: &'a [Value], field: &str) -> HashMap<&'a str, &'a Value> {
    items.iter().map(|item| (item.text(field), item)).collect()
}

/// Writers of one object's fields. On anything but an object they do nothing.
pub trait AccessMut {
    /// Puts `value` where the field is absent or null.
    fn fill(&mut self, field: &str, value: impl Into<Value>);
    /// Puts `value` where the field is absent, null or the empty string: what Go's defaulting of a
    /// plain string does.
    fn fill_text(&mut self, field: &str, value: &str);
    /// Puts `value` where the field is absent, null or 0: what Go's defaulting of a plain int does.
    fn fill_int(&mut self, field: &str, value: i64);
    /// Sets the field.
    fn put(&mut self, field: &str, value: impl Into<Value>);
    /// Removes the field.
    fn drop_field(&mut self, field: &str);
    /// Takes the field over from `other`: set if it is there, removed if it is not.
    fn copy_field(&mut self, field: &str, other: &Value);
    /// The object below `field`, if there is one.
    fn child_mut(&mut self, field: &str) -> Option<&mut Value>;
    /// The object below `field`, made if absent; for fields that are structs and not pointers in Go.
    fn struct_mut(&mut self, field: &str) -> &mut Value;
    /// The items of a list field.
    fn items_mut(&mut self, field: &str) -> &mut [Value];
}

impl AccessMut for Value {
    fn fill(&mut self, field: &str, value: impl Into<Value>) {
        if let Value::Object(map) = self
            && map.get(field).is_none_or(Value::is_null)
        {
            map.insert(field.to_owned(), value.into());
        }
    }

    fn fill_text(&mut self, field: &str, value: &str) {
        if self.text(field).is_empty() {
            self.put(field, value);
        }
    }

    fn fill_int(&mut self, field: &str, value: i64) {
        if self.int(field) == 0 {
            self.put(field, value);
        }
    }

    fn put(&mut self, field: &str, value: impl Into<Value>) {
        if let Value::Object(map) = self {
            map.insert(field.to_owned(), value.into());
        }
    }

    fn drop_field(&mut self, field: &str) {
        if let Value::Object(map) = self {
            map.remove(field);
        }
    }

    fn copy_field(&mut self, field: &str, other: &Value) {
        match other.get(field) {
            Some(value) => self.put(field, value.clone()),
            None => self.drop_field(field),
        }
    }

    fn child_mut(&mut self, field: &str) -> Option<&mut Value> {
        self.get_mut(field).filter(|value| value.is_object())
    }

    fn struct_mut(&mut self, field: &str) -> &mut Value {
        if !self.is_object() {
            *self = Value::Object(Map::new());
        }
        let child = &mut self[field];
        if !child.is_object() {
            *child = Value::Object(Map::new());
        }
        child
    }

    fn items_mut(&mut self, field: &str) -> &mut [Value] {
        match self.get_mut(field) {
            Some(Value::Array(items)) => items,
            _ => &mut [],
        }
    }
}

/// Whether two fields are equal the way upstream compares objects: absent, null and empty lists or
/// maps are the same.
pub fn semantically_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            x.iter().all(|(key, value)| semantically_equal(value, y.get(key).unwrap_or(&NULL)))
                && y.iter().all(|(key, value)| x.contains_key(key) || is_empty(value))
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(a, b)| semantically_equal(a, b))
        }
        _ => a == b || (is_empty(a) && is_empty(b)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// `value` as compact JSON with the fields named in `order` first: Go prints struct fields in the
/// order they are declared.
pub fn in_order(value: &Value, order: &[&str]) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| in_order(item, order)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => {
            let named = order.iter().filter_map(|key| map.get_key_value(*key));
            let rest = map.iter().filter(|(key, _)| !order.contains(&key.as_str()));
            let fields: Vec<String> = named
                .chain(rest)
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), in_order(value, order)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_fields_read_as_zero_values() {
        let object = json!({"a": {"b": "x"}, "n": 3, "wrong": 5});
        assert_eq!(object.below(&["a", "b"]), "x");
        assert_eq!(object.text("wrong"), "");
        assert_eq!(object.int("missing"), 0);
        assert!(object.list("missing").is_empty());
        assert!(!object.at("a").has("c"));
    }

    #[test]
    fn empty_and_absent_compare_equal() {
        assert!(semantically_equal(&json!({"a": [], "b": {}}), &json!({})));
        assert!(semantically_equal(&json!(null), &json!([])));
        assert!(!semantically_equal(&json!({"a": 0}), &json!({})));
        assert!(!semantically_equal(&json!([1, 2]), &json!([1])));
    }

    #[test]
    fn struct_fields_print_in_declared_order() {
        let selector = json!({"matchExpressions": [], "matchLabels": {"a": "b"}});
        assert_eq!(in_order(&selector, &["matchLabels"]), r#"{"matchLabels":{"a":"b"},"matchExpressions":[]}"#);
    }
}
