//! `windlass run`: an operator outside of its cluster, with its kinds installed and its webhooks reachable. It runs under
//! `windlass guard`, so that it does not outlive this process, however that ends.

pub(crate) mod account;
pub(crate) mod reach;

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::against::definitions::is_definition;
use crate::against::target::Target;
use crate::against::{apply, report};
use crate::args::{ListFormat, Run};
use crate::signals::Signals;
use crate::{operator, output};

pub(crate) fn run(args: &Run) -> Result<ExitCode> {
    if args.operator.program.is_none() {
        // A build takes long; what is known to fail afterwards is said before.
        Target::check(&args.target)?;
    }
    let program = operator::program(&args.operator)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        let prepared = tokio::select! {
            prepared = prepare(args, &program, directory.path()) => prepared?,
            code = signals.recv() => return Ok(ExitCode::from(code)),
        };
        output::note(format_args!("running {}; Ctrl-C stops it", program.display()));
        supervise(spawn(&program, args, &prepared)?, &mut signals).await
    })
}

/// What the operator's process is given.
struct Prepared {
    kubeconfig: std::path::PathBuf,
    webhooks: Option<String>,
    /// The namespace to watch, where the roles allow no others.
    watch: Option<String>,
}

async fn prepare(args: &Run, program: &Path, directory: &Path) -> Result<Prepared> {
    let target = Target::connect(&args.target).await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| target.namespace.clone());
    let kubeconfig = directory.join("kubeconfig");
    if !args.skip_install || args.as_service_account.is_some() {
        let manifests = operator::manifests_of(program, &args.operator, &args.arguments, Some(&namespace))?;
        let (definitions, roles): (Vec<Value>, Vec<Value>) = manifests.into_iter().partition(is_definition);
        let options = apply::Options {
            namespace: namespace.clone(),
            dry_run: false,
            force: true,
            timeout: Duration::from_secs(args.timeout),
            notes: true,
        };
        if !args.skip_install {
            apply::apply_all(&target.client, definitions, &options, report::line(ListFormat::Table, false)).await?;
        }
        if let Some(account) = &args.as_service_account {
            let token = account::create(&target, &namespace, account, roles, &options).await?;
            target.write_kubeconfig(&kubeconfig, |config| account::use_token(config, &target, &namespace, &token))?;
        }
    }
    if args.as_service_account.is_none() {
        target.write_kubeconfig(&kubeconfig, |config| account::use_namespace(config, &target, &namespace))?;
    }
    let webhooks = reach::address(&target, args.webhook_address.as_deref());
    Ok(Prepared { kubeconfig, webhooks, watch: args.as_service_account.as_ref().map(|_| namespace) })
}

fn spawn(program: &Path, args: &Run, prepared: &Prepared) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe().context("cannot find the windlass program")?);
    command.args(["guard", "--"]).arg(program).args(&args.arguments).env("KUBECONFIG", &prepared.kubeconfig);
    // Neither a pod that this may run in nor its ServiceAccount is meant.
    command.env_remove("KUBERNETES_SERVICE_HOST");
    if let Some(address) = &prepared.webhooks {
        command.env("WINDLASS_WEBHOOKS", address);
    }
    if let Some(namespace) = prepared.watch.as_ref().filter(|_| std::env::var_os("WATCH_NAMESPACE").is_none()) {
        command.env("WATCH_NAMESPACE", namespace);
    }
    // A group of its own: a Ctrl-C reaches the operator once, through this process, and not twice. Of two signals the
    // second would end it at once.
    command.stdin(Stdio::piped()).process_group(0);
    command.spawn().with_context(|| format!("cannot run {}", program.display()))
}

/// Waits for the operator's end, and passes signals on to it.
async fn supervise(mut child: Child, signals: &mut Signals) -> Result<ExitCode> {
    // While this is open, the guard lets the operator run; `Child::wait` would close it.
    let _leash = child.stdin.take();
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let pid = pid.context("the operator's process has no id")?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            code = signals.recv() => {
                // It may have ended just now.
                let _ = kill_process(pid, if code == 130 { Signal::INT } else { Signal::TERM });
            }
        }
    };
    match status.code() {
        Some(0) => Ok(ExitCode::SUCCESS),
        // The guard ends as a shell does whose program was ended by a signal.
        Some(code @ 129..=192) => {
            output::note(format_args!("the operator was ended by signal {}", code - 128));
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        Some(code) => {
            output::note(format_args!("the operator failed with exit code {code}"));
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        None => {
            use std::os::unix::process::ExitStatusExt as _;
            let signal = status.signal().unwrap_or_default();
            output::note(format_args!("the operator's guard was ended by signal {signal}"));
            Ok(ExitCode::from(128 + u8::try_from(signal).unwrap_or_default()))
        }
    }
}
