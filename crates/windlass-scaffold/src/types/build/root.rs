//! The object itself: where its spec and its status are.

use serde_json::{Map, Value};

use super::{Builder, alternatives, description, effective};
use crate::types::definition::{Definition, DefinitionVersion};
use crate::types::model::{Item, ItemId, Keywords, Root, Status, Type};
use crate::types::normal;

/// What every object has, whether its schema says so or not.
const IMPLIED: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn build(
    builder: &mut Builder,
    definition: &Definition,
    version: &DefinitionVersion,
    schema: &Map<String, Value>,
) -> Root {
    let mut keywords = effective(schema);
    let mut properties = match keywords.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let mut implied = Keywords::new();
    for name in IMPLIED {
        if let Some(Value::Object(schema)) = properties.remove(name)
            && !normal::is_implied(name, &schema)
        {
            implied.insert(name.to_owned(), Value::Object(normal::without_prose(&schema)));
        }
    }
    keywords.remove("type");
    let open = keywords.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    // `kube` puts the status beside the spec only if it is a subresource.
    let has_status = version.has_status();
    let beside = |name: &&String| !(*name == "spec" || has_status && *name == "status");
    let flat = open || !properties.contains_key("spec") || properties.keys().any(|name| beside(&name));
    let status = match properties.get("status").and_then(Value::as_object) {
        Some(schema) if has_status => Status::Item(root_item(builder, schema)),
        _ if has_status => Status::Unknown,
        _ => Status::None,
    };
    if has_status {
        properties.remove("status");
    }
    let spec = if flat {
        let names = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut item = keywords.clone();
        item.retain(|key, _| matches!(key.as_str(), "required" | "x-kubernetes-preserve-unknown-fields"));
        if let Some(required) = item.get_mut("required") {
            let mut list = names(required);
            list.retain(|name| name.as_str().is_some_and(|name| properties.contains_key(name)));
            *required = Value::Array(list);
        }
        item.insert("properties".into(), Value::Object(properties));
        let item = builder.structure(item);
        builder.push(item, &format!("The fields of a {} beside its metadata.", definition.kind))
    } else {
        let empty = Map::new();
        root_item(builder, properties.get("spec").and_then(Value::as_object).unwrap_or(&empty))
    };
    Root {
        name: String::new(),
        description: description(schema).to_owned(),
        spec,
        flat,
        status,
        keywords: alternatives::kept(keywords),
        implied,
    }
}

/// An item for a schema whatever it is, used nowhere else.
fn root_item(builder: &mut Builder, schema: &Map<String, Value>) -> ItemId {
    let usage = builder.usage(schema);
    let text = description(schema);
    let item = match usage.kind {
        // Another field may have the same type; the kind has one of its own, with the keywords of its place.
        Type::Item(id) => {
            let mut item = builder.items[id].item.clone();
            match &mut item {
                Item::Struct { keywords, .. }
                | Item::Strings { keywords, .. }
                | Item::OneOf { keywords, .. }
                | Item::Wrapper { keywords, .. } => keywords.extend(usage.keywords),
            }
            item
        }
        _ => Item::Wrapper { usage, keywords: Keywords::new() },
    };
    builder.push(item, text)
}
