//! The objects of one reflector, with their indexes: pure, behind no lock of its own.
//!
//! Several layers answer a read:
//!
//! - `objects`: what the watch has said. Handlers are told about changes of this layer only.
//! - `writes`: what this process wrote and the watch has not said yet, so that a reconciler never
//!   reads an object older than its own last write. An entry goes away as soon as the watch has
//!   passed its version; what was written before the first list began is part of that list.
//! - `deleted`: what this process has seen deleted, by uid. Nothing of it is read any more, whether
//!   a list, the watch or the answer to another write brings it.
//! - `behind`: what this process wrote in another version of the kind, which cannot be told here.
//!   What is known of it may be older until the watch has passed the write.
//! - `indexes`: over `objects`; entries of `writes` are checked one by one, as they are few.
//!
//! That an own write is newer than something else is told by its resource version, and what is
//! newer is told by comparing these as numbers: within one resource of one server they are numbers
//! that grow with every write, deletions included.
//!
//! Objects are kept as the bytes they came in, which take a half to a third of the memory of most
//! types. One that is read is decoded; one that changed just now, or is read again and again, stays
//! decoded until it has not been used for a while ([`sweep`](Store::sweep)), or too many have been decoded since.
//! Where the number of decoded objects is limited, the bytes of all others are [packed](super::packed).
//!
//! Replacing the state (after a list) never empties the store: every listed object is put in its
//! place and stamped with the epoch of the list; at the end what carries an older stamp is gone.

mod deleted;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Change;
use super::decode::Fresh;
use super::erased::{AnyObject, IndexFn, Kind, Shared};
use super::packed::{Kept, Packer};
use crate::key::ObjectKey;
use crate::object::{panic_message, parse_version};
use deleted::Deleted;

/// A change, for handlers to be told.
pub(crate) type Told = Change<dyn AnyObject>;

struct Entry {
    /// What the object is decoded from.
    json: Kept,
    /// Boxed, as most objects are not decoded: so it takes one word instead of two.
    decoded: Mutex<Option<Box<Shared>>>,
    /// The period it was last used in.
    used: AtomicU32,
    /// The list it was last part of.
    epoch: u32,
    /// Its resource version, where that is a number; else 0.
    version: u64,
    /// Its place among those that were decoded.
    place: AtomicU32,
}

impl Entry {
    /// The object, and whether it was used before in this period and is not kept decoded.
    fn object(&self, kind: &Kind, period: u32) -> (Shared, bool) {
        if let Some(object) = &*self.decoded.lock() {
            self.used.store(period, Ordering::Relaxed);
            return (Shared::clone(object), false);
        }
        let json = self.json.bytes().unwrap_or_default();
        let object = kind.decode(&json).expect("invariant: decoded from the same bytes before");
        (object, self.used.swap(period, Ordering::Relaxed) == period)
    }
}

/// The objects that were decoded last, if their number is limited.
struct Recent {
    most: usize,
    /// With the place that each had then: one that was decoded again has another one.
    keys: VecDeque<(u32, ObjectKey)>,
    next: u32,
}

/// How many objects a sweep packs at most, because the store is locked meanwhile.
const MOST_PACKED: usize = 4096;

/// Own writes remembered, besides deletions of what the watch still shows. There are more only where the
/// watch has been down for long; the oldest are forgotten then.
const REMEMBERED: usize = 1 << 15;

/// What this process wrote and the watch has not shown yet.
enum Written {
    Present {
        object: Shared,
        version: u64,
    },
    /// Changed so that the reflector's selector no longer matches.
    Left {
        version: u64,
    },
    /// Deleted, when it had this version or a later one.
    Deleted {
        uid: String,
        version: u64,
    },
}

impl Written {
    fn version(&self) -> u64 {
        match self {
            Self::Present { version, .. } | Self::Left { version } | Self::Deleted { version, .. } => *version,
        }
    }
}

struct Index {
    name: String,
    values: IndexFn,
    keys: HashMap<String, HashSet<ObjectKey>>,
    panics: Arc<AtomicU64>,
}

impl Index {
    /// What an object is filed under; `None` if the function panics: such an object is not filed.
    fn values_of(&self, key: &ObjectKey, object: &dyn AnyObject) -> Option<Vec<String>> {
        let called = std::panic::catch_unwind(AssertUnwindSafe(|| (self.values)(object)));
        called
            .inspect_err(|panic| {
                self.panics.fetch_add(1, Ordering::Relaxed);
                let message = panic_message(&**panic);
                tracing::error!(index = %self.name, object = %key, message, "index function panicked");
            })
            .ok()
    }

    fn file(&mut self, key: &ObjectKey, object: &dyn AnyObject) {
        for value in self.values_of(key, object).unwrap_or_default() {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn unfile(&mut self, key: &ObjectKey, object: &dyn AnyObject) {
        let values = self.values_of(key, object);
        self.unfile_from(key, values);
    }

    /// Files an object that was filed as `old` before. Most changes leave it where it is.
    fn refile(&mut self, key: &ObjectKey, old: &dyn AnyObject, new: &dyn AnyObject) {
        let (was, is) = (self.values_of(key, old), self.values_of(key, new));
        if was.is_some() && was == is {
            return;
        }
        self.unfile_from(key, was);
        for value in is.unwrap_or_default() {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn unfile_from(&mut self, key: &ObjectKey, values: Option<Vec<String>>) {
        match values {
            Some(values) => {
                for value in values {
                    if let Some(keys) = self.keys.get_mut(&value) {
                        keys.remove(key);
                        if keys.is_empty() {
                            self.keys.remove(&value);
                        }
                    }
                }
            }
            // Perhaps it did not panic when the object was filed.
            None => self.keys.retain(|_, keys| {
                keys.remove(key);
                !keys.is_empty()
            }),
        }
    }
}

/// See the [module documentation](self).
pub(crate) struct Store {
    kind: Kind,
    objects: HashMap<ObjectKey, Entry>,
    recent: Option<Mutex<Recent>>,
    /// Where the number of decoded objects is limited.
    packer: Option<Packer>,
    writes: HashMap<ObjectKey, Written>,
    /// When to look at each of `writes` again, but for deletions: by version, the lowest first. An entry may have gone, or
    /// have been replaced by a later one.
    due: BinaryHeap<Reverse<(u64, ObjectKey)>>,
    deleted: Deleted,
    behind: HashMap<ObjectKey, u64>,
    /// How many `writes` there may be before it is looked for what to forget.
    room: usize,
    /// Whether an own write was forgotten before the watch showed it.
    forgetful: bool,
    indexes: HashMap<String, Index>,
    epoch: u32,
    /// How many objects were part of the list of this epoch so far.
    listed: usize,
    /// Whether a list was ever complete: what appears before that is no news.
    complete: bool,
    /// The version the watch has reached.
    version: u64,
    /// The version of the last event about an object.
    told: u64,
    /// Counts sweeps.
    period: u32,
    /// Counts panics of index functions.
    panics: Arc<AtomicU64>,
}

impl Store {
    pub(crate) fn new(kind: Kind, panics: Arc<AtomicU64>) -> Self {
        Self {
            kind,
            panics,
            objects: HashMap::new(),
            recent: None,
            packer: None,
            writes: HashMap::new(),
            due: BinaryHeap::new(),
            deleted: Deleted::default(),
            behind: HashMap::new(),
            room: REMEMBERED,
            forgetful: false,
            indexes: HashMap::new(),
            epoch: 0,
            listed: 0,
            complete: false,
            version: 0,
            told: 0,
            period: 1,
        }
    }

    /// Keeps no more objects decoded than this, and the bytes of the others packed.
    pub(crate) fn most_decoded(mut self, most: Option<usize>) -> Self {
        self.packer = most.map(|_| Packer::default());
        self.recent = most.map(|most| Mutex::new(Recent { most, keys: VecDeque::new(), next: 0 }));
        self
    }

    // Reads.

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Shared> {
        match self.writes.get(key) {
            Some(Written::Present { object, .. }) => Some(Arc::clone(object)),
            Some(Written::Left { .. } | Written::Deleted { .. }) => None,
            None => self.observed(key),
        }
    }

    /// The version the watch has reached. Of two watches of a kind, the one with the higher has told all that the
    /// other has, as far as both select it.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The version of the last event about an object: another watch that selects this object gets one, too.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// Whether this process has written something newer than what can be read.
    pub(crate) fn is_behind(&self, key: &ObjectKey) -> bool {
        !self.behind.is_empty() && self.behind.contains_key(key)
    }

    /// The objects of which this process has written something newer than what can be read.
    pub(crate) fn behind(&self) -> Vec<ObjectKey> {
        self.behind.keys().cloned().collect()
    }

    /// What the watch has said about an object, whatever was written since.
    pub(crate) fn observed(&self, key: &ObjectKey) -> Option<Shared> {
        let entry = self.objects.get(key)?;
        let (object, again) = entry.object(&self.kind, self.period);
        if again {
            *entry.decoded.lock() = Some(Box::new(Arc::clone(&object)));
            self.note_decoded(key, entry);
        }
        Some(object)
    }

    /// An object is decoded. Another one that was for long may have to make room for it, and is returned.
    fn note_decoded(&self, key: &ObjectKey, entry: &Entry) -> Option<ObjectKey> {
        let recent = self.recent.as_ref()?;
        let mut recent = recent.lock();
        recent.next = recent.next.wrapping_add(1);
        let place = recent.next;
        entry.place.store(place, Ordering::Relaxed);
        recent.keys.push_back((place, key.clone()));
        let oldest = if recent.keys.len() > recent.most { recent.keys.pop_front() } else { None };
        drop(recent);
        let (place, key) = oldest?;
        let entry = self.objects.get(&key)?;
        if !entry.json.has_bytes() || entry.place.load(Ordering::Relaxed) != place {
            return None;
        }
        let unused = entry.decoded.lock().take();
        drop(unused);
        Some(key)
    }

    /// Packs an object that is not decoded any more.
    fn pack(&mut self, key: &ObjectKey) {
        if let Some(packer) = &mut self.packer
            && let Some(entry) = self.objects.get_mut(key)
        {
            entry.json.pack(packer);
        }
    }

    /// Whether the watch has said something about an object.
    pub(crate) fn has_observed(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key)
    }

    /// The keys of everything the watch has said.
    pub(crate) fn observed_keys(&self) -> Vec<ObjectKey> {
        self.objects.keys().cloned().collect()
    }

    /// Whether anything is known of any object, from the watch or from own writes.
    pub(crate) fn has_any(&self) -> bool {
        !self.objects.is_empty() || !self.writes.is_empty() || !self.behind.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        if self.writes.is_empty() { self.objects.len() } else { self.keys().count() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Shared> {
        self.keys().filter_map(|key| self.get(key))
    }

    /// The keys of everything that [`iter`](Self::iter) yields.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        let observed = self.objects.keys().filter(|key| self.writes.is_empty() || !self.writes.contains_key(*key));
        let written = self.writes.iter().filter_map(|(key, written)| match written {
            Written::Present { .. } => Some(key),
            Written::Left { .. } | Written::Deleted { .. } => None,
        });
        observed.chain(written)
    }

    pub(crate) fn has_index(&self, name: &str) -> bool {
        self.indexes.contains_key(name)
    }

    /// Objects filed under a value; empty when there is no such index.
    pub(crate) fn by_index(&self, name: &str, value: &str) -> Vec<Shared> {
        let Some(index) = self.indexes.get(name) else {
            return Vec::new();
        };
        let mut found: Vec<Shared> = index
            .keys
            .get(value)
            .into_iter()
            .flatten()
            .filter(|key| !self.writes.contains_key(*key))
            .filter_map(|key| self.observed(key))
            .collect();
        found.extend(self.writes.iter().filter_map(|(key, written)| match written {
            Written::Present { object, .. } => {
                let values = index.values_of(key, &**object).unwrap_or_default();
                values.iter().any(|own| own == value).then(|| Arc::clone(object))
            }
            Written::Left { .. } | Written::Deleted { .. } => None,
        }));
        found
    }

    /// Whether an index would file an object under a value.
    pub(crate) fn files(&self, name: &str, value: &str, object: &dyn AnyObject) -> bool {
        let index = self.indexes.get(name);
        let values = index.and_then(|index| index.values_of(&object.key(), object));
        values.is_some_and(|values| values.iter().any(|own| own == value))
    }

    pub(crate) fn add_index(&mut self, name: &str, values: IndexFn) {
        let panics = Arc::clone(&self.panics);
        let mut index = Index { name: name.to_owned(), values, keys: HashMap::new(), panics };
        for (key, entry) in &self.objects {
            index.file(key, &*entry.object(&self.kind, self.period).0);
        }
        self.indexes.insert(name.to_owned(), index);
    }

    // What the watch says.

    /// Puts an object in its place; `listed` when it is part of a list rather than an event. Up to
    /// two changes: an object deleted and made again between two looks is a deletion and an
    /// addition.
    pub(crate) fn upsert(&mut self, fresh: Fresh, listed: bool) -> [Option<Told>; 2] {
        let Fresh { object, json } = fresh;
        let key = object.key();
        let initial = listed && !self.complete;
        if !listed && let Some(version) = object.version() {
            self.advance(version);
            self.told = self.version;
        }
        self.settle(&key, &*object);
        let epoch = self.epoch;
        let version = object.version().unwrap_or_default();
        if let Some(known) = self.objects.get_mut(&key)
            && json.is_some()
            // Bytes that say the version are other bytes in another version.
            && known.version == version
            && known.json.bytes().as_deref() == json.as_deref()
        {
            self.listed += usize::from(known.epoch != epoch);
            known.epoch = epoch;
            return [None, None];
        }
        // What just changed will be looked at soon; what was only listed need not be.
        let (decoded, used) =
            if listed && json.is_some() { (None, 0) } else { (Some(Box::new(object.clone())), self.period) };
        let is_decoded = decoded.is_some();
        let mut json = Kept::new(json);
        if !is_decoded && let Some(packer) = &mut self.packer {
            json.pack(packer);
        }
        let entry = Entry {
            json,
            decoded: Mutex::new(decoded),
            used: AtomicU32::new(used),
            epoch,
            version,
            place: AtomicU32::new(0),
        };
        let old = self.objects.insert(key.clone(), entry);
        let unused = self.objects.get(&key).filter(|_| is_decoded).and_then(|entry| self.note_decoded(&key, entry));
        if let Some(unused) = unused {
            self.pack(&unused);
        }
        self.listed += usize::from(old.as_ref().is_none_or(|old| old.epoch != epoch));
        let Some((old, _)) = old.map(|old| old.object(&self.kind, self.period)) else {
            self.file(&key, &*object);
            return [Some(Change::Added { object, initial }), None];
        };
        // Also what has not changed may look different, as when its definition has a new default.
        self.indexes.values_mut().for_each(|index| index.refile(&key, &*old, &*object));
        let (was, is) = (old.metadata(), object.metadata());
        if was.uid == is.uid && was.resource_version == is.resource_version {
            return [None, None];
        }
        if was.uid == is.uid {
            return [Some(Change::Updated { old, new: object }), None];
        }
        [Some(Change::Deleted { object: old }), Some(Change::Added { object, initial })]
    }

    /// Removes an object. `last` is its final state when the server sent one that could be read.
    pub(crate) fn remove(&mut self, key: &ObjectKey, last: Option<Shared>, version: &str) -> Option<Told> {
        if let Some(version) = parse_version(version) {
            self.advance(version);
            self.told = self.version;
        }
        // What left the selection with a later version stays out until the watch is there.
        if matches!(self.writes.get(key), Some(Written::Deleted { .. })) {
            self.writes.remove(key);
        }
        let known = self.take(key);
        let last = last.or(known);
        if let Some(last) = &last {
            // Whatever comes late now is older than the watch.
            self.deleted.remove(last.uid());
        }
        last.map(|object| Change::Deleted { object })
    }

    /// An object is still there but could not be read: keep what was known of it.
    pub(crate) fn keep(&mut self, key: &ObjectKey) {
        let epoch = self.epoch;
        if let Some(entry) = self.objects.get_mut(key) {
            entry.epoch = epoch;
        }
    }

    /// A list begins. The first that is complete will contain what was written before.
    pub(crate) fn begin_replace(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.listed = 0;
        if !self.complete {
            let objects = &self.objects;
            self.writes.retain(|key, _| objects.contains_key(key));
            self.behind.retain(|key, _| objects.contains_key(key));
        }
    }

    /// How many objects the last list to begin has brought so far.
    pub(crate) fn listed(&self) -> usize {
        self.listed
    }

    /// Whether a list has begun: one that begins later contains all that was written before.
    fn has_begun(&self) -> bool {
        self.epoch > 0 || self.complete
    }

    /// The list is complete as of `version`: what it did not contain is gone.
    pub(crate) fn finish_replace(&mut self, version: &str) -> Vec<Told> {
        self.complete = true;
        let epoch = self.epoch;
        let gone: Vec<ObjectKey> =
            self.objects.iter().filter(|(_, entry)| entry.epoch != epoch).map(|(key, _)| key.clone()).collect();
        let changes = gone.iter().filter_map(|key| self.take(key)).map(|object| Change::Deleted { object }).collect();
        if let Some(version) = parse_version(version) {
            if version < self.version {
                // A restored or recreated server counts from an earlier point: what was written
                // before belongs to another history.
                (self.version, self.told) = (version, version);
                self.writes.clear();
                self.due.clear();
                self.deleted.clear();
                self.behind.clear();
            }
            self.advance(version);
        }
        // Where there is nothing to hide, `deleted` sees to it that it stays so.
        let (objects, mut contained) = (&self.objects, HashSet::new());
        self.writes.retain(|key, written| match written {
            Written::Present { .. } | Written::Left { .. } => true,
            Written::Deleted { uid, .. } => {
                let hides = objects.contains_key(key);
                if hides {
                    contained.insert(uid.clone());
                }
                hides
            }
        });
        self.deleted.listed(epoch, &contained);
        changes
    }

    /// The kind is gone, and all objects with it, also those that only this process knows of.
    pub(crate) fn end(&mut self) -> Vec<Told> {
        self.writes.clear();
        self.due.clear();
        self.behind.clear();
        self.begin_replace();
        self.finish_replace("")
    }

    /// The watch has reached a version.
    pub(crate) fn advance(&mut self, version: u64) {
        self.version = self.version.max(version);
        if !self.behind.is_empty() {
            let reached = self.version;
            self.behind.retain(|_, version| *version > reached);
        }
        while self.due.peek().is_some_and(|Reverse((version, _))| *version <= self.version) {
            let Some(Reverse((_, key))) = self.due.pop() else { break };
            let passed = |written: &Written| match written {
                Written::Present { version, .. } | Written::Left { version } => *version <= self.version,
                Written::Deleted { .. } => false,
            };
            if self.writes.get(&key).is_some_and(passed) {
                self.writes.remove(&key);
            }
        }
    }

    /// Lets go of what was decoded and not used since the last call, and packs it. Returns how many objects stay
    /// decoded.
    pub(crate) fn sweep(&mut self) -> usize {
        let period = self.period;
        self.period = self.period.wrapping_add(1);
        let (mut stay, mut room) = (0, MOST_PACKED);
        for entry in self.objects.values_mut() {
            if entry.json.has_bytes() && *entry.used.get_mut() != period {
                *entry.decoded.get_mut() = None;
            }
            let is_decoded = entry.decoded.get_mut().is_some();
            stay += usize::from(is_decoded);
            if let Some(packer) = self.packer.as_mut().filter(|_| !is_decoded && room > 0)
                && let Kept::Bytes(_) = entry.json
            {
                entry.json.pack(packer);
                room -= 1;
            }
        }
        stay
    }

    // What this process wrote.

    /// Remembers that an object was written in another version of the kind, with this resource
    /// version, until it is known how it looks in this one.
    pub(crate) fn note_elsewhere(&mut self, key: &ObjectKey, version: u64) {
        if version > self.version && self.has_begun() {
            let known = self.behind.entry(key.clone()).or_default();
            *known = version.max(*known);
            if self.behind.len() > REMEMBERED {
                let limit = oldest(self.behind.values().copied().collect());
                self.behind.retain(|_, version| *version > limit);
                self.forgetful = true;
            }
        }
    }

    /// Remembers the result of a write until the watch shows it. `matches` is false when the
    /// reflector's selector does not (or no longer) select the object.
    pub(crate) fn note_write(&mut self, object: Shared, matches: bool) {
        let Some(version) = object.version().filter(|_| self.has_begun()) else {
            return;
        };
        let key = object.key();
        if self.behind.get(&key).is_some_and(|written| *written <= version) {
            self.behind.remove(&key);
        }
        let known = self.objects.get(&key);
        if version <= self.version || known.is_some_and(|known| known.version >= version) {
            return;
        }
        if self.deleted.contains(object.uid()) {
            return;
        }
        let written = if matches {
            Written::Present { object, version }
        } else if known.is_some() || self.writes.contains_key(&key) {
            Written::Left { version }
        } else {
            return;
        };
        let newer = self.writes.get(&key).is_some_and(|known| known.version() >= version);
        if !newer {
            self.due.push(Reverse((version, key.clone())));
            self.writes.insert(key, written);
            self.forget_oldest();
        }
    }

    /// Whether own writes were forgotten before the watch showed them.
    pub(crate) fn is_forgetful(&self) -> bool {
        self.forgetful
    }

    /// Where there are too many own writes, lets go of the oldest. Deletions are no part of that: those that
    /// hide what the watch still shows must stay, and the others hide nothing ([`Deleted`] sees to that).
    fn forget_oldest(&mut self) {
        if self.due.len() > 2 * (self.writes.len() + REMEMBERED) {
            let writes = &self.writes;
            self.due.retain(|Reverse((version, key))| writes.get(key).is_some_and(|known| known.version() == *version));
        }
        if self.writes.len() <= self.room {
            return;
        }
        let objects = &self.objects;
        self.writes.retain(|key, written| !matches!(written, Written::Deleted { .. }) || objects.contains_key(key));
        let shown = |written: &&Written| !matches!(written, Written::Deleted { .. });
        let versions: Vec<u64> = self.writes.values().filter(shown).map(Written::version).collect();
        self.room = REMEMBERED + self.writes.len() - versions.len();
        if versions.len() > REMEMBERED {
            let limit = oldest(versions);
            self.writes.retain(|_, written| !shown(&&*written) || written.version() > limit);
            self.forgetful = true;
        }
    }

    /// Remembers that an object is gone until the watch says so. Without a uid it is the one that
    /// is known.
    pub(crate) fn note_delete(&mut self, key: &ObjectKey, uid: Option<&str>) {
        let shown = self.get(key);
        let known = shown.as_ref().and_then(|object| object.uid());
        let Some(uid) = uid.or(known) else {
            return;
        };
        self.deleted.insert(uid, self.epoch);
        self.behind.remove(key);
        if known == Some(uid) {
            let version = shown.as_ref().and_then(|shown| shown.version()).unwrap_or_default();
            self.writes.insert(key.clone(), Written::Deleted { uid: uid.to_owned(), version });
        }
    }

    /// Forgets what was written about an object once the watch contradicts it, and hides what is
    /// known to be gone.
    fn settle(&mut self, key: &ObjectKey, object: &dyn AnyObject) {
        let uid = object.uid();
        let seen = object.version();
        let settled = match self.writes.get(key) {
            Some(Written::Present { version, .. }) => seen.is_some_and(|seen| seen >= *version),
            // Where versions are no numbers, another object is taken to be a later one.
            Some(Written::Deleted { uid: gone, version }) => {
                uid != Some(gone) && seen.is_none_or(|seen| seen > *version)
            }
            Some(Written::Left { .. }) | None => false,
        };
        if settled {
            self.writes.remove(key);
        }
        if let Some(uid) = uid
            && self.deleted.contains(Some(uid))
            && !self.writes.contains_key(key)
        {
            let version = seen.unwrap_or_default();
            self.writes.insert(key.clone(), Written::Deleted { uid: uid.to_owned(), version });
        }
    }

    fn take(&mut self, key: &ObjectKey) -> Option<Shared> {
        let (object, _) = self.objects.remove(key)?.object(&self.kind, self.period);
        self.unfile(key, &*object);
        Some(object)
    }

    fn file(&mut self, key: &ObjectKey, object: &dyn AnyObject) {
        self.indexes.values_mut().for_each(|index| index.file(key, object));
    }

    fn unfile(&mut self, key: &ObjectKey, object: &dyn AnyObject) {
        self.indexes.values_mut().for_each(|index| index.unfile(key, object));
    }
}

/// The version up to which notes are old where there are too many: an eighth of them, so that the search is
/// paid for rarely.
fn oldest(mut versions: Vec<u64>) -> u64 {
    let (_, &mut limit, _) = versions.select_nth_unstable(REMEMBERED / 8);
    limit
}

#[cfg(test)]
mod tests;
