//! Discovery documents compared with what a v1.36 server answers.

use serde_json::{Value, json};

use super::*;
use crate::resource::builtins;
use crate::schema::Schema;

fn named<'v>(list: &'v Value, field: &str, name: &str) -> &'v Value {
    let items = list.as_array().expect("a list");
    items.iter().find(|item| item[field] == name).unwrap_or_else(|| panic!("no {name}"))
}

fn custom(group: &str, version: &str, plural: &str) -> Resource {
    let sub = |name: &str, group: &str, version: &str, kind: &str| Subresource {
        name: name.into(),
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        verbs: vec!["get".into(), "patch".into(), "update".into()],
    };
    Resource {
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        singular: "cog".into(),
        kind: "Cog".into(),
        list_kind: "CogList".into(),
        namespaced: true,
        short_names: vec!["cg".into()],
        categories: vec!["parts".into()],
        verbs: ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            .map(Into::into)
            .to_vec(),
        subresources: vec![sub("scale", "autoscaling", "v1", "Scale"), sub("status", group, version, "Cog")],
        schema: Schema::default().into(),
        columns: Vec::new(),
        custom: true,
        prefix: "/registry/cogs/".into(),
    }
}

#[test]
fn the_core_versions() {
    let discovery = Discovery::new(builtins());
    assert_eq!(
        discovery.api_versions("10.0.0.1:6443"),
        json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}],
        })
    );
}

#[test]
fn groups_follow_their_priorities() {
    let (b, a) = (custom("b.example.com", "v1", "cogs"), custom("a.example.com", "v2", "cogs"));
    let discovery = Discovery::new(builtins().iter().chain([&b, &a]));
    let legacy = discovery.api_group_list();
    let names = |list: &Value, pointer: &str| -> Vec<String> {
        let items = list.as_array().expect("a list");
        items.iter().map(|g| g.pointer(pointer).and_then(Value::as_str).expect("a name").to_owned()).collect()
    };
    let builtin = [
        "apiregistration.k8s.io",
        "apps",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "networking.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "storage.k8s.io",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "scheduling.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
        "discovery.k8s.io",
        "resource.k8s.io",
        "flowcontrol.apiserver.k8s.io",
    ];
    // The legacy list breaks ties by `{version}.{group}`, the aggregated one by the group's name.
    let expected = [&builtin[..], &["b.example.com", "a.example.com"]].concat();
    assert_eq!(names(&legacy["groups"], "/name"), expected);
    let expected = [&builtin[..], &["a.example.com", "b.example.com"]].concat();
    assert_eq!(names(&discovery.aggregated_apis()["items"], "/metadata/name"), expected);

    assert_eq!(
        *named(&legacy["groups"], "name", "autoscaling"),
        json!({
            "name": "autoscaling",
            "versions": [
                {"groupVersion": "autoscaling/v2", "version": "v2"},
                {"groupVersion": "autoscaling/v1", "version": "v1"},
            ],
            "preferredVersion": {"groupVersion": "autoscaling/v2", "version": "v2"},
        })
    );
}

#[test]
fn one_group() {
    let discovery = Discovery::new(builtins());
    assert_eq!(
        discovery.api_group("apps"),
        Some(json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": "apps",
            "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
            "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
        }))
    );
    assert_eq!(discovery.api_group("none.example.com"), None);
    assert_eq!(discovery.api_group(""), None);
}

#[test]
fn core_resources_and_their_subresources() {
    let discovery = Discovery::new(builtins());
    let list = discovery.resource_list("", "v1").expect("the core group");
    assert_eq!(list.get("apiVersion"), None);
    assert_eq!(list["groupVersion"], "v1");
    let resources = &list["resources"];
    assert_eq!(
        *named(resources, "name", "pods"),
        json!({
            "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["po"], "categories": ["all"], "storageVersionHash": "xPOwRZ+Yhw8=",
        })
    );
    assert_eq!(
        *named(resources, "name", "pods/eviction"),
        json!({
            "name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
            "kind": "Eviction", "verbs": ["create"],
        })
    );
    assert_eq!(
        *named(resources, "name", "componentstatuses"),
        json!({
            "name": "componentstatuses", "singularName": "componentstatus", "namespaced": false,
            "kind": "ComponentStatus", "verbs": ["get", "list"], "shortNames": ["cs"],
        })
    );
    let mut names: Vec<&str> =
        resources.as_array().expect("a list").iter().filter_map(|r| r["name"].as_str()).collect();
    let listed = names.clone();
    names.sort_unstable();
    assert_eq!(listed, names, "resources and subresources are listed in name order");
}

#[test]
fn resources_name_versions_and_share_storage_hashes() {
    let discovery = Discovery::new(builtins());
    let hash = |group: &str, version: &str, name: &str| {
        let list = discovery.resource_list(group, version).expect("served");
        assert_eq!(list["apiVersion"], "v1");
        named(&list["resources"], "name", name)["storageVersionHash"].clone()
    };
    assert_eq!(hash("autoscaling", "v1", "horizontalpodautoscalers"), "qwQve8ut294=");
    assert_eq!(hash("autoscaling", "v2", "horizontalpodautoscalers"), "qwQve8ut294=");
    assert_eq!(hash("events.k8s.io", "v1", "events"), "r2yiGXH7wu8=");
    assert!(discovery.resource_list("apps", "v2").is_none());
}

#[test]
fn aggregated_built_in_resources_leave_their_group_out() {
    let discovery = Discovery::new(builtins());
    let core = discovery.aggregated_core();
    assert_eq!(core["kind"], "APIGroupDiscoveryList");
    assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2");
    assert_eq!(core["items"].as_array().map(Vec::len), Some(1));
    let version = &core["items"][0]["versions"][0];
    assert_eq!((&version["version"], &version["freshness"]), (&json!("v1"), &json!("Current")));
    assert_eq!(
        named(&version["resources"], "resource", "services")["subresources"],
        json!([
            {
                "subresource": "proxy", "responseKind": {"group": "", "version": "", "kind": "ServiceProxyOptions"},
                "verbs": ["create", "delete", "get", "patch", "update"],
            },
            {
                "subresource": "status", "responseKind": {"group": "", "version": "", "kind": "Service"},
                "verbs": ["get", "patch", "update"],
            },
        ])
    );
    let apis = discovery.aggregated_apis();
    let apps = apis["items"].as_array().and_then(|i| i.iter().find(|g| g["metadata"]["name"] == "apps"));
    let deployments = named(&apps.expect("apps")["versions"][0]["resources"], "resource", "deployments");
    assert_eq!(
        deployments["subresources"][0]["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
}

#[test]
fn a_custom_resource_in_both_documents() {
    let cogs = custom("x.example.com", "v1", "cogs");
    let discovery = Discovery::new([&cogs]);
    let verbs = json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]);
    let kind = json!({"group": "x.example.com", "version": "v1", "kind": "Cog"});
    assert_eq!(
        discovery.aggregated_apis()["items"][0]["versions"],
        json!([{
            "version": "v1", "freshness": "Current",
            "resources": [{
                "resource": "cogs", "responseKind": kind, "scope": "Namespaced", "singularResource": "cog",
                "verbs": verbs, "shortNames": ["cg"], "categories": ["parts"],
                "subresources": [
                    {"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]},
                    {
                        "subresource": "scale", "verbs": ["get", "patch", "update"],
                        "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                    },
                ],
            }],
        }])
    );
    let list = discovery.resource_list("x.example.com", "v1").expect("served");
    let names: Vec<&str> =
        list["resources"].as_array().expect("a list").iter().filter_map(|r| r["name"].as_str()).collect();
    assert_eq!(names, ["cogs", "cogs/status", "cogs/scale"]);
    assert_eq!(list["resources"][0]["verbs"], verbs);
    assert_eq!(list["resources"][1].get("group"), None);
    assert_eq!(list["resources"][2]["group"], "autoscaling");
}
