//! The one schema type that built-in kinds and custom resources share.
//!
//! A [`Schema`] says everything a machine can know about a value: its type, its fields, how its
//! lists merge, and for custom resources the value rules. Decoding, unknown-field detection, pruning,
//! defaulting, validation, strategic merge, server-side apply, OpenAPI and protobuf all walk it.
//!
//! Built-in schemas come from `facts/fields-1.36.json` and live for the whole process; a custom
//! resource's schema is a tree of its own.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;
use windlass_cel::shape::{self, Shape};
pub use windlass_cel::shape::{JsonType as Type, ListType};
pub use windlass_cel::{format, pattern};

pub mod builtin;
pub mod default;
pub mod prune;
pub mod structural;
pub mod validate;

/// What strategic merge patch does with a list or map (`x-kubernetes-patch-strategy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Items merge instead of replacing the list.
    pub merge: bool,
    /// Keys absent from the patch are dropped (`retainKeys`).
    pub retain_keys: bool,
    /// The key that identifies an item.
    pub merge_key: Option<Box<str>>,
}

/// One node of a schema. See the module's introduction.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The JSON type.
    pub ty: Type,
    /// What the value is for, as documentation shows it.
    pub description: Option<Box<str>>,
    /// `format`, e.g. `int32`, `date-time`, `byte`.
    pub format: Option<Box<str>>,
    /// Known fields of an object.
    pub properties: BTreeMap<Box<str>, SchemaRef>,
    /// The values of a map (`additionalProperties`).
    pub additional: Option<SchemaRef>,
    /// The items of a list.
    pub items: Option<SchemaRef>,
    /// Names of required fields.
    pub required: Vec<Box<str>>,
    /// The value an absent field gets. In built-in kinds this is the Go zero value or a real
    /// default; real defaulting there is the strategies' business.
    pub default: Option<Value>,
    /// Whether `null` is a value.
    pub nullable: bool,
    /// Allowed values, if they are listed.
    pub enumeration: Vec<Value>,
    /// How lists merge.
    pub list_type: ListType,
    /// Whether a map or struct has one owner for the whole of it (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Strategic merge patch; only in built-in kinds.
    pub patch: PatchStrategy,
    /// Unknown fields stay (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// The value is itself a Kubernetes object (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
    /// The definition's name for built-in types, e.g. `io.k8s.api.core.v1.PodSpec`.
    pub name: Option<&'static str>,
    /// Value rules of a custom resource's schema.
    pub rules: Option<Box<Rules>>,
}

/// The value rules a custom resource's schema may carry: OpenAPI v3 keywords and CEL.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `maximum` and whether it is exclusive.
    pub maximum: Option<(f64, bool)>,
    /// `minimum` and whether it is exclusive.
    pub minimum: Option<(f64, bool)>,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `maxLength`.
    pub max_length: Option<u64>,
    /// `minLength`.
    pub min_length: Option<u64>,
    /// `pattern`. Equal patterns of one CRD are one object.
    pub pattern: Option<Arc<pattern::Pattern>>,
    /// `format`, if it is one that values are checked against.
    pub format: Option<format::Format>,
    /// `maxItems`.
    pub max_items: Option<u64>,
    /// `minItems`.
    pub min_items: Option<u64>,
    /// `uniqueItems`.
    pub unique_items: bool,
    /// `maxProperties`.
    pub max_properties: Option<u64>,
    /// `minProperties`.
    pub min_properties: Option<u64>,
    /// `allOf`.
    pub all_of: Vec<Schema>,
    /// `anyOf`.
    pub any_of: Vec<Schema>,
    /// `oneOf`.
    pub one_of: Vec<Schema>,
    /// `not`.
    pub not: Option<Box<Schema>>,
    /// Only declared properties are allowed (`additionalProperties: false`).
    pub closed: bool,
    /// What the CRD's author demands of `metadata`. The `metadata` property itself is always
    /// `ObjectMeta`, at the root and in embedded resources.
    pub metadata: Option<Box<Schema>>,
    /// Whether the author declares `apiVersion`, `kind` and both names of `metadata`. Then CEL rules see `metadata` as
    /// declared; otherwise they see its names alone.
    pub declares_metadata: bool,
    /// `x-kubernetes-validations`, as written.
    pub validations: Vec<Validation>,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    /// The CEL expression.
    pub rule: String,
    /// The message shown when it fails.
    pub message: Option<String>,
    /// A CEL expression that makes the message.
    pub message_expression: Option<String>,
    /// The machine-readable reason.
    pub reason: Option<String>,
    /// The field the failure is reported at, relative to this node.
    pub field_path: Option<String>,
    /// Whether `oldSelf` is optional.
    pub optional_old_self: bool,
}

/// A schema below another: part of the same tree, or a named built-in definition.
#[derive(Clone, Debug)]
pub enum SchemaRef {
    /// Part of this tree.
    Inline(Box<Schema>),
    /// A tree of its own that several hold, such as a custom resource's.
    Shared(Arc<Schema>),
    /// A built-in definition.
    Definition {
        /// Which one.
        id: builtin::DefinitionId,
        /// Whether the field is always there, because in Go it is a struct and not a pointer: an
        /// absent one reads as `{}`.
        always: bool,
    },
}

impl SchemaRef {
    /// The value an absent field gets.
    pub fn default_value(&self) -> Option<&Value> {
        static EMPTY: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| Value::Object(serde_json::Map::new()));
        match self {
            Self::Inline(schema) => schema.default.as_ref(),
            Self::Shared(schema) => schema.default.as_ref(),
            Self::Definition { always, .. } => always.then(|| &*EMPTY),
        }
    }
}

impl Deref for SchemaRef {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            Self::Inline(schema) => schema,
            Self::Shared(schema) => schema,
            Self::Definition { id, .. } => builtin::definition(*id),
        }
    }
}

impl From<Schema> for SchemaRef {
    fn from(schema: Schema) -> Self {
        Self::Inline(Box::new(schema))
    }
}

impl From<Arc<Schema>> for SchemaRef {
    fn from(schema: Arc<Schema>) -> Self {
        Self::Shared(schema)
    }
}

impl Schema {
    /// The schema of the field `name`: a known property, or the map's value schema.
    pub(crate) fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).map(Deref::deref).or(self.additional.as_deref())
    }

    /// Whether this is a map with arbitrary keys rather than a struct.
    pub(crate) fn is_map(&self) -> bool {
        self.additional.is_some()
    }
}

impl Schema {
    /// Whether a map's schema declares its values; `additionalProperties: true` or `false` declares nothing.
    pub(crate) fn declares_values(&self) -> bool {
        self.ty != Type::Any || self.preserve_unknown
    }

    /// What the author declares of a resource's metadata, if that is enough for rules to see it all.
    pub(crate) fn declared_metadata(&self) -> Option<&Schema> {
        self.rules.as_deref().filter(|rules| rules.declares_metadata)?.metadata.as_deref()
    }
}

/// How CEL expressions see values of a schema.
impl shape::Schema for Schema {
    fn json_type(&self) -> Type {
        self.ty
    }

    fn format(&self) -> Option<&str> {
        self.format.as_deref()
    }

    fn is_nullable(&self) -> bool {
        self.nullable
    }

    fn preserves_unknown(&self) -> bool {
        self.preserve_unknown
    }

    fn has_fields(&self) -> bool {
        !self.properties.is_empty()
    }

    fn field(&self, name: &str) -> Option<Shape<'_>> {
        if self.properties.is_empty() {
            let values = self.additional.as_deref().filter(|values| values.declares_values())?;
            return Some(Shape::Schema(values));
        }
        match self.properties.get(name)? {
            SchemaRef::Definition { .. } => {
                Some(self.declared_metadata().map_or(Shape::Metadata, |schema| Shape::Schema(schema)))
            }
            below => Some(Shape::Schema(&**below)),
        }
    }

    fn items(&self) -> Option<&dyn shape::Schema> {
        self.items.as_deref().map(|items| items as &dyn shape::Schema)
    }

    fn list_type(&self) -> &ListType {
        &self.list_type
    }
}
