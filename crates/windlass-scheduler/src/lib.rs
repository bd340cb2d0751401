//! kube-scheduler for the embedded cluster, and for any other: a pure core that decides, and a program around it.
//!
//! # The core
//!
//! A [`Snapshot`] is what the scheduler knows. Changes are applied to it as they come; [`Snapshot::schedule`] decides about
//! a pod. It waits for nothing, makes no requests and has no clock, so that it can be tested as the function it is:
//!
//! ```
//! use k8s_openapi::api::core::v1::{Node, Pod};
//! use windlass::{json, serde_json};
//! use windlass_scheduler::{Snapshot, Decision, NodeSpec, PodInfo};
//!
//! let node: Node = serde_json::from_value(json!({
//!     "metadata": {"name": "a"},
//!     "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "110"}},
//! }))?;
//! let pod = |cpu: &str| -> Result<PodInfo, serde_json::Error> {
//!     let requests = json!({"cpu": cpu});
//!     let container = json!({"name": "c", "resources": {"requests": requests}});
//!     let pod = json!({"metadata": {"name": cpu, "uid": cpu}, "spec": {"containers": [container]}});
//!     Ok(PodInfo::new(&serde_json::from_value(pod)?))
//! };
//!
//! let mut cluster = Snapshot::new();
//! cluster.set_node(NodeSpec::new(&node));
//! let random = &mut fastrand::Rng::with_seed(1);
//! let Decision::Bind { node, volumes } = cluster.schedule(&pod("600m")?, random) else { panic!() };
//! assert_eq!(&*node, "a");
//! cluster.assume(&pod("600m")?, &node, &volumes);
//! let Decision::Wait(failure) = cluster.schedule(&pod("500m")?, random) else { panic!() };
//! assert!(failure.message.starts_with("0/1 nodes are available: 1 Insufficient cpu."));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! # The program
//!
//! A [`Scheduler`] watches a cluster with [`windlass`]' informers, keeps pods that have no node in upstream's three
//! queues, and writes what was decided: bindings, conditions, nominations and events.
#![cfg_attr(test, allow(clippy::unwrap_used))]

// In other versions, fields that the scheduler uses have other types.
k8s_openapi::k8s_if_le_1_35! {
    compile_error!("windlass-scheduler needs the API types of Kubernetes 1.36: enable feature `v1_36`");
}
k8s_openapi::k8s_if_ge_1_37! {
    compile_error!("windlass-scheduler needs the API types of Kubernetes 1.36: enable feature `v1_36`");
}

// Compiled there once, instead of here and in every test.
use windlass_codecs as _;

pub mod labels;
mod resources;

mod devices;
mod node;
mod pod;
mod volume;

mod counts;
mod topology;

mod cycle;
mod preempt;
mod reason;
mod schedule;
mod score;
mod snapshot;

mod allowance;
mod metrics;
mod program;
mod queue;
mod shared_state;
mod state;
mod writes;

pub use devices::Devices;
pub use node::{NodeInfo, NodeSpec};
pub use pod::{
    ClaimUse, DeviceUse, Disk, HostPort, NodeRequirement, OwnerKind, PodAffinity, PodInfo, SpreadConstraint, Taint,
    Term, TermScope, Toleration,
};
pub use program::{DEFAULT_PROFILE, Scheduler, SchedulerBuilder};
pub use reason::Causes;
pub use resources::{Requests, Resources};
pub use schedule::{Decision, Failure, Nomination};
pub use snapshot::Snapshot;
pub use volume::{PodVolumes, SELECTED_NODE, Volumes};
