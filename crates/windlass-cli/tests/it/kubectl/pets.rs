//! The example operator as its README shows it: kubectl writes Pets, the operator and the pet store do the rest.

use petstore::controller::pet::Timing;
use petstore::service::client::StoreClient;
use petstore::service::inventory::Inventory;
use petstore::service::server::{PetStore, PetStoreServer};
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass::Manager;
use windlass::webhook::{Certificates, SelfManaged};

use super::{Kubectl, cells, has};
use crate::foreground::client;
use crate::process::eventually;
use crate::windlass::{Cluster, Sandbox};

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/petstore/config");

/// Starts a pet store and the operator, which converts Pets when this returns; both stop when the guard goes.
async fn operate(cluster: &Cluster) -> (PetStore, DropGuard) {
    let stop = CancellationToken::new();
    let server = PetStoreServer::bind("127.0.0.1:0", PetStore::in_memory()).await.unwrap();
    let store = server.store().clone();
    let petstore = StoreClient::connect_lazy(&server.local_addr().to_string()).unwrap();
    tokio::spawn(server.serve(stop.clone()));
    let certificates = SelfManaged::new("default").register("petstore").directly();
    let webhooks =
        petstore::webhook::webhooks().listen("127.0.0.1:0").certificates(Certificates::self_managed(certificates));
    let builder = Manager::builder(client(cluster).await).name("petstore").webhooks(webhooks).probes("0").metrics("0");
    let manager = petstore::operator(builder, petstore, Timing::default()).unwrap();
    let ready = manager.ready();
    tokio::spawn(manager.run_until(stop.clone()));
    assert!(ready.await);
    (store, stop.drop_guard())
}

fn define(k: &Kubectl) {
    k.run(&format!("apply -f {CONFIG}/crd/bases"));
    k.run("wait --for=condition=Established crd/pets.petstore.example.com --timeout=60s");
}

/// The id of a pet, once it has one and is ready.
fn id(k: &Kubectl, pet: &str) -> String {
    k.run(&format!("wait --for=condition=Ready pet/{pet} --timeout=60s"));
    k.field(&format!("pet/{pet}"), ".status.id")
}

#[tokio::test(flavor = "multi_thread")]
async fn pets_go_into_the_store_and_out_of_it() {
    let cluster = Cluster::ephemeral();
    let Some(k) = Kubectl::of(&cluster) else { return };
    define(&k);
    let (store, _stop) = operate(&cluster).await;
    let watch = k.spawn("get pets --watch --output-watch-events --no-headers");
    let said = k.run(&format!("apply -k {CONFIG}/samples"));
    has(&said, &["pet.petstore.example.com/thor created", "pet.petstore.example.com/tron created"]);
    watch.line_with("thor");
    let (thor, tron) = (id(&k, "thor"), id(&k, "tron"));
    assert_ne!(thor, tron);
    let table = k.run("get pets");
    assert_eq!(cells(&table)[2][..4], ["thor", "Thor", "dog", &thor]);
    assert_eq!(cells(&table)[3][..4], ["tron", "Tron", "cat", &tron]);
    has(&k.run("get pet thor -o yaml"), &["  - pet.petstore.example.com\n", &format!("  id: {thor}\n")]);

    // Renamed in an editor, it is the same entry with another name.
    let mut edit = k.command("edit pet thor");
    let edited = edit.env("KUBE_EDITOR", "sed -i s/Thor/Thorbert/").output().unwrap();
    assert!(edited.status.success(), "{edited:?}");
    watch.line_with("Thorbert");
    let generation = k.field("pet/thor", ".metadata.generation");
    eventually("the new name is in the store", || {
        (k.field("pet/thor", ".status.observedGeneration") == generation).then_some(())
    });
    assert_eq!(k.field("pet/thor", ".status.id"), thor);
    assert_eq!(store.with_inventory(Inventory::len), 3);

    k.run("delete pets --all --timeout=60s");
    watch.line_with("DELETED");
    assert_eq!(k.run("get pets -o name"), "");
    assert_eq!(store.with_inventory(Inventory::len), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pets_survive_kill_9_of_the_server() {
    let sandbox = Sandbox::new();
    let cluster = Cluster::durable(&sandbox.path("data"));
    let Some(k) = Kubectl::of(&cluster) else { return };
    define(&k);
    let (_store, stop) = operate(&cluster).await;
    k.run(&format!("apply -k {CONFIG}/samples"));
    let ids = [id(&k, "thor"), id(&k, "tron")];
    drop(stop);
    let before = k.run("get pets -o json");
    cluster.kill();

    let cluster = Cluster::durable(&sandbox.path("data"));
    let k = Kubectl::of(&cluster).unwrap();
    let after = k.run("get pets -o json");
    assert_eq!(after, before);
    assert_eq!([id(&k, "thor"), id(&k, "tron")], ids);
}
