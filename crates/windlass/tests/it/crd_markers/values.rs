//! Markers that restrict values. They stand on fields and types, and as `items:` on the elements of lists.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResourceExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use windlass::crd::{self, items, rule};

use super::kind;

/// A type that is another one with something to say of it, as `type Percent int32` is in Go.
macro_rules! newtype {
    ($(#[$attribute:meta])* $name:ident, $(#[$of_field:meta])* $type:ty) => {
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        $(#[$attribute])*
        struct $name($(#[$of_field])* $type);
    };
}

kind! { "Maximum", "maxima", "Maximum has the marker in each place.", MaximumSpec {
    #[schemars(range(max = 100))]
    field: i32,
    r#type: MaximumValue,
    #[schemars(inner(range(max = 100)))]
    items: Vec<i32>,
    type_items: MaximumValues,
    #[schemars(range(max = 100))]
    declarative: i32,
}}
newtype! { MaximumValue, #[schemars(range(max = 100))] i32 }
newtype! { MaximumValues, #[schemars(inner(range(max = 100)))] Vec<i32> }

kind! { "Minimum", "minima", "Minimum has the marker in each place.", MinimumSpec {
    #[schemars(range(min = -1))]
    field: i32,
    r#type: MinimumValue,
    #[schemars(inner(range(min = -1)))]
    items: Vec<i32>,
    type_items: MinimumValues,
    #[schemars(range(min = -1))]
    declarative: i32,
}}
newtype! { MinimumValue, #[schemars(range(min = -1))] i32 }
newtype! { MinimumValues, #[schemars(inner(range(min = -1)))] Vec<i32> }

kind! { "ExclusiveMaximum", "exclusivemaxima", "ExclusiveMaximum has the marker in each place.", ExclusiveMaximumSpec {
    #[schemars(range(max = 100), transform = crd::exclusive_maximum)]
    field: i32,
    r#type: ExclusiveMaximumValue,
    #[schemars(inner(range(max = 100)), transform = items(crd::exclusive_maximum))]
    items: Vec<i32>,
    type_items: ExclusiveMaximumValues,
}}
newtype! { ExclusiveMaximumValue, #[schemars(range(max = 100), transform = crd::exclusive_maximum)] i32 }
newtype! { ExclusiveMaximumValues, #[schemars(inner(range(max = 100)), transform = items(crd::exclusive_maximum))] Vec<i32> }

kind! { "ExclusiveMinimum", "exclusiveminima", "ExclusiveMinimum has the marker in each place.", ExclusiveMinimumSpec {
    #[schemars(range(min = 0), transform = crd::exclusive_minimum)]
    field: i32,
    r#type: ExclusiveMinimumValue,
    #[schemars(inner(range(min = 0)), transform = items(crd::exclusive_minimum))]
    items: Vec<i32>,
    type_items: ExclusiveMinimumValues,
}}
newtype! { ExclusiveMinimumValue, #[schemars(range(min = 0), transform = crd::exclusive_minimum)] i32 }
newtype! { ExclusiveMinimumValues, #[schemars(inner(range(min = 0)), transform = items(crd::exclusive_minimum))] Vec<i32> }

kind! { "MultipleOf", "multipleofs", "MultipleOf has the marker in each place.", MultipleOfSpec {
    #[schemars(transform = crd::multiple_of(5))]
    field: i32,
    r#type: MultipleOfValue,
    #[schemars(transform = items(crd::multiple_of(5)))]
    items: Vec<i32>,
    type_items: MultipleOfValues,
}}
newtype! { #[schemars(transform = crd::multiple_of(5))] MultipleOfValue, i32 }
newtype! { #[schemars(transform = items(crd::multiple_of(5)))] MultipleOfValues, Vec<i32> }

kind! { "MaxLength", "maxlengths", "MaxLength has the marker in each place.", MaxLengthSpec {
    #[schemars(length(max = 64))]
    field: String,
    r#type: MaxLengthValue,
    #[schemars(inner(length(max = 64)))]
    items: Vec<String>,
    type_items: MaxLengthValues,
}}
newtype! { MaxLengthValue, #[schemars(length(max = 64))] String }
newtype! { MaxLengthValues, #[schemars(inner(length(max = 64)))] Vec<String> }

kind! { "MinLength", "minlengths", "MinLength has the marker in each place.", MinLengthSpec {
    #[schemars(length(min = 1))]
    field: String,
    r#type: MinLengthValue,
    #[schemars(inner(length(min = 1)))]
    items: Vec<String>,
    type_items: MinLengthValues,
}}
newtype! { MinLengthValue, #[schemars(length(min = 1))] String }
newtype! { MinLengthValues, #[schemars(inner(length(min = 1)))] Vec<String> }

kind! { "Pattern", "patterns", "Pattern has the marker in each place.", PatternSpec {
    #[schemars(regex(pattern = r"^[a-z]+(-[a-z]+)*$"))]
    field: String,
    r#type: PatternValue,
    #[schemars(inner(regex(pattern = r"^[a-z]+(-[a-z]+)*$")))]
    items: Vec<String>,
    type_items: PatternValues,
}}
newtype! { PatternValue, #[schemars(regex(pattern = r"^[a-z]+(-[a-z]+)*$"))] String }
newtype! { PatternValues, #[schemars(inner(regex(pattern = r"^[a-z]+(-[a-z]+)*$")))] Vec<String> }

kind! { "MaxItems", "maxitems", "MaxItems has the marker in each place.", MaxItemsSpec {
    #[schemars(length(max = 10))]
    field: Vec<String>,
    r#type: MaxItemsValue,
    #[schemars(inner(length(max = 10)))]
    items: Vec<Vec<String>>,
    type_items: MaxItemsValues,
    #[schemars(length(max = 10))]
    declarative: Vec<String>,
}}
newtype! { MaxItemsValue, #[schemars(length(max = 10))] Vec<String> }
newtype! { MaxItemsValues, #[schemars(inner(length(max = 10)))] Vec<Vec<String>> }

kind! { "MinItems", "minitems", "MinItems has the marker in each place.", MinItemsSpec {
    #[schemars(length(min = 1))]
    field: Vec<String>,
    r#type: MinItemsValue,
    #[schemars(inner(length(min = 1)))]
    items: Vec<Vec<String>>,
    type_items: MinItemsValues,
}}
newtype! { MinItemsValue, #[schemars(length(min = 1))] Vec<String> }
newtype! { MinItemsValues, #[schemars(inner(length(min = 1)))] Vec<Vec<String>> }

// No server accepts `UniqueItems=true`: see `forms` for what takes its place.
kind! { "UniqueItems", "uniqueitems", "UniqueItems has the marker in each place.", UniqueItemsSpec {
    field: Vec<String>,
    r#type: UniqueItemsValue,
    items: Vec<Vec<String>>,
    type_items: UniqueItemsValues,
}}
newtype! { UniqueItemsValue, Vec<String> }
newtype! { UniqueItemsValues, Vec<Vec<String>> }

kind! { "MaxProperties", "maxproperties", "MaxProperties has the marker in each place.", MaxPropertiesSpec {
    #[schemars(transform = crd::max_properties(10))]
    field: BTreeMap<String, String>,
    r#type: MaxPropertiesValue,
    #[schemars(transform = items(crd::max_properties(10)))]
    items: Vec<BTreeMap<String, String>>,
    type_items: MaxPropertiesValues,
}}
newtype! { #[schemars(transform = crd::max_properties(10))] MaxPropertiesValue, BTreeMap<String, String> }
newtype! { #[schemars(transform = items(crd::max_properties(10)))] MaxPropertiesValues, Vec<BTreeMap<String, String>> }

kind! { "MinProperties", "minproperties", "MinProperties has the marker in each place.", MinPropertiesSpec {
    #[schemars(transform = crd::min_properties(1))]
    field: BTreeMap<String, String>,
    r#type: MinPropertiesValue,
    #[schemars(transform = items(crd::min_properties(1)))]
    items: Vec<BTreeMap<String, String>>,
    type_items: MinPropertiesValues,
}}
newtype! { #[schemars(transform = crd::min_properties(1))] MinPropertiesValue, BTreeMap<String, String> }
newtype! { #[schemars(transform = items(crd::min_properties(1)))] MinPropertiesValues, Vec<BTreeMap<String, String>> }

kind! { "Enum", "enums", "Enum has the marker in each place.", EnumSpec {
    #[schemars(transform = crd::one_of(["Always", "Never", "IfNotPresent"]))]
    field: String,
    r#type: EnumValue,
    #[schemars(transform = items(crd::one_of(["Always", "Never", "IfNotPresent"])))]
    items: Vec<String>,
    type_items: Vec<EnumValue>,
    #[schemars(transform = crd::one_of([1, 2, 3]))]
    number: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    optional: Option<EnumValue>,
}}
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
enum EnumValue {
    Always,
    Never,
    IfNotPresent,
}

kind! { "Format", "formats", "Format has the marker in each place.", FormatSpec {
    #[schemars(transform = crd::format("date-time"))]
    field: String,
    r#type: FormatValue,
    #[schemars(transform = items(crd::format("date-time")))]
    items: Vec<String>,
    type_items: FormatValues,
}}
newtype! { #[schemars(transform = crd::format("date-time"))] FormatValue, String }
newtype! { #[schemars(transform = items(crd::format("date-time")))] FormatValues, Vec<String> }

kind! { "Type", "types", "Type has the marker in each place.", TypeSpec {
    #[schemars(with = "String")]
    field: bool,
    r#type: TypeValue,
    #[schemars(transform = items(crd::type_("string")))]
    items: Vec<bool>,
    #[schemars(with = "Vec<String>")]
    type_items: Vec<bool>,
}}
newtype! { #[schemars(transform = crd::type_("string"))] TypeValue, bool }

kind! { "XPreserveUnknownFields", "xpreserveunknownfields", "XPreserveUnknownFields has the marker in each place.",
XPreserveUnknownFieldsSpec {
    #[schemars(transform = crd::preserve_unknown_fields)]
    field: XPreserveUnknownFieldsBase,
    r#type: XPreserveUnknownFieldsValue,
    #[schemars(transform = items(crd::preserve_unknown_fields))]
    items: Vec<XPreserveUnknownFieldsBase>,
    type_items: XPreserveUnknownFieldsValues,
}}
newtype! { #[schemars(transform = crd::preserve_unknown_fields)] XPreserveUnknownFieldsValue, XPreserveUnknownFieldsBase }
newtype! { #[schemars(transform = items(crd::preserve_unknown_fields))] XPreserveUnknownFieldsValues, Vec<XPreserveUnknownFieldsBase> }
/// XPreserveUnknownFieldsBase has fields that are known.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct XPreserveUnknownFieldsBase {
    known: String,
}

type Object = Map<String, Value>;

kind! { "XEmbeddedResource", "xembeddedresources", "XEmbeddedResource has the marker in each place.",
XEmbeddedResourceSpec {
    #[schemars(transform = crd::preserve_unknown_fields, transform = crd::embedded_resource)]
    field: Object,
    r#type: XEmbeddedResourceValue,
    #[schemars(transform = items(crd::preserve_unknown_fields), transform = items(crd::embedded_resource))]
    items: Vec<Object>,
    type_items: XEmbeddedResourceValues,
}}
newtype! {
    #[schemars(transform = crd::preserve_unknown_fields, transform = crd::embedded_resource)]
    XEmbeddedResourceValue, Object
}
newtype! {
    #[schemars(transform = items(crd::preserve_unknown_fields), transform = items(crd::embedded_resource))]
    XEmbeddedResourceValues, Vec<Object>
}

kind! { "XIntOrString", "xintorstrings", "XIntOrString has the marker in each place.", XIntOrStringSpec {
    /// The field.
    #[schemars(transform = crd::int_or_string)]
    field: Value,
    /// The type.
    r#type: XIntOrStringValue,
    #[schemars(transform = items(crd::int_or_string))]
    items: Vec<String>,
    type_items: Vec<XIntOrStringValue>,
    /// Without a marker.
    port: IntOrString,
    /// Without a marker.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<IntOrString>,
}}
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum XIntOrStringValue {
    Number(i32),
    Text(String),
}

kind! { "XValidation", "xvalidations", "XValidation has the marker in each place.", XValidationSpec {
    #[schemars(length(max = 64), transform = rule("self != 'admin'").message("must not be admin"))]
    field: String,
    r#type: XValidationValue,
    #[schemars(length(max = 10), inner(length(max = 64)))]
    #[schemars(transform = items(rule("self != 'admin'").message("must not be admin")))]
    items: Vec<String>,
    type_items: XValidationValues,
    #[schemars(
        transform = rule("self.low <= self.high")
            .message_expression("self.low < 0 ? 'low is negative' : 'low exceeds high'")
            .reason("FieldValueForbidden")
            .field_path(".low"),
        transform = rule("oldSelf.orValue(self).high <= self.high").optional_old_self()
    )]
    range: XValidationRange,
}}
newtype! { XValidationValue,
    #[schemars(length(max = 64), transform = rule("self != 'admin'").message("must not be admin"))] String
}
newtype! { #[schemars(transform = items(rule("self != 'admin'").message("must not be admin")))] XValidationValues,
    #[schemars(length(max = 10), inner(length(max = 64)))] Vec<String>
}
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = rule("self.low >= 0"))]
struct XValidationRange {
    low: i32,
    high: i32,
}

pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        Maximum::crd(),
        Minimum::crd(),
        ExclusiveMaximum::crd(),
        ExclusiveMinimum::crd(),
        MultipleOf::crd(),
        MaxLength::crd(),
        MinLength::crd(),
        Pattern::crd(),
        MaxItems::crd(),
        MinItems::crd(),
        UniqueItems::crd(),
        MaxProperties::crd(),
        MinProperties::crd(),
        Enum::crd(),
        Format::crd(),
        Type::crd(),
        XPreserveUnknownFields::crd(),
        XEmbeddedResource::crd(),
        XIntOrString::crd(),
        XValidation::crd(),
    ]
}
