//! The tutorials of the book: what they say is typed, and what they say is seen.

mod page;
mod reader;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use kube::api::DynamicObject;
use serde_json::Value;

use crate::cluster::{Cluster, Process};
use crate::commands::Commands;
use crate::service::Service;
use reader::Reader;

/// From an empty directory to an operator that reconciles the sample.
pub(crate) struct Tutorial {
    /// The project.
    pub name: &'static str,
    /// The page in `docs` that says how it is made.
    page: &'static str,
    api_version: &'static str,
    kind: &'static str,
    /// Where the sample is.
    namespace: Option<&'static str>,
    webhooks: bool,
    /// Whether the operator manages the pet store.
    has_service: bool,
}

pub(crate) const ALL: [Tutorial; 5] = [
    Tutorial {
        name: "myk8soperator",
        page: "tutorial/home",
        api_version: "ajd.my.domain/v1",
        kind: "Home",
        namespace: Some("default"),
        webhooks: true,
        has_service: false,
    },
    Tutorial {
        name: "app-controller-demo",
        page: "tutorial/app-service",
        api_version: "appcontroller.example.com/v1alpha1",
        kind: "AppService",
        namespace: Some("default"),
        webhooks: false,
        has_service: false,
    },
    Tutorial {
        name: "guestbook",
        page: "tutorial/guestbook",
        api_version: "webapp.my.domain/v1",
        kind: "Guestbook",
        namespace: Some("default"),
        webhooks: true,
        has_service: false,
    },
    Tutorial {
        name: "tsi-controller",
        page: "tutorial/ip-pool",
        api_version: "tsi.tiduyun.com/v1alpha1",
        kind: "IPPool",
        namespace: None,
        webhooks: false,
        has_service: false,
    },
    Tutorial {
        name: "petstore-operator",
        page: "tutorial/pet-store",
        api_version: "petstore.example.com/v1alpha1",
        kind: "Pet",
        namespace: Some("default"),
        webhooks: false,
        has_service: true,
    },
];

/// Pages that make no operator.
pub(crate) const PAGES: [&str; 2] = ["tutorial/getting-started", "tutorial/pod-crud"];

/// Pages about a cluster that runs already.
pub(crate) const CONCEPTS: [&str; 5] = [
    "concepts/objects",
    "concepts/controllers",
    "concepts/finalizers",
    "concepts/versions",
    "concepts/leader-election",
];

/// Does what a page says.
pub(crate) fn walk(commands: &Commands, page: &str) -> Result<()> {
    let reader = Reader::new(commands)?;
    if CONCEPTS.contains(&page) { reader.read(page) } else { reader.walk(page) }
}

impl Tutorial {
    /// Makes the project, and then does what a page does not: with the operator's own permissions, and in the cluster.
    pub(crate) async fn walk(&self, commands: &Commands) -> Result<()> {
        walk(commands, self.page)?;
        let project = commands.directory.join(self.name);
        commands.succeeds(&project, "manifests --check")?;

        let cluster = Cluster::start(commands, &project).await?;
        let config = format!("--kubeconfig {}", cluster.kubeconfig.display());
        let installed = commands.succeeds(&project, &format!("install {config}"))?;
        ensure!(installed.contains(" created"), "the kind is new: {installed}");

        let service = self.has_service.then(|| Service::start(&project)).transpose()?;
        let operator = self.run(commands, &project, &config, service.as_ref())?;
        if self.webhooks {
            self.wait_for_webhooks(&cluster).await?;
        }
        let applied = commands.succeeds(&project, &format!("apply -f config/samples {config}"))?;
        let sample = format!("{}-sample", self.kind.to_lowercase());
        ensure!(applied.contains(&format!("/{sample} created")), "the sample is new: {applied}");
        let object = (self.namespace, sample.as_str());
        cluster.wait_for((self.api_version, self.kind), object, "its status says Ready", is_ready).await?;

        let said = commands.fails(&project, &format!("uninstall {config}"))?;
        let lost = self.namespace.map_or_else(|| sample.clone(), |namespace| format!("{namespace}/{sample}"));
        ensure!(said.contains(&format!("1 {}: {lost}", self.kind)), "what would be lost is said: {said}");
        self.check_role(&cluster, &project).await?;
        // The operator runs, so that its finalizer goes.
        commands.succeeds(&project, &format!("uninstall --yes {config}"))?;
        operator.stop()?;
        self.deploy(commands, &project, &config)?;
        cluster.stop()
    }

    /// The operator ran with the very rules that `windlass manifests` has written.
    async fn check_role(&self, cluster: &Cluster, project: &Path) -> Result<()> {
        let text = std::fs::read_to_string(project.join("config/rbac/role.yaml"))?;
        let written: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        let role = written.iter().find(|role| role["kind"] == "ClusterRole").context("a ClusterRole is written")?;
        let kind = ("rbac.authorization.k8s.io/v1", "ClusterRole");
        let same = |used: &DynamicObject| used.data["rules"] == role["rules"];
        cluster.wait_for(kind, (None, self.name), "its rules are those of config/rbac/role.yaml", same).await
    }

    /// Installs the operator in the cluster, from `config/` and from a bundle. There is no node to run it.
    fn deploy(&self, commands: &Commands, project: &Path, config: &str) -> Result<()> {
        let image = format!("registry.example.com/{}:v1", self.name);
        let deployed =
            commands.succeeds(project, &format!("deploy --skip-build --no-wait --image {image} {config}"))?;
        ensure!(deployed.contains("-controller-manager created"), "the operator is new: {deployed}");
        let gone = commands.succeeds(project, &format!("undeploy --yes {config}"))?;
        ensure!(gone.contains("-controller-manager deleted"), "the operator is gone: {gone}");
        commands.succeeds(project, &format!("manifests bundle --image {image}"))?;
        let installed = commands.succeeds(project, &format!("bundle run --no-wait {config}"))?;
        ensure!(installed.contains("-controller-manager created"), "the operator is new: {installed}");
        Ok(())
    }

    /// Runs the operator as it is deployed: with its own permissions only, electing a leader and serving metrics.
    fn run(&self, commands: &Commands, project: &Path, config: &str, service: Option<&Service>) -> Result<Process> {
        let args = format!(
            "run --as-service-account --namespace {}-system {config} -- --leader-elect \
             --metrics-bind-address=127.0.0.1:0 --health-probe-bind-address=127.0.0.1:0",
            self.name
        );
        let mut command = commands.windlass(project, &args);
        command.envs(service.map(|service| ("PETSTORE_ADDR", &service.address)));
        Process::spawn("operator", &mut command)
    }

    /// Waits until the API server calls the operator.
    async fn wait_for_webhooks(&self, cluster: &Cluster) -> Result<()> {
        for phase in ["Mutating", "Validating"] {
            let name = format!("{}-{}-webhook-configuration", self.name, phase.to_lowercase());
            let kind = format!("{phase}WebhookConfiguration");
            let version = ("admissionregistration.k8s.io/v1", kind.as_str());
            cluster.wait_for(version, (None, &name), "its webhooks are registered", has_webhooks).await?;
        }
        Ok(())
    }
}

fn is_ready(object: &DynamicObject) -> bool {
    let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn has_webhooks(object: &DynamicObject) -> bool {
    let webhooks = object.data["webhooks"].as_array().context("none").ok();
    let is_direct = |webhook: &Value| {
        let config = &webhook["clientConfig"];
        config["url"].as_str().is_some_and(|url| url.starts_with("https://127.0.0.1:"))
            && config["caBundle"].is_string()
    };
    webhooks.is_some_and(|webhooks| !webhooks.is_empty() && webhooks.iter().all(is_direct))
}
