//! The service account of a pod: its token is replaced, and the old one revoked.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec, TokenReview};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PostParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use windlass::config::Loader;
use windlass::controller::from_fn;
use windlass::rbac::Rules;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};
use windlass_server::Server;
use windlass_server::pki::Authority;

use crate::bench::{Bench, Pet, pet, wait_for};
use crate::process::{Process, part, say};

const USER: &str = "system:serviceaccount:default:operator";

/// What runs in the pod: it teaches every pet to sit.
async fn teach(directory: &str) {
    let client = Loader::default().service_account(directory).client().await.expect("a client");
    assert_eq!(client.default_namespace(), "default");
    let mut manager = Manager::builder(client).name("teacher").build().expect("built");
    let reconciler = from_fn(|key: ObjectKey, ctx: Context| async move {
        if ctx.get::<Pet>(&key).await?.is_some_and(|pet| pet.spec.tricks.is_empty()) {
            let patch = Patch::Merge(json!({"spec": {"tricks": ["sit"]}}));
            ctx.client().patch::<Pet>(&key, &patch).await?;
        }
        Ok(Outcome::Done)
    });
    manager.add(Controller::<Pet>::new("pet").complete(reconciler)).expect("added");
    let registry = manager.registry().clone();
    let variable = |name| std::env::var(name).expect("set");
    let host = format!("{}:{}", variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"));
    let refusals = format!("rest_client_requests_total{{code=\"401\",host=\"{host}\",method=\"GET\"}}");
    let tell = move |shutdown: CancellationToken| async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        while !registry.encode().contains(&refusals) {
            ticks.tick().await;
        }
        say("refused");
        shutdown.cancelled().await;
        Ok::<_, String>(())
    };
    manager.add_task("tell", tell).expect("added");
    manager.run().await.expect("stopped");
}

/// A token that is good for as long as a Secret of this name is there.
async fn token(bench: &Bench, bound_to: &str) -> String {
    let mut secret = Secret::default();
    secret.metadata.name = Some(bound_to.to_owned());
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
    let reference = BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Secret".into()),
        name: Some(bound_to.to_owned()),
        uid: None,
    };
    let spec = TokenRequestSpec { bound_object_ref: Some(reference), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(bench.kube.clone(), "default");
    let answer = accounts.create_token_request("operator", &PostParams::default(), &request).await.expect("made");
    answer.status.and_then(|status| status.token).expect("a token")
}

async fn revoke(bench: &Bench, token: &str, bound_to: &str) {
    let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
    secrets.delete(bound_to, &DeleteParams::default()).await.expect("deleted");
    let reviews: Api<TokenReview> = Api::all(bench.kube.clone());
    wait_for("the token is refused", async || {
        let review = json!({"spec": {"token": token}});
        let review = serde_json::from_value(review).expect("a review");
        let review = reviews.create(&PostParams::default(), &review).await.expect("reviewed");
        review.status.is_some_and(|status| status.authenticated != Some(true))
    })
    .await;
}

/// As a kubelet does it: never half a token.
fn install(directory: &Path, token: &str) {
    std::fs::write(directory.join("next"), token).expect("written");
    std::fs::rename(directory.join("next"), directory.join("token")).expect("in place");
}

async fn taught(bench: &Bench, name: &str) {
    wait_for(name, async || !bench.pets().get(name).await.expect("there").spec.tricks.is_empty()).await;
}

#[tokio::test]
async fn a_revoked_token_is_replaced_and_watches_and_writes_go_on() {
    if let Some(directory) = part() {
        return teach(&directory).await;
    }
    const SELF: &str = "credentials::a_revoked_token_is_replaced_and_watches_and_writes_go_on";
    let bench = Bench::of(Server::builder().start().await.expect("started")).await;
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("operator".into());
    let accounts: Api<ServiceAccount> = Api::namespaced(bench.kube.clone(), "default");
    accounts.create(&PostParams::default(), &account).await.expect("created");
    let mut rules = Rules::default();
    rules.allow(None, "petstore.example.com", ["pets"], ["get", "list", "watch", "patch"]);
    bench.grant(USER, &rules).await;

    let authority = Authority::generate().expect("made");
    let listener =
        bench.server.listen("127.0.0.1:0".parse().expect("an address"), &authority).await.expect("listening");
    let address = listener.address();
    let files = tempfile::tempdir().expect("a directory");
    std::fs::write(files.path().join("ca.crt"), authority.certificate()).expect("written");
    std::fs::write(files.path().join("namespace"), "default").expect("written");
    let first = token(&bench, "first").await;
    install(files.path(), &first);
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let variables = [("KUBERNETES_SERVICE_HOST", host.as_str()), ("KUBERNETES_SERVICE_PORT", port.as_str())];
    bench.create(&pet("thor")).await;
    let began = Instant::now();
    let mut operator = Process::start(SELF, files.path().to_str().expect("text"), &variables);
    taught(&bench, "thor").await;

    // The token is replaced in time and the old one refused: the next write finds out, and is not lost.
    let second = token(&bench, "second").await;
    install(files.path(), &second);
    revoke(&bench, &first, "first").await;
    bench.create(&pet("tron")).await;
    taught(&bench, "tron").await;

    // It is refused before it is replaced, and every watch has to be opened again.
    revoke(&bench, &second, "second").await;
    listener.stop().await;
    let listener = bench.server.listen(address, &authority).await.expect("listening again");
    bench.create(&pet("odin")).await;
    operator.says("refused").await;
    assert!(bench.pets().get("odin").await.expect("there").spec.tricks.is_empty());
    let third = token(&bench, "third").await;
    install(files.path(), &third);
    taught(&bench, "odin").await;
    // Not because a minute had passed, after which the file is looked at anyway.
    assert!(began.elapsed().as_secs() < 50, "{:?}", began.elapsed());

    operator.signal("TERM").await;
    operator.ended_well().await;
    listener.stop().await;
}
