//! What reconcilers write: drafts, applied and pruned children, events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::BodyExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Event as CoreEvent, Service};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use windlass::children::{Children, Pruned};
use windlass::client::ClientError;
use windlass::client::options::ListOptions;
use windlass::conditions::{self, ConditionStatus};
use windlass::draft::{Committed, Draft};
use windlass::events::{Broadcaster, EventApi, Recorder};
use windlass::{CachedClient, Context, Manager, ObjectKey};

use crate::adversity::{forward, through};
use crate::bench::{Bench, Pet, PetStatus, Running, pet, wait_for};

fn committed(object: bool, status: bool) -> Committed {
    let mut committed = Committed::default();
    (committed.object, committed.status) = (object, status);
    committed
}

#[tokio::test(start_paused = true)]
async fn a_draft_sends_only_what_changed() {
    let bench = Bench::start().await;
    let client = bench.client();
    let thor = client.create(&pet("thor")).await.expect("created");
    let mut draft = Draft::new(Arc::new(thor));
    assert_eq!(draft.commit(&client).await.expect("nothing"), Committed::default());
    draft.spec.tricks.push("sit".into());
    draft.status.get_or_insert_default().id = Some("7".into());
    let both = committed(true, true);
    assert_eq!(draft.commit(&client).await.expect("both"), both);
    assert_eq!(draft.commit(&client).await.expect("nothing"), Committed::default());
    let live = bench.pets().get("thor").await.expect("there");
    assert_eq!(live.spec.tricks, ["sit"]);
    assert_eq!(live.status.and_then(|status| status.id).as_deref(), Some("7"));
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn conditions_of_two_writers_do_not_undo_each_other() {
    let bench = Bench::start().await;
    let client = bench.client();
    let thor = Arc::new(client.create(&pet("thor")).await.expect("created"));
    let mut drafts = [Draft::new(Arc::clone(&thor)), Draft::new(thor)];
    for (draft, type_) in drafts.iter_mut().zip(["Fed", "Washed"]) {
        let status = draft.status.get_or_insert_with(PetStatus::default);
        let condition = conditions::new(type_, true, "Done", "");
        conditions::set(&mut status.conditions, condition, Timestamp::now());
        assert!(draft.commit(&client).await.expect("committed").status);
    }
    let live = bench.pets().get("thor").await.expect("there");
    let conditions = live.status.expect("a status").conditions;
    assert!(conditions::is_true(&conditions, "Fed") && conditions::is_true(&conditions, "Washed"));
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_condition_is_not_written_over_a_later_one() {
    let bench = Bench::start().await;
    let client = bench.client();
    let thor = Arc::new(client.create(&pet("thor")).await.expect("created"));
    let set = |draft: &mut Draft<Pet>, type_: &str, generation: i64| {
        let conditions = &mut draft.status.get_or_insert_default().conditions;
        conditions::set(conditions, conditions::new(type_, true, "Done", "").observed(generation), Timestamp::now());
    };
    let (mut slow, mut other) = (Draft::new(Arc::clone(&thor)), Draft::new(thor));
    set(&mut slow, "Ready", 4);
    set(&mut other, "Ready", 5);
    other.commit(&client).await.expect("committed");
    let error = slow.commit(&client).await.expect_err("it has changed");
    assert!(error.is_conflict(), "{error}");
    let read = async || Arc::new(bench.pets().get("thor").await.expect("there"));
    let status = read().await.status.clone().expect("a status");
    assert!(conditions::is_current(&status.conditions, "Ready", 5));
    // From what is there now, it goes on.
    let mut again = Draft::new(read().await);
    set(&mut again, "Ready", 6);
    set(&mut again, "Fed", 6);
    set(&mut other, "Washed", 6);
    other.commit(&client).await.expect("committed");
    again.commit(&client).await.expect("committed");
    let status = read().await.status.clone().expect("a status");
    for type_ in ["Ready", "Fed", "Washed"] {
        assert!(conditions::is_current(&status.conditions, type_, 6), "{type_}");
    }
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_draft_of_both_parts_keeps_conditions_written_meanwhile() {
    let bench = Bench::start().await;
    let client = bench.client();
    let thor = Arc::new(client.create(&pet("thor")).await.expect("created"));
    let set = |draft: &mut Draft<Pet>, type_: &str| {
        let status = draft.status.get_or_insert_with(PetStatus::default);
        conditions::set(&mut status.conditions, conditions::new(type_, true, "Done", ""), Timestamp::now());
    };
    let mut other = Draft::new(Arc::clone(&thor));
    set(&mut other, "Washed");
    let mut draft = Draft::new(thor);
    set(&mut draft, "Fed");
    draft.spec.tricks.push("sit".into());
    other.commit(&client).await.expect("committed");
    draft.commit(&client).await.expect("committed");
    let conditions = bench.pets().get("thor").await.expect("there").status.expect("a status").conditions;
    assert!(conditions::is_true(&conditions, "Fed") && conditions::is_true(&conditions, "Washed"));
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn drafts_keep_what_others_added_to_lists() {
    let bench = Bench::start().await;
    let client = bench.client();
    let thor = Arc::new(client.create(&pet("thor")).await.expect("created"));
    let mut drafts = [Draft::new(Arc::clone(&thor)), Draft::new(Arc::clone(&thor))];
    drafts[0].spec.tricks.push("sit".into());
    drafts[1].spec.tricks.push("roll".into());
    drafts[0].commit(&client).await.expect("the first");
    let error = drafts[1].commit(&client).await.expect_err("the list has changed");
    assert!(error.is_conflict(), "{error}");
    assert_eq!(bench.pets().get("thor").await.expect("there").spec.tricks, ["sit"]);
    // A change elsewhere is no reason to fail.
    let mut draft = Draft::new(Arc::new(bench.pets().get("thor").await.expect("there")));
    draft.spec.tricks.push("roll".into());
    let label = Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}}}));
    client.patch::<Pet>(&ObjectKey::new("default", "thor"), &label).await.expect("patched");
    draft.commit(&client).await.expect("committed");
    assert_eq!(bench.pets().get("thor").await.expect("there").spec.tricks, ["sit", "roll"]);
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_draft_changes_no_other_object_of_the_name() {
    let bench = Bench::start().await;
    let client = bench.client();
    let old = Arc::new(client.create(&pet("thor")).await.expect("created"));
    bench.pets().delete("thor", &DeleteParams::default()).await.expect("deleted");
    let new = bench.create(&pet("thor")).await;
    let changes: [fn(&mut Pet); 4] = [
        |pet| pet.spec.name = "odin".into(),
        |pet| pet.spec.tricks.push("sit".into()),
        |pet| pet.status.get_or_insert_default().id = Some("7".into()),
        |pet| {
            let condition = conditions::new("Fed", true, "Done", "");
            conditions::set(&mut pet.status.get_or_insert_default().conditions, condition, Timestamp::now());
        },
    ];
    for change in changes {
        let mut draft = Draft::new(Arc::clone(&old));
        change(&mut draft);
        let error = draft.commit(&client).await.expect_err("another object");
        assert!(error.is_conflict(), "{error}");
    }
    let live = bench.pets().get("thor").await.expect("there");
    assert_eq!(live.metadata.resource_version, new.metadata.resource_version, "nothing was written");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn stale_drafts_are_committed_where_nothing_conflicts() {
    let bench = Bench::start().await;
    let client = bench.client();
    let old = Arc::new(client.create(&pet("thor")).await.expect("created"));
    client
        .modify::<Pet>(&ObjectKey::new("default", "thor"), |pet| pet.spec.tricks.push("sit".into()))
        .await
        .expect("ok");
    let mut draft = Draft::new(old);
    draft.spec.name = "odin".into();
    draft.status.get_or_insert_default().id = Some("7".into());
    assert_eq!(draft.commit(&client).await.expect("committed"), committed(true, true));
    let live = bench.pets().get("thor").await.expect("there");
    assert_eq!((live.spec.name.as_str(), live.spec.tricks), ("odin", vec!["sit".to_owned()]));
    assert_eq!(live.status.and_then(|status| status.id).as_deref(), Some("7"));
    client.caches().stop().await;
}

/// What an operator that was written for less knows of Deployments.
#[derive(kube::Resource, Clone, Debug, Serialize, Deserialize)]
#[resource(inherit = "Deployment")]
struct Known {
    metadata: ObjectMeta,
    spec: KnownSpec,
    status: Option<KnownStatus>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KnownSpec {
    template: KnownTemplate,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KnownTemplate {
    spec: KnownPod,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KnownPod {
    containers: Vec<KnownContainer>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KnownContainer {
    name: String,
    image: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct KnownStatus {
    #[serde(default)]
    conditions: Vec<KnownCondition>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KnownCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

#[tokio::test(start_paused = true)]
async fn a_draft_keeps_what_it_does_not_know_in_lists() {
    let bench = Bench::start().await;
    let client = bench.client();
    let container = |name: &str| json!({"name": name, "image": "one", "env": [{"name": "OF", "value": name}]});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container("a"), container("b")]},
            },
        },
    });
    client.create::<Deployment>(&serde_json::from_value(deployment).expect("one")).await.expect("created");
    let key = ObjectKey::new("default", "web");
    let set = async |conditions: serde_json::Value| {
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        client.patch_status::<Deployment>(&key, &patch).await.expect("patched");
    };
    let condition =
        |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": format!("Of{type_}")});
    set(json!([condition("Available", "True")])).await;
    let known = async || Arc::new(client.live().get::<Known>(&key).await.expect("read").expect("there"));

    let read = known().await;
    for image in ["two", "three"] {
        let mut draft = Draft::new(known().await);
        draft.spec.template.spec.containers[0].image = image.into();
        let added = KnownContainer { name: image.into(), image: image.into() };
        draft.spec.template.spec.containers.push(added);
        // The second meets a conflict, with no other writer in its way.
        if image == "three" {
            let label = Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}}}));
            client.patch::<Deployment>(&key, &label).await.expect("patched");
        }
        let status = if image == "two" { "False" } else { "True" };
        let mine = KnownCondition { type_: "Mine".into(), status: status.into() };
        let conditions = &mut draft.status.get_or_insert_default().conditions;
        conditions.retain(|condition| condition.type_ != "Mine");
        conditions.push(mine);
        assert_eq!(draft.commit(&client).await.expect("committed"), committed(true, true));
    }
    let live = client.live().get::<Deployment>(&key).await.expect("read").expect("there");
    let pod = live.spec.expect("a spec").template.spec.expect("a pod");
    let told = |container: &Container| {
        let env = container.env.as_ref().and_then(|env| env.first()?.value.clone());
        (container.image.clone().unwrap_or_default(), env.unwrap_or_default())
    };
    let told: Vec<_> = pod.containers.iter().map(told).collect();
    let expected = [("three", "a"), ("one", "b"), ("two", ""), ("three", "")];
    assert_eq!(told, expected.map(|(image, env)| (image.to_owned(), env.to_owned())));
    let conditions = live.status.and_then(|status| status.conditions).expect("conditions");
    let reasons: Vec<_> =
        conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_deref())).collect();
    assert_eq!(reasons, [("Available", "True", Some("OfAvailable")), ("Mine", "True", None)]);

    // A condition that another wrote meanwhile is kept as it is, too; a list that another changed is not touched.
    let mut draft = Draft::new(known().await);
    let conditions = &mut draft.status.get_or_insert_default().conditions;
    conditions.iter_mut().filter(|condition| condition.type_ == "Mine").for_each(|mine| mine.status = "False".into());
    set(json!([condition("Available", "False"), condition("Progressing", "True"), condition("Mine", "True")])).await;
    draft.commit(&client).await.expect("committed");
    let status = client.live().get::<Deployment>(&key).await.expect("read").expect("there").status;
    let conditions = status.and_then(|status| status.conditions).expect("conditions");
    let reasons: Vec<_> =
        conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_deref())).collect();
    let expected = [
        ("Available", "False", Some("OfAvailable")),
        ("Progressing", "True", Some("OfProgressing")),
        ("Mine", "False", Some("OfMine")),
    ];
    assert_eq!(reasons, expected);
    let mut stale = Draft::new(read);
    stale.spec.template.spec.containers[1].image = "late".into();
    let error = stale.commit(&client).await.expect_err("others changed the list");
    assert!(error.is_conflict(), "{error}");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn drafts_continue_after_a_refused_status() {
    let bench = Bench::start().await;
    let refuse = Arc::new(AtomicBool::new(true));
    let refusing = Arc::clone(&refuse);
    let kube = through(&bench, move |request, service| {
        let refused = request.uri().path().ends_with("/status") && refusing.load(Ordering::Relaxed);
        async move {
            if !refused {
                return forward(request, service).await;
            }
            let status = json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not yet"});
            let body = http_body_util::Full::from(status.to_string());
            let body = body.map_err(|never| match never {}).boxed_unsync();
            http::Response::builder().status(403).body(body).expect("a response")
        }
    });
    let client = CachedClient::standalone(kube, "it");
    let mut draft = Draft::new(Arc::new(client.create(&pet("thor")).await.expect("created")));
    draft.spec.tricks.push("sit".into());
    draft.status.get_or_insert_default().id = Some("7".into());
    draft.commit(&client).await.expect_err("the status is refused");
    assert_eq!((draft.base().spec.tricks.len(), draft.base().status.is_some()), (1, false));
    // What is patched is not sent again, what is not yet patched is not lost, and other writers are not disturbed.
    let seen = Patch::Merge(json!({"spec": {"name": "odin"}, "metadata": {"labels": {"seen": "yes"}}}));
    client.patch::<Pet>(&ObjectKey::new("default", "thor"), &seen).await.expect("patched");
    draft.commit(&client).await.expect_err("the status is still refused");
    refuse.store(false, Ordering::Relaxed);
    draft.spec.tricks.push("roll".into());
    assert_eq!(draft.commit(&client).await.expect("committed"), committed(true, true));
    let live = bench.pets().get("thor").await.expect("there");
    assert_eq!((live.spec.name.as_str(), live.spec.tricks), ("odin", vec!["sit".to_owned(), "roll".to_owned()]));
    assert_eq!(live.status.and_then(|status| status.id).as_deref(), Some("7"));
    assert_eq!(draft.commit(&client).await.expect("nothing"), Committed::default());
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn applying_the_same_again_changes_nothing() {
    let bench = Bench::start().await;
    let client = bench.client();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("settings".into());
    map.metadata.namespace = Some("default".into());
    map.data = Some([("mode".to_owned(), "fast".to_owned())].into());
    let first = client.apply(&map).await.expect("created");
    let second = client.apply(&map).await.expect("applied");
    assert_eq!(first.metadata.resource_version, second.metadata.resource_version);
    let key = ObjectKey::of(&map);
    let theirs = json!({"data": {"mode": "slow", "other": "x"}});
    let patched: ConfigMap = client.patch(&key, &Patch::Merge(theirs)).await.expect("patched");
    assert_eq!(patched.data.as_ref().map(|data| data["mode"].as_str()), Some("slow"));
    let data = client.apply(&map).await.expect("applied").data.expect("data");
    assert_eq!((data["mode"].as_str(), data["other"].as_str()), ("fast", "x"));
    client.caches().stop().await;
}

/// The server fills in dozens of fields, and allocates an address: what is applied next is still the same.
#[tokio::test(start_paused = true)]
async fn applying_what_the_server_completes_writes_once() {
    let bench = Bench::start().await;
    let client = bench.client();
    let thor = client.create(&pet("thor")).await.expect("created");
    let pods = json!({"metadata": {"labels": {"app": "bowl"}}, "spec": {"containers": [
        {"name": "bowl", "image": "bowl:1", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1000m"}}},
    ]}});
    let deployment = json!({"metadata": {"name": "bowl"}, "spec": {
        "selector": {"matchLabels": {"app": "bowl"}}, "template": pods,
    }});
    let service = json!({"metadata": {"name": "bowl"}, "spec": {"selector": {"app": "bowl"}, "ports": [{"port": 80}]}});
    let deployment: Deployment = serde_json::from_value(deployment).expect("a Deployment");
    let service: Service = serde_json::from_value(service).expect("a Service");
    let mut versions = Vec::new();
    for _ in 0..3 {
        let mut children = Children::of(&client, &thor);
        let deployment = children.apply(deployment.clone()).await.expect("applied");
        let service = children.apply(service.clone()).await.expect("applied");
        assert!(deployment.spec.expect("a spec").revision_history_limit.is_some(), "defaults are filled in");
        versions.push((deployment.metadata.resource_version, service.metadata.resource_version));
        assert!(children.prune().await.expect("pruned").is_empty());
    }
    assert_eq!(versions[1..], [versions[0].clone(), versions[0].clone()], "{versions:?}");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn status_updates_are_separate_and_optimistic() {
    let bench = Bench::start().await;
    let client = bench.client();
    let mut thor = client.create(&pet("thor")).await.expect("created");
    let stale = thor.clone();
    thor.spec.name = "odin".into();
    thor.status.get_or_insert_default().id = Some("7".into());
    let updated = client.update_status(&thor).await.expect("updated");
    assert_eq!(updated.status.and_then(|status| status.id).as_deref(), Some("7"));
    let live = bench.pets().get("thor").await.expect("there");
    assert_eq!((live.spec.name.as_str(), live.metadata.generation), ("thor", Some(1)), "the status alone");
    // Cached reads show it at once.
    let cached = client.get::<Pet>(&ObjectKey::of(&thor)).await.expect("read").expect("there");
    assert_eq!(cached.metadata.resource_version, live.metadata.resource_version);
    let error = client.update_status(&stale).await.expect_err("it has changed");
    assert!(error.is_conflict() && error.to_string().starts_with("update status of pets"), "{error}");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_applied_status_is_owned_and_nothing_else_is() {
    let bench = Bench::start().await;
    let client = bench.client();
    client.create(&pet("thor")).await.expect("created");
    let (mut mine, mut others) = (pet("thor"), pet("thor"));
    mine.spec.name = "odin".into();
    mine.status = Some(PetStatus { id: Some("7".into()), ..PetStatus::default() });
    let applied = client.apply_status(&mine).await.expect("applied");
    assert_eq!(applied.spec.name, "thor", "the status alone");
    // The same again changes nothing.
    let again = client.apply_status(&mine).await.expect("applied");
    assert_eq!(again.metadata.resource_version, applied.metadata.resource_version);
    let owners = bench.pets().get("thor").await.expect("there").metadata.managed_fields.expect("owners");
    let owner = owners.iter().find(|owner| owner.operation.as_deref() == Some("Apply")).expect("who applied");
    assert_eq!((owner.manager.as_deref(), owner.subresource.as_deref()), (Some("it"), Some("status")));
    // Another operator takes the field, as it does with objects.
    others.status = Some(PetStatus { id: Some("8".into()), ..PetStatus::default() });
    let taken = client.with_field_manager("another").apply_status(&others).await.expect("taken");
    assert_eq!(taken.status.and_then(|status| status.id).as_deref(), Some("8"));
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn writers_in_a_conflict_storm_all_get_through() {
    let bench = Bench::start().await;
    let client = bench.client();
    client.create(&pet("thor")).await.expect("created");
    let key = ObjectKey::new("default", "thor");
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..30 {
        let (client, key) = (client.clone(), key.clone());
        writers.spawn(async move {
            client.modify(&key, |pet: &mut Pet| pet.spec.tricks.push(format!("{n:02}"))).await.expect("written");
        });
    }
    writers.join_all().await;
    let mut tricks = client.get::<Pet>(&key).await.expect("read").expect("there").spec.tricks.clone();
    tricks.sort();
    assert_eq!(tricks, (0..30).map(|n| format!("{n:02}")).collect::<Vec<_>>());
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_are_written_and_become_a_series() {
    let bench = Bench::start().await;
    let thor: Pet = bench.create(&pet("thor")).await;
    let broadcaster = Broadcaster::new(EventApi::EventsV1);
    let recorder = broadcaster.recorder("it");
    for _ in 0..3 {
        recorder.warning(&thor, "Hungry", "the bowl is empty");
    }
    let shutdown = CancellationToken::new();
    let writing = {
        let (client, shutdown) = (bench.kube.clone(), shutdown.clone());
        tokio::spawn(async move { broadcaster.run(client, shutdown).await })
    };
    let events: Api<Event> = Api::namespaced(bench.kube.clone(), "default");
    wait_for("a series of three", async || {
        let list = events.list(&ListParams::default()).await.expect("listed").items;
        list.iter().any(|event| {
            event.reason.as_deref() == Some("Hungry")
                && event.regarding.as_ref().and_then(|r| r.uid.clone()) == thor.metadata.uid
                && event.series.as_ref().is_some_and(|series| series.count == 3)
        })
    })
    .await;
    assert_eq!(events.list(&ListParams::default()).await.expect("listed").items.len(), 1);
    shutdown.cancel();
    writing.await.expect("joined");
}

/// client-go's numbers, as far as a server sees them: of many different notes the first nine are told
/// one by one, all others as one event with a count; and an object has 25 events at once.
#[tokio::test(start_paused = true)]
async fn both_event_apis_combine_and_limit_events() {
    for api in [EventApi::EventsV1, EventApi::CoreV1] {
        let bench = Bench::start().await;
        let thor: Pet = bench.create(&pet("thor")).await;
        let mut manager = Manager::builder(bench.kube.clone()).events(api).build().expect("built");
        let recorder = manager.recorder("it");
        let told = thor.clone();
        let talk = move |shutdown: CancellationToken| async move {
            for n in 0..20 {
                recorder.warning(&told, "Hungry", format!("bowl {n} is empty"));
            }
            for n in 0..20 {
                recorder.normal(&told, &format!("Trick{n}"), "done");
            }
            shutdown.cancelled().await;
            Ok::<_, String>(())
        };
        manager.add_task("talk", talk).expect("added");
        let running = Running::start(manager);
        // Both APIs show the same objects; the older one has the fields of both.
        let events: Api<CoreEvent> = Api::namespaced(bench.kube.clone(), "default");
        let count = |event: &CoreEvent| event.series.as_ref().and_then(|series| series.count).or(event.count);
        let combined = |list: &[CoreEvent]| {
            let note = "(combined from similar events): ";
            list.iter().find(|event| event.message.as_deref().is_some_and(|text| text.starts_with(note))).cloned()
        };
        let list = async || events.list(&ListParams::default()).await.expect("listed").items;
        wait_for("the combined event", async || combined(&list().await).is_some_and(|event| count(&event) == Some(11)))
            .await;
        running.stop().await.expect("what waits is written");
        let list = list().await;
        let hungry: Vec<_> = list.iter().filter(|event| event.reason.as_deref() == Some("Hungry")).collect();
        assert_eq!(hungry.len(), 10, "{api:?}: nine and the combined one");
        let tricks = list.iter().filter(|event| event.reason.as_deref() != Some("Hungry")).count();
        assert_eq!(tricks, 5, "{api:?}: 25 at once, and 20 of them went before");
        for event in &list {
            assert_eq!(event.involved_object.uid, thor.metadata.uid, "{api:?}");
            assert_eq!(
                event.source.as_ref().and_then(|source| source.component.as_deref()).is_some(),
                api == EventApi::CoreV1
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn children_no_longer_wanted_are_pruned() {
    let bench = Bench::start().await;
    let client = bench.client();
    let thor = client.create(&pet("thor")).await.expect("created");
    let map = |name: &str| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.into());
        map
    };
    let mut foreign = map("foreign");
    foreign.metadata.namespace = Some("default".into());
    client.create(&foreign).await.expect("created");
    let reconcile = async |names: &[&str], set: Option<&str>| {
        let mut children = Children::of(&client, &thor);
        children.kind::<ConfigMap>();
        if let Some(set) = set {
            children.set(set);
        }
        for name in names {
            children.apply(map(name)).await.expect("applied");
        }
        let mut gone: Vec<String> =
            children.prune().await.expect("pruned").iter().map(|child| child.key.name().to_owned()).collect();
        gone.sort();
        gone
    };
    assert!(reconcile(&["a", "b", "c"], None).await.is_empty());
    assert!(reconcile(&["x"], Some("other")).await.is_empty(), "a set of its own");
    assert_eq!(reconcile(&["b"], None).await, ["a", "c"]);
    assert_eq!(reconcile(&["b"], None).await, Vec::<String>::new());
    assert_eq!(reconcile(&[], Some("other")).await, ["x"]);
    assert_eq!(reconcile(&[], None).await, ["b"]);
    let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
    assert!(maps.get_opt("foreign").await.expect("read").is_some(), "what others own stays");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_without_its_namespace_is_named() {
    let bench = Bench::start().await;
    let client = bench.client();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("settings".into());
    let error = client.create(&map).await.expect_err("nowhere").to_string();
    assert_eq!(error, "create configmaps/v1 settings: no namespace is given");
    let error = client.apply(&map).await.expect_err("nowhere").to_string();
    assert!(error.ends_with("configmaps/v1 settings: no namespace is given"), "{error}");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_is_a_single_segment_of_the_path() {
    let bench = Bench::start().await;
    let client = bench.client();
    client.create(&pet("victim")).await.expect("created");
    let merge = Patch::Merge(json!({"spec": {"tricks": ["bite"]}}));
    for name in ["victim/status", "../pets/victim", "victim%2Fstatus", ".", ".."] {
        let (key, mut object) = (ObjectKey::new("default", name), pet("x"));
        object.metadata.name = Some(name.into());
        let refusals = [
            client.live().get::<Pet>(&key).await.map(drop),
            client.delete::<Pet>(&key).await.map(drop),
            client.patch::<Pet>(&key, &merge).await.map(drop),
            client.patch_status::<Pet>(&key, &merge).await.map(drop),
            client.update(&object).await.map(drop),
            client.update_status(&object).await.map(drop),
            client.apply(&object).await.map(drop),
            client.modify::<Pet>(&key, |_| ()).await.map(drop),
        ];
        for refused in refusals {
            let error = refused.expect_err(name);
            assert!(matches!(error, ClientError::InvalidName { .. }), "{name}: {error}");
        }
        assert!(client.get::<Pet>(&key).await.expect("read").is_none(), "{name}");
    }
    let error = client.delete::<Pet>(&ObjectKey::new("default", "a%b")).await.expect_err("no name");
    assert_eq!(error.to_string(), "delete pets.petstore.example.com/v1 default/a%b: \"a%b\" may not contain '%'");

    // Where a namespace is asked for, too.
    let elsewhere = client.live().list_with::<Pet>(ListOptions::new().namespace("..")).await;
    assert!(matches!(elsewhere, Err(ClientError::InvalidName { .. })));
    let key = ObjectKey::new("..", "victim");
    assert!(matches!(client.live().get::<Pet>(&key).await, Err(ClientError::InvalidName { .. })));
    let mut nowhere = pet("x");
    nowhere.metadata.namespace = Some("..".into());
    assert!(matches!(client.create(&nowhere).await, Err(ClientError::InvalidName { .. })));

    // What ends a path does not end here: there is no such pet.
    for name in ["victim?x", "victim#x", "victim?dryRun=All&x", "victim "] {
        let key = ObjectKey::new("default", name);
        assert!(client.live().get::<Pet>(&key).await.expect("read").is_none(), "{name}");
        assert!(!client.delete::<Pet>(&key).await.expect("asked"), "{name}");
        assert!(client.get::<Pet>(&key).await.expect("read").is_none(), "{name}");
    }
    let victim = bench.pets().get("victim").await.expect("unharmed");
    assert!(victim.spec.tricks.is_empty());
    client.caches().stop().await;
}

/// Of roles, nothing more is asked than that their names are parts of paths.
#[tokio::test(start_paused = true)]
async fn odd_names_that_the_server_takes_are_read_and_written() {
    let bench = Bench::start().await;
    let client = bench.client();
    for name in ["system:odd", "what? #1", "gr\u{fc}n+\u{df}"] {
        let mut role = ClusterRole::default();
        role.metadata.name = Some(name.into());
        let key = ObjectKey::cluster(name);
        client.create(&role).await.expect(name);
        let live = client.live().get::<ClusterRole>(&key).await.expect(name).expect(name);
        assert_eq!(live.metadata.name.as_deref(), Some(name));
        let label = Patch::Merge(json!({"metadata": {"labels": {"odd": "1"}}}));
        client.patch::<ClusterRole>(&key, &label).await.expect(name);
        assert!(client.get::<ClusterRole>(&key).await.expect(name).expect(name).metadata.labels.is_some());
        assert!(client.delete::<ClusterRole>(&key).await.expect(name), "{name}");
        assert!(client.live().get::<ClusterRole>(&key).await.expect(name).is_none());
    }
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_draft_does_not_overwrite_what_a_transform_hides() {
    let bench = Bench::start().await;
    let client = bench.client();
    let hides = |pet: &mut Pet| {
        pet.spec.tricks.clear();
        if let Some(status) = &mut pet.status {
            status.conditions.clear();
        }
    };
    assert!(client.caches().transform::<Pet>(&(), hides));
    let mut thor = pet("thor");
    thor.spec.tricks = vec!["sit".into(), "roll".into()];
    bench.create(&thor).await;
    let fed = conditions::new("Fed", true, "Done", "");
    let mut conditions = Vec::new();
    conditions::set(&mut conditions, fed, Timestamp::now());
    let status = Patch::Merge(json!({"status": {"conditions": conditions}}));
    bench.pets().patch_status("thor", &PatchParams::default(), &status).await.expect("patched");
    let key = ObjectKey::new("default", "thor");
    let cached = client.get::<Pet>(&key).await.expect("read").expect("there");
    assert!(cached.spec.tricks.is_empty(), "hidden");

    let mut draft = Draft::new(Arc::clone(&cached));
    draft.spec.tricks.push("new".into());
    let error = draft.commit(&client).await.expect_err("it would be lost").to_string();
    assert!(error.contains("spec.tricks") && error.contains("transform") && error.contains("live"), "{error}");
    assert_eq!(bench.pets().get("thor").await.expect("there").spec.tricks, ["sit", "roll"]);

    // What is no list is changed alone, and conditions are merged with those that were hidden.
    let mut draft = Draft::new(cached);
    draft.spec.name = "Thor".into();
    let washed = conditions::new("Washed", true, "Done", "");
    conditions::set(&mut draft.status.get_or_insert_default().conditions, washed, Timestamp::now());
    draft.commit(&client).await.expect("committed");
    let live = client.live().get::<Pet>(&key).await.expect("read").expect("there");
    assert_eq!((live.spec.name.as_str(), live.spec.tricks.len()), ("Thor", 2));
    let conditions = &live.status.as_ref().expect("a status").conditions;
    assert!(conditions::is_true(conditions, "Fed") && conditions::is_true(conditions, "Washed"));

    // A draft of what was read live knows what there is.
    let mut draft = Draft::new(Arc::new(live));
    draft.spec.tricks.push("new".into());
    assert!(draft.commit(&client).await.expect("committed").object);
    assert_eq!(bench.pets().get("thor").await.expect("there").spec.tricks, ["sit", "roll", "new"]);
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_field_managers_apply_different_fields_of_one_child() {
    let bench = Bench::start().await;
    let client = bench.client();
    let thor = client.create(&pet("thor")).await.expect("created");
    let map = |field: &str| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some("shared".into());
        map.data = Some([(field.to_owned(), "1".to_owned())].into());
        map
    };
    let apply = async |client: &CachedClient, field: &str| {
        let applied = Children::of(client, &thor).apply(map(field)).await.expect("applied");
        (applied.data.unwrap_or_default().into_keys().collect::<Vec<_>>(), applied.metadata.resource_version)
    };
    // One field manager has one mind.
    apply(&client, "a").await;
    assert_eq!(apply(&client, "b").await.0, ["b"]);
    let other = client.with_field_manager("other");
    let (fields, version) = apply(&other, "a").await;
    assert_eq!(fields, ["a", "b"]);
    assert_eq!(apply(&client, "b").await, (fields.clone(), version.clone()), "nothing to do");
    assert_eq!(apply(&other, "a").await, (fields, version), "nothing to do");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_condition_knows_generation_and_time() {
    let bench = Bench::start().await;
    let client = bench.client();
    let thor = Arc::new(client.create(&pet("thor")).await.expect("created"));
    let mut draft = Draft::new(Arc::clone(&thor));
    assert!(draft.condition("Ready", true, "Stored", "in the store"));
    draft.condition("Fed", false, "Hungry", "");
    assert_eq!(draft.commit(&client).await.expect("committed"), committed(false, true));
    let stored = draft.status.clone().expect("a status").conditions;
    assert!(conditions::is_current(&stored, "Ready", thor.metadata.generation.expect("a generation")));
    assert!(conditions::is_false(&stored, "Fed"));

    let latest = client.get::<Pet>(&ObjectKey::of(&thor)).await.expect("read").expect("there");
    let mut draft = Draft::new(latest);
    draft.condition("Ready", true, "Stored", "in the store");
    assert_eq!(draft.commit(&client).await.expect("committed"), Committed::default(), "nothing changed");
    draft.condition("Ready", ConditionStatus::Unknown, "NoAnswer", "");
    draft.commit(&client).await.expect("committed");
    let ready = conditions::find(&draft.status.as_ref().expect("a status").conditions, "Ready").cloned();
    assert_eq!(ready.map(|ready| ready.status).as_deref(), Some("Unknown"));

    let mut map = ConfigMap::default();
    (map.metadata.namespace, map.metadata.name) = (Some("default".into()), Some("x".into()));
    let map = client.create(&map).await.expect("created");
    let mut draft = Draft::new(Arc::new(map));
    draft.immutable = Some(true);
    draft.condition("Ready", true, "Stored", "");
    let error = draft.commit(&client).await.expect_err("no place for it");
    let told = "commit configmaps/v1 default/x: the condition \"Ready\" cannot be set: \
                its type has no list `status.conditions`";
    assert_eq!(error.to_string(), told);
    let live = client.live().get::<ConfigMap>(&ObjectKey::new("default", "x")).await.expect("read").expect("there");
    assert_eq!(live.immutable, None, "nothing was sent");
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn kinds_known_at_run_time_are_drafted_and_have_children() {
    let bench = Bench::start().await;
    let client = bench.client();
    let (pets, maps) = (ApiResource::erase::<Pet>(&()), ApiResource::erase::<ConfigMap>(&()));
    client.create(&pet("thor")).await.expect("created");
    let key = ObjectKey::new("default", "thor");
    let context = Context::new("pet", client.clone(), Recorder::discard());
    let (pets, maps) = (context.dynamic(&pets), context.dynamic(&maps));
    let thor = pets.get(&key).await.expect("read").expect("there");
    assert_eq!(pets.list().await.expect("listed").len(), 1);

    let mut draft = Draft::new(Arc::clone(&thor));
    draft.data["spec"]["tricks"] = json!(["sit"]);
    draft.data["status"] = json!({"id": "7"});
    let both = committed(true, true);
    assert_eq!(draft.commit(&pets).await.expect("both"), both);
    assert_eq!(draft.commit(&pets).await.expect("nothing"), Committed::default());
    assert_eq!(bench.pets().get("thor").await.expect("there").spec.tricks, ["sit"]);

    let mut children = context.children(&thor);
    for name in ["a", "b"] {
        let map = DynamicObject::new(name, &ApiResource::erase::<ConfigMap>(&()));
        let applied = children.with(&maps).apply(map).await.expect("applied");
        assert_eq!(applied.metadata.namespace.as_deref(), Some("default"));
    }
    let told = |gone: Vec<Pruned>| gone.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(children.prune().await.expect("pruned").is_empty());
    let mut children = context.children(&thor);
    children.with(&maps).keep(ObjectKey::new("default", "a"));
    let gone = children.prune().await.expect("pruned");
    assert_eq!((gone[0].kind.as_str(), gone[0].api_version.as_str()), ("ConfigMap", "v1"));
    assert_eq!(told(gone), ["ConfigMap default/b"]);
    // Another kind of the same type is another kind.
    let mut children = context.children(&thor);
    children.with(&pets).kind();
    assert!(children.prune().await.expect("pruned").is_empty());
    let gone = context.children(&thor).kind::<ConfigMap>().prune().await.expect("pruned");
    assert_eq!(told(gone), ["ConfigMap default/a"]);
    client.caches().stop().await;
}
