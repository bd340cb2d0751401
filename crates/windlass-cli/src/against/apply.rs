//! Server-side apply of many objects, with a result for each of them.
//!
//! Objects are applied in order; one that fails does not keep the others from being tried. The size of an object is
//! limited by the server alone, because nothing is kept in an annotation.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::time::Instant;

use super::kinds::{Kinds, Place};
use super::{FIELD_MANAGER, POLL, definitions, is_missing, message, order, remove, request};
use crate::output;

/// After how long people are told what is waited for.
const TELL: Duration = Duration::from_secs(2);

/// What became of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Configured,
    Unchanged,
    Deleted,
    /// Nothing of that name was there to be deleted.
    Absent,
    /// Not checked: the server does not have the kind yet, and in a dry run will not get it.
    Unchecked,
    Failed(String),
}

/// An object and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub api_version: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
    pub change: Change,
    /// What the server has after it was applied.
    pub version: Version,
}

/// Which object it is, and of which spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub uid: String,
    pub generation: i64,
}

impl Version {
    pub(crate) fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        Self {
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
        }
    }
}

impl Done {
    pub(crate) fn new(object: &Value, change: Change) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
            name: text(&object["metadata"]["name"]),
            change,
            version: Version::default(),
        }
    }

    /// As kubectl names objects: `deployment.apps/web`.
    pub(crate) fn title(&self) -> String {
        let kind = self.kind.to_lowercase();
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{kind}.{group}/{}", self.name),
            None => format!("{kind}/{}", self.name),
        }
    }

    pub(crate) fn failed(&self) -> bool {
        matches!(self.change, Change::Failed(_))
    }
}

/// How objects are applied.
pub(crate) struct Options {
    /// The namespace of objects that name none.
    pub namespace: String,
    pub dry_run: bool,
    /// Take fields over from others.
    pub force: bool,
    /// How long a kind may take to be served after its definition was applied, and an object that is being deleted to go.
    pub timeout: Duration,
    /// Say on standard error what is waited for.
    pub notes: bool,
}

/// Applies objects, what others need first, and passes on each result as soon as it is there.
pub(crate) async fn apply(
    client: &kube::Client,
    mut objects: Vec<Value>,
    options: &Options,
    mut report: impl FnMut(&Done),
) -> Result<Vec<Done>> {
    order::sort(&mut objects);
    let mut session = Session { client, options, kinds: Kinds::new(client.clone()), installed: HashSet::new() };
    let mut all = Vec::new();
    for mut object in objects {
        let (change, version) = match Box::pin(session.apply(&mut object)).await {
            Ok(applied) => applied,
            // Nothing that follows would fare better.
            Err(error) if is_unreachable(&error) => return Err(error),
            Err(error) => (Change::Failed(reason(&error)), Version::default()),
        };
        let done = Done { version, ..Done::new(&object, change) };
        report(&done);
        all.push(done);
    }
    Ok(all)
}

/// Whether the server did not answer at all.
fn is_unreachable(error: &anyhow::Error) -> bool {
    let kube = error.chain().find_map(|cause| cause.downcast_ref::<kube::Error>());
    matches!(kube, Some(kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::Auth(_)))
}

fn reason(error: &anyhow::Error) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube @ kube::Error::Api(status)) if status.reason == "Conflict" => {
            format!("{}; --force-conflicts takes the fields over", message(kube))
        }
        Some(kube) => message(kube),
        None => output::with_causes(error),
    }
}

struct Session<'a> {
    client: &'a kube::Client,
    options: &'a Options,
    kinds: Kinds,
    /// Groups and kinds whose definitions were applied.
    installed: HashSet<(String, String)>,
}

impl Session<'_> {
    async fn apply(&mut self, object: &mut Value) -> Result<(Change, Version)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind, name) =
            (text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]));
        let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
        let awaited = self.installed.contains(&(group, kind.clone()));
        let until = Instant::now() + self.options.timeout;
        let place = loop {
            match self.kinds.place(&api_version, &kind).await? {
                Some(place) => break place,
                None if awaited && self.options.dry_run => return Ok((Change::Unchecked, Version::default())),
                None if awaited && Instant::now() < until => tokio::time::sleep(POLL).await,
                None => bail!("the server has no kind {kind} in {api_version}; install its CRD first"),
            }
        };
        if place.namespaced && object["metadata"]["namespace"].as_str().unwrap_or_default().is_empty() {
            object["metadata"]["namespace"] = self.options.namespace.as_str().into();
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // They come with objects that were read from a server, and may not be in what is applied.
            metadata.remove("managedFields");
        }
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        let path = place.object(namespace.as_deref(), &name);
        let mut before = self.current(&place, &path).await?;
        if !self.options.dry_run {
            before = self.wait_while_deleted(&place, &path, before, until).await?;
        }
        let after = loop {
            match self.send(&path, object).await {
                // A kind may be served by discovery a moment before it is by the rest of the server.
                Err(error) if awaited && is_missing(&error) && Instant::now() < until => {
                    tokio::time::sleep(POLL).await;
                }
                answer => break answer?,
            }
        };
        if kind == "CustomResourceDefinition" && api_version.starts_with("apiextensions.k8s.io/") {
            self.installed.insert((text(&object["spec"]["group"]), text(&object["spec"]["names"]["kind"])));
            if !self.options.dry_run {
                definitions::wait_until_served(self.client, &name, until).await?;
            }
        }
        Ok((compare(before.as_ref(), &after), Version::of(&after)))
    }

    async fn current(&self, place: &Place, path: &str) -> Result<Option<Value>> {
        debug_assert!(path.contains(&place.collection(None)) || place.namespaced, "paths are of the place");
        match self.client.request::<Value>(request("GET", path, None)?).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits while the object is being deleted: what is applied to it would go with it. Returns what is there then.
    async fn wait_while_deleted(
        &self,
        place: &Place,
        path: &str,
        mut object: Option<Value>,
        until: Instant,
    ) -> Result<Option<Value>> {
        let (tell, mut said) = (Instant::now() + TELL, false);
        while let Some(leaving) = object.take_if(|object| object["metadata"]["deletionTimestamp"].is_string()) {
            let now = Instant::now();
            if now >= until || (self.options.notes && !said && now >= tell) {
                let why = remove::explain(self.client, &leaving).await?;
                if now >= until {
                    bail!("it is still being deleted after {} s: {why}", self.options.timeout.as_secs());
                }
                output::note(format_args!("waiting until it is deleted, to create it again: {why}"));
                said = true;
            }
            tokio::time::sleep(POLL).await;
            object = self.current(place, path).await?;
        }
        Ok(object)
    }

    async fn send(&self, path: &str, object: &Value) -> Result<Value, kube::Error> {
        let Options { force, dry_run, .. } = self.options;
        let dry_run = if *dry_run { "&dryRun=All" } else { "" };
        let path = format!("{path}?fieldManager={FIELD_MANAGER}&force={force}&fieldValidation=Strict{dry_run}");
        let body = Some(("application/apply-patch+yaml", object.to_string().into_bytes()));
        let request = request("PATCH", &path, body).map_err(|error| kube::Error::Service(error.into()))?;
        self.client.request(request).await
    }
}

/// What the server changed. A dry run leaves the version of an object as it was, so all of it is compared.
fn compare(before: Option<&Value>, after: &Value) -> Change {
    let Some(before) = before else { return Change::Created };
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
        }
        object
    };
    if before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"] && bare(before) == bare(after) {
        Change::Unchanged
    } else {
        Change::Configured
    }
}

/// Applies objects that a command needs, and fails if one of them fails.
pub(crate) async fn apply_all(
    client: &kube::Client,
    objects: Vec<Value>,
    options: &Options,
    report: impl FnMut(&Done),
) -> Result<Vec<Done>> {
    let done = apply(client, objects, options, report).await?;
    let failed = done.iter().find_map(|done| match &done.change {
        Change::Failed(why) => Some(format!("{}: {why}", done.title())),
        _ => None,
    });
    match failed {
        Some(why) => bail!("{why}"),
        None => Ok(done),
    }
}

/// The namespace of an object that needs one, for objects that are made here.
pub(crate) fn namespace(name: &str) -> Value {
    serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Reads one object; nothing if it is not there.
pub(crate) async fn get(client: &kube::Client, path: &str) -> Result<Option<Value>> {
    match client.request::<Value>(request("GET", path, None)?).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_are_told_from_what_the_server_answers() {
        let at = |version: &str, value: u8| json!({"metadata": {"resourceVersion": version, "managedFields": [version]}, "data": {"a": value}});
        assert_eq!(compare(None, &at("1", 1)), Change::Created);
        assert_eq!(compare(Some(&at("1", 1)), &at("1", 1)), Change::Unchanged);
        assert_eq!(compare(Some(&at("1", 1)), &at("2", 2)), Change::Configured);
        // A dry run.
        assert_eq!(compare(Some(&at("1", 1)), &at("1", 2)), Change::Configured);
        // Only who sets the fields has changed.
        assert_eq!(compare(Some(&at("1", 1)), &at("2", 1)), Change::Configured);
    }

    #[test]
    fn objects_are_named_as_kubectl_does() {
        let done = |version: &str, kind: &str| {
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "web"}});
            Done::new(&object, Change::Created).title()
        };
        assert_eq!(done("apps/v1", "Deployment"), "deployment.apps/web");
        assert_eq!(done("v1", "Pod"), "pod/web");
    }
}
