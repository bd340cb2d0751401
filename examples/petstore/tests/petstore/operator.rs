//! The operator between an API server in this process and a pet store on a socket.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::{Manager, manager::ManagerError};
use windlass_cluster::Cluster;
use windlass_petstore::{
    api::v1alpha1::{FINALIZER, Pet},
    client::StoreClient,
    operator::{self, REJECTED, SYNCED, Timing, UNAVAILABLE},
};

use crate::{
    cluster::{self, wait_for, wait_for_any},
    serving::{Serving, pets},
};

struct Operator {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ManagerError>>,
}

impl Operator {
    /// Runs the operator with delays that a test does not notice.
    fn start(cluster: &Cluster, store: StoreClient) -> Self {
        Self::start_with(cluster, store, Duration::from_secs(3600))
    }

    fn start_with(cluster: &Cluster, store: StoreClient, resync: Duration) -> Self {
        let timing = Timing {
            probe: Duration::from_millis(20),
            resync,
            first_retry: Duration::from_millis(5),
            last_retry: Duration::from_millis(50),
        };
        let mut manager = Manager::builder(cluster.client()).name("petstore-operator").build().unwrap();
        manager.add(operator::controller(store, timing)).unwrap();
        let shutdown = CancellationToken::new();
        Self { task: tokio::spawn(manager.run_until(shutdown.clone())), shutdown }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// A cluster, a pet store, the operator between them, and the Pets it looks after.
async fn stage() -> (Cluster, Serving, Operator, Api<Pet>) {
    let cluster = cluster::with_pets().await;
    let serving = Serving::start().await;
    let operator = Operator::start(&cluster, serving.client());
    let pets = Api::default_namespaced(cluster.client());
    (cluster, serving, operator, pets)
}

async fn end(operator: Operator, serving: Serving, cluster: Cluster) {
    operator.stop().await;
    serving.stop().await;
    cluster.stop().await.unwrap();
}

/// Two Pets, both synced; returns the first.
async fn thor_and_tron(pets: &Api<Pet>) -> Pet {
    create(pets, &thor()).await;
    create(pets, &tron()).await;
    synced(pets, "tron").await;
    synced(pets, "thor").await
}

fn tron() -> Pet {
    pet("tron", "Tron", "cat", "2020-06-25T00:00:00Z")
}

fn thor() -> Pet {
    pet("thor", "Thor", "dog", "2021-04-01T00:00:00Z")
}

fn pet(resource: &str, name: &str, pet_type: &str, birthday: &str) -> Pet {
    serde_json::from_value(json!({
        "apiVersion": "petstore.example.com/v1alpha1",
        "kind": "Pet",
        "metadata": { "name": resource },
        "spec": { "name": name, "type": pet_type, "birthday": birthday },
    }))
    .unwrap()
}

async fn create(pets: &Api<Pet>, pet: &Pet) -> Pet {
    pets.create(&PostParams::default(), pet).await.unwrap()
}

async fn change(pets: &Api<Pet>, name: &str, spec: serde_json::Value) -> Pet {
    let patch = Patch::Merge(json!({ "spec": spec }));
    pets.patch(name, &PatchParams::default(), &patch).await.unwrap()
}

async fn delete(pets: &Api<Pet>, name: &str) {
    pets.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Waits until the operator has said about the present spec that it is synced.
async fn synced(pets: &Api<Pet>, name: &str) -> Pet {
    let synced = |pet: Option<&Pet>| pet.is_some_and(|pet| is(pet, "True", SYNCED));
    wait_for(pets, name, "became ready", synced).await.unwrap()
}

async fn unavailable(pets: &Api<Pet>, name: &str) -> Pet {
    let said = |pet: Option<&Pet>| pet.is_some_and(|pet| is(pet, "False", UNAVAILABLE));
    wait_for(pets, name, "missed the store", said).await.unwrap()
}

/// Whether the Ready condition speaks of the present spec, with this status and reason.
fn is(pet: &Pet, status: &str, reason: &str) -> bool {
    pet.ready().is_some_and(|ready| {
        ready.status == status && ready.reason == reason && ready.observed_generation == pet.metadata.generation
    })
}

async fn rejected(pets: &Api<Pet>, name: &str) -> Pet {
    let said = |pet: Option<&Pet>| pet.is_some_and(|pet| is(pet, "False", REJECTED));
    wait_for(pets, name, "was rejected", said).await.unwrap()
}

async fn gone(pets: &Api<Pet>, name: &str) {
    wait_for(pets, name, "went away", |pet| pet.is_none()).await;
}

async fn event(cluster: &Cluster, name: &str, type_: &str, reason: &str) -> Event {
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    let what = format!("an event {reason} about {name}");
    wait_for_any(&events, &what, |event| {
        let regarding = event.regarding.as_ref();
        event.type_.as_deref() == Some(type_)
            && event.reason.as_deref() == Some(reason)
            && regarding.is_some_and(|object| object.name.as_deref() == Some(name))
    })
    .await
}

#[tokio::test]
async fn a_pet_gets_an_entry_and_keeps_it_until_it_is_deleted() {
    let (cluster, serving, operator, pets) = stage().await;

    create(&pets, &thor()).await;
    let first = synced(&pets, "thor").await;
    let id = first.entry_id().unwrap();
    assert_eq!(first.finalizers(), [FINALIZER]);
    assert_eq!(first.status.as_ref().unwrap().observed_generation, Some(1));
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
    event(&cluster, "thor", "Normal", SYNCED).await;

    for (spec, entry) in [
        (json!({ "name": "Thorbert" }), "Thorbert Canine 2021-04-01"),
        (json!({ "type": "reptile" }), "Thorbert Reptile 2021-04-01"),
        (json!({ "birthday": "2020-02-29T12:00:00Z" }), "Thorbert Reptile 2020-02-29"),
    ] {
        change(&pets, "thor", spec).await;
        let changed = synced(&pets, "thor").await;
        assert_eq!(changed.entry_id(), Some(id));
        assert_eq!(serving.pets(), [entry]);
    }

    delete(&pets, "thor").await;
    gone(&pets, "thor").await;
    assert!(serving.pets().is_empty());
    end(operator, serving, cluster).await;
}

#[tokio::test]
async fn look_alikes_have_entries_of_their_own() {
    let (cluster, serving, operator, pets) = stage().await;

    create(&pets, &thor()).await;
    create(&pets, &pet("twin", "Thor", "dog", "2021-04-01T00:00:00Z")).await;
    let one = synced(&pets, "thor").await;
    let two = synced(&pets, "twin").await;
    assert_ne!(one.entry_id(), two.entry_id());
    assert_eq!(serving.pets().len(), 2);

    delete(&pets, "twin").await;
    gone(&pets, "twin").await;
    let left = serving.store.with_inventory(|inventory| {
        let id = one.entry_id().unwrap();
        inventory.get(id).is_some() && inventory.len() == 1
    });
    assert!(left);
    end(operator, serving, cluster).await;
}

#[tokio::test]
async fn an_outage_is_told_and_survived() {
    let (cluster, serving, operator, pets_api) = stage().await;
    let before = thor_and_tron(&pets_api).await;

    let (addr, store) = serving.stop().await;
    change(&pets_api, "thor", json!({ "name": "Thorbert" })).await;
    let down = unavailable(&pets_api, "thor").await;
    assert_eq!(down.entry_id(), before.entry_id());
    assert!(down.ready().unwrap().message.contains("unavailable"));
    event(&cluster, "thor", "Warning", UNAVAILABLE).await;
    // An entry that cannot be deleted holds its Pet.
    delete(&pets_api, "tron").await;
    let held = unavailable(&pets_api, "tron").await;
    assert_eq!(held.finalizers(), [FINALIZER]);
    assert_eq!(pets(&store), ["Thor Canine 2021-04-01", "Tron Feline 2020-06-25"]);

    let serving = Serving::start_at(addr, store).await;
    let after = synced(&pets_api, "thor").await;
    assert_eq!(after.entry_id(), before.entry_id());
    gone(&pets_api, "tron").await;
    assert_eq!(serving.pets(), ["Thorbert Canine 2021-04-01"]);
    end(operator, serving, cluster).await;
}

#[tokio::test]
async fn a_pet_created_during_an_outage_is_synced_after_it() {
    let cluster = cluster::with_pets().await;
    let (addr, store) = Serving::start().await.stop().await;
    let client = StoreClient::connect_lazy(&addr.to_string()).unwrap();
    let operator = Operator::start(&cluster, client);
    let pets: Api<Pet> = Api::default_namespaced(cluster.client());

    create(&pets, &thor()).await;
    let down = unavailable(&pets, "thor").await;
    assert_eq!(down.entry_id(), None);
    assert_eq!(down.finalizers(), [FINALIZER]);

    let serving = Serving::start_at(addr, store).await;
    synced(&pets, "thor").await;
    event(&cluster, "thor", "Normal", SYNCED).await;
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
    end(operator, serving, cluster).await;
}

/// The operator died after it added an entry and before it wrote down the id.
#[tokio::test]
async fn a_crash_before_the_id_is_written_leaves_one_entry() {
    let cluster = cluster::with_pets().await;
    let serving = Serving::start().await;
    let pets: Api<Pet> = Api::default_namespaced(cluster.client());
    let live = create(&pets, &thor()).await;
    let mut doomed = tron();
    doomed.finalizers_mut().push(FINALIZER.to_owned());
    let doomed = create(&pets, &doomed).await;
    let mut ids = Vec::new();
    for pet in [&live, &doomed] {
        let details = pet.spec.details().unwrap();
        let uid = pet.uid().unwrap();
        let added = serving.client().ensure(None, &details, &uid).await;
        ids.push(added.unwrap().id);
    }
    delete(&pets, "tron").await;

    let operator = Operator::start(&cluster, serving.client());
    let synced = synced(&pets, "thor").await;
    assert_eq!(synced.entry_id(), Some(ids[0].as_str()));
    gone(&pets, "tron").await;
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
    end(operator, serving, cluster).await;
}

#[tokio::test]
async fn an_entry_that_the_store_lost_is_added_again() {
    let cluster = cluster::with_pets().await;
    let serving = Serving::start().await;
    let operator = Operator::start_with(&cluster, serving.client(), Duration::from_millis(20));
    let pets: Api<Pet> = Api::default_namespaced(cluster.client());
    create(&pets, &thor()).await;
    let before = synced(&pets, "thor").await;
    let lost = before.entry_id().unwrap();
    serving.store.with_inventory(|inventory| inventory.delete([lost]));

    let has_another = |pet: Option<&Pet>| {
        let id = pet.and_then(Pet::entry_id);
        id.is_some_and(|id| id != lost)
    };
    wait_for(&pets, "thor", "got another entry", has_another).await;
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
    end(operator, serving, cluster).await;
}

#[tokio::test]
async fn a_restarted_operator_changes_nothing_that_is_right() {
    let cluster = cluster::with_pets().await;
    let serving = Serving::start().await;
    let pets: Api<Pet> = Api::default_namespaced(cluster.client());
    create(&pets, &thor()).await;
    let operator = Operator::start(&cluster, serving.client());
    let before = synced(&pets, "thor").await;
    operator.stop().await;

    let operator = Operator::start(&cluster, serving.client());
    // A second Pet that is synced shows that the operator is past the first.
    create(&pets, &pet("zoe", "Zoe", "bird", "2022-01-01T00:00:00Z")).await;
    synced(&pets, "zoe").await;
    operator.stop().await;
    let after = pets.get("thor").await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version());
    serving.stop().await;
    cluster.stop().await.unwrap();
}

/// Nobody touches a Pet: the operator notices by itself that the store is away, and that it is back.
#[tokio::test]
async fn an_outage_is_told_although_no_pet_changes() {
    let (cluster, serving, operator, pets_api) = stage().await;
    let before = thor_and_tron(&pets_api).await;

    let (addr, store) = serving.stop().await;
    for name in ["thor", "tron"] {
        let down = unavailable(&pets_api, name).await;
        assert_eq!(down.metadata.generation, Some(1));
        event(&cluster, name, "Warning", UNAVAILABLE).await;
    }

    let serving = Serving::start_at(addr, store).await;
    let after = synced(&pets_api, "thor").await;
    assert_eq!(after.entry_id(), before.entry_id());
    synced(&pets_api, "tron").await;
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01", "Tron Feline 2020-06-25"]);
    end(operator, serving, cluster).await;
}

/// The schema's `date-time` lets all of these pass.
const UNUSABLE: [&str; 4] = [
    "2020-01-01T00:00:00.123456789123Z",
    "9999-12-31T23:59:59-12:00",
    "2020-01-01T00:00:00+99:99",
    "2020-01-01T00:00:00Zthereabouts",
];

#[tokio::test]
async fn a_birthday_that_cannot_be_used_is_rejected_and_holds_no_pet() {
    let (cluster, serving, operator, pets_api) = stage().await;
    for (number, birthday) in UNUSABLE.into_iter().enumerate() {
        let name = format!("odd-{number}");
        create(&pets_api, &pet(&name, "Odd", "bird", birthday)).await;
        let odd = rejected(&pets_api, &name).await;
        assert_eq!(odd.finalizers(), [FINALIZER]);
        let message = &odd.ready().unwrap().message;
        assert!(message.contains(birthday), "{message}");
        event(&cluster, &name, "Warning", REJECTED).await;
        delete(&pets_api, &name).await;
        gone(&pets_api, &name).await;
    }

    // With an entry, it is the entry that must go first.
    create(&pets_api, &thor()).await;
    let before = synced(&pets_api, "thor").await;
    change(&pets_api, "thor", json!({ "birthday": UNUSABLE[0] })).await;
    let odd = rejected(&pets_api, "thor").await;
    assert_eq!(odd.entry_id(), before.entry_id());
    change(&pets_api, "thor", json!({ "birthday": "2020-02-29T12:00:00Z" })).await;
    synced(&pets_api, "thor").await;
    assert_eq!(serving.pets(), ["Thor Canine 2020-02-29"]);
    change(&pets_api, "thor", json!({ "birthday": UNUSABLE[1] })).await;
    rejected(&pets_api, "thor").await;
    delete(&pets_api, "thor").await;
    gone(&pets_api, "thor").await;
    assert!(serving.pets().is_empty());

    // A store that is away has no part in a Pet that it never had.
    create(&pets_api, &pet("odd", "Odd", "bird", UNUSABLE[0])).await;
    rejected(&pets_api, "odd").await;
    serving.stop().await;
    delete(&pets_api, "odd").await;
    gone(&pets_api, "odd").await;
    operator.stop().await;
    cluster.stop().await.unwrap();
}

/// What others write into the status must not hide a Pet either.
#[tokio::test]
async fn a_status_that_fits_the_schema_hides_no_pet() {
    let cluster = cluster::with_pets().await;
    let serving = Serving::start().await;
    let pets: Api<Pet> = Api::default_namespaced(cluster.client());
    let raw: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &Pet::api_resource());
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Synced", "message": "", "lastTransitionTime": UNUSABLE[0],
    });
    for (name, status) in [
        ("time", json!({ "conditions": [ready] })),
        ("null", json!({ "id": null, "observedGeneration": null })),
        ("float", json!({ "observedGeneration": 1.0 })),
        ("exponent", json!({ "observedGeneration": 1e15 })),
    ] {
        create(&pets, &pet(name, "Odd", "bird", "2022-01-01T00:00:00Z")).await;
        let patch = Patch::Merge(json!({ "status": status }));
        raw.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
    let operator = Operator::start(&cluster, serving.client());
    for name in ["time", "null", "float", "exponent"] {
        let odd = synced(&pets, name).await;
        assert_eq!(odd.status.unwrap().observed_generation, Some(1));
        delete(&pets, name).await;
        gone(&pets, name).await;
    }
    assert!(serving.pets().is_empty());
    end(operator, serving, cluster).await;
}
