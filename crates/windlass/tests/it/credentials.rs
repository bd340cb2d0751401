//! The service account of a pod: its token is replaced, and the old one revoked or run out.
//!
//! A token file is looked at every minute anyway; what is waited for here takes less.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec, TokenReview};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, Patch, PostParams};
use rustix::process::Signal;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use windlass::config::Loader;
use windlass::controller::from_key_fn;
use windlass::rbac::Rules;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};
use windlass_server::pki::Authority;
use windlass_server::{Listener, Server};

use crate::bench::{Bench, Pet, pet, wait_for};
use crate::process::{Process, part, say};

const USER: &str = "system:serviceaccount:default:operator";

/// What runs in the pod: it teaches every pet to sit.
async fn teach(directory: &str) {
    let client = Loader::default().service_account(directory).client().await.expect("a client");
    assert_eq!(client.default_namespace(), "default");
    let mut manager = Manager::builder(client).name("teacher").build().expect("built");
    let reconciler = from_key_fn(|key: ObjectKey, ctx: Context| async move {
        if ctx.get::<Pet>(&key).await?.is_some_and(|pet| pet.spec.tricks.is_empty()) {
            let patch = Patch::Merge(json!({"spec": {"tricks": ["sit"]}}));
            ctx.client().patch::<Pet>(&key, &patch).await?;
        }
        Ok(Outcome::Done)
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
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

/// The token that a request for one is answered with.
async fn request(bench: &Bench, spec: TokenRequestSpec) -> String {
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(bench.kube.clone(), "default");
    let answer = accounts.create_token_request("operator", &PostParams::default(), &request).await.expect("made");
    answer.status.and_then(|status| status.token).expect("a token")
}

/// Why the server does not take a token.
async fn refusal(bench: &Bench, token: &str) -> Option<String> {
    let reviews: Api<TokenReview> = Api::all(bench.kube.clone());
    let review = serde_json::from_value(json!({"spec": {"token": token}})).expect("a review");
    let review = reviews.create(&PostParams::default(), &review).await.expect("reviewed");
    review.status.filter(|status| status.authenticated != Some(true)).map(|status| status.error.unwrap_or_default())
}

/// Tokens that are good for as long as a Secret of this name is there.
struct Bound;

impl Bound {
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
        request(bench, spec).await
    }

    async fn revoke(bench: &Bench, token: &str, bound_to: &str) {
        let secrets: Api<Secret> = Api::namespaced(bench.kube.clone(), "default");
        secrets.delete(bound_to, &DeleteParams::default()).await.expect("deleted");
        wait_for("the token is refused", async || refusal(bench, token).await.is_some()).await;
    }
}

/// A server's clock that can be put forward, in seconds.
#[derive(Clone, Default)]
struct Ahead(Arc<AtomicI64>);

impl Ahead {
    async fn server(&self) -> Server {
        let ahead = Arc::clone(&self.0);
        let clock = move || Timestamp::now() + SignedDuration::from_secs(ahead.load(Ordering::Relaxed));
        Server::builder().clock(clock).start().await.expect("started")
    }

    /// A token that is good for ten minutes, the shortest time there is.
    async fn token(&self, bench: &Bench) -> String {
        let spec = TokenRequestSpec { expiration_seconds: Some(600), ..TokenRequestSpec::default() };
        request(bench, spec).await
    }

    /// So much time passes that a token runs out, and no more than that.
    async fn outlive(&self, bench: &Bench, token: &str) {
        while refusal(bench, token).await.is_none() {
            self.0.fetch_add(60, Ordering::Relaxed);
        }
        let why = refusal(bench, token).await;
        assert_eq!(why.as_deref(), Some("[invalid bearer token, service account token has expired]"));
    }
}

async fn taught(bench: &Bench, name: &str) {
    wait_for(name, async || !bench.pets().get(name).await.expect("there").spec.tricks.is_empty()).await;
}

/// A pod of the service account, which teaches, and what it is given.
struct Pod {
    authority: Authority,
    listener: Listener,
    files: tempfile::TempDir,
}

impl Pod {
    /// The account may do what it needs to, and the server listens.
    async fn prepare(bench: &Bench) -> Self {
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
        let files = tempfile::tempdir().expect("a directory");
        std::fs::write(files.path().join("ca.crt"), authority.certificate()).expect("written");
        std::fs::write(files.path().join("namespace"), "default").expect("written");
        Self { authority, listener, files }
    }

    fn start(&self, test: &str) -> Process {
        let (host, port) = (self.listener.address().ip().to_string(), self.listener.address().port().to_string());
        let variables = [("KUBERNETES_SERVICE_HOST", host.as_str()), ("KUBERNETES_SERVICE_PORT", port.as_str())];
        Process::start(test, self.files.path().to_str().expect("text"), &variables)
    }

    /// As a kubelet does it: never half a token.
    fn install(&self, token: &str) {
        let directory: &Path = self.files.path();
        std::fs::write(directory.join("next"), token).expect("written");
        std::fs::rename(directory.join("next"), directory.join("token")).expect("in place");
    }

    /// Every watch has to be opened again.
    async fn cut(self, bench: &Bench) -> Self {
        let address = self.listener.address();
        self.listener.stop().await;
        let listener = bench.server.listen(address, &self.authority).await.expect("listening again");
        Self { listener, ..self }
    }

    async fn end(self, operator: Process) {
        operator.signal(Signal::TERM);
        operator.ended_well().await;
        self.listener.stop().await;
    }
}

#[tokio::test]
async fn watches_and_writes_survive_a_revoked_token() {
    if let Some(directory) = part() {
        return teach(&directory).await;
    }
    let bench = Bench::of(Server::builder().start().await.expect("started")).await;
    let pod = Pod::prepare(&bench).await;
    let first = Bound::token(&bench, "first").await;
    pod.install(&first);
    bench.create(&pet("thor")).await;
    let mut operator = pod.start("credentials::watches_and_writes_survive_a_revoked_token");
    taught(&bench, "thor").await;

    // The token is replaced in time and the old one refused: the next write finds out, and is not lost.
    let second = Bound::token(&bench, "second").await;
    pod.install(&second);
    Bound::revoke(&bench, &first, "first").await;
    bench.create(&pet("tron")).await;
    taught(&bench, "tron").await;

    // It is refused before it is replaced.
    Bound::revoke(&bench, &second, "second").await;
    let pod = pod.cut(&bench).await;
    bench.create(&pet("odin")).await;
    operator.says("refused").await;
    assert!(bench.pets().get("odin").await.expect("there").spec.tricks.is_empty());
    pod.install(&Bound::token(&bench, "third").await);
    taught(&bench, "odin").await;
    pod.end(operator).await;
}

#[tokio::test]
async fn watches_and_writes_survive_an_expired_token() {
    if let Some(directory) = part() {
        return teach(&directory).await;
    }
    let clock = Ahead::default();
    let bench = Bench::of(clock.server().await).await;
    let pod = Pod::prepare(&bench).await;
    let first = clock.token(&bench).await;
    pod.install(&first);
    bench.create(&pet("thor")).await;
    let mut operator = pod.start("credentials::watches_and_writes_survive_an_expired_token");
    taught(&bench, "thor").await;

    // It runs out, with its successor in place: the next write finds out, and is not lost. The watch,
    // opened in time, goes on.
    clock.outlive(&bench, &first).await;
    let second = clock.token(&bench).await;
    pod.install(&second);
    bench.create(&pet("tron")).await;
    taught(&bench, "tron").await;

    // It runs out with no successor: no watch can be opened until there is one.
    clock.outlive(&bench, &second).await;
    let pod = pod.cut(&bench).await;
    bench.create(&pet("odin")).await;
    operator.says("refused").await;
    assert!(bench.pets().get("odin").await.expect("there").spec.tricks.is_empty());
    pod.install(&clock.token(&bench).await);
    taught(&bench, "odin").await;
    pod.end(operator).await;
}
