//! Markers of fields, of structs, and of how server-side apply merges.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use windlass::crd;

use super::kind;

kind! { "Required", "requireds", "Required has fields that must be set.", RequiredSpec {
    plain: String,
    validation: String,
    #[schemars(required)]
    short: Option<String>,
    // In Go this marker also excludes the value that stands for a field that is not set.
    #[schemars(length(min = 1))]
    declarative: String,
}}

kind! { "Optional", "optionals", "Optional has fields that may be left out.", OptionalSpec {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    omitempty: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    validation: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    short: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    declarative: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#struct: Option<Named>,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Named {
    name: String,
}

kind! { "Nullable", "nullables", "Nullable has fields that may be null.", NullableSpec {
    text: Option<String>,
    #[schemars(required, transform = crd::nullable)]
    r#struct: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_null: Option<String>,
}}

kind! { "DefaultValue", "defaultvalues", "DefaultValue has fields with defaults.", DefaultValueSpec {
    #[serde(default = "three")]
    number: i32,
    #[serde(default = "cluster_ip")]
    text: String,
    #[serde(default = "yes")]
    flag: bool,
    #[serde(default = "ports")]
    list: Vec<i32>,
    #[serde(default)]
    r#struct: DefaultStruct,
    #[serde(default = "three")]
    declarative_number: i32,
    #[serde(default = "cluster_ip")]
    declarative_text: String,
    #[serde(default = "ports")]
    declarative_list: Vec<i32>,
    #[schemars(extend("default" = 1))]
    required_number: i32,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct DefaultStruct {
    replicas: i32,
}

impl Default for DefaultStruct {
    fn default() -> Self {
        Self { replicas: 1 }
    }
}

fn three() -> i32 {
    3
}

fn cluster_ip() -> String {
    "ClusterIP".to_string()
}

fn yes() -> bool {
    true
}

fn ports() -> Vec<i32> {
    vec![80, 443]
}

kind! { "Example", "examples", "Example has fields with examples.", ExampleSpec {
    #[schemars(example = 5)]
    number: i32,
    #[schemars(example = "my-service")]
    text: String,
    #[schemars(example = [8080, 8443])]
    list: Vec<i32>,
    #[schemars(example = json!({ "cpu": "100m" }))]
    map: BTreeMap<String, String>,
}}

kind! { "EmbeddedResource", "embeddedresources", "EmbeddedResource holds whole objects.", EmbeddedResourceSpec {
    #[schemars(transform = crd::preserve_unknown_fields, transform = crd::embedded_resource)]
    raw: Map<String, Value>,
    #[schemars(transform = crd::embedded_resource)]
    known: EmbeddedResourceKnown,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct EmbeddedResourceKnown {
    data: BTreeMap<String, String>,
}

kind! { "Schemaless", "schemalesses", "Schemaless has fields whose type says nothing.", SchemalessSpec {
    /// Any value.
    any: Value,
    /// A number that is written as text.
    #[schemars(with = "String", regex(pattern = "^[0-9]+$"))]
    digits: Value,
}}

kind! { "Immutable", "immutables", "Immutable has fields that keep their value.", ImmutableSpec {
    #[schemars(transform = crd::immutable)]
    port: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crd::immutable)]
    name: Option<String>,
}}

kind! { "PreserveUnknownFields", "preserveunknownfields",
"PreserveUnknownFields keeps fields that the schema does not have.", PreserveUnknownFieldsSpec {
    #[schemars(transform = crd::preserve_unknown_fields)]
    field: PreserveUnknownFieldsKnown,
    r#type: PreserveUnknownFieldsType,
    #[schemars(transform = crd::preserve_unknown_fields)]
    raw: Map<String, Value>,
    json: Value,
    jsons: BTreeMap<String, Value>,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct PreserveUnknownFieldsKnown {
    known: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crd::preserve_unknown_fields)]
struct PreserveUnknownFieldsType {
    known: String,
}

kind! { "Title", "titles", "Title has titles.", TitleSpec {
    #[schemars(title = "Replica Count")]
    replicas: i32,
    database: TitleDatabase,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "Database Connection")]
struct TitleDatabase {
    host: String,
}

kind! { "ExternalDocs", "externaldocs", "ExternalDocs leads to pages elsewhere.", ExternalDocsSpec {
    #[schemars(transform = crd::external_docs(("https://example.com/replicas", "How many")))]
    replicas: i32,
    database: ExternalDocsDatabase,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crd::external_docs("https://example.com/database"))]
struct ExternalDocsDatabase {
    host: String,
}

macro_rules! group {
    ($kind:tt, $plural:tt, $doc:tt, $spec:ident, $source:ident, $rule:path) => {
        kind! { $kind, $plural, $doc, $spec {
            source: $source,
        }}

        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        #[schemars(transform = $rule(["configMap", "secret", "url"]))]
        struct $source {
            #[serde(skip_serializing_if = "Option::is_none")]
            config_map: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            secret: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            url: Option<String>,
        }
    };
}

group! { "ExactlyOneOf", "exactlyoneofs", "ExactlyOneOf has fields that exclude or need each other.",
ExactlyOneOfSpec, ExactlyOneOfSource, crd::exactly_one_of }
group! { "AtMostOneOf", "atmostoneofs", "AtMostOneOf has fields that exclude or need each other.",
AtMostOneOfSpec, AtMostOneOfSource, crd::at_most_one_of }
group! { "AtLeastOneOf", "atleastoneofs", "AtLeastOneOf has fields that exclude or need each other.",
AtLeastOneOfSpec, AtLeastOneOfSource, crd::at_least_one_of }

kind! { "ConstEnum", "constenums", "ConstEnum has an enum of constants.", ConstEnumSpec {
    policy: ConstEnumPolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    optional: Option<ConstEnumPolicy>,
    policies: Vec<ConstEnumPolicy>,
}}

/// ConstEnumPolicy says when.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
enum ConstEnumPolicy {
    /// At all times.
    Always,
    /// At no time.
    Never,
}

kind! { "ListType", "listtypes", "ListType has lists that merge in different ways.", ListTypeSpec {
    #[schemars(transform = crd::list_atomic)]
    atomic: Vec<String>,
    #[schemars(transform = crd::list_set)]
    set: Vec<String>,
    declarative: std::collections::BTreeSet<String>,
    r#type: ListTypeNames,
    declared: ListTypeDeclared,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crd::list_set)]
struct ListTypeNames(Vec<String>);

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crd::list_set)]
struct ListTypeDeclared(Vec<String>);

kind! { "ListMapKey", "listmapkeys", "ListMapKey has lists that merge by key.", ListMapKeySpec {
    #[schemars(transform = crd::list_map(["port", "protocol"]))]
    ports: Vec<ListMapKeyPort>,
    #[schemars(transform = crd::list_map(["port"]))]
    declarative: Vec<ListMapKeyPort>,
    r#type: ListMapKeyPorts,
    declared: ListMapKeyDeclared,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct ListMapKeyPort {
    port: i32,
    protocol: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crd::list_map(["port"]))]
struct ListMapKeyPorts(Vec<ListMapKeyPort>);

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crd::list_map(["port"]))]
struct ListMapKeyDeclared(Vec<ListMapKeyPort>);

/// The same with the attributes of `kube`, which stand on fields of structs.
#[derive(CustomResource, KubeSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "golden.example.com",
    version = "v1",
    kind = "ListMapKey",
    root = "ListMapKeyOfKube",
    plural = "listmapkeys",
    namespaced,
    doc = "ListMapKey has lists that merge by key.",
    crates(schemars = "windlass::crd::schemars")
)]
#[schemars(description = "")]
struct ListMapKeyOfKubeSpec {
    #[x_kube(merge_strategy = ListMerge::Map(vec!["port".to_string(), "protocol".to_string()]))]
    ports: Vec<ListMapKeyPort>,
    #[x_kube(merge_strategy = ListMerge::Map(vec!["port".to_string()]))]
    declarative: Vec<ListMapKeyPort>,
    r#type: ListMapKeyPorts,
    declared: ListMapKeyDeclared,
}

kind! { "MapType", "maptypes", "MapType has maps that merge in different ways.", MapTypeSpec {
    #[schemars(transform = crd::map_atomic)]
    atomic: BTreeMap<String, String>,
    #[schemars(transform = crd::map_granular)]
    granular: BTreeMap<String, String>,
    r#type: MapTypeLabels,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crd::map_atomic)]
struct MapTypeLabels(BTreeMap<String, String>);

kind! { "StructType", "structtypes", "StructType has structs that merge in different ways.", StructTypeSpec {
    #[schemars(transform = crd::struct_atomic)]
    atomic: Named,
    #[schemars(transform = crd::struct_granular)]
    granular: Named,
    r#type: StructTypeReference,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crd::struct_atomic)]
struct StructTypeReference {
    name: String,
}

kind! { "Descriptions", "descriptions", "Descriptions has texts.", DescriptionsSpec {
    /// One line.
    line: String,
    /// Two lines
    /// of a paragraph.
    ///
    /// And another paragraph.
    paragraphs: String,
    /// The field's words.
    field: DescriptionsType,
    r#type: DescriptionsType,
}}

/// The type's words.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct DescriptionsType {
    name: String,
}

pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        Required::crd(),
        Optional::crd(),
        Nullable::crd(),
        DefaultValue::crd(),
        Example::crd(),
        EmbeddedResource::crd(),
        Schemaless::crd(),
        Immutable::crd(),
        PreserveUnknownFields::crd(),
        Title::crd(),
        ExternalDocs::crd(),
        ExactlyOneOf::crd(),
        AtMostOneOf::crd(),
        AtLeastOneOf::crd(),
        ConstEnum::crd(),
        ListType::crd(),
        ListMapKey::crd(),
        ListMapKeyOfKube::crd(),
        MapType::crd(),
        StructType::crd(),
        Descriptions::crd(),
    ]
}
