//! `windlass up`: a cluster in this process, or in one of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use windlass_cluster::Cluster;
use windlass_server::depth;

use crate::args::{Format, Up};
use crate::home::{Home, Run};
use crate::kubeconfig::{self, Merged};
use crate::{logging, memory, output};

/// Any free port of this machine alone.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// By then controllers have looked at what there is.
const SETTLED: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Up) -> Result<ExitCode> {
    let home = Home::of(&args.name.name)?;
    if args.foreground {
        memory::give_back_at_once();
        depth::run(async || foreground(args, &home).await)??;
    } else {
        background(args, &home)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves until a signal. Prints one line with `ready` once it serves.
async fn foreground(args: &Up, home: &Home) -> Result<()> {
    logging::init();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut builder = Cluster::builder().listen(args.listen.unwrap_or(ANYWHERE));
    if !args.ephemeral {
        builder = builder.data_dir(args.data_dir.clone().unwrap_or_else(|| home.data()));
    }
    let cluster = builder.start().await?;
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
    output::line(format_args!("ready {} kubeconfig={}", credentials.server(), file.display()));
    tokio::spawn(async {
        tokio::time::sleep(SETTLED).await;
        memory::let_go_of_the_start();
    });
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    // A second signal ends the process at once.
    let stop = cluster.stop();
    tokio::select! {
        stopped = stop => stopped?,
        _ = interrupt.recv() => std::process::exit(130),
        _ = terminate.recv() => std::process::exit(143),
    }
    Ok(())
}

/// Starts a process of its own that serves, and returns when it does.
fn background(args: &Up, home: &Home) -> Result<()> {
    let new = home.create()?;
    // Two commands at once would start two clusters of one name, and `down` would find only one of them.
    let _starting = home.lock()?;
    if let Some(run) = home.running() {
        bail!(
            "cluster {:?} already runs at {} (pid {}); stop it with `windlass down --name {}`",
            home.name,
            run.server,
            run.pid,
            home.name
        );
    }
    let started = start(args, home);
    if started.is_err() && new {
        // A cluster that never ran is not one to be listed.
        home.purge()?;
    }
    started
}

/// Where to serve: where clients already know the cluster, unless something else is there by now.
fn address(args: &Up, home: &Home) -> SocketAddr {
    let last = || home.last_address().filter(|address| TcpListener::bind(address).is_ok());
    args.listen.or_else(last).unwrap_or(ANYWHERE)
}

fn start(args: &Up, home: &Home) -> Result<()> {
    let log = File::create(home.log()).with_context(|| format!("cannot write {}", home.log().display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find the windlass program")?);
    command.args(["up", "--foreground", "--name", &home.name, "--listen", &address(args, home).to_string()]);
    command.arg("--kubeconfig").arg(home.kubeconfig());
    if args.ephemeral {
        command.arg("--ephemeral");
    } else {
        command.arg("--data-dir").arg(args.data_dir.clone().unwrap_or_else(|| home.data()));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).process_group(0);
    let mut child = command.spawn().context("cannot start the cluster's process")?;
    let stdout = child.stdout.take().context("the cluster's process has no output")?;
    let mut ready = String::new();
    BufReader::new(stdout).read_line(&mut ready)?;
    let Some(server) = ready.strip_prefix("ready ").and_then(|rest| rest.split_whitespace().next()) else {
        let _ = child.wait();
        let said = std::fs::read_to_string(home.log()).unwrap_or_default();
        let said = said.trim().trim_start_matches("error: ");
        bail!("the cluster did not start: {}", if said.is_empty() { "it said nothing" } else { said });
    };
    let merged = match publish(args, home, server, child.id()) {
        Ok(file) => file,
        Err(error) => {
            // A cluster that nobody can find is not left running.
            let _ = child.kill();
            let _ = child.wait();
            home.clear_run();
            return Err(error);
        }
    };
    match args.output {
        Format::Json => output::json(&json!({
            "name": home.name, "server": server, "context": home.context(), "kubeconfig": merged, "pid": child.id(),
        })),
        Format::Text => {
            output::line(format_args!("cluster {:?} is ready at {server}", home.name));
            output::line(format_args!("context {:?} is now current in {}", home.context(), merged.display()));
            output::line("");
            output::line("  kubectl get namespaces");
            output::line(format_args!("  windlass down --name {}", home.name));
        }
    }
    Ok(())
}

/// Lets clients and later commands find a cluster that serves. Returns the kubeconfig that names it.
fn publish(args: &Up, home: &Home, server: &str, pid: u32) -> Result<PathBuf> {
    let config = kubeconfig::read(&home.kubeconfig())?;
    let merged = match &args.kubeconfig {
        Some(file) => {
            kubeconfig::write(file, &config)?;
            Merged { file: file.clone(), previous: None }
        }
        None => kubeconfig::merge(&config)?,
    };
    home.write_run(&Run {
        pid: i32::try_from(pid)?,
        server: server.to_owned(),
        ephemeral: args.ephemeral,
        kubeconfig: args.kubeconfig.clone(),
        previous_context: merged.previous.or_else(|| home.started()?.previous_context),
    })?;
    Ok(merged.file)
}
