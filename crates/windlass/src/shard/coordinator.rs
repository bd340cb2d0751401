//! Which replica holds which shard: this replica's part of the agreement, on `Lease` objects.
//!
//! One round is one list of all leases of the controller, followed by the writes that the
//! [plan](super::plan) asks for. Every write carries the version that was read, so of two replicas
//! that reach for a shard one fails.
//!
//! Writes are sent together and each counts as soon as it is answered, whatever becomes of the
//! others: one that hangs costs its own shard, whose fence closes by itself. Between an answer and
//! all that follows from it nothing waits, so that a round may be dropped at any time.
//!
//! ```text
//! round: meet (others, number) ▸ look at every shard ▸ plan ▸ adopt, renew, take, give back (writes) ▸ settle
//! ```

mod handover;
mod leases;
mod leaving;
mod number;
mod others;
mod tenure;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::leases::{ByName, Leases, holder};
use self::leaving::nobodys;
use self::others::{Joined, Others, Roster, joined_at};
use self::tenure::Tenures;
use self::writes::{Answer, BATCH, Changes, Writes};
use super::{Plan, Sharding, Slots, Team, plan, quota};
use crate::events::Recorder;
use crate::key::ObjectKey;
use crate::lease::{Election, Intent, LeaderElection};

/// The keys of shards.
pub(crate) trait Keys: Send + Sync {
    /// The shards were taken: puts all their keys in the queue.
    fn taken(&self, shards: &BTreeSet<u32>);
    /// Puts keys in the queue that another replica left, of shards that are held.
    fn left(&self, keys: BTreeSet<ObjectKey>);
    /// The keys in the queue, and those being worked on.
    fn pending(&self, shards: &BTreeSet<u32>) -> BTreeSet<ObjectKey>;
    /// The keys that any replica finds in its caches.
    fn known(&self, shards: &BTreeSet<u32>) -> BTreeSet<ObjectKey>;
}

/// Takes, renews and gives back the shards of one controller.
pub(crate) struct Coordinator {
    leases: Leases,
    /// For the log.
    controller: String,
    config: Sharding,
    slots: Slots,
    keys: Box<dyn Keys>,
    shards: Vec<Election>,
    held: BTreeSet<u32>,
    draining: BTreeSet<u32>,
    /// Those of them in which nothing runs, and of which all that was reported is written.
    drained: BTreeSet<u32>,
    /// Shards that were closed in order to be given back, until that is known to be written, with
    /// the keys that are left to the next holder.
    leaving: BTreeMap<u32, Vec<ObjectKey>>,
    membership: Election,
    recorder: Recorder,
    roster: Roster,
    tenures: Tenures,
    /// Whether others divide the keys otherwise, and this replica waits for them.
    waiting: bool,
    /// Whether this replica gives away everything, as soon as nothing runs in it.
    stopping: bool,
}

/// When a round looks at the leases: by the clock of this process, and by that of the machine.
#[derive(Clone, Copy)]
struct Moment {
    now: Instant,
    wall: Timestamp,
}

/// How a round ended.
enum Ended {
    Answered,
    OutOfTime,
}

/// What a round finds out about the others before it looks at the shards.
struct Meeting {
    leases: ByName,
    at: Moment,
    others: Others,
    /// Whether the others know of this replica.
    seen_by_others: bool,
    /// The version of the lease that says that this replica's number of shards is in force.
    in_force: Option<String>,
    /// The lease of this replica, and what to write in order to renew it, if that is still to be done.
    member: Option<(Lease, LeaseSpec)>,
}

impl Coordinator {
    /// `client` must not pass through any fence.
    pub(crate) fn new(
        client: kube::Client,
        (manager, controller): (&str, &str),
        config: Sharding,
        slots: Slots,
        keys: Box<dyn Keys>,
        recorder: Recorder,
    ) -> Self {
        let team = Team::new(manager, controller);
        let namespace = config.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let election = |name: String| {
            LeaderElection::new(name)
                .namespace(&namespace)
                .identity(&config.identity)
                .lease_duration(config.lease_duration)
                .renew_deadline(config.renew_deadline)
                .retry_period(config.retry_period)
        };
        Self {
            shards: (0..config.shards).map(|shard| Election::new(election(team.shard(shard)))).collect(),
            membership: Election::new(election(team.member(&config.identity))),
            leases: Leases::new(Api::namespaced(client, &namespace), team, config.shards),
            controller: controller.to_owned(),
            config,
            slots,
            keys,
            held: BTreeSet::new(),
            draining: BTreeSet::new(),
            drained: BTreeSet::new(),
            recorder,
            leaving: BTreeMap::new(),
            roster: Roster::default(),
            tenures: Tenures::default(),
            waiting: false,
            stopping: false,
        }
    }

    /// Takes part until the first token is cancelled, gives away its shards one by one when nothing
    /// runs in them, and the rest when the second is: nothing may run in any shard by then. Dropping
    /// the future leaves the leases to run out.
    pub(crate) async fn run(mut self, stop: CancellationToken, stopped: CancellationToken) {
        while !stopped.is_cancelled() {
            self.stopping = stop.is_cancelled();
            let started = Instant::now();
            let done = match self.round().await {
                Ok(Ended::Answered) => true,
                Ok(Ended::OutOfTime) => {
                    tracing::warn!(controller = %self.controller, "not all leases were answered in time");
                    false
                }
                Err(error) => {
                    tracing::warn!(controller = %self.controller, %error, "shards not renewed");
                    false
                }
            };
            self.drop_expired();
            // From start to start: a round in which one write hangs must not delay the next renewals.
            let period = self.config.retry_period.mul_f64(1.0 + 0.2 * fastrand::f64());
            let next = started + period;
            let stops = async { if self.stopping { std::future::pending().await } else { stop.cancelled().await } };
            // Cancel-safe: nothing is taken by any of them.
            let drained = tokio::select! {
                () = stopped.cancelled() => break,
                () = stops => continue,
                drained = self.drain(next, done) => drained,
            };
            self.drained.extend(drained);
        }
        self.drop_expired();
        for slot in self.slots.iter() {
            slot.close();
        }
        self.leave().await;
    }

    /// Waits until a moment, or until shards can be given back: their last keys are finished, and what
    /// was reported of them passed their fences. After a round that failed, the moment is waited for.
    async fn drain(&self, next: Instant, early: bool) -> BTreeSet<u32> {
        let idle: Vec<_> = self.draining.iter().map(|shard| Box::pin(self.slots.slot(*shard).idle())).collect();
        if !early || idle.is_empty() {
            tokio::time::sleep_until(next).await;
        } else if tokio::time::timeout_at(next, futures::future::select_all(idle)).await.is_ok() {
            let idle = self.draining.iter().copied().filter(|shard| self.slots.slot(*shard).is_idle()).collect();
            // Longer than that, if need be: as long as others can wait for their renewals.
            let _ = tokio::time::timeout(self.config.renew_deadline / 4, self.recorder.flush()).await;
            return idle;
        }
        BTreeSet::new()
    }

    /// How long a round may take: what is held needs another while it is held. A replica that holds nothing has
    /// time.
    fn round_limit(&self) -> Duration {
        let whole = self.config.renew_deadline;
        (if self.held.is_empty() { whole } else { whole / 2 }).max(Duration::from_millis(100))
    }

    /// Dropping what is not answered in time drops that, and nothing else.
    async fn round(&mut self) -> Result<Ended, kube::Error> {
        let started = Instant::now();
        let soon = started + self.round_limit();
        let Ok(writes) = tokio::time::timeout_at(soon, self.begin()).await else {
            return Ok(Ended::OutOfTime);
        };
        let (writes, mut renewals) = writes?;
        let mut answers = writes.ready_chunks(BATCH);
        loop {
            // Once everything is renewed, others get more time: taking a shard needs one request more. What
            // is taken by then must be renewed in its turn.
            let limit = match (renewals, self.held.is_empty()) {
                (0, false) => started + self.config.renew_deadline.mul_f64(0.75),
                _ => soon,
            };
            match tokio::time::timeout_at(limit, answers.next()).await {
                Ok(None) => return Ok(Ended::Answered),
                Ok(Some(answers)) => {
                    renewals -= answers.iter().filter(|answer| matches!(answer, Answer::Renewed(..))).count();
                    self.settle(answers);
                }
                Err(_) => return Ok(Ended::OutOfTime),
            }
        }
    }

    /// Finds out how things are, and what to write. Returns the writes, and how many renewals are among
    /// them.
    async fn begin(&mut self) -> Result<(Writes, usize), kube::Error> {
        let mut writes = Writes::new();
        self.drop_expired();
        let Meeting { mut leases, at, others, seen_by_others, in_force, member } = self.meet(&mut writes).await?;
        self.wait_for_rivals(&others);
        self.tenures.look(&leases, self.config.shards, at.now);
        // While that was found out, too: what has run out comes back only as one that is taken.
        self.drop_expired();
        let strays = self.with_strays(&leases);
        let (mut changes, free) = self.look(&mut leases, at);
        let Plan { take, give } = self.plan(&others, seen_by_others && in_force.is_some(), &free);
        for shard in give {
            tracing::info!(controller = %self.controller, shard, "giving a shard to another replica");
            self.slots.slot(shard).drain();
            self.draining.insert(shard);
        }
        if let Some((lease, spec)) = member {
            self.bequeath(lease.clone(), spec, &changes, &writes);
            self.adopt_own(&lease);
        }
        self.close_drained();
        self.adopt(strays, &take, &mut changes, &writes);
        let renewals = self.renew(&mut changes, &writes);
        self.take(take, in_force.as_deref(), &mut changes, &writes);
        self.give_back(changes, &writes, at.wall);
        Ok((writes, renewals))
    }

    /// Says that this replica is there, and finds out who else is.
    async fn meet(&mut self, writes: &mut Writes) -> Result<Meeting, kube::Error> {
        let asked = Instant::now();
        let mut leases = self.leases.list().await?;
        let mut at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let own = self.leases.team().member(&self.config.identity);
        let member = leases.remove(&own);
        // One that stopped leaves its lease if there are keys in it.
        let is_new = member.as_ref().and_then(holder).is_none();
        let joined = member.as_ref().filter(|_| !is_new).map(joined_at);
        let (mut seen_by_others, mut renewal) = (true, None);
        let spec = member.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        if member.is_none() {
            // A shard whose lease is missing is not waited for: it is this replica's, or has no holder.
            self.membership.forget();
        }
        let intent = self.membership.look(spec.as_ref(), at.now.into_std(), at.wall);
        let too_slow = self.held.is_empty() && asked.elapsed() > self.config.renew_deadline / 3;
        match intent {
            Intent::Wait { holder } => {
                tracing::warn!(controller = %self.controller, %holder, "another replica has this one's lease");
                seen_by_others = false;
            }
            Intent::Write(_) if self.stopping => {
                // Others are not to count on this replica any more, though it still holds shards.
                if !is_new || (0..self.config.shards).any(|shard| self.owes(shard)) {
                    renewal = Some((member.unwrap_or_default(), nobodys(spec)));
                }
            }
            Intent::Write(_) if too_slow => {
                // What it took would run out before it is known to be taken, and have no holder meanwhile.
                tracing::warn!(controller = %self.controller, "the server is too slow, leaving all shards to others");
                seen_by_others = false;
            }
            Intent::Write(spec) if is_new => {
                let join = self.leases.write_member(&self.config.identity, member, spec);
                if self.held.is_empty() {
                    join.await?;
                } else {
                    // What is held is renewed all the same.
                    seen_by_others = matches!(tokio::time::timeout(self.round_limit() / 4, join).await, Ok(Ok(_)));
                }
            }
            Intent::Write(spec) => renewal = member.map(|member| (member, spec)),
        }
        if is_new && !self.stopping && !too_slow {
            // Of two that join at the same time one at least must see the other.
            leases = self.leases.list().await?;
            at = Moment { now: Instant::now(), wall: Timestamp::now() };
        }
        let mut others = self.look_around(&mut leases, joined.as_ref(), at);
        let mut number = leases.remove(&self.leases.team().number());
        if seen_by_others && self.wants_to_change(number.as_ref(), &others) && self.change_number(number.clone()).await
        {
            // A replica that took shards by another number before the change is seen now; one that does after it sees
            // the change.
            leases = self.leases.list().await?;
            at = Moment { now: Instant::now(), wall: Timestamp::now() };
            others = self.look_around(&mut leases, joined.as_ref(), at);
            number = leases.remove(&self.leases.team().number());
        }
        let in_force = self.in_force(number.as_ref(), &others);
        for (name, version) in std::mem::take(&mut others.gone) {
            writes.push(self.leases.clear(name, version).map(|()| Answer::Cleared).boxed());
        }
        Ok(Meeting { leases, at, others, seen_by_others, in_force, member: renewal })
    }

    /// Who else is there.
    fn look_around(&mut self, leases: &mut ByName, joined: Option<&Joined>, at: Moment) -> Others {
        leases.remove(&self.leases.team().member(&self.config.identity));
        self.roster.look(leases, (&self.config.identity, self.config.shards), joined.cloned(), at.now)
    }

    fn wait_for_rivals(&mut self, others: &Others) {
        let wait = others.must_wait(!self.held.is_empty());
        if wait && !self.waiting {
            let (controller, shards) = (&self.controller, self.config.shards);
            tracing::error!(%controller, shards, "other replicas have another number of shards, waiting for them to go");
        }
        self.waiting = wait;
    }

    /// Looks at the lease of every shard: what could be written, and which of them are free. What
    /// is another's by now is lost.
    fn look(&mut self, leases: &mut ByName, at: Moment) -> (Changes, BTreeSet<u32>) {
        let (mut changes, mut free) = (Changes::new(), BTreeSet::new());
        for shard in 0..self.config.shards {
            let current = leases.remove(&self.leases.team().shard(shard));
            let spec = current.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
            // One that is held and was deleted by hand is made again when it is renewed.
            let held = self.held.contains(&shard);
            let ours = current.as_ref().map_or(held, |lease| holder(lease) == Some(&self.config.identity));
            if !ours {
                // Written after all, or too late.
                self.leaving.remove(&shard);
            }
            match self.shards[shard as usize].look(spec.as_ref(), at.now.into_std(), at.wall) {
                Intent::Write(spec) => {
                    changes.insert(shard, (current, spec));
                    // One that a former round took without hearing of it counts as free.
                    if !self.held.contains(&shard) {
                        free.insert(shard);
                    } else if !ours {
                        self.lose(shard, "shard was given back or has run out");
                        free.insert(shard);
                    }
                }
                Intent::Wait { holder } if self.held.contains(&shard) => {
                    tracing::warn!(controller = %self.controller, shard, %holder, "shard taken by another");
                    self.lose(shard, "shard taken by another");
                }
                Intent::Wait { .. } => {}
            }
            let rivals_work = self.waiting && self.tenures.of_rivals().is_some();
            let looked_after = rivals_work || self.held.contains(&shard) || !changes.contains_key(&shard);
            let looked_after = looked_after && !self.owes(shard);
            if let Some(before) = at.now.checked_sub(2 * self.config.lease_duration).filter(|_| looked_after) {
                self.slots.slot(shard).forget(before);
            }
        }
        (changes, free)
    }

    fn plan(&self, others: &Others, may_take: bool, free: &BTreeSet<u32>) -> Plan {
        let keep: BTreeSet<u32> = self.held.difference(&self.draining).copied().collect();
        let share = match (self.waiting || self.stopping, may_take) {
            (true, _) => 0,
            (false, true) => quota(&others.members, &self.config.identity, self.config.shards),
            (false, false) => keep.len() as u32,
        };
        let turn = super::shard_of(&ObjectKey::cluster(&self.config.identity), u32::MAX);
        plan(&keep, free, share, turn)
    }

    /// The shard is not this replica's any more. Returns the keys that it has not done with.
    fn lose(&mut self, shard: u32, why: &'static str) -> BTreeSet<ObjectKey> {
        tracing::debug!(controller = %self.controller, shard, why, "shard closed");
        self.slots.slot(shard).close();
        // It may not have been seen to when the shard is this replica's again.
        let unfinished = self.unfinished(&BTreeSet::from([shard]));
        for key in &unfinished {
            self.slots.depart(key);
        }
        // Who has it by now does not know of these, whenever it was seen to have it.
        self.tenures.begin(&self.leases.team().shard(shard), Instant::now());
        self.slots.slot(shard).part();
        self.shards[shard as usize].step_down();
        self.held.remove(&shard);
        self.draining.remove(&shard);
        self.drained.remove(&shard);
        unfinished
    }

    /// What could not be renewed in time is no longer held, whatever the server says: its work was
    /// dropped, so its keys must be put in the queue again when it is.
    fn drop_expired(&mut self) {
        let expired = self.held.iter().filter(|shard| !self.slots.slot(**shard).fence.is_open());
        for shard in expired.copied().collect::<Vec<_>>() {
            self.lose(shard, "not renewed in time");
        }
    }

    /// Keys of shards that this replica has not done with.
    fn unfinished(&self, shards: &BTreeSet<u32>) -> BTreeSet<ObjectKey> {
        // First the queue: a worker refuses a key before it gives it back.
        let mut keys = self.keys.pending(shards);
        keys.extend(shards.iter().flat_map(|shard| self.slots.slot(*shard).refused()));
        keys
    }

    /// Those of the keys that this replica has not done with that others cannot know of.
    fn left_over(&self, shards: &BTreeSet<u32>, mut left: BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
        if !left.is_empty() {
            let known = self.keys.known(shards);
            left.retain(|key| !known.contains(key));
        }
        left.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
