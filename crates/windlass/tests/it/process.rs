//! What only processes of their own can show: signals, and replicas that the system stops.
//!
//! A test here runs twice: as itself, and, with `WINDLASS_IT_PART` set, as the process that it starts.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::Patch;
use kube::runtime::{WatchStreamExt as _, watcher};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use windlass::config::Loader;
use windlass::controller::from_key_fn;
use windlass::lease::LeaderElection;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::pki::Authority;

use crate::bench::{Bench, Log, Pet, pet, wait_for, write_kubeconfig};
use crate::webhook::{certificates, settings, webhooks};

const PART: &str = "WINDLASS_IT_PART";

/// The part that this process plays, if it is one that a test started.
pub fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// Says something to the test that started this process.
pub fn say(what: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\nit: {what}").and_then(|()| stdout.flush()).expect("somebody listens");
}

/// A process that plays a part of a test.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub fn start(test: &str, part: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", test, "--nocapture"])
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env_remove("KUBERNETES_SERVICE_PORT")
            .env(PART, part)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    /// Waits until the process says this.
    pub async fn says(&mut self, what: &str) {
        let line = format!("it: {what}");
        let heard = async {
            while let Some(said) = self.lines.next_line().await.expect("text") {
                if said == line {
                    return true;
                }
            }
            false
        };
        let heard = tokio::time::timeout(Duration::from_secs(20), heard).await;
        assert_eq!(heard, Ok(true), "the process never said {what:?}");
    }

    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().expect("it runs")).expect("a process");
        kill_process(Pid::from_raw(id).expect("a process"), signal).expect("sent");
    }

    pub async fn ended_well(self) {
        assert_eq!(self.ended().await, Some(0));
    }

    /// Waits until it ends, and says with which code.
    pub async fn ended(mut self) -> Option<i32> {
        self.child.wait().await.expect("ended").code()
    }
}

/// A log that is not read: errors wait for ever.
struct Mute;

impl tracing::Subscriber for Mute {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        loop {
            std::thread::park();
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A manager whose only reconcile ends when it is told to stop, or never, or does not even hear of it.
async fn run_until_signals(part: String) -> Result<(), ManagerError> {
    let (stubborn, blocked) = (part == "stubborn", ["blocked", "mute"].contains(&part.as_str()));
    if part == "mute" {
        tracing::subscriber::set_global_default(Mute).expect("the only one");
    }
    let bench = Bench::start().await;
    bench.create(&pet("thor")).await;
    let mut manager = bench.manager();
    let reconciler = from_key_fn(move |_: ObjectKey, ctx: Context| async move {
        say("reconciling");
        // The only thread of the runtime.
        if blocked {
            loop {
                std::thread::park();
            }
        }
        ctx.shutdown().cancelled().await;
        say("stopping");
        if stubborn {
            std::future::pending::<()>().await;
        }
        Ok(Outcome::Done)
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    manager.run().await
}

#[tokio::test]
async fn a_signal_drains_and_a_second_one_aborts() {
    if let Some(part) = part() {
        let lingers = part == "lingering";
        match run_until_signals(part).await {
            Ok(()) => say("drained"),
            // Unless the second it has for this is over.
            Err(ManagerError::Aborted) => {}
            Err(error) => panic!("{error}"),
        }
        // As a runtime does that waits for a thread in blocking code.
        if lingers {
            loop {
                std::thread::park();
            }
        }
        return;
    }
    const SELF: &str = "process::a_signal_drains_and_a_second_one_aborts";
    for signal in [Signal::TERM, Signal::INT] {
        let mut willing = Process::start(SELF, "willing", &[]);
        willing.says("reconciling").await;
        willing.signal(signal);
        willing.says("drained").await;
        willing.ended_well().await;
    }
    // As `timeout` does it: the process and its group.
    let mut signalled_twice = Process::start(SELF, "willing", &[]);
    signalled_twice.says("reconciling").await;
    signalled_twice.signal(Signal::TERM);
    signalled_twice.says("stopping").await;
    signalled_twice.signal(Signal::TERM);
    signalled_twice.says("drained").await;
    signalled_twice.ended_well().await;
    let mut stubborn = Process::start(SELF, "stubborn", &[]);
    stubborn.says("reconciling").await;
    stubborn.signal(Signal::TERM);
    stubborn.says("stopping").await;
    stubborn.signal(Signal::INT);
    // Well, if it is quick enough.
    let ended = tokio::time::timeout(Duration::from_secs(20), stubborn.ended()).await;
    assert!(matches!(ended, Ok(Some(0 | 1))), "{ended:?}");
    for part in ["blocked", "mute"] {
        let mut blocked = Process::start(SELF, part, &[]);
        blocked.says("reconciling").await;
        blocked.signal(Signal::TERM);
        blocked.signal(Signal::INT);
        let ended = tokio::time::timeout(Duration::from_secs(20), blocked.ended()).await;
        assert_eq!(ended, Ok(Some(1)), "{part}: as in controller-runtime");
    }
    let mut lingering = Process::start(SELF, "lingering", &[]);
    lingering.says("reconciling").await;
    lingering.signal(Signal::TERM);
    lingering.says("drained").await;
    lingering.signal(Signal::INT);
    let ended = tokio::time::timeout(Duration::from_secs(20), lingering.ended()).await;
    assert_eq!(ended, Ok(Some(1)), "after `run` has returned, too");
}

/// Says so when a term as the leader ends, however it ends.
struct Term;

impl Drop for Term {
    fn drop(&mut self) {
        say("no longer leads");
    }
}

/// A replica that writes its name on every pet as fast as it can, while it leads.
async fn write_names(identity: String) {
    let file = std::env::var("WINDLASS_IT_KUBECONFIG").expect("a kubeconfig");
    let client = Loader::default().kubeconfig(file).client().await.expect("a client");
    let election = LeaderElection::new("lock")
        .identity(identity.clone())
        .lease_duration(Duration::from_secs(1))
        .renew_deadline(Duration::from_millis(600))
        .retry_period(Duration::from_millis(50));
    let mut manager = Manager::builder(client).name(&identity).leader_election(election).build().expect("built");
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let identity = identity.clone();
        async move {
            // Once or twice, in turn: every write is a change.
            let known = ctx.get::<Pet>(&key).await?.map_or(0, |pet| pet.spec.tricks.len());
            let tricks = vec![identity; 1 + known % 2];
            ctx.client().patch::<Pet>(&key, &Patch::Merge(json!({"spec": {"tricks": tricks}}))).await?;
            Ok(Outcome::RequeueAfter(Duration::from_millis(1)))
        }
    });
    manager.add(Controller::<Pet>::new("pet").complete_keyed(reconciler)).expect("added");
    let leading = |_, shutdown: tokio_util::sync::CancellationToken| async move {
        let _term = Term;
        shutdown.cancelled().await;
        Ok::<_, String>(())
    };
    manager.add_leader_task("term", leading).expect("added");
    let ready = manager.ready();
    tokio::spawn(async move {
        if ready.await {
            say("ready");
        }
    });
    manager.run().await.expect("stopped");
}

#[tokio::test]
async fn suspended_leaders_write_nothing_when_they_wake() {
    if let Some(identity) = part() {
        return write_names(identity).await;
    }
    const SELF: &str = "process::suspended_leaders_write_nothing_when_they_wake";
    let server = Server::builder().token("replica", User::admin()).start().await.expect("started");
    let authority = Authority::generate().expect("made");
    let listener = server.listen("127.0.0.1:0".parse().expect("an address"), &authority).await.expect("listening");
    let files = tempfile::tempdir().expect("a directory");
    let kubeconfig = write_kubeconfig(files.path(), listener.address(), &authority, "replica");
    let bench = Bench::of(server).await;
    bench.create(&pet("thor")).await;

    // Who wrote, in the order of the writes.
    let writers: Log<String> = Log::default();
    let (log, pets) = (writers.clone(), bench.pets());
    let following = tokio::spawn(async move {
        let mut states = std::pin::pin!(watcher(pets, watcher::Config::default()).applied_objects());
        while let Some(Ok(pet)) = states.next().await {
            pet.spec.tricks.first().cloned().into_iter().for_each(|name| log.push(name));
        }
    });
    let wrote = async |name: &str, since: usize| {
        let what = format!("{name} writes");
        wait_for(&what, async || writers.entries()[since..].iter().filter(|who| *who == name).count() > 5).await;
    };

    let variables = [("WINDLASS_IT_KUBECONFIG", kubeconfig.to_str().expect("text"))];
    let mut a = Process::start(SELF, "a", &variables);
    wrote("a", 0).await;
    let mut b = Process::start(SELF, "b", &variables);
    b.says("ready").await;
    a.signal(Signal::STOP);
    wrote("b", 0).await;
    a.signal(Signal::CONT);
    a.says("no longer leads").await;
    let woken = writers.len();
    wrote("b", woken).await;
    let entries = writers.entries();
    let handover = entries.iter().position(|who| who == "b").expect("b wrote");
    assert!(entries[..handover].iter().all(|who| who == "a"));
    assert!(entries[handover..].iter().all(|who| who == "b"), "a wrote after its time: {entries:?}");

    // It stands for election again, in the same process.
    b.signal(Signal::TERM);
    b.ended_well().await;
    wrote("a", writers.len()).await;
    a.signal(Signal::TERM);
    a.ended_well().await;
    following.abort();
    listener.stop().await;
}

/// Says which cluster is found, and as what.
async fn find() {
    let loader =
        std::env::var("WINDLASS_IT_CONTEXT").map_or_else(|_| Loader::default(), |name| Loader::default().context(name));
    match loader.load().await {
        Ok(config) => say(&format!("{} {}", config.cluster_url, config.default_namespace)),
        Err(error) => say(&error.to_string()),
    }
}

#[tokio::test]
async fn the_cluster_is_found_where_others_look_for_it() {
    if part().is_some() {
        return find().await;
    }
    const SELF: &str = "process::the_cluster_is_found_where_others_look_for_it";
    let files = tempfile::tempdir().expect("a directory");
    let file = |path: &std::path::Path, name: &str| {
        let config = json!({
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": "me", "namespace": format!("of-{name}")}}],
            "clusters": [{"name": name, "cluster": {"server": format!("https://{name}:6443")}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
        });
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, config.to_string()).expect("written");
        path.to_str().expect("text").to_owned()
    };
    let home = files.path().join("home");
    file(&home.join(".kube").join("config"), "home");
    let (one, two) = (file(&files.path().join("one"), "one"), file(&files.path().join("two"), "two"));
    let (home, both) = (home.to_str().expect("text").to_owned(), format!("{one}:{two}"));
    let pod = ("KUBERNETES_SERVICE_HOST", "192.0.2.1");
    let found = async |variables: &[(&str, &str)], what: &str| {
        let mut variables = variables.to_vec();
        // Without a port, this is no pod, even where the tests run in one.
        variables.extend([("HOME", home.as_str()), ("KUBERNETES_SERVICE_PORT", "")]);
        let mut process = Process::start(SELF, "find", &variables);
        process.says(what).await;
        process.ended_well().await;
    };
    // The first of several files says which context is the current one; a file goes before the pod.
    found(&[("KUBECONFIG", &both), pod], "https://one:6443/ of-one").await;
    found(&[("KUBECONFIG", &both), ("WINDLASS_IT_CONTEXT", "two")], "https://two:6443/ of-two").await;
    found(&[("KUBECONFIG", &format!("/nowhere:{two}")), pod], "https://two:6443/ of-two").await;
    // There is no service account here, which is what would be used; without, there is the file at home.
    let missing =
        "service account of this pod: failed to read an incluster environment variable: environment variable not found";
    found(&[("KUBECONFIG", ""), pod], "https://home:6443/ of-home").await;
    found(&[("KUBECONFIG", "/nowhere"), pod], missing).await;
    found(&[("KUBECONFIG", ""), pod, ("WINDLASS_IT_CONTEXT", "home")], "https://home:6443/ of-home").await;
    found(&[("KUBECONFIG", "")], "https://home:6443/ of-home").await;
}

/// A manager that would lead, and serve webhooks, if it were not only asked what it needs.
async fn tell_needs() -> Result<(), ManagerError> {
    let config = kube::Config::new("http://127.0.0.1:9".parse().expect("a URL"));
    let client = windlass::config::connect(config).expect("a client");
    let election = LeaderElection::new("lock").namespace("ops");
    let mut manager = Manager::builder(client).name("pets").leader_election(election).build()?;
    manager.add_webhooks(webhooks(&crate::webhook::Rules::default(), certificates(settings())))?;
    manager.run().await
}

#[tokio::test]
async fn manifests_name_what_they_are_about() {
    if part().is_some() {
        return tell_needs().await.expect("told");
    }
    let files = tempfile::tempdir().expect("a directory");
    let file = files.path().join("manifests");
    let variables = [("WINDLASS_MANIFESTS", file.to_str().expect("text"))];
    Process::start("process::manifests_name_what_they_are_about", "tell", &variables).ended_well().await;
    let text = std::fs::read_to_string(file).expect("written");
    let manifests: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let roles =
        manifests.iter().filter(|manifest| manifest["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")));
    let rules: Vec<Value> = roles.flat_map(|role| role["rules"].as_array().cloned().expect("rules")).collect();
    for rule in [
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}),
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["lock"],
            "verbs": ["get", "update"]}),
        json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["webhook-server-cert"],
            "verbs": ["get", "list", "update", "watch"]}),
    ] {
        assert!(rules.contains(&rule), "{rule}\nnot in\n{text}");
    }
    let webhooks = manifests.iter().filter(|manifest| manifest["webhooks"].is_array());
    let services: Vec<&Value> = webhooks.map(|one| &one["webhooks"][0]["clientConfig"]["service"]["path"]).collect();
    assert!(!services.is_empty() && services.iter().all(|path| path.is_string()), "{text}");
}
