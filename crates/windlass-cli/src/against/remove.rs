//! Deletion of many objects, which ends when they are gone, and says what holds those that are not.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;
use tokio::time::Instant;

use super::apply::{Change, Done, get};
use super::definitions::{self, Instance, is_definition};
use super::kinds::Kinds;
use super::{POLL, is_missing, message, order, request, webhooks};
use crate::output;

/// How often people are told what is waited for.
const TELL: Duration = Duration::from_secs(5);
/// How many of the objects that are waited for are named.
const NAMED: usize = 5;

/// How objects are deleted.
pub(crate) struct Options {
    /// The namespace of objects that name none.
    pub namespace: String,
    /// How long all of it may take.
    pub timeout: Duration,
    /// Take away the finalizers of custom resources that go with their definition.
    pub remove_finalizers: bool,
}

/// What would be lost with a definition.
pub(crate) struct Loss {
    pub kind: String,
    pub count: usize,
    /// Whether there may be more of them.
    pub more: bool,
    pub names: Vec<String>,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let more = if self.more { "at least " } else { "" };
        let dots = if self.count > self.names.len() { ", ..." } else { "" };
        write!(f, "{more}{} {}: {}{dots}", self.count, self.kind, self.names.join(", "))
    }
}

/// How many objects of a kind are counted before they are "at least" that many.
const COUNTED: usize = 10_000;

/// The custom resources that would go with definitions.
pub(crate) async fn losses(client: &kube::Client, objects: &[Value]) -> Result<Vec<Loss>> {
    let mut losses = Vec::new();
    for object in objects.iter().filter(|object| is_definition(object)) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let Some(definition) = get(client, &definitions::path(name)).await? else { continue };
        let instances = definitions::instances(client, &definition, COUNTED).await?;
        if !instances.is_empty() {
            losses.push(Loss {
                kind: definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned(),
                count: instances.len(),
                more: instances.len() >= COUNTED,
                names: instances.into_iter().take(NAMED).map(|instance| instance.name).collect(),
            });
        }
    }
    Ok(losses)
}

/// Deletes objects, in the order opposite to that of application, and waits until they are gone.
pub(crate) async fn remove(
    client: &kube::Client,
    mut objects: Vec<Value>,
    options: &Options,
    mut report: impl FnMut(&Done),
) -> Result<Vec<Done>> {
    order::sort(&mut objects);
    objects.reverse();
    let mut kinds = Kinds::new(client.clone());
    let mut all = Vec::new();
    let mut pending = Vec::new();
    for mut object in objects {
        let change = match delete(client, &mut kinds, &mut object, options).await {
            Ok(Some(path)) => {
                pending.push((path, object));
                continue;
            }
            Ok(None) => Change::Absent,
            Err(error) => Change::Failed(match error.downcast_ref::<kube::Error>() {
                Some(error) => message(error),
                None => output::with_causes(&error),
            }),
        };
        let done = Done::new(&object, change);
        report(&done);
        all.push(done);
    }
    let until = Instant::now() + options.timeout;
    let (mut told, mut said) = (Instant::now(), String::new());
    while !pending.is_empty() {
        let mut held = Vec::new();
        for (path, object) in std::mem::take(&mut pending) {
            match get(client, &path).await? {
                // One of the same name that was made since is another one.
                Some(now) if now["metadata"]["deletionTimestamp"].is_string() => {
                    if options.remove_finalizers {
                        release(client, &now).await?;
                    }
                    held.push(holds(client, &now).await?);
                    pending.push((path, object));
                }
                _ => {
                    let done = Done::new(&object, Change::Deleted);
                    report(&done);
                    all.push(done);
                }
            }
        }
        if pending.is_empty() {
            break;
        }
        if Instant::now() >= until {
            bail!("not gone after {} s: {}", options.timeout.as_secs(), summary(&held));
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            let waits = summary(&held);
            if waits != said {
                output::note(format_args!("waiting: {waits}"));
                said = waits;
            }
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(all)
}

/// Whether an object has pods, which are to be gone when it is.
pub(crate) fn has_pods(object: &Value) -> bool {
    object["apiVersion"].as_str().is_some_and(|version| version.starts_with("apps/") || version.starts_with("batch/"))
}

/// Asks for an object's deletion. Returns where it was; nothing if it was not there.
async fn delete(
    client: &kube::Client,
    kinds: &mut Kinds,
    object: &mut Value,
    options: &Options,
) -> Result<Option<String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind, name) =
        (text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]));
    let Some(place) = kinds.place(&api_version, &kind).await? else { return Ok(None) };
    if place.namespaced && object["metadata"]["namespace"].as_str().unwrap_or_default().is_empty() {
        object["metadata"]["namespace"] = options.namespace.as_str().into();
    }
    let path = place.object(object["metadata"]["namespace"].as_str(), &name);
    let policy = if has_pods(object) { "Foreground" } else { "Background" };
    let deleted =
        client.request::<Value>(request("DELETE", &format!("{path}?propagationPolicy={policy}"), None)?).await;
    match deleted {
        Ok(_) => Ok(Some(path)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What keeps an object that is being deleted.
struct Held {
    text: String,
    /// Whether the operator has to do its clean-up.
    by_operator: bool,
}

/// The first few of what is waited for, and what to do about it.
fn summary(held: &[Held]) -> String {
    let mut text = held.iter().take(NAMED).map(|held| held.text.as_str()).collect::<Vec<_>>().join("; ");
    if held.len() > NAMED {
        text = format!("{text}; and {} more", held.len() - NAMED);
    }
    if held.iter().any(|held| held.by_operator) {
        text = format!("{text}; run the operator to let it clean up, or use --remove-finalizers");
    }
    text
}

/// What keeps an object that is being deleted, for commands that need it gone.
pub(crate) async fn explain(client: &kube::Client, object: &Value) -> Result<String> {
    let held = holds(client, object).await?;
    let remedy = if held.by_operator {
        "; let the operator clean up with `windlass run --skip-install`, or use `windlass uninstall --remove-finalizers`"
    } else {
        ""
    };
    Ok(format!("{}{remedy}", held.text))
}

async fn holds(client: &kube::Client, object: &Value) -> Result<Held> {
    let by_nobody = |text: String| Held { text, by_operator: false };
    let title = Done::new(object, Change::Deleted).title();
    if is_definition(object) {
        let instances = definitions::instances(client, object, COUNTED).await?;
        if !instances.is_empty() {
            let mut text = format!("{title} waits for its objects: {}", of_instances(&instances));
            if let Some(why) = refused(object) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                text = format!("{text}; {}", webhooks::explain(client, name, why.to_owned()).await);
            }
            let by_operator = instances.iter().any(|instance| !instance.finalizers.is_empty());
            return Ok(Held { text, by_operator });
        }
    }
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let said: Vec<&str> = conditions
        .filter(|condition| condition["status"] == "True")
        .filter_map(|condition| condition["message"].as_str())
        .filter(|message| !message.is_empty())
        .collect();
    let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    let finalizers: Vec<&str> = finalizers.filter_map(Value::as_str).collect();
    Ok(by_nobody(match (finalizers.is_empty(), said.is_empty()) {
        (false, _) => format!("{title} is held by the finalizer {}", finalizers.join(", ")),
        (true, false) => format!("{title}: {}", said.join(", ")),
        (true, true) => format!("{title} is being deleted"),
    }))
}

/// Why the server cannot delete the objects of a definition.
fn refused(definition: &Value) -> Option<&str> {
    let mut conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    let failed = conditions.find(|one| one["type"] == "Terminating" && one["reason"] == "InstanceDeletionFailed")?;
    failed["message"].as_str().filter(|message| !message.is_empty())
}

fn of_instances(instances: &[Instance]) -> String {
    let named = instances.iter().take(NAMED).map(|instance| match instance.finalizers.as_slice() {
        [] => instance.name.clone(),
        finalizers => format!("{} (held by the finalizer {})", instance.name, finalizers.join(", ")),
    });
    let mut text = named.collect::<Vec<_>>().join(", ");
    if instances.len() > NAMED {
        text = format!("{text}, and {} more", instances.len() - NAMED);
    }
    text
}

/// Takes away the finalizers of the objects that go with a definition.
async fn release(client: &kube::Client, definition: &Value) -> Result<()> {
    if !is_definition(definition) {
        return Ok(());
    }
    for instance in definitions::instances(client, definition, COUNTED).await? {
        if !instance.deleting || instance.finalizers.is_empty() {
            continue;
        }
        let body = Some(("application/merge-patch+json", br#"{"metadata":{"finalizers":null}}"#.to_vec()));
        match client.request::<Value>(request("PATCH", &instance.path, body)?).await {
            Ok(_) => {}
            Err(error) if is_missing(&error) => {}
            Err(error) => {
                let name = definition["metadata"]["name"].as_str().unwrap_or_default();
                let why = webhooks::explain(client, name, message(&error)).await;
                bail!("the finalizers of {} cannot be removed: {why}", instance.name);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_says_why_its_objects_stay() {
        let with = |reason: &str| {
            let message = "could not list instances: conversion webhook for example.com/v1, Kind=Pet failed";
            let condition = serde_json::json!({"type": "Terminating", "reason": reason, "message": message});
            serde_json::json!({"status": {"conditions": [condition]}})
        };
        assert!(refused(&with("InstanceDeletionFailed")).is_some_and(|why| why.contains("conversion webhook")));
        assert_eq!(refused(&with("InstanceDeletionInProgress")), None);
    }

    #[test]
    fn objects_that_hold_a_definition_are_named() {
        let instance = |name: &str, finalizers: &[&str]| Instance {
            path: String::new(),
            name: name.into(),
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
            deleting: true,
        };
        assert_eq!(of_instances(&[instance("a/b", &[])]), "a/b");
        let text = of_instances(&[instance("a/b", &["example.com/pet"]), instance("c", &[])]);
        assert_eq!(text, "a/b (held by the finalizer example.com/pet), c");
        let many: Vec<Instance> = (0..8).map(|number| instance(&number.to_string(), &[])).collect();
        assert_eq!(of_instances(&many), "0, 1, 2, 3, 4, and 3 more");
    }

    #[test]
    fn what_is_waited_for_is_told_once() {
        let held = |number: usize, by_operator: bool| Held { text: number.to_string(), by_operator };
        assert_eq!(summary(&[held(0, false)]), "0");
        let many: Vec<Held> = (0..8).map(|number| held(number, number > 6)).collect();
        let expected = "0; 1; 2; 3; 4; and 3 more; run the operator to let it clean up, or use --remove-finalizers";
        assert_eq!(summary(&many), expected);
    }
}
