//! What is declared about JSON: the interface between expressions and the schemas of the program that evaluates them.
//!
//! An expression sees JSON through a [`Shape`]. With [`Shape::Dynamic`] a value is what it looks like. With
//! [`Shape::Schema`] a [`Schema`] decides: a string of format `date-time` is a timestamp, a list of type `set` compares
//! without order, and fields that are not declared cannot be seen. Implement [`Schema`] for the type that holds your
//! OpenAPI schemas; the methods only look things up.

use std::fmt::Debug;

/// What type a schema gives to a JSON value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonType {
    /// Anything goes: no `type` in the schema.
    #[default]
    Any,
    /// An object with `properties` or `additional` values.
    Object,
    /// A list of `items`.
    Array,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// true or false.
    Boolean,
    /// A string or a whole number (`x-kubernetes-int-or-string`).
    IntOrString,
    /// A string or a number that reads as a quantity; only in built-in kinds.
    Quantity,
}

/// How the items of a list are told apart (`x-kubernetes-list-type`), when lists are compared, added or merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// Scalars, each of which occurs once.
    Set,
    /// Objects, each identified by these keys.
    Map(Vec<Box<str>>),
}

/// The schema of a JSON value, as far as expressions need it.
pub trait Schema: Debug {
    /// The type of the value.
    fn json_type(&self) -> JsonType;

    /// The `format` of a string. `byte`, `date`, `date-time` and `duration` give it another type.
    fn format(&self) -> Option<&str>;

    /// Whether `null` is a value.
    fn is_nullable(&self) -> bool;

    /// Whether the value may be anything (`x-kubernetes-preserve-unknown-fields`).
    fn preserves_unknown(&self) -> bool;

    /// Whether the fields of an object are declared by name. If not, it is a map.
    fn has_fields(&self) -> bool;

    /// The shape of a declared field, or of the values of a map. `None` if expressions cannot see it.
    fn field(&self, name: &str) -> Option<Shape<'_>>;

    /// The schema of a list's items.
    fn items(&self) -> Option<&dyn Schema>;

    /// How a list's items are told apart.
    fn list_type(&self) -> &ListType;
}

/// What is declared about JSON.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'a> {
    /// Nothing: it is what it looks like.
    Dynamic,
    /// A schema.
    Schema(&'a dyn Schema),
    /// An object's metadata, of which only the names are declared.
    Metadata,
    /// A string.
    Text,
}

impl<'a> Shape<'a> {
    /// The shape of a field, if it is declared.
    pub(crate) fn field(self, name: &str) -> Option<Self> {
        match self {
            Self::Dynamic => Some(Self::Dynamic),
            Self::Metadata => matches!(name, "name" | "generateName").then_some(Self::Text),
            Self::Text => None,
            Self::Schema(schema) => schema.field(name),
        }
    }

    /// The shape of a list's items.
    pub(crate) fn items(self) -> Option<Self> {
        match self {
            Self::Dynamic => Some(Self::Dynamic),
            Self::Schema(schema) => schema.items().map(Self::Schema),
            Self::Metadata | Self::Text => None,
        }
    }

    /// Whether fields are declared by name, so that names are escaped and null means absent.
    pub(crate) fn is_object(self) -> bool {
        match self {
            Self::Metadata => true,
            Self::Schema(schema) => schema.has_fields(),
            Self::Dynamic | Self::Text => false,
        }
    }

    pub(crate) fn list_type(self) -> &'a ListType {
        match self {
            Self::Schema(schema) => schema.list_type(),
            _ => &ListType::Atomic,
        }
    }
}
