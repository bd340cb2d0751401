//! The markers of controller-gen for which `kube` and `schemars` have no attribute, as transforms of a schema.
//!
//! Each is written `#[schemars(transform = ...)]` on a field or a type. On a type they work for newtypes as well, which
//! is how Rust says what a Go type such as `type Percent int32` says.

use schemars::Schema;
use schemars::transform::Transform;
use serde_json::{Value, json};

use crate::rule::{Rule, rule};

/// Set by [`immutable`] for the struct that has the field, and taken out by the generator.
pub(crate) const IMMUTABLE: &str = "x-windlass-immutable";

/// Applies a transform to the elements of a list: the `items:` form of a marker.
///
/// `inner(...)` of `schemars` does this for `length`, `range` and `regex`.
///
/// ```
/// use windlass_crd::{items, multiple_of};
///
/// #[derive(schemars::JsonSchema)]
/// struct Spec {
///     #[schemars(transform = items(multiple_of(5)))]
///     sizes: Vec<i32>,
/// }
/// # let schema = windlass_crd::schema::<Spec>().to_value();
/// # assert_eq!(schema["properties"]["sizes"]["items"]["multipleOf"], 5);
/// ```
pub fn items(mut transform: impl Transform) -> impl Transform {
    move |schema: &mut Schema| {
        let Some(items) = schema.get_mut("items") else { return };
        if let Ok(items) = <&mut Schema>::try_from(items) {
            transform.transform(items);
        }
    }
}

/// Sets a keyword.
fn keyword(name: &'static str, value: impl Into<Value>) -> impl Transform {
    let value = value.into();
    move |schema: &mut Schema| {
        schema.insert(name.to_string(), value.clone());
    }
}

/// The largest value itself is excluded: `+kubebuilder:validation:ExclusiveMaximum=true`. Goes with `range(max = ...)`.
pub fn exclusive_maximum(schema: &mut Schema) {
    schema.insert("exclusiveMaximum".to_string(), Value::Bool(true));
}

/// The smallest value itself is excluded: `+kubebuilder:validation:ExclusiveMinimum=true`. Goes with `range(min = ...)`.
pub fn exclusive_minimum(schema: &mut Schema) {
    schema.insert("exclusiveMinimum".to_string(), Value::Bool(true));
}

/// Only multiples of the number: `+kubebuilder:validation:MultipleOf`.
pub fn multiple_of(number: impl Into<Value>) -> impl Transform {
    keyword("multipleOf", number)
}

/// At most so many entries of a map: `+kubebuilder:validation:MaxProperties`.
pub fn max_properties(count: u32) -> impl Transform {
    keyword("maxProperties", count)
}

/// At least so many entries of a map: `+kubebuilder:validation:MinProperties`.
pub fn min_properties(count: u32) -> impl Transform {
    keyword("minProperties", count)
}

/// Only these values: `+kubebuilder:validation:Enum`. A Rust enum says it better where it can.
pub fn one_of<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> impl Transform {
    keyword("enum", values.into_iter().map(Into::into).collect::<Vec<Value>>())
}

/// The format of a string or a number, such as `date-time`: `+kubebuilder:validation:Format`.
pub fn format(name: &str) -> impl Transform {
    keyword("format", name)
}

/// Another type than the one that the Rust type has: `+kubebuilder:validation:Type`. The format goes, because it was of
/// the old type. `#[schemars(with = "String")]` is the better way where there is a Rust type of the same form.
pub fn type_(name: &str) -> impl Transform {
    let mut set = keyword("type", name);
    move |schema: &mut Schema| {
        schema.remove("format");
        set.transform(schema);
    }
}

/// Fields that the schema does not have are kept: `+kubebuilder:pruning:PreserveUnknownFields` and
/// `+kubebuilder:validation:XPreserveUnknownFields`. A `serde_json::Value` keeps everything without it.
pub fn preserve_unknown_fields(schema: &mut Schema) {
    schema.insert("x-kubernetes-preserve-unknown-fields".to_string(), Value::Bool(true));
}

/// The value is an object with `apiVersion`, `kind` and `metadata`: `+kubebuilder:validation:EmbeddedResource` and
/// `+kubebuilder:validation:XEmbeddedResource`.
pub fn embedded_resource(schema: &mut Schema) {
    schema.insert("x-kubernetes-embedded-resource".to_string(), Value::Bool(true));
}

/// The value is an integer or a string: `+kubebuilder:validation:XIntOrString`. The type `IntOrString` of `k8s-openapi`
/// and an untagged enum of an integer and a string have it without this.
pub fn int_or_string(schema: &mut Schema) {
    for keyword in ["type", "format", "anyOf", "oneOf"] {
        schema.remove(keyword);
    }
    schema.insert("x-kubernetes-int-or-string".to_string(), Value::Bool(true));
}

/// The value may be `null`: `+nullable`. An `Option` that is not skipped when it is `None` is nullable without it.
pub fn nullable(schema: &mut Schema) {
    schema.insert("nullable".to_string(), Value::Bool(true));
}

/// The field keeps the value it was first given: `+k8s:immutable`. An optional one can be set later, but neither changed
/// nor removed then.
pub fn immutable(schema: &mut Schema) {
    rule("self == oldSelf").message("field is immutable").transform(schema);
    // An optional field needs a rule of the struct, which the generator adds: removing a field checks no rule of its own.
    schema.insert(IMMUTABLE.to_string(), Value::Bool(true));
}

/// The struct's rule that an immutable field stays once it is set.
pub(crate) fn stays(field: &str) -> Value {
    let name = escaped(field);
    rule(format!("!has(oldSelf.{name}) || has(self.{name})"))
        .message(format!("field {field} is immutable once set"))
        .into_value()
}

/// Exactly one of the fields is set: `+kubebuilder:validation:ExactlyOneOf`. The names are those of the JSON.
///
/// A Rust enum whose variants hold the values says the same with `oneOf`.
pub fn exactly_one_of<'a>(fields: impl IntoIterator<Item = &'a str>) -> Rule {
    let fields: Vec<&str> = fields.into_iter().collect();
    rule(format!("{} == 1", count(&fields)))
        .message(format!("exactly one of the fields in [{}] must be set", fields.join(" ")))
}

/// At most one of the fields is set: `+kubebuilder:validation:AtMostOneOf`. The names are those of the JSON.
pub fn at_most_one_of<'a>(fields: impl IntoIterator<Item = &'a str>) -> Rule {
    let fields: Vec<&str> = fields.into_iter().collect();
    rule(format!("{} <= 1", count(&fields)))
        .message(format!("at most one of the fields in [{}] may be set", fields.join(" ")))
}

/// At least one of the fields is set: `+kubebuilder:validation:AtLeastOneOf`. The names are those of the JSON.
pub fn at_least_one_of<'a>(fields: impl IntoIterator<Item = &'a str>) -> Rule {
    let fields: Vec<&str> = fields.into_iter().collect();
    let set: Vec<String> = fields.iter().map(|field| format!("has(self.{})", escaped(field))).collect();
    rule(set.join("||")).message(format!("at least one of the fields in [{}] must be set", fields.join(" ")))
}

/// An expression for how many of the fields are set.
fn count(fields: &[&str]) -> String {
    let set: Vec<String> = fields.iter().map(|field| format!("(has(self.{})?1:0)", escaped(field))).collect();
    set.join("+")
}

/// The name by which rules know a field, as `apiextensions-apiserver`'s `pkg/apiserver/schema/cel` escapes it.
fn escaped(field: &str) -> String {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&field) {
        return format!("__{field}__");
    }
    field.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

/// A page about the field or the type: `+kubebuilder:externalDocs`. A description is optional: `("https://…", "How many")`.
pub fn external_docs(page: impl Into<ExternalDocs>) -> impl Transform {
    let page = page.into().0;
    move |schema: &mut Schema| {
        schema.insert("externalDocs".to_string(), page.clone());
    }
}

/// The address of a page, or the address and a description of it.
#[derive(Clone, Debug)]
pub struct ExternalDocs(Value);

impl From<&str> for ExternalDocs {
    fn from(url: &str) -> Self {
        Self(json!({ "url": url }))
    }
}

impl From<(&str, &str)> for ExternalDocs {
    fn from((url, description): (&str, &str)) -> Self {
        Self(json!({ "url": url, "description": description }))
    }
}

/// The list is a map: its elements are told apart by the values of these fields, and server-side apply merges them one
/// by one: `+listType=map` and `+listMapKey`.
pub fn list_map<'a>(keys: impl IntoIterator<Item = &'a str>) -> impl Transform {
    let keys: Vec<Value> = keys.into_iter().map(Value::from).collect();
    move |schema: &mut Schema| {
        schema.insert("x-kubernetes-list-type".to_string(), "map".into());
        schema.insert("x-kubernetes-list-map-keys".to_string(), Value::Array(keys.clone()));
    }
}

/// The list is a set of scalars: `+listType=set`. A `BTreeSet` or `HashSet` of scalars has it without this.
pub fn list_set(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".to_string(), "set".into());
}

/// The list has one owner and is replaced as a whole: `+listType=atomic`.
pub fn list_atomic(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".to_string(), "atomic".into());
}

/// The map has one owner and is replaced as a whole: `+mapType=atomic`.
pub fn map_atomic(schema: &mut Schema) {
    schema.insert("x-kubernetes-map-type".to_string(), "atomic".into());
}

/// The entries of the map have owners of their own, as they have by default: `+mapType=granular`.
pub fn map_granular(schema: &mut Schema) {
    schema.insert("x-kubernetes-map-type".to_string(), "granular".into());
}

/// The struct has one owner and is replaced as a whole: `+structType=atomic`.
pub fn struct_atomic(schema: &mut Schema) {
    map_atomic(schema);
}

/// The fields of the struct have owners of their own, as they have by default: `+structType=granular`.
pub fn struct_granular(schema: &mut Schema) {
    map_granular(schema);
}
