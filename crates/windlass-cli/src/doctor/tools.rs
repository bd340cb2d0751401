//! The tools that a project needs.

use std::process::{Command, Stdio};

use super::Finding;

/// The oldest Rust that generated projects compile with.
const RUST: &str = env!("CARGO_PKG_RUST_VERSION");

pub(super) fn check() -> Vec<Finding> {
    vec![
        rust("rustc", said("rustc", &["--version"]).as_deref()),
        match said("cargo", &["--version"]) {
            Some(version) => Finding::ok("cargo", version),
            None => Finding::broken("cargo", "not found", "install Rust: https://rustup.rs"),
        },
        component("rustfmt", &["fmt", "--version"]),
        component("clippy", &["clippy", "--version"]),
        match said("kubectl", &["version", "--client"]) {
            Some(version) => Finding::ok("kubectl", version),
            None => Finding::warning(
                "kubectl",
                "not found; windlass does not need it, but you will want to look at objects",
                "install it: https://kubernetes.io/docs/tasks/tools",
            ),
        },
    ]
}

fn rust(check: &'static str, version: Option<&str>) -> Finding {
    let Some(version) = version else {
        return Finding::broken(check, "not found", "install Rust: https://rustup.rs");
    };
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    if numbers(number) < numbers(RUST) {
        return Finding::broken(check, format!("{version} is older than {RUST}, which projects need"), "rustup update");
    }
    Finding::ok(check, version)
}

/// Major and minor number.
fn numbers(version: &str) -> Vec<u32> {
    version.split(['.', '-']).take(2).map(|part| part.parse().unwrap_or(0)).collect()
}

fn component(name: &'static str, args: &[&str]) -> Finding {
    match said("cargo", args) {
        Some(version) => Finding::ok(name, version),
        None => Finding::warning(name, "not installed", format!("rustup component add {name}")),
    }
}

/// The first line of what a program prints; `None` if it is not there or fails.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn an_old_compiler_is_broken() {
        assert_eq!(rust("rustc", Some("rustc 1.200.0 (abc)")).level, Level::Ok);
        assert_eq!(rust("rustc", Some("rustc 1.60.0 (abc)")).level, Level::Broken);
        assert_eq!(rust("rustc", None).level, Level::Broken);
    }
}
