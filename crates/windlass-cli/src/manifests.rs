//! `windlass manifests`: what an operator says it needs, as manifests.
//!
//! Only the operator's own program knows its controllers, so it is built and asked: it is run with
//! `WINDLASS_MANIFESTS` set to a file, where the library writes what the manager needs instead of
//! starting it. Nothing is sent to a cluster: the program is given a kubeconfig that leads nowhere.

mod config;
mod package;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;
use windlass_scaffold::manifests::{HOME, is_definition, is_role, is_webhook};

use crate::args::{ManifestFormat, ManifestKind, Manifests};
use crate::{output, project};

/// How often a program is looked at that has not ended yet.
const LOOK: Duration = Duration::from_millis(10);
/// How much of what a failed program said is shown.
const SHOWN: usize = 4000;

/// A cluster that nothing serves (port 9 discards), with the operator's namespace as the default one.
fn kubeconfig(namespace: &str) -> Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "nowhere",
        "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody", "namespace": namespace}}],
    })
}

pub(crate) fn run(args: &Manifests) -> anyhow::Result<ExitCode> {
    if matches!(args.kind, ManifestKind::Install | ManifestKind::Chart | ManifestKind::Bundle) {
        return package::run(args);
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => build(args)?,
    };
    if args.write || args.check {
        return config::run(&program, args);
    }
    let mut manifests = ask_all(&program, args, &args.arguments)?;
    manifests.retain(|manifest| match args.kind {
        ManifestKind::Crd => is_definition(manifest),
        ManifestKind::Rbac => is_role(manifest),
        _ => is_webhook(manifest),
    });
    for manifest in &mut manifests {
        // It goes where it is applied: into the namespace of the operator.
        if manifest["metadata"]["namespace"] == HOME
            && let Some(metadata) = manifest["metadata"].as_object_mut()
        {
            metadata.remove("namespace");
        }
    }
    if let Some(name) = args.name.as_ref().filter(|_| args.kind == ManifestKind::Rbac) {
        for manifest in &mut manifests {
            manifest["metadata"]["name"] = name.as_str().into();
        }
    }
    match args.output.unwrap_or_default() {
        ManifestFormat::Yaml => {
            for manifest in &manifests {
                output::line(format_args!("---\n{}", serde_saphyr::to_string(manifest)?.trim_end()));
            }
        }
        ManifestFormat::Json => {
            output::json(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": manifests}));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Has Cargo build the operator, and returns where it is.
pub(crate) fn build(args: &Manifests) -> anyhow::Result<PathBuf> {
    build_with(args, &[])
}

/// The same, with more options of Cargo.
pub(crate) fn build_with(args: &Manifests, options: &[&str]) -> anyhow::Result<PathBuf> {
    project::ensure_package()?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--message-format", "json-render-diagnostics"]).args(options);
    for (option, value) in [("--package", &args.package), ("--bin", &args.bin)] {
        if let Some(value) = value {
            cargo.args([option, value]);
        }
    }
    let built = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !built.status.success() {
        bail!("the operator does not build; use --program for a program that is already built");
    }
    let programs = executables(&String::from_utf8_lossy(&built.stdout));
    operator(&programs).map(|program| program.path.clone()).map_err(anyhow::Error::msg)
}

/// A program that Cargo has built.
#[derive(Debug, PartialEq)]
pub(crate) struct Executable {
    name: String,
    pub(crate) path: PathBuf,
    /// Whether it is `src/main.rs` of a package, and not one of `src/bin`.
    is_main: bool,
}

/// The operator among the programs of a build: the only one, or the only `src/main.rs`.
pub(crate) fn operator(programs: &[Executable]) -> Result<&Executable, String> {
    let mut mains = programs.iter().filter(|program| program.is_main);
    match (programs, mains.next(), mains.next()) {
        ([], ..) => Err("cargo built no program; name the operator's package with --package".to_owned()),
        ([only], ..) => Ok(only),
        (_, Some(main), None) => Ok(main),
        _ => {
            let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
            Err(format!("cargo built several programs; name the operator with --bin: {}", names.join(", ")))
        }
    }
}

/// The programs that Cargo reports.
pub(crate) fn executables(messages: &str) -> Vec<Executable> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = messages.filter(|message| {
        let kinds = message["target"]["kind"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin"))
    });
    let named = |message: Value| {
        Some(Executable {
            name: message["target"]["name"].as_str()?.to_owned(),
            path: PathBuf::from(message["executable"].as_str()?),
            is_main: message["target"]["src_path"]
                .as_str()
                .is_some_and(|path| Path::new(path).ends_with("src/main.rs")),
        })
    };
    programs.filter_map(named).collect()
}

/// Asks the operator for its definitions and roles.
pub(crate) fn ask(program: &Path, args: &Manifests) -> anyhow::Result<Vec<Value>> {
    let mut manifests = ask_all(program, args, &args.arguments)?;
    manifests.retain(|manifest| !is_webhook(manifest));
    Ok(manifests)
}

/// Runs the operator, with these arguments, until it has said what it needs.
fn ask_all(program: &Path, args: &Manifests, arguments: &[String]) -> anyhow::Result<Vec<Value>> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let (answer, said) = (dir.path().join("manifests"), dir.path().join("said"));
    let file = dir.path().join("kubeconfig");
    let home = args.namespace.as_deref().unwrap_or(HOME);
    std::fs::write(&file, kubeconfig(home).to_string()).context("cannot write a kubeconfig")?;
    let log = std::fs::File::create(&said).context("cannot write the operator's output")?;
    // A name without a slash is a file of this directory, not one that the system looks for.
    let mut command = Command::new(std::path::absolute(program).unwrap_or_else(|_| program.to_owned()));
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.env("WINDLASS_MANIFESTS", &answer).env("KUBECONFIG", &file);
    // Neither a pod that this may run in nor a developer's settings are the operator's needs.
    command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("ENABLE_WEBHOOKS");
    // An operator that watches chosen namespaces is installed to watch its own.
    command.env("WATCH_NAMESPACE", home);
    let name = program.display();
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    let ended = wait(&mut child, Duration::from_secs(args.timeout))?;
    let Ok(text) = std::fs::read_to_string(&answer) else {
        bail!("{}", unanswered(&name.to_string(), ended, args.timeout, &shown(&said)));
    };
    if let Some(status) = ended
        && !status.success()
    {
        bail!("{name} failed ({status}):\n{}", shown(&said));
    }
    let manifests = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    manifests.with_context(|| format!("{name} wrote something other than manifests"))
}

fn unanswered(name: &str, ended: Option<ExitStatus>, timeout: u64, said: &str) -> String {
    let how = match ended {
        Some(status) if status.success() => "ended".to_owned(),
        Some(status) => format!("failed ({status})"),
        None => format!("did not end within {timeout} s"),
    };
    let said = if said.is_empty() { String::new() } else { format!("; it said:\n{said}") };
    format!(
        "{name} {how} before its manager reached `run`. The program must get there without a cluster; pass arguments \
         that it needs after `--`{said}"
    )
}

/// Waits for the program; one that takes too long is ended and has no status.
fn wait(child: &mut Child, timeout: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let until = Instant::now() + timeout;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The end of what the program printed.
fn shown(said: &Path) -> String {
    let mut text = Vec::new();
    let read = std::fs::File::open(said).and_then(|mut file| file.read_to_end(&mut text));
    if read.is_err() {
        return String::new();
    }
    let start = text.len().saturating_sub(SHOWN);
    String::from_utf8_lossy(&text[start..]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_among_what_cargo_says() {
        let messages = r#"
            {"reason":"compiler-artifact","target":{"kind":["lib"],"name":"a"},"executable":null}
            {"reason":"compiler-artifact","target":{"kind":["bin"],"name":"b"},"executable":"/target/debug/b"}
            {"reason":"build-finished","success":true}
            not a message"#;
        let b = Executable { name: "b".to_owned(), path: PathBuf::from("/target/debug/b"), is_main: false };
        assert_eq!(executables(messages), [b]);
    }

    #[test]
    fn the_operator_is_the_main_program_of_several() {
        let program = |name: &str, is_main| Executable { name: name.to_owned(), path: PathBuf::from(name), is_main };
        let found = |programs: &[Executable]| operator(programs).map(|program| program.name.clone());
        assert_eq!(found(&[program("a", false)]), Ok("a".to_owned()));
        assert_eq!(
            found(&[program("client", false), program("a", true), program("server", false)]),
            Ok("a".to_owned())
        );
        for unclear in
            [vec![], vec![program("a", false), program("b", false)], vec![program("a", true), program("b", true)]]
        {
            assert!(found(&unclear).is_err(), "{unclear:?}");
        }
    }
}
