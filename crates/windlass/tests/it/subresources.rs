//! Scales, evictions, tokens and other subresources; and that a closed fence holds back all that writes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, Patch};
use serde_json::{Value, json};
use windlass::client::options::{ApplyOptions, DeleteOptions, ListOptions, TokenOptions, WriteOptions};
use windlass::client::{ClientError, ScaleHandle};
use windlass::lease::{Fence, FenceClosed};
use windlass::{CachedClient, Draft, ObjectKey, finalizer};

use crate::bench::{Bench, Pet, pet};
use crate::own_writes::silenced;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

async fn deployment(client: &CachedClient, name: &str) -> Deployment {
    let deployment = json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    client.create(&serde_json::from_value(deployment).expect("a deployment")).await.expect("created")
}

/// A pod that runs on a node, so that it takes its time to stop.
async fn running(client: &CachedClient, name: &str, node: Option<&str>) -> Pod {
    let pod = json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    });
    client.create(&serde_json::from_value::<Pod>(pod).expect("a pod")).await.expect("created");
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    client.patch_status(&key(name), &Patch::Merge(status)).await.expect("patched")
}

#[tokio::test]
async fn scales_are_read_set_and_seen_in_the_cache() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    deployment(&client, "web").await;
    let replicas = async || {
        let web = client.get::<Deployment>(&key("web")).await.expect("read").expect("there");
        web.spec.as_ref().and_then(|spec| spec.replicas)
    };
    assert_eq!(replicas().await, Some(1));
    silence.send_replace(true);
    let web: ScaleHandle<Deployment> = client.scale(&key("web"));
    let wanted = |scale: k8s_openapi::api::autoscaling::v1::Scale| scale.spec.and_then(|spec| spec.replicas);
    assert_eq!(wanted(web.get().await.expect("read").expect("there")), Some(1));
    assert_eq!(wanted(web.set(3).await.expect("set")), Some(3));
    assert_eq!(replicas().await, Some(3), "an own write");
    assert_eq!(client.lister::<Deployment>().get(&key("web")).and_then(|web| web.spec.as_ref()?.replicas), Some(3));
    let dry = web.set_with(9, WriteOptions::new().dry_run(true)).await.expect("would be set");
    assert_eq!((wanted(dry), replicas().await), (Some(9), Some(3)));
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    assert_eq!(wanted(web.patch(&patch).await.expect("patched")), Some(5));
    assert_eq!(replicas().await, Some(5));
    let stale = Patch::Merge(json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 6}}));
    assert!(web.patch(&stale).await.expect_err("older").is_conflict());

    let none = client.scale::<Deployment>(&key("none"));
    assert!(none.get().await.expect("read").is_none());
    let error = none.set(1).await.expect_err("there is none");
    assert!(error.is_not_found(), "{error}");
    assert!(error.to_string().starts_with("patch deployments.apps/v1 default/none (scale): "), "{error}");
    let dynamic = client.dynamic(&ApiResource::erase::<Deployment>(&()));
    assert_eq!(wanted(dynamic.scale(&key("web")).set(2).await.expect("set")), Some(2));
    assert_eq!(replicas().await, Some(2), "in every form of the kind");
    client.caches().stop().await;
}

#[tokio::test]
async fn an_eviction_that_a_budget_refuses_is_told_apart() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let pod = running(&client, "busy", Some("n1")).await;
    let budget = json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    let budget: PodDisruptionBudget = serde_json::from_value(budget).expect("a budget");
    client.create(&budget).await.expect("created");
    let allow = async |count: u8| {
        let status = json!({"status": {
            "observedGeneration": 1, "disruptionsAllowed": count, "currentHealthy": 1, "desiredHealthy": 1,
            "expectedPods": 1,
        }});
        client.patch_status::<PodDisruptionBudget>(&key("web"), &Patch::Merge(status)).await.expect("patched");
    };
    allow(0).await;
    let cached = async |name: &str| client.get::<Pod>(&key(name)).await.expect("read");
    assert!(cached("busy").await.is_some());
    silence.send_replace(true);

    let refused = client.evict(&key("busy"), DeleteOptions::new()).await.expect_err("cannot be spared");
    assert!(refused.is_too_many_requests() && !refused.is_conflict(), "{refused}");
    let told = "evict pods/v1 default/busy: Cannot evict pod as it would violate the pod's disruption budget.";
    assert_eq!(refused.to_string(), told);

    allow(1).await;
    let uid = |uid: &str| DeleteOptions::new().uid(uid);
    assert!(client.evict(&key("busy"), uid("another")).await.expect_err("another").is_conflict());
    allow(1).await;
    let dry = uid(pod.metadata.uid.as_deref().expect("a uid")).dry_run(true);
    assert!(client.evict(&key("busy"), dry).await.expect("would go"));
    assert!(cached("busy").await.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()));
    allow(1).await;
    let slowly = DeleteOptions::new().grace_period(Duration::from_secs(7));
    assert!(client.evict(&key("busy"), slowly).await.expect("going"));
    let going = cached("busy").await.expect("stopping");
    assert_eq!(going.metadata.deletion_grace_period_seconds, Some(7), "an own write");
    assert!(!client.evict(&key("none"), DeleteOptions::new()).await.expect("there is none"));
    client.caches().stop().await;
}

#[tokio::test]
async fn an_evicted_pod_leaves_the_cache() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    running(&client, "free", None).await;
    let metadata = client.objects::<kube::api::PartialObjectMeta<Pod>>();
    assert!(client.get::<Pod>(&key("free")).await.expect("read").is_some());
    assert!(metadata.get(&key("free")).await.expect("read").is_some());
    silence.send_replace(true);
    let at_once = DeleteOptions::new().grace_period(Duration::ZERO);
    assert!(client.evict(&key("free"), at_once).await.expect("evicted"));
    assert!(client.get::<Pod>(&key("free")).await.expect("read").is_none());
    assert!(metadata.get(&key("free")).await.expect("read").is_none());
    // Another of its name is another.
    running(&client, "free", None).await;
    assert!(client.get::<Pod>(&key("free")).await.expect("read").is_some());
    client.caches().stop().await;
}

#[tokio::test]
async fn tokens_have_an_audience_and_a_bound_object() {
    let bench = Bench::start().await;
    let client = bench.client();
    let named = |name: &str| json!({"metadata": {"namespace": "default", "name": name}});
    let account: ServiceAccount = serde_json::from_value(named("uploader")).expect("an account");
    client.create(&account).await.expect("created");
    let secret: Secret = serde_json::from_value(named("key")).expect("a secret");
    let secret = Arc::new(client.create(&secret).await.expect("created"));

    let hour = Duration::from_secs(3600);
    let options = TokenOptions::new().audiences(["vault"]).expiration(hour).bound_to(&secret);
    let before = Timestamp::now();
    let token = client.token(&key("uploader"), options).await.expect("issued");
    let claims = claims(token.as_str());
    assert_eq!(claims["aud"], json!(["vault"]));
    assert_eq!(claims["kubernetes.io"]["secret"]["uid"].as_str(), secret.metadata.uid.as_deref());
    let seconds = token.expires_at().duration_since(before).as_secs();
    assert!((3590..=3610).contains(&seconds), "{seconds}");
    assert!(!format!("{token:?}").contains(token.as_str()));

    let token = client.token(&key("uploader"), TokenOptions::new()).await.expect("issued");
    assert_eq!(self::claims(token.as_str())["kubernetes.io"]["secret"], Value::Null);
    let error = client.token(&key("none"), TokenOptions::new()).await.expect_err("no such account");
    assert!(error.is_not_found(), "{error}");
    assert!(error.to_string().starts_with("request a token of serviceaccounts/v1 default/none: "), "{error}");
    let short = TokenOptions::new().expiration(Duration::from_secs(1));
    assert!(client.token(&key("uploader"), short).await.expect_err("too short").is_invalid());
    client.caches().stop().await;
}

/// What a token says.
fn claims(token: &str) -> Value {
    use base64::Engine as _;
    let part = token.split('.').nth(1).expect("a token of three parts");
    let json = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).expect("encoded");
    serde_json::from_slice(&json).expect("JSON")
}

#[tokio::test]
async fn other_subresources_are_reached_by_name() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let pod = json!({
        "metadata": {"namespace": "default", "name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    client.create(&serde_json::from_value::<Pod>(pod).expect("a pod")).await.expect("created");
    let pods = client.objects::<Pod>();
    let cached = async || pods.get(&key("p")).await.expect("read").expect("there");
    assert_eq!(cached().await.spec.as_ref().and_then(|spec| spec.node_name.clone()), None);
    silence.send_replace(true);

    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    let answer: Value = pods.subresource("binding").create(&key("p"), &binding).await.expect("bound");
    assert_eq!(answer["status"], "Success");
    let bound = cached().await;
    assert_eq!(bound.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("n1"), "an own write");

    // Answered with the object itself.
    let status = pods.subresource("status");
    let phase = Patch::Merge(json!({"status": {"phase": "Running"}}));
    let patched: Pod = status.patch(&key("p"), &phase).await.expect("patched");
    assert_eq!(patched.metadata.name.as_deref(), Some("p"));
    let running = cached().await;
    assert_eq!(running.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Running"));
    let mut whole: Pod = status.get(&key("p")).await.expect("read").expect("there");
    whole.status.get_or_insert_default().phase = Some("Succeeded".into());
    let dry = WriteOptions::new().dry_run(true);
    let _: Pod = status.replace_with(&key("p"), &whole, dry).await.expect("would be replaced");
    assert_eq!(cached().await.metadata.resource_version, running.metadata.resource_version);
    let _: Pod = status.replace(&key("p"), &whole).await.expect("replaced");
    let over = cached().await;
    assert_eq!(over.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded"));

    assert_eq!(status.get::<Value>(&key("none")).await.expect("read"), None);
    let elsewhere = pods.subresource("../x").get::<Value>(&key("p")).await.expect_err("no such name");
    assert!(matches!(elsewhere, ClientError::InvalidName { .. }), "{elsewhere}");
    client.caches().stop().await;
}

#[tokio::test]
async fn a_closed_fence_holds_back_every_way_to_write() {
    let bench = Bench::start().await;
    let open = bench.client();
    deployment(&open, "web").await;
    running(&open, "p", None).await;
    let mut map = ConfigMap::default();
    (map.metadata.namespace, map.metadata.name) = (Some("default".into()), Some("m".into()));
    let map = open.create(&map).await.expect("created");
    let account = json!({"metadata": {"namespace": "default", "name": "sa"}});
    open.create(&serde_json::from_value::<ServiceAccount>(account).expect("an account")).await.expect("created");
    let thor = Arc::new(open.create(&pet("thor")).await.expect("created"));
    let before = *bench.server.api().store.revision().borrow();

    let fenced = CachedClient::standalone(Fence::closed().guard(bench.kube.clone()), "it");
    let (maps, merge) = (fenced.objects::<ConfigMap>(), Patch::Merge(json!({"data": {"a": "1"}})));
    let (m, p, web) = (key("m"), key("p"), fenced.scale::<Deployment>(&key("web")));
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    let mut draft = Draft::new(Arc::clone(&thor));
    draft.condition("Ready", true, "Stored", "");
    let mut children = windlass::children::Children::of(&fenced, &thor);
    let mut child = ConfigMap::default();
    child.metadata.name = Some("child".into());
    let in_default = || ListOptions::new().namespace("default");
    let refused = [
        ("create", maps.create_with(&map, WriteOptions::new()).await.err()),
        ("update", maps.update_with(&map, WriteOptions::new()).await.err()),
        ("update status", maps.update_status_with(&map, WriteOptions::new()).await.err()),
        ("patch", maps.patch_with(&m, &merge, WriteOptions::new()).await.err()),
        ("patch status", maps.patch_status_with(&m, &merge, WriteOptions::new()).await.err()),
        ("apply", maps.apply_with(&map, ApplyOptions::new()).await.err()),
        ("apply status", maps.apply_status_with(&map, ApplyOptions::new()).await.err()),
        ("a dry run", maps.apply_with(&map, ApplyOptions::new().dry_run(true)).await.err()),
        ("modify", maps.modify(&m, |map| map.immutable = Some(true)).await.err()),
        ("delete", maps.delete_with(&m, DeleteOptions::new()).await.err()),
        ("delete all", maps.delete_all_of(in_default(), DeleteOptions::new()).await.err()),
        ("scale", web.set(3).await.err()),
        ("patch a scale", web.patch(&Patch::Merge(json!({"spec": {"replicas": 3}}))).await.err()),
        ("evict", fenced.evict(&p, DeleteOptions::new()).await.err()),
        ("token", fenced.token(&key("sa"), TokenOptions::new()).await.err()),
        ("subresource", fenced.objects::<Pod>().subresource("binding").create::<Value>(&p, &binding).await.err()),
        ("commit", draft.commit(&fenced).await.err()),
        ("ensure", finalizer::ensure(&fenced, Arc::clone(&thor), "example.com/x").await.err()),
        (
            "child",
            match children.apply(child).await {
                Err(windlass::children::ChildError::Client(error)) => Some(error),
                _ => None,
            },
        ),
    ];
    for (what, error) in refused {
        let error = error.unwrap_or_else(|| panic!("{what} passes"));
        assert!(error.to_string().contains(&FenceClosed.to_string()), "{what}: {error}");
    }
    assert_eq!(bench.server.api().store.revision().borrow().clone(), before, "nothing was written");
    assert!(fenced.get::<Pet>(&key("thor")).await.expect("read").is_some(), "reads pass");
    assert_eq!(web.get().await.expect("read").and_then(|scale| scale.spec?.replicas), Some(1));
    fenced.caches().stop().await;
    open.caches().stop().await;
}
