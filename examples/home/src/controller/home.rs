// SPDX-License-Identifier: Apache-2.0

//! Tells the thermostats of each Home how warm its rooms are to be: in a ConfigMap, which they read.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use windlass::controller::{CompleteController, Reconcile};
use windlass::{Context, Controller, Outcome};

use home_api::v1::Home;

/// The controller, as the manager runs it. A change of a ConfigMap wakes the Home that owns it.
pub fn controller() -> CompleteController {
    Controller::<Home>::new("home").owns::<ConfigMap>().complete(Reconciler)
}

struct Reconciler;

impl Reconcile<Home> for Reconciler {
    /// Called when the Home may differ from the state of the cluster. It is told which Home, not what has changed: it
    /// compares all of it, so it does not matter which changes it has missed.
    async fn reconcile(&self, home: Arc<Home>, ctx: Context) -> windlass::Result {
        if home.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done); // Kubernetes deletes the ConfigMap, because the Home owns it
        }
        ctx.children(&home).apply(thermostats(&home)).await?;

        let rooms = home.spec.rooms.len();
        let mut draft = ctx.draft(&home);
        draft.status.get_or_insert_default().rooms = rooms as i32;
        let message = format!("the thermostats of {rooms} rooms are set");
        if draft.condition("Ready", true, "Heated", &message) {
            ctx.recorder().normal(&home, "Heated", &message);
        }
        draft.commit(&ctx).await?;
        Ok(Outcome::Done)
    }
}

/// How warm each room is to be.
fn thermostats(home: &Home) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(format!("{}-thermostats", home.metadata.name.as_deref().unwrap_or_default()));
    let rooms = home.spec.rooms.iter();
    map.data = Some(rooms.map(|room| (room.name.clone(), room.celsius().to_string())).collect());
    map
}
