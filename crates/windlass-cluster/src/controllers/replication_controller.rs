//! ReplicationControllers: ReplicaSets of an older form. Upstream, too, runs both with one controller
//! (`pkg/controller/replication/conversion.go`).

use std::borrow::Cow;

use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use windlass::Manager;
use windlass::manager::ManagerError;

use super::replica_set::{self, Replicated};

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    replica_set::add_as::<ReplicationController>(manager, "replication-controller")
}

impl Replicated for ReplicationController {
    const COUNTS_TERMINATING: bool = false;

    fn replica_spec(&self) -> Option<Cow<'_, ReplicaSetSpec>> {
        let spec = self.spec.clone()?;
        Some(Cow::Owned(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: spec.replicas,
            selector: LabelSelector { match_labels: spec.selector, match_expressions: None },
            template: spec.template,
        }))
    }

    fn selector(&self) -> Option<Selector> {
        let labels = self.spec.as_ref()?.selector.clone().filter(|labels| !labels.is_empty())?;
        Some(labels.into_iter().collect())
    }

    fn replica_status(&self) -> Option<Cow<'_, ReplicaSetStatus>> {
        let status = self.status.clone()?;
        let condition = |known: ReplicationControllerCondition| ReplicaSetCondition {
            last_transition_time: known.last_transition_time,
            message: known.message,
            reason: known.reason,
            status: known.status,
            type_: known.type_,
        };
        Some(Cow::Owned(ReplicaSetStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
            terminating_replicas: None,
        }))
    }

    fn with_replica_status(&self, status: ReplicaSetStatus) -> Self {
        let condition = |known: ReplicaSetCondition| ReplicationControllerCondition {
            last_transition_time: known.last_transition_time,
            message: known.message,
            reason: known.reason,
            status: known.status,
            type_: known.type_,
        };
        let status = ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        };
        Self { status: Some(status), ..self.clone() }
    }
}
