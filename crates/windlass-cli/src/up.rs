//! `windlass up`: a cluster in this process, or in one of its own.

mod background;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
pub(crate) mod pods;
#[cfg(not(target_os = "linux"))]
#[path = "up/no_pods.rs"]
pub(crate) mod pods;
mod starter;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use windlass_cluster::{AdmissionPlugins, Cluster, Controllers};
use windlass_server::depth;

use crate::args::{Admission, Up};
use crate::home::Home;
use crate::signals::Signals;
use crate::{kubeconfig, logging, memory, open_files, output};
use starter::Starter;

/// Any free port of this machine alone.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// By then controllers have looked at what there is.
const SETTLED: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Up) -> Result<ExitCode> {
    let home = Home::of(&args.name.name)?;
    // A mistake is reported here, not in the log of another process.
    let controllers = Controllers::named(&args.controllers)?;
    let plugins = plugins(&args.admission)?;
    if !args.foreground {
        return background::run(args, &home);
    }
    memory::give_back_at_once();
    open_files::raise_limit();
    let served = depth::run_with(memory::collect, async || foreground(args, &home, controllers, plugins).await)?;
    if args.watched
        && let Err(error) = &served
    {
        // The log may be on the disk that is full.
        output::line(output::with_causes(error));
    }
    served.map(|()| ExitCode::SUCCESS)
}

/// Serves until a signal. Prints one line with `ready` once it serves.
async fn foreground(args: &Up, home: &Home, controllers: Controllers, plugins: AdmissionPlugins) -> Result<()> {
    logging::init();
    let mut signals = Signals::new()?;
    let mut starter = if args.watched { Starter::at_standard_input()? } else { Starter::none() };
    let builder = Cluster::builder().listen(args.listen.unwrap_or(ANYWHERE));
    let mut pods = pods::of(args, home)?;
    if let Some(pods) = &mut pods {
        pods.start_network(args).await?;
    }
    // This machine is the only node, if pods run on it.
    let simulated = if pods.is_some() { 0 } else { args.nodes };
    let mut builder = builder.controllers(controllers).nodes(simulated).kwok(args.kwok).admission_plugins(plugins);
    for name in &args.scheduler_names {
        builder = builder.scheduler_profile(name);
    }
    if let Some(pods) = &pods {
        builder = builder.machine(pods.machine());
    }
    if !args.ephemeral {
        builder = builder.data_dir(args.data_dir.clone().unwrap_or_else(|| home.data()));
    }
    let started = tokio::select! {
        cluster = builder.start() => cluster.map(Some),
        // Nobody has been told of it, and what it has written so far is as good as after a crash.
        _ = signals.recv() => Ok(None),
        () = starter.gone() => Ok(None),
    };
    let Ok(Some(cluster)) = started else {
        if let Some(pods) = &pods {
            pods.give_up();
        }
        started?;
        return Ok(());
    };
    if let Some(pods) = &pods {
        pods.set_api_server(cluster.address());
        pods.forget_others(cluster.client()).await?;
    }
    let credentials = cluster.credentials()?.context("the cluster has no address")?;
    let config = credentials.kubeconfig(&home.context());
    let file = if let Some(file) = &args.kubeconfig {
        file.clone()
    } else {
        home.create()?;
        home.kubeconfig()
    };
    kubeconfig::write(&file, &config)?;
    if let Some(recovery) = cluster.recovery().filter(|recovery| recovery.truncated_bytes > 0) {
        tracing::warn!(bytes = recovery.truncated_bytes, "an unfinished write was cut off the end of the log");
    }
    let ingress = pods.as_ref().and_then(pods::Pods::ingress).map(|url| format!("ingress={url} ")).unwrap_or_default();
    output::line(format_args!("ready {} {ingress}kubeconfig={}", credentials.server(), file.display()));
    let settled = async {
        tokio::time::sleep(SETTLED).await;
        memory::let_go_of_the_start();
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        _ = signals.recv() => {}
        never = settled => match never {},
        () = starter.gone() => tracing::warn!("the command that started this cluster ended before it was recorded"),
    }
    // A second signal ends the process at once.
    let stop = cluster.stop();
    tokio::select! {
        stopped = stop => stopped?,
        code = signals.recv() => std::process::exit(code.into()),
    }
    if let Some(pods) = pods {
        pods.end();
    }
    Ok(())
}

/// The default plugins, with those that are enabled and without those that are disabled.
fn plugins(args: &Admission) -> Result<AdmissionPlugins> {
    let (enabled, disabled) = (&args.enable_admission_plugins, &args.disable_admission_plugins);
    if let Some(both) = enabled.iter().find(|plugin| disabled.contains(plugin)) {
        bail!("{both} is in --enable-admission-plugins and in --disable-admission-plugins");
    }
    let all = enabled.iter().fold(AdmissionPlugins::default(), |all, plugin| all.with(*plugin));
    Ok(disabled.iter().fold(all, |all, plugin| all.without(*plugin)))
}

#[cfg(test)]
mod tests {
    use windlass_cluster::AdmissionPlugin;

    use super::*;

    #[test]
    fn plugins_are_enabled_and_disabled_by_name() {
        let with = |enabled: &[AdmissionPlugin], disabled: &[AdmissionPlugin]| {
            plugins(&Admission {
                enable_admission_plugins: enabled.to_vec(),
                disable_admission_plugins: disabled.to_vec(),
            })
        };
        let chosen = with(&[AdmissionPlugin::NodeRestriction], &[AdmissionPlugin::ServiceAccount]).expect("chosen");
        assert!(chosen.contains(AdmissionPlugin::NodeRestriction) && !chosen.contains(AdmissionPlugin::ServiceAccount));
        let error = with(&[AdmissionPlugin::Priority], &[AdmissionPlugin::Priority]).expect_err("both").to_string();
        assert_eq!(error, "Priority is in --enable-admission-plugins and in --disable-admission-plugins");
    }
}
