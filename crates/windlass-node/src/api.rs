//! Requests in the name of a node.
//!
//! One client serves thousands of nodes: a request carries the node in whose name it is made as an extension,
//! [`ActingNode`]. A client in the same process as the API server may turn that into an identity; others ignore it, and all
//! requests are made as the client's own user.

use std::borrow::Cow;
use std::sync::Arc;

use http::Request;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserializer, Serialize};
use serde_json::{Value, json};

/// The node in whose name a request is made: `system:node:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActingNode(pub Arc<str>);

/// The name under which a node owns what it writes, as upstream's do.
const FIELD_MANAGER: &str = "kubelet";

/// Makes requests.
#[derive(Clone)]
pub(crate) struct Api {
    client: kube::Client,
}

/// Looks for `metadata.resourceVersion` in an object, and stops reading there: servers write it early, and the rest of a pod is
/// long.
struct VersionSeed<'v> {
    path: &'static [&'static str],
    found: &'v mut Option<u64>,
}

impl<'de> DeserializeSeed<'de> for VersionSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for VersionSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if self.path.is_empty() {
            *self.found = text.parse().ok();
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let Some((_, rest)) = self.path.split_first().filter(|(next, _)| ***next == *key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            map.next_value_seed(VersionSeed { path: rest, found: &mut *self.found })?;
            if self.found.is_some() {
                return Err(serde::de::Error::custom("the rest is not read"));
            }
        }
        Ok(())
    }
}

/// The version of the object that an answer has; 0 if it has none.
fn version(text: &str) -> u64 {
    let mut found = None;
    let seed = VersionSeed { path: &["metadata", "resourceVersion"], found: &mut found };
    // It ends with an error once the version is found.
    let _ = seed.deserialize(&mut serde_json::Deserializer::from_str(text));
    found.unwrap_or(0)
}

/// How a patch is merged.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Merge {
    Strategic,
    Json,
}

/// A name, as it stands in a path: those of pods, nodes and namespaces need no escaping.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':'))
        && !matches!(name, "." | "..")
}

/// The path of a namespaced object of the core group.
pub(crate) fn path(namespace: &str, resource: &str, name: &str) -> Option<String> {
    (is_plain(namespace) && is_plain(name)).then(|| format!("/api/v1/namespaces/{namespace}/{resource}/{name}"))
}

/// The path of a volume.
pub(crate) fn volume_path(name: &str) -> Option<String> {
    is_plain(name).then(|| format!("/api/v1/persistentvolumes/{name}"))
}

/// The path of a node.
pub(crate) fn node_path(name: &str) -> Option<String> {
    is_plain(name).then(|| format!("/api/v1/nodes/{name}"))
}

impl Api {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client }
    }

    fn request(
        node: Option<&Arc<str>>,
        method: &str,
        uri: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Request<Vec<u8>>, kube::Error> {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", content_type)
            .header("accept", "application/json");
        let mut request = request.body(body).map_err(kube::Error::HttpError)?;
        if let Some(node) = node {
            request.extensions_mut().insert(ActingNode(Arc::clone(node)));
        }
        Ok(request)
    }

    /// Sends a request and reads the version of the object that it is answered with.
    async fn write(&self, request: Request<Vec<u8>>) -> Result<u64, kube::Error> {
        self.client.request_text(request).await.map(|text| version(&text))
    }

    /// Patches an object, and returns its new version.
    pub(crate) async fn patch(
        &self,
        node: Option<&Arc<str>>,
        path: &str,
        merge: Merge,
        patch: &Value,
    ) -> Result<u64, kube::Error> {
        let content_type = match merge {
            Merge::Strategic => "application/strategic-merge-patch+json",
            Merge::Json => "application/merge-patch+json",
        };
        let body = serde_json::to_vec(patch).map_err(kube::Error::SerdeError)?;
        let uri = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.write(Self::request(node, "PATCH", &uri, content_type, body)?).await
    }

    /// Creates an object.
    pub(crate) async fn create(
        &self,
        node: &Arc<str>,
        path: &str,
        object: &impl Serialize,
    ) -> Result<u64, kube::Error> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let uri = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.write(Self::request(Some(node), "POST", &uri, "application/json", body)?).await
    }

    /// Posts a document, and reads the answer.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        node: &Arc<str>,
        path: &str,
        document: &Value,
    ) -> Result<T, kube::Error> {
        let body = serde_json::to_vec(document).map_err(kube::Error::SerdeError)?;
        self.client.request(Self::request(Some(node), "POST", path, "application/json", body)?).await
    }

    /// Deletes a pod for good, unless another has its name now.
    pub(crate) async fn delete_now(&self, node: &Arc<str>, path: &str, uid: &str) -> Result<(), kube::Error> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": { "uid": uid },
        });
        let body = serde_json::to_vec(&options).map_err(kube::Error::SerdeError)?;
        let request = Self::request(Some(node), "DELETE", path, "application/json", body)?;
        self.client.request_text(request).await.map(drop)
    }

    /// Reads an object, if it exists.
    pub(crate) async fn get<T: DeserializeOwned>(&self, node: &Arc<str>, path: &str) -> Result<Option<T>, kube::Error> {
        let request = Self::request(Some(node), "GET", path, "application/json", Vec::new())?;
        match self.client.request::<T>(request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether there is no such object, or another of its name.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether a change is not allowed for an object as it is stored.
pub(crate) fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// Whether an object was replaced by another of its name, or changed meanwhile.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_metadata_alone() {
        let check = |text: &str, expected: u64| assert_eq!(version(text), expected, "{text}");
        check(r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"12","labels":{}},"spec":{}}"#, 12);
        check(r#"{"metadata":{"labels":{"resourceVersion":"9"},"resourceVersion":"12"}}"#, 12);
        check(r#"{"resourceVersion":"9","metadata":{"name":"a"}}"#, 0);
        check(r#"{"spec":{"metadata":{"resourceVersion":"9"}},"metadata":{"resourceVersion":"12"}}"#, 12);
        check(r#"{"metadata":null}"#, 0);
        check("no object", 0);
    }
}
