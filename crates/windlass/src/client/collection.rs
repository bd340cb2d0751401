//! Deletes all objects that are selected, with one request for each namespace.

use std::collections::BTreeSet;

use http::HeaderValue;
use http::header::ACCEPT;
use kube::Resource;
use kube::api::{ApiResource, DynamicObject, ListParams, PartialObjectMeta, Request};
use serde::Deserialize;
use serde_json::Value;

use super::options::{DeleteOptions, ListOptions};
use super::{ClientError, Objects, segment};
use crate::key::ObjectKey;
use crate::object::{Object, is_cluster_scoped};

/// Objects are read in pages of this many.
const PAGE: u32 = 500;
/// Names are enough of what was deleted; a server that does not know this form answers with the objects.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

type Metadata = PartialObjectMeta<DynamicObject>;

/// What a server answers when it has deleted a collection: a list, or nothing but that it has.
#[derive(Deserialize)]
struct Deleted {
    #[serde(default)]
    items: Vec<Metadata>,
}

impl<K: Object> Objects<K> {
    /// See [`CachedClient::delete_all_of`](super::CachedClient::delete_all_of).
    pub async fn delete_all_of(&self, list: ListOptions, delete: DeleteOptions) -> Result<Vec<ObjectKey>, ClientError> {
        const VERB: &str = "delete all";
        let params = list.params().map_err(|reason| self.refused(VERB, reason))?;
        if !list.is_unlimited() {
            return Err(self.refused(VERB, "a limit or a token to continue from cannot be given".to_owned()));
        }
        if delete.has_preconditions() {
            return Err(self.refused(VERB, "a uid or a resource version is of one object alone".to_owned()));
        }
        let mut gone = Vec::new();
        for place in self.places(list.place::<K>(), &params).await? {
            let shown = place.as_deref().unwrap_or("in no namespace");
            let request = self.request(VERB, &shown, place.as_deref())?.delete_collection(&delete.params(), &params);
            let request = request.map(|mut request| {
                request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA));
                request
            });
            let deleted: Deleted = self.send(VERB, &shown, request).await?;
            if !delete.is_dry_run() {
                self.note_collection(&deleted.items, place.as_deref()).await;
            }
            gone.extend(deleted.items.iter().map(ObjectKey::of));
        }
        Ok(gone)
    }

    /// Where the objects are. Servers delete collections in one namespace at a time.
    async fn places(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<BTreeSet<Option<String>>, ClientError> {
        if is_cluster_scoped::<K>() || namespace.is_some() {
            return Ok([namespace.map(str::to_owned)].into());
        }
        let own = self.client.caches().namespaces();
        if !own.is_empty() {
            return Ok(own.iter().cloned().map(Some).collect());
        }
        let mut places = BTreeSet::new();
        let mut params = ListParams { limit: Some(PAGE), ..params.clone() };
        loop {
            let place = "in all namespaces";
            let request = self.request("list", &place, None)?.list_metadata(&params);
            let page: kube::core::ObjectList<Metadata> = self.send("list", &place, request).await?;
            places.extend(page.items.into_iter().map(|object| object.metadata.namespace));
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(places);
            }
        }
    }

    /// Makes it visible to cached reads that objects were deleted, or are being deleted. Which of them are gone and
    /// what the others look like, the answer does not tell: so the namespace is listed, if it is watched.
    async fn note_collection(&self, deleted: &[Metadata], namespace: Option<&str>) {
        let (caches, resource) = (self.client.caches(), self.resource());
        for version in caches.watched_versions(&resource, namespace).into_iter().filter(|_| !deleted.is_empty()) {
            match Box::pin(self.list_raw(&version, namespace)).await {
                Ok(live) => {
                    for object in deleted {
                        let uid = object.metadata.uid.as_deref();
                        match live.iter().find(|live| live["metadata"]["uid"].as_str() == uid) {
                            Some(live) => caches.note_read(&version, live.to_string().as_bytes()),
                            None => caches.note_delete(&resource, &ObjectKey::of(object), uid),
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, namespace, "deleted objects stay in the cache until the watch reports the deletion");
                }
            }
        }
    }

    /// All objects of a namespace as a server has them, in a version.
    async fn list_raw(&self, version: &ApiResource, namespace: Option<&str>) -> Result<Vec<Value>, ClientError> {
        #[derive(Deserialize)]
        struct List {
            metadata: Continue,
            items: Vec<Value>,
        }
        #[derive(Deserialize)]
        struct Continue {
            #[serde(rename = "continue")]
            token: Option<String>,
        }
        let place = namespace.unwrap_or("in no namespace");
        let (mut objects, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
        loop {
            let namespace = namespace.map(segment::escaped);
            let request = Request::new(DynamicObject::url_path(version, namespace.as_deref()));
            let list: List = self.send("list", &place, request.list(&params)).await?;
            objects.extend(list.items);
            params.continue_token = list.metadata.token.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(objects);
            }
        }
    }
}
