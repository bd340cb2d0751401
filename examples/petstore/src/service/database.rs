// SPDX-License-Identifier: Apache-2.0

//! Where pets are kept: an embedded database with two engines, one in memory and one in a directory.
//!
//! | key | value |
//! |---|---|
//! | `pet/` and the arrival number, 16 hexadecimal digits | the pet and the key that it was added under, as JSON |
//! | `key/` and an idempotency key | the ids that were answered, as JSON |
//!
//! What always holds: in a directory, a write that has returned is on disk. It survives `kill -9`, and a loss of power. A
//! write is one transaction, so all of its changes are there, or none.

use std::path::Path;
use std::sync::Arc;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use serde_json::{from_slice, to_vec};
use windlass_store::{
    Durable, DurableOptions, Expect, HistoryBudget, Memory, OpenError, Range, Store, StoreError, Value, Write,
};

use super::inventory::{BlankName, Changes, Details, Entry, Inventory, Pet, Species};

/// A pet store needs no old revisions; a few are kept, because nothing can be kept without its last revision.
const OPTIONS: DurableOptions = DurableOptions {
    history: HistoryBudget { events: 64, bytes: 1 << 20 },
    segment_bytes: 1 << 20,
    checkpoint_bytes: 1 << 20,
};

const PET: &str = "pet/";
const KEY: &str = "key/";

/// Why pets cannot be kept, or found again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The database cannot be opened.
    #[error("cannot open the database")]
    Open(#[from] OpenError),
    /// The database cannot be read or written.
    #[error("the database failed")]
    Failed(#[from] StoreError),
    /// A record is none of a pet store, or is damaged.
    #[error("the database has a record {key:?} that cannot be read")]
    Record {
        /// The key of the record.
        key: String,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The database of a pet store. Clones share it.
#[derive(Clone)]
pub struct Database {
    engine: Arc<dyn Store>,
}

/// A pet as it is kept.
#[derive(Serialize, Deserialize)]
struct Record {
    id: String,
    name: String,
    species: Species,
    birthday: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl Database {
    /// A database that is gone with its process.
    pub fn in_memory() -> Self {
        Self { engine: Arc::new(Memory::new()) }
    }

    /// The database in a directory, which is created if it is not there. No other process may have it open.
    pub fn open(directory: &Path) -> Result<Self, DatabaseError> {
        let (engine, _) = Durable::open(directory, OPTIONS)?;
        Ok(Self { engine: Arc::new(engine) })
    }

    /// Everything that is kept.
    pub async fn load(&self) -> Result<Inventory, DatabaseError> {
        let mut all = Changes::default();
        for entry in self.engine.range(Range::prefix(PET), None, usize::MAX).await?.entries {
            let (arrival, pet) = decode(&entry.key, &entry.value)
                .map_err(|source| DatabaseError::Record { key: text(&entry.key), source })?;
            all.entries.insert(arrival, Some(pet));
        }
        for entry in self.engine.range(Range::prefix(KEY), None, usize::MAX).await?.entries {
            let ids = from_slice(&entry.value)
                .map_err(|error| DatabaseError::Record { key: text(&entry.key), source: error.into() })?;
            all.additions.insert(text(&entry.key[KEY.len()..]), Some(ids));
        }
        let mut inventory = Inventory::default();
        inventory.apply(all);
        Ok(inventory)
    }

    /// Makes changes, all of them or none.
    pub async fn write(&self, changes: &Changes) -> Result<(), DatabaseError> {
        let pets = changes.entries.iter().map(|(arrival, entry)| {
            write(format!("{PET}{arrival:016x}"), entry.as_ref().map(|entry| to_vec(&Record::from(entry))))
        });
        let additions =
            changes.additions.iter().map(|(key, ids)| write(format!("{KEY}{key}"), ids.as_ref().map(to_vec)));
        self.engine.txn(pets.chain(additions).collect::<Result<_, _>>()?).await?;
        Ok(())
    }

    /// Waits for the writes that are under way. There are none afterwards.
    pub async fn close(&self) -> Result<(), DatabaseError> {
        Ok(self.engine.close().await?)
    }
}

/// Only one process writes, and one write at a time: there is nothing to compare with.
fn write(key: String, value: Option<serde_json::Result<Vec<u8>>>) -> Result<Write, DatabaseError> {
    match value.transpose() {
        Ok(Some(value)) => Ok(Write::Put { key: key.into(), expect: Expect::Any, value: Value::plain(value) }),
        Ok(None) => Ok(Write::Delete { key: key.into(), expect: Expect::Any, last: None }),
        Err(error) => Err(DatabaseError::Record { key, source: error.into() }),
    }
}

fn decode(key: &[u8], value: &[u8]) -> Result<(u64, Entry), Box<dyn std::error::Error + Send + Sync>> {
    let arrival = u64::from_str_radix(&text(&key[PET.len()..]), 16)?;
    let Record { id, name, species, birthday, key } = from_slice(value)?;
    let birthday: Date = birthday.parse()?;
    let details = Details::new(name, species, birthday).map_err(|blank: BlankName| blank.to_string())?;
    Ok((arrival, Entry { pet: Pet { id, details }, key }))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl From<&Entry> for Record {
    fn from(Entry { pet, key }: &Entry) -> Self {
        Self {
            id: pet.id.clone(),
            name: pet.details.name().to_owned(),
            species: pet.details.species(),
            birthday: pet.details.birthday().to_string(),
            key: key.clone(),
        }
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An inventory, and the database that it was written to.
    async fn write(database: &Database, inventory: &mut Inventory, changes: Changes) {
        database.write(&changes).await.expect("written");
        inventory.apply(changes);
    }

    #[tokio::test]
    async fn what_was_written_is_there_after_the_database_is_opened_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let pet =
            |name: &str| Details::new(name, Species::Bird, "2020-02-29".parse().expect("a date")).expect("a name");
        let database = Database::open(directory.path()).expect("a database");
        let mut inventory = database.load().await.expect("an empty inventory");
        let (ids, changes) = inventory.add(vec![pet("Iago"), pet("Zazu")], Some("one"));
        write(&database, &mut inventory, changes).await;
        let (other, changes) = inventory.add(vec![pet("Polly")], None);
        write(&database, &mut inventory, changes).await;
        let renamed = Pet { id: other[0].clone(), details: pet("Molly") };
        let changes = inventory.update(vec![renamed.clone()]).expect("it is there");
        write(&database, &mut inventory, changes).await;
        let changes = inventory.delete([ids[0].as_str()]);
        write(&database, &mut inventory, changes).await;
        assert!(matches!(Database::open(directory.path()), Err(DatabaseError::Open(OpenError::Locked { .. }))));
        drop(database);

        let again = Database::open(directory.path()).expect("the same database").load().await.expect("the inventory");
        assert_eq!(again.len(), 2);
        assert_eq!(again.get(&other[0]), Some(&renamed));
        assert_eq!(again.added_under("one"), Some(ids.as_slice()), "an addition can still be repeated");
        let (_, changes) = again.add(vec![pet("Last")], None);
        assert!(changes.entries.keys().all(|arrival| *arrival > 2), "{changes:?}");
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_named() {
        let database = Database::in_memory();
        let key: &'static str = "pet/0000000000000001";
        let bad = Write::Put { key: key.into(), expect: Expect::Any, value: Value::plain("{}") };
        database.engine.txn(vec![bad]).await.expect("written");
        let error = database.load().await.expect_err("it is no pet");
        assert_eq!(error.to_string(), format!("the database has a record {key:?} that cannot be read"));
    }
}
