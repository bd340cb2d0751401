//! A cluster in a process of its own, and the command that starts it.
//!
//! The process stops when this command ends before it has recorded the cluster: see [`super::starter`].

use std::ffi::OsString;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum as _;
use rustix::process::Pid;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{ANYWHERE, starter};
use crate::args::Up;
use crate::home::{Home, Run, is_ending};
use crate::kubeconfig_file::Before;
use crate::signals::Signals;
use crate::{kubeconfig_file, output, stopping};

/// How a start ended that did not fail.
enum Started {
    /// The cluster serves and is recorded.
    Ready,
    /// A signal came first; the command exits with this.
    Interrupted(u8),
}

/// Starts a process of its own that serves, and returns when it does.
pub(super) fn run(args: &Up, home: &Home) -> Result<ExitCode> {
    let new = home.create()?;
    // Two commands at once would start two clusters of one name, and `down` would find only one of them.
    let _starting = home.lock()?;
    // One that was killed just now is as good as gone, once it has closed its files.
    let present = home.present().filter(|run| !is_ending(run.pid) || !stopping::ended(run));
    if let Some(run) = present {
        bail!(
            "cluster {:?} already runs{} (pid {}); stop it with `windlass down --name {}`",
            home.name,
            run.at(),
            run.pid,
            home.name
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let started = runtime.block_on(start(args, home));
    if new && !matches!(started, Ok(Started::Ready)) {
        // A cluster that never ran is not one to be listed.
        home.purge()?;
    }
    Ok(match started? {
        Started::Ready => ExitCode::SUCCESS,
        Started::Interrupted(code) => {
            output::note(format_args!("interrupted: cluster {:?} was not started", home.name));
            ExitCode::from(code)
        }
    })
}

async fn start(args: &Up, home: &Home) -> Result<Started> {
    let mut signals = Signals::new()?;
    let mut process = Process::spawn(args, home)?;
    let ready = tokio::select! {
        ready = process.ready(home) => ready,
        code = signals.recv() => {
            process.stop(&mut signals).await;
            return Ok(Started::Interrupted(code));
        }
    };
    let (server, ingress) = ready?;
    let published = publish(args, home, &server, process.pid);
    if let Some(code) = signals.pending().await {
        process.stop(&mut signals).await;
        let forgotten = stopping::forget(home, home.started().as_ref(), true);
        home.clear_run();
        return forgotten.map(|()| Started::Interrupted(code));
    }
    let published = match published {
        Ok(file) => process.recorded().await.map(|()| file),
        Err(error) => Err(error),
    };
    let file = match published {
        Ok(file) => file,
        Err(error) => {
            // A cluster that no command can find is not left running.
            process.stop(&mut signals).await;
            let forgotten = stopping::forget(home, home.started().as_ref(), true);
            home.clear_run();
            return Err(match forgotten {
                Ok(()) => error,
                Err(why) => error.context(format!("{why:#}")),
            });
        }
    };
    let document = || {
        json!({
            "name": home.name, "server": server, "context": home.context(), "kubeconfig": file, "pid": process.pid,
            "ingress": ingress,
        })
    };
    if !output::document(args.output, document) {
        output::line(format_args!("cluster {:?} is ready at {server}", home.name));
        output::line(format_args!("context {:?} is now current in {}", home.context(), file.display()));
        if let Some(url) = &ingress {
            output::line(format_args!("Ingresses are served at {url}"));
        }
        output::line("");
        output::line("  kubectl get namespaces");
        output::line(format_args!("  windlass down --name {}", home.name));
    }
    Ok(Started::Ready)
}

/// Where to serve: where clients already know the cluster, unless something else is there by now.
fn address(args: &Up, home: &Home) -> SocketAddr {
    let last = || home.last_address().filter(|address| TcpListener::bind(address).is_ok());
    args.listen.or_else(last).unwrap_or(ANYWHERE)
}

/// Lets clients and later commands find a cluster that serves. Returns the kubeconfig that names it.
fn publish(args: &Up, home: &Home, server: &str, pid: i32) -> Result<PathBuf> {
    let config = kubeconfig_file::read(&home.kubeconfig())?;
    let record = |before: Before| {
        // What a run that ended without `down` has left there is its own.
        let earlier = home.started();
        let mut replaced = earlier.as_ref().map(|run| run.replaced.clone()).unwrap_or_default();
        replaced.extend(before.replaced);
        home.write_run(&Run {
            pid,
            server: Some(server.to_owned()),
            ephemeral: args.ephemeral,
            kubeconfig: args.kubeconfig.clone(),
            previous_context: before.context.or_else(|| earlier?.previous_context),
            replaced,
        })
    };
    match &args.kubeconfig {
        Some(file) => {
            record(Before::default())?;
            kubeconfig_file::write(file, &config)?;
            Ok(file.clone())
        }
        None => kubeconfig_file::merge(&config, record),
    }
}

/// The process that serves, while this command has it in its hands.
struct Process {
    child: Child,
    pid: i32,
    /// As soon as this is closed without a word, the process stops.
    leash: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Process {
    fn spawn(args: &Up, home: &Home) -> Result<Self> {
        let log = File::create(home.log()).with_context(|| format!("cannot write {}", home.log().display()))?;
        let mut command = Command::new(std::env::current_exe().context("cannot find the windlass program")?);
        command.args(["up", "--foreground", "--watched", "--name", &home.name]);
        command.args(["--listen", &address(args, home).to_string()]);
        command.arg("--kubeconfig").arg(home.kubeconfig());
        command.arg(format!("--controllers={}", args.controllers.join(",")));
        command.args(["--nodes", &args.nodes.to_string()]);
        if args.kwok {
            command.arg("--kwok");
        }
        if args.ephemeral {
            command.arg("--ephemeral");
        } else {
            command.arg("--data-dir").arg(args.data_dir.clone().unwrap_or_else(|| home.data()));
        }
        if let Some(runtime) = args.runtime.to_possible_value() {
            command.arg(format!("--runtime={}", runtime.get_name()));
        }
        if let Some(egress) = args.egress.to_possible_value() {
            command.arg(format!("--egress={}", egress.get_name()));
        }
        for (flag, address) in [("--ingress", args.ingress), ("--ingress-tls", args.ingress_tls)] {
            if let Some(address) = address {
                command.arg(format!("{flag}={address}"));
            }
        }
        for name in &args.scheduler_names {
            command.arg(format!("--scheduler-name={name}"));
        }
        for plugin in &args.admission.enable_admission_plugins {
            command.arg(format!("--enable-admission-plugins={plugin}"));
        }
        for plugin in &args.admission.disable_admission_plugins {
            command.arg(format!("--disable-admission-plugins={plugin}"));
        }
        command.arg(format!("--history={}s", args.history.as_secs()));
        server_settings(&mut command, args, home)?;
        // A group of its own: what is typed at this command's terminal is not meant for it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut child = command.spawn().context("cannot start the cluster's process")?;
        let pid = i32::try_from(child.id().context("the cluster's process has no id")?)?;
        let leash = child.stdin.take();
        let stdout = child.stdout.take().context("the cluster's process has no output")?;
        Ok(Self { child, pid, leash, said: BufReader::new(stdout) })
    }

    /// Waits until it serves. Returns where, and where it serves Ingresses.
    async fn ready(&mut self, home: &Home) -> Result<(String, Option<String>)> {
        let mut said = String::new();
        self.said.read_line(&mut said).await?;
        while let Some(note) = said.strip_prefix(starter::NOTE) {
            output::note(note.trim_end());
            said.clear();
            self.said.read_line(&mut said).await?;
        }
        if let Some(server) = said.strip_prefix("ready ").and_then(|rest| rest.split_whitespace().next()) {
            let ingress = said.split_whitespace().find_map(|word| word.strip_prefix("ingress="));
            return Ok((server.to_owned(), ingress.map(str::to_owned)));
        }
        self.said.read_to_string(&mut said).await?;
        let status = self.child.wait().await?;
        if said.trim().is_empty() {
            said = std::fs::read_to_string(home.log()).unwrap_or_default();
        }
        match said.trim().trim_start_matches("error: ") {
            "" => bail!("the cluster did not start: its process ended without a message ({status})"),
            said => bail!("the cluster did not start: {said}"),
        }
    }

    /// Lets it go: from here on it runs whether this command does or not.
    async fn recorded(&mut self) -> Result<()> {
        const STOPPED: &str = "the cluster stopped as soon as it had started";
        let mut leash = self.leash.take().context("the cluster's process has no input")?;
        let mut answer = String::new();
        let told = async {
            leash.write_all(starter::RECORDED).await?;
            // A process that is just dying may take it as well.
            self.said.read_line(&mut answer).await
        };
        let told = tokio::time::timeout(stopping::STOP_TIMEOUT, told).await.context("the cluster does not answer")?;
        ensure!(told.context(STOPPED)? > 0, STOPPED);
        Ok(())
    }

    /// Stops it, and kills it if that takes too long or a signal says so.
    async fn stop(&mut self, signals: &mut Signals) {
        self.leash = None;
        if let Some(pid) = Pid::from_raw(self.pid) {
            // It may have ended already, and then it is only to be waited for.
            let _ = stopping::terminate(pid);
        }
        tokio::select! {
            _ = self.child.wait() => return,
            () = tokio::time::sleep(stopping::STOP_TIMEOUT) => {}
            _ = signals.recv() => {}
        }
        let _ = self.child.kill().await;
    }
}
/// Passes on the settings of the API server. The process has another directory, so paths are made absolute.
fn server_settings(command: &mut Command, args: &Up, home: &Home) -> Result<()> {
    let flow = &args.flow_control;
    command.arg(format!("--max-requests-inflight={}", flow.max_requests_inflight));
    command.arg(format!("--max-mutating-requests-inflight={}", flow.max_mutating_requests_inflight));
    command.arg(format!("--enable-priority-and-fairness={}", flow.enable_priority_and_fairness));
    let audit = &args.audit;
    let Some(log) = &audit.audit_log else { return Ok(()) };
    let flag = |flag: &str, path: &Path| -> Result<OsString> {
        let mut argument = OsString::from(format!("{flag}="));
        argument.push(std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))?);
        Ok(argument)
    };
    command.arg(flag("--audit-log", log.as_deref().unwrap_or(&home.audit_log()))?);
    if let Some(policy) = &audit.audit_policy {
        command.arg(flag("--audit-policy", policy)?);
    }
    command.arg(format!("--audit-log-maxsize={}", audit.audit_log_maxsize));
    command.arg(format!("--audit-log-maxbackup={}", audit.audit_log_maxbackup));
    command.arg(format!("--audit-log-maxage={}", audit.audit_log_maxage));
    Ok(())
}
