//! Where certificates come from, who trusts them, and what happens when they grow old.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass::manager::ManagerError;
use windlass::webhook::{Certificates, Conversion, SelfManaged};
use windlass_server::pki::Authority;
use windlass_store::{Expect, Write};

use super::call::Caller;
use super::{Rules, VALIDATE, bundle, certificates, entry, manager, secret, settings, webhooks};
use crate::bench::{Bench, Pet, Running, pet, wait_for};
use crate::manager::fetch;

const DAY: i64 = 86400;

/// A clock that tests set. It stays behind the real one, by which connections are judged.
#[derive(Clone)]
struct Dial(Arc<AtomicI64>);

impl Dial {
    fn days_ago(days: i64) -> Self {
        Self(Arc::new(AtomicI64::new(Timestamp::now().as_second() - days * DAY)))
    }

    fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    fn set(&self, settings: SelfManaged) -> SelfManaged {
        let dial = self.clone();
        settings.clock(move || Timestamp::from_second(dial.0.load(Ordering::SeqCst)).expect("a time"))
    }
}

fn days(days: u64) -> Duration {
    Duration::from_secs(days * 86400)
}

fn authorities(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

pub async fn published(bench: &Bench) -> Option<String> {
    let annotations = secret(bench).await.metadata.annotations;
    annotations.and_then(|annotations| annotations.get("webhook.windlass.dev/published").cloned())
}

/// What API servers trust now.
async fn injected(bench: &Bench) -> String {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(bench.kube.clone());
    let configuration = configurations.get("it-validating-webhook-configuration").await.expect("there");
    let webhooks = configuration.webhooks.expect("webhooks");
    String::from_utf8(webhooks[0].client_config.ca_bundle.clone().expect("a bundle").0).expect("text")
}

#[tokio::test]
async fn certificates_rotate_under_load_without_failures() {
    let bench = Arc::new(Bench::start().await);
    let dial = Dial::days_ago(230);
    let settings = dial.set(settings().settle(Duration::from_secs(60)));
    let settings = settings.authority_lifetime(days(300)).serving_lifetime(days(300));
    let (manager, caller) = manager(&bench, webhooks(&Rules::default(), certificates(settings)));
    let running = Running::ready(manager).await;
    let first = bundle(&bench).await;
    assert_eq!(authorities(&first), 1);
    let old = caller.trusting(&first).certificate().await.expect("served");

    // Some go through the API server, some connect anew each time and trust what is injected then.
    let done: Vec<Arc<AtomicUsize>> = (0..4).map(|_| Arc::default()).collect();
    let enough = CancellationToken::new();
    let mut load = tokio::task::JoinSet::new();
    for (worker, count) in done.iter().cloned().enumerate() {
        let (bench, caller, enough) = (Arc::clone(&bench), caller.clone(), enough.clone());
        load.spawn(async move {
            while !enough.is_cancelled() {
                if worker % 2 == 0 {
                    let name = format!("p{worker}");
                    bench.create(&pet(&name)).await;
                    bench.pets().delete(&name, &DeleteParams::default()).await.expect("deleted");
                } else {
                    let trusting = caller.trusting(&injected(&bench).await);
                    assert_eq!(trusting.ask(VALIDATE, &pet("thor")).await["allowed"], true);
                }
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let everybody_again = async || {
        let before: Vec<usize> = done.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        wait_for("everybody has asked again", async || {
            done.iter().zip(&before).all(|(count, before)| count.load(Ordering::SeqCst) >= before + 2)
        })
        .await;
    };
    everybody_again().await;

    // Two thirds of the authority's time are over: another one is announced, and not used yet.
    wait_for("published", async || published(&bench).await.is_some()).await;
    let noted = published(&bench).await;
    dial.advance(210 * DAY);
    wait_for("announced", async || authorities(&injected(&bench).await) == 2).await;
    let second = bundle(&bench).await;
    assert!(second.ends_with(&first), "the old authority stays");
    let newest = second.strip_suffix(&first).expect("checked").to_owned();
    wait_for("published", async || published(&bench).await != noted).await;
    everybody_again().await;
    assert_eq!(caller.trusting(&second).certificate().await.expect("served"), old, "not used before it has settled");

    // It has settled: it is used, and the old one is still trusted.
    dial.advance(61);
    wait_for("switched", async || caller.trusting(&newest).certificate().await.is_some_and(|new| new != old)).await;
    everybody_again().await;
    assert_eq!(injected(&bench).await, second);

    enough.cancel();
    while let Some(worker) = load.join_next().await {
        worker.expect("no request has failed");
    }
    running.stop().await.expect("stopped");
}

/// No time helps against a Secret that may not be changed.
#[tokio::test]
async fn a_secret_that_cannot_be_written_fails_the_start() {
    let bench = Bench::start().await;
    let mut secret = Secret { immutable: Some(true), ..Secret::default() };
    secret.metadata.name = Some("webhook-server-cert".into());
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
    let (manager, _) = manager(&bench, webhooks(&Rules::default(), certificates(settings())));
    let error = Running::start(manager).ended().await.expect_err("no certificate").to_string();
    assert!(error.contains("default/webhook-server-cert") && error.contains("immutable"), "{error}");
}

#[tokio::test]
async fn replicas_share_one_authority_however_they_race() {
    let bench = Bench::start().await;
    let dial = Dial::days_ago(230);
    let mut replicas = Vec::new();
    let mut callers = Vec::new();
    for _ in 0..4 {
        let settings = dial.set(SelfManaged::new("default").service("hook")).settle(Duration::ZERO);
        let settings = settings.authority_lifetime(days(300)).serving_lifetime(days(300));
        let (manager, caller) = manager(&bench, webhooks(&Rules::default(), certificates(settings)));
        replicas.push(Running::start(manager));
        callers.push(caller.named("hook.default.svc"));
    }
    let same = async || {
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(bench.kube.clone(), "default");
        let secret = secrets.get_opt("webhook-server-cert").await.expect("read")?;
        let bundle = entry(&secret, "ca.crt");
        let mut served: Option<Vec<u8>> = None;
        for caller in &callers {
            let certificate = caller.trusting(&bundle).certificate().await?;
            if served.is_some_and(|served| served != certificate) {
                return None;
            }
            served = Some(certificate);
        }
        served.map(|served| (bundle, served))
    };
    wait_for("all serve the same", async || same().await.is_some()).await;
    let (first, old) = same().await.expect("checked");
    assert_eq!(authorities(&first), 1, "one has won");
    // Two thirds of the authority's time are over; again one replica makes the next.
    dial.advance(210 * DAY);
    wait_for("all serve the next", async || same().await.is_some_and(|(_, served)| served != old)).await;
    let (second, _) = same().await.expect("checked");
    assert_eq!(authorities(&second), 2, "one has won again");
    assert!(second.ends_with(&first));
    for replica in replicas {
        replica.stop().await.expect("stopped");
    }
}

#[tokio::test]
async fn replicas_are_reached_through_their_service() {
    let bench = Bench::start().await;
    let mut replicas = Vec::new();
    let mut endpoints = Vec::new();
    for _ in 0..2 {
        let settings = SelfManaged::new("default").service("hook").register("it");
        let (manager, caller) = manager(&bench, webhooks(&Rules::default(), certificates(settings)));
        let metrics = manager.metrics_address().expect("bound");
        replicas.push((Running::ready(manager).await, metrics));
        endpoints.push(caller.address);
    }
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"ports": [{"name": "https", "port": 443}]}});
    let services: Api<k8s_openapi::api::core::v1::Service> = Api::namespaced(bench.kube.clone(), "default");
    let service = serde_json::from_value(service).expect("a service");
    services.create(&PostParams::default(), &service).await.expect("created");
    let slices: Api<k8s_openapi::api::discovery::v1::EndpointSlice> = Api::namespaced(bench.kube.clone(), "default");
    for (index, address) in endpoints.iter().enumerate() {
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("hook-{index}"), "namespace": "default", "labels": {"kubernetes.io/service-name": "hook"}},
            "ports": [{"name": "https", "port": address.port()}], "endpoints": [{"addresses": ["127.0.0.1"]}]});
        // The API refuses loopback addresses in endpoints, and a test has no others.
        let write = Write::Put {
            key: format!("/registry/endpointslices/default/hook-{index}").into(),
            expect: Expect::Absent,
            value: windlass_store::Value::plain(slice.to_string().into_bytes()),
        };
        bench.server.api().store.txn(vec![write]).await.expect("written");
    }
    for n in 0..8 {
        assert_eq!(bench.create(&pet(&format!("p{n}"))).await.spec.tricks, ["sit"]);
    }
    // One goes, as in a rollout: first out of the Service, then for good.
    slices.delete("hook-0", &DeleteParams::default()).await.expect("deleted");
    let (first, _) = replicas.remove(0);
    first.stop().await.expect("stopped");
    for n in 8..16 {
        assert_eq!(bench.create(&pet(&format!("p{n}"))).await.spec.tricks, ["sit"]);
    }
    let (second, metrics) = replicas.remove(0);
    let answered = format!("controller_runtime_webhook_requests_total{{webhook=\"{VALIDATE}\",code=\"200\"}} 0");
    assert!(!fetch(metrics, "/metrics").await.contains(&answered));
    second.stop().await.expect("stopped");
}

#[tokio::test]
async fn an_absent_api_server_is_waited_for() {
    let bench = Bench::start().await;
    let refusals = Arc::new(AtomicUsize::new(0));
    let (service, refused) = (bench.server.service(), Arc::clone(&refusals));
    let flaky = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (mut service, first) = (service.clone(), refused.fetch_add(1, Ordering::SeqCst) < 2);
        async move {
            if first {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
            }
            let answer = tower::Service::call(&mut service, request).await;
            Ok(answer.unwrap_or_else(|never| match never {}))
        }
    });
    let mut manager = windlass::Manager::builder(kube::Client::new(flaky, "default")).build().expect("a manager");
    manager.add_webhooks(webhooks(&Rules::default(), certificates(settings()))).expect("added");
    let caller = Caller::new(manager.webhook_addresses()[0]);
    let running = Running::start(manager);
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(bench.kube.clone(), "default");
    wait_for("made", async || secrets.get_opt("webhook-server-cert").await.expect("read").is_some()).await;
    let caller = caller.trusting(&bundle(&bench).await);
    wait_for("served", async || caller.certificate().await.is_some()).await;
    assert!(refusals.load(Ordering::SeqCst) > 2);
    running.stop().await.expect("stopped");
}

fn write(directory: &Path, certificate: &str, key: &str) {
    std::fs::write(directory.join("tls.crt"), certificate).expect("written");
    std::fs::write(directory.join("tls.key"), key).expect("written");
}

#[tokio::test]
async fn files_are_read_again_when_they_change() {
    let bench = Bench::start().await;
    let authority = Authority::generate().expect("made");
    let [first, second] = [(); 2].map(|()| authority.server(&["127.0.0.1".to_owned()]).expect("made"));
    // As Kubernetes mounts Secrets: the directory is a link that is moved.
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    for (name, identity) in [("1", &first), ("2", &second)] {
        std::fs::create_dir(at(name)).expect("made");
        write(&at(name), &identity.certificate, &identity.key);
    }
    std::os::unix::fs::symlink(at("1"), at("current")).expect("linked");
    let files = Certificates::directory(at("current")).check_every(Duration::from_millis(10));
    let (manager, caller) = manager(&bench, webhooks(&Rules::default(), files));
    let metrics = manager.metrics_address().expect("bound");
    let running = Running::start(manager);
    let caller = caller.trusting(authority.certificate());
    wait_for("served", async || caller.certificate().await.is_some()).await;
    let old = caller.certificate().await.expect("served");

    // A key that does not fit is not served.
    write(&at("1"), &first.certificate, &second.key);
    let failed = "certwatcher_read_certificate_errors_total 0\n";
    wait_for("noticed", async || {
        let text = fetch(metrics, "/metrics").await;
        text.contains("certwatcher_read_certificate_errors_total") && !text.contains(failed)
    })
    .await;
    assert_eq!(caller.certificate().await.expect("served"), old);

    // A connection outlives the change.
    let mut kept: Keep = Keep::open(&caller).await;
    kept.ask().await;
    std::os::unix::fs::symlink(at("2"), at("next")).expect("linked");
    std::fs::rename(at("next"), at("current")).expect("moved");
    wait_for("changed", async || caller.certificate().await.is_some_and(|new| new != old)).await;
    kept.ask().await;
    running.stop().await.expect("stopped");
}

/// A connection that is used several times.
struct Keep(hyper::client::conn::http1::SendRequest<http_body_util::Full<bytes::Bytes>>);

impl Keep {
    async fn open(caller: &Caller) -> Self {
        let (stream, _) = caller.connect().await.expect("connected");
        let stream = hyper_util::rt::TokioIo::new(stream);
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.expect("a connection");
        tokio::spawn(connection);
        Self(sender)
    }

    async fn ask(&mut self) {
        let body = super::call::review(&pet("thor")).to_string();
        let request = http::Request::post(VALIDATE).header("host", "x").header("content-type", "application/json");
        let request = request.body(http_body_util::Full::from(body)).expect("a request");
        assert_eq!(self.0.send_request(request).await.expect("answered").status(), 200);
    }
}

pub fn configuration(bundle: &str) -> Value {
    let webhook = |name: &str, service: &str| {
        let client =
            json!({"service": {"namespace": "default", "name": service, "path": VALIDATE}, "caBundle": bundle});
        json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client,
            "rules": [{"apiGroups": ["x.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}]})
    };
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "theirs"},
        "webhooks": [webhook("other.example.com", "other"), webhook("ours.example.com", "hook")]})
}

#[tokio::test]
async fn foreign_configurations_get_the_bundle_when_they_change() {
    let bench = Bench::start().await;
    // Nothing is looked at for an hour: changes are seen as they happen.
    let settings = SelfManaged::new("default").service("hook");
    let certificates = Certificates::self_managed(settings).check_every(Duration::from_secs(3600));
    let (manager, _) = manager(&bench, webhooks(&Rules::default(), certificates));
    let running = Running::start(manager);
    let api: Api<MutatingWebhookConfiguration> = Api::all(bench.kube.clone());
    let made = serde_json::from_value(configuration("")).expect("a configuration");
    api.create(&PostParams::default(), &made).await.expect("created");
    let bundles = async || {
        let configuration = api.get("theirs").await.expect("there");
        let webhooks = configuration.webhooks.expect("webhooks").into_iter();
        let texts = webhooks.map(|webhook| webhook.client_config.ca_bundle.map(|b| b.0).unwrap_or_default());
        texts.map(|text| String::from_utf8(text).expect("text")).collect::<Vec<_>>()
    };
    let trusted = async || bundles().await[1].starts_with("-----BEGIN CERTIFICATE");
    wait_for("injected", trusted).await;
    assert_eq!(bundles().await, [String::new(), bundle(&bench).await]);
    let reset = Patch::Merge(json!({"webhooks": configuration("")["webhooks"]}));
    api.patch("theirs", &PatchParams::default(), &reset).await.expect("reset");
    wait_for("injected again", trusted).await;

    // A Secret that is deleted is made again, and everything follows.
    let before = bundle(&bench).await;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(bench.kube.clone(), "default");
    secrets.delete("webhook-server-cert", &DeleteParams::default()).await.expect("deleted");
    wait_for("made again", async || {
        let secret = secrets.get_opt("webhook-server-cert").await.expect("read");
        secret.is_some_and(|secret| entry(&secret, "ca.crt") != before)
    })
    .await;
    let after = bundle(&bench).await;
    wait_for("injected anew", async || bundles().await[1] == after).await;
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn only_clients_of_the_right_authority_are_answered() {
    let bench = Bench::start().await;
    let authority = Authority::generate().expect("made");
    let server = authority.server(&["127.0.0.1".to_owned()]).expect("made");
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), &server.certificate, &server.key);
    let files = Certificates::files(directory.path().join("tls.crt"), directory.path().join("tls.key"));
    let guarded = webhooks(&Rules::default(), files).client_authorities(authority.certificate());
    let (manager, caller) = manager(&bench, guarded);
    let running = Running::ready(manager).await;
    let caller = caller.trusting(authority.certificate());
    let known = caller.clone().with_identity(&authority.client("apiserver", "system").expect("made"));
    assert_eq!(known.ask(VALIDATE, &pet("thor")).await["allowed"], true);
    let stranger = Authority::generate().expect("made").client("apiserver", "system").expect("made");
    for refused in [caller.clone(), caller.with_identity(&stranger)] {
        assert!(!refused.is_answered().await);
    }
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn the_start_fails_without_permissions_and_keeps_all() {
    let bench = Bench::start().await;
    let operator = windlass_server::authn::User::new("operator", []);
    let kube = kube::Client::new(bench.server.service_as(operator), "default");
    let build = |check: bool| {
        let builder = windlass::Manager::builder(kube.clone()).name("it").check_permissions(check);
        let mut manager = builder.probes("127.0.0.1:0").build().expect("a manager");
        // Nothing is looked at for an hour: what changes is seen by watches, or not at all.
        let certificates = Certificates::self_managed(settings()).check_every(Duration::from_secs(3600));
        let webhooks = webhooks(&Rules::default(), certificates);
        manager.add_webhooks(webhooks.conversion(Conversion::<Pet>::new())).expect("added");
        manager
    };
    let error = Running::start(build(false)).ended().await.expect_err("forbidden").to_string();
    assert!(error.contains("default/webhook-server-cert") && error.contains("cannot get resource"), "{error}");

    let error = Running::start(build(true)).ended().await.expect_err("forbidden");
    let ManagerError::Forbidden { missing } = &error else { panic!("{error}") };
    let text = error.to_string();
    for rule in [
        "apiGroups: [\"\"]  # in namespace default\n  resources: [secrets]\n  verbs: [create]\n",
        "  resources: [secrets]\n  resourceNames: [webhook-server-cert]\n  verbs: [get, list, update, watch]\n",
        "  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]\n  verbs: [create]\n",
        "  resources: [mutatingwebhookconfigurations]\n  resourceNames: [it-mutating-webhook-configuration]\n  \
         verbs: [get, list, patch, watch]\n",
        "  resources: [validatingwebhookconfigurations]\n  resourceNames: [it-validating-webhook-configuration]\n",
        "  resources: [customresourcedefinitions]\n  resourceNames: [pets.petstore.example.com]\n  \
         verbs: [get, list, patch, watch]\n",
    ] {
        assert!(text.contains(rule), "{rule}\nnot in\n{text}");
    }

    bench.grant("operator", missing).await;
    let manager = build(true);
    let running = Running::ready(manager).await;
    wait_for("published", async || published(&bench).await.is_some()).await;
    assert_eq!(injected(&bench).await, bundle(&bench).await);
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    let definition = definitions.get("pets.petstore.example.com").await.expect("there");
    assert_eq!(definition.spec.conversion.expect("a conversion").strategy, "Webhook");

    // With the names in the rules, changes are still seen as they happen.
    let api: Api<ValidatingWebhookConfiguration> = Api::all(bench.kube.clone());
    api.delete("it-validating-webhook-configuration", &DeleteParams::default()).await.expect("deleted");
    wait_for("made again", async || api.get_opt("it-validating-webhook-configuration").await.expect("read").is_some())
        .await;
    let undo = Patch::Merge(json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": null}}}}}));
    definitions.patch("pets.petstore.example.com", &PatchParams::default(), &undo).await.expect("patched");
    wait_for("injected again", async || {
        let found = definitions.get("pets.petstore.example.com").await.expect("there");
        let webhook = found.spec.conversion.and_then(|conversion| conversion.webhook);
        webhook.and_then(|webhook| webhook.client_config).is_some_and(|client| client.ca_bundle.is_some())
    })
    .await;
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn only_configurations_of_the_names_given_are_written() {
    let bench = Bench::start().await;
    let settings = SelfManaged::new("default").service("hook").inject_into(["theirs"]);
    let certificates = Certificates::self_managed(settings).check_every(Duration::from_millis(20));
    let (manager, _) = manager(&bench, webhooks(&Rules::default(), certificates));
    let rules = manager.rules().to_string();
    let rule = "  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]\n  \
                resourceNames: [theirs]\n  verbs: [get, list, patch, watch]\n";
    assert!(rules.contains(rule), "{rules}");
    let api: Api<MutatingWebhookConfiguration> = Api::all(bench.kube.clone());
    for name in ["others", "theirs"] {
        let mut made = configuration("");
        made["metadata"]["name"] = name.into();
        let made = serde_json::from_value(made).expect("a configuration");
        api.create(&PostParams::default(), &made).await.expect("created");
    }
    let running = Running::ready(manager).await;
    let bundle = async |name: &str| {
        let webhooks = api.get(name).await.expect("there").webhooks.expect("webhooks");
        webhooks[1].client_config.ca_bundle.clone()
    };
    wait_for("injected", async || bundle("theirs").await.is_some()).await;
    assert_eq!(bundle("others").await, None, "it leads here, but nobody named it");
    running.stop().await.expect("stopped");
}
