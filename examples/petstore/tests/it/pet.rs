// SPDX-License-Identifier: Apache-2.0

//! Tests of Pet objects: the operator between a cluster in this process and a pet store on a socket.

use std::sync::Arc;
use std::time::Duration;

use petstore::controller::pet::{ADDED, FINALIZER, REJECTED, SYNCED, Timing, UNAVAILABLE};
use petstore::service::client::StoreClient;
use windlass_testing::{Env, Fault, Requests, Running};

use petstore_api::v1beta1::{DeletionPolicy, Pet, PetSpec, Species};

use crate::serving::{Serving, pets};
use crate::{TIMING, install, start_again};

pub(crate) fn pet(resource: &str, name: &str, species: Species, birthday: &str) -> Pet {
    let (name, birthday) = (name.to_owned(), birthday.to_owned());
    Pet::new(resource, PetSpec { name, species, birthday, deletion_policy: DeletionPolicy::Delete })
}

pub(crate) fn thor() -> Pet {
    pet("thor", "Thor", Species::Dog, "2021-04-01")
}

fn tron() -> Pet {
    pet("tron", "Tron", Species::Cat, "2020-06-25")
}

/// Whether the Ready condition speaks of the present spec, with this status and reason.
fn is(pet: &Pet, status: &str, reason: &str) -> bool {
    pet.ready().is_some_and(|ready| {
        ready.status == status && ready.reason == reason && ready.observed_generation == pet.metadata.generation
    })
}

/// Waits until the operator has said about the present spec that it is synced.
pub(crate) async fn synced(env: &Env, name: &str) -> Arc<Pet> {
    env.wait_until::<Pet>(name, |pet| is(pet, "True", SYNCED)).await
}

async fn unavailable(env: &Env, name: &str) -> Arc<Pet> {
    env.wait_until::<Pet>(name, |pet| is(pet, "False", UNAVAILABLE)).await
}

async fn thor_and_tron(env: &Env) -> (Arc<Pet>, Arc<Pet>) {
    env.create(thor()).await;
    env.create(tron()).await;
    (synced(env, "thor").await, synced(env, "tron").await)
}

fn finalizers(pet: &Pet) -> &[String] {
    pet.metadata.finalizers.as_deref().unwrap_or_default()
}

#[windlass_testing::test(setup = crate::start)]
async fn a_pet_gets_an_entry_and_keeps_it_until_it_is_deleted(env: Env, (serving, _operator): (Serving, Running)) {
    env.create(thor()).await;
    let first = synced(&env, "thor").await;
    let id = first.entry_id().unwrap();
    assert_eq!(finalizers(&first), [FINALIZER]);
    assert_eq!(first.status.as_ref().unwrap().observed_generation, Some(1));
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
    env.wait_for_event(&first, ADDED).await;

    type Edit = fn(&mut PetSpec);
    let edits: [(Edit, &str); 3] = [
        (|spec| spec.name = "Thorbert".into(), "Thorbert Canine 2021-04-01"),
        (|spec| spec.species = Species::Reptile, "Thorbert Reptile 2021-04-01"),
        (|spec| spec.birthday = "2020-02-29".into(), "Thorbert Reptile 2020-02-29"),
    ];
    for (edit, entry) in edits {
        env.modify::<Pet>("thor", |pet| edit(&mut pet.spec)).await;
        assert_eq!(synced(&env, "thor").await.entry_id(), Some(id));
        assert_eq!(serving.pets(), [entry]);
    }

    env.delete::<Pet>("thor").await;
    env.wait_gone::<Pet>("thor").await;
    assert!(serving.pets().is_empty());
}

#[windlass_testing::test(setup = crate::start)]
async fn look_alikes_have_entries_of_their_own(env: Env, (serving, _operator): (Serving, Running)) {
    env.create(thor()).await;
    env.create(pet("twin", "Thor", Species::Dog, "2021-04-01")).await;
    let (one, two) = (synced(&env, "thor").await, synced(&env, "twin").await);
    assert_ne!(one.entry_id(), two.entry_id());
    assert_eq!(serving.pets().len(), 2);

    env.delete::<Pet>("twin").await;
    env.wait_gone::<Pet>("twin").await;
    let id = one.entry_id().unwrap();
    assert!(serving.store.with_inventory(|inventory| inventory.get(id).is_some() && inventory.len() == 1));
}

#[windlass_testing::test(setup = crate::start)]
async fn an_entry_that_is_to_be_kept_outlives_its_pet(env: Env, (serving, _operator): (Serving, Running)) {
    env.create(thor()).await;
    synced(&env, "thor").await;
    env.modify::<Pet>("thor", |pet| pet.spec.deletion_policy = DeletionPolicy::Retain).await;
    synced(&env, "thor").await;
    env.delete::<Pet>("thor").await;
    env.wait_gone::<Pet>("thor").await;
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
}

#[windlass_testing::test(setup = crate::start)]
async fn an_outage_is_told_and_survived(env: Env, (serving, _operator): (Serving, Running)) {
    let (before, _) = thor_and_tron(&env).await;

    let (addr, store) = serving.stop().await;
    env.modify::<Pet>("thor", |pet| pet.spec.name = "Thorbert".into()).await;
    let down = unavailable(&env, "thor").await;
    assert_eq!(down.entry_id(), before.entry_id());
    assert!(down.ready().unwrap().message.contains("unavailable"));
    env.wait_for_event(&down, UNAVAILABLE).await;
    // An entry that cannot be deleted holds its Pet.
    env.delete::<Pet>("tron").await;
    let held = unavailable(&env, "tron").await;
    assert_eq!(finalizers(&held), [FINALIZER]);
    assert_eq!(pets(&store), ["Thor Canine 2021-04-01", "Tron Feline 2020-06-25"]);

    let serving = Serving::start_at(addr, store).await;
    assert_eq!(synced(&env, "thor").await.entry_id(), before.entry_id());
    env.wait_gone::<Pet>("tron").await;
    assert_eq!(serving.pets(), ["Thorbert Canine 2021-04-01"]);
}

/// Nobody touches a Pet: the operator notices by itself that the store is away, and that it is back.
#[windlass_testing::test(setup = crate::start)]
async fn an_outage_is_told_although_no_pet_changes(env: Env, (serving, _operator): (Serving, Running)) {
    let (before, _) = thor_and_tron(&env).await;
    let (addr, store) = serving.stop().await;
    for name in ["thor", "tron"] {
        assert_eq!(unavailable(&env, name).await.metadata.generation, Some(1));
    }
    let serving = Serving::start_at(addr, store).await;
    assert_eq!(synced(&env, "thor").await.entry_id(), before.entry_id());
    synced(&env, "tron").await;
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01", "Tron Feline 2020-06-25"]);
}

#[windlass_testing::test]
async fn a_pet_created_during_an_outage_is_synced_after_it(env: Env) {
    install(&env).await;
    let (addr, store) = Serving::start().await.stop().await;
    start_again(&env, StoreClient::connect_lazy(&addr.to_string()).unwrap(), TIMING).await;

    env.create(thor()).await;
    let down = unavailable(&env, "thor").await;
    assert_eq!((down.entry_id(), finalizers(&down)), (None, &[FINALIZER.to_owned()][..]));

    let serving = Serving::start_at(addr, store).await;
    synced(&env, "thor").await;
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
}

/// The operator dies after it has added an entry and before it has written down the id.
#[windlass_testing::test(setup = crate::start)]
async fn a_restart_in_the_middle_of_a_reconcile_leaves_one_entry(env: Env, (serving, operator): (Serving, Running)) {
    let fault = env.fail(Requests::writes_of::<Pet>().subresource("status")).with(Fault::timeout());
    env.create(thor()).await;
    env.create(tron()).await;
    fault.hit(2).await;
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01", "Tron Feline 2020-06-25"]);
    // One is renamed meanwhile, the other deleted. Neither has an id in its status.
    env.modify::<Pet>("thor", |pet| pet.spec.name = "Thorbert".into()).await;
    env.delete::<Pet>("tron").await;
    operator.kill().await;
    drop(fault);

    start_again(&env, serving.client(), TIMING).await;
    synced(&env, "thor").await;
    env.wait_gone::<Pet>("tron").await;
    assert_eq!(serving.pets(), ["Thorbert Canine 2021-04-01"]);
}

#[windlass_testing::test(setup = crate::start)]
async fn conflicting_writers_lose_nothing(env: Env, (serving, _operator): (Serving, Running)) {
    let conflicts = env.fail(Requests::writes_of::<Pet>()).times(4).with(Fault::conflict());
    env.create(thor()).await;
    // Somebody else writes the Pet all the time, and a second operator reconciles it as well.
    start_again(&env, serving.client(), TIMING).await;
    for number in 0..10 {
        env.modify::<Pet>("thor", |pet| {
            pet.metadata.labels.get_or_insert_default().insert("number".into(), number.to_string());
            pet.spec.name = format!("Thor {number}");
        })
        .await;
    }
    let last = synced(&env, "thor").await;
    assert_eq!(conflicts.hits(), 4);
    assert_eq!(last.metadata.labels.as_ref().unwrap()["number"], "9");
    assert_eq!(serving.pets(), ["Thor 9 Canine 2021-04-01"]);
}

#[windlass_testing::test]
async fn an_entry_that_the_store_lost_is_added_again(env: Env) {
    install(&env).await;
    let serving = Serving::start().await;
    start_again(&env, serving.client(), Timing { resync: Duration::from_millis(20), ..TIMING }).await;
    env.create(thor()).await;
    let before = synced(&env, "thor").await;
    let lost = before.entry_id().unwrap();
    serving.delete(lost).await;
    env.wait_until::<Pet>("thor", |pet| pet.entry_id().is_some_and(|id| id != lost)).await;
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
}

#[windlass_testing::test(setup = crate::start)]
async fn a_restarted_operator_changes_nothing_that_is_right(env: Env, (serving, operator): (Serving, Running)) {
    env.create(thor()).await;
    let before = synced(&env, "thor").await;
    operator.stop().await.unwrap();
    start_again(&env, serving.client(), TIMING).await;
    // A second Pet that is synced shows that the operator is past the first.
    env.create(pet("zoe", "Zoe", Species::Bird, "2022-01-01")).await;
    synced(&env, "zoe").await;
    assert_eq!(env.get::<Pet>("thor").await.metadata.resource_version, before.metadata.resource_version);
}

/// The store refuses it, so trying again does not help; a change does.
#[windlass_testing::test]
async fn a_pet_that_the_store_refuses_says_so_and_holds_nothing(env: Env) {
    install(&env).await;
    let serving = Serving::start().await;
    // Without webhooks, so that there can be such a Pet: before the year 1, a day has no number in the protocol.
    let manager = ::petstore::operator(env.manager(), serving.client(), TIMING).unwrap();
    env.run_ready(manager).await;
    env.create(pet("odd", "Odd", Species::Bird, "0000-01-01")).await;
    let odd = env.wait_until::<Pet>("odd", |pet| is(pet, "False", REJECTED)).await;
    env.wait_for_event(&odd, REJECTED).await;
    env.modify::<Pet>("odd", |pet| pet.spec.birthday = "0001-01-01".into()).await;
    synced(&env, "odd").await;
    env.modify::<Pet>("odd", |pet| pet.spec.birthday = "0000-01-01".into()).await;
    env.wait_until::<Pet>("odd", |pet| is(pet, "False", REJECTED)).await;
    env.delete::<Pet>("odd").await;
    env.wait_gone::<Pet>("odd").await;
    assert!(serving.pets().is_empty());
}
