//! `windlass init`: an operator's project.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use windlass_scaffold::Project;
use windlass_scaffold::name::{Domain, ProjectName};
use windlass_scaffold::project::{Settings, Source};
use windlass_scaffold::scaffold;

use crate::args::Init;
use crate::signals::uninterrupted;
use crate::{output, project};

pub(crate) fn run(args: Init) -> Result<ExitCode> {
    let root = std::path::absolute(&args.directory).context("cannot tell the current directory")?;
    scaffold::ensure_new(&root)?;
    let name = match args.name {
        Some(name) => name,
        None => named_after(&root)?,
    };
    let settings = Settings {
        windlass: source(&root, args.windlass_path, args.windlass_git)?,
        license: args.license.into(),
        owner: args.owner.filter(|owner| !owner.is_empty()),
        header: args.license_file.as_deref().map(project::header).transpose()?,
        client: false,
    };
    let mut new = Project::new(name, args.domain, settings);
    new.multigroup = args.multigroup;
    new.namespaced = args.namespaced;
    let plan = uninterrupted(|| scaffold::init(&root, &new, project::mode(&args.change)))?;
    project::report(&plan, &args.change, "windlass create api --group GROUP --version v1 --kind KIND");
    if !args.change.dry_run
        && let Some(manifest) = claiming_workspace(&root)
    {
        let below = manifest.parent().and_then(|outer| root.strip_prefix(outer).ok()).unwrap_or(&root);
        output::note(format_args!(
            "{} takes this directory for a member of its workspace, and a project is a workspace of its own: add \
             `exclude = [{:?}]` to its [workspace]",
            manifest.display(),
            below.display().to_string()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of a project by its directory. kubebuilder's users know `--domain`, and give a domain alone.
fn named_after(root: &Path) -> Result<ProjectName> {
    let directory = directory_name(root);
    ProjectName::new(directory.as_str()).map_err(|error| {
        if !root.exists() && directory.contains('.') && Domain::new(directory.as_str()).is_ok() {
            let hint = "was taken for the directory of the project. The domain of its groups is --domain";
            return anyhow::Error::new(output::Usage(format!("{error}; {directory:?} {hint} {directory}")));
        }
        error.into()
    })
}

fn directory_name(root: &Path) -> String {
    // `.` and `..` have no name of their own.
    let named = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    named.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The manifest of a workspace around the project whose members include it. Cargo refuses to work there then.
fn claiming_workspace(root: &Path) -> Option<PathBuf> {
    let manifests = root.ancestors().skip(1).map(|outer| outer.join("Cargo.toml"));
    let is_workspace =
        |manifest: &PathBuf| std::fs::read_to_string(manifest).is_ok_and(|text| text.contains("[workspace]"));
    let manifest = manifests.into_iter().find(is_workspace)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--offline", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(&manifest);
    let output = cargo.stdin(Stdio::null()).output().ok()?;
    String::from_utf8_lossy(&output.stderr).contains("multiple workspace roots").then_some(manifest)
}

/// Where the project's dependencies on windlass come from. A path that was given relative to this directory is written
/// relative to the project, so that both can be moved together.
fn source(root: &Path, path: Option<PathBuf>, git: Option<String>) -> Result<Source> {
    if let Some(url) = git {
        return Ok(Source::Git(url));
    }
    if let Some(path) = path {
        let checkout = path.canonicalize().with_context(|| format!("cannot use --windlass-path {}", path.display()))?;
        anyhow::ensure!(
            is_checkout(&checkout),
            "--windlass-path {}: this is no checkout of windlass, it has no crates/windlass/Cargo.toml",
            path.display()
        );
        let written = if path.is_relative() { relative(root, &checkout) } else { checkout };
        return Ok(Source::Path(written.display().to_string()));
    }
    // A command that was built from a checkout works with that checkout.
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match built_in.canonicalize() {
        Ok(checkout) if is_checkout(&checkout) => Ok(Source::Path(checkout.display().to_string())),
        _ => Ok(Source::default()),
    }
}

/// The way from a directory, which need not exist, to another one.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let known = from.ancestors().find_map(|outer| Some((outer, outer.canonicalize().ok()?)));
    let from = match known {
        Some((outer, whole)) => whole.join(from.strip_prefix(outer).unwrap_or(from)),
        None => from.to_owned(),
    };
    let common = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(common).map(|_| std::path::Component::ParentDir);
    let way: PathBuf = up.chain(to.components().skip(common)).collect();
    if way.as_os_str().is_empty() { PathBuf::from(".") } else { way }
}

fn is_checkout(directory: &Path) -> bool {
    directory.join("crates/windlass/Cargo.toml").is_file()
        && directory.join("crates/windlass-testing/Cargo.toml").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_checkout() {
        for (from, to, expected) in [
            ("/src/windlass/examples/at", "/src/windlass", "../.."),
            ("/src/at", "/src/windlass", "../windlass"),
            ("/src/windlass", "/src/windlass", "."),
            ("/src", "/src/windlass", "windlass"),
        ] {
            assert_eq!(relative(Path::new(from), Path::new(to)), Path::new(expected), "{from} to {to}");
        }
    }
}
