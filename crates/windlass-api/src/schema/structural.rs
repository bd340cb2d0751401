//! From a CRD's `openAPIV3Schema` to a [`Schema`].
//!
//! The reader never fails: what a CRD may contain is decided when the CRD is written
//! (`windlass-kinds`), and anything unexpected here is left out. At the root, and in embedded
//! resources, `apiVersion`, `kind` and `metadata` are always there; what the author demands of
//! `metadata` goes into [`Rules::metadata`](super::Rules::metadata). Defaults outside of it come out pruned.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::pattern::Pattern;
use super::{ListType, Rules, Schema, SchemaRef, Type, Validation, builtin, format, prune};

/// Reads the schemas of one CRD. Equal patterns are kept once for all of its versions.
#[derive(Debug, Default)]
pub struct Reader {
    patterns: HashMap<Box<str>, Arc<Pattern>>,
    /// Whether what is read is the metadata of a resource.
    inside_metadata: bool,
}

impl Reader {
    /// A reader for one CRD.
    pub fn new() -> Self {
        Self::default()
    }

    /// The schema of a whole object.
    pub fn root(&mut self, openapi: &Value) -> Schema {
        let mut schema = match openapi {
            Value::Object(map) => self.node(map, true),
            _ => self.node(&Map::new(), true),
        };
        if schema.ty == Type::Any {
            schema.ty = Type::Object;
        }
        schema
    }

    /// The schema of a value inside an object.
    pub(crate) fn value(&mut self, openapi: &Value) -> Schema {
        match openapi {
            Value::Object(map) => self.node(map, false),
            _ => Schema::default(),
        }
    }

    /// Reads one level in one pass: schemas are many, and each has few of the keywords there are.
    fn node(&mut self, map: &Map<String, Value>, root: bool) -> Schema {
        let mut schema = Schema::default();
        let mut rules = None;
        let mut level = Level::default();
        for (key, value) in map {
            match (key.as_str(), value) {
                ("type", Value::String(ty)) => level.ty = ty,
                ("x-kubernetes-int-or-string", Value::Bool(true)) => level.int_or_string = true,
                ("description", Value::String(text)) => schema.description = non_empty(text),
                ("format", Value::String(text)) => schema.format = non_empty(text),
                ("properties", Value::Object(properties)) => {
                    let resource = root || map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
                    let below = properties.iter().map(|(name, below)| {
                        let outside = self.inside_metadata;
                        self.inside_metadata |= resource && name == "metadata";
                        let schema = self.value(below);
                        self.inside_metadata = outside;
                        (name.as_str().into(), schema.into())
                    });
                    schema.properties = below.collect();
                }
                ("additionalProperties", value) => {
                    schema.additional = self.additional(value);
                    if *value == Value::Bool(false) {
                        of(&mut rules).closed = true;
                    }
                }
                ("items", items @ Value::Object(_)) => schema.items = Some(self.value(items).into()),
                ("required", value) => schema.required = strings(value),
                ("nullable", Value::Bool(nullable)) => schema.nullable = *nullable,
                ("enum", Value::Array(values)) => schema.enumeration.clone_from(values),
                ("x-kubernetes-list-type", Value::String(ty)) => level.list_type = ty,
                ("x-kubernetes-list-map-keys", value) => level.list_keys = Some(value),
                ("x-kubernetes-map-type", Value::String(ty)) => schema.atomic = ty == "atomic",
                ("x-kubernetes-preserve-unknown-fields", Value::Bool(keep)) => schema.preserve_unknown = *keep,
                ("x-kubernetes-embedded-resource", Value::Bool(embedded)) => schema.embedded = *embedded,
                ("default", value) => level.default = Some(value),
                (key, value) => self.rule(key, value, &mut level, &mut rules),
            }
        }
        schema.ty = level.ty();
        schema.list_type = level.list_type();
        level.bounds(&mut rules);
        if let Some(format) = schema.format.as_deref().and_then(|name| format::supported(schema.ty, name)) {
            of(&mut rules).format = Some(format);
        }
        if root || schema.embedded {
            let declared = declares_metadata(&schema.properties);
            add_type_and_metadata(&mut schema.properties, |demands| {
                let rules = of(&mut rules);
                rules.metadata = Some(Box::new(demands));
                rules.declares_metadata = declared;
            });
        }
        schema.rules = rules;
        schema.default = level.default.filter(|value| !value.is_null()).map(|value| {
            let mut value = value.clone();
            // Metadata has fields that are not declared.
            if !self.inside_metadata {
                prune::prune(&mut value, &schema);
            }
            value
        });
        schema
    }

    /// `additionalProperties: true` admits anything, but what is in it is not declared: it is pruned.
    /// With `false` unknown fields also stay, to be refused by validation.
    fn additional(&mut self, value: &Value) -> Option<SchemaRef> {
        match value {
            Value::Bool(_) => Some(Schema { nullable: true, ..Schema::default() }.into()),
            below @ Value::Object(_) => Some(self.value(below).into()),
            _ => None,
        }
    }

    /// Reads a keyword that restricts values.
    fn rule(&mut self, key: &str, value: &Value, level: &mut Level<'_>, rules: &mut Option<Box<Rules>>) {
        let count = value.as_u64();
        match key {
            "maximum" => level.maximum = value.as_f64(),
            "minimum" => level.minimum = value.as_f64(),
            "exclusiveMaximum" => level.exclusive_maximum = *value == Value::Bool(true),
            "exclusiveMinimum" => level.exclusive_minimum = *value == Value::Bool(true),
            "multipleOf" if value.is_number() => of(rules).multiple_of = value.as_f64(),
            "maxLength" if count.is_some() => of(rules).max_length = count,
            "minLength" if count.is_some() => of(rules).min_length = count,
            "maxItems" if count.is_some() => of(rules).max_items = count,
            "minItems" if count.is_some() => of(rules).min_items = count,
            "maxProperties" if count.is_some() => of(rules).max_properties = count,
            "minProperties" if count.is_some() => of(rules).min_properties = count,
            "uniqueItems" if *value == Value::Bool(true) => of(rules).unique_items = true,
            "pattern" => {
                if let Some(source) = value.as_str().filter(|source| !source.is_empty()) {
                    of(rules).pattern = Some(self.pattern(source));
                }
            }
            "allOf" | "anyOf" | "oneOf" => {
                let read = self.alternatives(value);
                if !read.is_empty() {
                    let rules = of(rules);
                    match key {
                        "allOf" => rules.all_of = read,
                        "anyOf" => rules.any_of = read,
                        _ => rules.one_of = read,
                    }
                }
            }
            "not" if value.is_object() => of(rules).not = Some(Box::new(self.value(value))),
            "x-kubernetes-validations" => {
                let read = validations(value);
                if !read.is_empty() {
                    of(rules).validations = read;
                }
            }
            _ => {}
        }
    }

    fn alternatives(&mut self, value: &Value) -> Vec<Schema> {
        let Value::Array(schemas) = value else { return Vec::new() };
        schemas.iter().map(|schema| self.value(schema)).collect()
    }

    fn pattern(&mut self, source: &str) -> Arc<Pattern> {
        if let Some(known) = self.patterns.get(source) {
            return known.clone();
        }
        let pattern = Arc::new(Pattern::new(source));
        self.patterns.insert(source.into(), pattern.clone());
        pattern
    }
}

/// Keywords whose meaning depends on others.
#[derive(Default)]
struct Level<'a> {
    ty: &'a str,
    int_or_string: bool,
    list_type: &'a str,
    list_keys: Option<&'a Value>,
    default: Option<&'a Value>,
    maximum: Option<f64>,
    exclusive_maximum: bool,
    minimum: Option<f64>,
    exclusive_minimum: bool,
}

impl Level<'_> {
    fn ty(&self) -> Type {
        match self.ty {
            _ if self.int_or_string => Type::IntOrString,
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => Type::Any,
        }
    }

    fn list_type(&self) -> ListType {
        match self.list_type {
            "map" => ListType::Map(self.list_keys.map(strings).unwrap_or_default()),
            "set" => ListType::Set,
            _ => ListType::Atomic,
        }
    }

    fn bounds(&self, rules: &mut Option<Box<Rules>>) {
        if let Some(maximum) = self.maximum {
            of(rules).maximum = Some((maximum, self.exclusive_maximum));
        }
        if let Some(minimum) = self.minimum {
            of(rules).minimum = Some((minimum, self.exclusive_minimum));
        }
    }
}

/// The rules, made when there is one.
fn of(rules: &mut Option<Box<Rules>>) -> &mut Rules {
    rules.get_or_insert_default()
}

/// The schema of a custom resource from the `openAPIV3Schema` of one version.
#[cfg(test)]
pub(crate) fn root(openapi: &Value) -> Schema {
    Reader::new().root(openapi)
}

fn declares_metadata(properties: &BTreeMap<Box<str>, SchemaRef>) -> bool {
    let is = |properties: &BTreeMap<Box<str>, SchemaRef>, name: &str, ty: Type| {
        properties.get(name).is_some_and(|schema| schema.ty == ty)
    };
    is(properties, "apiVersion", Type::String)
        && is(properties, "kind", Type::String)
        && is(properties, "metadata", Type::Object)
        && ["name", "generateName"].iter().all(|name| is(&properties["metadata"].properties, name, Type::String))
}

fn add_type_and_metadata(properties: &mut BTreeMap<Box<str>, SchemaRef>, demands: impl FnOnce(Schema)) {
    for name in ["apiVersion", "kind"] {
        properties.entry(name.into()).or_insert_with(|| Schema { ty: Type::String, ..Schema::default() }.into());
    }
    let object_meta = SchemaRef::Definition { id: builtin::object_meta_id(), always: false };
    if let Some(SchemaRef::Inline(schema)) = properties.insert("metadata".into(), object_meta) {
        demands(*schema);
    }
}

fn validations(value: &Value) -> Vec<Validation> {
    let Value::Array(entries) = value else { return Vec::new() };
    let string = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    entries
        .iter()
        .map(|entry| Validation {
            rule: string(entry, "rule").unwrap_or_default(),
            message: string(entry, "message"),
            message_expression: string(entry, "messageExpression"),
            reason: string(entry, "reason"),
            field_path: string(entry, "fieldPath"),
            optional_old_self: entry.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
        })
        .collect()
}

fn non_empty(text: &str) -> Option<Box<str>> {
    (!text.is_empty()).then(|| text.into())
}

fn strings(value: &Value) -> Vec<Box<str>> {
    let Value::Array(values) = value else { return Vec::new() };
    values.iter().filter_map(Value::as_str).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_root_keeps_declared_rules_of_metadata() {
        let schema = root(&json!({"type": "object", "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}},
            "spec": {"type": "object", "properties": {"tpl": {"type": "object", "x-kubernetes-embedded-resource": true}}},
        }}));
        assert!(schema.field("metadata").and_then(|m| m.field("labels")).is_some());
        let demands = schema.rules.as_ref().and_then(|r| r.metadata.as_deref()).expect("demands");
        assert!(demands.field("name").is_some());
        let tpl = schema.field("spec").and_then(|s| s.field("tpl")).expect("tpl");
        assert!(tpl.embedded && tpl.field("metadata").and_then(|m| m.field("ownerReferences")).is_some());
    }

    #[test]
    fn types_lists_and_rules_are_read() {
        let schema = Reader::new().value(&json!({"type": "object", "properties": {
            "port": {"x-kubernetes-int-or-string": true, "pattern": "^a$"},
            "list": {"type": "array", "items": {"type": "object"},
                     "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"]},
            "map": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1, "exclusiveMinimum": true}},
            "when": {"type": "string", "format": "date-time"},
            "odd": {"type": "string", "format": "fax"},
        }}));
        let field = |name: &str| schema.field(name).expect("declared");
        assert_eq!(field("port").ty, Type::IntOrString);
        assert_eq!(field("list").list_type, ListType::Map(vec!["a".into(), "b".into()]));
        assert_eq!(
            field("map").additional.as_ref().and_then(|a| a.rules.as_ref()).and_then(|r| r.minimum),
            Some((1.0, true))
        );
        assert!(field("when").rules.as_ref().is_some_and(|r| r.format.is_some()));
        assert_eq!(field("odd").format.as_deref(), Some("fax"));
        assert!(field("odd").rules.is_none());
    }

    #[test]
    fn defaults_are_pruned() {
        let schema = Reader::new().value(&json!({"type": "object", "default": {"a": 1, "b": 2},
            "properties": {"a": {"type": "integer"}}}));
        assert_eq!(schema.default, Some(json!({"a": 1})));
    }
}
