// SPDX-License-Identifier: Apache-2.0

//! The objects of the application.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::networking::v1::Ingress;
use windlass::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use windlass::kube::{Api, Client, Error};
use windlass::serde_json::{Value, from_value, json};

/// The label that says which program made a namespace, and this program.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "workloads");

/// Why the namespace cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum NamespaceError {
    /// It exists, and another program made it: everything in it would be deleted in the end.
    Foreign {
        /// Its name.
        namespace: String,
    },
    /// The request failed.
    Api(Error),
}

impl std::fmt::Display for NamespaceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign { namespace } => {
                let (label, program) = MANAGED_BY;
                write!(f, "the namespace {namespace:?} exists, and has no label {label}={program}: ")?;
                f.write_str("choose another one with --namespace")
            }
            Self::Api(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NamespaceError {}

impl From<Error> for NamespaceError {
    fn from(error: Error) -> Self {
        Self::Api(error)
    }
}

/// A web application.
#[derive(Debug, Clone)]
pub struct App {
    /// The namespace, which is the application's own.
    pub namespace: String,
    /// What its objects are called.
    pub name: String,
    /// The image of its web server.
    pub image: String,
    /// The port that the web server listens on.
    pub port: u16,
    /// How many pods it has.
    pub replicas: u8,
    /// The path that it is reached by from outside.
    pub path: String,
}

impl App {
    /// Selects the pods.
    pub fn selector(&self) -> String {
        format!("app={}", self.name)
    }

    /// A pod gets requests when it answers them. When it is to end, it goes on for two seconds, in which the cluster learns
    /// that new requests go elsewhere.
    fn deployment(&self) -> Value {
        let container = json!({
            "name": "web",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "ports": [{"name": "http", "containerPort": self.port}],
            "env": [{"name": "PORT", "value": self.port.to_string()}],
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
            "lifecycle": {"preStop": {"sleep": {"seconds": 2}}},
        });
        json!({
            "metadata": {"name": self.name, "labels": {"app": self.name}},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": self.name}},
                "template": {"metadata": {"labels": {"app": self.name}}, "spec": {"containers": [container]}},
            },
        })
    }

    fn service(&self) -> Value {
        json!({
            "metadata": {"name": self.name, "labels": {"app": self.name}},
            "spec": {
                "selector": {"app": self.name},
                "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
            },
        })
    }

    /// It names no class: a cluster has one that is the default.
    fn ingress(&self) -> Value {
        let backend = json!({"service": {"name": self.name, "port": {"name": "http"}}});
        let path = json!({"path": self.path, "pathType": "Prefix", "backend": backend});
        json!({"metadata": {"name": self.name}, "spec": {"rules": [{"http": {"paths": [path]}}]}})
    }

    /// Creates the namespace. One that a run has left which was killed is used again.
    pub async fn create_namespace(&self, client: &Client) -> Result<(), NamespaceError> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let (label, program) = MANAGED_BY;
        let namespace = object(json!({"metadata": {"name": self.namespace, "labels": {label: program}}}))?;
        match namespaces.create(&PostParams::default(), &namespace).await {
            Err(Error::Api(status)) if status.reason == "AlreadyExists" => {}
            result => return Ok(result.map(drop)?),
        }
        let existing = namespaces.get(&self.namespace).await?;
        if existing.metadata.labels.is_some_and(|labels| labels.get(label).is_some_and(|it| it == program)) {
            Ok(())
        } else {
            Err(NamespaceError::Foreign { namespace: self.namespace.clone() })
        }
    }

    /// Creates the Deployment, or makes one that is there already what it should be.
    pub async fn create_deployment(&self, client: &Client) -> Result<(), Error> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &self.namespace);
        deployments.patch(&self.name, &owned(), &applied("apps/v1", "Deployment", self.deployment())).await.map(drop)
    }

    /// Creates what leads requests to the pods.
    pub async fn create_service_and_ingress(&self, client: &Client) -> Result<(), Error> {
        let services: Api<Service> = Api::namespaced(client.clone(), &self.namespace);
        services.patch(&self.name, &owned(), &applied("v1", "Service", self.service())).await?;
        let ingresses: Api<Ingress> = Api::namespaced(client.clone(), &self.namespace);
        let ingress = applied("networking.k8s.io/v1", "Ingress", self.ingress());
        ingresses.patch(&self.name, &owned(), &ingress).await.map(drop)
    }

    /// Deletes the namespace with everything in it.
    pub async fn delete(&self, client: &Client) -> Result<(), Error> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.map(drop)
    }
}

/// Server-side apply: an object that is not there is created, and the fields of one that is there are taken over.
fn owned() -> PatchParams {
    PatchParams::apply(MANAGED_BY.1).force()
}

fn applied(api_version: &str, kind: &str, mut object: Value) -> Patch<Value> {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Patch::Apply(object)
}

fn object<T: windlass::serde::de::DeserializeOwned>(value: Value) -> Result<T, Error> {
    from_value(value).map_err(Error::SerdeError)
}
