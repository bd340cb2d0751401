//! `windlass up`: a cluster in this process, or in one of its own.

mod background;
mod former;
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

use anyhow::{Context as _, Result, bail, ensure};
use windlass_cluster::{AdmissionPlugins, AuditOptions, AuditPolicy, Cluster, Controllers, FlowControlOptions};
use windlass_server::depth;

use crate::args::{Admission, Audit, FlowControl, Up};
use crate::home::Home;
use crate::signals::Signals;
use crate::{kubeconfig_file, logging, memory, open_files, output};
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
    flow_control(&args.flow_control)?;
    audit(&args.audit, &home)?;
    if !args.foreground {
        return background::run(args, &home);
    }
    memory::give_back_at_once();
    open_files::raise_limit();
    // Before there are threads.
    let served = pods::enter(args, &home).and_then(|place| {
        depth::run_with(memory::collect, async || foreground(args, &home, controllers, plugins, place).await)?
    });
    if args.watched
        && let Err(error) = &served
    {
        // The log may be on the disk that is full.
        output::line(output::with_causes(error));
    }
    served.map(|()| ExitCode::SUCCESS)
}

/// Serves until a signal. Prints one line with `ready` once it serves.
async fn foreground(
    args: &Up,
    home: &Home,
    controllers: Controllers,
    plugins: AdmissionPlugins,
    place: Option<pods::Place>,
) -> Result<()> {
    logging::init();
    let mut signals = Signals::new()?;
    let mut starter = if args.watched { Starter::at_standard_input()? } else { Starter::none() };
    let builder = Cluster::builder().listen(args.listen.unwrap_or(ANYWHERE));
    if let Some(note) = place.as_ref().and_then(|place| place.note.as_ref()) {
        starter.note(note);
    }
    let mut pods = place.map(|place| pods::of(place, home)).transpose()?;
    if let Some(pods) = &mut pods {
        pods.start_network(args).await?;
        pods.notes().iter().for_each(|note| starter.note(note));
    }
    // This machine is the only node, if pods run on it.
    let simulated = if pods.is_some() { 0 } else { args.nodes };
    let mut builder = builder.controllers(controllers).nodes(simulated).kwok(args.kwok).admission_plugins(plugins);
    builder = builder.history(args.history);
    builder = builder.flow_control(flow_control(&args.flow_control)?);
    if let Some(audit) = audit(&args.audit, home)? {
        builder = builder.audit(audit);
    }
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
        // No client has been told of it, and what it has written so far is as good as after a crash.
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
    let (run, own) = (pods.is_some(), home.name.as_str());
    let former = former::remove(cluster.client(), |node| {
        // This machine is the only node of a cluster whose pods run, and none of one whose pods are simulated.
        let is_simulated = windlass_node::is_simulated(node);
        if run { is_simulated } else { !is_simulated && node.metadata.name.as_deref() == Some(own) }
    });
    let former = former.await?;
    if !former.is_empty() {
        let how = if run { "run on this machine" } else { "are simulated" };
        starter.note(&format!("pods {how} now; deleted the nodes {} with their pods", former.join(", ")));
    }
    let credentials = cluster.credentials()?.context("the cluster has no address")?;
    let config = credentials.kubeconfig(&home.context());
    let file = if let Some(file) = &args.kubeconfig {
        file.clone()
    } else {
        home.create()?;
        home.kubeconfig()
    };
    kubeconfig_file::write(&file, &config)?;
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

/// The seats that both flags give together.
fn flow_control(args: &FlowControl) -> Result<FlowControlOptions> {
    let seats = args.max_requests_inflight.saturating_add(args.max_mutating_requests_inflight);
    ensure!(
        seats > 0,
        "--max-requests-inflight and --max-mutating-requests-inflight are both 0: nothing could be served"
    );
    Ok(FlowControlOptions { enabled: args.enable_priority_and_fairness, seats })
}

/// What is recorded, if anything is. A policy that cannot be used is reported before anything starts.
fn audit(args: &Audit, home: &Home) -> Result<Option<AuditOptions>> {
    let Some(log) = &args.audit_log else { return Ok(None) };
    let mut options = AuditOptions::new(log.clone().unwrap_or_else(|| home.audit_log()));
    if let Some(file) = &args.audit_policy {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        options.policy = AuditPolicy::parse(&text).with_context(|| format!("{} is not usable", file.display()))?;
    }
    options.max_size = args.audit_log_maxsize.saturating_mul(1 << 20);
    options.max_backups = args.audit_log_maxbackup;
    options.max_age_days = args.audit_log_maxage;
    Ok(Some(options))
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

    #[test]
    fn seats_are_those_of_both_flags() {
        let args = |reads, writes| FlowControl {
            max_requests_inflight: reads,
            max_mutating_requests_inflight: writes,
            enable_priority_and_fairness: true,
        };
        assert_eq!(flow_control(&args(400, 200)).expect("seats"), FlowControlOptions::default());
        let error = flow_control(&args(0, 0)).expect_err("no seats").to_string();
        assert!(error.ends_with("are both 0: nothing could be served"), "{error}");
    }

    #[test]
    fn unusable_audit_policies_are_reported_with_their_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let policy = dir.path().join("policy.yaml");
        let home = Home { name: "c".into(), dir: dir.path().join("c") };
        let args = Audit {
            audit_log: Some(None),
            audit_policy: Some(policy.clone()),
            audit_log_maxsize: 2,
            audit_log_maxbackup: 3,
            audit_log_maxage: 4,
        };
        std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]")
            .expect("written");
        let options = audit(&args, &home).expect("usable").expect("on");
        assert_eq!((options.path, options.max_size), (home.audit_log(), 2 << 20));
        assert_eq!((options.max_backups, options.max_age_days), (3, 4));
        std::fs::write(&policy, "kind: Policy").expect("written");
        let error = audit(&args, &home).expect_err("not usable");
        assert_eq!(error.to_string(), format!("{} is not usable", policy.display()));
    }
}
