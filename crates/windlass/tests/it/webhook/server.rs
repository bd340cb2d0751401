//! The server itself: garbage, panics, draining, switching it off, order, metrics.

use std::time::Duration;

use kube::api::PostParams;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use windlass::controller::from_key_fn;
use windlass::manager::ManagerError;
use windlass::webhook::{Admission, Response, WebhookError, Webhooks};
use windlass::{Controller, Outcome};

use super::call::review;
use super::{DEFAULT, Rules, VALIDATE, certificates, manager, serve, settings, webhooks};
use crate::bench::{Bench, Pet, Running, pet, wait_for};
use crate::manager::fetch;

#[tokio::test]
async fn garbage_is_refused_and_does_no_harm() {
    let bench = Bench::start().await;
    let rules = Rules::default();
    let limited = webhooks(&rules, certificates(settings())).limits(20_000, 20_000);
    let (manager, caller) = manager(&bench, limited);
    let running = Running::ready(manager).await;
    let caller = caller.trusting(&super::bundle(&bench).await);
    let json = "application/json";
    let mut wrong_kind = review(&pet("a"));
    wrong_kind["request"]["kind"]["kind"] = "Cat".into();
    let mut wrong_shape = review(&pet("a"));
    wrong_shape["request"]["object"]["spec"]["tricks"] = 7.into();
    let mut nothing = review(&pet("a"));
    nothing["request"]["object"] = serde_json::Value::Null;
    let mut other = review(&pet("a"));
    other["apiVersion"] = "admission.k8s.io/v9".into();
    for (path, content_type, body, code, expected) in [
        (VALIDATE, json, String::new(), 400, "request body is empty"),
        (VALIDATE, json, "not json".to_owned(), 400, "not JSON"),
        (VALIDATE, json, "{}".to_owned(), 400, "no request with a uid"),
        (VALIDATE, json, "[[[[".repeat(4000), 400, "not JSON"),
        (VALIDATE, json, other.to_string(), 400, "not an AdmissionReview"),
        (VALIDATE, "text/yaml", "a: b".to_owned(), 415, "contentType=text/yaml, expected application/json"),
        (VALIDATE, json, " ".repeat(20_001), 413, "limit is 20000 bytes"),
        ("/nowhere", json, "{}".to_owned(), 404, "not found"),
        (VALIDATE, json, wrong_kind.to_string(), 200, "expected Pet of petstore.example.com/v1"),
        (
            VALIDATE,
            json,
            wrong_shape.to_string(),
            200,
            "object does not fit Pet: spec.tricks: invalid type: integer, expected",
        ),
        (DEFAULT, json, nothing.to_string(), 200, "no object in the request"),
    ] {
        let (status, answer) = caller.send(path, content_type, body).await;
        assert_eq!(status, code, "{answer}");
        assert!(answer.contains(expected), "{answer}");
        assert!(!answer.contains("\"allowed\":true"), "{answer}");
    }
    // Not even TLS.
    let mut plain = tokio::net::TcpStream::connect(caller.address).await.expect("connected");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest).await;
    assert_eq!(caller.ask(VALIDATE, &pet("thor")).await["allowed"], true);
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn panicking_handlers_answer_500_and_serving_goes_on() {
    let bench = Bench::start().await;
    let (manager, _) = manager(&bench, webhooks(&Rules::default(), certificates(settings())));
    let (ready, metrics) = (manager.probes_address().expect("bound"), manager.metrics_address().expect("bound"));
    let running = Running::ready(manager).await;
    assert!(fetch(ready, "/readyz?verbose").await.contains("[+]webhooks ok"));
    let error = bench.pets().create(&PostParams::default(), &pet("panic")).await.expect_err("refused");
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!(status.code, 500);
    assert!(status.message.ends_with("panic: scripted [recovered]"), "{}", status.message);
    bench.create(&pet("thor")).await;
    let text = fetch(metrics, "/metrics").await;
    for expected in [
        "controller_runtime_webhook_panics_total 1".to_owned(),
        "controller_runtime_conversion_webhook_panics_total 0".to_owned(),
        format!("controller_runtime_webhook_requests_total{{webhook=\"{VALIDATE}\",code=\"200\"}} 2"),
        format!("controller_runtime_webhook_requests_total{{webhook=\"{VALIDATE}\",code=\"500\"}} 0"),
        format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{VALIDATE}\"}} 0"),
        format!("controller_runtime_webhook_latency_seconds_count{{webhook=\"{DEFAULT}\"}} 2"),
        "windlass_webhook_certificate_not_after_seconds ".to_owned(),
    ] {
        assert!(text.contains(&expected), "{expected} is not in {text}");
    }
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn stopping_answers_what_was_asked() {
    let bench = Bench::start().await;
    let rules = Rules::default();
    let (manager, caller) = manager(&bench, webhooks(&rules, certificates(settings())));
    let metrics = manager.metrics_address().expect("bound");
    let running = Running::ready(manager).await;
    let caller = caller.trusting(&super::bundle(&bench).await);
    let mut slow = pet("a");
    slow.spec.name = "slow".to_owned();
    let asking = tokio::spawn({
        let caller = caller.clone();
        async move { caller.ask(VALIDATE, &slow).await }
    });
    let in_flight = format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{VALIDATE}\"}} 1");
    wait_for("in flight", async || fetch(metrics, "/metrics").await.contains(&in_flight)).await;
    let stopping = tokio::spawn(running.stop());
    wait_for("no longer listening", async || tokio::net::TcpStream::connect(caller.address).await.is_err()).await;
    assert!(!stopping.is_finished() && !asking.is_finished());
    rules.gate.add_permits(1);
    assert_eq!(asking.await.expect("answered")["allowed"], true);
    stopping.await.expect("joined").expect("stopped");
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    let bench = Bench::start().await;
    let (running, caller) = serve(&bench, &Rules::default()).await;
    assert_eq!(caller.send_many(VALIDATE, &pet("thor"), 300).await, [200; 300]);
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn handlers_end_when_their_caller_is_gone() {
    let bench = Bench::start().await;
    let (running, caller) = serve(&bench, &Rules::default()).await;
    let mut slow = pet("a");
    slow.spec.name = "slow".to_owned();
    let answer = caller.ask(&format!("{VALIDATE}?timeout=1s"), &slow).await;
    assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&false.into(), &504.into()));
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn mistakes_are_found_before_anything_runs() {
    let bench = Bench::start().await;
    let hook =
        |path: &str| Admission::validating_raw(path, windlass::webhook::from_fn(|_| async { Response::allowed() }));
    let add = |webhooks: Webhooks| bench.manager().add_webhooks(webhooks.listen("127.0.0.1:0")).expect_err("a mistake");
    let error = add(Webhooks::new().admission(hook("/a b")));
    assert!(matches!(error, ManagerError::Webhooks(WebhookError::Path { .. })), "{error}");
    let error = add(Webhooks::new().admission(hook("/a")).admission(hook("/a")));
    assert!(matches!(error, ManagerError::Webhooks(WebhookError::Duplicate { .. })), "{error}");
    let error = add(Webhooks::new().admission(hook("/a").name("x.y.z")).admission(hook("/b").name("x.y.z")));
    assert!(matches!(error, ManagerError::Webhooks(WebhookError::Duplicate { .. })), "{error}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address").to_string();
    let error = bench.manager().add_webhooks(Webhooks::new().listen(&address)).expect_err("taken").to_string();
    assert!(error.contains(&address) && error.contains("webhooks"), "{error}");
}

#[tokio::test]
async fn no_certificate_is_an_error_that_says_where() {
    let bench = Bench::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let files = windlass::webhook::Certificates::directory(directory.path());
    let (manager, _) = manager(&bench, webhooks(&Rules::default(), files));
    let error = Running::start(manager).ended().await.expect_err("no certificate").to_string();
    assert!(error.contains("tls.crt") && error.contains(&directory.path().display().to_string()), "{error}");
}

#[tokio::test]
async fn webhooks_can_be_switched_off() {
    let bench = Bench::start().await;
    let mut manager = bench.manager();
    manager.add_webhooks(webhooks(&Rules::default(), certificates(settings())).enabled(false)).expect("ignored");
    manager.add_webhooks(Webhooks::new().listen("0")).expect("ignored");
    assert!(manager.webhook_addresses().is_empty());
    let done = from_key_fn(|_, _| async { Ok(Outcome::Done) });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(done)).expect("added");
    Running::start(manager).stop().await.expect("stopped");
}

/// The environment belongs to the process, so this asks a process of its own.
#[test]
fn the_environment_can_switch_webhooks_off() {
    const ASK: &str = "WINDLASS_TEST_ASK_WEBHOOKS";
    if std::env::var_os(ASK).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let served = runtime.block_on(async {
            let bench = Bench::start().await;
            let mut manager = bench.manager();
            let listening = Webhooks::new().listen("127.0.0.1:0");
            manager.add_webhooks(listening).expect("added");
            !manager.webhook_addresses().is_empty()
        });
        assert_eq!(served, std::env::var("ENABLE_WEBHOOKS").as_deref() != Ok("false"));
        return;
    }
    for value in ["false", "true"] {
        let child = std::process::Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "webhook::server::the_environment_can_switch_webhooks_off"])
            .env("ENABLE_WEBHOOKS", value)
            .env(ASK, "1")
            .output()
            .expect("it runs");
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{value}: {output}");
    }
}

#[tokio::test]
async fn what_hangs_is_aborted_after_the_graceful_time() {
    let bench = Bench::start().await;
    let rules = Rules::default();
    let mut manager = windlass::Manager::builder(bench.kube.clone())
        .metrics("127.0.0.1:0")
        .probes("127.0.0.1:0")
        .graceful_shutdown(Duration::from_millis(100))
        .webhooks(webhooks(&rules, certificates(settings())))
        .build()
        .expect("a manager");
    manager.add_health_check("alive", || Ok(()));
    let metrics = manager.metrics_address().expect("bound");
    let running = Running::ready(manager).await;
    let mut slow = pet("a");
    slow.spec.name = "slow".to_owned();
    let asking = tokio::spawn({
        let pets = bench.pets();
        async move { pets.create(&PostParams::default(), &slow).await }
    });
    let in_flight = format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{VALIDATE}\"}} 1");
    wait_for("in flight", async || fetch(metrics, "/metrics").await.contains(&in_flight)).await;
    assert!(matches!(running.stop().await, Err(ManagerError::ShutdownTimeout { .. })));
    asking.await.expect("joined").expect_err("nobody answered");
}
