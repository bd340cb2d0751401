//! A replica that stops: everything is given back, with what it has not done with.

use std::collections::BTreeSet;

use futures::FutureExt;
use futures::future::{OptionFuture, join, join_all};
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::Coordinator;
use super::leases::{holder, with_left};
use crate::key::ObjectKey;

impl Coordinator {
    /// Gives back everything. Leases that cannot be written run out by themselves, which only costs
    /// others time; but keys that are left would be lost, so then it is tried again for a while.
    pub(super) async fn leave(mut self) {
        let until = Instant::now() + self.config.renew_deadline;
        let held = self.held.clone();
        self.leave_behind(&held, self.unfinished(&held));
        let mut told = BTreeSet::new();
        let leaves_keys =
            self.leaving.values().any(|left| !left.is_empty()) || !self.last_bequest(None, &told, &[]).0.is_empty();
        loop {
            let limit = (self.config.renew_deadline / 2).min(until - Instant::now());
            let all = match tokio::time::timeout(limit, self.give_back_all(&mut told)).await {
                Ok(Ok(all)) => all,
                Ok(Err(error)) => {
                    tracing::warn!(controller = %self.controller, %error, "shards not given back");
                    false
                }
                Err(_) => {
                    tracing::warn!(controller = %self.controller, "shards not given back in time");
                    false
                }
            };
            let next = Instant::now() + self.config.retry_period / 4;
            if all || !leaves_keys {
                return;
            }
            if next >= until {
                tracing::error!(controller = %self.controller, "deleted keys may be lost: not all could be left to others");
                return;
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// Shards are given up, with those of the keys that others cannot know of.
    pub(super) fn leave_behind(&mut self, shards: &BTreeSet<u32>, unfinished: BTreeSet<ObjectKey>) {
        self.leaving.extend(shards.iter().map(|shard| (*shard, Vec::new())));
        for key in self.left_over(shards, unfinished) {
            self.leaving.entry(self.slots.shard_of(&key)).or_default().push(key);
        }
    }

    /// Whether no lease names this replica any more, and everything is told. The keys that were left in
    /// the lease of this replica are put down.
    async fn give_back_all(&mut self, told: &mut BTreeSet<ObjectKey>) -> Result<bool, kube::Error> {
        let leases = self.leases.list().await?;
        let wall = Timestamp::now();
        let is_ours =
            |shard: u32| leases.get(&self.leases.team().shard(shard)).and_then(holder) == Some(&self.config.identity);
        // Another's or deleted by now: what would be left in them is left elsewhere.
        let lost = self.leaving.iter().filter(|(shard, _)| !is_ours(**shard));
        let lost: Vec<ObjectKey> = lost.flat_map(|(_, left)| left).cloned().collect();
        let released = (0..self.config.shards).filter_map(|shard| {
            let current = leases.get(&self.leases.team().shard(shard))?.clone();
            let spec = self.shards[shard as usize].release(current.spec.as_ref()?, wall)?;
            let current = match self.leaving.get(&shard) {
                Some(left) => self.leases.with_left(current, left),
                // Taken without hearing of it: what the former holder left is still to be done.
                None => current,
            };
            Some(self.leases.write_shard(shard, Some(current), spec).map(move |written| (shard, written)))
        });
        let released: Vec<_> = released.collect();
        let own = self.leases.team().member(&self.config.identity);
        let member = leases.get(&own).cloned();
        let (left, mut all) = self.last_bequest(member.as_ref(), told, &lost);
        let parted = if left.is_empty() {
            let version = member.and_then(|member| member.metadata.resource_version);
            let cleared = version.map(|version| self.leases.clear(own, Some(version)));
            OptionFuture::from(cleared).map(|_| Ok(LeaseSpec::default())).boxed()
        } else {
            let spec = member.as_ref().and_then(|member| member.spec.clone());
            let member = with_left(member.unwrap_or_default(), &left);
            self.leases.write_member(&self.config.identity, Some(member), nobodys(spec))
        };
        let (released, parted) = join(join_all(released), parted).await;
        match parted {
            Ok(_) => told.extend(left),
            Err(error) => {
                tracing::warn!(controller = %self.controller, %error, "keys not left to others");
                all = false;
            }
        }
        for (shard, written) in released {
            match written {
                Ok(_) => drop(self.leaving.remove(&shard)),
                Err(error) => {
                    tracing::warn!(controller = %self.controller, shard, %error, "shard not given back");
                    all = false;
                }
            }
        }
        Ok(all)
    }
}

/// The lease of a replica that others are not to count on any more: a replica that finds it takes out the keys
/// in it, and then deletes it.
pub(super) fn nobodys(spec: Option<LeaseSpec>) -> LeaseSpec {
    LeaseSpec { holder_identity: Some(String::new()), ..spec.unwrap_or_default() }
}
