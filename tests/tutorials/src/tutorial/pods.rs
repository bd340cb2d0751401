//! The operator of a tutorial in pods that run: deployed from `config/` with an image of its program, and from a bundle.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::{Tutorial, is_ready};
use crate::cluster::Cluster;
use crate::commands::Commands;

/// The cluster, whose pods are ended under this name.
const CLUSTER: &str = "pods";

impl Tutorial {
    /// Deploys the operator twice into a cluster whose pods run. The manifests must be written, and the operator built.
    pub(super) async fn deploy_in_pods(&self, commands: &Commands, project: &Path) -> Result<()> {
        if !cfg!(target_os = "linux") || !rustix::process::geteuid().is_root() {
            println!("SKIPPED: {} in pods needs root on Linux", self.name);
            return Ok(());
        }
        let started = std::time::Instant::now();
        let cluster = Cluster::start_with(commands, project, &format!("--runtime container --name {CLUSTER}")).await?;
        let deployed = self.deploy_twice(commands, project, &cluster).await;
        let stopped = cluster.stop();
        // Pods outlive a cluster that did not stop in order.
        commands.succeeds(project, &format!("down --purge --name {CLUSTER}"))?;
        println!("{} in pods: {} s", self.name, started.elapsed().as_secs());
        deployed.and(stopped)
    }

    async fn deploy_twice(&self, commands: &Commands, project: &Path, cluster: &Cluster) -> Result<()> {
        let config = format!("--kubeconfig {}", cluster.kubeconfig.display());
        let program = std::env::current_exe()?.with_file_name(self.name);
        let deployed = commands.succeeds(project, &format!("deploy --program {} {config}", program.display()))?;
        ensure!(deployed.contains("-controller-manager created"), "the operator is new: {deployed}");
        self.reconcile_sample(commands, project, cluster, &config).await?;
        let image = self.image(cluster).await?;
        // The operator runs, so that finalizers go.
        let gone = commands.succeeds(project, &format!("undeploy --yes {config}"))?;
        ensure!(gone.contains("-controller-manager deleted"), "the operator is gone: {gone}");

        commands.succeeds(project, &format!("manifests bundle --image {image}"))?;
        let installed = commands.succeeds(project, &format!("bundle run {config}"))?;
        ensure!(installed.contains("-controller-manager created"), "the operator is new: {installed}");
        self.reconcile_sample(commands, project, cluster, &config).await?;
        let gone = commands.succeeds(project, &format!("bundle cleanup --yes {config}"))?;
        ensure!(gone.contains("-controller-manager deleted"), "the operator is gone: {gone}");
        Ok(())
    }

    /// Applies the sample, which passes the webhooks and becomes ready.
    async fn reconcile_sample(
        &self,
        commands: &Commands,
        project: &Path,
        cluster: &Cluster,
        config: &str,
    ) -> Result<()> {
        let applied = commands.succeeds(project, &format!("apply -f config/samples {config}"))?;
        let sample = format!("{}-sample", self.kind.to_lowercase());
        ensure!(applied.contains(&format!("/{sample} created")), "the sample is new: {applied}");
        let object = (self.namespace, sample.as_str());
        cluster.wait_for((self.api_version, self.kind), object, "its status says Ready", is_ready).await
    }

    /// The image that `windlass deploy` has made, by the name that it was given.
    async fn image(&self, cluster: &Cluster) -> Result<String> {
        let deployments = cluster.list("apps/v1", "Deployment").await?;
        let name = format!("{}-controller-manager", self.name);
        let own = deployments.iter().find(|deployment| deployment["metadata"]["name"] == name.as_str());
        let image = own.and_then(|own| own["spec"]["template"]["spec"]["containers"][0]["image"].as_str());
        Ok(image.with_context(|| format!("no image of {name}"))?.to_owned())
    }
}
