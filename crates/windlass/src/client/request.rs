//! Requests of one kind: made, sent, decoded, and what they wrote made visible to cached reads.

use std::borrow::Cow;
use std::fmt::Display;

use kube::Resource;
use kube::api::{ApiResource, DynamicObject, GetParams, Patch, PatchParams, PostParams, Request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::options::WriteOptions;
use super::{CachedClient, ClientError, Objects, segment};
use crate::decode;
use crate::key::ObjectKey;
use crate::object::{Object, describe, is_namespaced, parse_version, version_of};

/// A request, if it could be made.
pub(super) type Built = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

impl<K: Object> Objects<K> {
    /// A server answers a request without a namespace as if there were no such resource.
    pub(super) fn check_place(&self, verb: &'static str, key: &ObjectKey) -> Result<(), ClientError> {
        if is_namespaced::<K>() && key.namespace().is_none() {
            return Err(ClientError::NoNamespace { verb, kind: self.describe(), key: key.to_string() });
        }
        Ok(())
    }

    /// Where an object is: for requests in its place, and its name there.
    pub(super) fn locate<'k>(
        &self,
        verb: &'static str,
        key: &'k ObjectKey,
    ) -> Result<(Request, Cow<'k, str>), ClientError> {
        self.check_place(verb, key)?;
        let request = self.request(verb, key, key.namespace())?;
        Ok((request, self.segment(verb, key, key.name())?))
    }

    pub(super) fn request(
        &self,
        verb: &'static str,
        key: &dyn Display,
        namespace: Option<&str>,
    ) -> Result<Request, ClientError> {
        let namespace = namespace.map(|namespace| self.segment(verb, key, namespace)).transpose()?;
        Ok(Request::new(K::url_path(&self.dt, namespace.as_deref())))
    }

    /// A name or namespace as it stands in a path.
    pub(super) fn segment<'n>(
        &self,
        verb: &'static str,
        key: &dyn Display,
        name: &'n str,
    ) -> Result<Cow<'n, str>, ClientError> {
        match segment::refusal(name) {
            None => Ok(segment::escaped(name)),
            Some(refusal) => {
                let (kind, key, name) = (self.describe(), key.to_string(), name.to_owned());
                Err(ClientError::InvalidName { verb, kind, key, name, refusal })
            }
        }
    }

    pub(super) fn post_params(&self, options: &WriteOptions) -> PostParams {
        options.post_params(self.client.field_manager())
    }

    pub(super) fn patch_params<P: Serialize>(&self, patch: &Patch<P>, options: &WriteOptions) -> PatchParams {
        options.patch_params(self.client.field_manager(), matches!(patch, Patch::Apply(_)))
    }

    pub(super) fn encode(&self, object: &impl Serialize) -> Result<Vec<u8>, ClientError> {
        serde_json::to_vec(object).map_err(|source| self.encode_error(source))
    }

    /// The object as an apply wants it: without what only the server may say.
    pub(super) fn applied(&self, object: &K) -> Result<Value, ClientError> {
        let mut value = serde_json::to_value(object).map_err(|source| self.encode_error(source))?;
        if let Some(fields) = value.as_object_mut() {
            let resource = self.resource();
            fields.insert("apiVersion".into(), resource.api_version.into());
            fields.insert("kind".into(), resource.kind.into());
        }
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["managedFields", "creationTimestamp", "generation", "selfLink"] {
                meta.remove(field);
            }
        }
        Ok(value)
    }

    /// Sends what writes an object and is answered with it.
    pub(super) async fn write(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        request: Built,
        options: &WriteOptions,
    ) -> Result<K, ClientError> {
        let text = self.send_text(verb, key, options.complete(request)).await?;
        let object: K = self.decode(verb, key, &text)?;
        if !options.is_dry_run() {
            self.note_answer(&object, &text).await;
        }
        Ok(object)
    }

    /// Sends what writes an object and is answered with something else, as writes of subresources are: then the
    /// object is read again, if it is watched. `told` names it in errors.
    pub(super) async fn write_beside(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        told: &(dyn Display + Sync),
        request: Built,
        dry_run: bool,
    ) -> Result<String, ClientError> {
        let (resource, caches) = (self.resource(), self.client.caches());
        // It may be another object, or none, by the time it is read again.
        let before = caches.uid_of(&resource, key);
        let text = self.send_text(verb, told, request).await?;
        if dry_run {
            return Ok(text);
        }
        let answer: Answer = serde_json::from_str(&text).unwrap_or_default();
        if answer.is_of(&resource)
            && let Ok(object) = decode::from_slice::<K>(text.as_bytes())
        {
            self.note_answer(&object, &text).await;
            return Ok(text);
        }
        let versions = caches.note_unseen(&resource, key, answer.version_of(before.as_deref()));
        self.client.read_again(&resource, versions, key, before.as_deref()).await;
        Ok(text)
    }

    /// Makes a write visible to cached reads.
    async fn note_answer(&self, object: &K, text: &str) {
        let (resource, meta, key) = (self.resource(), object.meta(), ObjectKey::of(object));
        // With what held it gone, the server removes it with this write.
        if meta.deletion_timestamp.is_some() && !is_held(&resource, object, text) {
            self.client.caches().note_delete(&resource, &key, meta.uid.as_deref());
        } else {
            self.note_write(&resource, &key, object, text).await;
        }
    }

    /// Makes it visible that an object is there. Only the server can say what it looks like in another
    /// version of the kind that is watched too.
    pub(super) async fn note_write(&self, resource: &ApiResource, key: &ObjectKey, object: &K, text: &str) {
        let caches = self.client.caches();
        caches.note_write(resource, object, text.as_bytes());
        let others = caches.note_elsewhere(resource, key, version_of(object));
        self.client.read_again(resource, others, key, object.meta().uid.as_deref()).await;
    }

    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        key: &(dyn Display + Sync),
        request: Built,
    ) -> Result<T, ClientError> {
        let text = self.send_text(verb, key, request).await?;
        self.decode(verb, key, &text)
    }

    pub(super) async fn send_text(
        &self,
        verb: &'static str,
        key: &(dyn Display + Sync),
        request: Built,
    ) -> Result<String, ClientError> {
        let sent = self.client.send(request).await;
        sent.map_err(|source| self.request_error(verb, key, source))
    }

    pub(super) fn decode<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        key: &dyn Display,
        text: &str,
    ) -> Result<T, ClientError> {
        let decoded = decode::from_slice(text.as_bytes());
        decoded.map_err(|error| self.request_error(verb, key, kube::Error::SerdeError(error.into())))
    }

    pub(super) fn request_error(&self, verb: &'static str, key: &dyn Display, source: kube::Error) -> ClientError {
        ClientError::Request { verb, kind: self.describe(), key: key.to_string(), source: Box::new(source) }
    }

    /// The error for options that cannot be.
    pub(super) fn refused(&self, verb: &'static str, reason: String) -> ClientError {
        ClientError::Options { verb, kind: self.describe(), reason }
    }

    pub(super) fn resource(&self) -> ApiResource {
        ApiResource::erase::<K>(&self.dt)
    }

    pub(super) fn describe(&self) -> String {
        describe(&self.resource())
    }

    fn encode_error(&self, source: serde_json::Error) -> ClientError {
        ClientError::Encode { kind: self.describe(), source }
    }
}

impl CachedClient {
    async fn send(&self, request: Built) -> Result<String, kube::Error> {
        match request {
            Ok(request) => self.inner.kube.request_text(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        }
    }

    /// Reads an object that was written in some versions of its kind, for the caches that watch these. `uid` is of the
    /// object that was written.
    async fn read_again(&self, resource: &ApiResource, versions: Vec<ApiResource>, key: &ObjectKey, uid: Option<&str>) {
        for version in versions {
            let namespace = key.namespace().map(segment::escaped);
            let request = Request::new(DynamicObject::url_path(&version, namespace.as_deref()));
            let request = request.get(&segment::escaped(key.name()), &GetParams::default());
            match Box::pin(self.send(request)).await {
                Ok(text) => self.caches().note_read(&version, text.as_bytes()),
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    // Without a uid, what is known by now may be another object.
                    if uid.is_some() {
                        self.caches().note_delete(resource, key, uid);
                    }
                }
                Err(error) => {
                    let kind = describe(&version);
                    tracing::warn!(%error, %kind, object = %key, "not cached as it was written, read live for a while");
                }
            }
        }
    }
}

/// What an answer is about.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Answer {
    api_version: String,
    kind: String,
    metadata: AnswerMeta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnswerMeta {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Answer {
    /// Whether it is an object of the kind.
    fn is_of(&self, resource: &ApiResource) -> bool {
        (&self.api_version, &self.kind) == (&resource.api_version, &resource.kind) && self.metadata.uid.is_some()
    }

    /// The version of the object with a uid, if the answer tells it, as a Scale does.
    fn version_of(&self, uid: Option<&str>) -> Option<u64> {
        let same = uid.is_some() && self.metadata.uid.as_deref() == uid;
        self.metadata.resource_version.as_deref().filter(|_| same).and_then(parse_version)
    }
}

impl WriteOptions {
    /// A request with what kube has no parameter for.
    pub(super) fn complete(&self, request: Built) -> Built {
        let Some(validation) = self.validation() else { return request };
        let mut request = request?;
        let separator = if request.uri().query().is_some() { '&' } else { '?' };
        let uri = format!("{}{separator}fieldValidation={validation}", request.uri());
        *request.uri_mut() =
            uri.parse().map_err(|error| kube::core::request::Error::BuildRequest(http::Error::from(error)))?;
        Ok(request)
    }
}

/// Whether an object stays though it is being deleted: until its finalizers and its grace period are
/// done with. Namespaces have finalizers of their own besides. So the server decides too
/// (`ShouldDeleteDuringUpdate` in the registry's store.go).
pub(super) fn is_held<K: Object>(resource: &ApiResource, object: &K, text: &str) -> bool {
    #[derive(Default, serde::Deserialize)]
    struct Finalized {
        #[serde(default)]
        spec: Finalizers,
    }
    #[derive(Default, serde::Deserialize)]
    struct Finalizers {
        #[serde(default)]
        finalizers: Vec<String>,
    }
    let meta = object.meta();
    let is_namespace = (resource.group.as_str(), resource.plural.as_str()) == ("", "namespaces");
    meta.finalizers.as_ref().is_some_and(|list| !list.is_empty())
        || meta.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0)
        || is_namespace && serde_json::from_str::<Finalized>(text).is_ok_and(|n| !n.spec.finalizers.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::error::Error;

    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::client::CachedClient;

    /// serde quotes what it did not expect.
    #[tokio::test]
    async fn errors_do_not_show_what_is_in_unreadable_objects() {
        let kube = kube::Client::new(
            tower::service_fn(|_: http::Request<kube::client::Body>| async {
                let body = r#"{"metadata": {"name": "s", "namespace": "d"}, "data": "hunter2"}"#;
                let body = kube::client::Body::from(body.as_bytes().to_vec());
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }),
            "default",
        );
        let client = CachedClient::standalone(kube, "test");
        let mut secret = Secret::default();
        (secret.metadata.namespace, secret.metadata.name) = (Some("d".into()), Some("s".into()));
        let key = ObjectKey::of(&secret);
        for error in [
            client.live().get::<Secret>(&key).await.unwrap_err(),
            client.create(&secret).await.unwrap_err(),
            client.apply(&secret).await.unwrap_err(),
        ] {
            let mut told = format!("{error} {error:?}");
            let mut source = error.source();
            while let Some(error) = source {
                told = format!("{told} {error}");
                source = error.source();
            }
            assert!(!told.contains("hunter2"), "{told}");
            assert!(told.contains("invalid type: string, expected"), "{told}");
        }
        client.caches().stop().await;
    }
}
