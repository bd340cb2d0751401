//! Everything that can be done with one kind: the requests behind [`CachedClient`].

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::Value;

use super::options::{ApplyOptions, DeleteOptions, ListOptions, Query, WriteOptions};
use super::request::is_held;
use super::{CachedClient, ClientError, LiveObjects, ScaleHandle, Subresource, retry_on_conflict, segment};
use crate::cache::{Found, Lister};
use crate::decode;
use crate::key::ObjectKey;
use crate::object::Object;

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
    pub(super) client: CachedClient,
    pub(super) dt: K::DynamicType,
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
            Found::Unknown => Ok(Box::pin(self.live().get(key)).await?.map(|object| known.as_kept(object))),
        }
    }

    /// All objects from the cache. See [`CachedClient::list`].
    pub async fn list(&self) -> Result<Vec<Arc<K>>, ClientError> {
        let lister = self.lister();
        self.client.caches().wait_current(&self.dt, &lister).await?;
        if self.part.is_some() || lister.behind().is_empty() {
            return Ok(lister.list());
        }
        self.list_with(ListOptions::new()).await
    }

    /// Objects from the cache. See [`CachedClient::list_with`].
    pub async fn list_with(&self, options: ListOptions) -> Result<Vec<Arc<K>>, ClientError> {
        let query = options.query::<K>().map_err(|reason| self.refused("list", reason))?;
        let namespace = query.namespace.as_deref();
        let lister = match namespace {
            // Whatever else is watched, the namespace will do.
            Some(namespace) if self.part.is_none() && query.index.is_none() => {
                self.client.caches().lister_covering::<K>(&self.dt, namespace)
            }
            _ => self.lister(),
        };
        if namespace.is_some() {
            lister.check_covers(namespace)?;
        }
        self.client.caches().wait_current(&self.dt, &lister).await?;
        if let Some((index, _)) = query.index.as_ref().filter(|(index, _)| !lister.has_index(index)) {
            return Err(ClientError::UnknownIndex { kind: self.describe(), index: index.clone() });
        }
        let behind = if self.part.is_none() { lister.behind() } else { BTreeSet::new() };
        let mut objects = select(&lister, &query, &behind).map_err(|reason| self.refused("list", reason))?;
        // Written in another version of the kind: the server tells what that is in this one.
        for key in behind.iter().filter(|key| namespace.is_none() || key.namespace() == namespace) {
            let Some(live) = Box::pin(self.live().get(key)).await? else { continue };
            let live = self.client.caches().known_with(&self.dt).as_kept(live);
            let filed = query.index.as_ref().is_none_or(|(index, value)| lister.files(index, value, &live));
            if filed && query.matches(&*live).map_err(|reason| self.refused("list", reason))? {
                objects.push(live);
            }
        }
        objects.truncate(query.limit);
        Ok(objects)
    }

    /// Reads that ask the server.
    pub fn live(&self) -> LiveObjects<'_, K> {
        LiveObjects { objects: self }
    }

    /// See [`CachedClient::create`].
    pub async fn create(&self, object: &K) -> Result<K, ClientError> {
        self.create_with(object, WriteOptions::new()).await
    }

    /// See [`CachedClient::create_with`].
    pub async fn create_with(&self, object: &K, options: WriteOptions) -> Result<K, ClientError> {
        let key = ObjectKey::of(object);
        self.check_place("create", &key)?;
        // The name is in the body, where the server looks at it.
        let request = self.request("create", &key, key.namespace())?;
        let request = request.create(&self.post_params(&options), self.encode(object)?);
        self.write("create", &key, request, &options).await
    }

    /// See [`CachedClient::update`].
    pub async fn update(&self, object: &K) -> Result<K, ClientError> {
        self.update_with(object, WriteOptions::new()).await
    }

    /// See [`CachedClient::update_with`].
    pub async fn update_with(&self, object: &K, options: WriteOptions) -> Result<K, ClientError> {
        let key = ObjectKey::of(object);
        let (request, name) = self.locate("update", &key)?;
        let request = request.replace(&name, &self.post_params(&options), self.encode(object)?);
        self.write("update", &key, request, &options).await
    }

    /// See [`CachedClient::update_status`].
    pub async fn update_status(&self, object: &K) -> Result<K, ClientError> {
        self.update_status_with(object, WriteOptions::new()).await
    }

    /// See [`CachedClient::update_status_with`].
    pub async fn update_status_with(&self, object: &K, options: WriteOptions) -> Result<K, ClientError> {
        let key = ObjectKey::of(object);
        let (request, name) = self.locate("update status of", &key)?;
        let (params, body) = (self.post_params(&options), self.encode(object)?);
        let request = request.replace_subresource("status", &name, &params, body);
        self.write("update status of", &key, request, &options).await
    }

    /// See [`CachedClient::patch`].
    pub async fn patch(&self, key: &ObjectKey, patch: &Patch<impl Serialize + Debug>) -> Result<K, ClientError> {
        self.patch_with(key, patch, WriteOptions::new()).await
    }

    /// See [`CachedClient::patch_with`].
    pub async fn patch_with(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Debug>,
        options: WriteOptions,
    ) -> Result<K, ClientError> {
        let params = self.patch_params(patch, &options);
        self.send_patch(key, None, patch, &params, &options).await
    }

    /// See [`CachedClient::patch_status`].
    pub async fn patch_status(&self, key: &ObjectKey, patch: &Patch<impl Serialize + Debug>) -> Result<K, ClientError> {
        self.patch_status_with(key, patch, WriteOptions::new()).await
    }

    /// See [`CachedClient::patch_status_with`].
    pub async fn patch_status_with(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Debug>,
        options: WriteOptions,
    ) -> Result<K, ClientError> {
        let params = self.patch_params(patch, &options);
        self.send_patch(key, Some("status"), patch, &params, &options).await
    }

    /// See [`CachedClient::apply`].
    pub async fn apply(&self, object: &K) -> Result<K, ClientError> {
        self.apply_with(object, ApplyOptions::new()).await
    }

    /// See [`CachedClient::apply_with`].
    pub async fn apply_with(&self, object: &K, options: ApplyOptions) -> Result<K, ClientError> {
        self.send_apply(object, None, &options).await
    }

    /// See [`CachedClient::apply_status`].
    pub async fn apply_status(&self, object: &K) -> Result<K, ClientError> {
        self.apply_status_with(object, ApplyOptions::new()).await
    }

    /// See [`CachedClient::apply_status_with`].
    pub async fn apply_status_with(&self, object: &K, options: ApplyOptions) -> Result<K, ClientError> {
        self.send_apply(object, Some("status"), &options).await
    }

    async fn send_apply(
        &self,
        object: &K,
        subresource: Option<&'static str>,
        options: &ApplyOptions,
    ) -> Result<K, ClientError> {
        let patch = Patch::Apply(self.applied(object)?);
        let params = options.write.patch_params(self.client.field_manager(), options.force);
        self.send_patch(&ObjectKey::of(object), subresource, &patch, &params, &options.write).await
    }

    async fn send_patch(
        &self,
        key: &ObjectKey,
        subresource: Option<&'static str>,
        patch: &Patch<impl Serialize + Debug>,
        params: &PatchParams,
        options: &WriteOptions,
    ) -> Result<K, ClientError> {
        let verb = if subresource.is_some() { "patch status of" } else { "patch" };
        let (request, name) = self.locate(verb, key)?;
        let request = match subresource {
            Some(subresource) => request.patch_subresource(subresource, &name, params, patch),
            None => request.patch(&name, params, patch),
        };
        self.write(verb, key, request, options).await
    }

    /// See [`CachedClient::modify`].
    pub async fn modify(
        &self,
        key: &ObjectKey,
        change: impl Fn(&mut K) + Send + Sync,
    ) -> Result<Option<K>, ClientError> {
        let change = &change;
        retry_on_conflict(|| async move {
            match self.live().get(key).await? {
                Some(mut object) => {
                    change(&mut object);
                    match self.update(&object).await {
                        // Deleted since it was read.
                        Err(error) if error.is_not_found() => Ok(None),
                        updated => updated.map(Some),
                    }
                }
                None => Ok(None),
            }
        })
        .await
    }

    /// See [`CachedClient::delete`].
    pub async fn delete(&self, key: &ObjectKey) -> Result<bool, ClientError> {
        self.delete_with(key, DeleteOptions::new()).await
    }

    /// See [`CachedClient::delete_with`].
    pub async fn delete_with(&self, key: &ObjectKey, options: DeleteOptions) -> Result<bool, ClientError> {
        let (request, name) = self.locate("delete", key)?;
        let request = request.delete(&name, &options.params());
        let text = match self.send_text("delete", key, request).await {
            Ok(text) => text,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(error),
        };
        if options.is_dry_run() {
            return Ok(true);
        }
        let (caches, resource) = (self.client.caches(), self.resource());
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

    /// A subresource of the kind that has no methods of its own.
    pub fn subresource(&self, name: impl Into<String>) -> Subresource<K> {
        Subresource::new(self.clone(), name)
    }

    /// How many replicas an object wants and has. See [`CachedClient::scale`].
    pub fn scale(&self, key: &ObjectKey) -> ScaleHandle<K> {
        ScaleHandle::new(self.clone(), key.clone())
    }
}

/// What a lister has that a query selects, without what is to be read again. The error is of the query.
fn select<K: Object>(lister: &Lister<K>, query: &Query, behind: &BTreeSet<ObjectKey>) -> Result<Vec<Arc<K>>, String> {
    let refused = Cell::new(None);
    let accept = |object: &K| {
        let matches = query.matches(object).unwrap_or_else(|reason| {
            refused.set(Some(reason));
            false
        });
        matches && (behind.is_empty() || !behind.contains(&ObjectKey::of(object)))
    };
    let found = match &query.index {
        Some((index, value)) => {
            let mut found = lister.by_index(index, value);
            found.retain(|object| accept(object));
            found
        }
        None => lister.filter(accept),
    };
    match refused.take() {
        Some(reason) => Err(reason),
        None => Ok(found),
    }
}

/// Whether there could be an object of that name.
fn is_possible(key: &ObjectKey) -> bool {
    segment::refusal(key.name()).is_none() && key.namespace().is_none_or(|name| segment::refusal(name).is_none())
}
