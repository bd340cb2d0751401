//! Removing what a schema does not know, and saying what was removed.
//!
//! [`coerce`] is what decoding a custom resource does after JSON: it drops unknown fields and `null`s
//! that mean nothing, and writes whole numbers as such. `prune` alone drops unknown fields. The paths it reports are those that strict
//! field validation names: `unknown field "spec.x"`.

use std::sync::LazyLock;

use serde_json::Value;

use super::{Schema, SchemaRef};
use crate::field::Path;

/// Drops unknown fields and meaningless `null`s; returns the paths of the unknown fields, in the order
/// upstream reports them: the object's metadata, its fields, then metadata of embedded resources.
pub fn coerce(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut dropped = Dropped::default();
    walk(object, schema, schema.preserve_unknown, Place::Fields, &Path::root(), &mut Some(&mut dropped));
    drop_nulls(object, schema);
    settle_numbers(object);
    dropped.into_paths()
}

/// Drops unknown fields.
pub(crate) fn prune(value: &mut Value, schema: &Schema) {
    walk(value, schema, schema.preserve_unknown, Place::Fields, &Path::root(), &mut None);
}

/// The unknown fields of `value`, as [`coerce`] would report them.
pub fn unknown_fields(value: &Value, schema: &Schema) -> Vec<String> {
    let mut dropped = Dropped::default();
    walk(&mut value.clone(), schema, schema.preserve_unknown, Place::Fields, &Path::root(), &mut Some(&mut dropped));
    dropped.into_paths()
}

/// Whether `value` has no unknown fields, not counting those of metadata, which are dropped without a word.
pub fn is_pruned(value: &Value, schema: &Schema) -> bool {
    if !value.is_object() && !value.is_array() {
        return true;
    }
    let mut dropped = Dropped::default();
    walk(&mut value.clone(), schema, schema.preserve_unknown, Place::Fields, &Path::root(), &mut Some(&mut dropped));
    dropped.fields.is_empty()
}

/// Drops `null` fields where the schema neither allows `null` nor has a default for them.
pub(crate) fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let reference = schema.properties.get(name.as_str()).or(schema.additional.as_ref());
            let Some(reference) = reference else { return true };
            if value.is_null() && means_nothing(reference) {
                return false;
            }
            drop_nulls(value, reference);
            true
        }),
        Value::Array(items) => {
            let Some(schema) = schema.items.as_deref() else { return };
            for item in items {
                drop_nulls(item, schema);
            }
        }
        _ => {}
    }
}

/// Writes `2.0` as `2`, as Go's encoder does.
fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            // Below 2^53 a float that is whole is that number.
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0);
            if let Some(float) = whole {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(map) => map.values_mut().for_each(settle_numbers),
        _ => {}
    }
}

/// The Go zero values that built-in schemas carry as defaults are no reason to keep a `null`.
fn means_nothing(reference: &SchemaRef) -> bool {
    match reference {
        SchemaRef::Definition { .. } => true,
        own => !own.nullable && own.default.is_none(),
    }
}

/// Which list a dropped path goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Fields,
    Metadata,
    EmbeddedMetadata,
}

#[derive(Default)]
struct Dropped {
    metadata: Vec<String>,
    fields: Vec<String>,
    embedded_metadata: Vec<String>,
}

impl Dropped {
    fn into_paths(mut self) -> Vec<String> {
        self.fields.sort_unstable();
        self.embedded_metadata.sort_unstable();
        self.metadata.append(&mut self.fields);
        self.metadata.append(&mut self.embedded_metadata);
        self.metadata
    }
}

static UNDECLARED: LazyLock<Schema> = LazyLock::new(Schema::default);

/// `preserve` says whether unknown fields right here stay. A list hands it on to its items, a field
/// does not: below a declared field only what is declared stays.
fn walk(
    value: &mut Value,
    schema: &Schema,
    preserve: bool,
    place: Place,
    path: &Path<'_>,
    dropped: &mut Option<&mut Dropped>,
) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let here = path.child(name);
            if let Some(below) = schema.properties.get(name.as_str()).or(schema.additional.as_ref()) {
                let place = if place == Place::Fields && is_object_meta(name, below) {
                    if path.is_root() { Place::Metadata } else { Place::EmbeddedMetadata }
                } else {
                    place
                };
                walk(value, below, below.preserve_unknown, place, &here, dropped);
                return true;
            }
            if !preserve && let Some(dropped) = dropped {
                let list = match place {
                    Place::Fields => &mut dropped.fields,
                    Place::Metadata => &mut dropped.metadata,
                    Place::EmbeddedMetadata => &mut dropped.embedded_metadata,
                };
                list.push(here.to_string());
            }
            preserve
        }),
        Value::Array(items) => {
            let (below, preserve) = match schema.items.as_deref() {
                Some(below) => (below, preserve || below.preserve_unknown),
                None if preserve => return,
                None => (&*UNDECLARED, false),
            };
            for (index, item) in items.iter_mut().enumerate() {
                walk(item, below, preserve, place, &path.index(index), dropped);
            }
        }
        _ => {}
    }
}

fn is_object_meta(name: &str, below: &SchemaRef) -> bool {
    name == "metadata" && matches!(below, SchemaRef::Definition { .. })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::structural;

    #[track_caller]
    fn check(openapi: &Value, mut object: Value, expected: &Value, dropped: &[&str]) {
        let schema = structural::root(openapi);
        assert_eq!(unknown_fields(&object, &schema), dropped);
        let paths = coerce(&mut object, &schema);
        assert_eq!(&object, expected);
        assert_eq!(paths, dropped);
        assert_eq!(coerce(&mut object, &schema), Vec::<String>::new(), "pruning is idempotent");
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        let openapi = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "mixed": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                      "properties": {"known": {"type": "object", "properties": {"x": {"type": "integer"}}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"v": {"type": "integer"}}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
        }}}});
        check(
            &openapi,
            json!({"apiVersion": "g/v1", "kind": "Bin", "metadata": {"name": "a", "foo": 1},
                   "spec": {"a": "1", "zz": 1, "free": {"x": {"y": 1}}, "mixed": {"other": 1, "known": {"x": 1, "y": 2}},
                            "map": {"k": {"v": 1, "w": 2}}, "list": [{"n": "1", "m": 2}]}, "other": 1}),
            &json!({"apiVersion": "g/v1", "kind": "Bin", "metadata": {"name": "a"},
                    "spec": {"a": "1", "free": {"x": {"y": 1}}, "mixed": {"other": 1, "known": {"x": 1}},
                             "map": {"k": {"v": 1}}, "list": [{"n": "1"}]}}),
            &["metadata.foo", "other", "spec.list[0].m", "spec.map.k.w", "spec.mixed.known.y", "spec.zz"],
        );
    }

    #[test]
    fn embedded_resources_keep_their_type_and_lose_unknown_metadata() {
        let openapi = json!({"type": "object", "properties": {
            "tpl": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
            "shut": {"type": "object", "x-kubernetes-embedded-resource": true,
                     "properties": {"spec": {"type": "object", "properties": {"q": {"type": "integer"}}}}},
        }});
        check(
            &openapi,
            json!({"tpl": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "bogus": 1}, "spec": {"any": 1}},
                   "shut": {"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b"}}, "spec": {"q": 1, "r": 2}}}),
            &json!({"tpl": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"any": 1}},
                    "shut": {"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b"}}, "spec": {"q": 1}}}),
            &["shut.spec.r", "tpl.metadata.bogus"],
        );
    }

    #[test]
    fn whole_floats_become_integers() {
        let openapi = json!({"type": "object", "properties": {"n": {"type": "array", "items": {"type": "number"}}}});
        check(&openapi, json!({"n": [2.0, -0.5, 1e300]}), &json!({"n": [2, -0.5, 1e300]}), &[]);
    }

    #[test]
    fn nulls_stay_only_where_they_mean_something() {
        let openapi = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "plain": {"type": "string"},
            "nullable": {"type": "string", "nullable": true},
            "defaulted": {"type": "string", "default": "x"},
            "list": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        }}}});
        check(
            &openapi,
            json!({"metadata": {"creationTimestamp": null},
                   "spec": {"plain": null, "nullable": null, "defaulted": null, "list": [null], "map": {"a": null}}}),
            &json!({"metadata": {}, "spec": {"nullable": null, "defaulted": null, "list": [null], "map": {}}}),
            &[],
        );
    }
}
