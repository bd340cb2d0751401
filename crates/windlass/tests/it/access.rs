//! What an operator may do, and who may ask it things.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{Api, Patch, PostParams};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::ServiceExt;
use windlass::cache::Scope;
use windlass::controller::{Watch, from_fn, from_key_fn};
use windlass::lease::LeaderElection;
use windlass::manager::ManagerError;
use windlass::rbac::Rules;
use windlass::shard::Sharding;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::pki::Authority;

use crate::bench::{Bench, Log, Pet, Running, pet, wait_for};

fn user(name: &str) -> User {
    User { name: name.to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::anonymous() }
}

fn operator(client: kube::Client) -> Manager {
    let mut manager = Manager::builder(client).name("petstore").build().expect("built");
    let pets = Controller::<Pet>::new("pet").owns::<ConfigMap>().watches(|_: &Node, _| None).permits(
        "",
        ["pods/eviction"],
        ["create"],
    );
    manager.add(pets.complete(from_fn(|_, _| async { Ok(Outcome::Done) }))).expect("added");
    manager
}

#[tokio::test(start_paused = true)]
async fn rules_follow_from_what_controllers_declare() {
    let bench = Bench::start().await;
    let yaml = operator(bench.kube.clone()).rules().to_yaml("petstore");
    for rule in [
        "- apiGroups:\n  - petstore.example.com\n  resources:\n  - pets\n  verbs:\n  - get\n  - list\n  - patch\n  - update\n  - watch\n",
        "- apiGroups:\n  - petstore.example.com\n  resources:\n  - pets/status\n  verbs:\n  - get\n  - patch\n  - update\n",
        "- apiGroups:\n  - petstore.example.com\n  resources:\n  - pets/finalizers\n  verbs:\n  - update\n",
        "  - configmaps\n  verbs:\n  - create\n  - delete\n",
        "  - nodes\n  verbs:\n  - get\n  - list\n  - watch\n",
        "  - pods/eviction\n  verbs:\n  - create\n",
        "- apiGroups:\n  - events.k8s.io\n  resources:\n  - events\n  verbs:\n  - create\n  - patch\n",
    ] {
        assert!(yaml.contains(rule), "{rule}\nnot in\n{yaml}");
    }
    let builder = Manager::builder(bench.kube.clone()).namespaces(["a", "b"]);
    let mut manager = builder.leader_election(LeaderElection::new("lock").namespace("ops")).build().expect("built");
    let pets = Controller::<Pet>::new("pet").watches(|_: &Node, _| None);
    manager.add(pets.complete(from_fn(|_, _| async { Ok(Outcome::Done) }))).expect("added");
    let rules = manager.rules();
    let places: Vec<&str> = rules.namespaced_rules().into_keys().collect();
    assert_eq!(places, ["a", "b", "default", "ops"], "narrowed to the namespaces watched");
    let own = rules.to_string();
    let lease = "- apiGroups: [coordination.k8s.io]  # in namespace ops\n  resources: [leases]\n  ";
    assert!(own.contains(&format!("{lease}verbs: [create]\n")), "{own}");
    assert!(own.contains(&format!("{lease}resourceNames: [lock]\n  verbs: [get, update]\n")), "{own}");
    let everywhere = format!("{:?}", rules.cluster_rules());
    assert!(everywhere.contains("nodes") && !everywhere.contains("\"pets\""), "{everywhere}");
    assert!(!everywhere.contains("events"), "{everywhere}");
    for place in ["a", "b", "default"] {
        let events = format!("- apiGroups: [events.k8s.io]  # in namespace {place}\n  resources: [events]\n");
        assert!(own.contains(&events), "{own}");
    }
}

/// The leases of shards are in one namespace of the manager's own cluster, whatever is watched.
#[tokio::test(start_paused = true)]
async fn sharding_needs_leases_in_its_own_namespace_only() {
    let bench = Bench::start().await;
    let elsewhere = Sharding::new(4).namespace("ops");
    for (sharding, place) in [(Sharding::new(4), "default"), (elsewhere, "ops")] {
        for in_edge in [false, true] {
            let mut manager = Manager::builder(bench.kube.clone()).namespaces(["a"]).build().expect("built");
            let edge = manager.add_cluster("edge", bench.kube.clone()).expect("added");
            let pets = Controller::<Pet>::new("pet").sharding(sharding.clone());
            let pets = if in_edge { pets.cluster(&edge) } else { pets };
            manager.add(pets.complete(from_fn(|_, _| async { Ok(Outcome::Done) }))).expect("added");
            let rules = manager.rules();
            assert_eq!(rules.cluster_rules(), [], "nothing needs more than a namespace");
            let lease = format!(
                "- apiGroups: [coordination.k8s.io]  # in namespace {place}\n  resources: [leases]\n  \
                 verbs: [create, delete, get, list, update]\n"
            );
            let own = rules.to_string();
            assert!(own.contains(&lease), "{own}");
            assert_eq!(own.matches("leases").count(), 1, "{own}");
        }
    }
}

/// What the rules allow is enough to start with.
#[tokio::test(start_paused = true)]
async fn a_sharded_controller_of_one_namespace_runs_with_its_rules() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let client = kube::Client::new(bench.server.service_as(user("operator")), "default");
    let log: Log<String> = Log::default();
    let build = || {
        let mut manager = Manager::builder(client.clone()).name("it").namespaces(["default"]).build().expect("built");
        let seen = log.clone();
        let reconciler = from_key_fn(move |key: ObjectKey, _: Context| {
            seen.push(key.name().to_owned());
            async { Ok(Outcome::Done) }
        });
        manager.add(Controller::<Pet>::new("pet").sharding(4).complete_keyed(reconciler)).expect("added");
        manager
    };
    bench.grant("operator", &build().rules()).await;
    let running = Running::start(build());
    wait_for("the pet", async || log.contains(&"thor".to_owned())).await;
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn a_controller_may_write_as_another_user() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let nobody = kube::Client::new(bench.server.service_as(user("nobody")), "default");
    let clients = move |controller: &str| (controller == "limited").then(|| nobody.clone());
    let mut manager =
        Manager::builder(bench.kube.clone()).name("it").controller_clients(clients).build().expect("built");
    let outcomes: Log<(&str, bool)> = Log::default();
    for name in ["limited", "unlimited"] {
        let seen = outcomes.clone();
        let reconciler = from_key_fn(move |_: ObjectKey, ctx: Context| {
            let seen = seen.clone();
            async move {
                assert!(ctx.get::<Pet>(&ObjectKey::new("default", "thor")).await?.is_some(), "caches are shared");
                let mut map = ConfigMap::default();
                (map.metadata.name, map.metadata.namespace) = (Some(name.into()), Some("default".into()));
                let created = ctx.client().create(&map).await;
                let is_forbidden = created.is_err_and(|error| error.status().is_some_and(|status| status.code == 403));
                seen.push((name, is_forbidden));
                Ok(Outcome::Done)
            }
        });
        manager.add(Controller::<Pet>::new(name).complete_keyed(reconciler)).expect("added");
    }
    let running = Running::start(manager);
    wait_for("both", async || outcomes.contains(&("limited", true)) && outcomes.contains(&("unlimited", false))).await;
    running.stop().await.expect("stopped");
}

/// A Role grants nothing on what is in no namespace.
#[tokio::test(start_paused = true)]
async fn cluster_scoped_rules_are_not_spread_over_namespaces() {
    let bench = Bench::start().await;
    let mut manager = Manager::builder(bench.kube.clone()).namespaces(["a", "b"]).build().expect("built");
    let misplaced = Watch::<Node>::default().scope(Scope::default().namespace("a"));
    let volumes = Controller::<PersistentVolume>::new("volume")
        .owns::<ClusterRole>()
        .owns::<Secret>()
        .watches_with(misplaced, |_, _| None);
    manager.add(volumes.complete(from_fn(|_, _| async { Ok(Outcome::Done) }))).expect("added");
    let rules = manager.rules();
    let text = |rules: &[PolicyRule]| serde_json::to_string(rules).expect("encoded");
    let everywhere = text(&rules.cluster_rules());
    for rule in [
        r#""resources":["persistentvolumes"],"verbs":["get","list","patch","update","watch"]"#,
        r#""resources":["persistentvolumes/status"],"verbs":["get","patch","update"]"#,
        r#""resources":["persistentvolumes/finalizers"],"verbs":["update"]"#,
        r#""resources":["clusterroles"],"verbs":["create","delete","get","list","patch","update","watch"]"#,
        r#""resources":["nodes"],"verbs":["get","list","watch"]"#,
    ] {
        assert!(everywhere.contains(rule), "{rule}\nnot in\n{everywhere}");
    }
    assert!(!everywhere.contains("secrets"), "{everywhere}");
    let placed = rules.namespaced_rules();
    assert_eq!(placed.keys().copied().collect::<Vec<_>>(), ["a", "b", "default"]);
    let events = r#"{"apiGroups":["events.k8s.io"],"resources":["events"],"verbs":["create","patch"]}"#;
    for (place, rules) in placed {
        let own = r#"{"apiGroups":[""],"resources":["secrets"],"verbs":["create","delete","get","list","patch","update","watch"]}"#;
        let expected = if place == "default" { format!("[{events}]") } else { format!("[{own},{events}]") };
        assert_eq!(text(&rules), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn missing_permissions_fail_the_start_with_the_rules() {
    let bench = Bench::start().await;
    let client = kube::Client::new(bench.server.service_as(user("petstore")), "default");
    let error = Running::start(operator(client.clone())).ended().await.expect_err("nothing is allowed");
    let ManagerError::Forbidden { missing } = &error else {
        panic!("{error}");
    };
    let text = error.to_string();
    assert!(text.contains("resources: [pets]") && text.contains("verbs: [get, list, watch]"), "{text}");
    assert!(text.contains("pods/eviction"), "{text}");
    assert!(text.contains("resources: [configmaps]") && text.contains("create"), "what is owned is written: {text}");
    assert!(!text.contains("pets/status"), "what need not be used is not asked for: {text}");

    // With exactly those rules it starts.
    bench.grant("petstore", missing).await;
    wait_for("the operator runs", async || {
        let manager = operator(client.clone());
        let lister = manager.lister::<Pet>();
        let running = Running::start(manager);
        let synced = async {
            while !lister.is_synced() && !running.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        synced.await;
        running.stop().await.is_ok()
    })
    .await;
}

/// With the rules that it says it needs, and no more, it leads, works and steps down.
#[tokio::test(start_paused = true)]
async fn the_rules_are_enough_to_lead() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let client = kube::Client::new(bench.server.service_as(user("petstore")), "default");
    let log: Log<String> = Log::default();
    let build = || {
        let builder = Manager::builder(client.clone()).name("petstore");
        let mut manager = builder.leader_election(LeaderElection::new("lock")).build().expect("built");
        let seen = log.clone();
        let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
            let seen = seen.clone();
            async move {
                let patch = Patch::Merge(serde_json::json!({"spec": {"tricks": ["sit"]}}));
                ctx.client().patch::<Pet>(&key, &patch).await?;
                seen.push(key.to_string());
                Ok(Outcome::Done)
            }
        });
        manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
        manager
    };
    bench.grant("petstore", &build().rules()).await;
    let running = Running::ready(build()).await;
    wait_for("work", async || log.len() > 0).await;
    running.stop().await.expect("stopped");
    let leases: Api<Lease> = Api::namespaced(bench.kube.clone(), "default");
    let lease = leases.get("lock").await.expect("there").spec.expect("a spec");
    assert_eq!(lease.holder_identity.as_deref(), Some(""), "given back");
    // Another lease is none of its business.
    let other = Api::<Lease>::namespaced(client, "default").get("other").await.expect_err("refused");
    assert!(matches!(other, kube::Error::Api(status) if status.code == 403));
}

#[tokio::test(start_paused = true)]
async fn undeclared_kinds_fail_with_the_rule_to_add() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let mut rules = Rules::default();
    rules.allow(None, "petstore.example.com", ["pets"], ["get", "list", "watch"]);
    bench.grant("petstore", &rules).await;
    let client = kube::Client::new(bench.server.service_as(user("petstore")), "default");
    let errors: Log<String> = Log::default();
    let log = errors.clone();
    let mut manager = Manager::builder(client.clone()).name("petstore").build().expect("built");
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let log = log.clone();
        async move {
            let began = tokio::time::Instant::now();
            let error = ctx.get::<Secret>(&key).await.expect_err("not allowed");
            log.push(error.to_string());
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
            Err(error.into())
        }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    wait_for("the read fails", async || errors.len() > 0).await;
    let error = errors.entries().remove(0);
    let rule = "- apiGroups: [\"\"]\n  resources: [secrets]\n  verbs: [get, list, watch]\n";
    assert!(
        error.starts_with("cache of secrets/v1 not filled: secrets is forbidden") && error.contains(rule),
        "{error}"
    );
    running.stop().await.expect("stopped");
}

#[tokio::test]
async fn forbidden_kinds_of_reconcilers_keep_replicas_ready() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let mut rules = Rules::default();
    rules.allow(None, "petstore.example.com", ["pets"], ["get", "list", "watch"]);
    bench.grant("petstore", &rules).await;
    let client = kube::Client::new(bench.server.service_as(user("petstore")), "default");
    let errors: Log<String> = Log::default();
    let log = errors.clone();
    let mut manager = Manager::builder(client).name("petstore").probes("127.0.0.1:0").build().expect("built");
    let probes = manager.probes_address().expect("bound");
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let log = log.clone();
        async move {
            log.push(ctx.get::<Secret>(&key).await.expect_err("not allowed").to_string());
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let running = Running::ready(manager).await;
    wait_for("the read fails", async || errors.len() > 0).await;
    let answer = crate::manager::fetch(probes, "/readyz?verbose").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("[+]caches ok"), "{answer}");
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_first_read_does_not_delay_the_stop() {
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let (service, began) = (bench.server.service(), Log::default());
    let silent = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let service = service.clone();
        async move {
            if request.uri().path().contains("/secrets") {
                std::future::pending::<()>().await;
            }
            service.oneshot(request).await
        }
    });
    let log = began.clone();
    let builder = Manager::builder(kube::Client::new(silent, "default")).name("petstore");
    let mut manager = builder.graceful_shutdown(Duration::from_secs(5)).build().expect("built");
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        log.push(());
        async move {
            ctx.get::<Secret>(&key).await?;
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let running = Running::start(manager);
    wait_for("the read begins", async || began.len() > 0).await;
    running.stop().await.expect("stopped in time");
}

#[tokio::test]
async fn metrics_are_for_those_whom_the_api_server_lets() {
    let server = Server::builder()
        .token("prometheus", User::admin())
        .token("stranger", user("stranger"))
        .start()
        .await
        .expect("started");
    let kube = kube::Client::new(server.service(), "default");
    let manager = Manager::builder(kube).metrics("127.0.0.1:0").authenticate_metrics().build().expect("built");
    let address = manager.metrics_address().expect("bound");
    let running = Running::start(manager);
    wait_for("served", async || TcpStream::connect(address).await.is_ok()).await;
    let mut plain = TcpStream::connect(address).await.expect("connected");
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "no token is asked for over plain HTTP");
    assert!(ask(address, None).await.starts_with("HTTP/1.1 401"));
    assert!(ask(address, Some("forged")).await.starts_with("HTTP/1.1 401"));
    assert!(ask(address, Some("stranger")).await.starts_with("HTTP/1.1 403"));
    for _ in 0..2 {
        assert!(ask(address, Some("prometheus")).await.starts_with("HTTP/1.1 200"));
    }
    for (header, code) in
        [("bearer prometheus", 200), ("BEARER  prometheus", 200), ("Basic prometheus", 401), ("x", 401)]
    {
        assert!(ask_as(address, Some(header)).await.starts_with(&format!("HTTP/1.1 {code}")), "{header}");
    }
    running.stop().await.expect("stopped");
}

async fn ask(address: SocketAddr, token: Option<&str>) -> String {
    ask_as(address, token.map(|token| format!("Bearer {token}")).as_deref()).await
}

async fn ask_as(address: SocketAddr, header: Option<&str>) -> String {
    let mut stream = connect(address, Arc::new(Anybody)).await.expect("connected");
    let header = header.map(|value| format!("Authorization: {value}\r\n")).unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("received");
    answer
}

/// Trusts whomever it meets, as a scraper that is told not to verify does.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A connection, if the verifier trusts who is there.
async fn connect(address: SocketAddr, verifier: Arc<dyn ServerCertVerifier>) -> std::io::Result<TlsStream<TcpStream>> {
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::from(address.ip()), stream).await
}

#[tokio::test]
async fn metrics_are_served_with_the_certificate_of_a_directory() {
    let bench = Bench::start().await;
    let files = tempfile::tempdir().expect("a directory");
    let build = || {
        let builder = Manager::builder(bench.kube.clone()).metrics("127.0.0.1:0");
        builder.metrics_certificates(files.path()).build().expect("built")
    };
    let error = Running::start(build()).ended().await.expect_err("no certificate").to_string();
    assert!(error.starts_with("metrics over HTTPS: read ") && error.contains("tls.crt"), "{error}");
    let authority = Authority::generate().expect("made");
    let server = authority.server(&["127.0.0.1".to_owned()]).expect("made");
    std::fs::write(files.path().join("tls.crt"), server.certificate).expect("written");
    std::fs::write(files.path().join("tls.key"), server.key).expect("written");
    let manager = build();
    let address = manager.metrics_address().expect("bound");
    let running = Running::ready(manager).await;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).expect("a certificate"))
        .expect("added");
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
    let mut stream = connect(address, verifier.build().expect("a verifier")).await.expect("trusted");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("received");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("certificate_not_after_seconds"), "{answer}");
    running.stop().await.expect("stopped");
}

#[tokio::test(start_paused = true)]
async fn one_manager_looks_after_several_clusters() {
    let (home, away) = (Bench::start().await, Bench::start().await);
    let mut manager = home.manager();
    let edge = manager.add_cluster("edge", away.kube.clone()).expect("added");
    assert!(matches!(manager.add_cluster("edge", away.kube.clone()), Err(ManagerError::DuplicateCluster { .. })));
    // Pets of the other cluster are copied home; secrets of the other wake pets at home.
    let copied = crate::bench::Log::default();
    let seen = copied.clone();
    let target = home.kube.clone();
    let mirror = Controller::<Pet>::new("mirror").cluster(&edge).complete_keyed(from_key_fn(
        move |key, ctx: windlass::Context| {
            let (seen, target) = (seen.clone(), target.clone());
            async move {
                if let Some(found) = ctx.get::<Pet>(&key).await? {
                    let pets: Api<Pet> = Api::namespaced(target, "default");
                    pets.create(&PostParams::default(), &pet(&format!("copy-of-{}", found.spec.name))).await?;
                    seen.push(key.name().to_owned());
                }
                Ok(Outcome::Done)
            }
        },
    ));
    manager.add(mirror).expect("added");
    let woken = crate::bench::Log::default();
    let seen = woken.clone();
    let watch = windlass::controller::Watch::<Secret>::default().cluster(&edge);
    let local = Controller::<Pet>::new("local").watches_with(watch, |secret, _| [secret.into()]).complete_keyed(
        from_key_fn(move |key: windlass::ObjectKey, ctx: windlass::Context| {
            let seen = seen.clone();
            async move {
                let away = ctx.cluster("edge").ok_or("no such cluster")?;
                if away.get::<Secret>(&key).await?.is_some() {
                    seen.push(key.name().to_owned());
                }
                Ok(Outcome::Done)
            }
        }),
    );
    manager.add(local).expect("added");
    let running = Running::start(manager);
    away.create(&pet("thor")).await;
    wait_for("the copy", async || copied.contains(&"thor".into())).await;
    assert!(home.pets().get_opt("copy-of-thor").await.expect("read").is_some());
    assert!(home.pets().get_opt("thor").await.expect("read").is_none());
    let mut secret = Secret::default();
    secret.metadata.name = Some("chip".into());
    let secrets: Api<Secret> = Api::namespaced(away.kube.clone(), "default");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
    wait_for("the secret", async || woken.contains(&"chip".into())).await;
    running.stop().await.expect("stopped");
}
