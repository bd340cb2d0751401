//! `windlass kubeconfig`: the kubeconfig of a cluster that runs, for the administrator or for another user.

mod identity;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::args::{DocumentFormat, Kubeconfig};
use crate::home::Home;
use crate::{kubeconfig_file, output};

/// What is to be said of a cluster whose kubeconfig is not in its directory.
pub(crate) const ELSEWHERE: &str = "its kubeconfig is in the file that --kubeconfig named";

pub(crate) fn run(args: &Kubeconfig) -> Result<ExitCode> {
    let home = Home::of(&args.name.name)?;
    let Some(run) = home.running() else {
        bail!("cluster {:?} is not running; start it with `windlass up --name {}`", home.name, home.name);
    };
    if run.server.is_none() {
        bail!("cluster {:?} runs (pid {}), but {ELSEWHERE}", home.name, run.pid);
    }
    let mut config = kubeconfig_file::read(&home.kubeconfig())?;
    if let Some(user) = &args.user {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        config = runtime.block_on(identity::of(&home, config, user, &args.groups))?;
    }
    match args.output {
        DocumentFormat::Json => output::json(&config),
        DocumentFormat::Yaml => output::line(kubeconfig_file::to_yaml(&config)?.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}
