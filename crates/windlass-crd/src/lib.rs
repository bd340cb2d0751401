//! Custom resource definitions from Rust types: what controller-gen's markers are in Go.
//!
//! `kube`'s derive makes the definition and `schemars` the schema. This crate adds what they lack, and nothing else, so
//! that a package of types depends on it without depending on an operator. Operators find it as `windlass::crd`.
//!
//! # The generator
//!
//! One line of the `kube` attribute makes `crd()` use the generator of this crate:
//!
//! ```
//! # mod windlass { pub use windlass_crd as crd; }
//! # use kube::{CustomResource, CustomResourceExt as _};
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "example.com", version = "v1", kind = "Volume", crates(schemars = "windlass::crd::schemars"))]
//! struct VolumeSpec {
//!     source: Source,
//! }
//!
//! #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[serde(tag = "type")]
//! enum Source {
//!     Disk { size: String },
//!     Claim { size: u32 },
//! }
//!
//! let definition = Volume::crd();
//! # let definition = serde_json::to_value(definition).expect("written");
//! # let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
//! # let source = &schema["properties"]["spec"]["properties"]["source"];
//! # assert_eq!(source["properties"]["type"]["enum"], serde_json::json!(["Disk", "Claim"]));
//! ```
//!
//! With it, `crd()`
//!
//! - gives a [structural schema] for every type: enums in all four of serde's representations, optional enums, tuples,
//!   flattened fields and recursive types. What no structural schema can say is left open rather than refused, so that
//!   the API server accepts everything that the type accepts; there is no panic;
//! - says `nullable` only for fields that the type itself writes as `null`. An `Option` that is skipped when it is `None`
//!   is optional and not nullable, as a pointer with `omitempty` is in Go;
//! - uses the formats that API servers know (`u16` is an `int32` with limits), and leaves out what they refuse, such as
//!   `uniqueItems`: a set of scalars is a list of type `set` instead.
//!
//! # The markers
//!
//! Most markers are attributes of `kube`, `schemars` or `serde`. For the others there is a function here, to be named in
//! an attribute of a field or a type:
//!
//! ```
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! use windlass_crd as crd; // operators: `use windlass::crd;`
//!
//! #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[serde(rename_all = "camelCase")]
//! #[schemars(transform = crd::at_most_one_of(["configMap", "secret"]))]
//! struct ServerSpec {
//!     /// Cannot change once it is set.
//!     #[serde(default, skip_serializing_if = "Option::is_none")]
//!     #[schemars(transform = crd::immutable)]
//!     class: Option<String>,
//!
//!     #[schemars(transform = crd::list_map(["name"]))]
//!     ports: Vec<Port>,
//!
//!     #[serde(default, skip_serializing_if = "Option::is_none")]
//!     config_map: Option<String>,
//!     #[serde(default, skip_serializing_if = "Option::is_none")]
//!     secret: Option<String>,
//!
//!     /// The keyword of an element of a list.
//!     #[schemars(length(max = 10), inner(length(max = 63)), transform = crd::items(crd::rule("self != 'admin'")))]
//!     users: Vec<String>,
//! }
//!
//! #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! struct Port {
//!     name: String,
//!     #[schemars(transform = crd::int_or_string)]
//!     target: serde_json::Value,
//! }
//!
//! let schema = crd::schema::<ServerSpec>().to_value();
//! assert_eq!(schema["properties"]["ports"]["x-kubernetes-list-map-keys"][0], "name");
//! # assert_eq!(schema["x-kubernetes-validations"].as_array().map(Vec::len), Some(2));
//! ```
//!
//! The book has [a table of all markers](https://github.com/windlass-rs/windlass/blob/main/docs/reference/crd-markers.md).
//!
//! [structural schema]: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema

mod generate;
mod markers;
mod rule;
mod structural;

pub mod schemars;

pub use generate::schema;
pub use markers::{
    at_least_one_of, at_most_one_of, embedded_resource, exactly_one_of, exclusive_maximum, exclusive_minimum,
    external_docs, format, immutable, int_or_string, items, list_atomic, list_map, list_set, map_atomic, map_granular,
    max_properties, min_properties, multiple_of, nullable, one_of, preserve_unknown_fields, struct_atomic,
    struct_granular, type_,
};
pub use rule::{Rule, rule};
