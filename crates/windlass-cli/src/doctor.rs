//! `windlass doctor`: what may keep an operator from being built, installed and run, each finding with its remedy.

mod cluster;
mod project;
mod runtime;
mod tools;
mod versions;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use crate::args::Doctor;
use crate::output;
use crate::paint::{Ink, Paint};

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// What was looked at.
    check: &'static str,
    level: Level,
    message: String,
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Ok,
    /// Works, but something is missing or old.
    Warning,
    Broken,
    /// Could not be looked at.
    Skipped,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, message: message.into(), remedy: None }
    }

    fn warning(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Warning, message: message.into(), remedy: Some(remedy.into()) }
    }

    fn broken(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Broken, message: message.into(), remedy: Some(remedy.into()) }
    }

    fn skipped(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, level: Level::Skipped, message: message.into(), remedy: None }
    }
}

pub(crate) fn run(args: &Doctor) -> Result<ExitCode> {
    let tools = tools::check();
    let mut findings = tools.findings;
    findings.extend(runtime::check());
    let looked = project::check(args);
    findings.extend(looked.findings);
    let known = cluster::Known {
        project: looked.name.as_deref(),
        manifests: &looked.manifests,
        kubectl: tools.kubectl.as_deref(),
        types: looked.types,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    findings.extend(runtime.block_on(cluster::check(args, &known)));
    let broken = findings.iter().filter(|finding| finding.level == Level::Broken).count();
    let document = || {
        let list = findings.iter().map(|finding| {
            json!({
                "check": finding.check, "level": finding.level.name(), "message": finding.message,
                "remedy": finding.remedy,
            })
        });
        json!({"broken": broken, "findings": list.collect::<Vec<_>>()})
    };
    if !output::document(args.output, document) {
        print(&findings, broken);
    }
    Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Broken => "broken",
            Self::Skipped => "skipped",
        }
    }
}

fn print(findings: &[Finding], broken: usize) {
    let paint = Paint::on(&std::io::stdout());
    for finding in findings {
        let (mark, ink) = match finding.level {
            Level::Ok => ("✓", Ink::Green),
            Level::Warning => ("!", Ink::Yellow),
            Level::Broken => ("✗", Ink::Red),
            Level::Skipped => ("·", Ink::Dim),
        };
        let message = finding.message.trim_end().replace('\n', "\n              ");
        output::line(format_args!("{} {:<11} {message}", paint.ink(ink, mark), finding.check));
        if let Some(remedy) = &finding.remedy {
            output::line(format_args!("              {}", paint.ink(Ink::Cyan, remedy)));
        }
    }
    match broken {
        0 => output::line("\nnothing is broken"),
        count => output::line(format_args!("\n{count} broken")),
    }
}
