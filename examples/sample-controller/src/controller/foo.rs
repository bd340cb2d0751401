// SPDX-License-Identifier: Apache-2.0

//! Keeps the Deployment that each Foo asks for: what [sample-controller] does, with its events and messages.
//!
//! Compare it with upstream's `controller.go`: the informers, the work queue, the workers and the handlers that look for
//! the owner of a Deployment are the line with `owns`.
//!
//! [sample-controller]: https://github.com/kubernetes/sample-controller

// The kind is Foo: clippy takes its name for a placeholder.
#![allow(clippy::disallowed_names)]

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use windlass::controller::{CompleteController, Reconcile};
use windlass::{Context, Controller, ObjectKey, Outcome, ReconcileError, owner};

use sample_controller_api::v1alpha1::Foo;

/// The controller, as the manager runs it. A change of a Deployment wakes the Foo that owns it.
pub fn controller() -> CompleteController {
    Controller::<Foo>::new("foo").owns::<Deployment>().concurrency(2).complete(Reconciler)
}

struct Reconciler;

impl Reconcile<Foo> for Reconciler {
    async fn reconcile(&self, foo: Arc<Foo>, ctx: Context) -> windlass::Result {
        let name = &foo.spec.deployment_name;
        if name.is_empty() {
            // Trying again would not help: the Foo is reconciled when somebody edits it.
            tracing::error!(foo = %ObjectKey::of(&foo), "Deployment name missing from object reference");
            return Ok(Outcome::Done);
        }
        let key = ObjectKey::of(&foo).sibling(name);
        let deployment = match ctx.get::<Deployment>(&key).await? {
            Some(deployment) => deployment,
            None => Arc::new(ctx.client().create(&new_deployment(&foo)?).await?),
        };
        if !owner::is_controlled_by(&deployment, &foo) {
            let message = format!("Resource {name:?} already exists and is not managed by Foo");
            ctx.recorder().warning(&foo, "ErrResourceExists", &message);
            return Err(ReconcileError::new(message));
        }
        let deployment = match foo.spec.replicas {
            Some(replicas) if Some(replicas) != deployment.spec.as_ref().and_then(|spec| spec.replicas) => {
                // The update has the resourceVersion of what was read. If somebody else has written since, the server
                // refuses it, and the Foo is reconciled again with what is there then.
                let mut wanted = (*deployment).clone();
                wanted.spec.get_or_insert_default().replicas = Some(replicas);
                Arc::new(ctx.client().update(&wanted).await?)
            }
            _ => deployment,
        };

        let mut draft = ctx.draft(&foo);
        let available = deployment.status.as_ref().and_then(|status| status.available_replicas);
        draft.status.get_or_insert_default().available_replicas = available.unwrap_or(0);
        draft.commit(&ctx).await?;
        ctx.recorder().normal(&foo, "Synced", "Foo synced successfully");
        Ok(Outcome::Done)
    }

    /// The Deployment is deleted by Kubernetes, because the Foo owned it.
    async fn gone(&self, key: ObjectKey, _ctx: Context) -> windlass::Result {
        tracing::info!(foo = %key, "Foo referenced by item in work queue no longer exists");
        Ok(Outcome::Done)
    }
}

/// The Deployment that a Foo asks for.
fn new_deployment(foo: &Foo) -> Result<Deployment, owner::OwnerError> {
    let labels = [("app", "nginx"), ("controller", foo.metadata.name.as_deref().unwrap_or_default())];
    let labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let mut deployment = Deployment {
        metadata: ObjectMeta {
            name: Some(foo.spec.deployment_name.clone()),
            namespace: foo.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: foo.spec.replicas,
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
    };
    owner::set_controller(&mut deployment, foo)?;
    Ok(deployment)
}
