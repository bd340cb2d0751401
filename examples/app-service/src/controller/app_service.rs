// SPDX-License-Identifier: Apache-2.0

//! Keeps the Deployment that each AppService asks for, with server-side apply.
//!
//! The example `sample-controller` does the same as its Go model does: read, compare, create or update. Here the reconciler
//! says what there should be, and `Children` does the rest: fields that others write stay theirs, what is no longer
//! wanted is deleted, and applying the same again changes nothing.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use windlass::controller::{CompleteController, Reconcile};
use windlass::{Context, Controller, ObjectKey, Outcome, ReconcileError, owner};

use app_service_api::v1alpha1::AppService;

/// The controller, as the manager runs it. A change of a Deployment wakes the AppService that owns it.
pub fn controller() -> CompleteController {
    Controller::<AppService>::new("appservice").owns::<Deployment>().complete(Reconciler)
}

struct Reconciler;

impl Reconcile<AppService> for Reconciler {
    async fn reconcile(&self, app: Arc<AppService>, ctx: Context) -> windlass::Result {
        if app.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done); // Kubernetes deletes the Deployment, because the AppService owns it
        }
        // Apply would take over a Deployment that somebody else has made.
        let key = ObjectKey::of(&app).sibling(&app.spec.deployment_name);
        if let Some(taken) = ctx.get::<Deployment>(&key).await?
            && !owner::is_controlled_by(&taken, &app)
        {
            let message = format!("Deployment {key} exists and belongs to somebody else");
            report(&app, &ctx, None, ("DeploymentExists", &message)).await?;
            return Err(ReconcileError::new(message)); // tried again, with growing delays: it may go
        }

        let mut children = ctx.children(&app);
        let deployment = children.apply(wanted(&app)).await?;
        // Deletes the Deployment of the name that the spec had before.
        children.prune().await?;

        let available = deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
        let message = format!("{available} of {} replicas are available", app.spec.replicas);
        let reason = if available == app.spec.replicas { "Available" } else { "Progressing" };
        report(&app, &ctx, Some(available), (reason, &message)).await?;
        Ok(Outcome::Done)
    }
}

/// Writes the status, and an event if it becomes ready or stops being so.
async fn report(
    app: &Arc<AppService>,
    ctx: &Context,
    available: Option<i32>,
    (reason, message): (&str, &str),
) -> Result<(), ReconcileError> {
    let mut draft = ctx.draft(app);
    draft.status.get_or_insert_default().available_replicas = available.unwrap_or(0);
    let is_new = draft.condition("Ready", reason == "Available", reason, message);
    draft.commit(ctx).await?;
    match available {
        Some(_) if is_new => ctx.recorder().normal(app, reason, message),
        None if is_new => ctx.recorder().warning(app, reason, message),
        _ => {}
    }
    Ok(())
}

/// The Deployment, with the fields that this operator decides and no others.
fn wanted(app: &AppService) -> Deployment {
    let name = app.metadata.name.clone().unwrap_or_default();
    let labels = Some([("app".to_owned(), "nginx".to_owned()), ("controller".to_owned(), name)].into());
    Deployment {
        metadata: ObjectMeta { name: Some(app.spec.deployment_name.clone()), ..ObjectMeta::default() },
        spec: Some(DeploymentSpec {
            replicas: Some(app.spec.replicas),
            selector: LabelSelector { match_labels: Option::clone(&labels), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels, ..ObjectMeta::default() }),
                spec: Some(PodSpec {
                    containers: vec![Container {
                        name: "nginx".into(),
                        image: Some("nginx:latest".into()),
                        ..Container::default()
                    }],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}
