//! Which items of an old list are those of a new one: upstream's `apiserver/pkg/cel/common/maplist.go`.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use serde_json::Value;

use crate::schema::{ListType, Schema};

/// Shorter lists are searched.
const SHORT: usize = 8;

/// The items of an old list, by their keys. Items of lists that are not of type `map` are found nowhere.
pub(crate) struct Correlation<'a> {
    items: &'a [Value],
    keys: &'a [Box<str>],
    by_keys: HashMap<Keyed<'a>, &'a Value>,
}

impl<'a> Correlation<'a> {
    /// The items of `list`, which `schema` describes.
    pub(crate) fn new(list: Option<&'a Value>, schema: &'a Schema) -> Self {
        let (items, keys) = match (list, &schema.list_type) {
            (Some(Value::Array(items)), ListType::Map(keys)) => (items.as_slice(), keys.as_slice()),
            _ => (&[][..], &[][..]),
        };
        let mut by_keys = HashMap::new();
        if items.len() > SHORT {
            by_keys.reserve(items.len());
            for item in items {
                if let Some(keyed) = Keyed::new(item, keys) {
                    by_keys.entry(keyed).or_insert(item);
                }
            }
        }
        Self { items, keys, by_keys }
    }

    /// The first item with the keys of `item`.
    pub(crate) fn get(&self, item: &Value) -> Option<&'a Value> {
        let wanted = Keyed::new(item, self.keys)?;
        if self.items.len() > SHORT {
            return self.by_keys.get(&wanted).copied();
        }
        self.items.iter().find(|item| Keyed::new(item, self.keys).is_some_and(|keyed| keyed == wanted))
    }
}

/// An item that has all its keys.
struct Keyed<'a> {
    item: &'a serde_json::Map<String, Value>,
    keys: &'a [Box<str>],
}

impl<'a> Keyed<'a> {
    /// `None` if a key is not there, or is not one.
    fn new(item: &'a Value, keys: &'a [Box<str>]) -> Option<Self> {
        let item = item.as_object()?;
        let is_key = |value: &Value| matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_));
        (!keys.is_empty() && keys.iter().all(|key| item.get(&**key).is_some_and(is_key))).then_some(Self { item, keys })
    }

    fn values(&self) -> impl Iterator<Item = Option<&'a Value>> {
        let item = self.item;
        self.keys.iter().map(move |key| item.get(&**key))
    }
}

impl PartialEq for Keyed<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.values().eq(other.values())
    }
}

impl Eq for Keyed<'_> {}

impl Hash for Keyed<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for value in self.values() {
            value.hash(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_are_found_by_their_keys() {
        let list_type = ListType::Map(["a".into(), "b".into()].into());
        let schema = Schema { list_type, ..Schema::default() };
        for length in [4, 40] {
            let mut items: Vec<Value> = (0..length).map(|n| json!({"a": n, "b": "x", "c": n})).collect();
            items.extend([
                json!({"a": 1, "b": "x", "c": "second"}),
                json!({"a": 3}),
                json!({"a": 3, "b": null}),
                json!(1),
            ]);
            let list = Value::Array(items);
            let old = Correlation::new(Some(&list), &schema);
            assert_eq!(old.get(&json!({"a": 1, "b": "x"})), Some(&json!({"a": 1, "b": "x", "c": 1})));
            for unknown in [
                json!({"a": 1, "b": "y"}),
                json!({"a": 1.0, "b": "x"}),
                json!({"a": 3}),
                json!({"a": 3, "b": null}),
                json!(1),
            ] {
                assert_eq!(old.get(&unknown), None, "{unknown}");
            }
        }
        let atomic = Schema::default();
        assert_eq!(Correlation::new(Some(&json!([{"a": 1, "b": 2}])), &atomic).get(&json!({"a": 1, "b": 2})), None);
    }
}
