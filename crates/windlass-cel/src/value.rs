//! The values of expressions.
//!
//! Data stays where it is: a list or map from an object is a reference into its JSON together with
//! the [`Shape`] its schema gives it, and becomes values only where an expression looks.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use serde_json::{Map as JsonMap, Value as Json};

use super::ast::Const;
use super::escape::{escape, unescape};
use super::opaque::{Cidr, NamedFormat, Quantity, Semver, Url, ip};
use super::time::{self, Timestamp};
use crate::go::{self, duration, quote};
pub use crate::shape::Shape;
use crate::shape::{JsonType, ListType};

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The expression failed: what cel-go would say.
    Failed(Rc<str>),
    /// The expression used up what it may cost; nothing can catch this.
    Exhausted,
}

impl Error {
    /// The expression failed, with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self::Failed(message.into().into())
    }

    pub(super) fn no_overload() -> Self {
        Self::new("no such overload")
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(message) => f.write_str(message),
            Self::Exhausted => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

/// A value, or why there is none.
pub type Outcome<'a> = Result<Value<'a>, Error>;

/// A value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed whole number.
    Int(i64),
    /// An unsigned whole number.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A string.
    String(Text<'a>),
    /// Bytes.
    Bytes(Rc<[u8]>),
    /// A moment.
    Timestamp(Timestamp),
    /// Nanoseconds.
    Duration(i64),
    /// The name of a type.
    Type(Rc<str>),
    /// A list.
    List(List<'a>),
    /// A map, or an object that a schema declares.
    Map(Map<'a>),
    /// A value that may be absent.
    Optional(Option<Rc<Value<'a>>>),
    /// A URL.
    Url(Rc<Url>),
    /// A resource quantity.
    Quantity(Rc<Quantity>),
    /// An IP address.
    Ip(std::net::IpAddr),
    /// A range of IP addresses.
    Cidr(Cidr),
    /// A named format, such as `format.dns1123Label()`.
    Format(&'static NamedFormat),
    /// A semantic version.
    Semver(Rc<Semver>),
    /// Data nothing is declared about; it can only be compared.
    Preserved(&'a Json),
    /// An object that a literal made, such as `Object{...}`.
    Object(Rc<Made<'a>>),
    /// Something from outside, such as the authorizer of admission policies.
    Foreign(Rc<dyn Foreign>),
}

/// A value whose behaviour is not this module's: it has a type and methods.
pub trait Foreign: std::fmt::Debug {
    /// The name of its type.
    fn type_name(&self) -> &'static str;
    /// Calls a method. `None` if there is none of that name for these arguments.
    fn call<'a>(&self, function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>>;
}

/// An object that a literal made.
#[derive(Debug)]
pub struct Made<'a> {
    /// The name of its type.
    pub name: Box<str>,
    /// The fields that the literal set.
    pub fields: BTreeMap<Box<str>, Value<'a>>,
}

/// A string.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Part of an expression or of the data it is about.
    Borrowed(&'a str),
    /// One that the expression made.
    Shared(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// One in an object; the shape is the list's own.
    Json(&'a [Json], Shape<'a>),
    /// One that the expression made.
    Made(Rc<Vec<Value<'a>>>),
    /// One that came of merging sets or map lists, and is one itself.
    Merged(Rc<Vec<Value<'a>>>, &'a ListType),
}

/// A map or an object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// One in an object; the shape is the map's own.
    Json(&'a JsonMap<String, Json>, Shape<'a>),
    /// One that the expression made.
    Made(Rc<BTreeMap<Key<'a>, Value<'a>>>),
}

/// A key of a map that an expression made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key<'a> {
    /// A boolean.
    Bool(bool),
    /// A signed whole number.
    Int(i64),
    /// An unsigned whole number.
    Uint(u64),
    /// A string.
    String(Text<'a>),
}

/// JSON as a value of its shape.
pub fn adapt<'a>(json: &'a Json, shape: Shape<'a>) -> Outcome<'a> {
    let schema = match shape {
        Shape::Dynamic => return Ok(dynamic(json)),
        Shape::Metadata => return object(json, shape),
        Shape::Text => return text(json, None),
        Shape::Schema(schema) => schema,
    };
    if json.is_null() {
        if schema.is_nullable() {
            return Ok(Value::Null);
        }
        return Err(Error::new("invalid data, got null for schema with nullable=false"));
    }
    match schema.json_type() {
        JsonType::IntOrString => match json {
            Json::String(text) => Ok(Value::String(Text::Borrowed(text))),
            Json::Number(number) if number.is_i64() => Ok(Value::Int(number.as_i64().unwrap_or_default())),
            _ => Err(Error::new("invalid data, expected XIntOrString value to be either a string or integer")),
        },
        JsonType::Object => object(json, shape),
        JsonType::Array => match json {
            Json::Array(items) if schema.items().is_some() => Ok(Value::List(List::Json(items, shape))),
            Json::Array(_) => Err(Error::new("invalid array type, expected Items with a non-empty Schema")),
            _ => Err(Error::new("invalid data, expected an array for the provided schema with type=array")),
        },
        JsonType::String | JsonType::Quantity => text(json, schema.format()),
        JsonType::Number => match json {
            Json::Number(number) => Ok(Value::Double(number.as_f64().unwrap_or(f64::NAN))),
            other => Err(unexpected("float", other)),
        },
        JsonType::Integer => match json.as_i64() {
            Some(int) => Ok(Value::Int(int)),
            None => Err(unexpected("int", json)),
        },
        JsonType::Boolean => match json {
            Json::Bool(bool) => Ok(Value::Bool(*bool)),
            other => Err(unexpected("bool", other)),
        },
        JsonType::Any if schema.preserves_unknown() => Ok(Value::Preserved(json)),
        JsonType::Any => Err(Error::new(
            "invalid type, expected object, array, number, integer, boolean or string, or no type with \
             x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got ",
        )),
    }
}

fn unexpected(expected: &str, json: &Json) -> Error {
    Error::new(format!("invalid data, expected {expected}, got {}", go::type_of(json)))
}

fn object<'a>(json: &'a Json, shape: Shape<'a>) -> Outcome<'a> {
    match json {
        Json::Object(map) => Ok(Value::Map(Map::Json(map, shape))),
        _ => Err(Error::new("invalid data, expected a map for the provided schema with type=object")),
    }
}

fn text<'a>(json: &'a Json, format: Option<&str>) -> Outcome<'a> {
    let Json::String(text) = json else { return Err(unexpected("string", json)) };
    match format {
        Some("duration") => duration::parse_lenient(text)
            .map(Value::Duration)
            .ok_or_else(|| Error::new(format!("Invalid duration {text}: unable to parse {text} as duration"))),
        Some("date") => time::parse_date(text)
            .map(Value::Timestamp)
            .ok_or_else(|| Error::new(format!("Invalid date formatted string {text}: parsing time {}", quote(text)))),
        Some("date-time") => time::parse_date_time(text).map(Value::Timestamp).ok_or_else(|| {
            Error::new(format!("Invalid date-time formatted string {text}: parsing time {}", quote(text)))
        }),
        Some("byte") => crate::go::base64::decode(text)
            .map(|bytes| Value::Bytes(bytes.into()))
            .map_err(|error| Error::new(format!("Invalid byte formatted string {text}: {error}"))),
        _ => Ok(Value::String(Text::Borrowed(text))),
    }
}

/// JSON as what it looks like.
fn dynamic(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(bool) => Value::Bool(*bool),
        Json::Number(number) => match number.as_i64() {
            Some(int) => Value::Int(int),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(Text::Borrowed(text)),
        Json::Array(items) => Value::List(List::Json(items, Shape::Dynamic)),
        Json::Object(map) => Value::Map(Map::Json(map, Shape::Dynamic)),
    }
}

impl<'a> Value<'a> {
    pub(super) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    pub(super) fn list(items: Vec<Value<'a>>) -> Self {
        Self::List(List::Made(Rc::new(items)))
    }

    /// A value that is there, as an optional one.
    pub fn some(value: Value<'a>) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    pub(super) fn constant(value: &'a Const) -> Self {
        match value {
            Const::Null => Self::Null,
            Const::Bool(bool) => Self::Bool(*bool),
            Const::Int(int) => Self::Int(*int),
            Const::Uint(uint) => Self::Uint(*uint),
            Const::Double(double) => Self::Double(*double),
            Const::String(text) => Self::String(Text::Borrowed(text)),
            Const::Bytes(bytes) => Self::Bytes((**bytes).into()),
        }
    }

    /// The name of the value's type.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Url(_) => "kubernetes.URL",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Preserved(_) => "unknown",
            Self::Object(object) => &object.name,
            Self::Foreign(foreign) => foreign.type_name(),
        }
    }

    /// What `size()` says, or 1 for what has no size: what costs are counted by.
    pub(super) fn cost_size(&self) -> u64 {
        match self {
            Self::String(text) => text.chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Ip(ip) => ip::width(ip),
            Self::Cidr(cidr) => u64::from(cidr.bits).div_ceil(8),
            Self::Optional(Some(value)) => value.cost_size(),
            _ => 1,
        }
    }
}

impl<'a> List<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(items, _) => items.len(),
            Self::Made(items) | Self::Merged(items, _) => items.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at an index that exists.
    pub fn get(&self, index: usize) -> Outcome<'a> {
        match self {
            Self::Json(items, shape) => match shape.items() {
                Some(shape) => adapt(&items[index], shape),
                None => Err(Error::new("invalid array type, expected Items with a non-empty Schema")),
            },
            Self::Made(items) | Self::Merged(items, _) => Ok(items[index].clone()),
        }
    }

    /// All items in order.
    pub fn iter(&self) -> impl Iterator<Item = Outcome<'a>> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    pub(super) fn list_type(&self) -> &'a ListType {
        match self {
            Self::Json(_, shape) => shape.list_type(),
            Self::Merged(_, list_type) => list_type,
            Self::Made(_) => &ListType::Atomic,
        }
    }

    /// Whether a schema says what the list is, so that it compares with lists only.
    pub(super) fn is_typed(&self) -> bool {
        matches!(self, Self::Json(_, Shape::Schema(_)) | Self::Merged(..))
    }
}

impl<'a> Map<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(map, _) => map.len(),
            Self::Made(map) => map.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    pub fn find(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, Error> {
        match (self, key) {
            (Self::Json(map, shape), Value::String(key)) => find_json(map, *shape, key),
            (Self::Json(_, Shape::Dynamic), _) => Ok(None),
            (Self::Json(..), _) => Err(Error::no_overload()),
            (Self::Made(map), key) => Ok(find_made(map, key)),
        }
    }

    /// Puts an entry into a map that the expression made. Others that hold the map too keep it as it is.
    pub(super) fn insert(&mut self, key: &Value<'a>, value: Value<'a>) -> Result<(), Error> {
        match (self, Key::of(key)) {
            (Self::Made(map), Some(key)) => {
                Rc::make_mut(map).insert(key, value);
                Ok(())
            }
            _ => Err(Error::no_overload()),
        }
    }

    /// All keys in order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Json(map, shape) => map
                .keys()
                .filter(|key| shape.field(key).is_some())
                .map(|key| match escape(key).filter(|_| shape.is_object()) {
                    Some(escaped) if escaped != *key => Value::text(escaped),
                    _ => Value::String(Text::Borrowed(key)),
                })
                .collect(),
            Self::Made(map) => map.keys().map(Key::value).collect(),
        }
    }
}

fn find_json<'a>(map: &'a JsonMap<String, Json>, shape: Shape<'a>, key: &str) -> Result<Option<Value<'a>>, Error> {
    let is_object = shape.is_object();
    let name = if is_object {
        let Some(name) = unescape(key) else { return Ok(None) };
        name
    } else {
        key.into()
    };
    let Some(json) = map.get(&*name) else { return Ok(None) };
    if is_object && json.is_null() {
        return Ok(None);
    }
    match shape.field(&name) {
        Some(shape) => adapt(json, shape).map(Some),
        None => Ok(None),
    }
}

/// Whole numbers find each other whatever their type.
fn find_made<'a>(map: &BTreeMap<Key<'a>, Value<'a>>, key: &Value<'a>) -> Option<Value<'a>> {
    if let Some(found) = Key::of(key).and_then(|key| map.get(&key)) {
        return Some(found.clone());
    }
    let whole = match key {
        Value::Int(int) => i128::from(*int),
        Value::Uint(uint) => i128::from(*uint),
        Value::Double(double) if double.fract() == 0.0 && double.abs() < 1e19 => *double as i128,
        _ => return None,
    };
    let as_int = i64::try_from(whole).ok().and_then(|int| map.get(&Key::Int(int)));
    as_int.or_else(|| u64::try_from(whole).ok().and_then(|uint| map.get(&Key::Uint(uint)))).cloned()
}

impl<'a> Key<'a> {
    /// The key a value makes, if it can be one.
    pub(super) fn of(value: &Value<'a>) -> Option<Self> {
        Some(match value {
            Value::Bool(bool) => Self::Bool(*bool),
            Value::Int(int) => Self::Int(*int),
            Value::Uint(uint) => Self::Uint(*uint),
            Value::String(text) => Self::String(text.clone()),
            _ => return None,
        })
    }

    pub(super) fn value(&self) -> Value<'a> {
        match self {
            Self::Bool(bool) => Value::Bool(*bool),
            Self::Int(int) => Value::Int(*int),
            Self::Uint(uint) => Value::Uint(*uint),
            Self::String(text) => Value::String(text.clone()),
        }
    }
}
