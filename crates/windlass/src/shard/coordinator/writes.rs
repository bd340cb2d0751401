//! The writes of a round: what is sent, and what follows from the answers.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::Timestamp;

use super::Coordinator;
use super::handover::Bequest;
use super::leases::{ByName, Written, left_in, with_left};
use crate::fence::Sent;
use crate::key::ObjectKey;

/// Shards whose lease this replica may write: the lease as it was read, and what to write in order
/// to hold it.
pub(super) type Changes = BTreeMap<u32, (Option<Lease>, LeaseSpec)>;

/// An answer to one of the writes of a round. Times are those before it was sent.
pub(super) enum Answer {
    Renewed(u32, Sent, Written),
    /// With the keys that the former holder left.
    Taken(u32, Sent, Vec<ObjectKey>, Written),
    /// Taken, and given back since another number of shards is in force.
    Superseded(u32),
    GivenBack(u32, Written),
    /// Keys were taken out of a lease that is not this replica's.
    Adopted(Result<(), kube::Error>),
    /// With the keys that are in the lease.
    Joined(Bequest, Written),
    /// The lease of a replica that is gone was deleted, by this one or another.
    Cleared,
}

/// The writes of a round that are under way.
pub(super) type Writes = FuturesUnordered<BoxFuture<'static, Answer>>;

/// Answers looked at together: whatever there is.
pub(super) const BATCH: usize = 64;

impl Coordinator {
    /// The leases in which keys of other shards were left, or of any by a replica that remembered them.
    pub(super) fn with_strays(&self, leases: &ByName) -> Vec<Lease> {
        let strays = |lease: &&Lease| !self.leases.strays(lease).is_empty();
        leases.values().filter(strays).cloned().collect()
    }

    /// Puts the strays of shards held in the queue, then takes them out of the leases. Those of
    /// other shards stay until their holders do so. A key that cannot be taken out is put in the
    /// queue again next time, which does no harm.
    pub(super) fn adopt(&self, leases: Vec<Lease>, take: &[u32], changes: &mut Changes, writes: &Writes) {
        let mut adopted = BTreeSet::new();
        for lease in leases {
            let strays = self.leases.strays(&lease).into_iter();
            let mine: BTreeSet<_> = strays.filter(|key| self.works_on(key)).collect();
            if mine.is_empty() {
                continue;
            }
            let rest: Vec<_> = left_in(&lease).filter(|key| !mine.contains(key)).collect();
            adopted.extend(mine);
            let name = lease.metadata.name.clone();
            let lease = with_left(lease, &rest);
            let written =
                |shard: &u32| self.held.contains(shard) || take.contains(shard) || self.leaving.contains_key(shard);
            let change = changes.iter_mut().find(|(shard, _)| name == Some(self.leases.team().shard(**shard)));
            match change.filter(|(shard, _)| written(shard)) {
                // Written in this round anyway.
                Some((_, (current, _))) => *current = Some(lease),
                None => writes.push(self.leases.rewrite(lease).map(Answer::Adopted).boxed()),
            }
        }
        self.put_in_queue(adopted);
    }

    /// The same with keys that this replica left itself, of shards that it has taken since. They are
    /// taken out when it renews its lease.
    pub(super) fn adopt_own(&self, lease: &Lease) {
        self.put_in_queue(left_in(lease).filter(|key| self.works_on(key)).collect());
    }

    fn put_in_queue(&self, adopted: BTreeSet<ObjectKey>) {
        if adopted.is_empty() {
            return;
        }
        tracing::info!(controller = %self.controller, keys = adopted.len(), "found keys that other replicas left");
        for key in &adopted {
            self.slots.depart(key);
        }
        self.keys.left(adopted);
    }

    /// Sends the renewals of everything held, and says how many.
    pub(super) fn renew(&self, changes: &mut Changes, writes: &Writes) -> usize {
        let mut count = 0;
        for &shard in &self.held {
            if let Some((current, spec)) = changes.remove(&shard) {
                // What was left has been put in the queue.
                let current = current.map(|current| self.leases.with_left(current, &[]));
                let (sent, write) = (Sent::now(), self.leases.write_shard(shard, current, spec));
                writes.push(write.map(move |written| Answer::Renewed(shard, sent, written)).boxed());
                count += 1;
            }
        }
        count
    }

    /// Reaches for shards.
    pub(super) fn take(&self, shards: Vec<u32>, in_force: Option<&str>, changes: &mut Changes, writes: &Writes) {
        for shard in shards {
            if let Some((current, mut spec)) = changes.remove(&shard) {
                // Others must see that a holder begins, even if it is the one that held it last.
                spec.acquire_time.clone_from(&spec.renew_time);
                // Stays in the lease until it is renewed, in case that the answer is lost.
                let left = current.as_ref().map(|current| self.leases.left_at_home(current)).unwrap_or_default();
                let (sent, write) = (Sent::now(), self.leases.take_shard(shard, current, spec, in_force));
                let answer = move |written: Result<_, _>| match written.transpose() {
                    Some(written) => Answer::Taken(shard, sent, left, written),
                    None => Answer::Superseded(shard),
                };
                writes.push(write.map(answer).boxed());
            }
        }
    }

    /// Closes the shards that are drained, so that they can be given back.
    pub(super) fn close_drained(&mut self) {
        let drained = std::mem::take(&mut self.drained);
        let mut unfinished = BTreeSet::new();
        for &shard in &drained {
            unfinished.extend(self.lose(shard, "shard given back"));
        }
        self.leave_behind(&drained, unfinished);
    }

    /// Lets go of what is closed for it, now or in a former round whose write failed: until the lease
    /// runs out there is time to say what is left.
    pub(super) fn give_back(&self, mut changes: Changes, writes: &Writes, wall: Timestamp) {
        for (&shard, left) in &self.leaving {
            let Some((Some(current), _)) = changes.remove(&shard) else {
                continue;
            };
            let spec = current.spec.clone().unwrap_or_default();
            if let Some(released) = self.shards[shard as usize].release(&spec, wall) {
                let write = self.leases.write_shard(shard, Some(self.leases.with_left(current, left)), released);
                writes.push(write.map(move |written| Answer::GivenBack(shard, written)).boxed());
            }
        }
    }

    /// Does what follows from answers. A shard is opened and its keys are put in the queue in one
    /// go: nothing can come between.
    pub(super) fn settle(&mut self, answers: Vec<Answer>) {
        let controller = self.controller.clone();
        let mut taken = BTreeSet::new();
        for answer in answers {
            match answer {
                // Closed since it was sent.
                Answer::Renewed(shard, ..) if !self.held.contains(&shard) => {}
                Answer::Renewed(shard, sent, Ok(spec)) => {
                    if self.slots.slot(shard).extend(sent, self.config.renew_deadline) {
                        self.shards[shard as usize].written(spec, sent.at());
                    } else {
                        // Too late, by whichever clock. Another number of shards may be in force by now:
                        // that is found out when it is taken again.
                        self.lose(shard, "renewed too late");
                    }
                }
                Answer::Taken(shard, sent, left, Ok(spec)) => {
                    self.open(shard, sent, &left, spec);
                    taken.insert(shard);
                }
                Answer::Taken(_, _, _, Err(kube::Error::Api(status)))
                    if status.is_conflict() || status.is_already_exists() => {}
                Answer::Taken(shard, _, _, Err(error)) => tracing::warn!(%controller, shard, %error, "shard not taken"),
                Answer::Renewed(shard, _, Err(error)) => {
                    tracing::warn!(%controller, shard, %error, "shard not renewed");
                }
                Answer::Superseded(shard) => {
                    tracing::info!(%controller, shard, "another number of shards is in force, shard given back");
                }
                Answer::GivenBack(shard, Ok(_)) => drop(self.leaving.remove(&shard)),
                // It runs out by itself, or is given back or ours again in the next round.
                Answer::GivenBack(shard, Err(error)) => {
                    tracing::warn!(%controller, shard, %error, "shard not given back");
                }
                Answer::Adopted(Err(kube::Error::Api(status))) if status.is_conflict() || status.is_not_found() => {}
                Answer::Adopted(Err(error)) => {
                    tracing::warn!(%controller, %error, "left keys not taken out of a lease, trying again");
                }
                // Others take keys out of it.
                Answer::Joined(_, Err(kube::Error::Api(status))) if status.is_conflict() => {}
                Answer::Joined(_, Err(error)) => tracing::warn!(%controller, %error, "membership not renewed"),
                // Remembered from now on, and left again only to later holders of their shard.
                Answer::Joined(bequest, Ok(_)) => bequest.into_keys().for_each(|key| self.slots.tell(&key)),
                Answer::Adopted(Ok(())) | Answer::Cleared => {}
            }
        }
        if !taken.is_empty() {
            self.keys.taken(&taken);
        }
    }

    /// Lets workers take up the keys of a shard that is this replica's, and those that were left.
    fn open(&mut self, shard: u32, sent: Sent, left: &[ObjectKey], spec: LeaseSpec) {
        for key in left {
            self.slots.depart(key);
        }
        self.leaving.remove(&shard);
        self.shards[shard as usize].written(spec, sent.at());
        self.held.insert(shard);
        self.slots.slot(shard).open(sent, self.config.renew_deadline);
        tracing::info!(controller = %self.controller, shard, "took a shard");
    }
}
