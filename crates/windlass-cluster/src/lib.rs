//! The embedded cluster: an API server, the built-in controllers and simulated nodes, in one process.
//!
//! In a test, [`Cluster::start`] gives a fresh cluster in milliseconds, reached without a socket:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::{Api, ResourceExt as _, api::PostParams};
//!
//! let cluster = windlass_cluster::Cluster::start().await?;
//! let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
//! let mut map = ConfigMap::default();
//! map.metadata.name = Some("hello".into());
//! let map = maps.create(&PostParams::default(), &map).await?;
//! assert_eq!(map.name_any(), "hello");
//! cluster.stop().await?;
//! # Ok(()) }
//! ```
//!
//! For development, [`ClusterBuilder::data_dir`] keeps everything on disk and
//! [`ClusterBuilder::listen`] serves it over TLS to kubectl and every other client.

// In other versions, fields that the controllers use have other types.
k8s_openapi::k8s_if_le_1_35! {
    compile_error!("windlass-cluster and windlass-testing need the API types of Kubernetes 1.36: enable feature `v1_36`");
}
k8s_openapi::k8s_if_ge_1_37! {
    compile_error!("windlass-cluster and windlass-testing need the API types of Kubernetes 1.36: enable feature `v1_36`");
}

// Compiled there once, instead of here and in every test.
use windlass_codecs as _;

mod cluster;
mod controllers;
mod descriptions;
mod error;
mod identities;
mod kubeconfig;
mod machine;
mod private;
mod streams;
mod usage;

pub use cluster::{Cluster, ClusterBuilder};
pub use controllers::{BuiltIn, Controllers, UnknownController};
pub use error::ClusterError;
pub use kubeconfig::Credentials;
pub use machine::{Machine, MachineNetwork, MakeRuntime};
pub use windlass_server::{AdmissionPlugin, AdmissionPlugins, AuditOptions, AuditPolicy, FlowControlOptions};
pub use windlass_server::{PodSecurity, PodSecurityLevel, PodSecurityPolicy, PodSecurityStandard, PodSecurityVersion};
