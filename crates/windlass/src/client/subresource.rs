//! Subresources: what is read and written beside an object, under a name of its own.

use std::fmt::Debug;

use kube::api::Patch;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::options::WriteOptions;
use super::{ClientError, Objects};
use crate::key::ObjectKey;
use crate::object::Object;

/// A subresource of a kind. Made by [`Objects::subresource`]. There are methods of their own for the common ones:
/// [`scale`](super::CachedClient::scale), [`evict`](super::CachedClient::evict) and
/// [`token`](super::CachedClient::token); for the status, those that end in `_status`.
///
/// What is read and what the server answers is of a type of the caller's choice, such as `serde_json::Value`. After a
/// write, cached reads show the object as it is then.
///
/// ```
/// # use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
/// # use windlass::{CachedClient, ObjectKey, client::ClientError};
/// async fn bind(client: &CachedClient, pod: &ObjectKey, node: &str) -> Result<(), ClientError> {
///     let mut binding = Binding::default();
///     binding.metadata.name = Some(pod.name().to_owned());
///     binding.target = ObjectReference { kind: Some("Node".into()), name: Some(node.into()), ..Default::default() };
///     let answer: serde_json::Value = client.objects::<Pod>().subresource("binding").create(pod, &binding).await?;
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Subresource<K: Object> {
    objects: Objects<K>,
    name: String,
}

impl<K: Object> Subresource<K> {
    pub(super) fn new(objects: Objects<K>, name: impl Into<String>) -> Self {
        Self { objects, name: name.into() }
    }

    /// The subresource of an object; `None` if there is no such object, or its kind has no such subresource.
    pub async fn get<T: DeserializeOwned>(&self, key: &ObjectKey) -> Result<Option<T>, ClientError> {
        let (request, name) = self.objects.locate("get", key)?;
        let request = request.get_subresource(&self.segment("get", key)?, &name);
        match self.objects.send("get", &self.told(key), request).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Posts to the subresource.
    pub async fn create<T: DeserializeOwned>(&self, key: &ObjectKey, body: &impl Serialize) -> Result<T, ClientError> {
        self.create_with(key, body, WriteOptions::new()).await
    }

    /// [`create`](Self::create) with options.
    pub async fn create_with<T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        body: &impl Serialize,
        options: WriteOptions,
    ) -> Result<T, ClientError> {
        let (request, name) = self.objects.locate("create", key)?;
        let (body, params) = (self.objects.encode(body)?, self.objects.post_params(&options));
        let request = request.create_subresource(&self.segment("create", key)?, &name, &params, body);
        self.write("create", key, request, &options).await
    }

    /// Replaces the subresource.
    pub async fn replace<T: DeserializeOwned>(&self, key: &ObjectKey, body: &impl Serialize) -> Result<T, ClientError> {
        self.replace_with(key, body, WriteOptions::new()).await
    }

    /// [`replace`](Self::replace) with options.
    pub async fn replace_with<T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        body: &impl Serialize,
        options: WriteOptions,
    ) -> Result<T, ClientError> {
        let (request, name) = self.objects.locate("update", key)?;
        let (body, params) = (self.objects.encode(body)?, self.objects.post_params(&options));
        let request = request.replace_subresource(&self.segment("update", key)?, &name, &params, body);
        self.write("update", key, request, &options).await
    }

    /// Changes parts of the subresource.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Debug>,
    ) -> Result<T, ClientError> {
        self.patch_with(key, patch, WriteOptions::new()).await
    }

    /// [`patch`](Self::patch) with options.
    pub async fn patch_with<T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        patch: &Patch<impl Serialize + Debug>,
        options: WriteOptions,
    ) -> Result<T, ClientError> {
        let (request, name) = self.objects.locate("patch", key)?;
        let params = self.objects.patch_params(patch, &options);
        let request = request.patch_subresource(&self.segment("patch", key)?, &name, &params, patch);
        self.write("patch", key, request, &options).await
    }

    async fn write<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        key: &ObjectKey,
        request: super::request::Built,
        options: &WriteOptions,
    ) -> Result<T, ClientError> {
        let request = options.complete(request);
        let text = self.objects.write_beside(verb, key, &self.told(key), request, options.is_dry_run()).await?;
        self.objects.decode(verb, &self.told(key), &text)
    }

    fn segment(&self, verb: &'static str, key: &ObjectKey) -> Result<String, ClientError> {
        self.objects.segment(verb, key, &self.name).map(std::borrow::Cow::into_owned)
    }

    /// How errors name it.
    fn told(&self, key: &ObjectKey) -> String {
        format!("{key} ({})", self.name)
    }
}
