//! The OpenAPI documents of other servers, as parts of this server's.
//!
//! Version 2 is one document about everything, so that of another server is cut down to its group version and added.
//! A definition that means something else here gets another name, as upstream's
//! `MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters` gives it. Version 3 has a document for each group version,
//! which clients are passed on to; a server without version 3 has its version 2 converted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::Remotes;
use crate::openapi::descriptions::DescribeDefinitions;
use crate::openapi::v2::{self, Additions};
use crate::resource::Resource;
use crate::validation::access::Access as _;

const DEFINITIONS: &str = "#/definitions/";
const SCHEMAS: &str = "#/components/schemas/";
/// Where an index has the converted document of a server without version 3.
pub(crate) const CONVERTED: &str = "document";
const KINDS: &str = "x-kubernetes-group-version-kind";

/// The part of a version 2 document that is about a group version.
pub(crate) fn filtered(document: &Value, group: &str, version: &str) -> Value {
    let prefix = format!("/apis/{group}/{version}/");
    let empty = Map::new();
    let all = |field: &str| document.get(field).and_then(Value::as_object).unwrap_or(&empty);
    let paths: Map<String, Value> = all("paths")
        .iter()
        .filter(|(path, _)| path.starts_with(&prefix))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let mut names = BTreeSet::new();
    let mut open: Vec<&Value> = paths.values().collect();
    while let Some(value) = open.pop() {
        each_reference(value, &mut |name| {
            if let Some(definition) = all("definitions").get(name)
                && names.insert(name.to_owned())
            {
                open.push(definition);
            }
        });
    }
    let definitions: Map<String, Value> = all("definitions")
        .iter()
        .filter(|(name, _)| names.contains(*name))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    json!({"paths": paths, "definitions": definitions})
}

/// A version 2 document as version 3. What version 3 says differently is said as upstream's `openapiconv` says it.
pub(crate) fn converted(document: &Value) -> Value {
    let mut paths = document.get("paths").cloned().unwrap_or_else(|| json!({}));
    for item in paths.as_object_mut().into_iter().flat_map(Map::values_mut) {
        for (key, part) in item.as_object_mut().into_iter().flatten() {
            match key.as_str() {
                "parameters" => drop(convert_parameters(part)),
                _ if part.get("responses").is_some() => convert_operation(part),
                _ => {}
            }
        }
    }
    let mut schemas = document.get("definitions").cloned().unwrap_or_else(|| json!({}));
    for part in [&mut paths, &mut schemas] {
        map_references(part, &mut |name| Some(format!("{SCHEMAS}{name}")));
    }
    json!({
        "openapi": "3.0.0", "info": document.get("info").unwrap_or(&Value::Null), "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn convert_operation(operation: &mut Value) {
    let types = |field: &str| -> Vec<String> {
        let named: Vec<String> = operation.texts(field).into_iter().map(Into::into).collect();
        if named.is_empty() { vec!["application/json".to_owned()] } else { named }
    };
    let (produces, consumes) = (types("produces"), types("consumes"));
    let body = operation.get_mut("parameters").and_then(convert_parameters);
    if let Some(body) = body {
        let content: Map<String, Value> =
            consumes.into_iter().map(|kind| (kind, json!({"schema": body["schema"]}))).collect();
        operation["requestBody"] = json!({ "content": content });
        if body.flag("required") {
            operation["requestBody"]["required"] = true.into();
        }
    }
    for response in operation.get_mut("responses").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
    {
        let Some(schema) = response.as_object_mut().and_then(|response| response.remove("schema")) else { continue };
        let content: Map<String, Value> =
            produces.iter().map(|kind| (kind.clone(), json!({"schema": schema}))).collect();
        response["content"] = content.into();
    }
    if let Some(operation) = operation.as_object_mut() {
        for field in ["consumes", "produces", "schemes"] {
            operation.remove(field);
        }
    }
}

/// Gives parameters a schema; the body is none of them any more.
fn convert_parameters(parameters: &mut Value) -> Option<Value> {
    let Value::Array(parameters) = parameters else { return None };
    let body = parameters.iter().position(|parameter| parameter.text("in") == "body").map(|i| parameters.remove(i));
    for parameter in parameters.iter_mut().filter_map(Value::as_object_mut) {
        let mut schema = Map::new();
        for field in ["type", "format", "items", "default", "enum", "uniqueItems", "minimum", "maximum", "pattern"] {
            if let Some(value) = parameter.remove(field) {
                schema.insert(field.to_owned(), value);
            }
        }
        if !schema.is_empty() {
            parameter.insert("schema".to_owned(), schema.into());
        }
    }
    body
}

/// Adds the paths of other servers to the version 3 index.
pub(crate) fn merge_index(remotes: &Remotes, index: &mut Value) {
    let Some(paths) = index.get_mut("paths").and_then(Value::as_object_mut) else { return };
    for remote in remotes.all() {
        let own = format!("apis/{}/{}", remote.group, remote.version);
        for (path, entry) in &remote.known.openapi_v3 {
            // Other servers often have documents about what every server has.
            if *path != own && paths.contains_key(path) {
                continue;
            }
            let entry = match entry.get(CONVERTED) {
                Some(document) => {
                    let digest = Sha256::digest(document.to_string());
                    let hash = digest.iter().fold(String::new(), |text, byte| format!("{text}{byte:02X}"));
                    json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")})
                }
                None => entry.clone(),
            };
            paths.insert(path.clone(), entry);
        }
    }
}

/// The version 3 document of a server that has only version 2.
pub(crate) fn converted_document<'a>(remotes: &'a Remotes, path: &str) -> Option<&'a Value> {
    remotes.with_openapi_v3(path)?.known.openapi_v3.get(path)?.get(CONVERTED)
}

/// What these servers add to the document about `resources`, with other names where definitions of this server have theirs.
pub(crate) fn additions<'a>(
    remotes: &Remotes,
    resources: impl IntoIterator<Item = &'a Resource>,
    describe: Option<&DescribeDefinitions>,
) -> Additions {
    let documents = || remotes.all().filter_map(|remote| remote.known.openapi_v2.as_deref());
    let names = documents().filter_map(|document| document.get("definitions")?.as_object()).flat_map(Map::keys);
    let local = v2::definitions(resources, &names.cloned().collect(), describe);
    merged(documents(), &local)
}

/// Adds documents one by one. `local` says what a definition is in this server.
fn merged<'d>(documents: impl Iterator<Item = &'d Value>, local: &BTreeMap<String, Value>) -> Additions {
    let mut additions = Additions::default();
    documents.for_each(|document| add(&mut additions, document, local));
    additions
}

fn add(additions: &mut Additions, document: &Value, local: &BTreeMap<String, Value>) {
    let mut document = document.clone();
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    for (name, definition) in document.get("definitions").and_then(Value::as_object).into_iter().flatten() {
        let taken = |name: &str| local.get(name).or_else(|| additions.definitions.get(name)).cloned();
        if taken(name).is_some_and(|other| !is_same(&other, definition)) {
            let free = |number: &u32| {
                let other = taken(&format!("{name}_v{number}"));
                other.is_none_or(|other| is_same(&other, definition))
            };
            let number = (2..u32::MAX).find(free).unwrap_or(2);
            renamed.insert(name.clone(), format!("{name}_v{number}"));
        }
    }
    if !renamed.is_empty() {
        map_references(&mut document, &mut |name| renamed.get(name).map(|new| format!("{DEFINITIONS}{new}")));
    }
    let mut part = |field: &str| match document.get_mut(field).map(Value::take) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    for (path, item) in part("paths") {
        additions.paths.entry(path).or_insert(item);
    }
    for (name, definition) in part("definitions") {
        let name = renamed.get(&name).cloned().unwrap_or(name);
        if !local.contains_key(&name) {
            additions.definitions.entry(name).or_insert(definition);
        }
    }
}

/// Whether two definitions say the same, whatever kinds they are of.
fn is_same(a: &Value, b: &Value) -> bool {
    let plain = |value: &Value| {
        let mut value = value.clone();
        if let Some(map) = value.as_object_mut() {
            map.remove(KINDS);
        }
        value
    };
    plain(a) == plain(b)
}

fn each_reference(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix(DEFINITIONS))
            {
                visit(name);
            }
            map.values().for_each(|value| each_reference(value, visit));
        }
        Value::Array(items) => items.iter().for_each(|value| each_reference(value, visit)),
        _ => {}
    }
}

fn map_references(value: &mut Value, change: &mut impl FnMut(&str) -> Option<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some(changed) = reference.strip_prefix(DEFINITIONS).and_then(&mut *change)
            {
                *reference = changed;
            }
            map.values_mut().for_each(|value| map_references(value, change));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| map_references(value, change)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Value {
        let reference = |name: &str| json!({"schema": {"$ref": format!("#/definitions/{name}")}});
        let operation = json!({
            "consumes": ["*/*"], "produces": ["application/json"],
            "parameters": [{"in": "body", "name": "body", "required": true, "schema": {"$ref": "#/definitions/Used"}},
                {"in": "query", "name": "limit", "type": "integer"}],
            "responses": {"200": reference("Used")},
        });
        json!({
            "info": {"title": "t"},
            "paths": {"/apis/g/v1/": {"get": operation}, "/apis/g/v2/": {"get": {"responses": {"200": reference("Other")}}}},
            "definitions": {
                "Used": {"properties": {"deep": {"$ref": "#/definitions/Deep"}}}, "Deep": {"type": "string"}, "Other": {},
            },
        })
    }

    #[test]
    fn a_document_is_cut_down_to_a_group_version() {
        let part = filtered(&document(), "g", "v1");
        let names = |field: &str| part[field].as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
        assert_eq!(names("paths"), ["/apis/g/v1/"]);
        assert_eq!(names("definitions"), ["Deep", "Used"]);
    }

    #[test]
    fn a_definition_that_means_something_else_is_renamed() {
        let mut additions = Additions::default();
        let local = BTreeMap::from([("Deep".to_owned(), json!({"type": "integer"}))]);
        add(&mut additions, &filtered(&document(), "g", "v1"), &local);
        assert_eq!(additions.definitions.keys().collect::<Vec<_>>(), ["Deep_v2", "Used"]);
        assert_eq!(additions.definitions["Used"]["properties"]["deep"]["$ref"], "#/definitions/Deep_v2");
    }

    #[test]
    fn version_two_is_converted_to_version_three() {
        let converted = converted(&filtered(&document(), "g", "v1"));
        let get = &converted["paths"]["/apis/g/v1/"]["get"];
        let schema = json!({"$ref": "#/components/schemas/Used"});
        assert_eq!(get["requestBody"], json!({"content": {"*/*": {"schema": schema}}, "required": true}));
        assert_eq!(get["responses"]["200"]["content"]["application/json"]["schema"], schema);
        assert_eq!(get["parameters"], json!([{"in": "query", "name": "limit", "schema": {"type": "integer"}}]));
        assert_eq!(
            converted["components"]["schemas"]["Used"]["properties"]["deep"]["$ref"],
            "#/components/schemas/Deep"
        );
    }
}
