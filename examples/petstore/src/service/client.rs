// SPDX-License-Identifier: Apache-2.0

//! The operator's view of the pet store: keep one entry as it should be.
//!
//! The protocol can neither look up an id nor add a pet under a chosen id, and a caller may die
//! between adding a pet and writing down the id it got. Two things make [`StoreClient::ensure`] safe
//! to repeat all the same:
//!
//! * Adding carries an idempotency key that belongs to one Pet resource. If the entry was added
//!   before, its id comes back instead of a second entry. This also tells apart two resources with
//!   equal names, types and birthdays, and never takes over an entry that somebody else added, both
//!   of which a search for a look-alike entry would get wrong.
//! * An entry is identified by its id alone. It is found by updating it, never by searching for the
//!   name it had: a renamed or retyped pet stays the same entry.
//!
//! All calls share one HTTP/2 connection, opened on first use and again after it broke.

use std::{error::Error, iter, time::Duration};

use jiff::ToSpan;
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};

use super::{
    inventory::{Details, Pet},
    proto::{self, pet_store_client::PetStoreClient},
    server::IDEMPOTENCY_KEY,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a silent connection is probed, so that a vanished host is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The text is not the address of a server.
#[derive(Debug, thiserror::Error)]
#[error("{addr:?} is not the address of a pet store, which looks like host:port")]
pub struct InvalidAddress {
    /// The text that was given.
    addr: String,
    source: tonic::transport::Error,
}

/// Why the store did not do what it was asked to.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No answer: the store is down, unreachable or too slow.
    #[error("the pet store is unavailable: {reason}")]
    Unavailable {
        /// What went wrong on the way.
        reason: String,
    },
    /// The store will never accept this pet.
    #[error("the pet store rejected the pet: {reason}")]
    Rejected {
        /// What the store said.
        reason: String,
    },
    /// The store has no entry with this id.
    #[error("the pet store has no entry {id}")]
    NoEntry {
        /// The id that was asked for.
        id: String,
    },
    /// The store answered with something the protocol has no room for.
    #[error("the pet store failed: {reason}")]
    Failed {
        /// What the store said.
        reason: String,
    },
}

/// What had to be done to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it was as it should be.
    Unchanged,
    /// It was replaced.
    Updated,
    /// It was added.
    Added,
}

/// An entry that is as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ensured {
    /// The entry's id.
    pub id: String,
    /// What had to be done to it.
    pub change: Change,
}

/// A client of the pet store. Clones share one connection.
#[derive(Clone, Debug)]
pub struct StoreClient {
    grpc: PetStoreClient<Channel>,
}

impl StoreClient {
    /// A client of the store at `addr`, a `host:port` or an `http://` URL.
    ///
    /// Nothing is connected yet, so this succeeds while the store is down. It must be called on a
    /// Tokio runtime.
    pub fn connect_lazy(addr: &str) -> Result<Self, InvalidAddress> {
        let url = if addr.contains("://") { addr.to_owned() } else { format!("http://{addr}") };
        let endpoint = Endpoint::from_shared(url).map_err(|source| InvalidAddress { addr: addr.to_owned(), source })?;
        let channel = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .connect_lazy();
        Ok(Self { grpc: PetStoreClient::new(channel) })
    }

    /// Makes sure that the store has one entry with these details, and returns its id.
    ///
    /// `known` is the id that the entry is believed to have. Without one, or if that entry is gone,
    /// the pet is added under `key`, at most once while the entry exists.
    pub async fn ensure(&self, known: Option<&str>, details: &Details, key: &str) -> Result<Ensured, StoreError> {
        if let Some(id) = known {
            match self.keep(id, details).await {
                Err(StoreError::NoEntry { .. }) => {}
                kept => {
                    let (id, change) = (id.to_owned(), kept?);
                    return Ok(Ensured { id, change });
                }
            }
        }
        let added = self.add(vec![details.clone().into()], key).await?.into_iter().next();
        let id = added.ok_or_else(|| StoreError::Failed { reason: "no id for the added pet".to_owned() })?;
        // If the addition was a repeated one, the entry may be older than the details are.
        self.keep(&id, details).await?;
        Ok(Ensured { id, change: Change::Added })
    }

    /// Makes sure that the store has no entry of the resource that `key` belongs to.
    ///
    /// Without a `known` id an entry may exist all the same, added by somebody who died before
    /// writing down its id. The key finds it, whatever the resource says by now.
    pub async fn remove(&self, known: Option<&str>, key: &str) -> Result<(), StoreError> {
        let id = match known {
            Some(id) => Some(id.to_owned()),
            // Repeating the addition tells its id. If there was none, adding nothing adds nothing.
            None => self.add(Vec::new(), key).await?.into_iter().next(),
        };
        if let Some(id) = id {
            let request = proto::DeletePetsReq { ids: vec![id] };
            self.grpc.clone().delete_pets(request).await?;
        }
        Ok(())
    }

    /// Whether the store answers at all. Costs it next to nothing.
    pub async fn answers(&self) -> bool {
        // No pet has a blank name, and names are indexed.
        let request = proto::SearchPetsReq { names: vec![String::new()], ..Default::default() };
        match self.grpc.clone().search_pets(request).await {
            Ok(_) => true,
            Err(status) => !matches!(status.into(), StoreError::Unavailable { .. }),
        }
    }

    /// Replaces the entry with this id unless it has these details already.
    async fn keep(&self, id: &str, details: &Details) -> Result<Change, StoreError> {
        if self.holds(id, details).await? {
            return Ok(Change::Unchanged);
        }
        let pet = Pet { id: id.to_owned(), details: details.clone() };
        let pets = vec![pet.into()];
        let request = proto::UpdatePetsReq { pets };
        match self.grpc.clone().update_pets(request).await {
            Ok(_) => Ok(Change::Updated),
            Err(status) if status.code() == Code::NotFound => Err(StoreError::NoEntry { id: id.to_owned() }),
            Err(status) => Err(status.into()),
        }
    }

    /// Whether the entry with this id has exactly these details.
    async fn holds(&self, id: &str, details: &Details) -> Result<bool, StoreError> {
        let wanted = proto::Pet { id: id.to_owned(), ..details.clone().into() };
        let request = proto::SearchPetsReq {
            names: vec![wanted.name.clone()],
            types: vec![wanted.r#type],
            // The last day of the calendar has no day after it, so its range cannot be asked for.
            birthdate_range: details
                .birthday()
                .checked_add(1.day())
                .ok()
                .map(|end| proto::DateRange { start: wanted.birthday, end: Some(end.into()) }),
        };
        let mut pets = self.grpc.clone().search_pets(request).await?.into_inner();
        while let Some(pet) = pets.message().await? {
            if pet == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds pets under a key, or tells the ids of those that were added under it before.
    async fn add(&self, pets: Vec<proto::Pet>, key: &str) -> Result<Vec<String>, StoreError> {
        let mut request = Request::new(proto::AddPetsReq { pets });
        let key: MetadataValue<Ascii> =
            key.parse().map_err(|_| StoreError::Failed { reason: format!("the key {key:?} cannot be sent") })?;
        request.metadata_mut().insert(IDEMPOTENCY_KEY, key);
        Ok(self.grpc.clone().add_pets(request).await?.into_inner().ids)
    }
}

impl From<Status> for StoreError {
    fn from(status: Status) -> Self {
        let mut reason = if status.message().is_empty() {
            status.code().description().to_owned()
        } else {
            status.message().to_owned()
        };
        // "tcp connect error" helps nobody; "connection refused" does.
        if let Some(cause) =
            iter::successors(status.source(), |error| (*error).source()).last().map(ToString::to_string)
            && !reason.contains(&cause)
        {
            reason = format!("{reason}: {cause}");
        }
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded => Self::Unavailable { reason },
            // The transport's own errors have a source, whatever code they were given. Errors that
            // the store answers with have none.
            _ if status.source().is_some() => Self::Unavailable { reason },
            Code::InvalidArgument => Self::Rejected { reason },
            _ => Self::Failed { reason },
        }
    }
}
