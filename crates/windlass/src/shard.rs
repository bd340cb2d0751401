//! Sharded controllers: the keys of one controller are divided among all running replicas.
//!
//! Each key belongs to one of a fixed number of shards, by a hash that is the same in every replica. Each shard is a
//! `Lease` named after the manager and the controller. Replicas of one operator must therefore give their managers the
//! same name, and different operators in one namespace different names. A replica reconciles only the keys of shards
//! that it holds, and every write for a key passes the [fence](crate::lease::Fence) of its shard. Each replica also has
//! a `Lease` of its own, through which the replicas find each other. They divide the shards evenly:
//!
//! - A replica with more than its share releases shards: it starts no more keys of the shard, finishes the running
//!   ones, closes the fence, then writes the release.
//! - A replica with less than its share takes free shards: shards that were released, that were never held, or whose
//!   holder has not renewed for a whole lease duration.
//! - A replica that stops releases each shard as soon as no reconcile runs in it and its events are written. A replica
//!   that crashed or lost its connection drops its work when its fence closes, which happens before another replica may
//!   take its shards.
//!
//! So a key is never reconciled by two replicas at once, and no replica writes after its lease has run out. (The one
//! exception is manual: deleting the lease of a shard before the other replicas have seen its holder frees the shard.)
//!
//! # What a new holder reconciles
//!
//! A replica that takes a shard reconciles all keys of the shard:
//!
//! - the keys of all objects that exist;
//! - the keys of deletions that this replica has seen in the last two lease durations (longer, if the shard had no
//!   holder for longer), and the keys that arrived in that time from [streams](crate::Controller::source) and
//!   [enqueuers](crate::controller::Enqueuer): at most 100,000 of either sort, divided evenly among the shards, the
//!   latest of each;
//! - the keys of deleted objects that the former holder had not finished when it released the shard. It stores them in
//!   an annotation of the lease, up to 200 KiB. A release that cannot be written is retried until the lease runs out; a
//!   replica that stops with such keys retries for `renew_deadline`;
//! - the keys that other replicas remember in the same way, of what they heard before they saw that the shard was
//!   taken: deletions that happened while the shard had no holder, and work that a replica had not finished when its
//!   shards ran out. A replica stores such keys in its own lease, 100 KiB at a time, and the holder of the shard removes
//!   them from there. The lease of a replica that stops stays until that has happened. If the replica has more keys to
//!   hand over, it waits up to `renew_deadline`, and logs a warning if that is too short.
//!
//! A key may therefore be reconciled once more than necessary.
//!
//! # Deletions that can be missed
//!
//! In three cases no replica knows of a deletion:
//!
//! - the object was deleted longer ago than the times above, and its key kept failing in a replica that crashed;
//! - the object was deleted while no replica ran, or every replica that heard of the deletion crashed, or stopped while
//!   the holder of the shard seemed to be alive;
//! - the watch of the holder was behind by more than two lease durations (30 seconds by default) and the shard was
//!   released before the holder heard of the deletion. The holder still has the object in its cache, and the replica that
//!   takes the shard heard of the deletion so long ago that it relied on the holder. If the watch of the new holder is
//!   the one that is behind, nothing is missed: it hears of the deletion later.
//!
//! As with a restarted operator, cleanup that must not be missed needs a [finalizer](crate::finalizer): the object then
//! stays in every cache until the cleanup is done.
//!
//! # Changing the number of shards
//!
//! All replicas must use the same number of shards. A replica that finds others with a different number logs that and
//! waits until they are gone, as in a rolling update that changes the number. One further `Lease` says which number is in
//! force, so that two numbers are never in use at once. Keys that were handed over under the old number are found by the
//! holder of their shard under the new one.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use windlass::{Controller, Outcome, controller};
//!
//! let controller = Controller::<ConfigMap>::new("settings")
//!     .sharding(16)
//!     .complete(controller::from_fn(|_map, _ctx| async { Ok(Outcome::Done) }));
//! ```

mod coordinator;
mod departed;
mod slots;

use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) use coordinator::{Coordinator, Keys};
pub(crate) use slots::{Claim, Slot, Slots};

use crate::key::ObjectKey;
use crate::lease::{
    InvalidElection, LONGEST_LABEL, LONGEST_SUBDOMAIN, LeaderElection, check_namespace, check_times, is_label,
};

/// How a controller's keys are spread. A number converts into it.
///
/// ```
/// use windlass::shard::Sharding;
///
/// let sharding = Sharding::new(32).namespace("operators");
/// assert_eq!(sharding.lease_duration.as_secs(), 15);
/// assert_eq!(Sharding::from(32).shards, 32);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Sharding {
    /// Number of shards, the same in all replicas: a few times as many as there will be replicas, and
    /// 10,000 at most.
    pub shards: u32,
    /// The namespace of the leases; the client's default namespace unless set.
    pub namespace: Option<String>,
    /// The name of this replica; must be unique.
    pub identity: String,
    /// How long others wait after a renewal before they take a shard.
    pub lease_duration: Duration,
    /// How long after its last renewal a replica goes on. Must be shorter than the duration.
    pub renew_deadline: Duration,
    /// How often replicas renew and look at each other.
    pub retry_period: Duration,
}

impl Sharding {
    /// This many shards, with the times of [leader election](LeaderElection).
    pub fn new(shards: u32) -> Self {
        let election = LeaderElection::new("");
        Self {
            shards: shards.max(1),
            namespace: None,
            identity: election.identity,
            lease_duration: election.lease_duration,
            renew_deadline: election.renew_deadline,
            retry_period: election.retry_period,
        }
    }

    /// Keeps the leases in this namespace.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Names this replica. No other replica may have the same name.
    pub fn identity(self, identity: impl Into<String>) -> Self {
        Self { identity: identity.into(), ..self }
    }

    /// How long other replicas wait after a renewal before they take a shard; 15 seconds by default.
    pub fn lease_duration(self, lease_duration: Duration) -> Self {
        Self { lease_duration, ..self }
    }

    /// How long after its last renewal a replica goes on working; 10 seconds by default. Must be shorter than the
    /// lease duration.
    pub fn renew_deadline(self, renew_deadline: Duration) -> Self {
        Self { renew_deadline, ..self }
    }

    /// How often replicas renew their leases and look at each other's; every 2 seconds by default.
    pub fn retry_period(self, retry_period: Duration) -> Self {
        Self { retry_period, ..self }
    }
}

/// The longest name of a controller or manager: it is the value of a label.
const LONGEST_NAME: usize = LONGEST_LABEL;
/// The longest name of a lease.
const LONGEST_LEASE: usize = LONGEST_SUBDOMAIN;
/// The most shards: each is a lease that is renewed every few seconds.
const MOST_SHARDS: u32 = 10_000;

impl Sharding {
    /// Whether a controller of this name, of a manager of that, can be spread so. The manager asks
    /// when it is added.
    pub(crate) fn validate(&self, manager: &str, controller: &str) -> Result<(), InvalidElection> {
        if controller.len() > LONGEST_NAME || !is_label(controller) {
            let problem = format!(
                "{controller:?} cannot be part of a lease's name: at most {LONGEST_NAME} lower-case letters, digits \
                 and '-', not at the ends"
            );
            return Err(InvalidElection::new("name", problem));
        }
        if manager.len() > LONGEST_NAME || !manager.split('.').all(is_label) {
            let problem = format!(
                "{manager:?} cannot be part of a lease's name: at most {LONGEST_NAME} lower-case letters, digits, \
                 '-' and '.', letters and digits at the ends"
            );
            return Err(InvalidElection::new("manager's name", problem));
        }
        if !self.identity.bytes().any(|letter| letter.is_ascii_alphanumeric()) {
            let problem = format!("{:?} cannot name a lease: it has no letter from a to z and no digit", self.identity);
            return Err(InvalidElection::new("identity", problem));
        }
        let name = Team::new(manager, controller).member(&self.identity);
        if name.len() > LONGEST_LEASE {
            let (excess, identity) = (name.len() - LONGEST_LEASE, &self.identity);
            let problem = format!("{identity:?} is too long to be part of a lease's name, by {excess} letters");
            return Err(InvalidElection::new("identity", problem));
        }
        if self.shards == 0 {
            return Err(InvalidElection::new("shards", "is zero"));
        }
        if self.shards > MOST_SHARDS {
            let problem = format!("of {} are more than {MOST_SHARDS}", self.shards);
            return Err(InvalidElection::new("shards", problem));
        }
        self.namespace.as_deref().map_or(Ok(()), check_namespace)?;
        check_times(self.lease_duration, self.renew_deadline, self.retry_period)
    }
}

/// All replicas that share one controller's keys: the controller of a manager, by their names.
#[derive(Debug, Clone)]
struct Team {
    manager: String,
    controller: String,
}

impl Team {
    fn new(manager: &str, controller: &str) -> Self {
        Self { manager: manager.to_owned(), controller: controller.to_owned() }
    }

    /// The name of a shard's lease. Controllers' names have no dot, so that no two teams share one.
    fn shard(&self, shard: u32) -> String {
        format!("{}.{}-shard-{shard}", self.manager, self.controller)
    }

    /// The name of the lease that says how many shards there are.
    fn number(&self) -> String {
        format!("{}.{}-shards", self.manager, self.controller)
    }

    /// The name of a replica's lease. Identities may hold characters that names may not: these are
    /// replaced, and a hash after a dot, which no identity keeps, tells such identities apart.
    fn member(&self, identity: &str) -> String {
        let Self { manager, controller } = self;
        if is_label(identity) {
            return format!("{manager}.{controller}-member-{identity}");
        }
        let allowed = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
        let plain: String = identity.chars().map(allowed).collect();
        let hash = fnv_1a(identity.bytes());
        format!("{manager}.{controller}-member-{}.{hash:016x}", plain.trim_matches('-'))
    }
}

impl From<u32> for Sharding {
    fn from(shards: u32) -> Self {
        Self::new(shards)
    }
}

/// The shard of a key: FNV-1a, folded. Must never change, or replicas of two versions would
/// disagree.
pub(crate) fn shard_of(key: &ObjectKey, shards: u32) -> u32 {
    let namespace = key.namespace().unwrap_or_default().bytes();
    let hash = fnv_1a(namespace.chain([b'/']).chain(key.name().bytes()));
    // The low bits of FNV alone spread short, similar names badly.
    let folded = hash ^ (hash >> 32) ^ (hash >> 15);
    (folded % u64::from(shards.max(1))) as u32
}

fn fnv_1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// How many shards a replica should hold: all replicas together exactly all of them. When they do
/// not divide evenly, the first in alphabetical order hold one more.
fn quota(members: &BTreeSet<String>, me: &str, shards: u32) -> u32 {
    let count = members.len() as u32;
    match members.iter().position(|member| member == me) {
        Some(rank) => shards / count + u32::from((rank as u32) < shards % count),
        // Not seen by the others yet: nothing to claim.
        None => 0,
    }
}

/// What to do about the shards, given those held and those free.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    take: Vec<u32>,
    give: Vec<u32>,
}

/// `turn` differs between replicas, so that they do not all reach for the same free shards.
fn plan(held: &BTreeSet<u32>, free: &BTreeSet<u32>, quota: u32, turn: u32) -> Plan {
    let (have, want) = (held.len(), quota as usize);
    let give = held.iter().rev().take(have.saturating_sub(want)).copied().collect();
    let start = if free.is_empty() { 0 } else { turn as usize % free.len() };
    let around = free.iter().skip(start).chain(free.iter().take(start));
    Plan { take: around.take(want.saturating_sub(have)).copied().collect(), give }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_that_no_lease_can_have_are_refused() {
        let sharding = Sharding::new(4);
        for name in ["pets", "pets-2", "2"] {
            assert_eq!(sharding.validate("store", name), Ok(()));
        }
        for name in ["", "Pets", "pets_", "pets-", "-pets", "my pets", "a.b/c", "p\u{e9}t", &"p".repeat(64)] {
            let error = sharding.validate("store", name).expect_err(name);
            assert_eq!(error.field, "name");
        }
        assert_eq!(sharding.validate("pet-store.example.com", "pets"), Ok(()));
        for name in ["", "Store", "my store", "store.", ".store", "a..b", "a-.b", "a/b", &"s".repeat(64)] {
            let error = sharding.validate(name, "pets").expect_err(name);
            assert_eq!(error.field, "manager's name");
        }
        let long = Sharding::new(4).identity("i".repeat(119));
        let name = "n".repeat(63);
        assert_eq!(long.validate(&name, &name).expect_err("too long").field, "identity");
        assert_eq!(long.validate("store", "pets"), Ok(()));
        assert_eq!(long.identity("i".repeat(118)).validate(&name, &name), Ok(()));
        for identity in ["", "__", "-", "\u{e9}"] {
            let nobody = Sharding::new(4).identity(identity);
            let error = nobody.validate("store", "pets").expect_err(identity);
            assert!(error.field == "identity" && error.problem.contains("no letter"), "{error:?}");
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let check = |sharding: Sharding, field: &str| {
            let error = sharding.validate("store", "pets").expect_err(field);
            assert_eq!(error.field, field);
            error.to_string()
        };
        assert_eq!(check(Sharding::new(u32::MAX), "shards"), "shards of 4294967295 are more than 10000");
        check(Sharding { shards: 0, ..Sharding::new(1) }, "shards");
        check(Sharding::new(1).namespace(String::new()), "namespace");
        assert_eq!(Sharding::new(10_000).validate("store", "pets"), Ok(()));
    }

    #[test]
    fn no_two_controllers_share_leases() {
        let teams = [Team::new("a", "b-c"), Team::new("a-b", "c"), Team::new("a.b", "c"), Team::new("a", "c")];
        let names: BTreeSet<String> = teams.iter().flat_map(|team| [team.shard(1), team.member("Host_1")]).collect();
        assert_eq!(names.len(), 8, "{names:?}");
    }

    #[test]
    fn no_two_replicas_share_a_lease() {
        let team = Team::new("a", "c");
        assert_eq!(team.member("host-1"), "a.c-member-host-1");
        let identities = ["a-1", "a_1", "A-1", "a.1", "-a-1", "a-1_", "a\u{e9}1", "a-1.b"];
        let names: BTreeSet<String> = identities.iter().map(|identity| team.member(identity)).collect();
        assert_eq!(names.len(), identities.len(), "{names:?}");
        for name in names {
            assert!(name.split('.').all(is_label), "{name:?} is no name");
        }
    }

    #[test]
    fn quotas_add_up() {
        for shards in [1, 2, 7, 16, 64] {
            for names in [&["a"][..], &["a", "b"], &["a", "b", "c"], &["a", "b", "c", "d", "e"]] {
                let all = members(names);
                let quotas: Vec<u32> = names.iter().map(|me| quota(&all, me, shards)).collect();
                assert_eq!(quotas.iter().sum::<u32>(), shards);
                let (most, least) = (quotas.iter().max(), quotas.iter().min());
                assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{quotas:?}");
            }
        }
        assert_eq!(quota(&members(&["a"]), "b", 8), 0);
    }

    #[test]
    fn surplus_is_given_and_what_is_missing_taken() {
        let (held, free) = (BTreeSet::from([0, 1, 2, 3]), BTreeSet::from([5, 6, 7]));
        assert_eq!(plan(&held, &free, 2, 0), Plan { take: vec![], give: vec![3, 2] });
        assert_eq!(plan(&held, &free, 6, 1), Plan { take: vec![6, 7], give: vec![] });
        assert_eq!(plan(&held, &free, 9, 5), Plan { take: vec![7, 5, 6], give: vec![] });
        assert_eq!(plan(&held, &BTreeSet::new(), 9, 5), Plan { take: vec![], give: vec![] });
    }

    #[test]
    fn keys_are_spread_evenly_and_for_ever_the_same() {
        let mut counts = [0u32; 8];
        for n in 0..8000 {
            counts[shard_of(&ObjectKey::new("default", format!("pet-{n}")), 8) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert_eq!(shard_of(&ObjectKey::new("default", "thor"), 16), 10);
        assert_eq!(shard_of(&ObjectKey::cluster("thor"), 1), 0);
    }
}
