//! Reads that ask the server.

use kube::api::GetParams;
use kube::core::ObjectList;

use super::options::ListOptions;
use super::{CachedClient, ClientError, Objects};
use crate::key::ObjectKey;
use crate::object::{Object, TypedObject, fill_types, types_to_fill};

/// Reads that ask the server, for when the cache is not enough.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// # let client = windlass::CachedClient::standalone(kube, "example");
/// use k8s_openapi::api::core::v1::Namespace;
/// use windlass::client::options::ListOptions;
///
/// let options = ListOptions::new().fields("metadata.name=default");
/// let namespaces: Vec<Namespace> = client.live().list_with(options).await?;
/// assert_eq!(namespaces.len(), 1);
/// # client.caches().stop().await;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Live<'a> {
    pub(super) client: &'a CachedClient,
}

impl Live<'_> {
    /// An object as the server has it now.
    pub async fn get<K: TypedObject>(&self, key: &ObjectKey) -> Result<Option<K>, ClientError> {
        self.client.objects().live().get(key).await
    }

    /// All objects of a kind as the server has them now.
    pub async fn list<K: TypedObject>(&self) -> Result<Vec<K>, ClientError> {
        self.client.objects().live().list().await
    }

    /// Objects as the server has them now. With a [limit](ListOptions::limit), no more than that;
    /// [`page`](Self::page) goes on where one ends.
    pub async fn list_with<K: TypedObject>(&self, options: ListOptions) -> Result<Vec<K>, ClientError> {
        self.client.objects().live().list_with(options).await
    }

    /// At most as many objects as the limit says, and where to go on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = windlass_server::Server::builder().start().await?;
    /// # let kube = kube::Client::new(server.service(), "default");
    /// # let client = windlass::CachedClient::standalone(kube, "example");
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use windlass::client::options::ListOptions;
    ///
    /// let (mut options, mut names) = (ListOptions::new().limit(2), Vec::new());
    /// loop {
    ///     let page = client.live().page::<Namespace>(options.clone()).await?;
    ///     names.extend(page.items.into_iter().filter_map(|namespace| namespace.metadata.name));
    ///     match page.metadata.continue_.filter(|token| !token.is_empty()) {
    ///         Some(token) => options = options.continue_from(token),
    ///         None => break,
    ///     }
    /// }
    /// assert!(names.len() > 2);
    /// # client.caches().stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn page<K: TypedObject>(&self, options: ListOptions) -> Result<ObjectList<K>, ClientError> {
        self.client.objects().live().page(options).await
    }
}

/// Reads of one kind that ask the server. Made by [`Objects::live`].
///
/// ```
/// # use kube::api::ApiResource;
/// # use windlass::{CachedClient, ObjectKey, client::ClientError};
/// # async fn example(client: CachedClient, gateways: ApiResource) -> Result<(), ClientError> {
/// let gateways = client.dynamic(&gateways);
/// let gateway = gateways.live().get(&ObjectKey::new("default", "shop")).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct LiveObjects<'a, K: Object> {
    pub(super) objects: &'a Objects<K>,
}

impl<K: Object> LiveObjects<'_, K> {
    /// See [`Live::get`].
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<K>, ClientError> {
        let (request, name) = self.objects.locate("get", key)?;
        let params = GetParams::default();
        let request =
            if K::metadata_api() { request.get_metadata(&name, &params) } else { request.get(&name, &params) };
        match self.objects.send("get", key, request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// See [`Live::list`].
    pub async fn list(&self) -> Result<Vec<K>, ClientError> {
        self.list_with(ListOptions::new()).await
    }

    /// See [`Live::list_with`].
    pub async fn list_with(&self, options: ListOptions) -> Result<Vec<K>, ClientError> {
        Ok(self.page(options).await?.items)
    }

    /// See [`Live::page`].
    pub async fn page(&self, options: ListOptions) -> Result<ObjectList<K>, ClientError> {
        let params = options.params().map_err(|reason| self.objects.refused("list", reason))?;
        let namespace = options.place::<K>();
        let place = namespace.unwrap_or("in all namespaces");
        let request = self.objects.request("list", &place, namespace)?;
        let request = if K::metadata_api() { request.list_metadata(&params) } else { request.list(&params) };
        let mut list: ObjectList<K> = self.objects.send("list", &place, request).await?;
        if let Some(types) = types_to_fill::<K>(&self.objects.dt) {
            list.items.iter_mut().for_each(|object| fill_types(object, &types));
        }
        Ok(list)
    }
}
