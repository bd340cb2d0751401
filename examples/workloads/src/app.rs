// SPDX-License-Identifier: Apache-2.0

//! The objects of the application.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::networking::v1::Ingress;
use windlass::kube::api::{DeleteParams, PostParams};
use windlass::kube::{Api, Client, Error};
use windlass::serde_json::{Value, from_value, json};

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

    /// Creates the namespace.
    pub async fn create_namespace(&self, client: &Client) -> Result<(), Error> {
        let namespace: Namespace = object(json!({"metadata": {"name": self.namespace}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.map(drop)
    }

    /// Creates the Deployment.
    pub async fn create_deployment(&self, client: &Client) -> Result<(), Error> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &self.namespace);
        deployments.create(&PostParams::default(), &object(self.deployment())?).await.map(drop)
    }

    /// Creates what leads requests to the pods.
    pub async fn create_service_and_ingress(&self, client: &Client) -> Result<(), Error> {
        let services: Api<Service> = Api::namespaced(client.clone(), &self.namespace);
        services.create(&PostParams::default(), &object(self.service())?).await?;
        let ingresses: Api<Ingress> = Api::namespaced(client.clone(), &self.namespace);
        ingresses.create(&PostParams::default(), &object(self.ingress())?).await.map(drop)
    }

    /// Deletes the namespace with everything in it.
    pub async fn delete(&self, client: &Client) -> Result<(), Error> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.map(drop)
    }
}

fn object<T: windlass::serde::de::DeserializeOwned>(value: Value) -> Result<T, Error> {
    from_value(value).map_err(Error::SerdeError)
}
