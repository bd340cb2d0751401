//! Whose each shard is, and since when: what was heard of before that may be news to its holder.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

use super::leases::{ByName, holder, is_member, is_rival};

/// A holder's time with a shard. A replica that takes a shard again begins another.
#[derive(PartialEq)]
struct Tenure {
    holder: String,
    acquired: Option<MicroTime>,
    transitions: Option<i32>,
    rival: bool,
}

/// The tenures of all shards, as last seen, and when they were first seen.
#[derive(Default)]
pub(super) struct Tenures {
    seen: HashMap<String, (Tenure, Instant)>,
}

impl Tenures {
    /// Looks at the leases, of replicas that divide the keys into so many shards and of others.
    pub(super) fn look(&mut self, leases: &ByName, shards: u32, now: Instant) {
        self.seen.retain(|name, _| leases.get(name).is_some_and(|lease| holder(lease).is_some()));
        for (name, lease) in leases.iter().filter(|(_, lease)| !is_member(lease)) {
            let (Some(holder), Some(spec)) = (holder(lease), &lease.spec) else {
                continue;
            };
            let tenure = Tenure {
                holder: holder.to_owned(),
                acquired: spec.acquire_time.clone(),
                transitions: spec.lease_transitions,
                rival: is_rival(lease, shards),
            };
            if self.seen.get(name).is_none_or(|(seen, _)| *seen != tenure) {
                self.seen.insert(name.clone(), (tenure, now));
            }
        }
    }

    /// The holder of a lease has only now begun, as far as this replica is concerned.
    pub(super) fn begin(&mut self, name: &str, now: Instant) {
        if let Some((_, since)) = self.seen.get_mut(name) {
            *since = now;
        }
    }

    /// Since when a shard is another's.
    pub(super) fn of_another(&self, name: &str, me: &str) -> Option<Instant> {
        self.seen.get(name).filter(|(tenure, _)| tenure.holder != me).map(|(_, since)| *since)
    }

    /// Since when all shards are whose they are, of those who divide the keys otherwise.
    pub(super) fn of_rivals(&self) -> Option<Instant> {
        self.seen.values().filter(|(tenure, _)| tenure.rival).map(|(_, since)| *since).max()
    }
}
