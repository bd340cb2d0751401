//! What this replica remembers of shards that others took since.
//!
//! The next holder of a shard may never have heard of what was deleted before. So each replica that
//! remembers such keys leaves them in its own lease, for the holder to find. It goes on remembering
//! them for a while, and leaves them again when the shard changes hands meanwhile.

use std::collections::BTreeSet;

use futures::FutureExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use tokio::time::Instant;

use super::Coordinator;
use super::leases::{left_in, with_left};
use super::writes::{Answer, Changes, Writes};
use crate::key::ObjectKey;

/// How long the keys in the lease of a replica may be. What is over waits until these are taken out.
const LONGEST: usize = 100 * 1024;

/// Keys to be left, and those that need not be since everybody finds them.
#[derive(Default)]
pub(super) struct Bequest {
    left: BTreeSet<ObjectKey>,
    found_by_all: Vec<ObjectKey>,
    /// How many of those that are remembered are among these.
    told: usize,
}

impl Bequest {
    /// These are taken care of.
    pub(super) fn into_keys(self) -> impl Iterator<Item = ObjectKey> {
        self.left.into_iter().chain(self.found_by_all)
    }
}

impl Coordinator {
    /// Renews the lease of this replica, with the keys in it that are for others.
    pub(super) fn bequeath(&self, lease: Lease, spec: LeaseSpec, changes: &Changes, writes: &Writes) {
        // One whose time is up hears nothing.
        let since = |shard: u32| self.since_taken(shard).filter(|_| self.waiting || !changes.contains_key(&shard));
        let remembered: Vec<ObjectKey> = self
            .strange()
            .filter_map(|shard| Some(self.slots.slot(shard).heard_until(since(shard)?)))
            .flatten()
            .collect();
        let before = left_in(&lease).filter(|key| !self.works_on(key));
        let bequest = self.bequest(before, remembered);
        let lease = with_left(lease, &bequest.left.iter().cloned().collect::<Vec<_>>());
        let write = self.leases.write_member(&self.config.identity, Some(lease), spec);
        writes.push(write.map(move |written| Answer::Joined(bequest, written)).boxed());
    }

    /// The keys to leave by a replica that stops, besides those in the leases of its shards: what it
    /// still has to tell others, all that it remembers of shards without a holder, what it heard of
    /// since a holder was last heard of, and some more. Whether that is all; what was told before is not.
    pub(super) fn last_bequest(
        &self,
        lease: Option<&Lease>,
        told: &BTreeSet<ObjectKey>,
        more: &[ObjectKey],
    ) -> (Vec<ObjectKey>, bool) {
        let remembered = self.strange().flat_map(|shard| {
            let slot = self.slots.slot(shard);
            let Some(taken) = self.since_taken(shard) else {
                return slot.heard_until(Instant::now());
            };
            let mut keys = slot.heard_until(taken);
            // Its holder may have crashed since.
            keys.extend(self.last_heard_of_holder(shard).into_iter().flat_map(|heard| slot.heard_since(heard)));
            keys
        });
        let remembered: Vec<_> = more.iter().cloned().chain(remembered).filter(|key| !told.contains(key)).collect();
        let count = remembered.len();
        let bequest = self.bequest(lease.into_iter().flat_map(left_in), remembered);
        (bequest.left.into_iter().collect(), bequest.told == count)
    }

    /// Whether what this replica remembers of a shard has still to be told to its holder.
    pub(super) fn owes(&self, shard: u32) -> bool {
        let taken = self.since_taken(shard);
        !self.held.contains(&shard) && taken.is_some_and(|taken| self.slots.slot(shard).heard_any_until(taken))
    }

    /// As many of the keys as there is room for, without those that everybody finds.
    fn bequest(&self, before: impl Iterator<Item = ObjectKey>, remembered: Vec<ObjectKey>) -> Bequest {
        let mut bequest = Bequest { left: before.collect(), ..Bequest::default() };
        if remembered.is_empty() {
            return bequest;
        }
        let length = |key: &ObjectKey| key.to_string().len() + "\"\",".len();
        let mut room = LONGEST.saturating_sub(bequest.left.iter().map(length).sum());
        let known = self.keys.known(&remembered.iter().map(|key| self.slots.shard_of(key)).collect());
        for key in remembered {
            if known.contains(&key) {
                bequest.found_by_all.push(key);
                bequest.told += 1;
                continue;
            }
            let Some(rest) = room.checked_sub(length(&key)) else {
                tracing::debug!(controller = %self.controller, "more keys to leave to others than there is room for");
                break;
            };
            if bequest.left.insert(key) {
                room = rest;
            }
            bequest.told += 1;
        }
        bequest
    }

    /// Shards that are not this replica's.
    fn strange(&self) -> impl Iterator<Item = u32> {
        (0..self.config.shards).filter(|shard| !self.held.contains(shard))
    }

    /// Since when others look after a shard.
    fn since_taken(&self, shard: u32) -> Option<Instant> {
        if self.waiting {
            return self.tenures.of_rivals();
        }
        self.tenures.of_another(&self.leases.team().shard(shard), &self.config.identity)
    }

    /// When a lease of a shard was last changed by others who look after it.
    fn last_heard_of_holder(&self, shard: u32) -> Option<Instant> {
        if self.waiting {
            return self.roster.rivals_changed();
        }
        self.roster.changed(&self.leases.team().shard(shard))
    }

    /// Whether this replica takes up keys like this.
    pub(super) fn works_on(&self, key: &ObjectKey) -> bool {
        let shard = self.slots.shard_of(key);
        self.held.contains(&shard) && !self.draining.contains(&shard)
    }
}
