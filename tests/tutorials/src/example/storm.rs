//! Kills an operator with SIGKILL and starts it again, many times, while objects are created, edited and deleted. So it
//! goes for the service that the operator manages, if there is one. Then everything must be as it should be.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::Value;

use super::operators::Operator;
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
    settle(cluster, operator, service.as_deref()).await?;
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
        _ => api.delete(&name, &DeleteParams::default()).await.map(drop),
    };
    match result {
        Ok(()) | Err(kube::Error::Api(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until all objects are as their specs ask and nothing is left of those that are gone.
async fn settle(cluster: &Cluster, operator: &Operator, service: Option<&Service>) -> Result<()> {
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
            None => (operator.verify)(&objects, &children),
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
