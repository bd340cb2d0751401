//! Kinds other than pods and nodes: each that a stage is for is watched while there is such a stage.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::DynamicObject;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::informer::InformerFactory;
use windlass::{Controller, Manager};

use super::acting::Actor;
use super::{Player, Stages, WORKERS};
use crate::objects;

/// When a kind that is not served is asked for again: first, and at most.
const RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Watches the kinds that stages are for.
pub(super) struct Follower {
    stages: Stages,
    actor: Arc<Actor>,
    /// Stages may have changed.
    changed: watch::Receiver<u64>,
}

impl Follower {
    pub(super) fn new(stages: &Stages, actor: &Arc<Actor>, changed: watch::Receiver<u64>) -> Self {
        Self { stages: stages.clone(), actor: Arc::clone(actor), changed }
    }

    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        let mut watched: HashMap<(String, String), CancellationToken> = HashMap::new();
        let mut watching = JoinSet::new();
        loop {
            let mut wanted = self.stages.kinds();
            wanted.retain(|(version, kind)| version != "v1" || !matches!(kind.as_str(), "Pod" | "Node"));
            watched.retain(|kind, stop| {
                let is_wanted = wanted.contains(kind);
                if !is_wanted {
                    stop.cancel();
                }
                is_wanted
            });
            for kind in wanted {
                watched.entry(kind.clone()).or_insert_with(|| {
                    let stop = shutdown.child_token();
                    let (stages, actor, token) = (self.stages.clone(), Arc::clone(&self.actor), stop.clone());
                    watching
                        .spawn(async move { token.run_until_cancelled(play(&stages, &actor, &kind, &token)).await });
                    stop
                });
            }
            tokio::select! {
                () = shutdown.cancelled() => break,
                changed = self.changed.changed() => if changed.is_err() { break },
                Some(_) = watching.join_next(), if !watching.is_empty() => {}
            }
        }
        shutdown.cancelled().await;
        while watching.join_next().await.is_some() {}
    }
}

/// Plays the stages of a kind, once it is served.
async fn play(stages: &Stages, actor: &Arc<Actor>, (version, kind): &(String, String), stop: &CancellationToken) {
    let mut pause = RETRY;
    let resource = loop {
        match actor.served(version, kind).await {
            Ok((resource, _)) => break resource,
            Err(error) => {
                tracing::debug!(%version, %kind, %error, "a stage is for a kind that is not served");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_RETRY);
            }
        }
    };
    let built = Manager::builder(actor.client().clone()).name("kwok").build().and_then(|mut manager| {
        let player = Player::new(stages, actor, resource.clone());
        let all = InformerFactory::over(manager.client().caches().clone()).dynamic(&resource).lister();
        let controller = Controller::<DynamicObject>::dynamic(format!("kwok-{}", resource.plural), resource);
        manager.add(
            // A stage that changes may be for any object.
            controller.watches::<objects::Stage, _, _>(move |_, _| all.keys()).concurrency(WORKERS).complete(player),
        )?;
        Ok(manager)
    });
    let ran = match built {
        Ok(manager) => manager.run_until(stop.clone()).await,
        Err(error) => Err(error),
    };
    if let Err(error) = ran {
        tracing::warn!(%version, %kind, %error, "stages of a kind cannot be carried out");
    }
}
