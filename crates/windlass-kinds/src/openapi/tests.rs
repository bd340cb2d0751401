//! Documents compared with what clients need and what a v1.36 server answers.

use serde_json::{Value, json};

use super::v2::Additions;
use super::{v2, v3};
use crate::resource::{Resource, Subresource, builtins};
use crate::schema::{Rules, Schema, SchemaRef, Type, Validation};

fn of(group: &str, version: &str) -> Vec<&'static Resource> {
    builtins().iter().filter(|r| (&*r.group, &*r.version) == (group, version)).collect()
}

fn v3_document(group: &str, version: &str, resources: &[&Resource]) -> Value {
    serde_json::from_slice(&v3::document(group, version, resources, None)).expect("valid JSON")
}

fn string() -> Schema {
    Schema { ty: Type::String, ..Schema::default() }
}

fn object(properties: Vec<(&str, Schema)>) -> Schema {
    let properties = properties.into_iter().map(|(name, schema)| (name.into(), SchemaRef::from(schema))).collect();
    Schema { ty: Type::Object, properties, ..Schema::default() }
}

/// The CRD of the conformance scenario `crd-openapi`, and a few fields more.
fn books() -> Resource {
    let title = Schema {
        description: Some("the title".into()),
        rules: Some(Box::new(Rules { max_length: Some(9), ..Rules::default() })),
        ..string()
    };
    let pages =
        Schema { ty: Type::Integer, format: Some("int32".into()), default: Some(3.into()), ..Schema::default() };
    let free = Schema { preserve_unknown: true, ..object(Vec::new()) };
    let spec =
        Schema { required: vec!["title".into()], ..object(vec![("title", title), ("pages", pages), ("free", free)]) };
    let status = object(vec![("x", Schema { ty: Type::Integer, ..Schema::default() })]);
    let extra = object(vec![
        ("maybe", Schema { nullable: true, ..string() }),
        ("port", Schema { ty: Type::IntOrString, ..Schema::default() }),
        ("embedded", Schema { embedded: true, preserve_unknown: true, ..object(Vec::new()) }),
    ]);
    let rules = Rules {
        minimum: Some((1.0, true)),
        any_of: vec![string()],
        validations: vec![Validation { rule: "self.x".into(), message: Some("m".into()), ..Validation::default() }],
        ..Rules::default()
    };
    let extra = Schema { required: vec!["maybe".into()], rules: Some(Box::new(rules)), ..extra };
    let schema = Schema {
        description: Some("A book.".into()),
        ..object(vec![("spec", spec), ("status", status), ("extra", extra)])
    };
    let sub = Subresource {
        name: "status".into(),
        group: "x.example.com".into(),
        version: "v1".into(),
        kind: "Book".into(),
        verbs: vec!["get".into(), "patch".into(), "update".into()],
    };
    Resource {
        group: "x.example.com".into(),
        version: "v1".into(),
        plural: "books".into(),
        singular: "book".into(),
        kind: "Book".into(),
        list_kind: "BookList".into(),
        namespaced: true,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            .map(Into::into)
            .to_vec(),
        subresources: vec![sub],
        schema: schema.into(),
        columns: Vec::new(),
        custom: true,
        prefix: "/registry/x.example.com/books/".into(),
    }
}

/// Every `$ref` in a document.
fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Object(map) => {
            for (key, item) in map {
                match item {
                    Value::String(target) if key == "$ref" => found.push(target),
                    item => references(item, found),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_reference_of_every_document_resolves() {
    let books = books();
    let discovery = crate::discovery::Discovery::new(builtins().iter().chain([&books]));
    for (group, version, resources) in discovery.group_versions() {
        let document = v3_document(group, version, resources);
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for target in found {
            let name = target.strip_prefix("#/components/schemas/").expect(target);
            assert!(document["components"]["schemas"].get(name).is_some(), "{group}/{version}: {target}");
        }
    }
    let document: Value =
        serde_json::from_slice(&v2::json(builtins().iter().chain([&books]), &Additions::default(), None))
            .expect("valid JSON");
    let mut found = Vec::new();
    references(&document, &mut found);
    for target in found {
        let name = target.strip_prefix("#/definitions/").expect(target);
        assert!(document["definitions"].get(name).is_some(), "{target}");
    }
}

#[test]
fn the_index_says_where_documents_are() {
    let apps = of("apps", "v1");
    let index = v3::index([("", "v1", "AB".to_owned()), ("apps", "v1", v3::fingerprint("apps", "v1", &apps, None))]);
    assert_eq!(index["paths"]["api/v1"]["serverRelativeURL"], "/openapi/v3/api/v1?hash=AB");
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap_or_default();
    let hash = url.strip_prefix("/openapi/v3/apis/apps/v1?hash=").expect(url);
    assert_eq!(hash.len(), 64);
    assert!(hash.bytes().all(|b| b.is_ascii_hexdigit()));
}

#[test]
fn a_custom_resources_fingerprint_follows_its_schema() {
    let (one, mut two) = (books(), books());
    two.schema = object(Vec::new()).into();
    let fingerprint = |resource: &Resource| v3::fingerprint("x.example.com", "v1", &[resource], None);
    assert_eq!(fingerprint(&one), fingerprint(&books()));
    assert_ne!(fingerprint(&one), fingerprint(&two));
}

#[test]
fn built_in_operations_tell_kubectl_what_it_asks() {
    let document = v3_document("apps", "v1", &of("apps", "v1"));
    let item = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    let patch = &item["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    assert_eq!(patch["x-kubernetes-action"], "patch");
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
    let names: Vec<&str> =
        patch["parameters"].as_array().expect("a list").iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let content = &patch["requestBody"]["content"];
    assert!(content.get("application/strategic-merge-patch+json").is_some());
    assert!(content.get("application/apply-patch+yaml").is_some());
    assert_eq!(item["get"]["operationId"], "readAppsV1NamespacedDeployment");
    let list = &document["paths"]["/apis/apps/v1/deployments"]["get"];
    assert_eq!(list["operationId"], "listAppsV1DeploymentForAllNamespaces");
    let scale = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]["get"];
    assert_eq!(
        scale["x-kubernetes-group-version-kind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    let collection = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments"];
    assert_eq!(collection["delete"]["x-kubernetes-action"], "deletecollection");
    assert_eq!(collection["delete"]["operationId"], "deleteAppsV1CollectionNamespacedDeployment");
    assert_eq!(collection["post"]["x-kubernetes-action"], "post");
    let core = v3_document("", "v1", &of("", "v1"));
    let exec = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/exec"]["post"];
    assert_eq!(exec["x-kubernetes-action"], "connect");
    assert_eq!(exec["operationId"], "connectCoreV1PostNamespacedPodExec");
}

#[test]
fn built_in_schemas_carry_types_and_merge_rules() {
    let document = v3_document("apps", "v1", &of("apps", "v1"));
    let schemas = &document["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(
        deployment["x-kubernetes-group-version-kind"],
        json!([{"group": "apps", "version": "v1", "kind": "Deployment"}])
    );
    assert_eq!(
        deployment["properties"]["spec"],
        json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}], "default": {}})
    );
    let spec = &schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"];
    assert_eq!(spec["replicas"], json!({"type": "integer", "format": "int32"}));
    assert_eq!(spec["strategy"]["x-kubernetes-patch-strategy"], "retainKeys");
    assert_eq!(
        spec["strategy"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}])
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(
        schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"],
        json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
    );
    assert_eq!(
        schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"],
        json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
    );
    let policy = v3_document("policy", "v1", &of("policy", "v1"));
    assert_eq!(
        policy["components"]["schemas"]["io.k8s.api.policy.v1.PodDisruptionBudgetSpec"]["properties"]["selector"],
        json!({
            "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"}],
            "x-kubernetes-patch-strategy": "replace",
        })
    );
    assert_eq!(
        schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]["x-kubernetes-group-version-kind"],
        json!([
            {"group": "", "version": "v1", "kind": "DeleteOptions"},
            {"group": "apps", "version": "v1", "kind": "DeleteOptions"},
        ])
    );
}

#[test]
fn a_custom_resource_in_v3() {
    let books = books();
    let document = v3_document("x.example.com", "v1", &[&books]);
    assert_eq!(document["openapi"], "3.0.0");
    let book = &document["components"]["schemas"]["com.example.x.v1.Book"];
    assert_eq!(book["type"], "object");
    assert_eq!(book["description"], "A book.");
    assert_eq!(book.get("required"), None);
    assert_eq!(
        book["properties"]["spec"],
        json!({
            "type": "object", "required": ["title"],
            "properties": {
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "pages": {"type": "integer", "format": "int32", "default": 3},
                "title": {"description": "the title", "type": "string", "maxLength": 9},
            },
        })
    );
    assert_eq!(book["properties"]["status"], json!({"type": "object", "properties": {"x": {"type": "integer"}}}));
    assert_eq!(
        book["properties"]["metadata"],
        json!({
            "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/\
                            sig-architecture/api-conventions.md#metadata",
            "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],
        })
    );
    assert_eq!(book["properties"]["kind"]["type"], "string");
    assert_eq!(
        book["x-kubernetes-group-version-kind"],
        json!([{"group": "x.example.com", "version": "v1", "kind": "Book"}])
    );
    let extra = &book["properties"]["extra"];
    assert_eq!(extra["properties"]["maybe"], json!({"type": "string", "nullable": true}));
    assert_eq!(
        extra["properties"]["port"],
        json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true})
    );
    assert_eq!(extra["properties"]["embedded"]["required"], json!(["kind", "apiVersion"]));
    assert_eq!(extra["minimum"], 1);
    assert_eq!(extra["exclusiveMinimum"], true);
    assert_eq!(extra["anyOf"], json!([{"type": "string"}]));
    assert_eq!(extra["x-kubernetes-validations"], json!([{"rule": "self.x", "message": "m"}]));
    let list = &document["components"]["schemas"]["com.example.x.v1.BookList"];
    assert_eq!(list["required"], json!(["items"]));
    assert_eq!(
        list["x-kubernetes-group-version-kind"],
        json!([{"group": "x.example.com", "version": "v1", "kind": "BookList"}])
    );
    let paths = &document["paths"];
    let post = &paths["/apis/x.example.com/v1/namespaces/{namespace}/books"]["post"];
    assert_eq!(post["x-kubernetes-action"], "post");
    assert_eq!(
        post["x-kubernetes-group-version-kind"],
        json!({"group": "x.example.com", "version": "v1", "kind": "Book"})
    );
    let item = "/apis/x.example.com/v1/namespaces/{namespace}/books/{name}";
    assert_eq!(paths[format!("{item}/status")]["get"]["x-kubernetes-action"], "get");
    let patches = &paths[item]["patch"]["requestBody"]["content"];
    assert!(patches.get("application/merge-patch+json").is_some());
    assert!(patches.get("application/strategic-merge-patch+json").is_none());
}

#[test]
fn a_custom_resource_in_v2_is_what_kubectl_can_parse() {
    let books = books();
    let document: Value = serde_json::from_slice(&v2::json([&books], &Additions::default(), None)).expect("valid JSON");
    let book = &document["definitions"]["com.example.x.v1.Book"];
    let spec = &book["properties"]["spec"]["properties"];
    assert_eq!(spec["free"], json!({"x-kubernetes-preserve-unknown-fields": true}));
    assert_eq!(spec["pages"], json!({"type": "integer", "format": "int32"}));
    let extra = &book["properties"]["extra"];
    assert_eq!(extra["properties"]["maybe"], json!({}));
    assert_eq!(extra["properties"]["port"], json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(extra.get("required"), None, "a field that may be null is not required");
    assert_eq!(extra.get("anyOf"), None);
    let mut open = books.clone();
    open.schema = Schema { preserve_unknown: true, ..object(Vec::new()) }.into();
    let document: Value = serde_json::from_slice(&v2::json([&open], &Additions::default(), None)).expect("valid JSON");
    assert_eq!(document["definitions"]["com.example.x.v1.Book"].get("properties"), None);
}

/// A reader of the protobuf wire format, to see what the writer wrote.
mod wire {
    pub(super) enum Field<'a> {
        Varint(u64),
        Fixed,
        Bytes(&'a [u8]),
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (byte, rest) = bytes.split_first().expect("a whole varint");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return value;
            }
            shift += 7;
        }
    }

    pub(super) fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
        let mut out = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let field = match tag & 7 {
                0 => Field::Varint(varint(&mut bytes)),
                1 => {
                    bytes = &bytes[8..];
                    Field::Fixed
                }
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (value, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(value)
                }
                other => panic!("wire type {other}"),
            };
            out.push((tag >> 3, field));
        }
        out
    }

    /// The values of a length-delimited field.
    pub(super) fn all(message: &[u8], number: u64) -> Vec<&[u8]> {
        let of_number = fields(message).into_iter().filter(|(n, _)| *n == number);
        of_number
            .filter_map(|(_, field)| match field {
                Field::Bytes(bytes) => Some(bytes),
                Field::Varint(_) | Field::Fixed => None,
            })
            .collect()
    }

    pub(super) fn one(message: &[u8], number: u64) -> &[u8] {
        let found = all(message, number);
        assert_eq!(found.len(), 1, "field {number}");
        found[0]
    }

    pub(super) fn text(message: &[u8], number: u64) -> String {
        String::from_utf8_lossy(one(message, number)).into_owned()
    }

    /// The value of the entry called `name` among `Named…` messages.
    pub(super) fn entry<'a>(message: &'a [u8], number: u64, name: &str) -> &'a [u8] {
        let found = all(message, number).into_iter().find(|entry| one(entry, 1) == name.as_bytes());
        one(found.unwrap_or_else(|| panic!("no {name}")), 2)
    }

    pub(super) fn flag(message: &[u8], number: u64) -> bool {
        fields(message).iter().any(|(n, field)| *n == number && matches!(field, Field::Varint(1)))
    }
}

#[test]
fn the_protobuf_form_has_what_old_kubectl_reads() {
    let books = books();
    let document = v2::protobuf(builtins().iter().chain([&books]), &Additions::default(), None);
    assert_eq!(wire::text(&document, 1), "2.0");
    assert_eq!(wire::text(wire::one(&document, 2), 1), "Kubernetes");

    let path = "/api/v1/namespaces/{namespace}/pods/{name}";
    let patch = wire::one(wire::entry(wire::one(&document, 8), 2, path), 8);
    assert_eq!(wire::text(patch, 5), "patchCoreV1NamespacedPod");
    let gvk = wire::text(wire::entry(patch, 13, "x-kubernetes-group-version-kind"), 2);
    assert_eq!(gvk, r#"{"group":"","kind":"Pod","version":"v1"}"#);
    let consumes: Vec<&[u8]> = wire::all(patch, 7);
    assert!(consumes.contains(&&b"application/strategic-merge-patch+json"[..]));
    // ParametersItem.parameter.non_body_parameter.query_parameter_sub_schema.name
    let query: Vec<String> = wire::all(patch, 8)
        .into_iter()
        .map(|item| wire::one(item, 1))
        .flat_map(|parameter| wire::all(parameter, 2))
        .map(|parameter| wire::text(wire::one(parameter, 3), 4))
        .collect();
    assert_eq!(query, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let body: Vec<&[u8]> = wire::all(patch, 8).into_iter().flat_map(|item| wire::all(wire::one(item, 1), 1)).collect();
    assert!(wire::flag(body[0], 4), "the body is required");

    let definitions = wire::one(&document, 9);
    let spec = wire::entry(definitions, 1, "io.k8s.api.core.v1.PodSpec");
    assert_eq!(wire::text(wire::one(spec, 22), 1), "object");
    let containers = wire::entry(wire::one(spec, 25), 1, "containers");
    assert_eq!(wire::text(wire::one(containers, 22), 1), "array");
    assert_eq!(wire::text(wire::one(wire::one(containers, 23), 1), 1), "#/definitions/io.k8s.api.core.v1.Container");
    assert_eq!(wire::text(wire::entry(containers, 31, "x-kubernetes-patch-merge-key"), 2), "\"name\"");
    let pod = wire::entry(definitions, 1, "io.k8s.api.core.v1.Pod");
    let gvk = wire::text(wire::entry(pod, 31, "x-kubernetes-group-version-kind"), 2);
    assert_eq!(gvk, r#"[{"group":"","kind":"Pod","version":"v1"}]"#);
    let book = wire::entry(definitions, 1, "com.example.x.v1.Book");
    assert_eq!(wire::text(book, 4), "A book.");
}

#[test]
fn protobuf_and_json_forms_of_v3_are_equal() {
    let books = books();
    let document = v3::protobuf(&books.group, "v1", &[&books], None);
    assert_eq!(wire::text(&document, 1), "3.0.0");
    assert_eq!(wire::text(wire::one(&document, 2), 6), crate::version::GIT_VERSION);
    let components = wire::one(&document, 5);
    let json: Value = serde_json::from_slice(&v3::document(&books.group, "v1", &[&books], None)).expect("valid JSON");
    let names = json["components"]["schemas"].as_object().expect("schemas");
    assert_eq!(wire::all(wire::one(components, 1), 1).len(), names.len());
    let book = wire::one(wire::entry(wire::one(components, 1), 1, "com.example.x.v1.Book"), 1);
    assert_eq!(wire::text(book, 25), "object");
    assert_eq!(wire::text(book, 34), "A book.");
    let gvk = wire::text(wire::entry(book, 36, "x-kubernetes-group-version-kind"), 2);
    assert!(gvk.contains("Book"), "{gvk}");
    let paths = wire::one(&document, 4);
    assert_eq!(wire::all(paths, 1).len(), json["paths"].as_object().expect("paths").len());
    let pods = v3::protobuf("", "v1", &builtins().iter().filter(|r| &*r.plural == "pods").collect::<Vec<_>>(), None);
    let path = wire::entry(wire::one(&pods, 4), 1, "/api/v1/namespaces/{namespace}/pods/{name}");
    let patch = wire::one(path, 10);
    assert_eq!(wire::text(patch, 5), "patchCoreV1NamespacedPod");
    let body = wire::one(wire::one(patch, 7), 1);
    assert!(wire::flag(body, 3), "the body is required");
    assert!(wire::all(wire::one(body, 2), 1).len() >= 4, "patch types");
    let spec = wire::one(wire::entry(wire::one(wire::one(&pods, 5), 1), 1, "io.k8s.api.core.v1.PodSpec"), 1);
    let containers = wire::one(wire::entry(wire::one(spec, 31), 1, "containers"), 1);
    assert_eq!(wire::text(containers, 25), "array");
}

/// kubectl's parser (`kube-openapi/pkg/util/proto`) refuses the whole document for one bad schema.
#[test]
fn every_v2_definition_is_one_that_kubectls_parser_takes() {
    fn check(at: &str, schema: &Value) {
        if let Some(target) = schema.get("$ref") {
            assert!(target.as_str().is_some_and(|t| t.starts_with("#/definitions/")), "{at}");
            assert!(schema.get("type").is_none() && schema.get("properties").is_none(), "{at}");
            return;
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("array") => check(at, schema.get("items").expect(at)),
            Some("object" | "string" | "number" | "integer" | "boolean") | None => {}
            Some(other) => panic!("{at}: {other}"),
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            check(&format!("{at}.{name}"), property);
        }
        if let Some(additional) = schema.get("additionalProperties") {
            check(at, additional);
        }
    }
    let books = books();
    let document: Value =
        serde_json::from_slice(&v2::json(builtins().iter().chain([&books]), &Additions::default(), None))
            .expect("valid JSON");
    for (name, schema) in document["definitions"].as_object().expect("definitions") {
        check(name, schema);
    }
}
