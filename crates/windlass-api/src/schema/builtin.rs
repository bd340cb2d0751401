//! Schemas of the built-in kinds, read once from `facts/fields-1.36.json`.
//!
//! Definitions refer to each other by index, and may be recursive (a CRD's schema contains itself).

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use super::{ListType, PatchStrategy, Schema, SchemaRef, Type};

/// Which built-in definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DefinitionId(u32);

/// The schema of a definition.
pub fn definition(id: DefinitionId) -> &'static Schema {
    &TABLE.schemas[id.0 as usize]
}

/// The definition called `name`, e.g. `io.k8s.api.core.v1.Pod`.
pub fn by_name(name: &str) -> Option<DefinitionId> {
    TABLE.by_name.get(name).copied()
}

/// The definition of a kind. The core group is the empty string.
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<DefinitionId> {
    TABLE.by_kind.get(format!("{group}/{version}/{kind}").as_str()).copied()
}

/// Every definition with its name, in name order.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = (&'static str, DefinitionId)> {
    TABLE.schemas.iter().enumerate().filter_map(|(i, schema)| Some((schema.name?, DefinitionId(i as u32))))
}

/// The definition of `ObjectMeta`.
pub(crate) fn object_meta_id() -> DefinitionId {
    TABLE.object_meta
}

/// The schema of `ObjectMeta`, which custom resources share with built-in kinds.
pub fn object_meta() -> &'static Schema {
    definition(TABLE.object_meta)
}

struct Table {
    schemas: Vec<Schema>,
    by_name: HashMap<&'static str, DefinitionId>,
    by_kind: HashMap<String, DefinitionId>,
    object_meta: DefinitionId,
}

#[derive(Deserialize)]
struct Facts<'a> {
    #[serde(borrow)]
    definitions: std::collections::BTreeMap<&'a str, RawSchema>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawSchema {
    gvk: Vec<String>,
    properties: std::collections::BTreeMap<Box<str>, RawSchema>,
    #[serde(rename = "type")]
    ty: Option<String>,
    format: Option<Box<str>>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    items: Option<Box<RawSchema>>,
    #[serde(rename = "additionalProperties")]
    additional: Option<Box<RawSchema>>,
    required: Vec<Box<str>>,
    default: Option<Value>,
    #[serde(rename = "enum")]
    enumeration: Vec<Value>,
    #[serde(rename = "oneOf")]
    one_of: Vec<Value>,
    #[serde(rename = "x-kubernetes-list-type")]
    list_type: Option<String>,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    list_map_keys: Vec<Box<str>>,
    #[serde(rename = "x-kubernetes-map-type")]
    map_type: Option<String>,
    #[serde(rename = "x-kubernetes-patch-strategy")]
    patch_strategy: Option<String>,
    #[serde(rename = "x-kubernetes-patch-merge-key")]
    patch_merge_key: Option<Box<str>>,
}

static FACTS: &str = include_str!("../../facts/fields-1.36.json");

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let facts: Facts<'static> =
        serde_json::from_str(FACTS).expect("invariant: the embedded facts table is well-formed");
    let names: Vec<&'static str> = facts.definitions.keys().copied().collect();
    let by_name: HashMap<&'static str, DefinitionId> =
        names.iter().enumerate().map(|(i, name)| (*name, DefinitionId(i as u32))).collect();
    let by_kind = facts
        .definitions
        .iter()
        .flat_map(|(name, raw)| raw.gvk.iter().map(|gvk| (gvk.clone(), by_name[name])))
        .collect();
    let schemas = facts
        .definitions
        .iter()
        .map(|(name, raw)| Schema { name: Some(name), ..convert(raw, &facts, &by_name) })
        .collect();
    let object_meta = by_name["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"];
    Table { schemas, by_name, by_kind, object_meta }
});

fn reference(raw: &RawSchema, facts: &Facts<'_>, by_name: &HashMap<&'static str, DefinitionId>) -> SchemaRef {
    let Some(target) = raw.reference.as_deref() else { return convert(raw, facts, by_name).into() };
    let id = by_name[target];
    if raw.patch_strategy.is_none() && raw.map_type.is_none() {
        return SchemaRef::Definition { id, always: raw.default.is_some() };
    }
    // The few places of use that say more than their definition get a copy of it.
    let mut schema = convert(&facts.definitions[target], facts, by_name);
    schema.name = by_name.get_key_value(target).map(|(name, _)| *name);
    schema.default.clone_from(&raw.default);
    schema.patch = patch_strategy(raw);
    if let Some(map_type) = &raw.map_type {
        schema.atomic = map_type == "atomic";
    }
    schema.into()
}

fn convert(raw: &RawSchema, facts: &Facts<'_>, by_name: &HashMap<&'static str, DefinitionId>) -> Schema {
    let ty = match (raw.ty.as_deref(), raw.format.as_deref()) {
        (_, Some("int-or-string")) => Type::IntOrString,
        (Some("object"), _) => Type::Object,
        (Some("array"), _) => Type::Array,
        (Some("string"), _) => Type::String,
        (Some("integer"), _) => Type::Integer,
        (Some("number"), _) => Type::Number,
        (Some("boolean"), _) => Type::Boolean,
        _ if !raw.one_of.is_empty() => Type::Quantity,
        _ => Type::Any,
    };
    let below = |raw: &RawSchema| reference(raw, facts, by_name);
    let open_object = ty == Type::Object && raw.properties.is_empty() && raw.additional.is_none();
    Schema {
        ty,
        format: raw.format.clone(),
        properties: raw.properties.iter().map(|(name, raw)| (name.clone(), below(raw))).collect(),
        additional: raw.additional.as_deref().map(below),
        items: raw.items.as_deref().map(below),
        required: raw.required.clone(),
        default: raw.default.clone(),
        enumeration: raw.enumeration.clone(),
        list_type: match raw.list_type.as_deref() {
            Some("map") => ListType::Map(raw.list_map_keys.clone()),
            Some("set") => ListType::Set,
            _ => ListType::Atomic,
        },
        atomic: raw.map_type.as_deref() == Some("atomic"),
        patch: patch_strategy(raw),
        preserve_unknown: open_object || ty == Type::Any,
        ..Schema::default()
    }
}

fn patch_strategy(raw: &RawSchema) -> PatchStrategy {
    let strategies = raw.patch_strategy.as_deref().unwrap_or_default();
    PatchStrategy {
        merge: strategies.split(',').any(|s| s == "merge"),
        retain_keys: strategies.split(',').any(|s| s == "retainKeys"),
        merge_key: raw.patch_merge_key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_and_its_fields_resolve() {
        let pod = definition(by_kind("", "v1", "Pod").expect("Pod is built in"));
        let containers = pod.field("spec").and_then(|s| s.field("containers")).expect("spec.containers");
        assert_eq!(containers.list_type, ListType::Map(vec!["name".into()]));
        assert_eq!(containers.patch.merge_key.as_deref(), Some("name"));
        let image = containers.items.as_ref().and_then(|c| c.field("image")).expect("image");
        assert_eq!(image.ty, Type::String);
    }

    #[test]
    fn every_reference_resolves() {
        for (_, id) in all() {
            for property in definition(id).properties.values() {
                let _ = property.ty;
            }
        }
    }
}
