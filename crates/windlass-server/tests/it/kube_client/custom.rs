//! A custom resource, from its derived type to its deletion.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::Discovery;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, CustomResourceExt as _, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{check_refused, everywhere, refused};

/// Longer than anything takes; a test that waits this long has failed.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(CustomResource, Clone, Debug, Deserialize, PartialEq, Serialize, JsonSchema)]
#[kube(group = "test.windlass.dev", version = "v1", kind = "Gadget", namespaced, status = "GadgetStatus")]
#[kube(scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas"))]
struct GadgetSpec {
    #[schemars(length(max = 8))]
    colour: String,
    #[serde(default = "one")]
    replicas: i32,
}

fn one() -> i32 {
    1
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, JsonSchema)]
struct GadgetStatus {
    replicas: Option<i32>,
}

async fn define(client: &Client) -> Api<CustomResourceDefinition> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &Gadget::crd()).await.unwrap();
    let established = conditions::is_crd_established();
    await_condition(definitions.clone(), Gadget::crd_name(), established).await.unwrap();
    definitions
}

#[tokio::test]
async fn a_derived_resource_is_served_like_any_other() {
    everywhere(async |client: Client| {
        define(&client).await;
        let gadgets: Api<Gadget> = Api::default_namespaced(client.clone());
        let lamp = Gadget::new("lamp", GadgetSpec { colour: "red".into(), replicas: 2 });
        let created = gadgets.create(&PostParams::default(), &lamp).await.unwrap();
        assert_eq!(created.spec, lamp.spec);
        assert_eq!(created.metadata.generation, Some(1));

        let status = json!({"spec": {"replicas": 9}, "status": {"replicas": 2}});
        let patched = gadgets.patch_status("lamp", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        assert_eq!((patched.spec.replicas, patched.status.unwrap().replicas), (2, Some(2)));
        let scale = json!({"spec": {"replicas": 5}});
        let scaled = gadgets.patch_scale("lamp", &PatchParams::default(), &Patch::Merge(scale)).await.unwrap();
        assert_eq!((scaled.spec.unwrap().replicas, scaled.status.unwrap().replicas), (Some(5), 2));

        let bare = json!({"apiVersion": "test.windlass.dev/v1", "kind": "Gadget", "metadata": {"name": "bulb"},
            "spec": {"colour": "blue"}});
        let applied = gadgets.patch("bulb", &PatchParams::apply("it"), &Patch::Apply(bare)).await.unwrap();
        assert_eq!(applied.spec.replicas, 1);
        assert_eq!(gadgets.list(&ListParams::default()).await.unwrap().items.len(), 2);

        let mut long = lamp.clone();
        long.metadata.name = Some("long".into());
        long.spec.colour = "turquoise".into();
        let invalid = refused(gadgets.create(&PostParams::default(), &long).await);
        assert_eq!((invalid.code, invalid.reason.as_str()), (422, "Invalid"));
        assert_eq!(invalid.details.unwrap().causes[0].field, "spec.colour");

        let discovery = Discovery::new(client).filter(&["test.windlass.dev"]).run().await.unwrap();
        let kind = GroupVersionKind::gvk("test.windlass.dev", "v1", "Gadget");
        assert!(discovery.resolve_gvk(&kind).is_some());
    })
    .await;
}

#[tokio::test]
async fn custom_resources_are_watched() {
    everywhere(async |client: Client| {
        define(&client).await;
        let gadgets: Api<Gadget> = Api::default_namespaced(client);
        for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
            let mut events = watcher(gadgets.clone(), config).boxed();
            while !matches!(events.next().await.unwrap().unwrap(), watcher::Event::InitDone) {}
            let lamp = Gadget::new("lamp", GadgetSpec { colour: "red".into(), replicas: 2 });
            let created = gadgets.create(&PostParams::default(), &lamp).await.unwrap();
            let watcher::Event::Apply(seen) = events.next().await.unwrap().unwrap() else { panic!("not added") };
            assert_eq!(seen.resource_version(), created.resource_version());
            gadgets.delete("lamp", &DeleteParams::default()).await.unwrap();
            assert!(matches!(events.next().await.unwrap().unwrap(), watcher::Event::Delete(_)));
        }
    })
    .await;
}

#[tokio::test]
async fn a_definition_takes_its_objects_with_it() {
    everywhere(async |client: Client| {
        let definitions = define(&client).await;
        let gadgets: Api<Gadget> = Api::default_namespaced(client.clone());
        let lamp = Gadget::new("lamp", GadgetSpec { colour: "red".into(), replicas: 2 });
        let created = gadgets.create(&PostParams::default(), &lamp).await.unwrap();
        let uid = definitions.get(Gadget::crd_name()).await.unwrap().uid().unwrap();
        definitions.delete(Gadget::crd_name(), &DeleteParams::default()).await.unwrap();
        let gone = conditions::is_deleted(&uid);
        await_condition(definitions, Gadget::crd_name(), gone).await.unwrap();
        let missing = refused(gadgets.get("lamp").await);
        assert_eq!(missing.code, 404);

        define(&client).await;
        check_refused(gadgets.get("lamp").await, 404, "NotFound");
        let again = gadgets.create(&PostParams::default(), &lamp).await.unwrap();
        assert_ne!(again.uid(), created.uid());
    })
    .await;
}

#[tokio::test]
async fn watches_see_all_deletions_before_their_definition_goes() {
    everywhere(async |client: Client| {
        let definitions = define(&client).await;
        let gadgets: Api<Gadget> = Api::default_namespaced(client.clone());
        for i in 0..40 {
            let lamp = Gadget::new(&format!("lamp-{i:02}"), GadgetSpec { colour: "red".into(), replicas: 2 });
            gadgets.create(&PostParams::default(), &lamp).await.unwrap();
        }
        let events = gadgets.watch(&WatchParams::default(), "0").await.unwrap();
        definitions.delete(Gadget::crd_name(), &DeleteParams::default()).await.unwrap();
        let events: Vec<_> = tokio::time::timeout(WATCH_TIMEOUT, events.try_collect()).await.expect("it ends").unwrap();
        let names = |wanted: fn(&WatchEvent<Gadget>) -> Option<&Gadget>| {
            events.iter().filter_map(wanted).map(kube::ResourceExt::name_any).collect::<Vec<_>>()
        };
        let added = names(|event| if let WatchEvent::Added(gadget) = event { Some(gadget) } else { None });
        let deleted = names(|event| if let WatchEvent::Deleted(gadget) = event { Some(gadget) } else { None });
        assert_eq!(added.len(), 40);
        assert_eq!(deleted, added);
    })
    .await;
}

#[tokio::test]
async fn a_watcher_recovers_when_a_definition_returns() {
    everywhere(async |client: Client| {
        for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
            let definitions = define(&client).await;
            let gadgets: Api<Gadget> = Api::default_namespaced(client.clone());
            let lamp = Gadget::new("lamp", GadgetSpec { colour: "red".into(), replicas: 2 });
            let mut events = watcher(gadgets.clone(), config).boxed();
            while !matches!(events.next().await.unwrap().unwrap(), watcher::Event::InitDone) {}
            let first = gadgets.create(&PostParams::default(), &lamp).await.unwrap();
            assert!(matches!(events.next().await.unwrap().unwrap(), watcher::Event::Apply(_)));
            definitions.delete(Gadget::crd_name(), &DeleteParams::default()).await.unwrap();
            let watcher::Event::Delete(deleted) = events.next().await.unwrap().unwrap() else { panic!("not deleted") };
            assert_eq!(deleted.uid(), first.uid());
            let missing = events.next().await.unwrap().unwrap_err();
            let watcher::Error::WatchStartFailed(kube::Error::Api(missing)) = missing else { panic!("{missing}") };
            assert_eq!(missing.code, 404);

            define(&client).await;
            let second = gadgets.create(&PostParams::default(), &lamp).await.unwrap();
            let seen = async {
                loop {
                    // What is refused is tried again; the past of the first definition is no past of the second's.
                    if let Some(Ok(watcher::Event::InitApply(seen) | watcher::Event::Apply(seen))) = events.next().await
                    {
                        return seen;
                    }
                }
            };
            let seen = tokio::time::timeout(WATCH_TIMEOUT, seen).await.expect("the watcher comes back");
            assert_eq!(seen.uid(), second.uid());
            let uid = definitions.get(Gadget::crd_name()).await.unwrap().uid().unwrap();
            definitions.delete(Gadget::crd_name(), &DeleteParams::default()).await.unwrap();
            await_condition(definitions, Gadget::crd_name(), conditions::is_deleted(&uid)).await.unwrap();
        }
    })
    .await;
}
