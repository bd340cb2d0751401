//! How many shards there are, when not all replicas think the same.
//!
//! The leases of shards of two numbers do not collide, so a lease of the team says which number is in
//! force. It is changed only while no replica holds a shard by another number, and the replica that changed it looks
//! at the leases again before it takes any. A replica that takes a shard looks at this lease again before it
//! works, and gives the shard back if it was changed meanwhile. So when one replica takes a shard while another
//! changes the number, at least one of them sees what the other did.

use k8s_openapi::api::coordination::v1::Lease;

use super::Coordinator;
use super::leases::is_rival;
use super::others::Others;

impl Coordinator {
    /// Whether this replica should have its number of shards put in force.
    pub(super) fn wants_to_change(&self, lease: Option<&Lease>, others: &Others) -> bool {
        let differs = lease.is_none_or(|lease| is_rival(lease, self.config.shards));
        differs && !self.stopping && !others.rival_holds && !others.must_wait(!self.held.is_empty())
    }

    /// Puts this replica's number of shards in force, provided that the lease is as it was read. What is
    /// held is renewed all the same if that takes long.
    pub(super) async fn change_number(&self, lease: Option<Lease>) -> bool {
        let (controller, shards) = (&self.controller, self.config.shards);
        match tokio::time::timeout(self.round_limit() / 4, self.leases.write_number(lease)).await {
            Ok(Ok(())) => {
                tracing::info!(%controller, shards, "number of shards in force");
                true
            }
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() || status.is_already_exists() => false,
            Ok(Err(error)) => {
                tracing::warn!(%controller, shards, %error, "number of shards not changed");
                false
            }
            Err(_) => {
                tracing::warn!(%controller, shards, "number of shards not changed in time");
                false
            }
        }
    }

    /// The version of the lease, if shards may be taken by this replica's number.
    pub(super) fn in_force(&self, lease: Option<&Lease>, others: &Others) -> Option<String> {
        let lease = lease.filter(|lease| !others.rival_holds && !is_rival(lease, self.config.shards))?;
        lease.metadata.resource_version.clone()
    }
}
