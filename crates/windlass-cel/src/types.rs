//! The types of expressions, as cel-go has and prints them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// The largest request that Kubernetes takes, in bytes: no value can have more.
pub const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// A type.
#[derive(Clone, Debug)]
pub enum Type {
    /// Unknown until evaluation.
    Dyn,
    /// The type of what could not be checked; goes with everything, so that one problem is reported once.
    Error,
    /// `null`.
    Null,
    /// A boolean.
    Bool,
    /// A signed whole number.
    Int,
    /// An unsigned whole number.
    Uint,
    /// A floating-point number.
    Double,
    /// A string.
    String,
    /// Bytes.
    Bytes,
    /// A moment.
    Timestamp,
    /// A span of time.
    Duration,
    /// A list of items of one type.
    List(Arc<Type>),
    /// A map: the types of its keys and of its values.
    Map(Arc<(Type, Type)>),
    /// The type of a type.
    Meta(Option<Arc<Type>>),
    /// A type with fields.
    Object(Arc<Object>),
    /// A type with a name only, such as `net.IP`.
    Opaque(&'static str),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// A parameter of a function's declaration.
    Param(u8),
    /// A variable that unification finds the type of.
    Var(u32),
}

/// A type with fields. Two are the same if their names are.
#[derive(Debug)]
pub struct Object {
    /// Its name.
    pub name: Box<str>,
    /// Its fields by their escaped names.
    pub fields: BTreeMap<Box<str>, Declared>,
    /// Whether any other field is there too, of unknown type.
    pub open: bool,
}

/// The declaration of a value.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its type. An object's fields are part of it.
    pub ty: Type,
    /// What a list's items or a map's values are.
    pub element: Option<Arc<Declared>>,
    /// How many items, entries or bytes there can be.
    pub max_elements: u64,
    /// The fewest bytes its JSON takes.
    pub min_size: u64,
}

impl Declared {
    /// A value that is neither a list nor a map.
    pub fn simple(ty: Type, min_size: u64, max_elements: u64) -> Self {
        Self { ty, element: None, max_elements, min_size }
    }

    /// A value nothing is known about.
    pub fn dynamic() -> Self {
        Self::simple(Type::Dyn, 1, 0)
    }

    /// The fields of an object.
    pub fn fields(&self) -> Option<&BTreeMap<Box<str>, Declared>> {
        match &self.ty {
            Type::Object(object) => Some(&object.fields),
            _ => None,
        }
    }

    /// The declaration of a field, by its escaped name.
    pub fn field(&self, name: &str) -> Option<&Declared> {
        self.fields()?.get(name)
    }

    /// How often a value like this fits into one request.
    pub fn max_cardinality(&self) -> u64 {
        MAX_REQUEST / (self.min_size + 1)
    }
}

/// The declaration of a map's keys.
pub(super) static KEY: Declared = Declared { ty: Type::String, element: None, max_elements: 0, min_size: 2 };

impl Type {
    /// A list.
    pub fn list(item: Type) -> Self {
        Self::List(Arc::new(item))
    }

    /// A map.
    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// A value that may be absent.
    pub fn optional(value: Type) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// A type that has a name and no fields anybody can select.
    pub fn named(name: &str) -> Self {
        Self::Object(Arc::new(Object { name: name.into(), fields: BTreeMap::new(), open: false }))
    }

    /// A type with whatever fields.
    pub(super) fn open(name: &str) -> Self {
        Self::Object(Arc::new(Object { name: name.into(), fields: BTreeMap::new(), open: true }))
    }

    pub(super) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    pub(super) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Whether two types are the same, type by type.
    pub(super) fn same(&self, other: &Type) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.same(b),
            (Self::Map(a), Self::Map(b)) => a.0.same(&b.0) && a.1.same(&b.1),
            (Self::Meta(a), Self::Meta(b)) => match (a, b) {
                (Some(a), Some(b)) => a.same(b),
                (None, None) => true,
                _ => false,
            },
            (Self::Object(a), Self::Object(b)) => a.name == b.name,
            (Self::Opaque(a), Self::Opaque(b)) => a == b,
            (Self::Param(a), Self::Param(b)) => a == b,
            (Self::Var(a), Self::Var(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other) && self.is_simple(),
        }
    }

    fn is_simple(&self) -> bool {
        !matches!(
            self,
            Self::List(_)
                | Self::Optional(_)
                | Self::Map(_)
                | Self::Meta(_)
                | Self::Object(_)
                | Self::Opaque(_)
                | Self::Param(_)
                | Self::Var(_)
        )
    }

    /// The type as messages show it. `own` is the name of the type the expression is about, which
    /// is shown as one that cannot be relied on.
    pub fn display(&self, own: &str) -> String {
        let mut out = String::new();
        self.write(own, &mut out);
        out
    }

    fn write(&self, own: &str, out: &mut String) {
        match self {
            Self::Dyn => out.push_str("dyn"),
            Self::Error => out.push_str("!error!"),
            Self::Null => out.push_str("null"),
            Self::Bool => out.push_str("bool"),
            Self::Int => out.push_str("int"),
            Self::Uint => out.push_str("uint"),
            Self::Double => out.push_str("double"),
            Self::String => out.push_str("string"),
            Self::Bytes => out.push_str("bytes"),
            Self::Timestamp => out.push_str("timestamp"),
            Self::Duration => out.push_str("duration"),
            Self::List(item) => nested("list", &[item], own, out),
            Self::Map(entry) => nested("map", &[&entry.0, &entry.1], own, out),
            Self::Meta(None) => out.push_str("type"),
            Self::Meta(Some(of)) => nested("type", &[of], own, out),
            Self::Object(object) => match object.name.strip_prefix(own) {
                Some(rest) if !own.is_empty() && (rest.is_empty() || rest.starts_with('.')) => {
                    let _ = write!(out, "selfType{rest}");
                }
                _ => out.push_str(&object.name),
            },
            Self::Opaque(name) => out.push_str(name),
            Self::Optional(of) => nested("optional_type", &[of], own, out),
            Self::Param(param) => out.push(char::from(b'A' + param)),
            Self::Var(var) => {
                let _ = write!(out, "_var{var}");
            }
        }
    }

    /// The name a value of this type has at run time.
    pub(super) fn runtime_name(&self) -> String {
        match self {
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Null => "null_type".to_owned(),
            Self::List(_) => "list".to_owned(),
            Self::Map(_) => "map".to_owned(),
            Self::Meta(_) => "type".to_owned(),
            Self::Optional(_) => "optional_type".to_owned(),
            other => other.display(""),
        }
    }
}

/// An operation of a JSON patch.
pub(super) fn json_patch() -> Type {
    let text = || Declared { ty: Type::String, ..Declared::dynamic() };
    let fields = BTreeMap::from([
        ("op".into(), text()),
        ("path".into(), text()),
        ("from".into(), text()),
        ("value".into(), Declared::dynamic()),
    ]);
    Type::Object(Arc::new(Object { name: "JSONPatch".into(), fields, open: false }))
}

fn nested(name: &str, parts: &[&Type], own: &str, out: &mut String) {
    out.push_str(name);
    out.push('(');
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        part.write(own, out);
    }
    out.push(')');
}
