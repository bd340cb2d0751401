//! API servers are told whom to trust, whatever stands in the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::{Either, Full};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use windlass::Manager;
use windlass::webhook::{Certificates, Conversion, Reach, SelfManaged, Webhooks};

use super::certificates::{configuration, published};
use super::{DEFAULT, Rules, VALIDATE, bundle, certificates, settings, webhooks};
use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

const CRD: &str = "pets.petstore.example.com";

/// What becomes of a request on its way.
#[derive(Clone, Copy)]
enum Fate {
    Passes,
    IsRefused,
    IsNeverAnswered,
}

/// A client whose requests fare as a function says, of their method and path with query.
fn client(bench: &Bench, fate: impl Fn(&Method, &str) -> Fate + Clone + Send + 'static) -> kube::Client {
    let service = bench.server.service();
    let between = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let (mut service, fate) = (service.clone(), fate(request.method(), &path));
        async move {
            match fate {
                Fate::Passes => {}
                Fate::IsNeverAnswered => std::future::pending().await,
                Fate::IsRefused => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                        "reason": "Forbidden", "message": "scripted"});
                    let mut refusal = http::Response::new(Either::Right(Full::<Bytes>::from(status.to_string())));
                    *refusal.status_mut() = http::StatusCode::FORBIDDEN;
                    return Ok::<_, std::convert::Infallible>(refusal);
                }
            }
            let answer = tower::Service::call(&mut service, request).await.unwrap_or_else(|never| match never {});
            Ok(answer.map(Either::Left))
        }
    });
    kube::Client::new(between, "default")
}

fn operator(client: kube::Client, webhooks: Webhooks) -> Manager {
    let mut manager = Manager::builder(client).name("it").build().expect("a manager");
    manager.add_webhooks(webhooks).expect("added");
    manager
}

/// Looked at when something changes, and not for an hour otherwise.
fn seldom(settings: SelfManaged) -> Certificates {
    Certificates::self_managed(settings).check_every(Duration::from_secs(3600))
}

async fn conversion(bench: &Bench) -> Value {
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    let found = definitions.get(CRD).await.expect("there").spec.conversion.expect("a conversion");
    serde_json::to_value(found.webhook.expect("a webhook").client_config.expect("a client")).expect("encoded")
}

#[tokio::test(start_paused = true)]
async fn conversions_move_between_urls_services_and_ports() {
    let bench = Bench::start().await;
    let service = |port| Reach::Service { namespace: "default".into(), name: "hook".into(), port };
    for (reach, expected) in [
        (Reach::url("https://127.0.0.1:1"), json!({"url": "https://127.0.0.1:1/convert", "service": null})),
        (service(8443), json!({"url": null, "service": {"name": "hook", "port": 8443}})),
        (service(443), json!({"url": null, "service": {"name": "hook", "port": 443}})),
        (Reach::url("https://127.0.0.1:2"), json!({"url": "https://127.0.0.1:2/convert", "service": null})),
    ] {
        let converting = Webhooks::new().listen("127.0.0.1:0").conversion(Conversion::<Pet>::new());
        let settings = SelfManaged::new("default").register("it").reach(reach);
        let running = Running::ready(operator(bench.kube.clone(), converting.certificates(seldom(settings)))).await;
        let found = conversion(&bench).await;
        assert_eq!(found["url"], expected["url"], "{found}");
        for field in ["name", "port"] {
            assert_eq!(found["service"][field], expected["service"][field], "{found}");
        }
        running.stop().await.expect("stopped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_comes_later_or_again_is_moved_here() {
    let bench = Bench::start().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    let delete = async || {
        definitions.delete(CRD, &DeleteParams::default()).await.expect("deleted");
        wait_for("gone", async || definitions.get_opt(CRD).await.expect("read").is_none()).await;
    };
    delete().await;
    let converting = Webhooks::new().listen("127.0.0.1:0").conversion(Conversion::<Pet>::new());
    let settings = SelfManaged::new("default").register("it").reach(Reach::url("https://127.0.0.1:1"));
    let running = Running::ready(operator(bench.kube.clone(), converting.certificates(seldom(settings)))).await;
    for _ in 0..2 {
        let mut elsewhere = serde_json::to_value(<Pet as kube::CustomResourceExt>::crd()).expect("encoded");
        elsewhere["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:2/convert"},
        }});
        let elsewhere = serde_json::from_value(elsewhere).expect("a definition");
        definitions.create(&PostParams::default(), &elsewhere).await.expect("created");
        wait_for("moved here", async || conversion(&bench).await["url"] == "https://127.0.0.1:1/convert").await;
        delete().await;
    }
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_has_nothing_else_made_again() {
    let bench = Bench::start().await;
    let (applied, refused): (Log<String>, Log<()>) = (Log::default(), Log::default());
    let (made, no) = (applied.clone(), refused.clone());
    let client = client(&bench, move |method, path| {
        if method == Method::PATCH && path.contains("customresourcedefinitions") {
            no.push(());
            return Fate::IsRefused;
        }
        if method == Method::PATCH && path.contains("force=true") {
            made.push(path.to_owned());
        }
        Fate::Passes
    });
    let webhooks = webhooks(&Rules::default(), certificates(settings())).conversion(Conversion::<Pet>::new());
    let running = Running::ready(operator(client, webhooks)).await;
    wait_for("tried again and again", async || refused.len() >= 4).await;
    let applied = applied.entries();
    assert_eq!(applied.len(), 2, "{applied:?}");
    running.stop().await.expect("stopped");
}

/// A configuration that leads to the Service, and one that does not.
async fn create(bench: &Bench, name: &str) -> Api<MutatingWebhookConfiguration> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(bench.kube.clone());
    let mut made = configuration("");
    made["metadata"]["name"] = name.into();
    api.create(&PostParams::default(), &serde_json::from_value(made).expect("a configuration")).await.expect("created");
    api
}

#[tokio::test(start_paused = true)]
async fn refused_configurations_do_not_hold_up_others() {
    let bench = Bench::start().await;
    let api = create(&bench, "a").await;
    create(&bench, "b").await;
    let injected = async |name: &str| {
        let webhooks = api.get(name).await.expect("there").webhooks.expect("webhooks");
        webhooks[1].client_config.ca_bundle.as_ref().is_some_and(|bundle| !bundle.0.is_empty())
    };
    // All that lead here, and those of certain names.
    let all = SelfManaged::new("default").service("hook");
    let named = all.clone().register("it").inject_into(["a", "c"]);
    for (settings, other) in [(all, "b"), (named, "c")] {
        let client = client(&bench, |method, path| {
            let no = path.contains("/a?") || path.contains("/it-mutating-webhook-configuration?");
            if method == Method::PATCH && no { Fate::IsRefused } else { Fate::Passes }
        });
        if other == "c" {
            create(&bench, other).await;
        }
        let running = Running::ready(operator(client, webhooks(&Rules::default(), seldom(settings)))).await;
        assert!(injected(other).await && !injected("a").await);
        assert_eq!(published(&bench).await, None, "not everybody knows");
        running.stop().await.expect("stopped");
    }
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(bench.kube.clone());
    let made = validating.get_opt("it-validating-webhook-configuration").await.expect("read");
    assert!(made.is_some(), "made although the other one is refused");
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_changes_meanwhile_is_injected_at_once() {
    let bench = Bench::start().await;
    let api = create(&bench, "theirs").await;
    let (service, kube) = (bench.server.service(), bench.kube.clone());
    let first = Arc::new(AtomicBool::new(true));
    let racing = tower::service_fn(move |request: http::Request<Body>| {
        let (mut service, kube) = (service.clone(), kube.clone());
        let race = request.method() == Method::PATCH
            && request.uri().path().ends_with("/theirs")
            && first.swap(false, Ordering::SeqCst);
        async move {
            if race {
                let mut webhooks = configuration("")["webhooks"].as_array().expect("webhooks").clone();
                webhooks.reverse();
                let api: Api<MutatingWebhookConfiguration> = Api::all(kube);
                let turned = Patch::Merge(json!({"webhooks": webhooks}));
                api.patch("theirs", &PatchParams::default(), &turned).await.expect("turned");
            }
            tower::Service::call(&mut service, request).await
        }
    });
    let settings = seldom(SelfManaged::new("default").service("hook"));
    let client = kube::Client::new(racing, "default");
    let running = Running::ready(operator(client, webhooks(&Rules::default(), settings))).await;
    assert!(published(&bench).await.is_some(), "everybody knows");
    let found = api.get("theirs").await.expect("there").webhooks.expect("webhooks");
    let trusted =
        |index: usize| found[index].client_config.ca_bundle.clone().map(|bundle| bundle.0).unwrap_or_default();
    assert_eq!(trusted(0), bundle(&bench).await.into_bytes());
    assert!(trusted(1).is_empty(), "not ours");
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn unanswered_requests_do_not_hold_up_webhooks() {
    for (silent, path) in [(Method::GET, "/secrets/"), (Method::PATCH, "mutatingwebhookconfigurations")] {
        let bench = Bench::start().await;
        let first = Arc::new(AtomicBool::new(true));
        let client = client(&bench, move |method, asked| {
            let silent = method == silent && asked.contains(path) && first.swap(false, Ordering::SeqCst);
            if silent { Fate::IsNeverAnswered } else { Fate::Passes }
        });
        let running = Running::ready(operator(client, webhooks(&Rules::default(), seldom(settings())))).await;
        wait_for("published", async || published(&bench).await.is_some()).await;
        running.stop().await.expect("stopped");
    }
}

#[tokio::test(start_paused = true)]
async fn two_versions_of_an_operator_do_not_fight_over_configurations() {
    const NAME: &str = "it-validating-webhook-configuration";
    let bench = Bench::start().await;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(bench.kube.clone());
    let (mut replicas, mut expected) = (Vec::new(), String::new());
    for _ in 0..2 {
        let looks: Log<()> = Log::default();
        let look = looks.clone();
        let client = client(&bench, move |method, path| {
            if method == Method::GET && path.contains("/secrets/webhook-server-cert") {
                look.push(());
            }
            Fate::Passes
        });
        let manager = operator(client, webhooks(&Rules::default(), certificates(settings())));
        expected = format!("https://{}{VALIDATE}", manager.webhook_addresses()[0]);
        replicas.push((Running::ready(manager).await, looks));
    }
    let url = async || {
        let configuration = api.get(NAME).await.expect("there");
        configuration.webhooks.expect("webhooks")[0].client_config.url.clone().expect("a URL")
    };
    // Each look begins with the Secret: of the third, the one before is over that began after now.
    let all_have_looked = async || {
        let before: Vec<usize> = replicas.iter().map(|(_, looks)| looks.len()).collect();
        wait_for("all have looked", async || {
            replicas.iter().zip(&before).all(|((_, looks), before)| looks.len() >= before + 3)
        })
        .await;
    };
    all_have_looked().await;
    assert_eq!(url().await, expected, "the newer one has registered itself");
    // Something that both notice, and neither answers with a write.
    let poke = Patch::Merge(json!({"metadata": {"labels": {"poked": "yes"}}}));
    let poked = api.patch(NAME, &PatchParams::default(), &poke).await.expect("poked");
    all_have_looked().await;
    let after = api.get(NAME).await.expect("there");
    assert_eq!(after.metadata.resource_version, poked.metadata.resource_version);
    // When it is gone, it is made again.
    api.delete(NAME, &DeleteParams::default()).await.expect("deleted");
    wait_for("made again", async || api.get_opt(NAME).await.expect("read").is_some()).await;
    for (replica, _) in replicas {
        replica.stop().await.expect("stopped");
    }
}

/// A later version of an operator has no validator any more: the former one would not be answered.
#[tokio::test]
async fn webhooks_that_there_are_no_more_are_taken_out() {
    let bench = Bench::start().await;
    let (first, _) = super::serve(&bench, &Rules::default()).await;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(bench.kube.clone());
    let count = async || {
        let found = configurations.get("it-validating-webhook-configuration").await.expect("there");
        found.webhooks.unwrap_or_default().len()
    };
    assert_eq!(count().await, 1);
    first.stop().await.expect("stopped");
    let defaulter = Webhooks::new().listen("127.0.0.1:0").defaulter::<Pet>(Rules::default());
    let later = operator(bench.kube.clone(), defaulter.certificates(certificates(settings())));
    let running = Running::ready(later).await;
    assert_eq!(count().await, 0);
    bench.create(&pet("thor")).await;
    assert_eq!(bench.pets().get("thor").await.expect("there").spec.tricks, ["sit"], "the defaulter was asked");
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn two_sets_of_webhooks_cannot_be_registered_under_one_name() {
    let bench = Bench::start().await;
    let mut manager = operator(bench.kube.clone(), webhooks(&Rules::default(), certificates(settings())));
    let again = manager.add_webhooks(webhooks(&Rules::default(), certificates(settings())));
    let error = again.expect_err("a second set").to_string();
    assert!(error.contains("registered as \"it\" twice"), "{error}");
    let another = settings().register("another");
    manager.add_webhooks(webhooks(&Rules::default(), certificates(another))).expect("another name");
}

/// While a version without validators starts, one that has them runs: it makes them again, and they are
/// there when the other is gone.
#[tokio::test]
async fn versions_keep_webhooks_beside_versions_without() {
    let bench = Bench::start().await;
    let (with, _) = super::serve(&bench, &Rules::default()).await;
    let without = Webhooks::new().listen("127.0.0.1:0").defaulter::<Pet>(Rules::default());
    let without = Running::ready(operator(bench.kube.clone(), without.certificates(certificates(settings())))).await;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(bench.kube.clone());
    wait_for("made again", async || {
        let found = configurations.get("it-validating-webhook-configuration").await.expect("there");
        found.webhooks.unwrap_or_default().len() == 1
    })
    .await;
    without.stop().await.expect("stopped");
    with.stop().await.expect("stopped");
}

#[tokio::test]
async fn configurations_lead_to_a_replica_that_still_runs() {
    const NAME: &str = "it-validating-webhook-configuration";
    let bench = Bench::start().await;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(bench.kube.clone());
    let url = async || {
        let webhooks = api.get(NAME).await.expect("there").webhooks.unwrap_or_default();
        webhooks.first().and_then(|webhook| webhook.client_config.url.clone()).unwrap_or_default()
    };
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(bench.kube.clone());
    let defaults = async || {
        let found = mutating.get("it-mutating-webhook-configuration").await.expect("there");
        found.webhooks.unwrap_or_default().first().and_then(|webhook| webhook.client_config.url.clone())
    };
    let replica = || {
        let hooks = webhooks(&Rules::default(), certificates(settings())).conversion(Conversion::<Pet>::new());
        let manager = operator(bench.kube.clone(), hooks);
        let address = manager.webhook_addresses()[0];
        (manager, address)
    };
    let (first, first_address) = replica();
    let first = Running::ready(first).await;
    for crashes in [false, true] {
        let (second, address) = replica();
        let second = Running::ready(second).await;
        assert_eq!(url().await, format!("https://{address}{VALIDATE}"), "the newer one has registered itself");
        if crashes {
            second.kill().await;
        } else {
            second.stop().await.expect("stopped");
        }
        let left = format!("https://{first_address}");
        wait_for("the first replica is called", async || {
            url().await == format!("{left}{VALIDATE}")
                && defaults().await == Some(format!("{left}{DEFAULT}"))
                && conversion(&bench).await["url"] == format!("{left}/convert")
        })
        .await;
        let pet = pet(if crashes { "loki" } else { "thor" });
        // A configuration can be read a moment before it is in effect.
        wait_for("the first replica admits a pet", async || {
            bench.pets().create(&PostParams::default(), &pet).await.is_ok()
        })
        .await;
    }
    first.stop().await.expect("stopped");
    assert_eq!(url().await, "", "API servers call nothing that does not run");
    bench.create(&pet("odin")).await;
}
