//! [`Schema`]s as OpenAPI schemas.
//!
//! The two versions differ in what they can say. For v2 the schemas of custom resources are cut down to what
//! kubectl's parser takes, as upstream's `ToStructuralOpenAPIV2` does: no combinations of schemas, no type where
//! null is a value, and nothing below fields that may be unknown.

use serde_json::{Map, Number, Value, json};

use super::Dialect;
use super::definitions::{LIST_META, OBJECT_META, gvk_value, kind_name};
use crate::resource::Resource;
use crate::schema::{ListType, Rules, Schema, SchemaRef, Type, Validation, builtin};

pub(super) const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers \
    should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
pub(super) const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer \
    this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
pub(super) const LIST_METADATA: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// Writes schemas of one origin in one dialect.
#[derive(Clone, Copy)]
pub(super) struct Renderer {
    dialect: Dialect,
    custom: bool,
}

impl Renderer {
    /// For built-in definitions.
    pub(super) fn builtin(dialect: Dialect) -> Self {
        Self { dialect, custom: false }
    }

    fn custom(dialect: Dialect) -> Self {
        Self { dialect, custom: true }
    }

    fn is_v3(self) -> bool {
        self.dialect == Dialect::V3
    }

    /// A whole definition.
    pub(super) fn schema(self, schema: &Schema) -> Map<String, Value> {
        let mut out = Map::new();
        self.type_of(schema, &mut out);
        if let Some(description) = &schema.description {
            out.insert("description".into(), (&**description).into());
        }
        if let Some(default) = schema.default.as_ref().filter(|_| self.is_v3()) {
            out.insert("default".into(), default.clone());
        }
        if schema.nullable && self.is_v3() {
            out.insert("nullable".into(), true.into());
        }
        if !schema.enumeration.is_empty() && (self.custom || self.is_v3()) {
            out.insert("enum".into(), schema.enumeration.clone().into());
        }
        if self.shows_inside(schema) {
            self.inside(schema, &mut out);
        }
        if let Some(rules) = schema.rules.as_deref() {
            self.rules(rules, &mut out);
        }
        extensions(schema, &mut out);
        if self.custom {
            custom_extensions(schema, &mut out);
        }
        out
    }

    fn type_of(self, schema: &Schema, out: &mut Map<String, Value>) {
        let untyped = self.custom && !self.is_v3() && {
            let open = schema.preserve_unknown && schema.ty == Type::Object;
            let headless = schema.ty == Type::Array && (schema.preserve_unknown || schema.items.is_none());
            schema.nullable || open || headless
        };
        match schema.ty {
            Type::IntOrString if self.custom && self.is_v3() => {
                out.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
            }
            Type::IntOrString if self.is_v3() => {
                out.insert("oneOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
            }
            Type::Quantity if self.is_v3() => {
                out.insert("oneOf".into(), json!([{"type": "string"}, {"type": "number"}]));
            }
            _ => {}
        }
        let ty = match schema.ty {
            Type::Object => Some("object"),
            Type::Array => Some("array"),
            Type::String => Some("string"),
            Type::Integer => Some("integer"),
            Type::Number => Some("number"),
            Type::Boolean => Some("boolean"),
            // v2 cannot say "one of two types".
            Type::IntOrString | Type::Quantity if !self.custom && !self.is_v3() => Some("string"),
            Type::IntOrString | Type::Quantity | Type::Any => None,
        };
        if let Some(ty) = ty.filter(|_| !untyped) {
            out.insert("type".into(), ty.into());
        }
        if let Some(format) = &schema.format {
            out.insert("format".into(), (&**format).into());
        }
    }

    /// Whether kubectl copes with what is below.
    fn shows_inside(self, schema: &Schema) -> bool {
        !self.custom || self.is_v3() || !(schema.nullable || schema.preserve_unknown)
    }

    fn inside(self, schema: &Schema, out: &mut Map<String, Value>) {
        if !schema.properties.is_empty() {
            let properties = schema.properties.iter().map(|(name, below)| (name.to_string(), self.below(below)));
            out.insert("properties".into(), properties.collect::<Map<_, _>>().into());
        }
        if let Some(additional) = &schema.additional {
            out.insert("additionalProperties".into(), self.below(additional));
        }
        if let Some(items) = &schema.items {
            out.insert("items".into(), self.below(items));
        }
        let required: Vec<&str> = schema
            .required
            .iter()
            .map(|name| &**name)
            .filter(|name| self.is_v3() || !schema.properties.get(*name).is_some_and(|below| below.nullable))
            .collect();
        if !required.is_empty() {
            out.insert("required".into(), required.into());
        }
        if schema.embedded && self.custom {
            self.embed(out);
        }
    }

    fn below(self, reference: &SchemaRef) -> Value {
        let schema: &Schema = reference;
        let Some(name) = schema.name else { return self.schema(schema).into() };
        let mut extra = Map::new();
        if !matches!(reference, SchemaRef::Definition { .. }) {
            copied(schema, name, &mut extra);
        }
        self.reference(name, reference.default_value(), extra)
    }

    fn reference(self, name: &str, default: Option<&Value>, mut extra: Map<String, Value>) -> Value {
        let target = self.dialect.reference(name);
        if let Some(default) = default.filter(|_| self.is_v3()) {
            extra.insert("default".into(), default.clone());
        }
        // Before OpenAPI 3.1 a reference has no siblings.
        if self.is_v3() && !extra.is_empty() {
            extra.insert("allOf".into(), json!([{"$ref": target}]));
        } else {
            extra.insert("$ref".into(), target.into());
        }
        extra.into()
    }

    fn described_reference(self, name: &str, description: &str) -> Value {
        let extra = Map::from_iter([("description".to_owned(), description.into())]);
        self.reference(name, None, extra)
    }

    /// The fields every embedded object has.
    fn embed(self, out: &mut Map<String, Value>) {
        let properties = out.entry("properties").or_insert_with(|| json!({}));
        properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
        properties["kind"] = json!({"type": "string", "description": KIND});
        properties["metadata"] = self.described_reference(OBJECT_META, METADATA);
        if let Value::Array(required) = out.entry("required").or_insert_with(|| json!([])) {
            for name in ["kind", "apiVersion"] {
                if !required.iter().any(|r| r == name) {
                    required.push(name.into());
                }
            }
        }
    }

    fn rules(self, rules: &Rules, out: &mut Map<String, Value>) {
        for (limit, exclusive, bound) in
            [("maximum", "exclusiveMaximum", rules.maximum), ("minimum", "exclusiveMinimum", rules.minimum)]
        {
            if let Some((value, is_exclusive)) = bound {
                out.insert(limit.into(), number(value));
                if is_exclusive {
                    out.insert(exclusive.into(), true.into());
                }
            }
        }
        if let Some(multiple) = rules.multiple_of {
            out.insert("multipleOf".into(), number(multiple));
        }
        for (key, limit) in [
            ("maxLength", rules.max_length),
            ("minLength", rules.min_length),
            ("maxItems", rules.max_items),
            ("minItems", rules.min_items),
            ("maxProperties", rules.max_properties),
            ("minProperties", rules.min_properties),
        ] {
            if let Some(limit) = limit {
                out.insert(key.into(), limit.into());
            }
        }
        if let Some(pattern) = &rules.pattern {
            out.insert("pattern".into(), pattern.source().into());
        }
        if rules.unique_items {
            out.insert("uniqueItems".into(), true.into());
        }
        if self.is_v3() {
            for (key, schemas) in [("allOf", &rules.all_of), ("anyOf", &rules.any_of), ("oneOf", &rules.one_of)] {
                if !schemas.is_empty() {
                    let schemas: Vec<Value> = schemas.iter().map(|schema| self.schema(schema).into()).collect();
                    out.insert(key.into(), schemas.into());
                }
            }
            if let Some(not) = &rules.not {
                out.insert("not".into(), self.schema(not).into());
            }
        }
        if !rules.validations.is_empty() {
            out.insert("x-kubernetes-validations".into(), rules.validations.iter().map(validation).collect());
        }
    }
}

/// The definition of a custom resource's kind.
pub(super) fn custom_kind(resource: &Resource, dialect: Dialect) -> Value {
    let renderer = Renderer::custom(dialect);
    let schema = resource.schema_once();
    let gvk = json!([gvk_value((&resource.group, &resource.version, &resource.kind))]);
    // With known fields listed, kubectl would refuse all others.
    if dialect == Dialect::V2 && schema.preserve_unknown {
        return json!({"type": "object", "x-kubernetes-group-version-kind": gvk});
    }
    let mut out = renderer.schema(&schema);
    out.insert("type".into(), "object".into());
    let properties = out.entry("properties").or_insert_with(|| json!({}));
    properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    properties["kind"] = json!({"type": "string", "description": KIND});
    properties["metadata"] = renderer.described_reference(OBJECT_META, METADATA);
    out.insert("x-kubernetes-group-version-kind".into(), gvk);
    out.into()
}

/// The definition of a list of a custom resource.
pub(super) fn custom_list(resource: &Resource, dialect: Dialect) -> Value {
    let renderer = Renderer::custom(dialect);
    let items = format!(
        "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
        resource.plural
    );
    json!({
        "type": "object",
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "metadata": renderer.described_reference(LIST_META, LIST_METADATA),
            "items": {
                "type": "array",
                "description": items,
                "items": {"$ref": dialect.reference(&kind_name(resource))},
            },
        },
        "x-kubernetes-group-version-kind": [gvk_value((&resource.group, &resource.version, &resource.list_kind))],
    })
}

/// What a copy of the definition `name` says at its place of use, beyond the definition.
fn copied(copy: &Schema, name: &str, out: &mut Map<String, Value>) {
    let Some(original) = builtin::by_name(name).map(builtin::definition) else { return };
    let said = Schema { atomic: copy.atomic && !original.atomic, patch: copy.patch.clone(), ..Schema::default() };
    extensions(&said, out);
    // The one strategy that is no departure from a schema's defaults: "replace".
    if out.is_empty() && copy.atomic == original.atomic {
        out.insert("x-kubernetes-patch-strategy".into(), "replace".into());
    }
}

/// How lists and maps merge.
fn extensions(schema: &Schema, out: &mut Map<String, Value>) {
    match &schema.list_type {
        ListType::Atomic => {}
        ListType::Set => {
            out.insert("x-kubernetes-list-type".into(), "set".into());
        }
        ListType::Map(keys) => {
            out.insert("x-kubernetes-list-type".into(), "map".into());
            out.insert("x-kubernetes-list-map-keys".into(), json!(keys));
        }
    }
    if schema.atomic {
        out.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    let strategy = match (schema.patch.merge, schema.patch.retain_keys) {
        (true, true) => Some("merge,retainKeys"),
        (true, false) => Some("merge"),
        (false, true) => Some("retainKeys"),
        (false, false) => None,
    };
    if let Some(strategy) = strategy {
        out.insert("x-kubernetes-patch-strategy".into(), strategy.into());
    }
    if let Some(key) = &schema.patch.merge_key {
        out.insert("x-kubernetes-patch-merge-key".into(), (&**key).into());
    }
}

fn custom_extensions(schema: &Schema, out: &mut Map<String, Value>) {
    for (key, set) in [
        ("x-kubernetes-preserve-unknown-fields", schema.preserve_unknown),
        ("x-kubernetes-embedded-resource", schema.embedded),
        ("x-kubernetes-int-or-string", schema.ty == Type::IntOrString),
    ] {
        if set {
            out.insert(key.into(), true.into());
        }
    }
}

fn validation(validation: &Validation) -> Value {
    let mut out = json!({"rule": validation.rule});
    for (key, text) in [
        ("message", &validation.message),
        ("messageExpression", &validation.message_expression),
        ("reason", &validation.reason),
        ("fieldPath", &validation.field_path),
    ] {
        if let Some(text) = text {
            out[key] = text.as_str().into();
        }
    }
    if validation.optional_old_self {
        out["optionalOldSelf"] = true.into();
    }
    out
}

/// A bound as it was written: whole numbers without a fraction.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return (value as i64).into();
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
