//! Objects as Go writes them: nulls and missing fields where a type wants values; and objects that do not fit at all.

use k8s_openapi::api::core::v1::{Event, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::CustomResource;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass::client::ClientError;
use windlass::client::options::ListOptions;
use windlass::{Manager, ObjectKey};

use crate::bench::{Bench, Pet, Running, pet, wait_for};

fn zero_time() -> Time {
    Time("0001-01-01T00:00:00Z".parse::<Timestamp>().expect("a time"))
}

fn is_zero(service: &Service) -> bool {
    let conditions = service.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.is_some_and(|conditions| conditions.iter().all(|one| one.last_transition_time == zero_time()))
}

/// Pets with more required fields than the kind has.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "petstore.example.com", version = "v1", kind = "Pet", root = "Registered", namespaced)]
struct RegisteredSpec {
    name: String,
    born: Time,
    legs: u8,
    owners: Vec<String>,
    chip: Chip,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Chip {
    number: u64,
    checks: Vec<Condition>,
}

/// Pets whose names are numbers.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "petstore.example.com", version = "v1", kind = "Pet", root = "Numbered", namespaced)]
struct NumberedSpec {
    name: u32,
}

#[tokio::test(start_paused = true)]
async fn a_service_condition_without_a_time_is_read_everywhere() {
    let bench = Bench::start().await;
    let services: Api<DynamicObject> =
        Api::namespaced_with(bench.kube.clone(), "default", &kube::api::ApiResource::erase::<Service>(&()));
    let make = async |name: &str| {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        let service = serde_json::from_value(service).expect("an object");
        services.create(&PostParams::default(), &service).await.expect("created");
        let condition =
            json!({"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": null});
        let patch = json!({"status": {"conditions": [condition]}});
        let patched =
            services.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
        assert!(patched.data["status"]["conditions"][0]["lastTransitionTime"].is_null(), "the server keeps the null");
    };
    make("listed").await;
    let client = bench.client();
    let (listed, watched) = (ObjectKey::new("default", "listed"), ObjectKey::new("default", "watched"));
    let cached = client.get::<Service>(&listed).await.expect("read").expect("in the list");
    assert!(is_zero(&cached));
    make("watched").await;
    wait_for("the watch shows it", async || {
        client.get::<Service>(&watched).await.expect("read").is_some_and(|service| is_zero(&service))
    })
    .await;
    // As the server has it, and as it answers writes.
    let live = client.live().get::<Service>(&listed).await.expect("read").expect("there");
    assert!(is_zero(&live));
    let all = client.live().list_with::<Service>(ListOptions::new().namespace("default")).await.expect("listed");
    assert_eq!(all.iter().filter(|service| is_zero(service)).count(), 2);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(is_zero(&client.patch::<Service>(&listed, &patch).await.expect("patched")));
    let cached = client.get::<Service>(&listed).await.expect("read").expect("there");
    assert_eq!(cached.metadata.labels.as_ref().map(std::collections::BTreeMap::len), Some(1), "the own write");
    assert!(client.delete::<Service>(&listed).await.expect("deleted"));
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn required_fields_that_are_missing_have_their_zero_values() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let client = bench.client();
    let key = ObjectKey::new("default", "thor");
    let check = |thor: &Registered| {
        assert_eq!(thor.spec.name, "thor");
        assert_eq!((thor.spec.born.clone(), thor.spec.legs, thor.spec.owners.len()), (zero_time(), 0, 0));
        assert_eq!(thor.spec.chip, Chip { number: 0, checks: Vec::new() });
    };
    check(&client.get::<Registered>(&key).await.expect("read").expect("there"));
    check(&client.live().get::<Registered>(&key).await.expect("read").expect("there"));
    let again = client.lister::<Registered>().list();
    check(&again[0]);
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_fit_gets_an_event() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let manager = Manager::builder(bench.kube.clone()).name("it").build().expect("a manager");
    let lister = manager.lister::<Numbered>();
    let running = Running::ready(manager).await;
    assert!(lister.is_empty());
    let events: Api<Event> = Api::namespaced(bench.kube.clone(), "default");
    let about = async || {
        let all = events.list(&ListParams::default()).await.expect("listed").items;
        all.into_iter().filter(|event| event.involved_object.name.as_deref() == Some("thor")).collect::<Vec<_>>()
    };
    wait_for("an event", async || !about().await.is_empty()).await;
    // Nothing new about it.
    bench
        .pets()
        .patch("thor", &PatchParams::default(), &Patch::Merge(json!({"spec": {"tricks": ["sit"]}})))
        .await
        .expect("patched");
    running.stop().await.expect("stopped");
    let told = about().await;
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].type_.as_deref(), told[0].reason.as_deref()), (Some("Warning"), Some("FailedDecoding")));
    assert_eq!(told[0].message.as_deref(), Some("spec.name: invalid type: string, expected u32"));
    assert_eq!(told[0].involved_object.kind.as_deref(), Some("Pet"));
    assert!(told[0].involved_object.uid.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_answer_does_not_fit_names_the_field() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let client = bench.client();
    let error = client.live().get::<Numbered>(&ObjectKey::new("default", "thor")).await.expect_err("does not fit");
    assert!(matches!(&error, ClientError::Request { .. }));
    let text = format!("{error} {:?}", std::error::Error::source(&error));
    assert!(text.contains("spec.name: invalid type: string, expected u32") && !text.contains("\"thor\""), "{text}");
    assert!(client.live().get::<Pet>(&ObjectKey::new("default", "thor")).await.expect("read").is_some());
    client.caches().stop().await;
}
