//! Rust types as values, before they have names.
//!
//! A type is built after the types that it consists of, so equal types are found by comparing one level: they become
//! one, wherever in a schema they are.

use serde_json::{Map, Value};

/// Keywords of a schema that a Rust type does not imply. A null takes one away that it does.
pub(super) type Keywords = Map<String, Value>;

/// Position in [`Model::items`].
pub(super) type ItemId = usize;

/// How Rust spells the type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Type {
    Boolean,
    Int32,
    Int64,
    Float,
    Double,
    String,
    Value,
    IntOrString,
    Quantity,
    Condition,
    Option(Box<Type>),
    Vec(Box<Type>),
    Map(Box<Type>),
    Item(ItemId),
}

impl Type {
    /// The item that this is made of.
    pub(super) fn item(&self) -> Option<ItemId> {
        match self {
            Self::Item(id) => Some(*id),
            Self::Option(inner) | Self::Vec(inner) | Self::Map(inner) => inner.item(),
            _ => None,
        }
    }

    /// Whether there are several of the item.
    pub(super) fn is_many(&self) -> bool {
        match self {
            Self::Vec(_) | Self::Map(_) => true,
            Self::Option(inner) => inner.is_many(),
            _ => false,
        }
    }
}

/// What a schema becomes where it is used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Usage {
    pub(super) kind: Type,
    pub(super) keywords: Keywords,
    /// Keywords of schemas inside, by JSON pointer.
    pub(super) inner: Vec<(String, Keywords)>,
}

/// A property of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Field {
    /// The name in JSON.
    pub(super) name: String,
    pub(super) required: bool,
    pub(super) description: String,
    pub(super) usage: Usage,
}

/// What has a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Item {
    Struct {
        fields: Vec<Field>,
        /// Whether fields that the schema does not name are kept.
        open: bool,
        keywords: Keywords,
    },
    /// One of several strings.
    Strings { values: Vec<String>, keywords: Keywords },
    /// An object with exactly one of several properties.
    OneOf { variants: Vec<Field>, keywords: Keywords },
    /// A type of its own around another one.
    Wrapper { usage: Usage, keywords: Keywords },
}

impl Item {
    pub(super) fn fields(&self) -> &[Field] {
        match self {
            Self::Struct { fields, .. } => fields,
            Self::OneOf { variants, .. } => variants,
            Self::Strings { .. } | Self::Wrapper { .. } => &[],
        }
    }

    pub(super) fn keywords(&self) -> &Keywords {
        match self {
            Self::Struct { keywords, .. }
            | Self::Strings { keywords, .. }
            | Self::OneOf { keywords, .. }
            | Self::Wrapper { keywords, .. } => keywords,
        }
    }
}

/// The types of one version.
#[derive(Debug)]
pub(super) struct Model {
    /// Each item with its description, and with its name after all are known.
    pub(super) items: Vec<Named>,
    pub(super) root: Root,
}

#[derive(Debug)]
pub(super) struct Named {
    pub(super) item: Item,
    pub(super) description: String,
    pub(super) name: String,
}

/// How the object itself is put together.
#[derive(Debug)]
pub(super) struct Root {
    /// The Rust name of the kind.
    pub(super) name: String,
    pub(super) description: String,
    /// The item that derives the kind: the spec, or all fields.
    pub(super) spec: ItemId,
    /// Whether the fields of `spec` are at the top of the object.
    pub(super) flat: bool,
    pub(super) status: Status,
    /// What the schema of the object says beside its properties.
    pub(super) keywords: Keywords,
    /// Schemas of `metadata`, `kind` and `apiVersion`, where they say something.
    pub(super) implied: Keywords,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// There is no status, or it is a field like others.
    None,
    /// The status is a subresource of this type.
    Item(ItemId),
    /// The status is a subresource that the schema does not describe.
    Unknown,
}
