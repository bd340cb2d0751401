// SPDX-License-Identifier: Apache-2.0

//! Keeps one entry of the pet store for every Pet.
//!
//! ```text
//! Pet lives    ─► finalizer ─► entry added or updated ─► status.id, Ready, event
//! Pet deleting ─► entry deleted ─► finalizer removed
//! ```
//!
//! What always holds: an entry is added only after the finalizer is on the Pet, and the finalizer goes only after the
//! entry is deleted, so no entry outlives its Pet, unless the Pet says that it should. Every step can be repeated:
//! [`crate::service::client`] explains why a crash between adding an entry and writing down its id leaves no second entry
//! behind.
//!
//! While the store does not answer, the Pet says so in its Ready condition and in warnings, and is tried again with
//! growing delays, each Pet on its own. The operator asks every few seconds whether the store answers, so that Pets do not
//! have to wait for their next attempt.

mod outage;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use windlass::controller::CompleteController;
use windlass::finalizer::{Finalize, Finalizer};
use windlass::queue::QueueConfig;
use windlass::{Context, Controller, Outcome, ReconcileError, predicate};

use crate::service::client::{Ensured, StoreClient, StoreError};
use crate::service::inventory::{Details, Species};
use petstore_api::v1beta1::{self, DeletionPolicy, Pet, PetSpec};
use verdict::Verdict;

pub use verdict::{ADDED, FAILED, REJECTED, SYNCED, UNAVAILABLE, UPDATED};

/// Keeps a deleted Pet around until its entry is gone from the pet store.
pub const FINALIZER: &str = "pet.petstore.example.com";

/// How many Pets are reconciled at the same time: the work is waiting for two servers.
const CONCURRENCY: usize = 4;

/// When the operator looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How often the store is asked whether it answers.
    pub probe: Duration,
    /// How often an entry is looked at although nothing was said about it.
    pub resync: Duration,
    /// How long after a failure a Pet is tried again. The delay doubles with every further failure.
    pub first_retry: Duration,
    /// The longest delay: how long after the store's return a Pet may have to wait.
    pub last_retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            probe: Duration::from_secs(2),
            resync: Duration::from_secs(300),
            first_retry: Duration::from_millis(200),
            last_retry: Duration::from_secs(30),
        }
    }
}

/// The controller of Pets, to be added to a manager.
pub fn controller(store: StoreClient, timing: Timing) -> CompleteController {
    let probed = store.clone();
    let reconciler = PetReconciler { store, resync: timing.resync };
    Controller::<Pet>::new("pet")
        // What the operator writes itself, status and finalizer, is no reason to look again, and
        // must not cut the delay after a failure short.
        .predicate(predicate::generation_changed())
        .source(move |ctx| outage::affected(probed.clone(), ctx.lister(), timing.probe))
        .concurrency(CONCURRENCY)
        .queue(QueueConfig::default().base_delay(timing.first_retry).max_delay(timing.last_retry))
        .complete(Finalizer::new(FINALIZER, reconciler))
}

/// Reconciles a Pet with its entry in the store.
#[derive(Clone, Debug)]
struct PetReconciler {
    store: StoreClient,
    resync: Duration,
}

impl Finalize<Pet> for PetReconciler {
    async fn reconcile(&self, pet: Arc<Pet>, ctx: Context) -> windlass::Result {
        let answer = self.ensure(&pet).await;
        report(&pet, &answer, &ctx).await?;
        match answer {
            Ok(_) => Ok(Outcome::RequeueAfter(spread(self.resync))),
            Err(error) => Err(failure(error)),
        }
    }

    async fn cleanup(&self, pet: Arc<Pet>, ctx: Context) -> windlass::Result {
        if pet.spec.deletion_policy == DeletionPolicy::Retain {
            return Ok(Outcome::Done);
        }
        match self.store.remove(pet.entry_id(), key(&pet)).await {
            Ok(()) => Ok(Outcome::Done),
            // A Pet that cannot have an entry as it is, and has none that anybody wrote down, is not held by a store that
            // is away.
            Err(StoreError::Unavailable { .. }) if pet.entry_id().is_none() && details(&pet.spec).is_err() => {
                Ok(Outcome::Done)
            }
            Err(error) => {
                report(&pet, &Err(error.clone()), &ctx).await?;
                Err(failure(error))
            }
        }
    }
}

impl PetReconciler {
    async fn ensure(&self, pet: &Pet) -> Result<Ensured, StoreError> {
        let details = details(&pet.spec)?;
        self.store.ensure(pet.entry_id(), &details, key(pet)).await
    }
}

/// What the entry in the pet store is to say.
fn details(spec: &PetSpec) -> Result<Details, StoreError> {
    let species = match spec.species {
        v1beta1::Species::Dog => Species::Canine,
        v1beta1::Species::Cat => Species::Feline,
        v1beta1::Species::Bird => Species::Bird,
        v1beta1::Species::Reptile => Species::Reptile,
    };
    let rejected = |reason: String| StoreError::Rejected { reason };
    let no_day = || rejected(format!("the birthday {:?} is no day of the calendar", spec.birthday));
    Details::new(&spec.name, species, spec.birthday().ok_or_else(no_day)?).map_err(|blank| rejected(blank.to_string()))
}

/// Writes the store's answer into the Pet's status, and tells about it in an event.
async fn report(pet: &Arc<Pet>, answer: &Result<Ensured, StoreError>, ctx: &Context) -> Result<(), ReconcileError> {
    let verdict = Verdict::of(answer);
    let id = answer.as_ref().ok().map(|ensured| ensured.id.as_str());
    let mut draft = ctx.draft(pet);
    verdict.write(&mut draft, id);
    draft.commit(ctx).await?;

    let recorder = ctx.recorder();
    if !verdict.ready {
        // Every failure is told: the recorder makes one event with a count of them.
        recorder.warning(pet, verdict.reason, verdict.message);
    } else if verdict.is_news(pet) {
        recorder.normal(pet, verdict.event, verdict.message);
    }
    Ok(())
}

/// A pet that the store rejects will not be accepted later; every other failure may pass.
fn failure(error: StoreError) -> ReconcileError {
    match error {
        StoreError::Rejected { .. } => ReconcileError::terminal(error),
        error => error.into(),
    }
}

/// What makes additions for this Pet, and for no other, repeatable. A namesake that is created after
/// this Pet is deleted has another uid, and so another entry.
fn key(pet: &Pet) -> &str {
    pet.metadata.uid.as_deref().unwrap_or_default()
}

/// A time near `interval`, so that Pets which started together do not all come back together.
fn spread(interval: Duration) -> Duration {
    interval.mul_f64(0.9 + 0.2 * fastrand::f64())
}
