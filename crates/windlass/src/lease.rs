//! Leader election on a `Lease`: one replica works, the others wait.
//!
//! [`Election`] contains the rules, without I/O: from the lease and the time it computes what to write. [`Elector`]
//! makes the requests. [`Fence`] stands between the leader and the API server: it lets no write pass once another
//! replica may have taken the lease, even if the process was suspended in between and did not notice.
//!
//! With the default times, a leader renews every 2 seconds. Its fence closes 10 seconds after it *sent* its last
//! successful renewal. Another replica takes the lease no earlier than 15 seconds after it *saw* that renewal. Clocks of
//! different machines are never compared; only their rates matter.
//!
//! A leader that loses its lease stops its controllers and joins the election again, without a restart of the process.
//! If a controller or task does not stop, the manager ends with an error, because it cannot lead again.

mod elector;

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

pub use crate::fence::{Fence, FenceClosed};
pub use elector::Elector;

/// Which lease, and how long things take. The defaults are client-go's.
///
/// ```
/// use std::time::Duration;
/// use windlass::lease::LeaderElection;
///
/// let election = LeaderElection::new("9c3fedb1.example.com");
/// assert_eq!(election.lease_duration.as_secs(), 15);
/// let patient = election.namespace("petstore-system").lease_duration(Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct LeaderElection {
    /// The namespace of the lease. `None` is the client's default namespace: in a pod, the pod's own.
    pub namespace: Option<String>,
    /// The name of the lease.
    pub name: String,
    /// The name of this replica; must be unique.
    pub identity: String,
    /// How long other replicas wait after a renewal before they take the lease.
    pub lease_duration: Duration,
    /// How long after its last renewal a leader goes on working. Must be shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// How often the leader renews the lease, and the other replicas look at it.
    pub retry_period: Duration,
    /// Whether a leader that stops releases the lease, so that another replica need not wait.
    pub release_on_exit: bool,
}

impl LeaderElection {
    /// Election on the lease of this name, in the client's default namespace, with client-go's times and an identity
    /// made of the host's name and a random number.
    pub fn new(name: impl Into<String>) -> Self {
        let host = Some(crate::host::name()).filter(|host| !host.is_empty());
        let host = host.unwrap_or_else(|| "windlass".to_owned());
        Self {
            namespace: None,
            name: name.into(),
            identity: format!("{host}_{:032x}", fastrand::u128(..)),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_exit: true,
        }
    }

    /// Keeps the lease in this namespace.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Names this replica. No other replica may have the same name.
    pub fn identity(self, identity: impl Into<String>) -> Self {
        Self { identity: identity.into(), ..self }
    }

    /// How long other replicas wait after a renewal before they take the lease; 15 seconds by default.
    pub fn lease_duration(self, lease_duration: Duration) -> Self {
        Self { lease_duration, ..self }
    }

    /// How long after its last renewal a leader goes on working; 10 seconds by default. Must be shorter than the
    /// lease duration.
    pub fn renew_deadline(self, renew_deadline: Duration) -> Self {
        Self { renew_deadline, ..self }
    }

    /// How often the leader renews the lease, and the other replicas look at it; every 2 seconds by default.
    pub fn retry_period(self, retry_period: Duration) -> Self {
        Self { retry_period, ..self }
    }

    /// Whether a leader that stops releases the lease, so that another replica need not wait. True by default.
    pub fn release_on_exit(self, release_on_exit: bool) -> Self {
        Self { release_on_exit, ..self }
    }

    /// The namespace of the lease for a client.
    pub(crate) fn namespace_for<'a>(&'a self, client: &'a kube::Client) -> &'a str {
        self.namespace.as_deref().unwrap_or_else(|| client.default_namespace())
    }
}

/// An election's setting that cannot work.
///
/// ```
/// use std::time::Duration;
/// use windlass::lease::LeaderElection;
///
/// let hasty = LeaderElection::new("lock").renew_deadline(Duration::from_secs(15));
/// let error = hasty.validate().unwrap_err();
/// assert_eq!(error.field, "renew_deadline");
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
#[non_exhaustive]
pub struct InvalidElection {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

crate::report::debug_as_message!(InvalidElection);

impl InvalidElection {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

/// By how much the pause between two attempts may grow, as client-go has it.
pub(crate) const JITTER: f64 = 1.2;

impl LeaderElection {
    /// The same, its times no longer than can be counted: who makes an elector need not have asked whether
    /// they can work.
    fn countable(self) -> Self {
        Self {
            lease_duration: self.lease_duration.min(LONGEST_TIME),
            renew_deadline: self.renew_deadline.min(LONGEST_TIME),
            retry_period: self.retry_period.min(LONGEST_TIME),
            ..self
        }
    }

    /// Whether the settings can work, by client-go's rules. The manager asks when it is built.
    pub fn validate(&self) -> Result<(), InvalidElection> {
        for (field, value) in [("name", &self.name), ("identity", &self.identity)] {
            if value.is_empty() {
                return Err(InvalidElection::new(field, "is empty"));
            }
        }
        self.namespace.as_deref().map_or(Ok(()), check_namespace)?;
        let name = &self.name;
        if name.len() > LONGEST_SUBDOMAIN || !name.split('.').all(is_label) {
            let problem = format!(
                "{name:?} is none that a lease can have: at most {LONGEST_SUBDOMAIN} lower-case letters, digits, '-' \
                 and '.', letters and digits at the ends and around every '.'"
            );
            return Err(InvalidElection::new("name", problem));
        }
        check_times(self.lease_duration, self.renew_deadline, self.retry_period)
    }
}

/// The longest name of a namespace, and value of a label.
pub(crate) const LONGEST_LABEL: usize = 63;
/// The longest name of a lease.
pub(crate) const LONGEST_SUBDOMAIN: usize = 253;

/// Whether a namespace can have the name.
pub(crate) fn check_namespace(namespace: &str) -> Result<(), InvalidElection> {
    if namespace.len() <= LONGEST_LABEL && is_label(namespace) {
        return Ok(());
    }
    let problem = format!(
        "{namespace:?} is no name of a namespace: at most {LONGEST_LABEL} lower-case letters, digits and '-', not at the \
         ends"
    );
    Err(InvalidElection::new("namespace", problem))
}

/// Whether it is a label as in domain names, however long.
pub(crate) fn is_label(text: &str) -> bool {
    let plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let edges = [text.as_bytes().first(), text.as_bytes().last()];
    text.bytes().all(|letter| plain(letter) || letter == b'-')
        && edges.into_iter().all(|edge| edge.copied().is_some_and(plain))
}

/// The longest time that a lease can tell of; clocks can count that far, too.
const LONGEST_TIME: Duration = Duration::from_secs(i32::MAX as u64);

/// Whether a leader notices that it lost its lease before another can take it.
pub(crate) fn check_times(lease: Duration, renew: Duration, retry: Duration) -> Result<(), InvalidElection> {
    // Leases count whole seconds.
    if lease < Duration::from_secs(1) || lease.as_secs() > LONGEST_TIME.as_secs() {
        return Err(InvalidElection::new("lease_duration", format!("of {lease:?} is not between 1s and 68 years")));
    }
    if renew.is_zero() {
        return Err(InvalidElection::new("renew_deadline", "is zero"));
    }
    if retry.is_zero() {
        return Err(InvalidElection::new("retry_period", "is zero"));
    }
    let lease = Duration::from_secs(lease.as_secs());
    if renew >= lease {
        let problem = format!("of {renew:?} is not shorter than lease_duration, {lease:?} in whole seconds");
        return Err(InvalidElection::new("renew_deadline", problem));
    }
    if retry.as_secs_f64() * JITTER >= renew.as_secs_f64() {
        let problem = format!("of {retry:?}, times {JITTER}, is not shorter than renew_deadline, {renew:?}");
        return Err(InvalidElection::new("retry_period", problem));
    }
    Ok(())
}

/// What to do about the lease.
///
/// ```
/// use std::time::Instant;
/// use k8s_openapi::api::coordination::v1::LeaseSpec;
/// use k8s_openapi::jiff::Timestamp;
/// use windlass::lease::{Election, Intent, LeaderElection};
///
/// let held = LeaseSpec {
///     holder_identity: Some("another".into()), lease_duration_seconds: Some(15), ..LeaseSpec::default()
/// };
/// let mut election = Election::new(LeaderElection::new("lock"));
/// let intent = election.look(Some(&held), Instant::now(), Timestamp::now());
/// assert_eq!(intent, Intent::Wait { holder: "another".into() });
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Intent {
    /// Write this, provided that the lease is still as it was seen.
    Write(LeaseSpec),
    /// Another replica holds it.
    Wait {
        /// Who.
        holder: String,
    },
}

/// The rules of the election, without I/O or clock.
///
/// ```
/// use std::time::{Duration, Instant};
/// use k8s_openapi::jiff::Timestamp;
/// use windlass::lease::{Election, Intent, LeaderElection};
///
/// let (now, wall) = (Instant::now(), Timestamp::now());
/// let mut election = Election::new(LeaderElection::new("lock"));
/// let Intent::Write(spec) = election.look(None, now, wall) else { unreachable!() };
/// election.written(spec, now);
/// assert!(election.is_leader(now + Duration::from_secs(9)));
/// assert!(!election.is_leader(now + Duration::from_secs(10)));
/// ```
#[derive(Debug)]
pub struct Election {
    config: LeaderElection,
    /// The lease as last seen, and when it was first seen so.
    observed: Option<(LeaseSpec, Instant)>,
    /// When it was found that the lease is not there any more.
    missing_since: Option<Instant>,
    /// Until when this replica may act.
    valid_until: Option<Instant>,
}

impl Election {
    /// An election in which nothing is known yet.
    pub fn new(config: LeaderElection) -> Self {
        Self { config: config.countable(), observed: None, missing_since: None, valid_until: None }
    }

    /// Takes the lease as the server has it (`None` if there is none) and returns what to do. A lease that this
    /// replica has seen and that was deleted since counts as held for a whole lease duration; its holder creates it
    /// again. A lease that was deleted before this replica saw it leaves no trace.
    pub fn look(&mut self, current: Option<&LeaseSpec>, now: Instant, wall: Timestamp) -> Intent {
        let Some(current) = current else {
            return self.look_for_missing(now, wall);
        };
        self.missing_since = None;
        let since = match &self.observed {
            Some((seen, since)) if seen == current => *since,
            _ => {
                self.observed = Some((current.clone(), now));
                now
            }
        };
        let holder = current.holder_identity.as_deref().unwrap_or_default();
        let expires = since + duration_of(current);
        if holder.is_empty() || holder == self.config.identity || expires <= now {
            return Intent::Write(self.claim(Some(current), wall));
        }
        Intent::Wait { holder: holder.to_owned() }
    }

    /// There is no lease. If there was one, it was deleted, and a replica may have held it until then,
    /// seen or not: its holder works on and does not know.
    fn look_for_missing(&mut self, now: Instant, wall: Timestamp) -> Intent {
        if let Some((seen, _)) = &self.observed {
            let holder = seen.holder_identity.clone().unwrap_or_default();
            let ours = holder == self.config.identity && self.valid_until.is_none_or(|until| now < until);
            let since = *self.missing_since.get_or_insert(now);
            if !ours && now < since + duration_of(seen).max(self.config.lease_duration) {
                return Intent::Wait { holder };
            }
        }
        (self.observed, self.missing_since) = (None, None);
        Intent::Write(self.claim(None, wall))
    }

    /// The write was accepted. `sent` is the time *before* it was sent.
    pub fn written(&mut self, spec: LeaseSpec, sent: Instant) {
        self.observed = Some((spec, sent));
        self.missing_since = None;
        self.valid_until = Some(sent + self.config.renew_deadline);
    }

    /// Whether this replica may act.
    pub fn is_leader(&self, now: Instant) -> bool {
        self.valid_until.is_some_and(|until| now < until)
    }

    /// Until when this replica may act, as far as is known now.
    pub fn valid_until(&self) -> Option<Instant> {
        self.valid_until
    }

    /// Another replica has the lease, or it is given up.
    pub fn step_down(&mut self) {
        self.valid_until = None;
        // Whose it is from now on is to be seen.
        if let Some((seen, _)) = &mut self.observed {
            seen.holder_identity = None;
        }
    }

    /// What was seen of the lease says nothing about the next.
    pub(crate) fn forget(&mut self) {
        (self.observed, self.missing_since) = (None, None);
    }

    /// What to write to give the lease back, if it is still held.
    pub fn release(&self, current: &LeaseSpec, wall: Timestamp) -> Option<LeaseSpec> {
        (current.holder_identity.as_ref() == Some(&self.config.identity)).then(|| LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(MicroTime(wall)),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: current.lease_transitions,
            ..LeaseSpec::default()
        })
    }

    fn claim(&self, current: Option<&LeaseSpec>, wall: Timestamp) -> LeaseSpec {
        let held = current.filter(|spec| spec.holder_identity.as_ref() == Some(&self.config.identity));
        let transitions = current.and_then(|spec| spec.lease_transitions);
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(self.config.lease_duration.as_secs() as i32),
            acquire_time: held.and_then(|spec| spec.acquire_time.clone()).or(Some(MicroTime(wall))),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: match (current, held) {
                (None, _) => Some(0),
                (_, Some(_)) => transitions,
                (Some(_), None) => Some(transitions.unwrap_or_default() + 1),
            },
            ..LeaseSpec::default()
        }
    }
}

fn duration_of(lease: &LeaseSpec) -> Duration {
    Duration::from_secs(lease.lease_duration_seconds.unwrap_or_default().max(0) as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn election(identity: &str) -> Election {
        Election::new(LeaderElection::new("lock").identity(identity))
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_identity_contains_the_name_of_the_host() {
        let (one, other) = (LeaderElection::new("lock").identity, LeaderElection::new("lock").identity);
        let (host, random) = one.rsplit_once('_').unwrap();
        assert_eq!((host, random.len()), (crate::host::name().as_str(), 32));
        assert_ne!(one, other);
    }

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn write(intent: Intent) -> LeaseSpec {
        match intent {
            Intent::Write(spec) => spec,
            Intent::Wait { holder } => panic!("held by {holder}"),
        }
    }

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// An elector takes settings that were not validated.
    #[test]
    fn the_longest_times_are_as_good_as_for_ever() {
        let longest = Duration::MAX;
        let for_ever =
            LeaderElection::new("lock").lease_duration(longest).renew_deadline(longest).retry_period(longest);
        let (mut election, now) = (Election::new(for_ever), Instant::now());
        let spec = write(election.look(None, now, wall(0)));
        assert_eq!(spec.lease_duration_seconds, Some(i32::MAX));
        election.written(spec, now);
        assert!(election.is_leader(now + secs(3600)));
        election.step_down();
        assert!(matches!(election.look(None, now, wall(0)), Intent::Wait { .. }));
    }

    #[test]
    fn settings_that_cannot_work_are_named() {
        let check = |change: fn(&mut LeaderElection), field: &str| {
            let mut config = LeaderElection::new("lock");
            change(&mut config);
            assert_eq!(config.validate().unwrap_err().field, field);
        };
        check(|c| c.namespace = Some(String::new()), "namespace");
        check(|c| c.name.clear(), "name");
        check(|c| c.identity.clear(), "identity");
        for name in ["A b", "a_b", "-a", "a.", "a..b"] {
            let refused = LeaderElection::new(name).validate().unwrap_err();
            assert!(refused.field == "name" && refused.problem.contains(&format!("{name:?}")), "{refused}");
        }
        check(|c| c.name = "a".repeat(254), "name");
        check(|c| c.namespace = Some("a.b".into()), "namespace");
        check(|c| c.namespace = Some("a".repeat(64)), "namespace");
        assert_eq!(LeaderElection::new("9c3fedb1.example.com").namespace("a".repeat(63)).validate(), Ok(()));
        check(|c| c.lease_duration = Duration::ZERO, "lease_duration");
        check(|c| c.lease_duration = Duration::MAX, "lease_duration");
        check(|c| c.renew_deadline = Duration::ZERO, "renew_deadline");
        check(|c| c.renew_deadline = secs(15), "renew_deadline");
        check(
            |c| (c.lease_duration, c.renew_deadline) = (Duration::from_millis(10_900), Duration::from_millis(10_500)),
            "renew_deadline",
        );
        check(|c| c.retry_period = Duration::ZERO, "retry_period");
        check(|c| c.retry_period = Duration::from_millis(8334), "retry_period");
        assert_eq!(LeaderElection::new("lock").validate(), Ok(()));
    }

    #[test]
    fn the_first_creates_and_renews() {
        let (mut a, now) = (election("a"), Instant::now());
        let first = write(a.look(None, now, wall(0)));
        assert_eq!((first.lease_transitions, first.lease_duration_seconds), (Some(0), Some(15)));
        a.written(first.clone(), now);
        let second = write(a.look(Some(&first), now + secs(2), wall(2)));
        assert_eq!(second.acquire_time, first.acquire_time);
        assert_ne!(second.renew_time, first.renew_time);
        assert_eq!(second.lease_transitions, Some(0));
        a.written(second, now + secs(2));
        assert!(a.is_leader(now + secs(11)) && !a.is_leader(now + secs(12)));
    }

    #[test]
    fn takeover_waits_a_full_duration_after_the_last_renewal() {
        let (mut a, mut b, now) = (election("a"), election("b"), Instant::now());
        let held = write(a.look(None, now, wall(0)));
        a.written(held.clone(), now);
        // b's wall clock is far ahead; that must not matter.
        let seen = now + secs(4);
        assert_eq!(b.look(Some(&held), seen, wall(9999)), Intent::Wait { holder: "a".into() });
        assert!(matches!(b.look(Some(&held), seen + secs(14), wall(9999)), Intent::Wait { .. }));
        assert!(!a.is_leader(seen + secs(14)), "a has stopped long before");
        let taken = write(b.look(Some(&held), seen + secs(15), wall(9999)));
        assert_eq!((taken.holder_identity.as_deref(), taken.lease_transitions), (Some("b"), Some(1)));
        assert!(matches!(a.look(Some(&taken), seen + secs(16), wall(5)), Intent::Wait { .. }));
    }

    #[test]
    fn a_renewal_seen_restarts_the_wait() {
        let (mut a, mut b, now) = (election("a"), election("b"), Instant::now());
        let first = write(a.look(None, now, wall(0)));
        b.look(Some(&first), now, wall(0));
        let second = write(a.look(Some(&first), now + secs(2), wall(2)));
        assert!(matches!(b.look(Some(&second), now + secs(14), wall(2)), Intent::Wait { .. }));
        assert!(matches!(b.look(Some(&second), now + secs(28), wall(2)), Intent::Wait { .. }));
        write(b.look(Some(&second), now + secs(29), wall(2)));
    }

    #[test]
    fn deleted_leases_belong_to_their_holder_until_expiry() {
        let (mut a, mut b, now) = (election("a"), election("b"), Instant::now());
        let held = write(a.look(None, now, wall(0)));
        a.written(held.clone(), now);
        assert!(matches!(b.look(Some(&held), now, wall(0)), Intent::Wait { .. }));
        write(a.look(None, now + secs(2), wall(2)));
        // It may have been renewed right before it was deleted.
        let missed = now + secs(4);
        assert_eq!(b.look(None, missed, wall(4)), Intent::Wait { holder: "a".into() });
        assert!(matches!(b.look(None, missed + secs(14), wall(18)), Intent::Wait { .. }));
        write(b.look(None, missed + secs(15), wall(19)));
    }

    #[test]
    fn free_leases_that_were_deleted_may_have_been_taken() {
        let (mut a, mut b, now) = (election("a"), election("b"), Instant::now());
        let held = write(a.look(None, now, wall(0)));
        a.written(held.clone(), now);
        b.look(a.release(&held, wall(1)).as_ref(), now, wall(1));
        a.step_down();
        for election in [&mut a, &mut b] {
            assert!(matches!(election.look(None, now + secs(2), wall(2)), Intent::Wait { .. }));
            write(election.look(None, now + secs(17), wall(17)));
        }
    }

    #[test]
    fn leases_are_released_by_holders_and_taken_at_once() {
        let (mut a, mut b, now) = (election("a"), election("b"), Instant::now());
        let held = write(a.look(None, now, wall(0)));
        assert_eq!(b.release(&held, wall(1)), None);
        let free = a.release(&held, wall(1)).unwrap();
        let taken = write(b.look(Some(&free), now, wall(1)));
        assert_eq!(taken.lease_transitions, Some(1));
    }
}
