//! The custom resources of the project, and how they are: watched on the server.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::Api;
use kube::api::{DynamicObject, ListParams, WatchParams};
use kube::core::{ApiResource, GroupVersionKind, WatchEvent};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::against::apply::Version;
use crate::output;

/// How long to wait before a watch that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How many objects of a kind are shown at most.
const LIMIT: u32 = 200;

/// What is known about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub kind: String,
    /// `namespace/name`, or the name alone.
    pub name: String,
    /// What the condition `Ready` says.
    pub ready: Option<bool>,
    pub reason: String,
    pub message: String,
    /// The other conditions, with their status.
    pub conditions: Vec<(String, String)>,
    pub deleting: bool,
    pub version: Version,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// All objects of a kind.
    All {
        kind: String,
        objects: Vec<Object>,
    },
    Seen(Object),
    Gone {
        kind: String,
        name: String,
    },
}

/// Reports the objects of a definition's kind until it is dropped.
pub(super) async fn watch(client: kube::Client, definition: Value, changes: mpsc::Sender<Change>) {
    let Some(resource) = resource(&definition) else { return };
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    loop {
        // What is missed while a watch is down comes with the next list.
        let _ = follow(&api, &resource.kind, &changes).await;
        if changes.is_closed() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn follow(api: &Api<DynamicObject>, kind: &str, changes: &mpsc::Sender<Change>) -> anyhow::Result<()> {
    let list = api.list(&ListParams::default().limit(LIMIT)).await?;
    let version = list.metadata.resource_version.clone().unwrap_or_default();
    let objects = list.items.iter().map(|object| read(kind, object)).collect();
    changes.send(Change::All { kind: kind.to_owned(), objects }).await?;
    let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
    while let Some(event) = events.try_next().await? {
        let change = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::Seen(read(kind, &object)),
            WatchEvent::Deleted(object) => Change::Gone { kind: kind.to_owned(), name: name(&object) },
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(error) => anyhow::bail!("{}", output::answer(&error)),
        };
        changes.send(change).await?;
    }
    Ok(())
}

/// The version of the kind that is stored.
fn resource(definition: &Value) -> Option<ApiResource> {
    let spec = &definition["spec"];
    let versions = spec["versions"].as_array()?;
    let stored = versions.iter().find(|version| version["storage"] == true)?;
    let kind =
        GroupVersionKind::gvk(spec["group"].as_str()?, stored["name"].as_str()?, spec["names"]["kind"].as_str()?);
    Some(ApiResource::from_gvk_with_plural(&kind, spec["names"]["plural"].as_str()?))
}

fn name(object: &DynamicObject) -> String {
    let name = object.metadata.name.clone().unwrap_or_default();
    match &object.metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    }
}

fn read(kind: &str, object: &DynamicObject) -> Object {
    let mut found = Object {
        kind: kind.to_owned(),
        name: name(object),
        ready: None,
        reason: String::new(),
        message: String::new(),
        conditions: Vec::new(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        version: Version {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
        },
    };
    let status_of = object.data["status"]["observedGeneration"].as_i64();
    for condition in object.data["status"]["conditions"].as_array().into_iter().flatten() {
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let status = text("status");
        if text("type") == "Ready" {
            // A status of an older spec says nothing about this one.
            let observed = condition["observedGeneration"].as_i64().or(status_of);
            let current = observed.is_none_or(|seen| Some(seen) == object.metadata.generation);
            found.ready = (status != "Unknown" && current).then_some(status == "True");
            (found.reason, found.message) = (text("reason"), text("message"));
        } else {
            found.conditions.push((text("type"), status));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn object(conditions: &Value) -> Object {
        let object = json!({
            "apiVersion": "webapp.my.domain/v1", "kind": "Guestbook",
            "metadata": {"name": "a", "namespace": "default", "generation": 2},
            "status": {"conditions": conditions},
        });
        read("Guestbook", &serde_json::from_value(object).unwrap())
    }

    #[test]
    fn readiness_is_that_of_the_current_spec() {
        let ready = |generation: i64| json!([{"type": "Ready", "status": "True", "observedGeneration": generation}]);
        assert_eq!(object(&ready(2)).ready, Some(true));
        assert_eq!(object(&ready(1)).ready, None);
        let whole = json!({
            "metadata": {"name": "a", "uid": "u", "generation": 2},
            "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let whole = read("Guestbook", &serde_json::from_value(whole).unwrap());
        assert_eq!((whole.ready, whole.version), (None, Version { uid: "u".into(), generation: 2 }));
        assert_eq!(object(&json!([{"type": "Ready", "status": "False", "reason": "No"}])).ready, Some(false));
        assert_eq!(object(&json!([{"type": "Ready", "status": "Unknown"}])).ready, None);
        let other = object(&json!([{"type": "Synced", "status": "True"}]));
        assert_eq!((other.ready, other.name.as_str()), (None, "default/a"));
        assert_eq!(other.conditions, [("Synced".to_owned(), "True".to_owned())]);
    }

    #[test]
    fn the_stored_version_is_watched() {
        let definition = json!({"spec": {
            "group": "webapp.my.domain", "names": {"kind": "Guestbook", "plural": "guestbooks"},
            "versions": [{"name": "v1beta1", "storage": false}, {"name": "v1", "storage": true}],
        }});
        let resource = resource(&definition).unwrap();
        assert_eq!((resource.version.as_str(), resource.plural.as_str()), ("v1", "guestbooks"));
    }
}
