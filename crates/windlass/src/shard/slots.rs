//! The shards as workers see them: which are held, until when, and what runs in each.
//!
//! The next holder of a shard finds what exists in its cache, but not what was deleted while the shard
//! changed hands. So every replica remembers the deletions it has heard of lately, in any
//! shard: those that the former holder may not have got to.
//!
//! A key that a worker was given is always in one place at least: in the queue, as one that is
//! worked on, or among those refused or remembered here. It is put here before it leaves the queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::departed::Departed;
use super::shard_of;
use crate::fence::{Fence, FenceClosed, Sent};
use crate::key::ObjectKey;

/// One shard of this replica.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) fence: Fence,
    work: Mutex<Work>,
    /// Told whenever a key is finished.
    idle: tokio::sync::Notify,
    remembered: Mutex<Remembered>,
}

/// Keys that may be in no replica's cache.
#[derive(Debug)]
struct Remembered {
    /// What led to them is gone.
    departed: Departed,
    /// They came from outside the cluster. Not among the others: a busy stream must not push out what
    /// was deleted.
    told: Departed,
}

impl Remembered {
    fn new(most: usize) -> Self {
        Self { departed: Departed::new(most), told: Departed::new(most) }
    }

    /// Remembers a key from now on: where it is already, or among those that were told of.
    fn tell(&mut self, key: &ObjectKey, now: Instant) {
        let place = if self.departed.contains(key) { &mut self.departed } else { &mut self.told };
        place.insert(key.clone(), now);
    }

    /// Remembers a key from now on among those whose object is gone.
    fn depart(&mut self, key: &ObjectKey, now: Instant) {
        self.told.remove(key);
        self.departed.insert(key.clone(), now);
    }

    fn until(&self, moment: Instant) -> impl Iterator<Item = &ObjectKey> {
        self.departed.until(moment).chain(self.told.until(moment))
    }
}

#[derive(Debug, Default)]
struct Work {
    /// Whether new keys may be taken up.
    open: bool,
    /// Whether the shard was taken, and it has not been looked yet at what is left of it. It may
    /// have run out meanwhile.
    ours: bool,
    running: usize,
    /// Keys that were not taken up, or dropped, since the shard is being drained.
    refused: BTreeSet<ObjectKey>,
}

/// How many keys of each kind a replica remembers; every shard has an equal part of them.
const MOST_REMEMBERED: usize = 100_000;

/// All shards of a controller. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    slots: Arc<[Slot]>,
}

impl Slots {
    pub(crate) fn new(shards: u32) -> Self {
        let slot = |_| Slot {
            fence: Fence::closed(),
            work: Mutex::default(),
            idle: tokio::sync::Notify::new(),
            remembered: Mutex::new(Remembered::new(MOST_REMEMBERED / shards.max(1) as usize)),
        };
        Self { slots: (0..shards).map(slot).collect() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn shard_of(&self, key: &ObjectKey) -> u32 {
        shard_of(key, self.count())
    }

    /// Shards held now.
    pub(crate) fn held(&self) -> usize {
        self.slots.iter().filter(|slot| slot.fence.is_open()).count()
    }

    /// Whether this replica holds a key's shard now.
    pub(crate) fn holds(&self, key: &ObjectKey) -> bool {
        self.slot(self.shard_of(key)).fence.is_open()
    }

    pub(super) fn slot(&self, shard: u32) -> &Slot {
        &self.slots[shard as usize]
    }

    /// Remembers a key that may be in no cache by the time its shard is taken: what led to it is gone.
    pub(crate) fn depart(&self, key: &ObjectKey) {
        let slot = self.slot(self.shard_of(key));
        slot.remembered.lock().depart(key, Instant::now());
    }

    /// The same with a key that no cache ever led to.
    pub(crate) fn tell(&self, key: &ObjectKey) {
        let slot = self.slot(self.shard_of(key));
        slot.remembered.lock().tell(key, Instant::now());
    }

    /// The keys remembered of a shard.
    pub(crate) fn remembered(&self, shard: u32) -> Vec<ObjectKey> {
        let remembered = self.slot(shard).remembered.lock();
        remembered.departed.keys().chain(remembered.told.keys()).cloned().collect()
    }

    /// A worker could not [enter](Self::enter), or dropped the key since its shard was lost. As long
    /// as the shard may come to this replica again, or be given to another by it, the key is
    /// remembered for that. True if the shard is this replica's again already: then the worker is to
    /// try again.
    pub(crate) fn refuse(&self, key: &ObjectKey) -> bool {
        let slot = self.slot(self.shard_of(key));
        let mut work = slot.work.lock();
        match (work.ours, work.open) {
            // Another replica's. If it was lost a moment ago, the key was found in the queue then.
            (false, _) => {}
            (true, true) if slot.fence.is_open() => return true,
            // Run out: the key is found when the shard is taken again.
            (true, true) => slot.remembered.lock().depart(key, Instant::now()),
            (true, false) => drop(work.refused.insert(key.clone())),
        }
        false
    }

    /// Claims a key for working on it; `None` when its shard is not (or not for long) this
    /// replica's.
    pub(crate) fn enter(&self, key: &ObjectKey) -> Option<Claim> {
        let shard = self.shard_of(key);
        let slot = self.slot(shard);
        let mut work = slot.work.lock();
        let term = slot.fence.term().filter(|_| work.open)?;
        work.running += 1;
        drop(work);
        Some(Claim { slots: self.clone(), shard, term })
    }
}

impl Slot {
    /// The shard is held for some time after something was sent, and workers may take up its keys.
    pub(super) fn open(&self, sent: Sent, time: Duration) {
        let mut work = self.work.lock();
        self.fence.renew(sent, time);
        (work.open, work.ours) = (true, true);
        work.refused.clear();
    }

    /// It is held for longer. False if it is not held any more, so that work has been dropped.
    pub(super) fn extend(&self, sent: Sent, time: Duration) -> bool {
        self.fence.prolong(sent, time)
    }

    /// Keys that were not taken up, or dropped, since the shard is being drained.
    pub(super) fn refused(&self) -> BTreeSet<ObjectKey> {
        self.work.lock().refused.clone()
    }

    /// The keys that were last heard of until a moment.
    pub(super) fn heard_until(&self, moment: Instant) -> Vec<ObjectKey> {
        self.remembered.lock().until(moment).cloned().collect()
    }

    /// The keys that were last heard of since a moment.
    pub(super) fn heard_since(&self, moment: Instant) -> Vec<ObjectKey> {
        let remembered = self.remembered.lock();
        remembered.departed.since(moment).chain(remembered.told.since(moment)).cloned().collect()
    }

    /// Whether there are any until a moment.
    pub(super) fn heard_any_until(&self, moment: Instant) -> bool {
        self.remembered.lock().until(moment).next().is_some()
    }

    /// A replica looks after the shard: what it has had the time for need not be remembered.
    pub(super) fn forget(&self, before: Instant) {
        let mut remembered = self.remembered.lock();
        remembered.departed.forget(before);
        remembered.told.forget(before);
    }

    /// Lets workers take up no more keys; what is running goes on.
    pub(super) fn drain(&self) {
        self.work.lock().open = false;
    }

    /// Nothing of the shard runs.
    pub(super) fn is_idle(&self) -> bool {
        self.work.lock().running == 0
    }

    /// Waits until nothing of the shard runs.
    pub(super) async fn idle(&self) {
        loop {
            let told = self.idle.notified();
            if self.is_idle() {
                return;
            }
            told.await;
        }
    }

    /// The shard is not held: no write passes, and what is running is dropped.
    pub(super) fn close(&self) {
        self.work.lock().open = false;
        self.fence.close();
    }

    /// What was left of the shard is known: from now on its keys are not this replica's business.
    pub(super) fn part(&self) {
        let mut work = self.work.lock();
        work.ours = false;
        work.refused.clear();
    }
}

/// A key being worked on. Dropped when it is finished.
#[derive(Debug)]
pub(crate) struct Claim {
    slots: Slots,
    shard: u32,
    /// What begins in one term of the fence does not go on in the next.
    term: u64,
}

impl Claim {
    pub(crate) fn shard(&self) -> u32 {
        self.shard
    }

    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    /// What writes for the key must pass: nothing does in a later term.
    pub(crate) fn fence(&self) -> Fence {
        self.slots.slot(self.shard).fence.bound(self.term)
    }

    /// Goes on with something until the shard is no longer this replica's, and drops it then.
    pub(crate) async fn while_held<F: Future>(&self, work: F) -> Result<F::Output, FenceClosed> {
        self.slots.slot(self.shard).fence.during(self.term, work).await
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let slot = self.slots.slot(self.shard);
        slot.work.lock().running -= 1;
        slot.idle.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const TEN: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_key_is_claimed_only_while_its_shard_is_held() {
        let slots = Slots::new(1);
        let key = ObjectKey::new("default", "thor");
        let slot = slots.slot(0);
        assert!(slots.enter(&key).is_none());
        assert!(!slot.extend(Sent::now(), TEN), "nothing to go on with");
        assert!(slots.enter(&key).is_none());
        slot.open(Sent::now(), TEN);
        let claim = slots.enter(&key).unwrap();
        slot.drain();
        assert!(slots.enter(&key).is_none(), "draining");
        assert!(!slot.is_idle());
        drop(claim);
        slot.idle().await;
    }

    #[tokio::test(start_paused = true)]
    async fn refused_and_departed_keys_are_remembered_while_draining() {
        let slots = Slots::new(1);
        let (slot, key) = (slots.slot(0), ObjectKey::new("default", "thor"));
        assert!(!slots.refuse(&key));
        assert!(slot.refused().is_empty(), "another replica's");
        slot.open(Sent::now(), TEN);
        assert!(slots.refuse(&key), "this replica's by now");
        slot.drain();
        assert!(!slots.refuse(&key));
        assert_eq!(slot.refused(), [key.clone()].into());
        slot.part();
        assert!(slot.refused().is_empty());
        slots.depart(&key);
        tokio::time::advance(Duration::from_secs(1)).await;
        slots.depart(&ObjectKey::cluster("odin"));
        slot.forget(Instant::now());
        assert_eq!(slots.remembered(0), [ObjectKey::cluster("odin")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_stream_pushes_out_nothing_that_was_deleted() {
        let (slots, thor) = (Slots::new(1), ObjectKey::cluster("thor"));
        slots.tell(&thor);
        slots.depart(&thor);
        slots.tell(&thor);
        for n in 0..=MOST_REMEMBERED {
            slots.tell(&ObjectKey::cluster(format!("pet-{n}")));
        }
        let remembered = slots.remembered(0);
        assert_eq!((remembered.len(), &remembered[0]), (MOST_REMEMBERED + 1, &thor));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_refused_since_the_time_is_up_is_remembered() {
        let slots = Slots::new(1);
        let (slot, key) = (slots.slot(0), ObjectKey::new("default", "thor"));
        slot.open(Sent::now(), TEN);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(slots.enter(&key).is_none());
        assert!(!slots.refuse(&key));
        assert_eq!(slots.remembered(0), [key]);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_refused_by_closed_shards_are_remembered() {
        let slots = Slots::new(1);
        let (slot, key) = (slots.slot(0), ObjectKey::new("default", "thor"));
        slot.open(Sent::now(), TEN);
        slot.drain();
        assert!(slots.enter(&key).is_none());
        slot.close();
        assert!(!slots.refuse(&key));
        assert_eq!(slot.refused(), [key].into(), "it is among what is left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_is_lost_exactly_when_its_time_is_up() {
        let slots = Slots::new(1);
        let (slot, start) = (slots.slot(0), Instant::now());
        slot.open(Sent::now(), TEN);
        let claim = slots.enter(&ObjectKey::cluster("thor")).unwrap();
        let renewal = async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            assert!(slot.extend(Sent::now(), TEN), "held all the time");
        };
        let lost = claim.while_held(std::future::pending::<()>());
        assert_eq!(tokio::join!(renewal, lost).1, Err(FenceClosed));
        assert_eq!(start.elapsed(), Duration::from_secs(18));
        assert!(!slot.extend(Sent::now(), TEN), "its work was dropped");
        slot.open(Sent::now(), TEN);
        let claim = slots.enter(&ObjectKey::cluster("thor")).unwrap();
        let lost = claim.while_held(std::future::pending::<()>());
        assert_eq!(tokio::join!(async { slot.close() }, lost).1, Err(FenceClosed));
        assert_eq!(start.elapsed().as_secs(), 18);
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_is_lost_when_the_wall_clock_is_set() {
        let slots = Slots::new(1);
        let (slot, key) = (slots.slot(0), ObjectKey::cluster("thor"));
        slot.open(Sent::now(), TEN);
        let claim = slots.enter(&key).unwrap();
        let mut steps = 0;
        let work = async {
            loop {
                steps += 1;
                if steps == 3 {
                    slot.fence.jump();
                }
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(claim.while_held(work).await, Err::<(), _>(FenceClosed));
        assert_eq!(steps, 3);
        assert!(slots.enter(&key).is_none());
        assert!(!slots.refuse(&key), "until it is renewed");
        assert!(!slot.extend(Sent::now(), TEN), "the renewal reports that work was dropped");
        assert_eq!(slots.remembered(0), [key]);
    }
}
