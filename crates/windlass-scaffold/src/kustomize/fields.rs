//! Fields of objects by kustomize's paths, such as `spec/template/spec/containers/image`: lists are stepped through
//! without being named, and `\/` stands for a slash in a name.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::resource::Kind;

/// A field of the objects of some kinds. What is empty fits every kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct FieldSpec {
    #[serde(flatten)]
    pub kind: Kind,
    pub path: String,
    pub create: bool,
}

impl FieldSpec {
    pub(super) fn new(kind: &str, group: &str, path: &str) -> Self {
        Self { kind: Kind::new(group, "", kind), path: path.to_owned(), create: false }
    }

    pub(super) fn created(mut self) -> Self {
        self.create = true;
        self
    }
}

/// Calls `set` with every value that a path leads to. With `create`, maps on the way and the value itself, as null, are
/// added where they are missing.
pub(super) fn visit(object: &mut Value, path: &str, create: bool, set: &mut dyn FnMut(&mut Value)) {
    step(object, &split(path, '/'), create, set);
}

fn step(value: &mut Value, path: &[String], create: bool, set: &mut dyn FnMut(&mut Value)) {
    let Some((name, rest)) = path.split_first() else { return set(value) };
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| step(item, path, create, set)),
        Value::Object(fields) => {
            let (name, list) = match name.strip_suffix("[]") {
                Some(name) => (name, true),
                None => (name.as_str(), false),
            };
            let create = create && !list;
            if create && !rest.is_empty() {
                let next = fields.entry(name.to_owned()).or_insert_with(|| Value::Object(Map::new()));
                if next.is_null() {
                    *next = Value::Object(Map::new());
                }
            } else if create {
                fields.entry(name.to_owned()).or_insert(Value::Null);
            }
            if let Some(next) = fields.get_mut(name) {
                step(next, rest, create, set);
            }
        }
        _ => {}
    }
}

/// Splits a path at a character, except where a backslash is before it.
pub(super) fn split(path: &str, at: char) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let path = path.strip_prefix(at).unwrap_or(path);
    for part in path.split(at) {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push(at);
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

/// Adds entries to a map of texts, which is created if it is missing.
pub(super) fn add_entries<'a>(value: &mut Value, entries: impl IntoIterator<Item = (&'a String, &'a String)>) {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    if let Value::Object(fields) = value {
        for (name, text) in entries {
            fields.insert(name.clone(), Value::String(text.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_goes_through_lists_and_creates_maps() {
        let mut object = json!({"spec": {"items": [{"name": "a"}, {"name": "b"}]}});
        visit(&mut object, "spec/items/name", false, &mut |value| *value = "c".into());
        visit(&mut object, "metadata/labels/a\\/b", true, &mut |value| *value = "d".into());
        visit(&mut object, "spec/missing/name", false, &mut |_| panic!("there is none"));
        let expected = json!({"spec": {"items": [{"name": "c"}, {"name": "c"}]}, "metadata": {"labels": {"a/b": "d"}}});
        assert_eq!(object, expected);
    }
}
