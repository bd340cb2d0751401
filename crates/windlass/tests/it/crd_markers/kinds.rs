//! Markers of kinds and packages.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::crd::merge_crds;
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind;

/// A kind with further attributes.
macro_rules! special {
    ($kind:tt, $plural:tt, $version:tt, $doc:tt, ($($more:tt)*), $name:ident { $($fields:tt)* }) => {
        #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[kube(
            group = "golden.example.com",
            version = $version,
            kind = $kind,
            plural = $plural,
            doc = $doc,
            crates(schemars = "windlass::crd::schemars"),
            $($more)*
        )]
        pub struct $name { $($fields)* }
    };
}

special! { "StatusSubresource", "statussubresources", "v1", "StatusSubresource has a status of its own.",
(namespaced, status = "StatusSubresourceStatus"),
StatusSubresourceSpec { replicas: i32 }}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StatusSubresourceStatus {
    ready: bool,
}

special! { "ScaleSubresource", "scalesubresources", "v1", "ScaleSubresource can be scaled.",
(
    namespaced,
    status = "ScaleSubresourceStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    )
),
ScaleSubresourceSpec { replicas: i32 }}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ScaleSubresourceStatus {
    replicas: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<String>,
}

special! { "PrintColumn", "printcolumns", "v1", "PrintColumn has columns.",
(
    namespaced,
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        format = "int32",
        priority = 1,
        description = "How many",
        json_path = ".spec.replicas"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
),
PrintColumnSpec { replicas: i32 }}

special! { "NamedResource", "names", "v1", "NamedResource has names and a scope.",
(singular = "name", shortname = "nm", shortname = "nms", category = "all", category = "golden"),
NamedResourceSpec { replicas: i32 }}

special! { "MetadataResource", "metadataresources", "v1", "MetadataResource has labels and annotations.",
(namespaced, annotation("example.com/note", "kept"), label("team", "storage")),
MetadataResourceSpec { replicas: i32 }}

special! { "SelectableField", "selectablefields", "v1", "SelectableField can be selected by color.",
(namespaced, selectable = ".spec.color"),
SelectableFieldSpec { color: String }}

mod v1 {
    use super::*;

    kind! { "StorageVersion", "storageversions", "StorageVersion is stored as v1.", StorageVersionSpec {
        replicas: i32,
    }}
    kind! { "SkipVersion", "skipversions", "SkipVersion has one version that is left out.", SkipVersionSpec {
        replicas: i32,
    }}
    kind! { "UnservedVersion", "unservedversions", "UnservedVersion has one version that is not served.",
    UnservedVersionSpec {
        replicas: i32,
    }}
    kind! { "DeprecatedVersion", "deprecatedversions", "DeprecatedVersion has one version that is deprecated.",
    DeprecatedVersionSpec {
        replicas: i32,
    }}
}

mod v1beta1 {
    use super::*;

    special! { "StorageVersion", "storageversions", "v1beta1", "StorageVersion is stored as v1.",
    (namespaced),
    StorageVersionSpec { count: i32 }}
    special! { "UnservedVersion", "unservedversions", "v1beta1", "UnservedVersion has one version that is not served.",
    (namespaced, served = false),
    UnservedVersionSpec { count: i32 }}
    special! { "DeprecatedVersion", "deprecatedversions", "v1beta1",
    "DeprecatedVersion has one version that is deprecated.",
    (namespaced, deprecated = "golden.example.com/v1beta1 DeprecatedVersion is deprecated"),
    DeprecatedVersionSpec { count: i32 }}
}

special! { "VersionName", "versionnames", "v1alpha1", "VersionName has the version that the marker says.",
(namespaced),
VersionNameSpec { a: String }}

kind! { "PackageOptional", "packageoptionals", "PackageOptional is in a package whose fields are optional.",
PackageOptionalSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    b: String,
}}

kind! { "PackageRequired", "packagerequireds", "PackageRequired is in a package whose fields are required.",
PackageRequiredSpec {
    a: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<String>,
}}

pub fn definitions() -> Vec<CustomResourceDefinition> {
    let merged = |versions: Vec<CustomResourceDefinition>| merge_crds(versions, "v1").expect("one kind");
    vec![
        StatusSubresource::crd(),
        ScaleSubresource::crd(),
        PrintColumn::crd(),
        NamedResource::crd(),
        MetadataResource::crd(),
        SelectableField::crd(),
        merged(vec![v1::StorageVersion::crd(), v1beta1::StorageVersion::crd()]),
        merged(vec![v1::SkipVersion::crd()]),
        merged(vec![v1::UnservedVersion::crd(), v1beta1::UnservedVersion::crd()]),
        merged(vec![v1::DeprecatedVersion::crd(), v1beta1::DeprecatedVersion::crd()]),
        VersionName::crd(),
        PackageOptional::crd(),
        PackageRequired::crd(),
    ]
}
