//! The README by hand: `windlass up`, the two programs and kubectl, each a process of its own.
//!
//! Where there is no kubectl these tests do nothing, and say so.

#![allow(clippy::print_stderr)]

use std::path::{Path, PathBuf};

use k8s_openapi::api::events::v1::Event;
use kube::{Api, Client, ResourceExt};
use tempfile::TempDir;
use tokio::process::Command;
use windlass_petstore::{
    api::v1alpha1::{FINALIZER, Pet},
    operator::{SYNCED, UNAVAILABLE},
};

use crate::{
    cluster::{wait_for, wait_for_any},
    process::{self, Process},
};

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config");

/// A directory that stands for the user's home, and the address that a cluster there has.
struct Home {
    dir: TempDir,
    listen: String,
}

impl Home {
    /// A home, if there is a kubectl to try there.
    async fn new() -> Option<Self> {
        if Command::new("kubectl").args(["version", "--client"]).output().await.is_err() {
            eprintln!("SKIPPED: kubectl is missing");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        Some(Self { dir, listen: "127.0.0.1:0".to_owned() })
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// A command that finds nothing of the user's.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("HOME", self.dir.path()).env("KUBECONFIG", self.kubeconfig()).env_remove("RUST_LOG");
        command
    }

    /// Starts a cluster that keeps everything in this home, where it was before if it was here.
    async fn up(&mut self) -> Process {
        let mut command = self.command(process::windlass().await);
        command.args(["up", "--foreground", "--listen", &self.listen]);
        command.arg("--data-dir").arg(self.dir.path().join("data")).arg("--kubeconfig").arg(self.kubeconfig());
        let cluster = Process::start(&mut command);
        let ready = cluster.says("ready https://").await;
        let address = ready.split_whitespace().find_map(|word| word.strip_prefix("https://"));
        address.unwrap().clone_into(&mut self.listen);
        cluster
    }

    /// Starts the pet store.
    async fn store(&self, addr: &str) -> (Process, String) {
        let mut command = self.command(env!("CARGO_BIN_EXE_petstore-server"));
        let store = Process::start(command.args(["--addr", addr]));
        let ready = store.says("pet store ready").await;
        let (_, addr) = ready.split_once("addr=").unwrap();
        (store, addr.to_owned())
    }

    /// Starts the operator.
    async fn operator(&self, petstore: &str) -> Process {
        let mut command = self.command(env!("CARGO_BIN_EXE_petstore-operator"));
        let operator = Process::start(command.args(["--petstore-addr", petstore, "--probe-addr", "127.0.0.1:0"]));
        operator.says("controller started").await;
        operator
    }

    fn kubectl_command(&self, args: &str) -> Command {
        let mut command = self.command("kubectl");
        command.args(args.split_whitespace());
        command
    }

    /// Runs kubectl, which must succeed, and returns what it says.
    async fn kubectl(&self, args: &str) -> String {
        succeeds(&mut self.kubectl_command(args)).await
    }

    /// Another client of the cluster, which can wait for things.
    async fn client(&self) -> Client {
        windlass::config::Loader::default().kubeconfig(self.kubeconfig()).client().await.unwrap()
    }

    async fn pets(&self) -> Api<Pet> {
        Api::default_namespaced(self.client().await)
    }

    async fn install(&self) {
        let said = self.kubectl(&format!("apply -f {CONFIG}/crd")).await;
        assert_eq!(said, "customresourcedefinition.apiextensions.k8s.io/pets.petstore.example.com created\n");
        self.kubectl("wait --for=condition=Established crd/pets.petstore.example.com --timeout=60s").await;
    }

    async fn apply_samples(&self) {
        let said = self.kubectl(&format!("apply -f {CONFIG}/samples")).await;
        assert_eq!(said, "pet.petstore.example.com/thor created\npet.petstore.example.com/tron created\n");
        self.kubectl("wait --for=condition=Ready pet/thor pet/tron --timeout=60s").await;
    }

    /// Waits until the operator has spoken about the present spec of a Pet, in these words.
    async fn says(&self, name: &str, status: &str, reason: &str) -> Pet {
        let spoken = |pet: Option<&Pet>| {
            pet.is_some_and(|pet| {
                pet.ready().is_some_and(|ready| {
                    ready.status == status
                        && ready.reason == reason
                        && ready.observed_generation == pet.metadata.generation
                })
            })
        };
        wait_for(&self.pets().await, name, reason, spoken).await.unwrap()
    }

    /// Waits until an event about a Pet has been seen so often.
    async fn event(&self, name: &str, reason: &str, times: i32) -> Event {
        let events: Api<Event> = Api::default_namespaced(self.client().await);
        wait_for_any(&events, &format!("an event {reason} about {name}"), |event| {
            let about = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            let seen = event.series.as_ref().map_or(1, |series| series.count);
            about == Some(name) && event.reason.as_deref() == Some(reason) && seen >= times
        })
        .await
    }
}

async fn succeeds(command: &mut Command) -> String {
    let output = command.output().await.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The words of every line but the first.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect()
}

#[tokio::test]
async fn kubectl_sees_pets_through_their_lives() {
    let Some(mut home) = Home::new().await else { return };
    let cluster = home.up().await;
    home.install().await;
    let (store, addr) = home.store("127.0.0.1:0").await;
    let operator = home.operator(&addr).await;
    let watch = Process::start(&mut home.kubectl_command("get pets --watch"));
    home.apply_samples().await;

    let table = home.kubectl("get pets").await;
    let heading: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading.join(" "), "NAME PET NAME TYPE ID READY AGE");
    let [thor, tron] = &rows(&table)[..] else { panic!("{table}") };
    assert_eq!((&thor[..3], thor[4]), (&["thor", "Thor", "dog"][..], "True"));
    assert_eq!((&tron[..3], tron[4]), (&["tron", "Tron", "cat"][..], "True"));
    let id = thor[3];
    watch.says(id).await;
    let yaml = home.kubectl("get pet thor -o yaml").await;
    assert!(yaml.contains(&format!("  finalizers:\n  - {FINALIZER}\n")), "{yaml}");
    assert!(yaml.contains(&format!("\n  id: {id}\n")), "{yaml}");
    let described = home.kubectl("describe pet thor").await;
    assert!(described.contains("Normal  Synced"), "{described}");

    let edited = succeeds(home.kubectl_command("edit pet thor").env("KUBE_EDITOR", "sed -i s/Thor/Thorbert/")).await;
    assert_eq!(edited, "pet.petstore.example.com/thor edited\n");
    let renamed = home.says("thor", "True", SYNCED).await;
    assert_eq!((renamed.spec.name.as_str(), renamed.entry_id()), ("Thorbert", Some(id)));
    watch.says("Thorbert").await;

    let said = home.kubectl("delete pets --all --timeout=60s").await;
    let deleted: Vec<&str> = said.lines().collect();
    assert_eq!(deleted.len(), 2, "{said}");
    assert_eq!(home.kubectl("get pets --output name").await, "");
    drop(watch);
    assert!(operator.stop().await.success());
    assert!(store.stop().await.success());
    assert!(cluster.stop().await.success());
}

#[tokio::test]
async fn an_outage_of_the_store_is_told_and_passes() {
    let Some(mut home) = Home::new().await else { return };
    let _cluster = home.up().await;
    home.install().await;
    let (store, addr) = home.store("127.0.0.1:0").await;
    let _operator = home.operator(&addr).await;
    home.apply_samples().await;
    let before = home.says("thor", "True", SYNCED).await;

    // Nobody touches a Pet: the operator notices by itself.
    assert!(store.stop().await.success());
    let down = home.says("thor", "False", UNAVAILABLE).await;
    assert_eq!(down.entry_id(), before.entry_id());
    // More than once: it is tried again.
    home.event("thor", UNAVAILABLE, 3).await;
    let described = home.kubectl("describe pet thor").await;
    assert!(described.contains("Warning  PetStoreUnavailable"), "{described}");
    let table = home.kubectl("get pets -o wide").await;
    assert_eq!(rows(&table)[0][4..6], ["False", UNAVAILABLE], "{table}");

    // The store has forgotten everything, so the pet is a new entry.
    let (_store, _) = home.store(&addr).await;
    let after = home.says("thor", "True", SYNCED).await;
    assert_ne!(after.entry_id(), before.entry_id());
    home.kubectl("delete pets --all --timeout=60s").await;
}

const RENAMED: &str = r#"{"spec":{"name":"Thorbert"}}"#;

#[tokio::test]
async fn the_operator_goes_on_after_kill_9_of_the_cluster() {
    let Some(mut home) = Home::new().await else { return };
    let cluster = home.up().await;
    home.install().await;
    let (_store, addr) = home.store("127.0.0.1:0").await;
    let operator = home.operator(&addr).await;
    home.apply_samples().await;
    let before = home.pets().await.get("thor").await.unwrap();
    let all = home.kubectl("get pets,crds -o json").await;

    cluster.kill().await;
    let _cluster = home.up().await;
    let again = home.kubectl("get pets,crds -o json").await;
    assert_eq!(again, all);

    succeeds(home.command("kubectl").args(["patch", "pet", "thor", "--type=merge", "-p", RENAMED])).await;
    let after = home.says("thor", "True", SYNCED).await;
    assert_eq!(after.entry_id(), before.entry_id());
    let revision = |pet: &Pet| -> u64 { pet.resource_version().unwrap().parse().unwrap() };
    assert!(revision(&after) > revision(&before));
    home.kubectl("delete pets --all --timeout=60s").await;
    assert!(operator.stop().await.success());
}
