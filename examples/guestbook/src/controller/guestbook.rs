// SPDX-License-Identifier: Apache-2.0

//! Keeps the parts of each Guestbook: a frontend, a Redis leader and its followers, each a Deployment and a Service.
//!
//! The images and ports are those of the [Guestbook tutorial] of Kubernetes. Names begin with that of the Guestbook, so
//! that a namespace can have several.
//!
//! [Guestbook tutorial]: https://kubernetes.io/docs/tutorials/stateless-application/guestbook/

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, PodSpec, PodTemplateSpec, ResourceRequirements, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass::controller::{CompleteController, Reconcile};
use windlass::{Context, Controller, Outcome};

use guestbook_api::v1::{Guestbook, ServiceType};

const FRONTEND_IMAGE: &str = "us-docker.pkg.dev/google-samples/containers/gke/gb-frontend:v5";
const LEADER_IMAGE: &str = "docker.io/redis:6.0.5";
const FOLLOWER_IMAGE: &str = "us-docker.pkg.dev/google-samples/containers/gke/gb-redis-follower:v2";

/// The controller, as the manager runs it. Changes of Deployments and Services wake the Guestbook that owns them.
pub fn controller() -> CompleteController {
    Controller::<Guestbook>::new("guestbook").owns::<Deployment>().owns::<Service>().complete(Reconciler)
}

struct Reconciler;

impl Reconcile<Guestbook> for Reconciler {
    async fn reconcile(&self, guestbook: Arc<Guestbook>, ctx: Context) -> windlass::Result {
        if guestbook.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done); // Kubernetes deletes the parts, because the Guestbook owns them
        }
        let mut children = ctx.children(&guestbook);
        let mut available = BTreeMap::new();
        for part in parts(&guestbook) {
            children.apply(part.service()).await?;
            let deployment = children.apply(part.deployment()).await?;
            let count = deployment.status.and_then(|status| status.available_replicas).unwrap_or(0);
            available.insert(part.role, (count, part.replicas));
        }
        // What an earlier spec asked for, such as followers.
        children.prune().await?;

        let lacking: Vec<String> = available
            .iter()
            .filter(|(_, (count, wanted))| count < wanted)
            .map(|(role, (count, wanted))| format!("{role} has {count} of {wanted} replicas"))
            .collect();
        let mut draft = ctx.draft(&guestbook);
        let status = draft.status.get_or_insert_default();
        let count = |role| available.get(role).map_or(0, |(count, _)| *count);
        (status.available_frontends, status.available_followers) = (count(FRONTEND), count(FOLLOWER));
        let (reason, message) = match lacking.is_empty() {
            true => ("Available", "visitors can use the page".to_owned()),
            false => ("Progressing", lacking.join(", ")),
        };
        if draft.condition("Ready", lacking.is_empty(), reason, &message) {
            ctx.recorder().normal(&guestbook, reason, &message);
        }
        draft.commit(&ctx).await?;
        Ok(Outcome::Done)
    }
}

const FRONTEND: &str = "frontend";
const LEADER: &str = "redis-leader";
const FOLLOWER: &str = "redis-follower";

/// One part of a Guestbook: what its Deployment and its Service have in common.
struct Part {
    /// Which part.
    role: &'static str,
    /// The name of both objects.
    name: String,
    image: &'static str,
    port: i32,
    replicas: i32,
    env: Vec<EnvVar>,
    service_type: ServiceType,
    labels: BTreeMap<String, String>,
}

/// The parts that a Guestbook asks for.
fn parts(guestbook: &Guestbook) -> Vec<Part> {
    let name = guestbook.metadata.name.as_deref().unwrap_or_default();
    let (spec, of) = (&guestbook.spec, |role: &str| format!("{name}-{role}"));
    let env = |name: &str, value: String| EnvVar { name: name.into(), value: Some(value), ..EnvVar::default() };
    // The images look for Redis at fixed names, unless the environment names other ones.
    let readers = if spec.followers() > 0 { FOLLOWER } else { LEADER };
    let hosts = vec![
        env("GET_HOSTS_FROM", "env".into()),
        env("REDIS_LEADER_SERVICE_HOST", of(LEADER)),
        env("REDIS_FOLLOWER_SERVICE_HOST", of(readers)),
    ];
    let part = |role: &'static str, image, port, replicas| Part {
        role,
        name: of(role),
        image,
        port,
        replicas,
        env: Vec::new(),
        service_type: ServiceType::ClusterIP,
        labels: labels(name, role),
    };
    let mut parts = vec![
        part(LEADER, LEADER_IMAGE, 6379, 1),
        Part {
            env: hosts.clone(),
            service_type: spec.service_type(),
            ..part(FRONTEND, FRONTEND_IMAGE, 80, spec.frontends())
        },
    ];
    if spec.followers() > 0 {
        parts.push(Part { env: hosts, ..part(FOLLOWER, FOLLOWER_IMAGE, 6379, spec.followers()) });
    }
    parts
}

fn labels(guestbook: &str, role: &str) -> BTreeMap<String, String> {
    let labels = [
        ("app.kubernetes.io/name", "guestbook"),
        ("app.kubernetes.io/instance", guestbook),
        ("app.kubernetes.io/component", role),
    ];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

impl Part {
    fn metadata(&self) -> ObjectMeta {
        ObjectMeta { name: Some(self.name.clone()), labels: Some(self.labels.clone()), ..ObjectMeta::default() }
    }

    fn deployment(&self) -> Deployment {
        let requests = [("cpu", "100m"), ("memory", "100Mi")];
        let requests = requests.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
        let container = Container {
            name: self.role.into(),
            image: Some(self.image.into()),
            env: Some(self.env.clone()),
            ports: Some(vec![ContainerPort { container_port: self.port, ..ContainerPort::default() }]),
            resources: Some(ResourceRequirements {
                requests: Some(requests.into()),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        };
        Deployment {
            metadata: self.metadata(),
            spec: Some(DeploymentSpec {
                replicas: Some(self.replicas),
                selector: LabelSelector { match_labels: Some(self.labels.clone()), ..LabelSelector::default() },
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta { labels: Some(self.labels.clone()), ..ObjectMeta::default() }),
                    spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
                },
                ..DeploymentSpec::default()
            }),
            ..Deployment::default()
        }
    }

    fn service(&self) -> Service {
        let service_type = match self.service_type {
            ServiceType::ClusterIP => "ClusterIP",
            ServiceType::NodePort => "NodePort",
            ServiceType::LoadBalancer => "LoadBalancer",
        };
        Service {
            metadata: self.metadata(),
            spec: Some(ServiceSpec {
                type_: Some(service_type.into()),
                selector: Some(self.labels.clone()),
                ports: Some(vec![ServicePort {
                    port: self.port,
                    target_port: Some(IntOrString::Int(self.port)),
                    ..ServicePort::default()
                }]),
                ..ServiceSpec::default()
            }),
            ..Service::default()
        }
    }
}
