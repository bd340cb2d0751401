//! Servers that are slow, forget who we are, or lose a kind; replicas that stand still.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::core::Selector;
use kube::{CustomResourceExt, ResourceExt};
use serde_json::json;
use tower::ServiceExt;
use windlass::cache::Scope;
use windlass::client::ClientError;
use windlass::controller::from_key_fn;
use windlass::informer::Change;
use windlass::lease::LeaderElection;
use windlass::rbac::Rules;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::pki::Authority;
use windlass_store::{Durable, DurableOptions};

use crate::bench::{Bench, Frozen, Log, Pet, Running, pet, wait_for, write_kubeconfig};

pub type Answer = http::Response<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, tower::BoxError>>;

/// A client whose requests pass through `meddle`, which answers itself or lets them go on.
pub fn through<F, Fut>(bench: &Bench, meddle: F) -> kube::Client
where
    F: Fn(http::Request<kube::client::Body>, windlass_server::Service) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let service = bench.server.service();
    let meddling = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let answer = meddle(request, service.clone());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    kube::Client::new(meddling, "default")
}

pub async fn forward(request: http::Request<kube::client::Body>, service: windlass_server::Service) -> Answer {
    let Ok(response) = service.oneshot(request).await;
    response.map(|body| body.map_err(tower::BoxError::from).boxed_unsync())
}

/// An operator that keeps a bowl for every pet.
fn bowls(client: kube::Client) -> Manager {
    let mut manager = Manager::builder(client).name("bowls").build().expect("built");
    let reconciler = from_key_fn(|key: ObjectKey, ctx: Context| async move {
        if let Some(pet) = ctx.get::<Pet>(&key).await? {
            let mut bowl = ConfigMap::default();
            bowl.metadata.name = Some(format!("bowl-of-{}", key.name()));
            let mut children = ctx.children(&pet);
            children.apply(bowl).await?;
            children.prune().await?;
        }
        Ok(Outcome::Done)
    });
    manager.add(Controller::<Pet>::new("bowls").owns::<ConfigMap>().complete_keyed(reconciler)).expect("added");
    manager
}

async fn bowl(bench: &Bench, name: &str) -> bool {
    let maps: Api<ConfigMap> = Api::namespaced(bench.kube.clone(), "default");
    maps.get_opt(&format!("bowl-of-{name}")).await.expect("read").is_some()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_seconds_is_waited_for() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let slow = through(&bench, |request, service| async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let answer = forward(request, service).await;
        // Bodies come in small pieces, with pauses in the middle of lines.
        answer.map(|body| {
            let pieces = body.into_data_stream().flat_map(|data| {
                let data = data.unwrap_or_default();
                let pieces: Vec<_> = data.chunks(100).map(bytes::Bytes::copy_from_slice).collect();
                futures::stream::iter(pieces)
            });
            let pieces = pieces.then(async |piece| {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok::<_, tower::BoxError>(http_body::Frame::data(piece))
            });
            StreamBody::new(pieces).boxed_unsync()
        })
    });
    let running = Running::start(bowls(slow));
    wait_for("the old pet's bowl", async || bowl(&bench, "thor").await).await;
    bench.create(&pet("tron")).await;
    wait_for("the new pet's bowl", async || bowl(&bench, "tron").await).await;
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_expire_and_are_renewed_lose_nothing() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let (expired, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_expired, count) = (Arc::clone(&expired), Arc::clone(&refused));
    let client = through(&bench, move |request, service| {
        let (expired, count) = (Arc::clone(&is_expired), Arc::clone(&count));
        async move {
            if expired.load(Ordering::Relaxed) {
                count.fetch_add(1, Ordering::Relaxed);
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "message": "Unauthorized", "reason": "Unauthorized", "code": 401});
                let body = Full::new(bytes::Bytes::from(status.to_string())).map_err(tower::BoxError::from);
                let mut answer = http::Response::new(body.boxed_unsync());
                *answer.status_mut() = http::StatusCode::UNAUTHORIZED;
                return answer;
            }
            // A token that expires also ends the watches opened with it.
            let answer = forward(request, service).await;
            answer.map(|body| {
                let until = async move {
                    while !expired.load(Ordering::Relaxed) {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                };
                let frames = body.into_data_stream().map(|data| data.map(http_body::Frame::data));
                StreamBody::new(frames.take_until(Box::pin(until))).boxed_unsync()
            })
        }
    });
    let running = Running::start(bowls(client));
    wait_for("the first bowl", async || bowl(&bench, "thor").await).await;
    expired.store(true, Ordering::Relaxed);
    bench.create(&pet("tron")).await;
    wait_for("refusals", async || refused.load(Ordering::Relaxed) >= 3).await;
    assert!(!bowl(&bench, "tron").await);
    expired.store(false, Ordering::Relaxed);
    wait_for("the second bowl", async || bowl(&bench, "tron").await).await;
    running.stop().await.expect("stopped");
}

/// The server forgets its history in the middle of every watch, right behind an object's change.
#[tokio::test(start_paused = true)]
async fn repeated_gone_errors_in_a_watch_lose_nothing() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let gone = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&gone);
    let client = through(&bench, move |request, service| {
        let (count, watch) = (Arc::clone(&count), request.uri().query().is_some_and(|query| query.contains("watch=")));
        async move {
            let answer = forward(request, service).await;
            if !watch {
                return answer;
            }
            answer.map(|body| {
                let status = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1",
                    "status": "Failure", "reason": "Expired", "code": 410, "message": "too old resource version"}});
                let mut seen = 0;
                let frames = body.into_data_stream().map(move |data| {
                    let data = data.unwrap_or_default();
                    let text = String::from_utf8_lossy(&data).into_owned();
                    seen += usize::from(!text.contains("initial-events-end") && text.contains("\"MODIFIED\""));
                    if seen == 0 {
                        return data;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                    // Whole lines, then the error, then more that must not be read.
                    bytes::Bytes::from(format!("{text}{status}\n{{\"type\":\"nonsense\"}}\n"))
                });
                StreamBody::new(frames.map(|data| Ok(http_body::Frame::data(data)))).boxed_unsync()
            })
        }
    });
    let log: Log<usize> = Log::default();
    let seen = log.clone();
    let mut manager = Manager::builder(client).name("it").build().expect("built");
    let lister = manager.lister::<Pet>();
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let seen = seen.clone();
        async move {
            seen.push(ctx.get::<Pet>(&key).await?.map_or(usize::MAX, |pet| pet.spec.tricks.len()));
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let running = Running::ready(manager).await;
    for tricks in 1..=20 {
        let patch = Patch::Merge(json!({"spec": {"tricks": vec!["sit"; tricks]}}));
        bench.pets().patch("thor", &PatchParams::default(), &patch).await.expect("patched");
        wait_for("the change", async || log.contains(&tricks)).await;
        assert_eq!(lister.len(), 1, "never empty");
        // A history that is lost more often than this is asked for less and less often.
        tokio::time::sleep(Duration::from_secs(120)).await;
    }
    assert!(!log.contains(&usize::MAX), "never gone");
    assert!(gone.load(Ordering::Relaxed) >= 20);
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_removed_and_comes_back_is_followed() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let log: Log<(String, bool)> = Log::default();
    let seen = log.clone();
    let mut manager = bench.manager();
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let seen = seen.clone();
        async move {
            let there = ctx.get::<Pet>(&key).await?.is_some();
            seen.push((key.name().to_owned(), there));
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let lister = manager.lister::<Pet>();
    let running = Running::start(manager);
    wait_for("the pet", async || log.contains(&("thor".into(), true))).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    definitions.delete(Pet::crd_name(), &DeleteParams::default()).await.expect("deleted");
    wait_for("the end of the pet", async || log.contains(&("thor".into(), false))).await;
    wait_for("the end of the kind", async || definitions.get_opt(Pet::crd_name()).await.expect("read").is_none()).await;
    assert!(lister.is_empty());
    bench.install().await;
    bench.create(&pet("tron")).await;
    wait_for("the new pet", async || log.contains(&("tron".into(), true))).await;
    assert_eq!(lister.len(), 1);
    running.stop().await.expect("stopped");
}

/// A definition stops serving the version that is watched; its objects stay.
#[tokio::test(start_paused = true)]
async fn objects_of_unserved_versions_are_not_gone() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let (asked, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let kube = through(&bench, move |request, service| {
        count.fetch_add(usize::from(request.uri().path() == "/apis"), Ordering::Relaxed);
        // Watches are cut now and then, so that the kind is looked for again.
        async move {
            forward(request, service).await.map(|body| {
                let frames = body.into_data_stream().map(|data| data.map(http_body::Frame::data));
                StreamBody::new(frames.take_until(Box::pin(tokio::time::sleep(Duration::from_secs(5))))).boxed_unsync()
            })
        }
    });
    let client = windlass::CachedClient::standalone(kube, "it");
    let lister = client.lister::<Pet>();
    let count = Arc::clone(&ended);
    let subscription = lister.subscribe(move |change| {
        count.fetch_add(usize::from(matches!(change, Change::Deleted { .. })), Ordering::Relaxed);
    });
    lister.wait_synced().await.expect("synced");
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    serve(&definitions, false).await;
    let looked = asked.load(Ordering::Relaxed);
    for more in 1..=2 {
        wait_for("somebody asks what is served", async || asked.load(Ordering::Relaxed) >= looked + more).await;
    }
    assert_eq!((lister.len(), ended.load(Ordering::Relaxed)), (1, 0));
    serve(&definitions, true).await;
    wait_for("pets", async || bench.pets().get_opt("thor").await.is_ok_and(|thor| thor.is_some())).await;
    bench.create(&pet("tron")).await;
    wait_for("the new pet", async || lister.len() == 2).await;
    assert_eq!(ended.load(Ordering::Relaxed), 0);
    drop(subscription);
    client.caches().stop().await;
}

/// Such an operator knows of definitions only what discovery says: to it, one of which no version is served
/// looks as one that was deleted.
#[tokio::test(start_paused = true)]
async fn unserved_kinds_are_gone_without_access_to_definitions() {
    for deleted in [true, false] {
        let bench = Bench::start().await;
        bench.create(&pet("thor")).await;
        let mut rules = Rules::default();
        rules.allow(None, "petstore.example.com", ["pets"], ["get", "list", "watch"]);
        bench.grant("operator", &rules).await;
        let user = User { name: "operator".into(), groups: vec!["system:authenticated".into()], ..User::anonymous() };
        let (service, refused) = (bench.server.service_as(user), Arc::new(AtomicUsize::new(0)));
        let (down, missed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (count, is_down, misses) = (Arc::clone(&refused), Arc::clone(&down), Arc::clone(&missed));
        let kube = through(&bench, move |request, _| {
            let (service, count) = (service.clone(), Arc::clone(&count));
            let is_down = is_down.load(Ordering::Relaxed);
            misses.fetch_add(usize::from(is_down), Ordering::Relaxed);
            let definition = request.uri().path().contains("/customresourcedefinitions/");
            // Watches are cut now and then, so that the kind is looked for again.
            async move {
                if is_down {
                    let mut answer =
                        http::Response::new(http_body_util::Empty::new().map_err(Into::into).boxed_unsync());
                    *answer.status_mut() = http::StatusCode::BAD_GATEWAY;
                    return answer;
                }
                let answer = forward(request, service).await;
                let forbidden = definition && answer.status() == http::StatusCode::FORBIDDEN;
                count.fetch_add(usize::from(forbidden), Ordering::Relaxed);
                answer.map(|body| {
                    let frames = body.into_data_stream().map(|data| data.map(http_body::Frame::data));
                    let cut = Box::pin(tokio::time::sleep(Duration::from_secs(5)));
                    StreamBody::new(frames.take_until(cut)).boxed_unsync()
                })
            }
        });
        let client = windlass::CachedClient::standalone(kube, "it");
        let (lister, log) = (client.lister::<Pet>(), Log::default());
        let seen = log.clone();
        let subscription = lister.subscribe(move |change| match change {
            Change::Added { object, .. } => seen.push(format!("+{}", object.name_any())),
            Change::Deleted { object } => seen.push(format!("-{}", object.name_any())),
            _ => {}
        });
        lister.wait_synced().await.expect("synced");
        let definitions: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
        // The operator sees nothing of what happens: not the end of the objects either.
        down.store(true, Ordering::Relaxed);
        wait_for("the end of the watch", async || missed.load(Ordering::Relaxed) > 0).await;
        if deleted {
            definitions.delete(Pet::crd_name(), &DeleteParams::default()).await.expect("deleted");
            let there = async || definitions.get_opt(Pet::crd_name()).await.expect("read").is_some();
            wait_for("the end of the kind", async || !there().await).await;
        } else {
            serve(&definitions, false).await;
        }
        assert_eq!(lister.len(), 1);
        down.store(false, Ordering::Relaxed);
        wait_for("the end of the pet", async || lister.is_empty()).await;
        assert!(refused.load(Ordering::Relaxed) > 0, "asked for the definition");
        if deleted {
            bench.install().await;
            bench.create(&pet("thor")).await;
        } else {
            serve(&definitions, true).await;
        }
        wait_for("the pet again", async || lister.len() == 1).await;
        assert_eq!(log.entries(), ["+thor", "-thor", "+thor"], "deleted: {deleted}");
        drop(subscription);
        client.caches().stop().await;
    }
}

/// Has a definition serve its version, or not.
async fn serve(definitions: &Api<CustomResourceDefinition>, served: bool) {
    let patch = Patch::Json::<()>(
        serde_json::from_value(json!([{"op": "replace", "path": "/spec/versions/0/served", "value": served}]))
            .expect("a patch"),
    );
    definitions.patch(Pet::crd_name(), &PatchParams::default(), &patch).await.expect("patched");
}

/// The manager is told to stop while a reconcile works; what it reads then has been there all the time.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_is_drained_still_reads_what_is_cached() {
    let bench = Bench::start().await;
    let mut thor = pet("thor");
    thor.metadata.labels = Some([("size".to_owned(), "big".to_owned())].into());
    bench.create(&thor).await;
    let log: Log<Result<(usize, bool, usize), String>> = Log::default();
    let (seen, (begun, mut begins)) = (log.clone(), tokio::sync::mpsc::unbounded_channel());
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let (seen, begun) = (seen.clone(), begun.clone());
        async move {
            begun.send(()).expect("awaited");
            ctx.shutdown().cancelled().await;
            // By now no reader may wait for a first list any more.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let read = async {
                let pets = ctx.list::<Pet>().await?.len();
                let found = ctx.get::<Pet>(&key).await?.is_some();
                Ok::<_, ClientError>((pets, found, ctx.client().list::<ConfigMap>().await?.len()))
            };
            seen.push(read.await.map_err(|error| error.to_string()));
            Ok(Outcome::Done)
        }
    });
    let mut manager = bench.manager();
    manager.lister::<ConfigMap>();
    let big: Selector = [("size", "big")].into_iter().collect();
    let pets = Controller::<Pet>::new("pet").scope(Scope::default().labels(big));
    manager.add(pets.complete_keyed(reconciler)).expect("added");
    let running = Running::ready(manager).await;
    begins.recv().await.expect("a reconcile");
    running.stop().await.expect("stopped");
    assert!(matches!(log.entries()[..], [Ok((1, true, _))]), "{log:?}");
}

/// The server goes away, with every connection, and comes back with what it had on disk.
#[tokio::test]
async fn server_restarts_are_followed_and_nothing_is_gone() {
    let files = tempfile::tempdir().expect("a directory");
    let start = async || {
        let (store, _) = Durable::open(files.path().join("data"), DurableOptions::default()).expect("opened");
        Server::builder().store(Arc::new(store)).token("operator", User::admin()).start().await.expect("started")
    };
    let bench = Bench::of(start().await).await;
    bench.create(&pet("thor")).await;
    let authority = Authority::generate().expect("made");
    let mut listener =
        bench.server.listen("127.0.0.1:0".parse().expect("an address"), &authority).await.expect("bound");
    let address = listener.address();
    let kubeconfig = write_kubeconfig(files.path(), address, &authority, "operator");
    let client = windlass::config::Loader::default().kubeconfig(kubeconfig).client().await.expect("a client");
    let manager = bowls(client);
    let (lister, ended) = (manager.lister::<Pet>(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&ended);
    lister
        .subscribe(move |change| {
            count.fetch_add(usize::from(matches!(change, Change::Deleted { .. })), Ordering::Relaxed);
        })
        .forever();
    let running = Running::ready(manager).await;
    wait_for("the first bowl", async || bowl(&bench, "thor").await).await;
    let mut bench = bench;
    for name in ["tron", "odin"] {
        listener.stop().await;
        bench.server.stop().await.expect("stopped");
        let server = start().await;
        listener = server.listen(address, &authority).await.expect("bound again");
        bench = Bench { kube: kube::Client::new(server.service(), "default"), server };
        bench.create(&pet(name)).await;
        wait_for("its bowl", async || bowl(&bench, name).await).await;
    }
    assert_eq!((lister.len(), ended.load(Ordering::Relaxed)), (3, 0));
    running.stop().await.expect("stopped");
    listener.stop().await;
}

/// Two replicas fight for the lease; the process of the one that leads is stopped in the middle of a
/// reconcile, as with SIGSTOP.
#[tokio::test]
async fn leaders_suspended_in_a_reconcile_write_nothing() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let election = |identity: &str| {
        LeaderElection::new("lock")
            .identity(identity)
            .lease_duration(Duration::from_secs(1))
            .renew_deadline(Duration::from_millis(600))
            .retry_period(Duration::from_millis(50))
    };
    let leads = election("a");
    let mut frozen = Frozen::start(bench.kube.clone(), move |kube| {
        let manager = Manager::builder(kube).name("a").leader_election(leads).build().expect("built");
        (manager, Controller::<Pet>::new("pet"))
    });
    frozen.standing().await;
    let log: Log<&str> = Log::default();
    let seen = log.clone();
    let builder = Manager::builder(bench.kube.clone()).name("b").leader_election(election("b"));
    let mut manager = builder.build().expect("built");
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let seen = seen.clone();
        async move {
            let patch = Patch::Merge(json!({"spec": {"tricks": ["by b"]}}));
            ctx.client().patch::<Pet>(&key, &patch).await?;
            seen.push("b");
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let second = Running::start(manager);
    wait_for("b leads", async || log.contains(&"b")).await;
    let written = frozen.wake_and_stop().await;
    assert!(!written.contains(&true), "a wrote after its time");
    let live = bench.pets().get("thor").await.expect("there");
    assert_eq!(live.spec.tricks, ["by b"]);
    second.stop().await.expect("stopped");
}
