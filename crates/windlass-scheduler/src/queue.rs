//! Which pod is next: upstream's scheduling queue, as a state machine without a clock.
//!
//! A pod is *active* (in order of priority, then of arrival), *backing off* after a failed attempt, *waiting* for something
//! to change that could help, *gated*, or *in flight*: being decided about or bound. An event moves waiting pods on, as
//! soon as their back-off is over. Nothing moves by itself, so that pods which fit nowhere cost nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pod::PodInfo;
use crate::reason::Causes;

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

type ActiveKey = (Reverse<i32>, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Active(ActiveKey),
    Backoff(Instant, u64),
    Waiting,
    Gated,
    InFlight,
}

/// What the API shows about failed attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    /// Whether there is a condition that says that the pod is not scheduled.
    pub(crate) unscheduled: bool,
    /// Its reason and message.
    pub(crate) why: Option<(String, String)>,
    /// The node that the pod waits for.
    pub(crate) nominated: Option<Box<str>>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) pod: Arc<PodInfo>,
    pub(crate) reported: Reported,
    pub(crate) causes: Causes,
    place: Place,
    attempts: u32,
    failed: Option<Instant>,
    /// Something has changed that may help, while an attempt was under way.
    missed: bool,
}

/// The pods that have no node.
#[derive(Debug, Default)]
pub(crate) struct SchedulingQueue {
    entries: HashMap<Arc<str>, Entry>,
    active: BTreeMap<ActiveKey, Arc<str>>,
    backoff: BTreeMap<(Instant, u64), Arc<str>>,
    waiting: BTreeSet<Arc<str>>,
    next: u64,
}

impl SchedulingQueue {
    /// A pod without a node exists or has changed.
    pub(crate) fn set(&mut self, pod: PodInfo, reported: Reported, now: Instant) {
        let pod = Arc::new(pod);
        let Some(entry) = self.entries.get_mut(&pod.uid) else {
            let entry = Entry {
                pod: Arc::clone(&pod),
                reported,
                causes: Causes::default(),
                place: Place::Gated,
                attempts: 0,
                failed: None,
                missed: false,
            };
            self.entries.insert(Arc::clone(&pod.uid), entry);
            if !pod.is_held_back() {
                self.activate(&pod.uid);
            }
            return;
        };
        let same = |one: &PodInfo| PodInfo { nominated: None, ..one.clone() };
        let changed = same(&entry.pod) != same(&pod);
        let ungated = entry.place == Place::Gated && !pod.is_held_back();
        entry.pod = Arc::clone(&pod);
        entry.reported = reported;
        if ungated {
            self.activate(&pod.uid);
        } else if changed {
            self.requeue(&pod.uid, now);
        }
    }

    /// A pod is gone, or has a node.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.detach(uid);
        self.entries.remove(uid);
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&Entry> {
        self.entries.get(uid)
    }

    /// The API will show this about the pod.
    pub(crate) fn report(&mut self, uid: &str, reported: Reported) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.reported = reported;
        }
    }

    /// The next pod to decide about. It is in flight until it is removed or has failed.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Arc<PodInfo>> {
        while let Some(((until, number), uid)) = self.backoff.first_key_value() {
            if *until > now {
                break;
            }
            let (key, uid) = ((*until, *number), Arc::clone(uid));
            self.backoff.remove(&key);
            self.activate(&uid);
        }
        let (_, uid) = self.active.pop_first()?;
        let entry = self.entries.get_mut(&uid)?;
        entry.place = Place::InFlight;
        entry.attempts += 1;
        entry.missed = false;
        Some(Arc::clone(&entry.pod))
    }

    /// There is no node for a pod: it waits until something changes.
    pub(crate) fn wait(&mut self, uid: &str, causes: Causes, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid).filter(|entry| entry.place == Place::InFlight) else { return };
        entry.causes = causes;
        entry.failed = Some(now);
        entry.place = Place::Waiting;
        self.waiting.insert(Arc::clone(&entry.pod.uid));
        if entry.missed {
            self.requeue(uid, now);
        }
    }

    /// An attempt went wrong: the pod is tried again after a while.
    pub(crate) fn retry(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid).filter(|entry| entry.place == Place::InFlight) else { return };
        entry.failed = Some(now);
        entry.place = Place::Waiting;
        self.waiting.insert(Arc::clone(&entry.pod.uid));
        self.requeue(uid, now);
    }

    /// Something has changed that may help a pod.
    pub(crate) fn requeue(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if entry.place == Place::InFlight {
            entry.missed = true;
        }
        if entry.place != Place::Waiting {
            return;
        }
        let until = entry.failed.map_or(now, |failed| failed + backoff(entry.attempts));
        let uid = Arc::clone(&entry.pod.uid);
        self.waiting.remove(&uid);
        if until <= now {
            self.activate(&uid);
        } else {
            self.next += 1;
            entry.place = Place::Backoff(until, self.next);
            self.backoff.insert((until, self.next), uid);
        }
    }

    fn activate(&mut self, uid: &str) {
        self.next += 1;
        if let Some(entry) = self.entries.get_mut(uid) {
            let key = (Reverse(entry.pod.priority), self.next);
            entry.place = Place::Active(key);
            self.active.insert(key, Arc::clone(&entry.pod.uid));
        }
    }

    fn detach(&mut self, uid: &str) {
        match self.entries.get(uid).map(|entry| entry.place) {
            Some(Place::Active(key)) => drop(self.active.remove(&key)),
            Some(Place::Backoff(until, number)) => drop(self.backoff.remove(&(until, number))),
            Some(Place::Waiting) => drop(self.waiting.remove(uid)),
            Some(Place::Gated | Place::InFlight) | None => {}
        }
    }

    /// The pods that wait for something to change.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.waiting.iter().filter_map(|uid| self.entries.get(uid))
    }

    /// The pods that wait for resource claims to exist, with what the API shows about them.
    pub(crate) fn lacking_devices(&self) -> Vec<(Arc<PodInfo>, Reported)> {
        let lacking = self.entries.values().filter(|entry| entry.pod.lacks_devices);
        lacking.map(|entry| (Arc::clone(&entry.pod), entry.reported.clone())).collect()
    }

    /// How many pods are in each queue, by upstream's names of queues.
    pub(crate) fn sizes(&self) -> [(&'static str, usize); 4] {
        let gated = self.entries.values().filter(|entry| entry.place == Place::Gated).count();
        [
            ("active", self.active.len()),
            ("backoff", self.backoff.len()),
            ("gated", gated),
            ("unschedulable", self.waiting.len()),
        ]
    }

    /// When a back-off is over next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.backoff.keys().next().map(|(until, _)| *until)
    }

    /// Whether a pod can be popped without waiting.
    pub(crate) fn has_active(&self) -> bool {
        !self.active.is_empty()
    }
}

/// 1 s after the first attempt, then twice as long each time, up to 10 s.
fn backoff(attempts: u32) -> Duration {
    let doubled = FIRST_BACKOFF.saturating_mul(1 << attempts.saturating_sub(1).min(8));
    doubled.min(LONGEST_BACKOFF)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn pod(name: &str, priority: i32) -> PodInfo {
        PodInfo { uid: name.into(), name: name.into(), priority, ..PodInfo::new(&Pod::default()) }
    }

    fn popped(queue: &mut SchedulingQueue, now: Instant) -> Option<String> {
        queue.pop(now).map(|pod| pod.name.to_string())
    }

    fn set(queue: &mut SchedulingQueue, pod: PodInfo, now: Instant) {
        queue.set(pod, Reported::default(), now);
    }

    #[test]
    fn important_pods_come_first_then_older_ones() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        for (name, priority) in [("a", 0), ("b", 0), ("c", 5)] {
            set(&mut queue, pod(name, priority), now);
        }
        let order: Vec<_> = std::iter::from_fn(|| popped(&mut queue, now)).collect();
        assert_eq!(order, ["c", "a", "b"]);
    }

    #[test]
    fn failed_pods_wait_for_events_and_back_off() {
        let (mut queue, start) = (SchedulingQueue::default(), Instant::now());
        set(&mut queue, pod("a", 0), start);
        let mut now = start;
        for seconds in [1, 2, 4, 8, 10, 10] {
            assert_eq!(popped(&mut queue, now).as_deref(), Some("a"), "after {:?}", now - start);
            queue.wait("a", Causes::ANYTHING, now);
            assert_eq!(queue.next_deadline(), None);
            queue.requeue("a", now);
            assert_eq!(queue.next_deadline(), Some(now + Duration::from_secs(seconds)));
            assert_eq!(popped(&mut queue, now), None);
            now += Duration::from_secs(seconds);
        }
        popped(&mut queue, now);
        queue.wait("a", Causes::ANYTHING, now);
        queue.requeue("a", now + LONGEST_BACKOFF);
        assert!(queue.has_active(), "the back-off was over before");
    }

    #[test]
    fn events_during_an_attempt_are_not_lost() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        set(&mut queue, pod("a", 0), now);
        popped(&mut queue, now);
        queue.requeue("a", now);
        queue.wait("a", Causes::ANYTHING, now);
        assert!(queue.next_deadline().is_some());
        assert_eq!(queue.waiting().count(), 0);
    }

    #[test]
    fn gated_pods_come_when_their_gates_are_gone() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        set(&mut queue, PodInfo { gated: true, ..pod("a", 0) }, now);
        assert_eq!(popped(&mut queue, now), None);
        set(&mut queue, pod("a", 0), now);
        assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    }

    #[test]
    fn removed_pods_leave_nothing_behind() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        for name in ["active", "waiting", "backoff", "flying"] {
            set(&mut queue, pod(name, i32::from(name != "active")), now);
        }
        for _ in 0..3 {
            popped(&mut queue, now);
        }
        queue.wait("waiting", Causes::ANYTHING, now);
        queue.retry("backoff", now);
        for name in ["active", "waiting", "backoff", "flying"] {
            queue.remove(name);
        }
        assert!(queue.entries.is_empty() && queue.active.is_empty());
        assert!(queue.backoff.is_empty() && queue.waiting.is_empty());
    }

    #[test]
    fn only_changes_of_the_pod_itself_move_it() {
        let (mut queue, now) = (SchedulingQueue::default(), Instant::now());
        set(&mut queue, pod("a", 0), now);
        popped(&mut queue, now);
        queue.wait("a", Causes::ANYTHING, now);
        set(&mut queue, PodInfo { nominated: Some("n".into()), ..pod("a", 0) }, now);
        assert_eq!(queue.waiting().count(), 1);
        set(&mut queue, pod("a", 7), now);
        assert_eq!(queue.waiting().count(), 0);
    }
}
