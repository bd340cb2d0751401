//! The demo of an example: a cluster with a simulated node, the kinds, the operator, and a story about objects.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::Value;
use tokio::sync::watch;
use windlass::Manager;
use windlass::manager::ManagerBuilder;
use windlass::webhook::{Certificates, SelfManaged, Webhooks};

use super::display::{Display, Playbill};
use super::stage::Stage;
use super::story::{install_crd, step};
use super::tables::Tables;

/// How often objects are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A demo of an example.
pub(crate) struct Tale {
    /// The name of the example.
    pub name: &'static str,
    /// What it says about itself.
    pub playbill: Playbill,
    /// The kinds that the example declares.
    pub definitions: fn() -> Result<Vec<CustomResourceDefinition>>,
    /// The operator of the example, if it has one.
    pub operator: Option<fn(ManagerBuilder) -> Result<Manager>>,
    /// What is shown, as paths of lists.
    pub resources: &'static [&'static str],
    /// What happens.
    pub story: for<'a> fn(&'a Scene<'a>) -> BoxFuture<'a, Result<()>>,
    /// What is deleted in the end.
    pub ending: for<'a> fn(&'a Scene<'a>) -> BoxFuture<'a, Result<()>>,
}

/// Tells the story. With `keep` it has no end: the objects stay, for kubectl.
pub(crate) async fn tell(
    tale: &Tale,
    stage: &mut Stage,
    board: &watch::Sender<Tables>,
    display: &Display<Tables>,
    keep: bool,
) -> Result<()> {
    step(display, "starting a cluster", "cluster ready", async {
        let server = stage.start_cluster(1).await?;
        let version = stage.connect().await?.apiserver_version().await?.git_version;
        Ok(((), format!("{server}  Kubernetes {version}")))
    })
    .await?;
    let definitions = (tale.definitions)()?;
    if !definitions.is_empty() {
        step(display, "installing the kinds", "kinds served", async {
            let mut names = Vec::new();
            for definition in &definitions {
                names.push(install_crd(stage.connect().await?, definition).await?);
            }
            Ok(((), names.join(", ")))
        })
        .await?;
    }
    if let Some(operator) = tale.operator {
        step(display, "starting the operator", "operator running", async {
            let manager = operator(stage.manager(tale.name).await?)?;
            stage.run(manager).await?;
            Ok(((), format!("the one of examples/{}, unchanged", tale.name)))
        })
        .await?;
    }
    let client = stage.connect().await?;
    let scene = Scene { client, display, board, resources: tale.resources };
    let told = async {
        (tale.story)(&scene).await?;
        if keep {
            display.kept(stage.write_kubeconfig()?);
            std::future::pending::<()>().await;
        }
        (tale.ending)(&scene).await
    };
    tokio::select! {
        told = told => told,
        error = scene.follow() => Err(error),
    }
}

/// The webhooks of an operator on a free port, reached directly.
pub(crate) fn local(webhooks: Webhooks) -> Webhooks {
    let certificates = SelfManaged::new("default").register("demo").directly();
    webhooks.listen("127.0.0.1:0").certificates(Certificates::self_managed(certificates))
}

/// Where a story is told.
pub(crate) struct Scene<'a> {
    pub client: kube::Client,
    display: &'a Display<Tables>,
    board: &'a watch::Sender<Tables>,
    resources: &'a [&'a str],
}

impl Scene<'_> {
    /// Shows a step while it is done, and then what came of it.
    pub(crate) async fn step(
        &self,
        doing: &str,
        done: &str,
        work: impl Future<Output = Result<&'static str>>,
    ) -> Result<()> {
        let work = async {
            let detail = work.await?;
            self.look().await?;
            Ok(((), detail.to_owned()))
        };
        step(self.display, doing, done, work).await
    }

    /// Shows the objects, and lets people look.
    pub(crate) async fn show(&self) -> Result<()> {
        self.look().await?;
        self.display.scene(&self.board.borrow());
        self.display.pause().await;
        Ok(())
    }

    /// Server-side apply, in the namespace `default` if the object names it.
    pub(crate) async fn apply(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api_of(object)?;
        let params = PatchParams::apply("windlass-demo").force();
        api.patch(&name, &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    /// The error of an apply that must be refused.
    pub(crate) async fn refused(&self, object: &Value) -> Result<()> {
        match self.apply(object).await {
            Ok(()) => bail!("the cluster should have refused this"),
            Err(_) => Ok(()),
        }
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api_of(object)?;
        api.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn until(&self, object: &Value, condition: impl Fn(&Value) -> bool) -> Result<()> {
        let (api, name) = self.api_of(object)?;
        loop {
            if let Some(found) = api.get_opt(&name).await?
                && condition(&serde_json::to_value(found)?)
            {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until nothing is shown any more.
    pub(crate) async fn until_empty(&self, resources: &[&str]) -> Result<()> {
        use super::display::Board as _;
        while !Tables::read(&self.client, resources).await?.is_empty() {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn look(&self) -> Result<()> {
        let tables = Tables::read(&self.client, self.resources).await?;
        self.board.send_if_modified(|shown| {
            let is_new = *shown != tables;
            *shown = tables;
            is_new
        });
        Ok(())
    }

    /// Keeps the tables up to date. Returns what went wrong.
    async fn follow(&self) -> anyhow::Error {
        loop {
            if let Err(error) = self.look().await {
                return error;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn api_of(&self, object: &Value) -> Result<(Api<DynamicObject>, String)> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let version = text(&object["apiVersion"]).context("an object has an apiVersion")?;
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = text(&object["kind"]).context("an object has a kind")?;
        let name = text(&object["metadata"]["name"]).context("an object has a name")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        Ok((api, name))
    }
}
