//! What happens in the demo, step by step, each one timed and checked.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use petstore::service::inventory::Inventory;
use petstore::service::server::PetStore;
use petstore_api::v1beta1::{DeletionPolicy, Pet, PetSpec, Species};
use serde_json::json;
use tokio::sync::watch;
use windlass::ObjectKey;

use super::display::{Board, Display};
use super::pets::{Pets, Phase};
use super::stage::Stage;

/// No step takes nearly as long; one that does has failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Tells the story. With `keep` it has no end: the pets stay, for kubectl.
pub(crate) async fn tell(
    stage: &mut Stage,
    pets: &watch::Sender<Pets>,
    display: &Display<Pets>,
    keep: bool,
) -> Result<()> {
    step(display, "starting a cluster", "cluster ready", async {
        let server = stage.start_cluster(0).await?;
        let version = stage.connect().await?.apiserver_version().await?.git_version;
        Ok(((), format!("{server}  Kubernetes {version}")))
    })
    .await?;
    step(display, "installing the Pet kind", "Pet kind served", async {
        let mut names = Vec::new();
        for definition in petstore_api::definitions()? {
            names.push(install_crd(stage.connect().await?, &definition).await?);
        }
        Ok(((), names.join(", ")))
    })
    .await?;
    let (address, store) = step(display, "opening the pet store", "pet store open", async {
        let (address, store) = stage.start_store().await?;
        Ok(((address, store), format!("grpc://{address}")))
    })
    .await?;
    step(display, "starting the operator", "operator running", async {
        stage.start_operator(address).await?;
        Ok(((), "keeps one entry of the store per Pet".to_owned()))
    })
    .await?;
    let client = stage.watch(store.clone(), pets.clone()).await?;
    let cast = Cast { client, pets, store };
    display.pause().await;

    let resources = step(display, "applying Thor and Tron", "Thor and Tron applied", cast.apply()).await?;
    let ready = step(display, "waiting for ids from the store", "both have ids", cast.ready(&resources)).await;
    ready.map_err(|error| cast.explain(error))?;
    display.scene(&pets.borrow());
    display.pause().await;
    let renamed = step(display, "renaming Thor to Thorbert", "Thor is Thorbert", cast.rename()).await;
    renamed.map_err(|error| cast.explain(error))?;
    display.scene(&pets.borrow());
    display.pause().await;

    if keep {
        pets.send_modify(Pets::forget_gone);
        display.kept(stage.write_kubeconfig()?);
        std::future::pending::<()>().await;
    }
    let deleted = step(display, "deleting both", "both deleted", cast.delete(&resources)).await;
    deleted.map_err(|error| cast.explain(error))?;
    display.scene(&pets.borrow());
    display.pause().await;
    Ok(())
}

/// Stops everything that the story has started.
pub(crate) async fn clean_up<B: Board>(stage: &mut Stage, display: &Display<B>) -> Result<()> {
    step(display, "cleaning up", "cleaned up", async {
        stage.stop().await?;
        Ok(((), "no process, no file, no port left behind".to_owned()))
    })
    .await
}

/// Shows a step while it is done, and when it is done, what came of it and how long it took.
pub(crate) async fn step<T, B: Board>(
    display: &Display<B>,
    doing: &str,
    done: &str,
    work: impl Future<Output = Result<(T, String)>>,
) -> Result<T> {
    display.begin(doing);
    let started = Instant::now();
    let result = match tokio::time::timeout(STEP_TIMEOUT, work).await {
        Ok(result) => result.with_context(|| format!("{doing} failed")),
        Err(_) => bail!(
            "{doing} takes more than {} seconds; run it with RUST_LOG=info to see what it waits for",
            STEP_TIMEOUT.as_secs()
        ),
    };
    let (value, detail) = result?;
    display.done(done, started.elapsed(), &detail);
    Ok(value)
}

/// Makes the cluster serve a kind. Returns the name of the definition.
pub(crate) async fn install_crd(client: kube::Client, definition: &CustomResourceDefinition) -> Result<String> {
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    let created = crds.create(&PostParams::default(), definition).await?;
    let name = created.name_any();
    let this = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(crds.watch(&this, "0").await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(crd) | WatchEvent::Modified(crd) if is_established(&crd) => return Ok(name),
            _ => {}
        }
    }
    bail!("the watch of the definition ended before it was served")
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// Those who act once everything runs.
struct Cast<'a> {
    client: windlass::CachedClient,
    pets: &'a watch::Sender<Pets>,
    store: PetStore,
}

impl Cast<'_> {
    /// Applies two Pets. Returns their names.
    async fn apply(&self) -> Result<(Vec<String>, String)> {
        let mut resources = Vec::new();
        for (resource, name, species, birthday) in
            [("thor", "Thor", Species::Dog, "2021-04-01"), ("tron", "Tron", Species::Cat, "2020-06-25")]
        {
            let (name, birthday) = (name.to_owned(), birthday.to_owned());
            let mut pet =
                Pet::new(resource, PetSpec { name, species, birthday, deletion_policy: DeletionPolicy::Delete });
            pet.metadata.namespace = Some("default".to_owned());
            self.client.apply(&pet).await?;
            resources.push(pet.name_any());
        }
        Ok((resources, "two Pets, with server-side apply".to_owned()))
    }

    /// Waits until the operator has given every Pet an entry.
    async fn ready(&self, resources: &[String]) -> Result<((), String)> {
        let mut pets = self.pets.subscribe();
        let ready = pets.wait_for(|pets| pets.all(resources, Phase::Ready)).await?;
        for resource in resources {
            let row = ready.row(resource);
            ensure!(row.is_some_and(|row| row.id.is_some()), "{resource} is ready but has no id");
        }
        Ok(((), "written to status.id by the operator".to_owned()))
    }

    /// Renames Thor and waits until the store knows: it must be the same entry.
    async fn rename(&self) -> Result<((), String)> {
        let before = self.pets.borrow().row("thor").and_then(|row| row.id.clone());
        let patch = Patch::Merge(json!({ "spec": { "name": "Thorbert" } }));
        self.client.patch::<Pet>(&ObjectKey::new("default", "thor"), &patch).await?;
        let mut pets = self.pets.subscribe();
        let renamed = pets
            .wait_for(|pets| {
                pets.row("thor").is_some_and(|row| row.phase == Phase::Ready && row.pet_name == "Thorbert")
            })
            .await?;
        let thor = renamed.row("thor").context("thor is gone")?;
        ensure!(thor.id == before, "Thorbert has the id {:?}, but Thor had {before:?}", thor.id);
        ensure!(thor.entry.as_deref() == Some("Thorbert"), "the store's entry is called {:?}", thor.entry);
        let id = thor.id.as_deref().unwrap_or_default();
        Ok(((), format!("same entry, same id {}…", id.split('-').next().unwrap_or(id))))
    }

    /// Deletes the Pets and waits until they are gone, and their entries with them.
    async fn delete(&self, resources: &[String]) -> Result<((), String)> {
        for resource in resources {
            self.client.delete::<Pet>(&ObjectKey::new("default", resource)).await?;
        }
        let mut pets = self.pets.subscribe();
        pets.wait_for(|pets| pets.all(resources, Phase::Gone)).await?;
        let left = self.store.with_inventory(Inventory::len);
        ensure!(left == 0, "the Pets are gone, but the store still has {left} entries");
        Ok(((), "first from the store, then the cluster".to_owned()))
    }
    /// Adds what the operator says is wrong with the Pets.
    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let pets = self.pets.borrow();
        let complaints: Vec<String> = pets
            .rows()
            .filter_map(|row| row.message.as_ref().map(|message| format!("{} says: {message}", row.resource)))
            .collect();
        if complaints.is_empty() { error } else { error.context(complaints.join("; ")) }
    }
}
