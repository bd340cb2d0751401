//! What is known about the Pets, as rows of a table. Pure: changes come in, rows go out.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use petstore_api::v1beta1::{Pet, Species};
use serde_json::{Value, json};
use windlass::informer::Change;

use super::display::Board;
use super::table::{self, Look};

/// Where a Pet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The operator has not yet spoken about the present spec.
    Syncing,
    /// The entry is as the Pet says.
    Ready,
    /// The operator says what is wrong.
    Failing,
    /// Deleted, but held by its finalizer.
    Deleting,
    /// No longer there.
    Gone,
}

/// One Pet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The name of the resource, with its namespace unless that is the default one.
    pub resource: String,
    pub pet_name: String,
    pub pet_type: &'static str,
    pub id: Option<String>,
    pub phase: Phase,
    /// What the operator says about it, if it is not ready.
    pub message: Option<String>,
    /// The name that the pet store's entry has.
    pub entry: Option<String>,
}

/// All Pets by resource name, also those that are gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pets {
    rows: BTreeMap<String, Row>,
    forget_gone: bool,
}

impl Pets {
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = &Row> {
        self.rows.values()
    }

    pub(crate) fn row(&self, resource: &str) -> Option<&Row> {
        self.rows.get(resource)
    }

    /// Whether the named Pets are all known and all in this phase.
    pub(crate) fn all(&self, resources: &[String], phase: Phase) -> bool {
        resources.iter().all(|resource| self.row(resource).is_some_and(|row| row.phase == phase))
    }

    /// From now on a Pet that is gone leaves no row.
    pub(crate) fn forget_gone(&mut self) {
        self.forget_gone = true;
        self.rows.retain(|_, row| row.phase != Phase::Gone);
    }

    /// Takes in a change. `entry_of` tells the name that the store's entry with an id has.
    pub(crate) fn observe(&mut self, change: &Change<Pet>, entry_of: impl Fn(&str) -> Option<String>) {
        let pet = change.object();
        let gone = matches!(change, Change::Deleted { .. });
        let mut row = Row::of(pet, entry_of);
        if !gone {
            self.rows.insert(row.resource.clone(), row);
        } else if self.forget_gone {
            self.rows.remove(&row.resource);
        } else {
            row.phase = Phase::Gone;
            self.rows.insert(row.resource.clone(), row);
        }
    }
}

impl Board for Pets {
    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn lines(&self, look: Look) -> Vec<String> {
        table::lines(self.rows(), look)
    }

    fn document(&self) -> Value {
        self.rows()
            .map(|row| {
                json!({
                    "name": row.resource, "petName": row.pet_name, "type": row.pet_type, "id": row.id,
                    "ready": row.phase == Phase::Ready, "gone": row.phase == Phase::Gone, "entry": row.entry,
                })
            })
            .collect()
    }
}

impl Row {
    fn of(pet: &Pet, entry_of: impl Fn(&str) -> Option<String>) -> Self {
        let said = pet.ready().filter(|ready| ready.observed_generation == pet.metadata.generation);
        let phase = match said {
            _ if pet.metadata.deletion_timestamp.is_some() => Phase::Deleting,
            None => Phase::Syncing,
            Some(ready) if ready.status == "True" => Phase::Ready,
            Some(_) => Phase::Failing,
        };
        let name = pet.name_any();
        Self {
            resource: match pet.namespace() {
                Some(namespace) if namespace != "default" => format!("{namespace}/{name}"),
                _ => name,
            },
            pet_name: pet.spec.name.clone(),
            pet_type: match pet.spec.species {
                Species::Dog => "dog",
                Species::Cat => "cat",
                Species::Bird => "bird",
                Species::Reptile => "reptile",
            },
            id: pet.entry_id().map(str::to_owned),
            phase,
            message: said.filter(|ready| ready.status != "True").map(|ready| ready.message.clone()),
            entry: pet.entry_id().and_then(entry_of),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn pet(generation: i64, metadata: &Value, status: &Value) -> Arc<Pet> {
        let mut pet = json!({
            "apiVersion": "petstore.example.com/v1beta1", "kind": "Pet",
            "metadata": { "name": "thor", "namespace": "default", "generation": generation },
            "spec": { "name": "Thor", "species": "dog", "birthday": "2021-04-01" },
            "status": status,
        });
        for (key, value) in metadata.as_object().into_iter().flatten() {
            pet["metadata"][key] = value.clone();
        }
        Arc::new(serde_json::from_value(pet).expect("a pet"))
    }

    fn status(ready: &str, observed: i64) -> Value {
        json!({ "id": "1234", "conditions": [{
            "type": "Ready", "status": ready, "reason": "Because", "message": "because",
            "observedGeneration": observed, "lastTransitionTime": "2021-04-01T00:00:00Z",
        }]})
    }

    fn phase_after(changes: &[Change<Pet>]) -> Option<Phase> {
        let mut pets = Pets::default();
        for change in changes {
            pets.observe(change, |_| Some("Thor".into()));
        }
        pets.row("thor").map(|row| row.phase)
    }

    #[test]
    fn a_row_follows_its_pet() {
        let none = json!({});
        let leaving = json!({ "deletionTimestamp": "2021-04-01T00:00:00Z" });
        for (object, phase) in [
            (pet(1, &none, &none), Phase::Syncing),
            (pet(1, &none, &status("True", 1)), Phase::Ready),
            (pet(2, &none, &status("True", 1)), Phase::Syncing),
            (pet(2, &none, &status("False", 2)), Phase::Failing),
            (pet(3, &leaving, &status("True", 2)), Phase::Deleting),
        ] {
            assert_eq!(phase_after(&[Change::Added { object, initial: false }]), Some(phase));
        }
    }

    #[test]
    fn deleted_pets_keep_their_row_for_a_while() {
        let thor = pet(1, &json!({}), &status("True", 1));
        let added = Change::Added { object: Arc::clone(&thor), initial: true };
        let deleted = Change::Deleted { object: thor };
        assert_eq!(phase_after(&[added.clone(), deleted.clone()]), Some(Phase::Gone));
        let mut pets = Pets::default();
        pets.observe(&added, |_| None);
        pets.observe(&deleted, |_| None);
        assert_eq!(pets.rows().len(), 1);
        pets.forget_gone();
        assert_eq!(pets.rows().len(), 0);
        pets.observe(&added, |_| None);
        pets.observe(&deleted, |_| None);
        assert_eq!(pets.rows().len(), 0);
    }
}
