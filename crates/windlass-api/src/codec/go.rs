//! What the schemas do not say about the Go types behind built-in kinds, from `facts/go-fields-1.36.json`.
//!
//! Go decides by pointers and `omitempty` which zero values are written, names its types in errors, and
//! embeds structs whose fields JSON shows inline but protobuf nests.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::schema::{Schema, Type};

/// The Go struct behind a definition.
#[derive(Debug, Default)]
pub(super) struct GoStruct {
    fields: HashMap<&'static str, GoField>,
    /// Fields that are written even when they are zero.
    pub(super) always: Vec<&'static str>,
}

/// One field of a Go struct.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GoField {
    /// A pointer: absent and zero differ.
    pub(super) pointer: bool,
    /// Written even when zero.
    pub(super) always: bool,
    /// The Go type, where it does not follow from the schema.
    pub(super) type_name: Option<&'static str>,
    /// The embedded struct the field comes from.
    pub(super) via: Option<&'static str>,
    /// The field's name in protobuf, where it differs.
    pub(super) proto_name: Option<&'static str>,
}

impl GoStruct {
    pub(super) fn field(&self, name: &str) -> GoField {
        self.fields.get(name).copied().unwrap_or_default()
    }

    /// The JSON name of a protobuf field, where the two differ.
    pub(super) fn json_name(&self, proto_name: &str) -> Option<&'static str> {
        self.fields.iter().find(|(_, field)| field.proto_name == Some(proto_name)).map(|(name, _)| *name)
    }

    /// Whether a protobuf field holds an embedded struct.
    pub(super) fn embeds(&self, proto_name: &str) -> bool {
        self.fields.values().filter_map(|field| field.via).any(|via| {
            let embedded = via.split('.').next().unwrap_or_default();
            match embedded {
                "ProbeHandler" => proto_name == "handler",
                _ => {
                    embedded.len() == proto_name.len()
                        && embedded[..1].eq_ignore_ascii_case(&proto_name[..1])
                        && embedded[1..] == proto_name[1..]
                }
            }
        })
    }
}

/// The struct behind the definition called `name`; an empty one if nothing is known.
pub(super) fn struct_of(name: &str) -> &'static GoStruct {
    static NOTHING: LazyLock<GoStruct> = LazyLock::new(GoStruct::default);
    TABLE.get(name).unwrap_or(&NOTHING)
}

/// The types that decode themselves, and what they do instead of following their schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    /// `metav1.Time`
    Time,
    /// `metav1.MicroTime`
    MicroTime,
    /// `resource.Quantity`
    Quantity,
    /// `intstr.IntOrString`
    IntOrString,
    /// Kept as it is: `runtime.RawExtension`, `metav1.FieldsV1`, `apiextensions.JSON`.
    Opaque,
    /// A schema or a boolean.
    SchemaOrBool,
    /// A schema or a list of schemas.
    SchemaOrArray,
    /// A schema or a list of strings.
    SchemaOrStrings,
}

/// Whether the type behind a schema decodes itself.
pub(super) fn special(schema: &Schema) -> Option<Special> {
    // Only types without fields of their own do, which spares most structs the comparison.
    if !schema.properties.is_empty() {
        return None;
    }
    let (package, name) = schema.name?.rsplit_once('.')?;
    match (package.rsplit('.').next()?, name) {
        ("v1", "Time") => Some(Special::Time),
        ("v1", "MicroTime") => Some(Special::MicroTime),
        ("resource", "Quantity") => Some(Special::Quantity),
        ("intstr", "IntOrString") => Some(Special::IntOrString),
        ("runtime", "RawExtension") | ("v1", "FieldsV1" | "JSON") => Some(Special::Opaque),
        ("v1", "JSONSchemaPropsOrBool") => Some(Special::SchemaOrBool),
        ("v1", "JSONSchemaPropsOrArray") => Some(Special::SchemaOrArray),
        ("v1", "JSONSchemaPropsOrStringArray") => Some(Special::SchemaOrStrings),
        _ => None,
    }
}

/// Whether the schema stands for a Go struct whose fields are decoded one by one.
pub(super) fn is_struct(schema: &Schema) -> bool {
    schema.ty == Type::Object && schema.additional.is_none() && schema.name.is_some() && special(schema).is_none()
}

/// A Go type as `reflect` prints it. `known` is the type where it does not follow from the schema.
pub(super) fn type_name(schema: &Schema, known: Option<&str>) -> String {
    if let Some(known) = known {
        return known.to_owned();
    }
    if let Some(name) = schema.name {
        let mut parts = name.rsplit('.');
        let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        return format!("{package}.{name}");
    }
    match (schema.ty, schema.format.as_deref()) {
        (Type::String, Some("byte")) => "[]uint8".to_owned(),
        (Type::String, _) => "string".to_owned(),
        (Type::Integer, format) => format.unwrap_or("int64").to_owned(),
        (Type::Number, _) => "float64".to_owned(),
        (Type::Boolean, _) => "bool".to_owned(),
        (Type::Array, _) => format!("[]{}", schema.items.as_deref().map_or_else(String::new, |s| type_name(s, None))),
        (Type::Object, _) if schema.additional.is_some() => {
            let value = schema.additional.as_deref().map_or_else(String::new, |s| type_name(s, None));
            format!("map[string]{value}")
        }
        _ => "interface {}".to_owned(),
    }
}

/// The type of a list's items or a map's values, if `known` spells it out.
pub(super) fn element_type(known: Option<&'static str>) -> Option<&'static str> {
    let known = known?;
    known.strip_prefix("[]").or_else(|| known.strip_prefix("map[")?.split_once(']').map(|(_, value)| value))
}

#[derive(Deserialize)]
struct Facts<'a> {
    #[serde(borrow)]
    definitions: HashMap<&'a str, RawStruct<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawStruct<'a> {
    #[serde(borrow)]
    pointers: Vec<&'a str>,
    always: Vec<&'a str>,
    types: HashMap<&'a str, &'a str>,
    inline: std::collections::BTreeMap<&'a str, Vec<&'a str>>,
    proto: HashMap<&'a str, &'a str>,
}

static FACTS: &str = include_str!("../../facts/go-fields-1.36.json");

static TABLE: LazyLock<HashMap<&'static str, GoStruct>> = LazyLock::new(|| {
    let facts: Facts<'static> =
        serde_json::from_str(FACTS).expect("invariant: the embedded facts table is well-formed");
    facts.definitions.into_iter().map(|(name, raw)| (name, convert(raw))).collect()
});

fn convert(raw: RawStruct<'static>) -> GoStruct {
    let mut fields: HashMap<&'static str, GoField> = HashMap::new();
    for name in raw.pointers {
        fields.entry(name).or_default().pointer = true;
    }
    for name in &raw.always {
        fields.entry(name).or_default().always = true;
    }
    for (name, type_name) in raw.types {
        fields.entry(name).or_default().type_name = Some(type_name);
    }
    for (embedded, names) in &raw.inline {
        for name in names {
            fields.entry(name).or_default().via = Some(embedded);
        }
    }
    for (name, proto_name) in raw.proto {
        fields.entry(name).or_default().proto_name = Some(proto_name);
    }
    GoStruct { fields, always: raw.always }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;

    #[test]
    fn facts_name_known_fields_only() {
        for (name, go) in TABLE.iter() {
            let schema = builtin::definition(builtin::by_name(name).expect("a definition"));
            for field in go.fields.keys() {
                assert!(schema.properties.contains_key(*field), "{name} has no {field}");
            }
        }
        assert!(TABLE.len() > 500);
    }

    #[test]
    fn every_struct_with_a_schema_has_facts() {
        let fields: serde_json::Value =
            serde_json::from_str(include_str!("../../facts/fields-1.36.json")).expect("well-formed");
        for name in fields["definitions"].as_object().expect("definitions").keys() {
            let schema = builtin::definition(builtin::by_name(name).expect("a definition"));
            if !is_struct(schema) {
                continue;
            }
            assert!(
                TABLE.contains_key(name.as_str()),
                "{name} is not in the table: facts/README.md says how it is made"
            );
        }
    }

    #[test]
    fn types_are_named_as_reflect_names_them() {
        let pod_spec = builtin::definition(builtin::by_name("io.k8s.api.core.v1.PodSpec").expect("PodSpec"));
        for (field, expected) in [
            ("containers", "[]v1.Container"),
            ("nodeSelector", "map[string]string"),
            ("restartPolicy", "v1.RestartPolicy"),
            ("overhead", "v1.ResourceList"),
            ("priority", "int32"),
        ] {
            let known = struct_of("io.k8s.api.core.v1.PodSpec").field(field).type_name;
            assert_eq!(type_name(pod_spec.field(field).expect(field), known), expected);
        }
        assert_eq!(element_type(Some("map[v1.ResourceName]v1.ClaimResourceStatus")), Some("v1.ClaimResourceStatus"));
    }
}
