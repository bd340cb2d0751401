//! kwok's own objects (`kwok.x-k8s.io/v1alpha1`) for the simulated nodes of a Windlass cluster, accepted unchanged.
//!
//! | kind | what it does |
//! |---|---|
//! | `Stage` | says what becomes of pods, nodes and objects of any other kind |
//! | `Logs`, `ClusterLogs` | what `kubectl logs` shows, from a file |
//! | `Exec`, `ClusterExec` | runs commands of `kubectl exec` on the host |
//! | `Attach`, `ClusterAttach` | what `kubectl attach` shows, from a file |
//! | `PortForward`, `ClusterPortForward` | where `kubectl port-forward` leads to |
//! | `ResourceUsage`, `ClusterResourceUsage` | what pods use, as `kubectl top` and autoscalers see it |
//! | `Metric` | what a node serves below `/metrics`, in Prometheus' format |
//!
//! A stage is a query ([`jq`]) or an expression ([`cel`]) that selects objects and a Go template ([`template`]) that becomes a
//! patch; [`stage`] is all put together, as pure functions. [`player`] carries stages out, [`console`] answers for containers,
//! [`usage`] says what they use, [`metric`] what nodes measure.

// Compiled there once, instead of here and in every test.
use windlass_codecs as _;

pub mod cel;
pub mod console;
pub mod crds;
pub mod jq;
pub mod metric;
pub mod objects;
pub mod player;
pub mod stage;
pub mod template;
pub mod usage;
