//! The tutorials of the book: what they say is typed, and what they say is seen.

mod page;
mod pods;
mod reader;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
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
    /// The page that says how it is made.
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
        page: "docs/tutorial/home.md",
        api_version: "ajd.my.domain/v1",
        kind: "Home",
        namespace: Some("default"),
        webhooks: true,
        has_service: false,
    },
    Tutorial {
        name: "app-controller-demo",
        page: "docs/tutorial/app-service.md",
        api_version: "appcontroller.example.com/v1alpha1",
        kind: "AppService",
        namespace: Some("default"),
        webhooks: false,
        has_service: false,
    },
    Tutorial {
        name: "guestbook",
        page: "docs/tutorial/guestbook.md",
        api_version: "webapp.my.domain/v1",
        kind: "Guestbook",
        namespace: Some("default"),
        webhooks: true,
        has_service: false,
    },
    Tutorial {
        name: "tsi-controller",
        page: "docs/tutorial/ip-pool.md",
        api_version: "tsi.tiduyun.com/v1alpha1",
        kind: "IPPool",
        namespace: None,
        webhooks: false,
        has_service: false,
    },
    Tutorial {
        name: "petstore-operator",
        page: "docs/tutorial/pet-store.md",
        api_version: "petstore.example.com/v1alpha1",
        kind: "Pet",
        namespace: Some("default"),
        webhooks: false,
        has_service: true,
    },
];

/// The tutorial whose operator also runs in pods: with webhooks, which the API server reaches there, and objects of its own.
const IN_PODS: &str = "myk8soperator";

/// A page with commands, and where its reader begins.
pub(crate) struct Page {
    pub path: &'static str,
    pub start: Start,
}

/// Where a reader begins: see `pages.txt`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Start {
    Alone,
    Cluster,
    Project,
    Tutorial,
    Example,
    Root,
}

/// All pages, in the order in which they are walked.
pub(crate) fn pages() -> Result<Vec<Page>> {
    let lines = include_str!("../pages.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(page_of).collect()
}

fn page_of(line: &'static str) -> Result<Page> {
    let (path, start) = line.split_once(' ').with_context(|| format!("no start of {line:?}"))?;
    let start = match start.trim() {
        "alone" => Start::Alone,
        "cluster" => Start::Cluster,
        "project" => Start::Project,
        "tutorial" => Start::Tutorial,
        "example" => Start::Example,
        "root" => Start::Root,
        other => bail!("a page does not start {other:?}"),
    };
    Ok(Page { path, start })
}

/// Does what a page says.
pub(crate) fn walk(commands: &Commands, page: &Page) -> Result<()> {
    let reader = Reader::new(commands)?;
    match page.start {
        Start::Cluster => reader.read(page.path),
        Start::Project => reader.in_directory(project(commands)?).walk(page.path),
        Start::Example => {
            let directory = reader::root().join(page.path);
            reader.in_directory(directory.parent().context("a page is in a directory")?.to_owned()).walk(page.path)
        }
        Start::Root if !cfg!(target_os = "linux") || !rustix::process::geteuid().is_root() => {
            println!("SKIPPED: {} needs root on Linux", page.path);
            Ok(())
        }
        Start::Alone | Start::Tutorial | Start::Root => {
            let directory = commands
                .directory
                .join("reader")
                .join(page.path.trim_end_matches(".md").to_lowercase().replace('/', "-"));
            std::fs::create_dir_all(&directory)?;
            reader.in_directory(directory).walk(page.path)
        }
    }
}

/// The project of pages that are about any project, as it was generated. It is compiled once.
fn project(commands: &Commands) -> Result<PathBuf> {
    const GIT: &str = "git -c user.name=reader -c user.email=reader@example.com";
    let directory = commands.directory.join("reader/guestbook");
    let script = if directory.exists() {
        format!("{GIT} checkout -q . && {GIT} clean -fdq -e target -e Cargo.lock")
    } else {
        std::fs::create_dir_all(&directory)?;
        std::fs::copy(&commands.lock, directory.join("Cargo.lock"))?;
        let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
        format!(
            "windlass init --domain my.domain && \
             windlass create api --group webapp --version v1 --kind Guestbook --resource --controller && \
             mkdir target && ln -s {target}/debug target/debug && \
             git init -q && {GIT} add . && {GIT} commit -qm generated"
        )
    };
    Reader::new(commands)?.in_directory(directory.clone()).prepare(&script)?;
    Ok(directory)
}

impl Tutorial {
    /// Makes the project, and then does what a page does not: with the operator's own permissions, and in the cluster.
    pub(crate) async fn walk(&self, commands: &Commands) -> Result<()> {
        Reader::new(commands)?.walk(self.page)?;
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
        cluster.stop()?;
        if self.name == IN_PODS { self.deploy_in_pods(commands, &project).await } else { Ok(()) }
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
