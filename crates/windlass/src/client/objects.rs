//! Everything that can be done with one kind: the requests behind [`CachedClient`].

use std::borrow::Cow;
use std::fmt::{Debug, Display};
use std::sync::Arc;

use kube::Resource;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GetParams, ListParams, Patch, PatchParams, PostParams, Request,
};
use kube::core::ObjectList;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{CachedClient, ClientError, segment};
use crate::cache::{Found, Lister};
use crate::decode;
use crate::key::ObjectKey;
use crate::object::{Object, describe, fill_types, is_namespaced, types_to_fill, version_of};

/// Everything that can be done with one kind. [`CachedClient`]'s methods are shorthands for these.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// # let client = windlass::CachedClient::standalone(kube, "example");
/// use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
/// use windlass::ObjectKey;
///
/// // A kind that is known only at run time.
/// let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
/// let maps = client.dynamic(&kind);
/// let map = DynamicObject::new("settings", &kind).within("default").data(serde_json::json!({"data": {"mode": "fast"}}));
/// maps.apply(&map).await?;
/// let found = maps.get(&ObjectKey::new("default", "settings")).await?.ok_or("gone")?;
/// assert_eq!(found.data["data"]["mode"], "fast");
/// # client.caches().stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Objects<K: Object> {
    client: CachedClient,
    dt: K::DynamicType,
    /// What cached reads show, if that is not all.
    part: Option<Lister<K>>,
}

impl<K: Object> Debug for Objects<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("kind", &self.describe()).field("client", &self.client).finish_non_exhaustive()
    }
}

impl<K: Object> Objects<K> {
    pub(super) fn new(client: CachedClient, dt: K::DynamicType) -> Self {
        Self { client, dt, part: None }
    }

    /// The same with cached reads that show a part of the kind alone: what a controller looks after.
    pub(crate) fn showing(self, part: Option<Lister<K>>) -> Self {
        Self { part, ..self }
    }

    /// The client behind it.
    pub fn client(&self) -> &CachedClient {
        &self.client
    }

    /// What must be known at run time to name the kind.
    pub(crate) fn dynamic_type(&self) -> &K::DynamicType {
        &self.dt
    }

    /// The lister of the kind. See [`CachedClient::lister`].
    pub fn lister(&self) -> Lister<K> {
        if let Some(part) = &self.part {
            return part.clone();
        }
        self.client.inner.caches.lister_of(&self.dt)
    }

    /// An object from the cache. See [`CachedClient::get`].
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, ClientError> {
        if let Some(part) = &self.part
            && part.check_covers(key.namespace()).is_ok()
        {
            part.wait_synced().await?;
            return Ok(part.get(key));
        }
        let known = self.client.inner.caches.known_with(&self.dt);
        match known.get(key).await? {
            Found::Told(object) => Ok(object),
            Found::Unknown if !is_possible(key) => Ok(None),
            Found::Unknown => Ok(Box::pin(self.get_live(key)).await?.map(|object| Arc::new(known.as_kept(object)))),
        }
    }

    /// All objects from the cache. See [`CachedClient::list`].
    pub async fn list(&self) -> Result<Vec<Arc<K>>, ClientError> {
        if let Some(part) = &self.part {
            part.wait_synced().await?;
            return Ok(part.list());
        }
        let lister = self.lister();
        lister.wait_synced().await?;
        let behind = lister.behind();
        let mut objects = lister.list();
        if behind.is_empty() {
            return Ok(objects);
        }
        // Written in another version of the kind: the server tells what that is in this one.
        objects.retain(|object| !behind.contains(&ObjectKey::of(&**object)));
        let known = self.client.inner.caches.known_with(&self.dt);
        for key in &behind {
            let live = Box::pin(self.get_live(key)).await?;
            objects.extend(live.map(|object| Arc::new(known.as_kept(object))));
        }
        Ok(objects)
    }

    /// An object as the server has it now.
    pub async fn get_live(&self, key: &ObjectKey) -> Result<Option<K>, ClientError> {
        let (request, name) = self.locate("get", key)?;
        let params = GetParams::default();
        let request =
            if K::metadata_api() { request.get_metadata(&name, &params) } else { request.get(&name, &params) };
        let found: Result<K, _> = self.send("get", key, request).await;
        match found {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Objects as the server has them now. See [`Live::list`](super::Live::list).
    pub async fn list_live(&self, namespace: Option<&str>, params: &ListParams) -> Result<Vec<K>, ClientError> {
        Ok(self.list_page(namespace, params).await?.items)
    }

    /// One page of the objects as the server has them now. See [`Live::page`](super::Live::page).
    pub async fn list_page(&self, namespace: Option<&str>, params: &ListParams) -> Result<ObjectList<K>, ClientError> {
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        let place = namespace.unwrap_or("in all namespaces");
        let request = self.request("list", &place, namespace)?;
        let request = if K::metadata_api() { request.list_metadata(params) } else { request.list(params) };
        let mut list: ObjectList<K> = self.send("list", &place, request).await?;
        if let Some(types) = types_to_fill::<K>(&self.dt) {
            list.items.iter_mut().for_each(|object| fill_types(object, &types));
        }
        Ok(list)
    }

    /// See [`CachedClient::create`].
    pub async fn create(&self, object: &K) -> Result<K, ClientError> {
        let key = ObjectKey::of(object);
        self.check_place("create", &key)?;
        // The name is in the body, where the server looks at it.
        let request = self.request("create", &key, key.namespace())?;
        let request = request.create(&self.post_params(), self.encode(object)?);
        self.write("create", &key, request).await
    }

    /// See [`CachedClient::update`].
    pub async fn update(&self, object: &K) -> Result<K, ClientError> {
        let key = ObjectKey::of(object);
        let (request, name) = self.locate("update", &key)?;
        let request = request.replace(&name, &self.post_params(), self.encode(object)?);
        self.write("update", &key, request).await
    }

    /// See [`CachedClient::update_status`].
    pub async fn update_status(&self, object: &K) -> Result<K, ClientError> {
        let key = ObjectKey::of(object);
        let (request, name) = self.locate("update status of", &key)?;
        let request = request.replace_subresource("status", &name, &self.post_params(), self.encode(object)?);
        self.write("update status of", &key, request).await
    }

    /// See [`CachedClient::patch`].
    pub async fn patch(&self, key: &ObjectKey, patch: &Patch<impl Serialize + Debug>) -> Result<K, ClientError> {
        let (request, name) = self.locate("patch", key)?;
        let request = request.patch(&name, &self.patch_params(patch), patch);
        self.write("patch", key, request).await
    }

    /// See [`CachedClient::patch_status`].
    pub async fn patch_status(&self, key: &ObjectKey, patch: &Patch<impl Serialize + Debug>) -> Result<K, ClientError> {
        let (request, name) = self.locate("patch status of", key)?;
        let request = request.patch_subresource("status", &name, &self.patch_params(patch), patch);
        self.write("patch status of", key, request).await
    }

    /// See [`CachedClient::apply`].
    pub async fn apply(&self, object: &K) -> Result<K, ClientError> {
        let patch = Patch::Apply(self.applied(object)?);
        self.patch(&ObjectKey::of(object), &patch).await
    }

    /// See [`CachedClient::apply_status`].
    pub async fn apply_status(&self, object: &K) -> Result<K, ClientError> {
        let patch = Patch::Apply(self.applied(object)?);
        self.patch_status(&ObjectKey::of(object), &patch).await
    }

    /// See [`CachedClient::delete`].
    pub async fn delete(&self, key: &ObjectKey, params: &DeleteParams) -> Result<bool, ClientError> {
        let (request, name) = self.locate("delete", key)?;
        let request = request.delete(&name, params);
        let text = match self.send_text("delete", key, request).await {
            Ok(text) => text,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(error),
        };
        if params.dry_run {
            return Ok(true);
        }
        let caches = &self.client.inner.caches;
        let resource = ApiResource::erase::<K>(&self.dt);
        let answer: Value = self.decode("delete", key, &text)?;
        if answer.get("kind").and_then(Value::as_str) == Some("Status") {
            let uid = answer.pointer("/details/uid").and_then(Value::as_str);
            caches.note_delete(&resource, key, uid);
        } else if let Ok(object) = decode::from_slice::<K>(text.as_bytes()) {
            if is_held(&resource, &object, &text) {
                self.note_write(&resource, key, &object, &text).await;
            } else {
                caches.note_delete(&resource, key, object.meta().uid.as_deref());
            }
        }
        Ok(true)
    }

    /// A server answers a request without a namespace as if there were no such resource.
    fn check_place(&self, verb: &'static str, key: &ObjectKey) -> Result<(), ClientError> {
        if is_namespaced::<K>() && key.namespace().is_none() {
            return Err(ClientError::NoNamespace { verb, kind: self.describe(), key: key.to_string() });
        }
        Ok(())
    }

    /// Where an object is: for requests in its place, and its name there.
    fn locate<'k>(&self, verb: &'static str, key: &'k ObjectKey) -> Result<(Request, Cow<'k, str>), ClientError> {
        self.check_place(verb, key)?;
        let request = self.request(verb, key, key.namespace())?;
        Ok((request, self.segment(verb, key, key.name())?))
    }

    fn request(&self, verb: &'static str, key: &impl Display, namespace: Option<&str>) -> Result<Request, ClientError> {
        let namespace = namespace.map(|namespace| self.segment(verb, key, namespace)).transpose()?;
        Ok(Request::new(K::url_path(&self.dt, namespace.as_deref())))
    }

    /// A name or namespace as it stands in a path.
    fn segment<'n>(&self, verb: &'static str, key: &impl Display, name: &'n str) -> Result<Cow<'n, str>, ClientError> {
        match segment::refusal(name) {
            None => Ok(segment::escaped(name)),
            Some(refusal) => {
                let (kind, key, name) = (self.describe(), key.to_string(), name.to_owned());
                Err(ClientError::InvalidName { verb, kind, key, name, refusal })
            }
        }
    }

    fn post_params(&self) -> PostParams {
        PostParams { field_manager: Some(self.client.inner.field_manager.clone()), ..PostParams::default() }
    }

    fn patch_params<P: Serialize>(&self, patch: &Patch<P>) -> PatchParams {
        PatchParams {
            field_manager: Some(self.client.inner.field_manager.clone()),
            force: matches!(patch, Patch::Apply(_)),
            ..PatchParams::default()
        }
    }

    fn encode(&self, object: &K) -> Result<Vec<u8>, ClientError> {
        serde_json::to_vec(object).map_err(|source| self.encode_error(source))
    }

    /// The object as an apply wants it: without what only the server may say.
    fn applied(&self, object: &K) -> Result<Value, ClientError> {
        let mut value = serde_json::to_value(object).map_err(|source| self.encode_error(source))?;
        if let Some(fields) = value.as_object_mut() {
            let resource = ApiResource::erase::<K>(&self.dt);
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

    async fn write(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<K, ClientError> {
        let text = self.send_text(verb, key, request).await?;
        let object: K = self.decode(verb, key, &text)?;
        let (resource, meta) = (ApiResource::erase::<K>(&self.dt), object.meta());
        // With what held it gone, the server removes it with this write.
        if meta.deletion_timestamp.is_some() && !is_held(&resource, &object, &text) {
            self.client.inner.caches.note_delete(&resource, &ObjectKey::of(&object), meta.uid.as_deref());
        } else {
            self.note_write(&resource, &ObjectKey::of(&object), &object, &text).await;
        }
        Ok(object)
    }

    /// Makes a write visible to cached reads. Only the server can say what it looks like in another
    /// version of the kind that is watched too.
    async fn note_write(&self, resource: &ApiResource, key: &ObjectKey, object: &K, text: &str) {
        let caches = &self.client.inner.caches;
        caches.note_write(resource, object, text.as_bytes());
        for other in caches.note_elsewhere(resource, key, version_of(object)) {
            let namespace = key.namespace().map(segment::escaped);
            let request = Request::new(DynamicObject::url_path(&other, namespace.as_deref()));
            let request = request.get(&segment::escaped(key.name()), &GetParams::default());
            match Box::pin(self.send_text("get", key, request)).await {
                Ok(text) => caches.note_read(&other, text.as_bytes()),
                Err(error) if error.is_not_found() => {
                    caches.note_delete(resource, key, object.meta().uid.as_deref());
                }
                Err(error) => {
                    let kind = describe(&other);
                    tracing::warn!(%error, %kind, object = %key, "not cached as it was written, read live for a while");
                }
            }
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        key: &impl Display,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, ClientError> {
        let text = self.send_text(verb, key, request).await?;
        self.decode(verb, key, &text)
    }

    async fn send_text(
        &self,
        verb: &'static str,
        key: &impl Display,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<String, ClientError> {
        let sent = match request {
            Ok(request) => self.client.inner.kube.request_text(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        sent.map_err(|source| self.request_error(verb, key, source))
    }

    fn decode<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        key: &impl Display,
        text: &str,
    ) -> Result<T, ClientError> {
        let decoded = decode::from_slice(text.as_bytes());
        decoded.map_err(|error| self.request_error(verb, key, kube::Error::SerdeError(error.into())))
    }

    fn request_error(&self, verb: &'static str, key: &impl Display, source: kube::Error) -> ClientError {
        ClientError::Request { verb, kind: self.describe(), key: key.to_string(), source: Box::new(source) }
    }

    fn describe(&self) -> String {
        describe(&ApiResource::erase::<K>(&self.dt))
    }

    fn encode_error(&self, source: serde_json::Error) -> ClientError {
        ClientError::Encode { kind: self.describe(), source }
    }
}

/// Whether there could be an object of that name.
fn is_possible(key: &ObjectKey) -> bool {
    segment::refusal(key.name()).is_none() && key.namespace().is_none_or(|name| segment::refusal(name).is_none())
}

/// Whether an object stays though it is being deleted: until its finalizers and its grace period are
/// done with. Namespaces have finalizers of their own besides. So the server decides too
/// (`ShouldDeleteDuringUpdate` in the registry's store.go).
fn is_held<K: Object>(resource: &ApiResource, object: &K, text: &str) -> bool {
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

    /// serde quotes what it did not expect.
    #[tokio::test]
    async fn what_is_in_an_object_that_cannot_be_read_is_in_no_error() {
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
