// SPDX-License-Identifier: Apache-2.0

//! What the store's answer means for a Pet: its status, and what to tell in an event.
//!
//! Pure: the reconciler brings the answer, and carries out what is decided here.

use windlass::Draft;

use crate::service::client::{Change, Ensured, StoreError};
use petstore_api::v1beta1::Pet;

/// The entry is as the Pet says.
pub const SYNCED: &str = "Synced";
/// The entry was added just now.
pub const ADDED: &str = "Added";
/// The entry was changed just now.
pub const UPDATED: &str = "Updated";
/// The store does not answer.
pub const UNAVAILABLE: &str = "PetStoreUnavailable";
/// The store will not accept the pet as it is.
pub const REJECTED: &str = "PetRejected";
/// The store answered, but with an error that is not about the pet.
pub const FAILED: &str = "PetStoreFailed";

/// Whether a Pet is ready, why, and whether that is worth an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) ready: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The reason of an event. The condition has the same one for as long as nothing is wrong; the event says what was
    /// done just now.
    pub(crate) event: &'static str,
}

impl Verdict {
    /// What follows from the store's answer.
    pub(crate) fn of(answer: &Result<Ensured, StoreError>) -> Self {
        match answer {
            Ok(Ensured { id, change }) => Self {
                ready: true,
                reason: SYNCED,
                message: format!("the pet store has the pet as entry {id}"),
                event: match change {
                    Change::Added => ADDED,
                    Change::Updated => UPDATED,
                    Change::Unchanged => SYNCED,
                },
            },
            Err(error) => {
                let reason = match error {
                    StoreError::Unavailable { .. } => UNAVAILABLE,
                    StoreError::Rejected { .. } => REJECTED,
                    StoreError::NoEntry { .. } | StoreError::Failed { .. } => FAILED,
                };
                Self { ready: false, reason, message: error.to_string(), event: reason }
            }
        }
    }

    /// Whether there is something to tell: the store was changed, or the condition says something
    /// it did not say before.
    pub(crate) fn is_news(&self, pet: &Pet) -> bool {
        let told =
            pet.ready().is_some_and(|old| (old.status == "True", old.reason.as_str()) == (self.ready, self.reason));
        self.event != self.reason || !told
    }

    /// Writes the status that the Pet should have. `id` is its entry, if that is known by now.
    pub(crate) fn write(&self, draft: &mut Draft<Pet>, id: Option<&str>) {
        let generation = draft.metadata.generation;
        let status = draft.status.get_or_insert_default();
        status.observed_generation = generation;
        if let Some(id) = id {
            status.id = Some(id.to_owned());
        }
        draft.condition("Ready", self.ready, self.reason, &self.message);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The Pet after a verdict was written to it.
    fn told(pet: &Pet, verdict: &Verdict, id: Option<&str>) -> Pet {
        let mut draft = Draft::new(Arc::new(pet.clone()));
        verdict.write(&mut draft, id);
        Pet::clone(&draft)
    }

    fn thor() -> Pet {
        windlass::serde_json::from_value(windlass::serde_json::json!({
            "apiVersion": "petstore.example.com/v1beta1",
            "kind": "Pet",
            "metadata": { "name": "thor", "generation": 3 },
            "spec": { "name": "Thor", "species": "dog", "birthday": "2021-04-01" },
        }))
        .unwrap()
    }

    fn ensured(change: Change) -> Ensured {
        Ensured { id: "1234".to_owned(), change }
    }

    fn unavailable() -> StoreError {
        StoreError::Unavailable { reason: "tcp connect error".into() }
    }

    #[test]
    fn an_outage_and_its_end_are_told_once() {
        let mut pet = thor();
        let mut news = Vec::new();
        for answer in [
            Ok(ensured(Change::Added)),
            Ok(ensured(Change::Unchanged)),
            Err(unavailable()),
            Err(unavailable()),
            Ok(ensured(Change::Unchanged)),
            Ok(ensured(Change::Updated)),
        ] {
            let verdict = Verdict::of(&answer);
            news.push(verdict.is_news(&pet));
            pet = told(&pet, &verdict, None);
        }
        assert_eq!(news, [true, false, true, false, true, true]);
        let ready = pet.ready().unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", SYNCED));
        assert_eq!(ready.observed_generation, Some(3));
    }

    #[test]
    fn a_failure_keeps_the_id_of_the_entry() {
        let pet = told(&thor(), &Verdict::of(&Ok(ensured(Change::Added))), Some("1234"));
        let verdict = Verdict::of(&Err(unavailable()));
        assert_eq!(verdict.message, "the pet store is unavailable: tcp connect error");
        let pet = told(&pet, &verdict, None);
        assert_eq!(pet.entry_id(), Some("1234"));
        assert_eq!(pet.ready().unwrap().status, "False");
    }

    #[test]
    fn an_unchanged_verdict_leaves_the_status_alone() {
        let verdict = Verdict::of(&Err(unavailable()));
        let pet = told(&thor(), &verdict, None);
        assert_eq!(told(&pet, &verdict, None), pet);
    }

    #[test]
    fn reasons_tell_failures_apart() {
        let reason = |error| Verdict::of(&Err(error)).reason;
        let text = || "text".to_owned();
        assert_eq!(reason(StoreError::Rejected { reason: text() }), REJECTED);
        assert_eq!(reason(StoreError::Failed { reason: text() }), FAILED);
        assert_eq!(reason(StoreError::NoEntry { id: text() }), FAILED);
    }
}
