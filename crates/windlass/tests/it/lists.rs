//! Lists by namespace, labels, fields and index: from the cache as from the server.

use std::collections::BTreeSet;

use fastrand::Rng;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{ApiResource, PostParams};
use kube::core::Selector;
use serde_json::json;
use windlass::cache::Scope;
use windlass::client::ClientError;
use windlass::client::options::ListOptions;
use windlass::controller::from_fn;
use windlass::{CachedClient, Controller, Manager, ObjectKey, Outcome};

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};
use crate::own_writes::{silenced, with_namespaces};

fn map(namespace: &str, name: &str, labels: &serde_json::Value) -> ConfigMap {
    let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
    serde_json::from_value(json!({"metadata": metadata})).expect("a map")
}

fn names<'o>(
    objects: impl IntoIterator<Item = &'o (impl std::ops::Deref<Target = ConfigMap> + 'o)>,
) -> BTreeSet<String> {
    objects.into_iter().map(|object| ObjectKey::of(&**object).to_string()).collect()
}

fn one<'t>(random: &mut Rng, of: &[&'t str]) -> &'t str {
    of[random.usize(..of.len())]
}

/// Any label selector, some of which are of things that no object has.
fn labels(random: &mut Rng) -> String {
    let requirement = |random: &mut Rng| {
        let key = one(random, &["app", "tier", "example.com/stage", "none"]);
        let value = |random: &mut Rng| one(random, &["web", "db", "1", "2", "10", ""]);
        let (first, second) = (value(random), value(random));
        match random.u8(..8) {
            0 => key.to_owned(),
            1 => format!("!{key}"),
            2 => format!("{key}={first}"),
            3 => format!("{key} != {first}"),
            4 => format!("{key} in ({first}, {second})"),
            5 => format!("{key} notin ({first},{second})"),
            6 => format!("{key}>{}", random.u8(..11)),
            _ => format!("{key}<{}", random.u8(..11)),
        }
    };
    (0..random.u8(..3)).map(|_| requirement(random)).collect::<Vec<_>>().join(",")
}

/// Any field selector that a server understands for pods.
fn fields(random: &mut Rng) -> String {
    let term = |random: &mut Rng| {
        let field = one(random, &["metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy"]);
        let operator = one(random, &["=", "==", "!="]);
        format!("{field}{operator}{}", one(random, &["", "a", "b", "p-1", "p-2", "n1", "n2", "Never", "Always"]))
    };
    (0..random.u8(..3)).map(|_| term(random)).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn a_cached_list_selects_what_the_server_selects() {
    let bench = Bench::start().await;
    with_namespaces(&bench).await;
    let client = bench.client();
    let mut random = Rng::with_seed(12);
    for number in 0..24 {
        let namespace = one(&mut random, &["a", "b"]);
        let mut labels = serde_json::Map::new();
        for key in ["app", "tier", "example.com/stage"] {
            if random.bool() {
                labels.insert(key.to_owned(), json!(one(&mut random, &["web", "db", "1", "2", "10", ""])));
            }
        }
        let node = random.bool().then(|| one(&mut random, &["n1", "n2"]));
        let pod = json!({
            "metadata": {"namespace": namespace, "name": format!("p-{number}"), "labels": labels},
            "spec": {
                "nodeName": node, "restartPolicy": one(&mut random, &["Always", "Never"]),
                "containers": [{"name": "c", "image": "i"}],
            },
        });
        client.create(&serde_json::from_value::<Pod>(pod).expect("a pod")).await.expect("created");
    }
    let names = |pods: Vec<ObjectKey>| pods.into_iter().collect::<BTreeSet<_>>();
    let mut selected = BTreeSet::new();
    for _ in 0..300 {
        let (labels, fields) = (labels(&mut random), fields(&mut random));
        let namespace = one(&mut random, &["", "a", "b"]);
        let options = ListOptions::new().namespace(namespace).labels(labels.as_str()).fields(fields.as_str());
        let live = client.live().list_with::<Pod>(options.clone()).await.expect("listed");
        let cached = client.list_with::<Pod>(options).await.expect("listed");
        let live = names(live.iter().map(ObjectKey::of).collect());
        let cached = names(cached.iter().map(ObjectKey::of).collect());
        assert_eq!(cached, live, "namespace {namespace:?}, labels {labels:?}, fields {fields:?}");
        selected.insert(live.len());
    }
    assert!(selected.len() > 10, "the selectors select few and many: {selected:?}");
    client.caches().stop().await;
}

#[tokio::test]
async fn unknown_fields_are_selected_in_the_cache() {
    let bench = Bench::start().await;
    let client = bench.client();
    let mut thor = pet("thor");
    thor.spec.name = "Thor".into();
    client.create(&thor).await.expect("created");
    client.create(&pet("loki")).await.expect("created");
    let by = |fields: &str| ListOptions::new().fields(fields);
    let found = client.list_with::<Pet>(by("spec.name=Thor")).await.expect("listed");
    assert_eq!(found.iter().map(ObjectKey::of).collect::<Vec<_>>(), [ObjectKey::new("default", "thor")]);
    let dynamic = client.dynamic(&ApiResource::erase::<Pet>(&()));
    assert_eq!(dynamic.list_with(by("spec.name!=Thor")).await.expect("listed").len(), 1);
    assert_eq!(client.list_with::<Pet>(by("status.id=")).await.expect("listed").len(), 2, "missing is empty");

    let refused = client.list_with::<Pet>(by("spec.tricks=sit")).await.expect_err("a list");
    let told = "list pets.petstore.example.com/v1: field selector: spec.tricks is not a single value";
    assert_eq!(refused.to_string(), told);
    let refused = client.live().list_with::<Pet>(by("spec.name=Thor")).await.expect_err("not known");
    assert!(refused.to_string().contains("field label not supported"), "{refused}");
    client.caches().stop().await;
}

#[tokio::test]
async fn what_cannot_be_listed_is_said() {
    let bench = Bench::start().await;
    let client = bench.client();
    let list = async |options: ListOptions| {
        let cached = client.list_with::<ConfigMap>(options.clone()).await.expect_err("refused").to_string();
        let live = client.live().list_with::<ConfigMap>(options).await.err().map(|error| error.to_string());
        (cached, live)
    };
    let (cached, live) = list(ListOptions::new().labels("app=(")).await;
    assert_eq!(cached, "list configmaps/v1: label selector \"app=(\": expected a value, found \"(\"");
    assert_eq!(live, Some(cached));
    let (cached, live) = list(ListOptions::new().index("node", "n1")).await;
    assert!(cached.starts_with("list configmaps/v1: there is no index \"node\""), "{cached}");
    assert_eq!(
        live.as_deref(),
        Some("list configmaps/v1: a server does not know the index \"node\": list from the cache")
    );
    let (cached, _) = list(ListOptions::new().continue_from("token")).await;
    assert!(cached.contains("no pages"), "{cached}");
    client.caches().stop().await;
}

#[tokio::test]
async fn an_index_narrows_a_list_with_all_else() {
    let bench = Bench::start().await;
    with_namespaces(&bench).await;
    let client = bench.client();
    for (namespace, name, app) in [("a", "x", "web"), ("a", "y", "db"), ("b", "z", "web")] {
        client.create(&map(namespace, name, &json!({"app": app, "own": "1"}))).await.expect("created");
    }
    // A namespace that is watched by itself does not have the index, and is not asked for it.
    let scope = Scope::default().namespace("a");
    client.caches().lister_in::<ConfigMap>(&(), &scope).wait_synced().await.expect("listed");
    client.lister::<ConfigMap>().add_index("app", |map: &ConfigMap| {
        map.metadata.labels.iter().filter_map(|labels| labels.get("app").cloned()).collect()
    });
    let web = || ListOptions::new().index("app", "web");
    let list = async |options: ListOptions| {
        let maps = client.list_with::<ConfigMap>(options).await.expect("listed");
        names(&maps).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(list(web()).await, ["a/x", "b/z"]);
    assert_eq!(list(web().namespace("b")).await, ["b/z"]);
    assert_eq!(list(web().labels("own=1").fields("metadata.name!=z")).await, ["a/x"]);
    assert_eq!(list(web().labels("!own")).await, [""; 0]);
    assert_eq!(list(web().limit(1)).await.len(), 1);
    assert_eq!(list(ListOptions::new().namespace("a").labels("own").limit(1)).await.len(), 1);
    client.caches().stop().await;
}

#[tokio::test]
async fn a_selected_list_shows_own_writes_at_once() {
    let bench = Bench::start().await;
    let (client, silence) = silenced(&bench);
    let web = || ListOptions::new().namespace("default").labels("app=web");
    assert!(client.list_with::<ConfigMap>(web()).await.expect("listed").is_empty());
    silence.send_replace(true);
    let written = client.create(&map("default", "x", &json!({"app": "web"}))).await.expect("created");
    assert_eq!(names(&client.list_with::<ConfigMap>(web()).await.expect("listed")).len(), 1);
    let mut other = written.clone();
    other.metadata.labels = Some([("app".to_owned(), "db".to_owned())].into());
    client.update(&other).await.expect("updated");
    assert!(client.list_with::<ConfigMap>(web()).await.expect("listed").is_empty(), "not selected any more");
    client.caches().stop().await;
}

/// A namespace does not need a watch of all namespaces, and one that the manager was not given is an error.
#[tokio::test]
async fn a_list_of_a_namespace_stays_in_the_managers_namespaces() {
    let bench = Bench::start().await;
    with_namespaces(&bench).await;
    let manager = Manager::builder(bench.kube.clone()).name("it").namespaces(["a"]).build().expect("built");
    let client: CachedClient = manager.client().clone();
    client.caches().start();
    client.create(&map("a", "x", &json!({}))).await.expect("created");
    let list = async |namespace: &str| client.list_with::<ConfigMap>(ListOptions::new().namespace(namespace)).await;
    assert_eq!(list("a").await.expect("listed").len(), 1);
    let error = list("b").await.expect_err("not watched");
    assert!(matches!(&error, ClientError::Cache(_)) && error.to_string().contains("\"b\""), "{error}");
    // What is in no namespace is in none of them.
    let all = client.list_with::<Namespace>(ListOptions::new().namespace("a")).await.expect("listed");
    assert!(all.len() > 1);
    client.caches().stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_lists_the_part_that_it_looks_after() {
    let (bench, log) = (Bench::start().await, Log::default());
    let client = bench.kube.clone();
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client, "default");
    for (name, labels) in [("a", json!({"own": "1", "app": "web"})), ("b", json!({"app": "web"}))] {
        maps.create(&PostParams::default(), &map("default", name, &labels)).await.expect("created");
    }
    let own: Selector = [("own", "1")].into_iter().collect();
    let seen = log.clone();
    let reconciler = from_fn(move |_: std::sync::Arc<ConfigMap>, ctx: windlass::Context| {
        let seen = seen.clone();
        async move {
            let web = || ListOptions::new().labels("app=web");
            let part = ctx.list_with::<ConfigMap>(web()).await?.len();
            let all = ctx.client().list_with::<ConfigMap>(web()).await?.len();
            seen.push((part, all));
            Ok(Outcome::Done)
        }
    });
    let mut manager = bench.manager();
    let controller = Controller::<ConfigMap>::new("maps").scope(Scope::default().labels(own));
    manager.add(controller.complete(reconciler)).expect("added");
    let running = Running::start(manager);
    wait_for("it is reconciled", async || log.contains(&(1, 2))).await;
    running.stop().await.expect("stopped");
}
