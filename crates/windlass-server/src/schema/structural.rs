//! From a CRD's `openAPIV3Schema` to a [`Schema`].
//!
//! The reader never fails: what a CRD may contain is decided when the CRD is written
//! (`crate::crd::validation`), and anything unexpected here is left out. At the root, and in embedded
//! resources, `apiVersion`, `kind` and `metadata` are always there; what the author demands of
//! `metadata` goes into [`Rules::metadata`](super::Rules::metadata). Defaults come out pruned.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::pattern::Pattern;
use super::{ListType, Rules, Schema, SchemaRef, Type, Validation, builtin, format, prune};

/// Reads the schemas of one CRD. Equal patterns are kept once for all of its versions.
#[derive(Debug, Default)]
pub struct Reader {
    patterns: HashMap<Box<str>, Arc<Pattern>>,
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
    pub fn value(&mut self, openapi: &Value) -> Schema {
        match openapi {
            Value::Object(map) => self.node(map, false),
            _ => Schema::default(),
        }
    }

    /// The schema of a value inside an object, from its fields.
    pub fn node_of(&mut self, map: &Map<String, Value>) -> Schema {
        self.node(map, false)
    }

    fn node(&mut self, map: &Map<String, Value>, root: bool) -> Schema {
        let embedded = flag(map, "x-kubernetes-embedded-resource");
        let ty = kind(map);
        let mut schema = Schema {
            ty,
            description: text(map, "description"),
            format: text(map, "format"),
            properties: self.properties(map),
            additional: self.additional(map),
            items: map.get("items").filter(|items| items.is_object()).map(|items| self.value(items).into()),
            required: strings(map, "required"),
            nullable: flag(map, "nullable"),
            enumeration: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            list_type: list_type(map),
            atomic: map.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            preserve_unknown: flag(map, "x-kubernetes-preserve-unknown-fields"),
            embedded,
            ..Schema::default()
        };
        let mut rules = self.rules(map, ty);
        if root || embedded {
            let rules = &mut rules;
            let declared = declares_metadata(&schema.properties);
            add_type_and_metadata(&mut schema.properties, |demands| {
                let rules = rules.get_or_insert_default();
                rules.metadata = Some(Box::new(demands));
                rules.declares_metadata = declared;
            });
        }
        schema.rules = rules;
        schema.default = map.get("default").filter(|value| !value.is_null()).map(|value| {
            let mut value = value.clone();
            prune::prune(&mut value, &schema);
            value
        });
        schema
    }

    fn properties(&mut self, map: &Map<String, Value>) -> BTreeMap<Box<str>, SchemaRef> {
        let Some(Value::Object(properties)) = map.get("properties") else { return BTreeMap::new() };
        properties.iter().map(|(name, below)| (name.as_str().into(), self.value(below).into())).collect()
    }

    /// `additionalProperties: true` admits anything, but what is in it is not declared: it is pruned.
    /// With `false` unknown fields also stay, to be refused by validation.
    fn additional(&mut self, map: &Map<String, Value>) -> Option<SchemaRef> {
        match map.get("additionalProperties")? {
            Value::Bool(_) => Some(Schema { nullable: true, ..Schema::default() }.into()),
            below @ Value::Object(_) => Some(self.value(below).into()),
            _ => None,
        }
    }

    fn rules(&mut self, map: &Map<String, Value>, ty: Type) -> Option<Box<Rules>> {
        let rules = Rules {
            maximum: bound(map, "maximum", "exclusiveMaximum"),
            minimum: bound(map, "minimum", "exclusiveMinimum"),
            multiple_of: map.get("multipleOf").and_then(Value::as_f64),
            max_length: count(map, "maxLength"),
            min_length: count(map, "minLength"),
            pattern: self.pattern(map),
            format: map.get("format").and_then(Value::as_str).and_then(|name| format::supported(ty, name)),
            max_items: count(map, "maxItems"),
            min_items: count(map, "minItems"),
            unique_items: flag(map, "uniqueItems"),
            max_properties: count(map, "maxProperties"),
            min_properties: count(map, "minProperties"),
            all_of: self.alternatives(map, "allOf"),
            any_of: self.alternatives(map, "anyOf"),
            one_of: self.alternatives(map, "oneOf"),
            not: map.get("not").filter(|not| not.is_object()).map(|not| Box::new(self.value(not))),
            closed: map.get("additionalProperties") == Some(&Value::Bool(false)),
            metadata: None,
            declares_metadata: false,
            validations: validations(map),
        };
        (!rules.is_empty()).then(|| Box::new(rules))
    }

    fn alternatives(&mut self, map: &Map<String, Value>, key: &str) -> Vec<Schema> {
        let Some(Value::Array(schemas)) = map.get(key) else { return Vec::new() };
        schemas.iter().map(|schema| self.value(schema)).collect()
    }

    fn pattern(&mut self, map: &Map<String, Value>) -> Option<Arc<Pattern>> {
        let source = map.get("pattern")?.as_str().filter(|source| !source.is_empty())?;
        if let Some(known) = self.patterns.get(source) {
            return Some(known.clone());
        }
        let pattern = Arc::new(Pattern::new(source));
        self.patterns.insert(source.into(), pattern.clone());
        Some(pattern)
    }
}

/// The schema of a custom resource from the `openAPIV3Schema` of one version.
pub fn root(openapi: &Value) -> Schema {
    Reader::new().root(openapi)
}

impl Rules {
    fn is_empty(&self) -> bool {
        self.maximum.is_none()
            && self.minimum.is_none()
            && self.multiple_of.is_none()
            && self.max_length.is_none()
            && self.min_length.is_none()
            && self.pattern.is_none()
            && self.format.is_none()
            && self.max_items.is_none()
            && self.min_items.is_none()
            && !self.unique_items
            && self.max_properties.is_none()
            && self.min_properties.is_none()
            && self.all_of.is_empty()
            && self.any_of.is_empty()
            && self.one_of.is_empty()
            && self.not.is_none()
            && !self.closed
            && self.metadata.is_none()
            && self.validations.is_empty()
    }
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

fn kind(map: &Map<String, Value>) -> Type {
    if flag(map, "x-kubernetes-int-or-string") {
        return Type::IntOrString;
    }
    match map.get("type").and_then(Value::as_str) {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        _ => Type::Any,
    }
}

fn list_type(map: &Map<String, Value>) -> ListType {
    match map.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("map") => ListType::Map(strings(map, "x-kubernetes-list-map-keys")),
        Some("set") => ListType::Set,
        _ => ListType::Atomic,
    }
}

fn validations(map: &Map<String, Value>) -> Vec<Validation> {
    let Some(Value::Array(entries)) = map.get("x-kubernetes-validations") else { return Vec::new() };
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

fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn text(map: &Map<String, Value>, key: &str) -> Option<Box<str>> {
    map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(Into::into)
}

fn strings(map: &Map<String, Value>, key: &str) -> Vec<Box<str>> {
    let Some(Value::Array(values)) = map.get(key) else { return Vec::new() };
    values.iter().filter_map(Value::as_str).map(Into::into).collect()
}

fn count(map: &Map<String, Value>, key: &str) -> Option<u64> {
    map.get(key).and_then(Value::as_u64)
}

fn bound(map: &Map<String, Value>, key: &str, exclusive: &str) -> Option<(f64, bool)> {
    Some((map.get(key)?.as_f64()?, flag(map, exclusive)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_root_knows_metadata_and_keeps_what_the_author_demands_of_it() {
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
