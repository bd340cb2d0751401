// SPDX-License-Identifier: Apache-2.0

//! Runs each OpenTelemetryCollector: its configuration in a ConfigMap, a Deployment that mounts it, and a Service for its
//! receivers. The names are those of the OpenTelemetry operator.
//!
//! A Pod does not notice that a ConfigMap has changed. So the template of the Deployment says which configuration it is
//! for, by its hash: another configuration is another template, and Kubernetes rolls it out.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, Container, ContainerPort, PodSpec, PodTemplateSpec, Service, ServicePort,
    ServiceSpec, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use sha2::{Digest as _, Sha256};
use windlass::controller::{CompleteController, Reconcile};
use windlass::{Context, Controller, Outcome};

use opentelemetry_collector_api::v1alpha1::OpenTelemetryCollector;

use crate::config;

/// The hash of the configuration that a Pod runs with.
const CONFIG_HASH: &str = "opentelemetry-operator-config/sha256";

/// The controller, as the manager runs it.
pub fn controller() -> CompleteController {
    Controller::<OpenTelemetryCollector>::new("opentelemetrycollector")
        .owns::<ConfigMap>()
        .owns::<Deployment>()
        .owns::<Service>()
        .complete(Reconciler)
}

struct Reconciler;

impl Reconcile<OpenTelemetryCollector> for Reconciler {
    async fn reconcile(&self, collector: Arc<OpenTelemetryCollector>, ctx: Context) -> windlass::Result {
        if collector.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done); // Kubernetes deletes the parts, because the collector owns them
        }
        let ports = match config::ports(&collector.spec.config) {
            Ok(ports) => ports,
            Err(error) => {
                // What runs keeps running: a typing error must not end the collection of data.
                let message = format!("spec.config: {error}");
                let mut draft = ctx.draft(&collector);
                if draft.condition("Ready", false, "InvalidConfig", &message) {
                    ctx.recorder().warning(&collector, "InvalidConfig", &message);
                }
                draft.commit(&ctx).await?;
                return Ok(Outcome::Done); // trying again would not help; an edit does
            }
        };
        let part = Part::of(&collector, ports);
        let mut children = ctx.children(&collector);
        children.kind::<Service>();
        // The configuration first: Pods that begin to run find it.
        children.apply(part.config_map()).await?;
        let deployment = children.apply(part.deployment()).await?;
        if !part.ports.is_empty() {
            children.apply(part.service()).await?;
        }
        children.prune().await?;

        let status = deployment.status.unwrap_or_default();
        let (wanted, available) = (collector.spec.replicas, status.available_replicas.unwrap_or(0));
        // Pods of an earlier template are available, too.
        let is_rolled_out = status.observed_generation == deployment.metadata.generation
            && status.updated_replicas.unwrap_or(0) == wanted
            && status.replicas.unwrap_or(0) == wanted
            && available == wanted;
        let mut draft = ctx.draft(&collector);
        draft.status.get_or_insert_default().available_replicas = available;
        let (reason, message) = match is_rolled_out {
            true => ("Available", "all replicas run with this configuration".to_owned()),
            false => (
                "Progressing",
                format!("{} of {wanted} replicas have this configuration", status.updated_replicas.unwrap_or(0)),
            ),
        };
        if draft.condition("Ready", is_rolled_out, reason, &message) {
            ctx.recorder().normal(&collector, reason, &message);
        }
        draft.commit(&ctx).await?;
        Ok(Outcome::Done)
    }
}

/// What the three objects have in common.
struct Part<'a> {
    collector: &'a OpenTelemetryCollector,
    /// The name of all of them.
    name: String,
    labels: BTreeMap<String, String>,
    ports: BTreeMap<String, u16>,
}

impl<'a> Part<'a> {
    fn of(collector: &'a OpenTelemetryCollector, ports: BTreeMap<String, u16>) -> Self {
        let name = format!("{}-collector", collector.metadata.name.as_deref().unwrap_or_default());
        let labels = [("app.kubernetes.io/component", "opentelemetry-collector"), ("app.kubernetes.io/name", &name)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Self { collector, name, labels, ports }
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta { name: Some(self.name.clone()), labels: Some(self.labels.clone()), ..ObjectMeta::default() }
    }

    fn config_map(&self) -> ConfigMap {
        let data = [("collector.yaml".to_owned(), self.collector.spec.config.clone())];
        ConfigMap { metadata: self.metadata(), data: Some(data.into()), ..ConfigMap::default() }
    }

    fn deployment(&self) -> Deployment {
        let spec = &self.collector.spec;
        let hash: String = Sha256::digest(&spec.config).iter().map(|byte| format!("{byte:02x}")).collect();
        let port = |(name, port): (&String, &u16)| ContainerPort {
            name: Some(name.clone()),
            container_port: i32::from(*port),
            ..ContainerPort::default()
        };
        let container = Container {
            name: "otc-container".into(),
            image: Some(spec.image.clone()),
            args: Some(vec!["--config=/conf/collector.yaml".into()]),
            ports: Some(self.ports.iter().map(port).collect()),
            volume_mounts: Some(vec![VolumeMount {
                name: "otc-internal".into(),
                mount_path: "/conf".into(),
                ..VolumeMount::default()
            }]),
            ..Container::default()
        };
        let volume = Volume {
            name: "otc-internal".into(),
            config_map: Some(ConfigMapVolumeSource { name: self.name.clone(), ..ConfigMapVolumeSource::default() }),
            ..Volume::default()
        };
        let template = PodTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some(self.labels.clone()),
                annotations: Some([(CONFIG_HASH.to_owned(), hash)].into()),
                ..ObjectMeta::default()
            }),
            spec: Some(PodSpec { containers: vec![container], volumes: Some(vec![volume]), ..PodSpec::default() }),
        };
        Deployment {
            metadata: self.metadata(),
            spec: Some(DeploymentSpec {
                replicas: Some(spec.replicas),
                selector: LabelSelector { match_labels: Some(self.labels.clone()), ..LabelSelector::default() },
                template,
                ..DeploymentSpec::default()
            }),
            ..Deployment::default()
        }
    }

    fn service(&self) -> Service {
        let port = |(name, port): (&String, &u16)| ServicePort {
            name: Some(name.clone()),
            port: i32::from(*port),
            ..ServicePort::default()
        };
        Service {
            metadata: self.metadata(),
            spec: Some(ServiceSpec {
                selector: Some(self.labels.clone()),
                ports: Some(self.ports.iter().map(port).collect()),
                ..ServiceSpec::default()
            }),
            ..Service::default()
        }
    }
}
