//! The operator's program: built with cargo, and asked for its kinds and roles.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Parser as _;
use serde_json::Value;

use crate::against::definitions::is_definition;
use crate::against::documents;
use crate::args::{Args, Command, Manifests, Operator};
use crate::manifests;

/// Builds the program, or finds the one that was named.
pub(crate) fn program(operator: &Operator) -> Result<PathBuf> {
    match &operator.program {
        Some(program) => named(program),
        None => manifests::build(&question(operator, &[], None)?),
    }
}

/// Builds the program with optimisations, or finds the one that was named.
pub(crate) fn release(operator: &Operator) -> Result<PathBuf> {
    match &operator.program {
        Some(program) => named(program),
        None => manifests::build_with(&question(operator, &[], None)?, &["--release"]),
    }
}

/// A program by its path. A name without a slash is a file of this directory, not one that the system looks for.
fn named(program: &Path) -> Result<PathBuf> {
    std::path::absolute(program).with_context(|| format!("{} is not a path", program.display()))
}

/// Asks the program for all manifests that come from its code. Roles of its own namespace are in `namespace`.
pub(crate) fn manifests_of(
    program: &Path,
    operator: &Operator,
    arguments: &[String],
    namespace: Option<&str>,
) -> Result<Vec<Value>> {
    manifests::ask(program, &question(operator, arguments, namespace)?)
}

/// The definitions of a project: those of a file or directory, or those that the operator's code declares.
pub(crate) fn definitions(file: Option<&Path>, operator: &Operator, arguments: &[String]) -> Result<Vec<Value>> {
    let mut objects = match file {
        // Beside CRDs, the directory of a kustomization has patches of them.
        Some(directory) if directory.join("kustomization.yaml").is_file() => documents::render(directory, ".")?,
        Some(file) => documents::read(&[file.to_owned()], true)?,
        None => manifests_of(&program(operator)?, operator, arguments, None)?,
    };
    objects.retain(is_definition);
    if objects.is_empty() {
        match file {
            Some(file) => bail!("there are no CRDs in {}", file.display()),
            None => bail!("the operator declares no kinds; its manager gets them with `definitions(..)`"),
        }
    }
    Ok(objects)
}

/// What `windlass manifests` would be asked.
fn question(operator: &Operator, arguments: &[String], namespace: Option<&str>) -> Result<Manifests> {
    let Command::Manifests(mut question) = Args::try_parse_from(["windlass", "manifests"])?.command else {
        bail!("invariant: `windlass manifests` is a command");
    };
    question.package.clone_from(&operator.package);
    question.bin.clone_from(&operator.bin);
    question.program.clone_from(&operator.program);
    question.namespace = namespace.map(str::to_owned);
    question.arguments = arguments.to_vec();
    Ok(question)
}
