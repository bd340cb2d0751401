//! The paths a configuration sets: what an applier asks to own.

use serde_json::{Map, Value};

use super::fields::{self, Trie};
use super::shape::{Kind, Shape};

/// The set of paths in `value`. Fields the schema names are not owned themselves if they have
/// something owned below them; keys of maps and items of lists are.
pub(super) fn set_of(shape: Shape<'_>, value: &Value) -> Trie {
    match (shape.kind_of(value), value) {
        (Kind::Map, Value::Object(map)) if !shape.map_is_atomic() => {
            let mut out = Map::new();
            for (name, value) in map {
                let below = shape.field(name);
                let empty = value.as_object().is_some_and(Map::is_empty);
                let member = value.is_null() || empty || is_leaf(below, value) || !shape.names_field(name);
                if let Some(node) = fields::node(member, set_of(below, value)) {
                    out.insert(fields::field(name), node);
                }
            }
            out
        }
        (Kind::List, Value::Array(items)) if !shape.list_is_atomic() => {
            let mut out = Map::new();
            let mut seen = std::collections::HashSet::new();
            for item in items {
                let mut element = String::new();
                if shape.write_item(item, &mut element).is_err() {
                    continue;
                }
                // Items that share a key are owned together, without looking into them.
                let children = if seen.insert(element.clone()) { set_of(shape.item(), item) } else { Map::new() };
                out.extend(fields::node(true, children).map(|node| (element, node)));
            }
            out
        }
        _ => Map::new(),
    }
}

/// Whether a value is owned as a whole.
fn is_leaf(shape: Shape<'_>, value: &Value) -> bool {
    match shape.kind_of(value) {
        Kind::Scalar => true,
        Kind::Map => shape.map_is_atomic(),
        Kind::List => shape.list_is_atomic(),
    }
}

/// Adapts a set to a schema that changed since it was recorded: what has become atomic is owned as a
/// whole by the owners of its parts.
pub(super) fn reconcile(shape: Shape<'_>, set: &mut Trie) {
    for (element, node) in set.iter_mut() {
        let below = match element.split_at_checked(2) {
            Some(("f:", name)) if shape.kind_of(&Value::Null) == Kind::Map => shape.declared_field(name),
            Some(("k:" | "v:" | "i:", _)) if shape.kind_of(&Value::Null) == Kind::List => Some(shape.item()),
            _ => None,
        };
        let (Some(below), Value::Object(trie)) = (below, node) else { continue };
        let atomic = match below.kind_of(&Value::Null) {
            Kind::Map => below.map_is_atomic(),
            Kind::List => below.list_is_atomic(),
            Kind::Scalar => false,
        };
        if matches!(below, Shape::Deduced) {
            continue;
        }
        if atomic {
            trie.clear();
        } else {
            reconcile(below, trie);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::schema::{ListType, Schema, SchemaRef, Type, builtin};

    #[test]
    fn a_configuration_owns_what_it_says() {
        let shape = Shape::root(builtin::definition(builtin::by_kind("apps", "v1", "Deployment").unwrap()));
        let config = json!({"apiVersion": "apps/v1", "metadata": {"labels": {}, "annotations": {"a": "b"}, "finalizers": []},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": {"spec": {"containers": [
                {"name": "a", "ports": [{"containerPort": 80}], "env": null}], "nodeSelector": {"x": "y"}}}}});
        assert_eq!(
            Value::from(set_of(shape, &config)),
            json!({"f:apiVersion": {}, "f:metadata": {"f:labels": {}, "f:annotations": {"f:a": {}}},
                "f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": {"f:spec": {
                    "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:env": {}, "f:ports": {
                        "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}},
                    "f:nodeSelector": {}}}}})
        );
    }

    #[test]
    fn values_without_a_schema_are_deduced() {
        let config = json!({"a": {"b": [1, {"c": 2}], "d": {}}});
        assert_eq!(Value::from(set_of(Shape::Deduced, &config)), json!({"f:a": {".": {}, "f:b": {}, "f:d": {}}}));
    }

    #[test]
    fn parts_of_what_became_atomic_are_owned_as_a_whole() {
        let list = |list_type| Schema {
            ty: Type::Array,
            list_type,
            items: Some(SchemaRef::from(Schema { ty: Type::Object, ..Schema::default() })),
            ..Schema::default()
        };
        let schema = |list_type| Schema {
            ty: Type::Object,
            properties: [("l".into(), SchemaRef::from(list(list_type)))].into(),
            ..Schema::default()
        };
        let mut set = Map::new();
        set.insert("f:l".to_owned(), json!({"k:{\"id\":1}": {".": {}, "f:id": {}}}));
        set.insert("f:unknown".to_owned(), json!({"f:x": {}}));
        let before = set.clone();
        reconcile(Shape::root(&schema(ListType::Map(vec!["id".into()]))), &mut set);
        assert_eq!(set, before);
        reconcile(Shape::root(&schema(ListType::Atomic)), &mut set);
        assert_eq!(Value::from(set), json!({"f:l": {}, "f:unknown": {"f:x": {}}}));
    }
}
