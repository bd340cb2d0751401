//! Who holds which shard: this replica's part of the agreement, on `Lease` objects.
//!
//! One round is one list of all leases of the controller, followed by the writes that the
//! [plan](super::plan) asks for. Every write carries the version that was read, so of two replicas
//! that reach for a shard one fails.
//!
//! Writes are sent together and each counts as soon as it is answered, whatever becomes of the
//! others: one that hangs costs its own shard, whose fence closes by itself. Between an answer and
//! all that follows from it nothing waits, so that a round may be dropped at any time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Plan, Sharding, Slots, Team, plan, quota};
use crate::key::ObjectKey;
use crate::lease::{Election, Intent, LeaderElection};

/// Says of which controller a lease is part.
const CONTROLLER_LABEL: &str = "windlass.dev/sharded-controller";
/// Says of which manager that controller is: others may have one of the same name.
const MANAGER_LABEL: &str = "windlass.dev/sharded-manager";
/// Says what a lease is: `shard` or `member`.
const ROLE_LABEL: &str = "windlass.dev/shard-role";
/// Says into how many shards the writer of a lease divides the keys.
const COUNT_LABEL: &str = "windlass.dev/shards";

/// Keys that a replica had not done with when it gave the shard back, and that are in no cache.
const LEFT_ANNOTATION: &str = "windlass.dev/left-keys";
/// How long that may be. All annotations of an object together may have 256 KiB.
const LONGEST_LEFT: usize = 200 * 1024;

/// The keys of shards.
pub(crate) trait Keys: Send + Sync {
    /// The shards were taken: puts all their keys in the queue.
    fn taken(&self, shards: &BTreeSet<u32>);
    /// The keys in the queue, and those being worked on.
    fn pending(&self, shards: &BTreeSet<u32>) -> BTreeSet<ObjectKey>;
    /// The keys that any replica finds in its caches.
    fn known(&self, shards: &BTreeSet<u32>) -> BTreeSet<ObjectKey>;
}

/// Takes, renews and gives back the shards of one controller.
pub(crate) struct Coordinator {
    leases: Api<Lease>,
    /// For the log.
    controller: String,
    team: Team,
    config: Sharding,
    slots: Slots,
    keys: Box<dyn Keys>,
    shards: Vec<Election>,
    held: BTreeSet<u32>,
    draining: BTreeSet<u32>,
    membership: Election,
    /// Other replicas: their lease as last seen, and since when it is so.
    seen: HashMap<String, (Option<String>, Instant)>,
    /// Whether others divide the keys otherwise, and this replica waits for them.
    waiting: bool,
}

/// A lease as it was read, and what to write.
type Change = (Option<Lease>, LeaseSpec);
/// A lease as it was written.
type Written = Result<LeaseSpec, kube::Error>;

/// An answer to one of the writes of a round. Times are those before it was sent.
enum Answer {
    Renewed(u32, Instant, Written),
    /// With the keys that the former holder left.
    Taken(u32, Instant, Vec<ObjectKey>, Written),
    GivenBack(u32, Written),
    Joined(Written),
    /// The lease of a replica that is gone was deleted, by this one or another.
    Cleared,
}

/// The writes of a round that are under way.
type Writes = FuturesUnordered<BoxFuture<'static, Answer>>;

/// Answers looked at together: whatever there is.
const BATCH: usize = 64;

/// The other replicas, as a round finds them.
struct Others {
    /// Those that count as this one does, and this one.
    members: BTreeSet<String>,
    /// When the first of these joined; `None` if only this one did, just now.
    joined: Option<Joined>,
    /// Whether one of the others that count as this one does holds a shard.
    peer_holds: bool,
    /// When the first of those that count otherwise joined.
    rival_joined: Option<Joined>,
    /// Whether one that counts otherwise holds a shard.
    rival_holds: bool,
}

impl Others {
    /// Whether to leave everything to those who count otherwise. Those who work go on, and others
    /// may help them; while nobody works, those begin of whom the first joined.
    fn must_wait(&self, holds: bool) -> bool {
        let rivals_first = self.rival_joined.as_ref().is_some_and(|rival| {
            // One that has just joined is younger than everybody it finds.
            self.joined.as_ref().is_none_or(|own| rival < own)
        });
        match (holds || self.peer_holds, self.rival_holds) {
            (true, false) => false,
            (false, true) => true,
            _ => rivals_first,
        }
    }
}

impl Coordinator {
    /// `client` must not pass through any fence.
    pub(crate) fn new(
        client: kube::Client,
        (manager, controller): (&str, &str),
        config: Sharding,
        slots: Slots,
        keys: Box<dyn Keys>,
    ) -> Self {
        let team = Team::new(manager, controller);
        let namespace = config.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let election = |name: String| {
            Election::new(LeaderElection {
                namespace: namespace.clone(),
                name,
                identity: config.identity.clone(),
                lease_duration: config.lease_duration,
                renew_deadline: config.renew_deadline,
                retry_period: config.retry_period,
                release_on_exit: true,
            })
        };
        Self {
            leases: Api::namespaced(client, &namespace),
            shards: (0..config.shards).map(|shard| election(team.shard(shard))).collect(),
            membership: election(team.member(&config.identity)),
            controller: controller.to_owned(),
            team,
            config,
            slots,
            keys,
            held: BTreeSet::new(),
            draining: BTreeSet::new(),
            seen: HashMap::new(),
            waiting: false,
        }
    }

    /// Takes part until the token is cancelled, then gives back what is held. Nothing may run in
    /// any shard by then. Dropping the future leaves the leases to run out.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            let started = Instant::now();
            // Dropping a round drops what is not answered yet, and nothing else.
            match tokio::time::timeout(self.round_limit(), self.round()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(controller = %self.controller, %error, "shards not renewed"),
                Err(_) => tracing::warn!(controller = %self.controller, "shards not renewed in time"),
            }
            self.drop_expired();
            // From start to start: a round in which one write hangs must not delay the next renewals.
            let period = self.config.retry_period.mul_f64(1.0 + 0.2 * fastrand::f64());
            let pause = period.saturating_sub(started.elapsed());
            // A shard that is being drained is given back as soon as its last key is finished.
            let drained = async {
                let slots = self.draining.iter().map(|shard| Box::pin(self.slots.slot(*shard).idle()));
                let slots: Vec<_> = slots.collect();
                if slots.is_empty() { std::future::pending().await } else { futures::future::select_all(slots).await }
            };
            // Cancel-safe: nothing is taken by any of them.
            tokio::select! {
                () = shutdown.cancelled() => {}
                _ = tokio::time::timeout(pause, drained) => {}
            }
        }
        for slot in self.slots.iter() {
            slot.close();
        }
        if tokio::time::timeout(self.round_limit(), self.leave()).await.is_err() {
            tracing::warn!(controller = %self.controller, "shards not given back in time");
        }
    }

    fn round_limit(&self) -> Duration {
        (self.config.renew_deadline / 2).max(Duration::from_millis(100))
    }

    async fn round(&mut self) -> Result<(), kube::Error> {
        let mut leases = self.list().await?;
        let (now, wall) = (Instant::now(), Timestamp::now());
        let mut writes = Writes::new();
        let own = self.team.member(&self.config.identity);
        let member = leases.remove(&own);
        let (is_new, joined) = (member.is_none(), member.as_ref().map(joined_at));
        let mut seen_by_others = true;
        if let Some(join) = self.join(member, now, wall) {
            if !is_new {
                writes.push(join.map(Answer::Joined).boxed());
            } else if self.held.is_empty() {
                join.await?;
            } else {
                // What is held is renewed all the same.
                seen_by_others = matches!(tokio::time::timeout(self.round_limit() / 4, join).await, Ok(Ok(_)));
            }
        }
        if is_new {
            // Of two that join at the same time one at least must see the other.
            leases = self.list().await?;
            leases.remove(&own);
        }
        let (others, gone) = self.others(&leases, joined, now);
        writes.extend(gone.into_iter().map(|(name, version)| self.clear(name, version)));
        let wait = others.must_wait(!self.held.is_empty());
        if wait && !self.waiting {
            let (controller, shards) = (&self.controller, self.config.shards);
            tracing::error!(%controller, shards, "other replicas have another number of shards, waiting for them to go");
        }
        self.waiting = wait;
        let mut currents: Vec<Option<Lease>> =
            (0..self.config.shards).map(|shard| leases.remove(&self.team.shard(shard))).collect();
        let mut changes: BTreeMap<u32, Change> = BTreeMap::new();
        let mut free = BTreeSet::new();
        for (shard, current) in (0u32..).zip(&mut currents) {
            let spec = current.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
            let ours = spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()) == Some(&self.config.identity);
            match self.shards[shard as usize].look(spec.as_ref(), now.into_std(), wall) {
                Intent::Write(spec) => {
                    changes.insert(shard, (current.take(), spec));
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
            let looked_after = wait || self.held.contains(&shard) || !changes.contains_key(&shard);
            if let Some(before) = now.checked_sub(2 * self.config.lease_duration).filter(|_| looked_after) {
                self.slots.slot(shard).forget(before);
            }
        }
        let keep: BTreeSet<u32> = self.held.difference(&self.draining).copied().collect();
        let share = match (wait, seen_by_others) {
            (true, _) => 0,
            (false, true) => quota(&others.members, &self.config.identity, self.config.shards),
            (false, false) => keep.len() as u32,
        };
        let turn = super::shard_of(&crate::ObjectKey::cluster(&self.config.identity), u32::MAX);
        let Plan { take, give } = plan(&keep, &free, share, turn);
        for shard in give {
            tracing::info!(controller = %self.controller, shard, "giving a shard to another replica");
            self.slots.slot(shard).drain();
            self.draining.insert(shard);
        }
        self.renew(&mut changes, &writes);
        self.give_back_drained(&mut changes, &writes, wall);
        self.take(take, &mut changes, &writes);
        let mut answers = writes.ready_chunks(BATCH);
        while let Some(answers) = answers.next().await {
            self.settle(answers);
        }
        Ok(())
    }

    /// Sends the renewals of everything held.
    fn renew(&self, changes: &mut BTreeMap<u32, Change>, writes: &Writes) {
        let idle = |shard: &u32| self.draining.contains(shard) && self.slots.slot(*shard).is_idle();
        for &shard in self.held.iter().filter(|shard| !idle(shard)) {
            if let Some((current, spec)) = changes.remove(&shard) {
                // What was left has been put in the queue.
                let current = current.map(|current| with_left(current, &[]));
                let (sent, write) = (Instant::now(), self.write(&self.team.shard(shard), "shard", current, spec));
                writes.push(write.map(move |written| Answer::Renewed(shard, sent, written)).boxed());
            }
        }
    }

    /// Reaches for shards.
    fn take(&self, shards: Vec<u32>, changes: &mut BTreeMap<u32, Change>, writes: &Writes) {
        for shard in shards {
            if let Some((current, spec)) = changes.remove(&shard) {
                // Stays in the lease until it is renewed, in case that the answer is lost.
                let left = current.as_ref().map(left_in).unwrap_or_default();
                let (sent, write) = (Instant::now(), self.write(&self.team.shard(shard), "shard", current, spec));
                writes.push(write.map(move |written| Answer::Taken(shard, sent, left, written)).boxed());
            }
        }
    }

    /// Closes the shards that are drained and lets go of them.
    fn give_back_drained(&mut self, changes: &mut BTreeMap<u32, Change>, writes: &Writes, wall: Timestamp) {
        let drained: Vec<u32> =
            self.draining.iter().filter(|shard| self.slots.slot(**shard).is_idle()).copied().collect();
        for shard in drained {
            self.lose(shard, "shard given back");
            let Some((Some(current), _)) = changes.remove(&shard) else {
                continue;
            };
            let spec = current.spec.clone().unwrap_or_default();
            let left = self.left_over(&BTreeSet::from([shard]));
            if let Some(released) = self.shards[shard as usize].release(&spec, wall) {
                let current = Some(with_left(current, &left));
                let write = self.write(&self.team.shard(shard), "shard", current, released);
                writes.push(write.map(move |written| Answer::GivenBack(shard, written)).boxed());
            }
        }
    }

    /// Deletes the lease of a replica that is gone, as it was seen.
    fn clear(&self, name: String, resource_version: Option<String>) -> BoxFuture<'static, Answer> {
        let leases = self.leases.clone();
        async move {
            let preconditions = Some(Preconditions { resource_version, uid: None });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            // Another replica may be faster.
            let _ = leases.delete(&name, &params).await;
            Answer::Cleared
        }
        .boxed()
    }

    /// Does what follows from answers. A shard is opened and its keys are put in the queue in one
    /// go: nothing can come between.
    fn settle(&mut self, answers: Vec<Answer>) {
        let controller = self.controller.clone();
        let mut taken = BTreeSet::new();
        for answer in answers {
            match answer {
                Answer::Renewed(shard, sent, Ok(spec)) => {
                    let until = self.shards[shard as usize].valid_until();
                    self.extend(shard, spec, sent);
                    // Answered too late: work has been dropped, so it starts over. Looked at after
                    // the extension, so that no worker finds the time up later than this.
                    let lapsed = until.is_none_or(|until| until <= Instant::now().into_std());
                    if lapsed && !self.draining.contains(&shard) {
                        taken.insert(shard);
                    }
                }
                Answer::Taken(shard, sent, left, Ok(spec)) => {
                    for key in &left {
                        self.slots.depart(key);
                    }
                    self.extend(shard, spec, sent);
                    self.held.insert(shard);
                    self.slots.slot(shard).open();
                    tracing::info!(%controller, shard, "took a shard");
                    taken.insert(shard);
                }
                Answer::Taken(_, _, _, Err(kube::Error::Api(status)))
                    if status.is_conflict() || status.is_already_exists() => {}
                Answer::Taken(shard, _, _, Err(error)) => tracing::warn!(%controller, shard, %error, "shard not taken"),
                Answer::Renewed(shard, _, Err(error)) => {
                    tracing::warn!(%controller, shard, %error, "shard not renewed");
                }
                Answer::GivenBack(shard, Err(error)) => {
                    // It runs out by itself, or is ours again in the next round.
                    tracing::warn!(%controller, shard, %error, "shard not given back");
                }
                Answer::Joined(Err(error)) => tracing::warn!(%controller, %error, "membership not renewed"),
                Answer::GivenBack(_, Ok(_)) | Answer::Joined(Ok(_)) | Answer::Cleared => {}
            }
        }
        if !taken.is_empty() {
            self.keys.taken(&taken);
        }
    }

    fn extend(&mut self, shard: u32, spec: LeaseSpec, sent: Instant) {
        self.shards[shard as usize].written(spec, sent.into_std());
        self.slots.slot(shard).extend(sent + self.config.renew_deadline);
    }

    /// Keys of shards that this replica has not done with and others cannot know of.
    fn left_over(&self, shards: &BTreeSet<u32>) -> Vec<ObjectKey> {
        let mut left = self.keys.pending(shards);
        left.extend(shards.iter().flat_map(|shard| self.slots.slot(*shard).refused()));
        if !left.is_empty() {
            let known = self.keys.known(shards);
            left.retain(|key| !known.contains(key));
        }
        left.into_iter().collect()
    }

    fn lose(&mut self, shard: u32, why: &'static str) {
        tracing::debug!(controller = %self.controller, shard, why, "shard closed");
        self.slots.slot(shard).close();
        // Nobody may have seen to it when the shard is this replica's again.
        for key in self.keys.pending(&BTreeSet::from([shard])) {
            self.slots.depart(&key);
        }
        self.shards[shard as usize].step_down();
        self.held.remove(&shard);
        self.draining.remove(&shard);
    }

    /// What could not be renewed in time is no longer held, whatever the server says: its work was
    /// dropped, so its keys must be put in the queue again when it is.
    fn drop_expired(&mut self) {
        let now = Instant::now().into_std();
        let expired = self.held.iter().filter(|shard| !self.shards[**shard as usize].is_leader(now));
        for shard in expired.copied().collect::<Vec<_>>() {
            self.lose(shard, "not renewed in time");
        }
    }

    /// Says that this replica is there.
    fn join(&mut self, current: Option<Lease>, now: Instant, wall: Timestamp) -> Option<BoxFuture<'static, Written>> {
        let spec = current.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        match self.membership.look(spec.as_ref(), now.into_std(), wall) {
            Intent::Write(spec) => {
                let name = self.team.member(&self.config.identity);
                Some(self.write(&name, "member", current, spec))
            }
            Intent::Wait { .. } => None,
        }
    }

    /// The replicas that have been heard of within the lease duration, and the leases of those that
    /// have not.
    fn others(
        &mut self,
        leases: &BTreeMap<String, Lease>,
        joined: Option<Joined>,
        now: Instant,
    ) -> (Others, Vec<(String, Option<String>)>) {
        let members = BTreeSet::from([self.config.identity.clone()]);
        let mut others = Others { members, joined, peer_holds: false, rival_joined: None, rival_holds: false };
        let mut gone = Vec::new();
        self.seen.retain(|name, _| leases.contains_key(name));
        for (name, lease) in leases {
            let (rival, is_member) = (self.is_rival(lease), label(lease, ROLE_LABEL) == Some("member"));
            let version = lease.metadata.resource_version.clone();
            let unchanged = match self.seen.get(name) {
                Some((seen, since)) if *seen == version => *since,
                _ => now,
            };
            self.seen.insert(name.clone(), (version.clone(), unchanged));
            let spec = lease.spec.as_ref();
            let holder = spec.and_then(|spec| spec.holder_identity.clone()).filter(|holder| !holder.is_empty());
            let duration = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or_default().max(0);
            let live = unchanged + Duration::from_secs(duration as u64) > now;
            match (is_member, live, rival) {
                (true, false, _) => gone.push((name.clone(), version)),
                (true, true, true) => first(&mut others.rival_joined, joined_at(lease)),
                (true, true, false) => {
                    first(&mut others.joined, joined_at(lease));
                    others.members.extend(holder);
                }
                (false, live, true) => others.rival_holds |= live && holder.is_some(),
                (false, live, false) => {
                    others.peer_holds |= live && holder.is_some_and(|holder| holder != self.config.identity);
                }
            }
        }
        (others, gone)
    }

    /// Whether whoever wrote a lease divides the keys otherwise.
    fn is_rival(&self, lease: &Lease) -> bool {
        label(lease, COUNT_LABEL).is_some_and(|count| count != self.config.shards.to_string())
    }

    async fn list(&self) -> Result<BTreeMap<String, Lease>, kube::Error> {
        let Team { manager, controller } = &self.team;
        let params =
            ListParams::default().labels(&format!("{CONTROLLER_LABEL}={controller},{MANAGER_LABEL}={manager}"));
        let list = self.leases.list(&params).await?;
        Ok(list.items.into_iter().filter_map(|lease| Some((lease.metadata.name.clone()?, lease))).collect())
    }

    async fn leave(&self) {
        let leases = match self.list().await {
            Ok(leases) => leases,
            Err(error) => {
                tracing::warn!(controller = %self.controller, %error, "shards not given back");
                return;
            }
        };
        let wall = Timestamp::now();
        let left = self.left_over(&self.held);
        let released = (0..self.config.shards).filter_map(|shard| {
            let name = self.team.shard(shard);
            let current = leases.get(&name)?.clone();
            let spec = self.shards[shard as usize].release(current.spec.as_ref()?, wall)?;
            let of_shard = |key: &&ObjectKey| super::shard_of(key, self.config.shards) == shard;
            let left: Vec<ObjectKey> = left.iter().filter(of_shard).cloned().collect();
            Some(self.write(&name, "shard", Some(with_left(current, &left)), spec))
        });
        let member = self.team.member(&self.config.identity);
        let params = DeleteParams::default();
        let (released, _) = futures::join!(join_all(released), self.leases.delete(&member, &params));
        for error in released.into_iter().filter_map(Result::err) {
            tracing::warn!(controller = %self.controller, %error, "shard not given back");
        }
    }

    /// Writes a lease, provided that it is as it was read (or not there).
    fn write(&self, name: &str, role: &str, current: Option<Lease>, spec: LeaseSpec) -> BoxFuture<'static, Written> {
        let mut lease = current.unwrap_or_default();
        let exists = lease.metadata.resource_version.is_some();
        lease.metadata.name = Some(name.to_owned());
        lease.metadata.labels.get_or_insert_default().extend([
            (CONTROLLER_LABEL.to_owned(), self.team.controller.clone()),
            (MANAGER_LABEL.to_owned(), self.team.manager.clone()),
            (ROLE_LABEL.to_owned(), role.to_owned()),
            (COUNT_LABEL.to_owned(), self.config.shards.to_string()),
        ]);
        lease.spec = Some(spec);
        let (leases, name) = (self.leases.clone(), name.to_owned());
        async move {
            let params = PostParams::default();
            let lease = if exists {
                leases.replace(&name, &params, &lease).await?
            } else {
                leases.create(&params, &lease).await?
            };
            Ok(lease.spec.unwrap_or_default())
        }
        .boxed()
    }
}

/// The keys that the last holder left.
fn left_in(lease: &Lease) -> Vec<ObjectKey> {
    let left = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(LEFT_ANNOTATION));
    let names: Vec<String> = left.and_then(|left| serde_json::from_str(left).ok()).unwrap_or_default();
    let key = |name: &String| match name.split_once('/') {
        Some((namespace, name)) => ObjectKey::new(namespace, name),
        None => ObjectKey::cluster(name),
    };
    names.iter().map(key).collect()
}

/// Leaves keys to the next holder, instead of those that were left before.
fn with_left(mut lease: Lease, keys: &[ObjectKey]) -> Lease {
    let mut length = 0;
    let fitting = keys.iter().map(ToString::to_string).take_while(|name| {
        length += name.len() + "\"\",".len();
        length < LONGEST_LEFT
    });
    let names: Vec<String> = fitting.collect();
    if names.len() < keys.len() {
        tracing::error!(keys = keys.len(), left = names.len(), "too many deleted keys to leave to the next replica");
    }
    let annotations = lease.metadata.annotations.get_or_insert_default();
    match serde_json::to_string(&names) {
        Ok(left) if !names.is_empty() => annotations.insert(LEFT_ANNOTATION.to_owned(), left),
        _ => annotations.remove(LEFT_ANNOTATION),
    };
    lease
}

fn label<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    lease.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// When a replica joined, by the server's clock, and who it is: replicas agree on who was first.
type Joined = (Option<Time>, String);

fn joined_at(lease: &Lease) -> Joined {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    (lease.metadata.creation_timestamp.clone(), holder.unwrap_or_default())
}

/// Keeps the earlier of two.
fn first(known: &mut Option<Joined>, other: Joined) {
    if known.as_ref().is_none_or(|known| other < *known) {
        *known = Some(other);
    }
}
