//! The examples as a user has them: made by the commands that their README names, run with their published samples, and
//! killed again and again while they work.
//!
//! ```sh
//! .ci/run examples                                              # a few rounds of each
//! target/debug/windlass-tutorials --examples examples --rounds 100 at ippool
//! ```
//!
//! The operators must be built: `cargo build` in the directory of each, into the target directory of this program.

mod operators;
mod regenerate;
mod storm;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::cluster::{Cluster, Process};
use crate::commands::Commands;
use crate::service::Service;
use operators::Operator;

/// Checks the named examples, or all of them.
pub(crate) async fn check(commands: &Commands, examples: &Path, names: &[String], rounds: u32) -> Result<()> {
    let examples = examples.canonicalize().with_context(|| format!("there is no {}", examples.display()))?;
    for name in operators::NAMES {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            let started = std::time::Instant::now();
            let project = examples.join(name);
            regenerate::check(commands, &project)
                .with_context(|| format!("the example {name:?} as it was generated"))?;
            let checked = match operators::find(name) {
                Some(operator) => run(commands, &project, operator, rounds).await,
                None => run_once(commands, name, "crud").await,
            };
            checked.with_context(|| format!("the example {name:?}"))?;
            let readme = format!("examples/{name}/README.md");
            for page in crate::tutorial::pages()?.iter().filter(|page| page.path == readme) {
                crate::walk(commands, page)?;
            }
            println!("example {name}: {} s", started.elapsed().as_secs());
        }
    }
    Ok(())
}

/// The manifests are those of the code, the samples do what they should, and crashes do no harm.
async fn run(commands: &Commands, project: &Path, operator: &Operator, rounds: u32) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name(operator.name);
    ensure!(program.exists(), "{} is not built", program.display());
    commands.succeeds(project, &format!("manifests --check --program {}", program.display()))?;

    let place = commands.directory.join(operator.name);
    std::fs::create_dir_all(&place)?;
    let cluster = Cluster::start(commands, &place).await?;
    let config = format!("--kubeconfig {}", cluster.kubeconfig.display());
    commands.succeeds(project, &format!("install --program {} {config}", program.display()))?;
    let mut service = operator.has_service.then(|| Service::start(&place)).transpose()?;
    let address = service.as_ref().map(|service| service.address.clone());
    let start = || {
        let mut command = Command::new(&program);
        command.envs(address.iter().map(|address| ("PETSTORE_ADDR", address)));
        command.args(["--health-probe-bind-address", "0"]).env("KUBECONFIG", &cluster.kubeconfig);
        command.env("RUST_LOG", "error").stdin(Stdio::null());
        Process::spawn("operator", &mut command)
    };
    let running = start()?;
    if let Some(definition) = operator.converts {
        // What is written in another version before would be stored as it is.
        let kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let is_converted =
            |definition: &kube::api::DynamicObject| definition.data["spec"]["conversion"]["strategy"] == "Webhook";
        cluster.wait_for(kind, (None, definition), "its versions are converted", is_converted).await?;
    }
    samples(&cluster, project, operator).await?;
    storm::survive(&cluster, operator, running, &start, service.as_mut(), rounds).await?;
    cluster.stop()
}

/// A program that is no operator does its work and ends.
async fn run_once(commands: &Commands, name: &str, argument: &str) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name(name);
    let place = commands.directory.join(name);
    std::fs::create_dir_all(&place)?;
    let cluster = Cluster::start(commands, &place).await?;
    let status = Command::new(&program).arg(argument).env("KUBECONFIG", &cluster.kubeconfig).status()?;
    ensure!(status.success(), "{} {argument}: {status}", program.display());
    cluster.stop()
}

/// Applies the published samples with kubectl, where there is one.
async fn samples(cluster: &Cluster, project: &Path, operator: &Operator) -> Result<()> {
    let kubectl = std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into());
    if Command::new(&kubectl).arg("version").arg("--client").output().is_err() {
        println!("SKIPPED: kubectl is missing, the samples of {} are not applied", operator.name);
        return Ok(());
    }
    // Webhooks refuse connections until the operator serves them, so this may take several attempts.
    let mut last = String::new();
    for _ in 0..120 {
        let mut apply = Command::new(&kubectl);
        apply.args(["apply", "-k"]).arg(project.join("config/samples")).env("KUBECONFIG", &cluster.kubeconfig);
        let output = apply.output()?;
        if output.status.success() {
            last.clear();
            break;
        }
        last = String::from_utf8_lossy(&output.stderr).into_owned();
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    ensure!(last.is_empty(), "the samples cannot be applied: {last}");
    for name in operator.samples {
        let settled = |object: &kube::api::DynamicObject| (operator.is_settled)(&operators::value(object));
        let object = (operator.namespaced.then_some("default"), *name);
        cluster.wait_for((operator.api_version, operator.kind), object, "it is as it should be", settled).await?;
    }
    Ok(())
}
