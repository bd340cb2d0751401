//! The corpus: scenarios and the tool that replays them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::server::Server;

/// Scenarios that are there.
pub(crate) struct Corpus {
    tool: PathBuf,
    dir: PathBuf,
    pub scenarios: BTreeSet<String>,
}

/// What a replay found.
pub(crate) struct Outcome {
    pub passed: BTreeSet<String>,
    /// A line for each step that failed.
    pub failures: String,
}

impl Corpus {
    /// The scenarios in `folder` of the corpus in `root`; `None` if there are none.
    pub(crate) fn find(root: &Path, folder: &str) -> Result<Option<Self>> {
        let (tool, dir) = (root.join("replay.py"), root.join(folder));
        if !tool.exists() || !dir.exists() {
            return Ok(None);
        }
        let mut scenarios = BTreeSet::new();
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let scenario: Value = serde_json::from_slice(&std::fs::read(&path)?)
                .with_context(|| format!("{} is not a scenario", path.display()))?;
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            scenarios.extend(scenario["name"].as_str().or(stem).map(str::to_owned));
        }
        Ok(Some(Self { tool, dir, scenarios }))
    }

    /// Replays the scenarios called `names`. A name that no scenario has does not pass.
    pub(crate) fn replay(&self, server: &Server, names: &BTreeSet<String>, jobs: usize) -> Result<Outcome> {
        let report = server.dir().join("report.json");
        let mut command = Command::new("python3");
        command.arg(&self.tool).args(["check", "--jobs", &jobs.to_string()]).arg(&self.dir);
        command.arg("--kubeconfig").arg(server.kubeconfig()).arg("--json").arg(&report);
        for name in names {
            command.args(["--only", name]);
        }
        if names.is_disjoint(&self.scenarios) {
            return Ok(Outcome { passed: BTreeSet::new(), failures: String::new() });
        }
        let output = command.stderr(Stdio::inherit()).output().context("cannot run python3")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let report = std::fs::read(&report).with_context(|| format!("the replay broke off: {said}"))?;
        let report: Value = serde_json::from_slice(&report)?;
        let steps = report["results"].as_array().context("the report has no results")?;
        let (mut seen, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for step in steps {
            let scenario = step["scenario"].as_str().unwrap_or_default().to_owned();
            if step["ok"] != true {
                failed.insert(scenario.clone());
            }
            seen.insert(scenario);
        }
        let failures = said.lines().filter(|line| line.starts_with("FAIL")).flat_map(|line| [line, "\n"]).collect();
        Ok(Outcome { passed: &seen - &failed, failures })
    }
}
