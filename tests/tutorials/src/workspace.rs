//! All generated projects as members of one workspace, which compiles without warnings and passes its tests.
//!
//! A generated project is a workspace itself. Its tables for the workspace are the same in each of them, so those of one
//! project serve all, but for the lints: they are those of windlass itself, which include the generated ones.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::commands::Commands;
use crate::{combinations, tutorial};

/// Where the tables of the workspace end.
const PACKAGE: &str = "\n[package]\n";
/// The manifest of windlass, with its lints.
const WINDLASS: &str = include_str!("../../../Cargo.toml");
/// What generated projects allow beside that: columns of a kind may have the same type.
const ALLOWED: &str = "duplicated_attributes = \"allow\"\n";

pub(crate) fn check(commands: &Commands) -> Result<()> {
    let started = Instant::now();
    let mut projects = Vec::new();
    for tutorial in tutorial::ALL {
        projects.push(tutorial.name);
    }
    for (name, typed) in combinations::ALL {
        let project = commands.empty(name)?;
        for line in typed {
            commands.succeeds(&project, line).with_context(|| format!("the combination {name:?}"))?;
        }
        projects.push(name);
    }
    println!("{} combinations generated: {:.1} s", combinations::ALL.len(), started.elapsed().as_secs_f64());
    join(commands, &projects)?;
    let root = &commands.directory;
    Commands::cargo(root, &["fmt", "--all", "--check"])?;
    let started = Instant::now();
    let clippy = ["clippy", "--offline", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    Commands::cargo(root, &clippy)?;
    println!("{} projects pass clippy: {} s", projects.len(), started.elapsed().as_secs());
    let started = Instant::now();
    Commands::cargo(root, &["build", "--offline", "--quiet", "--workspace", "--bins"])?;
    println!("{} operators built: {} s", projects.len(), started.elapsed().as_secs());
    let started = Instant::now();
    let mut tests = vec!["test", "--offline", "--quiet"];
    // A test links a whole cluster: those of the combinations that differ in what their tests do.
    let others = ["watch-namespace", "cluster-scope", "conversion", "multigroup-conversion", "built-in"];
    for name in tutorial::ALL.iter().map(|tutorial| tutorial.name).chain(others) {
        tests.extend(["--package", name]);
    }
    let converted = converted(root, &projects)?;
    tests.extend(converted.iter().flat_map(|name| ["--package", name]));
    Commands::cargo(root, &tests)?;
    println!("tests: {} s", started.elapsed().as_secs());
    Ok(())
}

/// The packages of kinds whose versions are converted: of these packages only they have tests.
fn converted(root: &Path, projects: &[&str]) -> Result<Vec<String>> {
    let mut packages = Vec::new();
    for name in projects {
        let manifest = std::fs::read_to_string(root.join(name).join("api/Cargo.toml"))?;
        if manifest.contains("\nconversion = ") {
            packages.push(format!("{name}-api"));
        }
    }
    Ok(packages)
}

/// The tables of lints in a manifest, with what is in front of them and behind.
fn lints(manifest: &str) -> Result<[&str; 3]> {
    let start = manifest.find("[workspace.lints.").context("a manifest has lints")?;
    let end = manifest[start..].find("\n[profile.").map_or(manifest.len(), |end| start + end);
    Ok([&manifest[..start], &manifest[start..end], &manifest[end..]])
}

/// Makes members of the projects.
fn join(commands: &Commands, projects: &[&str]) -> Result<()> {
    let mut head = None;
    for name in projects {
        let file = commands.directory.join(name).join("Cargo.toml");
        let text = std::fs::read_to_string(&file)?;
        let (workspace, package) = text.split_once(PACKAGE).context("a generated Cargo.toml has a package")?;
        // Of a project with a license: members may name it.
        if head.is_none() && workspace.contains("\nlicense = ") {
            head = Some(workspace.to_owned());
        }
        std::fs::write(&file, format!("{}{package}", PACKAGE.trim_start()))?;
        std::fs::remove_file(file.with_file_name("Cargo.lock"))?;
    }
    let head = head.context("a project with a license")?;
    let [before, generated, after] = lints(&head)?;
    anyhow::ensure!(generated.contains(ALLOWED), "generated lints allow {ALLOWED}");
    let [_, lints, _] = lints(WINDLASS)?;
    let head = format!("{before}{lints}\n[workspace.lints.clippy.duplicated_attributes]\nlevel = \"allow\"\n{after}");
    let members: Vec<String> = projects.iter().map(|name| format!("\"{name}\", \"{name}/api\"")).collect();
    let text = head.replace("members = [\"api\"]", &format!("members = [{}]", members.join(", ")));
    std::fs::write(commands.directory.join("Cargo.toml"), text)?;
    std::fs::copy(&commands.lock, commands.directory.join("Cargo.lock"))?;
    Ok(())
}
