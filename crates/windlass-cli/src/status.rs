//! `windlass status`: whether a cluster runs and answers. Exits 1 if it does not.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::args::{ListFormat, Status};
use crate::home::Home;
use crate::kubeconfig::ELSEWHERE;
use crate::{kubeconfig_file, output};

pub(crate) fn run(args: &Status) -> Result<ExitCode> {
    let home = Home::of(&args.name.name)?;
    let Some(run) = home.running() else {
        match args.output {
            ListFormat::Json => output::json(&json!({"name": home.name, "running": false})),
            ListFormat::Yaml => output::yaml(&json!({"name": home.name, "running": false})),
            ListFormat::Table => output::line(format_args!(
                "cluster {:?} is not running; start it with `windlass up --name {}`",
                home.name, home.name
            )),
        }
        return Ok(ExitCode::FAILURE);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let version = match run.server {
        Some(_) => runtime.block_on(version(&home)),
        None => Err(anyhow!(ELSEWHERE)),
    };
    let healthy = version.is_ok();
    // One in the foreground is in no user's kubeconfig.
    let context = Some(home.context()).filter(|context| kubeconfig_file::names(context).unwrap_or(false));
    let document = json!({
        "name": home.name, "running": true, "healthy": healthy, "server": run.server, "pid": run.pid,
        "ephemeral": run.ephemeral, "context": context, "version": version.as_ref().ok(),
    });
    match (args.output, version) {
        (ListFormat::Json, _) => output::json(&document),
        (ListFormat::Yaml, _) => output::yaml(&document),
        (ListFormat::Table, Ok(version)) => output::line(format_args!(
            "cluster {:?} runs{} (pid {}, Kubernetes {version}{})",
            home.name,
            run.at(),
            run.pid,
            context.map(|context| format!(", context {context:?}")).unwrap_or_default()
        )),
        (ListFormat::Table, Err(error)) if run.server.is_none() => {
            output::line(format_args!(
                "cluster {:?} runs (pid {}), but cannot be queried: {error}",
                home.name, run.pid
            ));
        }
        (ListFormat::Table, Err(error)) => output::line(format_args!(
            "cluster {:?} runs{} (pid {}) but does not answer: {}; see {}",
            home.name,
            run.at(),
            run.pid,
            output::with_causes(&error),
            home.log().display()
        )),
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn version(home: &Home) -> Result<String> {
    let file = Kubeconfig::read_from(home.kubeconfig())?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.connect_timeout = Some(Duration::from_secs(2));
    config.read_timeout = Some(Duration::from_secs(2));
    let client = windlass::config::connect(config)?;
    Ok(client.apiserver_version().await?.git_version)
}
