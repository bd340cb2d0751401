//! Rust types of definitions: pinned as text, compiled here, and compared with what they were made of.

mod arbitrary;
mod errors;

use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use windlass_scaffold::types::{Definition, documents, normal};

/// Modules that the generator wrote. They are as generated, not as formatted.
macro_rules! generated {
    ($($name:ident = $path:literal),* $(,)?) => {
        $(
            #[rustfmt::skip]
            #[allow(dead_code, unreachable_pub)]
            #[path = $path]
            mod $name;
        )*
    };
}
generated!(
    backup = "../types/backup.rs",
    deep = "../types/deep.rs",
    flat = "../types/flat.rs",
    names = "../types/names.rs",
    route = "../types/route.rs",
    versions = "../types/versions.rs",
);

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/types");

fn read(file: &str) -> String {
    std::fs::read_to_string(format!("{DIRECTORY}/{file}")).unwrap()
}

#[test]
fn generated_types_are_as_they_were() {
    for name in ["backup", "deep", "flat", "names", "route", "versions"] {
        let [definition] = &Definition::parse(&read(&format!("{name}.yaml"))).unwrap()[..] else { panic!("{name}") };
        let source = definition.to_rust().unwrap();
        syn::parse_file(&source).unwrap();
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(format!("{DIRECTORY}/{name}.rs"), &source).unwrap();
        }
        let pinned = read(&format!("{name}.rs"));
        assert!(source == pinned, "{name}.rs differs; BLESS=1 writes it:\n{}", diffy::create_patch(&pinned, &source));
    }
}

#[track_caller]
fn comes_back(file: &str, version: &str, crd: &impl serde::Serialize) {
    let find = |document: Value| match document.get("items") {
        Some(items) => items.as_array().unwrap().last().unwrap().clone(),
        None => document,
    };
    let original = find(documents(&read(file)).unwrap().swap_remove(0));
    let result = serde_json::to_value(crd).unwrap();
    let pretty = |value: &Value| format!("{:#}\n", normal::definition(value, version));
    let (original, result) = (pretty(&original), pretty(&result));
    assert!(original == result, "{}", diffy::create_patch(&original, &result));
}

#[test]
fn constraints_come_back() {
    comes_back("backup.yaml", "v1", &backup::Backup::crd());
}

#[test]
fn names_that_rust_reserves_come_back() {
    comes_back("names.yaml", "v1", &names::Name::crd());
    let spec = json!({"self": true, "Self": true, "self_": true, "super": 1, "crate": 2, "_": "a", "type": "b",
        "Type": "c", "r#type": "d", "async": "e", "gen": "self"});
    let read: names::NameSpec = serde_json::from_value(spec.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), spec);
}

#[test]
fn a_hundred_levels_come_back() {
    fn is_sent<T: Send + Sync>() {}
    is_sent::<deep::Deep>();
    comes_back("deep.yaml", "v1", &deep::Deep::crd());
}

#[test]
fn alternatives_come_back() {
    comes_back("route.yaml", "v1alpha1", &route::Route::crd());
}

#[test]
fn each_version_comes_back() {
    comes_back("versions.yaml", "v1", &versions::v1::Gadget::crd());
    comes_back("versions.yaml", "v1beta1", &versions::v1beta1::Gadget::crd());
    comes_back("versions.yaml", "v1alpha1", &versions::v1alpha1::Gadget::crd());
    let approved = versions::v1::Gadget::crd().metadata.annotations.unwrap();
    assert_eq!(approved["api-approved.kubernetes.io"], "https://example.com/pull/1");
}

#[test]
fn a_kind_without_spec_comes_back() {
    comes_back("flat.yaml", "v1", &flat::ResultResource::crd());
}

/// Reads an object as `K` and writes it again.
#[track_caller]
fn is_kept<K: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) -> K {
    let typed: K = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), *object);
    typed
}

#[test]
fn objects_are_kept_as_they_are() {
    let backup: backup::Backup = is_kept(&json!({
        "apiVersion": "store.example.com/v1", "kind": "Backup", "metadata": {"name": "b"},
        "spec": {
            "schedule": "* * * * *", "copies": 3, "type": "1.5", "lastError": null,
            "clusterIP": "10.0.0.1", "foo_bar": "a", "fooBar": "b", "self": true, "$ref": "x", "3d": true,
            "names": ["a", null], "port": "http", "limits": {"cpu": 1, "memory": "1Gi"},
            "stores": {"main": {"url": "https://example.com", "selector": {"name": "x"}}},
            "open": {"other": "named", "more": [1, {"deep": null}]},
            "matrix": [[{"cell": 1}, {}], []],
        },
    }));
    assert_eq!(backup.spec.r#type, backup::BackupType::V1_5);
    let route: route::Route = is_kept(&json!({
        "apiVersion": "net.example.com/v1alpha1", "kind": "Route", "metadata": {"name": "r"},
        "spec": {
            "backend": {"externalName": "example.com"}, "weight": "10%", "provider": {"aws": {"region": "eu-1"}},
        },
    }));
    assert_eq!(route.spec.provider, Some(route::Provider::Aws(route::Aws { region: "eu-1".into() })));
    assert_eq!(route.spec.backend, Some(route::Backend::ExternalName("example.com".into())));
    let flat: flat::ResultResource = is_kept(&json!({
        "apiVersion": "report.example.com/v1", "kind": "Result", "metadata": {"name": "r-1"},
        "score": 5, "type": "x", "unnamed": {"a": 1}, "status": {"seen": true},
    }));
    assert_eq!(flat.spec.other["unnamed"], json!({"a": 1}));
    is_kept::<versions::v1beta1::Gadget>(&json!({
        "apiVersion": "shop.k8s.io/v1beta1", "kind": "Gadget", "metadata": {},
        "spec": {"a": "b"}, "status": {"size": "1"},
    }));
}
