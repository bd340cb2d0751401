// SPDX-License-Identifier: Apache-2.0

//! What the pet store knows: an inventory of pets, in memory.
//!
//! [`Inventory`] is pure: no I/O, no clock, no locks. A write has two halves, so that a database can be written between
//! them: [`add`](Inventory::add), [`update`](Inventory::update) and [`delete`](Inventory::delete) say what would change,
//! and [`apply`](Inventory::apply) changes it. [`Changes`] of everything there is fill an empty inventory.
//!
//! ```text
//! arrival number ─► entry        the pets, oldest first: the order searches return
//! id             ─► arrival number
//! name           ─► arrival numbers
//! ```
//!
//! Every number in the two indexes is the number of an entry with that id or name, and every entry is in both. Only `link`
//! and `unlink` touch the indexes, so an update can never leave a stale index entry behind.
//!
//! Adding can be repeated safely. An addition made under a key (see [`Inventory::add`]) is remembered for as long as one
//! of its pets is here, so the memory that keys take is bounded by the number of pets.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::ops::Range;

use jiff::civil::Date;

/// What sort of animal a pet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Species {
    /// A dog.
    Canine,
    /// A cat.
    Feline,
    /// A bird.
    Bird,
    /// A reptile.
    Reptile,
}

/// Everything about a pet but its id.
///
/// The name is not blank: [`Details::new`] sees to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    name: String,
    species: Species,
    birthday: Date,
}

/// A pet's name is empty or only white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name is blank")]
pub struct BlankName;

impl Details {
    /// The details of a pet, if `name` is one.
    pub fn new(name: impl Into<String>, species: Species, birthday: Date) -> Result<Self, BlankName> {
        let name = name.into();
        if name.trim().is_empty() {
            return Err(BlankName);
        }
        Ok(Self { name, species, birthday })
    }

    /// What the pet is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the pet is called, when nothing else is needed any more.
    pub fn into_name(self) -> String {
        self.name
    }

    /// What sort of animal it is.
    pub fn species(&self) -> Species {
        self.species
    }

    /// The day it was born.
    pub fn birthday(&self) -> Date {
        self.birthday
    }
}

/// A pet in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pet {
    /// The store's identifier for it, shaped like a version 4 UUID.
    pub id: String,
    /// What is known about it.
    pub details: Details,
}

/// A pet, and the key that it was added under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The pet.
    pub pet: Pet,
    /// What makes its addition repeatable.
    pub key: Option<String>,
}

/// What a write changes: new values, or `None` for what is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "nothing is changed before the changes are applied"]
pub struct Changes {
    /// Pets by their arrival numbers.
    pub entries: BTreeMap<u64, Option<Entry>>,
    /// The ids that additions have answered, by their keys.
    pub additions: BTreeMap<String, Option<Vec<String>>>,
}

impl Changes {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.additions.is_empty()
    }
}

/// Which pets a search finds: those that pass every filter that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The pet has one of these names; empty lets every name pass.
    pub names: HashSet<String>,
    /// The pet is of one of these species; empty lets every species pass.
    pub species: HashSet<Species>,
    /// The pet was born on a day in this range, whose end is not part of it.
    pub born: Option<Range<Date>>,
}

impl Filter {
    /// Whether a pet with these details is found.
    pub fn matches(&self, details: &Details) -> bool {
        (self.names.is_empty() || self.names.contains(&details.name))
            && (self.species.is_empty() || self.species.contains(&details.species))
            && self.born.as_ref().is_none_or(|born| born.contains(&details.birthday))
    }
}

/// A part of a search's result, and where the next part starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The pets found, oldest entry first.
    pub pets: Vec<Pet>,
    /// Pass it to [`Inventory::search`] for the rest; `None` when there is no more.
    pub next: Option<Cursor>,
}

/// A place between two entries. It stays valid whatever is added or deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(u64);

/// An update named a pet that is not in the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no pet has the id {id:?}")]
pub struct UnknownPet {
    /// The id that no pet has.
    pub id: String,
}

/// The pets in the store. See the module's documentation.
#[derive(Default)]
pub struct Inventory {
    entries: BTreeMap<u64, Entry>,
    by_id: HashMap<String, u64>,
    by_name: HashMap<String, BTreeSet<u64>>,
    additions: HashMap<String, Addition>,
    next_arrival: u64,
}

/// An addition made under a key: what it answered, and how many of its pets are still here.
#[derive(Default)]
struct Addition {
    ids: Vec<String>,
    alive: usize,
}

impl Inventory {
    /// How many pets there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no pet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The pet with this id.
    pub fn get(&self, id: &str) -> Option<&Pet> {
        let arrival = self.by_id.get(id)?;
        self.entries.get(arrival).map(|entry| &entry.pet)
    }

    /// What an earlier addition under `key` answered, if one of its pets is still here.
    pub fn added_under(&self, key: &str) -> Option<&[String]> {
        self.additions.get(key).map(|addition| addition.ids.as_slice())
    }

    /// Adds pets. Returns their new ids, in order.
    ///
    /// With a `key`, the call can be repeated: while a pet added under the key is in the store, the ids of the first call
    /// come back and nothing is added, whatever `pets` says now.
    pub fn add(&self, pets: Vec<Details>, key: Option<&str>) -> (Vec<String>, Changes) {
        if let Some(ids) = key.and_then(|key| self.added_under(key)) {
            return (ids.to_vec(), Changes::default());
        }
        let mut ids = Vec::new();
        let mut changes = Changes::default();
        for (arrival, details) in (self.next_arrival..).zip(pets) {
            let id = self.unused_id();
            ids.push(id.clone());
            let entry = Entry { pet: Pet { id, details }, key: key.map(str::to_owned) };
            changes.entries.insert(arrival, Some(entry));
        }
        if let Some(key) = key
            && !ids.is_empty()
        {
            changes.additions.insert(key.to_owned(), Some(ids.clone()));
        }
        (ids, changes)
    }

    /// Replaces the details of pets: all of them, or none if one is not in the store.
    pub fn update(&self, pets: Vec<Pet>) -> Result<Changes, UnknownPet> {
        let mut changes = Changes::default();
        for pet in pets {
            let Some(arrival) = self.by_id.get(&pet.id) else { return Err(UnknownPet { id: pet.id }) };
            let key = self.entries[arrival].key.clone();
            changes.entries.insert(*arrival, Some(Entry { pet, key }));
        }
        Ok(changes)
    }

    /// Deletes pets. An id that no pet has is ignored: that pet is gone already.
    pub fn delete<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Changes {
        let arrivals = ids.into_iter().filter_map(|id| self.by_id.get(id));
        let mut changes = Changes { entries: arrivals.map(|arrival| (*arrival, None)).collect(), ..Changes::default() };
        let mut deleted: HashMap<&str, usize> = HashMap::new();
        for key in changes.entries.keys().filter_map(|arrival| self.entries[arrival].key.as_deref()) {
            *deleted.entry(key).or_default() += 1;
        }
        // A key is forgotten with the last pet that was added under it.
        let forgotten = deleted.into_iter().filter(|(key, count)| self.additions[*key].alive == *count);
        changes.additions = forgotten.map(|(key, _)| (key.to_owned(), None)).collect();
        changes
    }

    /// Changes what was said to change.
    pub fn apply(&mut self, changes: Changes) {
        for (key, ids) in &changes.additions {
            if let Some(ids) = ids {
                self.additions.insert(key.clone(), Addition { ids: ids.clone(), alive: 0 });
            }
        }
        for (arrival, entry) in changes.entries {
            self.unlink(arrival);
            if let Some(entry) = entry {
                self.next_arrival = self.next_arrival.max(arrival + 1);
                self.link(arrival, entry);
            }
        }
        for (key, ids) in changes.additions {
            if ids.is_none() {
                self.additions.remove(&key);
            }
        }
    }

    /// Finds pets after `from`, oldest entry first, at most `limit` of them.
    ///
    /// Searching in pages lets a caller unlock the store in between: a pet that is in the store and matches during the
    /// whole search is returned exactly once.
    pub fn search(&self, filter: &Filter, from: Cursor, limit: usize) -> Page {
        let mut page = Page::default();
        for (arrival, pet) in self.candidates(filter, from) {
            if page.pets.len() == limit {
                page.next = Some(Cursor(arrival));
                break;
            }
            page.pets.push(pet.clone());
        }
        page
    }

    /// Every match from `from` on, using the index of names when names are asked for.
    fn candidates<'a>(&'a self, filter: &'a Filter, from: Cursor) -> Box<dyn Iterator<Item = (u64, &'a Pet)> + 'a> {
        let matches =
            |(arrival, entry): (u64, &'a Entry)| filter.matches(&entry.pet.details).then_some((arrival, &entry.pet));
        if filter.names.is_empty() {
            let entries = self.entries.range(from.0..);
            return Box::new(entries.map(|(arrival, entry)| (*arrival, entry)).filter_map(matches));
        }
        let named: BTreeSet<u64> = filter
            .names
            .iter()
            .filter_map(|name| self.by_name.get(name))
            .flat_map(|arrivals| arrivals.range(from.0..).copied())
            .collect();
        Box::new(
            named.into_iter().filter_map(|arrival| Some((arrival, self.entries.get(&arrival)?))).filter_map(matches),
        )
    }

    fn unused_id(&self) -> String {
        std::iter::repeat_with(new_id)
            .find(|id| !self.by_id.contains_key(id))
            .expect("invariant: an endless supply of ids has an unused one")
    }

    fn link(&mut self, arrival: u64, entry: Entry) {
        let Pet { id, details } = &entry.pet;
        self.by_id.insert(id.clone(), arrival);
        self.by_name.entry(details.name.clone()).or_default().insert(arrival);
        if let Some(addition) = entry.key.as_ref().and_then(|key| self.additions.get_mut(key)) {
            addition.alive += 1;
        }
        self.entries.insert(arrival, entry);
    }

    fn unlink(&mut self, arrival: u64) {
        let Some(entry) = self.entries.remove(&arrival) else { return };
        let Pet { id, details } = &entry.pet;
        self.by_id.remove(id);
        if let Some(arrivals) = self.by_name.get_mut(&details.name) {
            arrivals.remove(&arrival);
            if arrivals.is_empty() {
                self.by_name.remove(&details.name);
            }
        }
        if let Some(addition) = entry.key.as_ref().and_then(|key| self.additions.get_mut(key)) {
            addition.alive -= 1;
        }
    }
}

impl fmt::Debug for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inventory")
            .field("pets", &self.entries.len())
            .field("keys", &self.additions.len())
            .finish_non_exhaustive()
    }
}

/// A random id shaped like a version 4 UUID.
fn new_id() -> String {
    const VERSION: u128 = 0xf << 76;
    const VARIANT: u128 = 0b11 << 62;
    let bits = fastrand::u128(..) & !VERSION & !VARIANT | 4 << 76 | 0b10 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        bits >> 96,
        bits >> 80 & 0xffff,
        bits >> 64 & 0xffff,
        bits >> 48 & 0xffff,
        bits & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests;
