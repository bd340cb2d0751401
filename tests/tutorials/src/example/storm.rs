//! Kills an operator with SIGKILL and starts it again, many times, while objects are created, edited and deleted. So it
//! goes for the service that the operator manages, if there is one. Then everything must be as it should be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::Value;

use super::operators::{self, Once, Operator};
use crate::cluster::{Cluster, Process};
use crate::service::Service;

/// How many objects there are at most at a time.
const OBJECTS: usize = 24;
/// The longest time between the start of an operator and its end, in milliseconds.
const LONGEST_LIFE: u64 = 1500;
/// How long everything may take to settle on a machine that is busy.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn survive(
    cluster: &Cluster,
    operator: &Operator,
    first: Process,
    start: &dyn Fn() -> Result<Process>,
    mut service: Option<&mut Service>,
    rounds: u32,
) -> Result<()> {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("{}: {rounds} rounds, SEED={seed}", operator.name);
    let mut random = fastrand::Rng::with_seed(seed);
    let children = match &operator.once {
        Some(once) => Some(Children::watch(cluster, once).await?),
        None => None,
    };
    for object in (operator.setup)() {
        let api = cluster.api_of(&object)?;
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    let mut running = first;
    for round in 0..rounds {
        let end = tokio::time::Instant::now() + Duration::from_millis(random.u64(..LONGEST_LIFE));
        while tokio::time::Instant::now() < end {
            act(cluster, operator, &mut random).await?;
            if let Some(service) = &mut service
                && random.u8(..20) == 0
            {
                service.kill()?;
                act(cluster, operator, &mut random).await?;
                service.start_again()?;
            }
            tokio::time::sleep(Duration::from_millis(random.u64(..60))).await;
        }
        drop(running); // SIGKILL
        // Some things happen while nobody reconciles.
        act(cluster, operator, &mut random).await?;
        running = start().with_context(|| format!("round {round}"))?;
    }
    settle(cluster, operator, service.as_deref(), children.as_ref()).await?;
    // It may have started just now, before it could be asked to stop.
    drop(running);
    Ok(())
}

/// One random change. Answers that somebody else may cause, such as conflicts and webhooks without a server, are no
/// failures.
async fn act(cluster: &Cluster, operator: &Operator, random: &mut fastrand::Rng) -> Result<()> {
    let api = cluster.api(operator.api_version, operator.kind, operator.namespaced);
    let name = format!("{}-{}", operator.kind.to_lowercase(), random.usize(..OBJECTS));
    let result = match random.u8(..10) {
        0..5 => {
            let mut object = (operator.object)(random);
            object["metadata"]["name"] = Value::String(name);
            object["apiVersion"] = operator.api_version.into();
            object["kind"] = operator.kind.into();
            api.create(&PostParams::default(), &serde_json::from_value(object)?).await.map(drop)
        }
        5..8 => match (operator.edit)(random) {
            Some(patch) => api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop),
            None => Ok(()),
        },
        _ => match &operator.once {
            Some(once) if random.bool() => {
                let api = cluster.api(once.api_version, once.kind, true);
                api.delete(&(once.name)(&name), &DeleteParams::default()).await.map(drop)
            }
            _ => api.delete(&name, &DeleteParams::default()).await.map(drop),
        },
    };
    match result {
        Ok(()) | Err(kube::Error::Api(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until all objects are as their specs ask and nothing is left of those that are gone.
async fn settle(
    cluster: &Cluster,
    operator: &Operator,
    service: Option<&Service>,
    once: Option<&Children<'_>>,
) -> Result<()> {
    let started = tokio::time::Instant::now();
    loop {
        let objects = cluster.list(operator.api_version, operator.kind).await?;
        let mut children = Vec::new();
        for (api_version, kind) in operator.children {
            children.extend(cluster.list(api_version, kind).await?);
        }
        if let Some(service) = service {
            children.extend(service.list()?);
        }
        let unsettled = objects
            .iter()
            .find(|object| !(operator.is_settled)(object) || object["metadata"]["deletionTimestamp"].is_string());
        let verdict = match unsettled {
            Some(object) => Err(anyhow::anyhow!("it is not as it should be: {object}")),
            None => (operator.verify)(&objects, &children).and_then(|()| once.map_or(Ok(()), |it| it.verify(&objects))),
        };
        match verdict {
            Ok(()) => {
                println!("{}: {} objects with {} children are right", operator.name, objects.len(), children.len());
                return Ok(());
            }
            Err(error) if started.elapsed() > SETTLE_TIMEOUT => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
        if started.elapsed() > 2 * SETTLE_TIMEOUT {
            bail!("listing takes too long");
        }
    }
}

/// By the uid of the owner, the uids of its children.
type Seen = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// All children of a kind that there ever were during the storm, also those that were deleted.
struct Children<'a> {
    once: &'a Once,
    seen: Seen,
    watch: tokio::task::JoinHandle<Result<()>>,
}

impl<'a> Children<'a> {
    async fn watch(cluster: &Cluster, once: &'a Once) -> Result<Self> {
        let api = cluster.api(once.api_version, once.kind, true);
        let seen = Seen::default();
        let list = api.list(&kube::api::ListParams::default()).await?;
        list.items.iter().for_each(|child| record(&seen, child));
        let revision = list.metadata.resource_version.context("a list has a revision")?;
        let watch = tokio::spawn(follow(api, revision, Arc::clone(&seen)));
        Ok(Self { once, seen, watch })
    }

    /// No object has had two of them, and each that should have had one has.
    fn verify(&self, objects: &[Value]) -> Result<()> {
        ensure!(!self.watch.is_finished(), "the watch of children has ended");
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (owner, children) in &*seen {
            ensure!(children.len() == 1, "the object with the uid {owner} has had {children:?}");
        }
        for object in objects.iter().filter(|object| (self.once.is_due)(object)) {
            ensure!(seen.contains_key(operators::uid(object)), "it has never had a {}: {object}", self.once.kind);
        }
        println!("{} objects have had one {} each", seen.len(), self.once.kind);
        Ok(())
    }
}

impl Drop for Children<'_> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

fn record(seen: &Seen, child: &DynamicObject) {
    let child = operators::value(child);
    if let Some(owner) = operators::owner(&child) {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry(owner.to_owned()).or_default().insert(operators::uid(&child).to_owned());
    }
}

/// Records the children that come. A server ends a watch after some minutes: the next one goes on where it was.
async fn follow(api: Api<DynamicObject>, mut revision: String, seen: Seen) -> Result<()> {
    loop {
        let mut events = Box::pin(api.watch(&WatchParams::default(), &revision).await?);
        while let Some(event) = events.next().await {
            let latest = match event? {
                WatchEvent::Added(child) | WatchEvent::Modified(child) | WatchEvent::Deleted(child) => {
                    record(&seen, &child);
                    child.metadata.resource_version
                }
                WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version),
                WatchEvent::Error(error) => bail!("the watch of children ends: {error:?}"),
            };
            revision = latest.context("an event has a revision")?;
        }
    }
}
