//! The tools that a project needs.

use std::process::{Command, Stdio};

use super::Finding;

/// The oldest Rust that generated projects compile with.
const RUST: &str = env!("CARGO_PKG_RUST_VERSION");
const KUBECTL: &str = "install it: https://kubernetes.io/docs/tasks/tools";

/// What is known of the tools.
pub(super) struct Looked {
    pub findings: Vec<Finding>,
    /// The version of kubectl, if it is there.
    pub kubectl: Option<String>,
}

/// What came of asking a program for its version.
enum Answer {
    Version(String),
    /// The program is there, and says this.
    Failed(String),
    Missing,
}

pub(super) fn check() -> Looked {
    let cargo = ask("cargo", &["--version"]);
    let works = matches!(cargo, Answer::Version(_));
    let kubectl = ask("kubectl", &["version", "--client"]);
    let mut findings = vec![rust("rustc", ask("rustc", &["--version"]))];
    findings.push(match cargo {
        Answer::Version(version) => Finding::ok("cargo", version),
        without => no_rust("cargo", without),
    });
    for name in ["rustfmt", "clippy"] {
        let skipped = || Finding::skipped(name, "cargo does not work, which runs it");
        findings.push(if works { component(name) } else { skipped() });
    }
    let version = if let Answer::Version(said) = &kubectl { said.split_whitespace().last() } else { None };
    let version = version.map(str::to_owned);
    findings.push(match kubectl {
        Answer::Version(version) => Finding::ok("kubectl", version),
        Answer::Failed(why) => Finding::warning("kubectl", format!("does not work: {why}"), KUBECTL),
        Answer::Missing => Finding::warning(
            "kubectl",
            "not found; windlass does not need it, but you will want to look at objects",
            KUBECTL,
        ),
    });
    Looked { findings, kubectl: version }
}

fn rust(check: &'static str, answer: Answer) -> Finding {
    let version = match answer {
        Answer::Version(version) => version,
        without => return no_rust(check, without),
    };
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    if numbers(number) < numbers(RUST) {
        return Finding::broken(check, format!("{version} is older than {RUST}, which projects need"), "rustup update");
    }
    Finding::ok(check, version)
}

/// A part of Rust that is not there, or that `rustup` has in its place without a tool chain behind it.
fn no_rust(check: &'static str, answer: Answer) -> Finding {
    let Answer::Failed(why) = answer else {
        return Finding::broken(check, "not found", "install Rust: https://rustup.rs");
    };
    let remedy = if why.contains("no default") {
        "rustup default stable"
    } else if why.contains("toolchain") {
        "rustup toolchain install; rustup show says which tool chain is used here, and why"
    } else {
        "install Rust again: https://rustup.rs"
    };
    Finding::broken(check, format!("does not work: {why}"), remedy)
}

/// Major and minor number.
fn numbers(version: &str) -> Vec<u32> {
    version.split(['.', '-']).take(2).map(|part| part.parse().unwrap_or(0)).collect()
}

fn component(name: &'static str) -> Finding {
    // `cargo fmt` runs rustfmt.
    let command = if name == "rustfmt" { "fmt" } else { name };
    match ask("cargo", &[command, "--version"]) {
        Answer::Version(version) => Finding::ok(name, version),
        _ => Finding::warning(name, "not installed", format!("rustup component add {name}")),
    }
}

/// Asks a program for its version, which is the first line that it prints.
fn ask(program: &str, args: &[&str]) -> Answer {
    let Ok(output) = Command::new(program).args(args).stdin(Stdio::null()).output() else { return Answer::Missing };
    let first = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().trim().to_owned();
    let said = first(&output.stdout);
    if output.status.success() && !said.is_empty() {
        return Answer::Version(said);
    }
    let why = first(&output.stderr);
    let why = why.strip_prefix("error: ").unwrap_or(&why);
    Answer::Failed(if why.is_empty() { output.status.to_string() } else { why.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn an_old_compiler_is_broken() {
        let level = |version: &str| rust("rustc", Answer::Version(version.to_owned())).level;
        assert_eq!(level("rustc 1.200.0 (abc)"), Level::Ok);
        assert_eq!(level("rustc 1.60.0 (abc)"), Level::Broken);
        assert_eq!(rust("rustc", Answer::Missing).remedy.as_deref(), Some("install Rust: https://rustup.rs"));
    }

    #[test]
    fn a_tool_chain_that_is_missing_has_its_own_remedy() {
        for (why, remedy) in [
            (
                "rustup could not choose a version of rustc to run, because one wasn't specified explicitly, and no default \
                 is configured.",
                "rustup default stable",
            ),
            ("no override and no default toolchain set", "rustup default stable"),
            ("toolchain '1.89.0-x86_64-unknown-linux-gnu' is not installed", "rustup toolchain install"),
            ("exit status: 127", "install Rust again"),
        ] {
            let finding = rust("rustc", Answer::Failed(why.to_owned()));
            assert_eq!(finding.level, Level::Broken);
            assert_eq!(finding.message, format!("does not work: {why}"));
            assert!(finding.remedy.as_ref().is_some_and(|said| said.starts_with(remedy)), "{finding:?}");
        }
    }
}
