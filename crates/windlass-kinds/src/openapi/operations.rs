//! The paths of a resource and the operations on them.
//!
//! Clients look here for three things: the kind behind a path, whether a query parameter (`fieldValidation`,
//! `dryRun`) is understood, and which patch types are taken.

use serde_json::{Map, Value, json};

use super::Dialect;
use super::definitions::{DELETE_OPTIONS, Gvk, PATCH, RESOURCE_LIST, STATUS, gvk_value, kind_name, list_name};
use crate::discovery::subresource_group_version;
use crate::resource::{Resource, Subresource};
use crate::schema::builtin;

/// A path and what can be done with it.
pub(super) type Path = (String, Value);

/// The document's own path, which lists its resources.
pub(super) fn resource_list(group: &str, version: &str, dialect: Dialect) -> Path {
    let operation = Operation {
        id: format!("get{}APIResources", camel(group, version)),
        description: "get available resources".to_owned(),
        tag: tag(group, version),
        action: "",
        gvk: None,
        custom: true,
        watchable: false,
        parameters: Vec::new(),
        body: None,
        response: Some(RESOURCE_LIST.to_owned()),
        codes: &[200],
    };
    (format!("{}/", prefix(group, version)), json!({"get": operation.render(dialect)}))
}

/// Every path of a resource and its subresources.
pub(super) fn paths(resource: &Resource, dialect: Dialect) -> Vec<Path> {
    let root = prefix(&resource.group, &resource.version);
    let scoped = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{root}/{}", resource.plural)
    };
    let named = format!("{scoped}/{{name}}");
    let mut out = Vec::new();
    let mut push = |path: String, operations: Vec<(&'static str, Operation)>| {
        if operations.is_empty() {
            return;
        }
        let mut item: Map<String, Value> =
            operations.into_iter().map(|(method, operation)| (method.to_owned(), operation.render(dialect))).collect();
        item.insert("parameters".into(), path_parameters(&path, resource, dialect));
        out.push((path, item.into()));
    };
    if resource.namespaced && resource.serves("list") {
        let mut list = operation(resource, "list");
        list.id = format!("list{}{}ForAllNamespaces", camel(&resource.group, &resource.version), resource.kind);
        push(format!("{root}/{}", resource.plural), vec![("get", list)]);
    }
    let served = |verbs: &[(&'static str, &'static str)]| {
        let served = verbs.iter().filter(|(verb, _)| resource.serves(verb));
        served.map(|(verb, method)| (*method, operation(resource, verb))).collect::<Vec<_>>()
    };
    push(scoped, served(&[("list", "get"), ("create", "post"), ("deletecollection", "delete")]));
    push(named.clone(), served(&[("get", "get"), ("update", "put"), ("patch", "patch"), ("delete", "delete")]));
    for sub in &resource.subresources {
        let methods = [("get", "get"), ("update", "put"), ("patch", "patch"), ("create", "post"), ("delete", "delete")];
        let operations = methods
            .into_iter()
            .filter(|(verb, _)| sub.verbs.iter().any(|served| &**served == *verb))
            .map(|(verb, method)| (method, subresource_operation(resource, sub, verb)))
            .collect();
        push(format!("{named}/{}", sub.name), operations);
    }
    out
}

struct Operation {
    id: String,
    description: String,
    tag: String,
    action: &'static str,
    gvk: Option<Value>,
    custom: bool,
    watchable: bool,
    parameters: Vec<(&'static str, &'static str)>,
    body: Option<Body>,
    /// The definition of the answer; none for text.
    response: Option<String>,
    codes: &'static [u16],
}

enum Body {
    Object(String),
    Patch,
    DeleteOptions,
}

/// An operation on the resource itself.
fn operation(resource: &Resource, verb: &str) -> Operation {
    let kind = kind_name(resource);
    let gvk = (&*resource.group, &*resource.version, &*resource.kind);
    let mut operation = describe(resource, verb, gvk, Some(kind), "");
    if verb == "list" {
        operation.response = Some(list_name(resource));
        operation.watchable = !resource.custom && resource.serves("watch");
    }
    operation
}

fn subresource_operation(resource: &Resource, sub: &Subresource, verb: &str) -> Operation {
    let (group, version) = subresource_group_version(sub);
    let connects = sub.kind.ends_with("Options");
    let kind = if connects || &*sub.name == "log" {
        None
    } else if sub.kind == resource.kind {
        Some(kind_name(resource))
    } else {
        let id = builtin::by_kind(group, version, &sub.kind);
        id.and_then(|id| builtin::definition(id).name).map(str::to_owned)
    };
    let mut operation = describe(resource, verb, (group, version, &sub.kind), kind, &sub.name);
    if connects {
        let method = match verb {
            "create" => "Post",
            "update" => "Put",
            "patch" => "Patch",
            "delete" => "Delete",
            _ => "Get",
        };
        let scope = if resource.namespaced { "Namespaced" } else { "" };
        let gv = camel(&resource.group, &resource.version);
        operation.id = format!("connect{gv}{method}{scope}{}{}", resource.kind, capitalized(&sub.name));
        operation.action = "connect";
        operation.body = None;
        operation.parameters = Vec::new();
        operation.codes = &[200];
    }
    operation
}

fn describe(resource: &Resource, verb: &str, gvk: Gvk<'_>, kind: Option<String>, sub: &str) -> Operation {
    let (action, word, codes): (_, _, &'static [u16]) = match verb {
        "list" => ("list", "list", &[200]),
        "create" => ("post", "create", &[200, 201, 202]),
        "update" => ("put", "replace", &[200, 201]),
        "patch" => ("patch", "patch", &[200, 201]),
        "delete" => ("delete", "delete", &[200, 202]),
        "deletecollection" => ("deletecollection", "delete", &[200]),
        _ => ("get", "read", &[200]),
    };
    let what = if sub.is_empty() { resource.kind.to_string() } else { format!("{sub} of the {}", resource.kind) };
    let description = match verb {
        "list" => format!("list or watch objects of kind {what}"),
        "deletecollection" => format!("delete collection of {what}"),
        "patch" => format!("partially update the specified {what}"),
        _ => format!("{word} the specified {what}"),
    };
    let body = match verb {
        "create" | "update" => kind.clone().map(Body::Object),
        "patch" => Some(Body::Patch),
        "delete" | "deletecollection" => Some(Body::DeleteOptions),
        _ => None,
    };
    let response = if matches!(verb, "delete" | "deletecollection") { Some(STATUS.to_owned()) } else { kind };
    let collection = if verb == "deletecollection" { "Collection" } else { "" };
    let scope = if resource.namespaced { "Namespaced" } else { "" };
    let gv = camel(&resource.group, &resource.version);
    Operation {
        id: format!("{word}{gv}{collection}{scope}{}{}", resource.kind, capitalized(sub)),
        description,
        tag: tag(&resource.group, &resource.version),
        action,
        gvk: Some(gvk_value(gvk)),
        custom: resource.custom,
        watchable: false,
        parameters: query_parameters(verb),
        body,
        response,
        codes,
    }
}

fn query_parameters(verb: &str) -> Vec<(&'static str, &'static str)> {
    const LIST: [(&str, &str); 10] = [
        ("allowWatchBookmarks", "boolean"),
        ("continue", "string"),
        ("fieldSelector", "string"),
        ("labelSelector", "string"),
        ("limit", "integer"),
        ("resourceVersion", "string"),
        ("resourceVersionMatch", "string"),
        ("sendInitialEvents", "boolean"),
        ("timeoutSeconds", "integer"),
        ("watch", "boolean"),
    ];
    const WRITE: [(&str, &str); 3] = [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
    const DELETE: [(&str, &str); 4] = [
        ("dryRun", "string"),
        ("gracePeriodSeconds", "integer"),
        ("orphanDependents", "boolean"),
        ("propagationPolicy", "string"),
    ];
    match verb {
        "list" => LIST.to_vec(),
        "create" | "update" => WRITE.to_vec(),
        "patch" => WRITE.into_iter().chain([("force", "boolean")]).collect(),
        "delete" => DELETE.to_vec(),
        "deletecollection" => {
            let lists = LIST.into_iter().filter(|(name, _)| !matches!(*name, "allowWatchBookmarks" | "watch"));
            lists.chain(DELETE).collect()
        }
        _ => Vec::new(),
    }
}

fn path_parameters(path: &str, resource: &Resource, dialect: Dialect) -> Value {
    let mut out = Vec::new();
    if path.contains("{name}") {
        let about = format!("name of the {}", resource.kind);
        out.push(parameter("path", "name", "string", Some(&about), dialect));
    }
    if path.contains("{namespace}") {
        let about = "object name and auth scope, such as for teams and projects";
        out.push(parameter("path", "namespace", "string", Some(about), dialect));
    }
    out.push(parameter("query", "pretty", "string", None, dialect));
    out.into()
}

fn parameter(place: &str, name: &str, ty: &str, description: Option<&str>, dialect: Dialect) -> Value {
    let mut out = match dialect {
        Dialect::V2 => json!({"in": place, "name": name, "type": ty, "uniqueItems": true}),
        Dialect::V3 => json!({"in": place, "name": name, "schema": {"type": ty, "uniqueItems": true}}),
    };
    if place == "path" {
        out["required"] = true.into();
    }
    if let Some(description) = description {
        out["description"] = description.into();
    }
    out
}

impl Operation {
    fn render(self, dialect: Dialect) -> Value {
        let parameters: Vec<Value> =
            self.parameters.iter().map(|(name, ty)| parameter("query", name, ty, None, dialect)).collect();
        let mut out = json!({
            "description": self.description,
            "operationId": self.id,
            "tags": [self.tag],
            "responses": self.responses(dialect),
        });
        if !parameters.is_empty() {
            out["parameters"] = parameters.into();
        }
        match dialect {
            Dialect::V2 => self.media_types_v2(&mut out),
            Dialect::V3 => self.request_body_v3(&mut out),
        }
        if !self.action.is_empty() {
            out["x-kubernetes-action"] = self.action.into();
        }
        if let Some(gvk) = self.gvk {
            out["x-kubernetes-group-version-kind"] = gvk;
        }
        out
    }

    fn produces(&self) -> Vec<&'static str> {
        if self.response.is_none() {
            return vec!["*/*"];
        }
        let mut types = vec!["application/json", "application/yaml"];
        if !self.custom {
            types.push("application/vnd.kubernetes.protobuf");
        }
        if self.watchable {
            types.extend(["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"]);
        }
        types
    }

    fn patch_types(&self) -> Vec<&'static str> {
        let mut types =
            vec!["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
        // Custom resources have no Go struct tags to say how their lists merge.
        if !self.custom {
            types.push("application/strategic-merge-patch+json");
        }
        types
    }

    fn responses(&self, dialect: Dialect) -> Value {
        let mut out = Map::new();
        for code in self.codes {
            let text = match code {
                201 => "Created",
                202 => "Accepted",
                _ => "OK",
            };
            let schema = match &self.response {
                Some(name) => json!({"$ref": dialect.reference(name)}),
                None => json!({"type": "string"}),
            };
            let response = match dialect {
                Dialect::V2 => json!({"description": text, "schema": schema}),
                Dialect::V3 => json!({"description": text, "content": content(&self.produces(), &schema)}),
            };
            out.insert(code.to_string(), response);
        }
        out.insert("401".into(), json!({"description": "Unauthorized"}));
        out.into()
    }

    fn media_types_v2(&self, out: &mut Value) {
        out["produces"] = self.produces().into();
        out["schemes"] = json!(["https"]);
        let (schema, required) = match &self.body {
            None => {
                out["consumes"] = json!(["*/*"]);
                return;
            }
            Some(Body::Object(name)) => (name.as_str(), true),
            Some(Body::Patch) => (PATCH, true),
            Some(Body::DeleteOptions) => (DELETE_OPTIONS, false),
        };
        out["consumes"] = match &self.body {
            Some(Body::Patch) => self.patch_types().into(),
            _ => json!(["*/*"]),
        };
        let mut body = json!({"in": "body", "name": "body", "schema": {"$ref": Dialect::V2.reference(schema)}});
        if required {
            body["required"] = true.into();
        }
        match &mut out["parameters"] {
            Value::Array(parameters) => parameters.insert(0, body),
            absent => *absent = json!([body]),
        }
    }

    fn request_body_v3(&self, out: &mut Value) {
        let (schema, types, required) = match &self.body {
            None => return,
            Some(Body::Object(name)) => (name.as_str(), vec!["*/*"], true),
            Some(Body::Patch) => (PATCH, self.patch_types(), true),
            Some(Body::DeleteOptions) => (DELETE_OPTIONS, vec!["*/*"], false),
        };
        let schema = json!({"$ref": Dialect::V3.reference(schema)});
        let mut body = json!({"content": content(&types, &schema)});
        if required {
            body["required"] = true.into();
        }
        out["requestBody"] = body;
    }
}

fn content(types: &[&str], schema: &Value) -> Value {
    types.iter().map(|ty| ((*ty).to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
}

fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// `AppsV1`, `RbacAuthorizationV1`, `CoreV1`: how operations are named after their group version.
fn camel(group: &str, version: &str) -> String {
    let group = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
    group.split(['.', '-']).map(capitalized).chain([capitalized(version)]).collect()
}

fn tag(group: &str, version: &str) -> String {
    let camel = camel(group, "");
    let mut chars = camel.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    format!("{}{}_{version}", first.map(String::from).unwrap_or_default(), chars.as_str())
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + chars.as_str())
}
