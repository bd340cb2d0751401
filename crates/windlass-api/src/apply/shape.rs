//! How a value of a given schema splits into separately owned parts.
//!
//! This is upstream's `schemaconv` (kube-openapi) and the type deduction of structured-merge-diff,
//! computed on the fly: a [`Shape`] is a schema, or one of the two stand-ins for values without one.

use std::sync::LazyLock;

use serde_json::Value;

use super::fields::write_keys;
use crate::codec::go_json::write_value;
use crate::schema::{ListType, Schema, SchemaRef, Type, builtin};

/// The type of a value as far as ownership goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'s> {
    /// What this schema says. The flag is set below `x-kubernetes-preserve-unknown-fields`.
    Schema(&'s Schema, bool),
    /// A Kubernetes object whose schema need not mention `apiVersion`, `kind` and `metadata`: the root
    /// of a custom resource, or an embedded one.
    Object(&'s Schema, bool),
    /// Unknown: objects split into fields, lists are atomic.
    Deduced,
    /// Unknown, and owned as a whole.
    Atomic,
}

/// Which of the three kinds of type applies to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Map,
    List,
    Scalar,
}

static STRING: LazyLock<Schema> = LazyLock::new(|| Schema { ty: Type::String, ..Schema::default() });

impl<'s> Shape<'s> {
    /// The shape of a whole object of a kind.
    pub(super) fn root(schema: &'s Schema) -> Self {
        if schema.name.is_some() { Self::Schema(schema, false) } else { Self::Object(schema, schema.preserve_unknown) }
    }

    fn of(schema: &'s Schema, preserve: bool) -> Self {
        if schema.name == Some("io.k8s.apimachinery.pkg.runtime.RawExtension") {
            return Self::Atomic;
        }
        let preserve = preserve || (schema.name.is_none() && schema.preserve_unknown);
        if schema.embedded { Self::Object(schema, preserve) } else { Self::Schema(schema, preserve) }
    }

    fn schema(self) -> Option<(&'s Schema, bool)> {
        match self {
            Self::Schema(schema, preserve) | Self::Object(schema, preserve) => Some((schema, preserve)),
            Self::Deduced | Self::Atomic => None,
        }
    }

    /// Which kind of type applies to `value`. Null, and values of a wrong type, read as the first of
    /// map, scalar, list that the shape allows.
    pub(super) fn kind_of(self, value: &Value) -> Kind {
        let ty = self.schema().map_or(Type::Any, |(schema, _)| schema.ty);
        match ty {
            Type::Object => Kind::Map,
            Type::Array => Kind::List,
            Type::String | Type::Integer | Type::Number | Type::Boolean | Type::Quantity => Kind::Scalar,
            Type::Any | Type::IntOrString => match value {
                Value::Null | Value::Object(_) => Kind::Map,
                Value::Array(_) => Kind::List,
                _ => Kind::Scalar,
            },
        }
    }

    /// Whether maps of this shape have one owner.
    pub(super) fn map_is_atomic(self) -> bool {
        match self {
            Self::Schema(schema, _) | Self::Object(schema, _) => schema.atomic,
            Self::Deduced => false,
            Self::Atomic => true,
        }
    }

    /// Whether lists of this shape have one owner.
    pub(super) fn list_is_atomic(self) -> bool {
        self.schema().is_none_or(|(schema, _)| schema.list_type == ListType::Atomic)
    }

    /// Whether the schema names the field, as opposed to a map's key.
    pub(super) fn names_field(self, name: &str) -> bool {
        match self {
            Self::Schema(schema, _) => schema.properties.contains_key(name),
            Self::Object(schema, _) => {
                matches!(name, "apiVersion" | "kind" | "metadata") || schema.properties.contains_key(name)
            }
            Self::Deduced | Self::Atomic => false,
        }
    }

    /// The shape of a field; `None` if the schema has no place for it.
    pub(super) fn declared_field(self, name: &str) -> Option<Self> {
        let (schema, preserve) = match self {
            Self::Atomic | Self::Deduced => return Some(self),
            Self::Object(schema, preserve) => match name {
                "apiVersion" | "kind" => return Some(Self::Schema(&STRING, false)),
                "metadata" => return Some(Self::Schema(builtin::object_meta(), false)),
                _ => (schema, preserve),
            },
            Self::Schema(schema, preserve) => (schema, preserve),
        };
        if let Some(field) = schema.properties.get(name).or(schema.additional.as_ref()) {
            return Some(Self::of(field, preserve));
        }
        (preserve || schema.properties.is_empty()).then_some(Self::Deduced)
    }

    /// The shape of a field; undeclared ones are deduced.
    pub(super) fn field(self, name: &str) -> Self {
        self.declared_field(name).unwrap_or(Self::Deduced)
    }

    /// The shape of a list's items.
    pub(super) fn item(self) -> Self {
        match self.schema().and_then(|(schema, preserve)| Some((schema.items.as_deref()?, preserve))) {
            Some((items, preserve)) => Self::of(items, preserve),
            None => Self::Atomic,
        }
    }

    /// Writes the path element of an item of this list, which must not be atomic.
    pub(super) fn write_item(self, item: &Value, out: &mut String) -> Result<(), String> {
        match self.schema().map(|(schema, _)| (&schema.list_type, schema.items.as_deref())) {
            Some((ListType::Map(keys), items)) => write_keyed(keys, items, item, out),
            Some((ListType::Set, _)) => {
                let problem = match item {
                    Value::Object(_) => "associative list without keys has an element that's a map type",
                    Value::Array(_) => "not supported: associative list with lists as elements",
                    Value::Null => "associative list without keys has an element that's an explicit null",
                    scalar => {
                        out.push_str("v:");
                        write_value(scalar, out);
                        return Ok(());
                    }
                };
                Err(problem.to_owned())
            }
            _ => Err("invalid indexing of non-associative list".to_owned()),
        }
    }
}

fn write_keyed(keys: &[Box<str>], items: Option<&Schema>, item: &Value, out: &mut String) -> Result<(), String> {
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let value_of = |key: &'_ str| {
        let default = || items.and_then(|items| items.properties.get(key)).and_then(SchemaRef::default_value);
        map.get(key).or_else(default)
    };
    if let [key] = keys
        && let Some(value) = value_of(key)
    {
        write_keys(std::iter::once((&**key, value)), out);
        return Ok(());
    }
    let mut found: Vec<(&str, &Value)> = keys.iter().filter_map(|key| Some((&**key, value_of(key)?))).collect();
    if found.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| crate::field::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] \
             (and doesn't have default values for any key fields)",
            keys.join(" ")
        ));
    }
    found.sort_unstable_by_key(|(name, _)| *name);
    write_keys(found.into_iter(), out);
    Ok(())
}

/// The object of a kind before anything is set: what a create is compared with.
///
/// Built-in kinds are Go structs, whose plain struct fields are there even when empty and whose
/// required lists and pointers read as null; no manager comes to own such a field by filling it. A custom
/// resource starts from nothing.
pub(super) fn zero(schema: &Schema) -> Value {
    let mut out = serde_json::Map::new();
    if schema.name.is_some() && schema.ty == Type::Object {
        for (name, field) in &schema.properties {
            match field {
                SchemaRef::Definition { id, always: true } => {
                    out.insert(name.to_string(), zero(builtin::definition(*id)));
                }
                // A copy of a definition, made where its use says more than the definition.
                SchemaRef::Inline(inline) if inline.name.is_some() && inline.default.is_some() => {
                    out.insert(name.to_string(), zero(inline));
                }
                _ if schema.required.contains(name) => {
                    out.insert(name.to_string(), field.default_value().cloned().unwrap_or_default());
                }
                _ => {}
            }
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn builtin_schema(group: &str, kind: &str) -> &'static Schema {
        builtin::definition(builtin::by_kind(group, "v1", kind).unwrap())
    }

    #[test]
    fn a_zero_object_has_its_struct_fields() {
        assert_eq!(zero(builtin_schema("", "ConfigMap")), json!({"metadata": {}}));
        let deployment = zero(builtin_schema("apps", "Deployment"));
        assert_eq!(deployment["spec"]["strategy"], json!({}));
        assert_eq!(deployment["spec"]["template"], json!({"metadata": {}, "spec": {"containers": null}}));
        assert_eq!(deployment["status"], json!({}));
        assert_eq!(zero(&Schema::default()), json!({}));
    }

    #[test]
    fn missing_keys_take_their_default() {
        let spec = Shape::root(builtin_schema("", "Service")).field("spec");
        let mut text = String::new();
        spec.field("ports").write_item(&json!({"port": 80}), &mut text).unwrap();
        assert_eq!(text, r#"k:{"port":80,"protocol":"TCP"}"#);
    }
}
