//! What happens, for people on one line and for programs as one JSON object.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::logs::{Level, Reconcile};
use super::machine::Said;
use super::objects::Object;
use super::samples::Sample;
use crate::paint::{Ink, duration};

/// Everything that is told while the loop runs.
#[derive(Debug, Clone)]
pub(super) enum Told {
    Cluster {
        context: String,
        server: String,
        namespace: String,
    },
    Said(Said),
    Log {
        level: Level,
        text: String,
    },
    Reconciled(Reconcile),
    /// The readiness of an object has changed.
    Object {
        object: Object,
        gone: bool,
    },
    /// All samples are ready.
    Ready {
        count: usize,
        after: Duration,
    },
    /// Events of the cluster, which were asked for.
    Events(Vec<String>),
    Note(String),
}

impl Told {
    /// A word that says what it is about, and the text.
    pub(super) fn line(&self) -> (&'static str, String, Ink) {
        match self {
            Self::Cluster { context, server, namespace } => {
                ("cluster", format!("{context} at {server}, namespace {namespace}"), Ink::Plain)
            }
            Self::Said(said) => said_line(said),
            Self::Log { level, text } => {
                let ink = match level {
                    Level::Error => Ink::Red,
                    Level::Warn => Ink::Yellow,
                    Level::Other => Ink::Plain,
                };
                ("log", text.clone(), ink)
            }
            Self::Reconciled(done) => {
                let took = duration(Duration::from_secs_f64(done.seconds.max(0.0)));
                let ink = if done.succeeded() { Ink::Plain } else { Ink::Red };
                ("reconcile", format!("{} {}: {}, {took}", done.controller, done.key, done.outcome), ink)
            }
            Self::Object { object, gone: true } => {
                ("object", format!("{} {} is gone", object.kind, object.name), Ink::Dim)
            }
            Self::Object { object, .. } => {
                let (state, ink) = match object.ready {
                    _ if object.deleting => ("is being deleted", Ink::Yellow),
                    Some(true) => ("is ready", Ink::Green),
                    Some(false) => ("is not ready", Ink::Red),
                    None => ("waits to be reconciled", Ink::Yellow),
                };
                let why = match (object.reason.as_str(), object.message.as_str()) {
                    ("", "") => String::new(),
                    (reason, "") | ("", reason) => format!(": {reason}"),
                    (reason, message) => format!(": {reason}, {message}"),
                };
                ("object", format!("{} {} {state}{why}", object.kind, object.name), ink)
            }
            Self::Ready { count, after } => (
                "ready",
                format!("all samples ({count}) are ready, {} after they were applied", duration(*after)),
                Ink::Green,
            ),
            Self::Events(lines) if lines.is_empty() => {
                ("events", "none of this project's objects".to_owned(), Ink::Dim)
            }
            Self::Events(lines) => ("events", lines.join("\n"), Ink::Plain),
            Self::Note(text) => ("note", text.clone(), Ink::Yellow),
        }
    }

    /// One event for programs; `event` names what it is, and `time` is in milliseconds since 1970.
    pub(super) fn json(&self, time: SystemTime) -> Value {
        let mut value = match self {
            Self::Cluster { context, server, namespace } => {
                json!({"event": "cluster", "context": context, "server": server, "namespace": namespace})
            }
            Self::Said(said) => said_json(said),
            Self::Log { level, text } => {
                let level = match level {
                    Level::Error => "error",
                    Level::Warn => "warn",
                    Level::Other => "info",
                };
                json!({"event": "log", "level": level, "text": text})
            }
            Self::Reconciled(done) => json!({
                "event": "reconciled", "controller": done.controller, "object": done.key, "outcome": done.outcome,
                "seconds": done.seconds,
            }),
            Self::Object { object, gone } => json!({
                "event": "object", "kind": object.kind, "object": object.name, "ready": object.ready,
                "reason": object.reason, "message": object.message, "deleting": object.deleting, "gone": gone,
            }),
            Self::Ready { count, after } => {
                json!({"event": "ready", "samples": count, "seconds": after.as_secs_f64()})
            }
            Self::Events(lines) => json!({"event": "events", "events": lines}),
            Self::Note(text) => json!({"event": "note", "text": text}),
        };
        let millis = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        value["time"] = u64::try_from(millis).unwrap_or_default().into();
        value
    }
}

/// The files that caused something, in one line.
pub(super) fn causes(files: &[String]) -> String {
    match files {
        [] => String::new(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

/// A sample as people know it.
fn title(sample: &Sample) -> String {
    format!("{} {}", sample.kind, sample.name)
}

fn said_line(said: &Said) -> (&'static str, String, Ink) {
    match said {
        Said::BuildStarted { files } if files.is_empty() => ("build", "started".to_owned(), Ink::Plain),
        Said::BuildStarted { files } => ("build", format!("started: {} changed", causes(files)), Ink::Plain),
        Said::BuildFailed { took, errors } => {
            ("build", format!("failed after {}\n{errors}", duration(*took)), Ink::Red)
        }
        Said::BuildFinished { took, fresh: true } => {
            ("build", format!("finished in {}, nothing has changed", duration(*took)), Ink::Plain)
        }
        Said::BuildFinished { took, .. } => ("build", format!("finished in {}", duration(*took)), Ink::Green),
        Said::Definitions { names } => ("cluster", format!("has the kinds {}", names.join(", ")), Ink::Plain),
        Said::NotPrepared { why } => ("cluster", format!("the kinds cannot be installed: {why}"), Ink::Red),
        Said::OperatorStarted { .. } => ("operator", "started".to_owned(), Ink::Plain),
        Said::OperatorEnded { how, again } => {
            ("operator", format!("{how}, starts again in {}", duration(*again)), Ink::Red)
        }
        Said::SamplesApplied { count } => ("samples", format!("{count} applied"), Ink::Plain),
        Said::SamplesDeleted { objects } => {
            let names: Vec<String> = objects.iter().map(title).collect();
            ("samples", format!("deleted {}, which no file has any more", names.join(", ")), Ink::Plain)
        }
        Said::SamplesFailed { why } => ("samples", why.clone(), Ink::Red),
        Said::Reconciling { files, total, compiler } => {
            let rest = total.saturating_sub(*compiler);
            let text = format!(
                "{}: reconciling {} after the save (compiler {}, the rest {})",
                causes(files),
                duration(*total),
                duration(*compiler),
                duration(rest)
            );
            ("change", text, Ink::Green)
        }
    }
}

fn said_json(said: &Said) -> Value {
    match said {
        Said::BuildStarted { files } => json!({"event": "buildStarted", "files": files}),
        Said::BuildFailed { took, errors } => {
            json!({"event": "buildFailed", "seconds": took.as_secs_f64(), "errors": errors})
        }
        Said::BuildFinished { took, fresh } => {
            json!({"event": "buildFinished", "seconds": took.as_secs_f64(), "unchanged": fresh})
        }
        Said::Definitions { names } => json!({"event": "definitions", "names": names}),
        Said::NotPrepared { why } => json!({"event": "definitionsFailed", "error": why}),
        Said::OperatorStarted { run } => json!({"event": "operatorStarted", "run": run}),
        Said::OperatorEnded { how, again } => {
            json!({"event": "operatorEnded", "how": how, "againSeconds": again.as_secs_f64()})
        }
        Said::SamplesApplied { count } => json!({"event": "samplesApplied", "count": count}),
        Said::SamplesDeleted { objects } => {
            json!({"event": "samplesDeleted", "objects": objects.iter().map(title).collect::<Vec<_>>()})
        }
        Said::SamplesFailed { why } => json!({"event": "samplesFailed", "error": why}),
        Said::Reconciling { files, total, compiler } => json!({
            "event": "reconciling", "files": files, "totalSeconds": total.as_secs_f64(),
            "compilerSeconds": compiler.as_secs_f64(), "restSeconds": total.saturating_sub(*compiler).as_secs_f64(),
        }),
    }
}
