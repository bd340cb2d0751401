//! `windlass create`: kinds and webhooks for a project.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use windlass_scaffold::Project;
use windlass_scaffold::command::{self, External, NewApi, Selector, Webhooks};
use windlass_scaffold::project::Resource;

use crate::args::{Create, CreateApi, CreateWebhook, ExternalApi};
use crate::{output, project};

const NEXT: &str = "cargo test --workspace; windlass manifests --write";

pub(crate) fn run(args: Create) -> Result<ExitCode> {
    match args {
        Create::Api(args) => api(args),
        Create::Webhook(args) => webhook(args),
    }
}

fn api(args: CreateApi) -> Result<ExitCode> {
    let plugin = args.ignored.plugins.as_ref().is_some_and(|plugins| plugins.contains("deploy-image"));
    if plugin || args.image.is_given() {
        bail!(
            "there is no plugin deploy-image: leave out --plugins=deploy-image and --image with the flags that belong to \
             it, and let the reconciler apply a Deployment, as the example app-service does"
        );
    }
    let new = NewApi {
        resource: decide(args.resource, "Create Resource")?,
        controller: decide(args.controller, "Create Controller")?,
        group: args.group,
        version: args.version,
        kind: args.kind,
        plural: args.plural,
        short_names: args.shortname,
        namespaced: args.namespaced,
        controller_name: args.controller_name,
        external: external(args.external),
        builtin_name: args.allow_builtin_name,
    };
    let mut protected = None;
    let create = |project: &mut Project| {
        let declared = Resource::new(project.domain.clone(), new.group.clone(), new.version.clone(), new.kind.clone());
        protected = (new.resource && declared.is_protected()).then(|| declared.qualified_group());
        command::create_api(project, new)
    };
    let code = project::change(&args.change, create, NEXT)?;
    if let Some(group) = protected {
        output::note(format_args!(
            "{group} is a group of the Kubernetes community, and API servers accept its definitions only with the \
             annotation api-approved.kubernetes.io. The generated one says \"unapproved, experimental-only\"; the groups of \
             an operator of your own are in a --domain of your own"
        ));
    }
    Ok(code)
}

fn webhook(args: CreateWebhook) -> Result<ExitCode> {
    let mut selector = Selector::from(args.selected);
    if args.hub.is_some() {
        selector.version = args.hub;
    }
    let new = Webhooks {
        defaulting: args.defaulting,
        defaulting_path: args.defaulting_path,
        validation: args.validation,
        validation_path: args.validation_path,
        conversion: args.conversion,
        spokes: args.spoke,
        external: external(args.external),
    };
    project::change(&args.change, |project| command::create_webhook(project, &selector, &new), NEXT)
}

fn external(args: ExternalApi) -> Option<External> {
    let (domain, module) = (args.external_api_domain, args.external_api_module);
    args.external_api_path.map(|path| External { path, domain, module })
}

/// What a flag says; without it a person is asked, and a script means yes.
fn decide(flag: Option<bool>, question: &str) -> Result<bool> {
    if let Some(flag) = flag {
        return Ok(flag);
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Ok(true);
    }
    loop {
        let _ = write!(std::io::stderr(), "{question} [y/n] ");
        let mut answer = String::new();
        if std::io::stdin().read_line(&mut answer).context("cannot read the answer")? == 0 {
            bail!("no answer; use --resource and --controller, or answer y or n");
        }
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => {}
        }
    }
}
