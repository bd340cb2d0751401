//! Packages with a module for each definition, built and run.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::Case;

/// How much source a package has. It bounds the memory of the compiler.
const SOURCE: usize = 2_500_000;

/// What the types of a version say: the number of the case and the version with the definition, or why there is none.
pub(crate) type Results = HashMap<(usize, String), Result<Value, String>>;

pub(crate) fn run(cases: &[Case], work: &Path) -> Result<Results> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for (number, case) in cases.iter().enumerate() {
        if groups.is_empty() || room < case.source.len() {
            groups.push(Vec::new());
            room = SOURCE;
        }
        room = room.saturating_sub(case.source.len());
        groups.last_mut().expect("invariant: one was pushed").push(number);
    }
    write_workspace(work, groups.len())?;
    let mut results = Results::new();
    for (number, group) in groups.iter().enumerate() {
        write_package(work, number, group, cases)?;
        let started = std::time::Instant::now();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["run", "--offline", "--quiet", "-p", &format!("part-{number}")]).current_dir(work);
        let output = cargo.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
        if !output.status.success() {
            bail!("part-{number} does not build or run; it has {group:?}");
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut line: Value = serde_json::from_str(line).context("a line of a package")?;
            let case = usize::try_from(line["case"].as_u64().context("a case")?)?;
            let version = line["version"].as_str().context("a version")?.to_owned();
            let result = match line["panic"].as_str() {
                Some(panic) => Err(panic.to_owned()),
                None => Ok(line["crd"].take()),
            };
            results.insert((case, version), result);
        }
        println!("part {} of {}: {} kinds in {} s", number + 1, groups.len(), group.len(), started.elapsed().as_secs());
    }
    Ok(results)
}

fn write_workspace(work: &Path, count: usize) -> Result<()> {
    fs::create_dir_all(work)?;
    let members: Vec<String> = (0..count).map(|number| format!("\"part-{number}\"")).collect();
    let manifest = format!(
        r#"[workspace]
resolver = "3"
members = [{}]

[profile.dev]
debug = false
incremental = false
"#,
        members.join(", "),
    );
    fs::write(work.join("Cargo.toml"), manifest)?;
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock");
    fs::copy(lock, work.join("Cargo.lock"))?;
    for number in 0..count {
        let directory = work.join(format!("part-{number}"));
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(directory.join("src"))?;
        let manifest = format!(
            r#"[package]
name = "part-{number}"
version = "0.0.0"
edition = "2024"

[lints.rust]
warnings = "deny"

[dependencies]
k8s-openapi = {{ version = "0.29", features = ["schemars", "v1_36"] }}
kube = {{ version = "5", default-features = false, features = ["derive"] }}
schemars = "1"
serde = {{ version = "1", features = ["derive"] }}
serde_json = "1"
"#
        );
        fs::write(directory.join("Cargo.toml"), manifest)?;
        fs::write(directory.join("src/main.rs"), "fn main() {}\n")?;
    }
    Ok(())
}

fn write_package(work: &Path, number: usize, group: &[usize], cases: &[Case]) -> Result<()> {
    let source = work.join(format!("part-{number}/src"));
    let mut main = String::from("#![allow(dead_code)]\nuse kube::CustomResourceExt as _;\n\n");
    let mut calls = String::new();
    for case in group {
        let definition = &cases[*case].definition;
        fs::write(source.join(format!("case_{case}.rs")), &cases[*case].source)?;
        let _ = writeln!(main, "mod case_{case};");
        for version in &definition.versions {
            let module = if definition.versions.len() == 1 { String::new() } else { format!("{}::", version.name) };
            let kind = definition.type_name();
            let version = &version.name;
            let _ = writeln!(calls, "    print({case}, {version:?}, case_{case}::{module}{kind}::crd);");
        }
    }
    main.push_str(PRINT);
    let _ = write!(main, "\nfn main() {{\n{calls}}}\n");
    fs::write(source.join("main.rs"), main)?;
    Ok(())
}

const PRINT: &str = r#"
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

fn print(case: usize, version: &str, crd: fn() -> CustomResourceDefinition) {
    let line = match std::panic::catch_unwind(crd) {
        Ok(crd) => serde_json::json!({"case": case, "version": version, "crd": whole(serde_json::json!(crd))}),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "panic".to_owned());
            serde_json::json!({"case": case, "version": version, "panic": text})
        }
    };
    println!("{line}");
}

/// Whole numbers without a fraction: those with one are not always read as they were written.
fn whole(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9_223_372_036_854_775_808.0 => Value::from(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(list) => list.into_iter().map(whole).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, whole(value))).collect(),
        other => other,
    }
}
"#;
