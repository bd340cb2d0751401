//! Why reads and writes fail, and trying again when another writer was faster.

use kube::core::Status;

use crate::informer::SyncError;
use crate::outage::cause;
use crate::retry::ConflictRetry;

/// Why a read or write failed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// # let client = windlass::CachedClient::standalone(kube, "example");
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("settings".into());
/// map.metadata.namespace = Some("default".into());
/// client.create(&map).await?;
/// let error = client.create(&map).await.unwrap_err();
/// assert!(error.is_already_exists());
/// assert_eq!(error.to_string(), "create configmaps/v1 default/settings: configmaps \"settings\" already exists");
/// # client.caches().stop().await;
/// # Ok(()) }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server refused, or could not be reached.
    #[error("{verb} {kind} {key}: {}", cause(source))]
    Request {
        /// What was attempted.
        verb: &'static str,
        /// The kind, as `pets.petstore.example.com/v1alpha1`.
        kind: String,
        /// The object, or the namespace of a list.
        key: String,
        /// What the server or the connection said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The object is of a kind that lives in namespaces, and says none.
    #[error("{verb} {kind} {key}: no namespace is given")]
    NoNamespace {
        /// What was attempted.
        verb: &'static str,
        /// The kind.
        kind: String,
        /// The object.
        key: String,
    },
    /// A name or namespace that no object can have, as it would lead elsewhere in a URL. Nothing was sent.
    #[error("{verb} {kind} {key}: {name:?} {refusal}")]
    InvalidName {
        /// What was attempted.
        verb: &'static str,
        /// The kind.
        kind: String,
        /// The object, or the namespace of a list.
        key: String,
        /// The name or the namespace.
        name: String,
        /// What is wrong with it.
        refusal: &'static str,
    },
    /// A draft changes a list of which the cache shows only a part. Nothing of that was sent.
    #[error(
        "commit {kind} {key}: {field} on the server is not what the draft was made of: the cache's transform hides it, \
         so read the object live (`client.live().get`) to change it"
    )]
    Hidden {
        /// The kind.
        kind: String,
        /// The object.
        key: String,
        /// The list, as `spec.tricks`, or what it is in.
        field: String,
    },
    /// A condition that a draft's object cannot have. Nothing was sent.
    #[error("commit {kind} {key}: the condition {condition:?} cannot be set: {reason}")]
    Condition {
        /// The kind.
        kind: String,
        /// The object.
        key: String,
        /// The type of the condition.
        condition: String,
        /// Why there is no place for it.
        reason: String,
    },
    /// Options that cannot be, as a selector that cannot be understood. Nothing was sent.
    #[error("{verb} {kind}: {reason}")]
    Options {
        /// What was attempted.
        verb: &'static str,
        /// The kind.
        kind: String,
        /// What is wrong with them.
        reason: String,
    },
    /// A list by an index that the lister of the kind does not have.
    #[error("list {kind}: there is no index {index:?}: add it with `Lister::add_index` before it is listed by")]
    UnknownIndex {
        /// The kind.
        kind: String,
        /// The index.
        index: String,
    },
    /// The cache has no complete state.
    #[error(transparent)]
    Cache(#[from] SyncError),
    /// The object cannot be written as JSON.
    #[error("encode {kind}: {source}")]
    Encode {
        /// The kind.
        kind: String,
        /// What serde said.
        #[source]
        source: serde_json::Error,
    },
}

crate::report::debug_as_message!(ClientError);

impl ClientError {
    /// What the server answered, if it did.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Request { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// Whether another client changed the object first.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    /// Whether an object of that name is there already.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// Whether the server asks to come back later (429): it is busy or, for an [eviction](super::CachedClient::evict),
    /// the pod's disruption budget cannot spare the pod now.
    pub fn is_too_many_requests(&self) -> bool {
        self.status().is_some_and(|status| status.code == 429)
    }

    /// Whether this client may not do that.
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(Status::is_forbidden)
    }

    /// Whether the server would not accept the object however often it is sent.
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(Status::is_invalid)
    }
}

/// Does something again when another writer was faster, for half a minute. What is done must read
/// the object anew each time, from the server.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// # let client = windlass::CachedClient::standalone(kube, "example");
/// # let mut map = k8s_openapi::api::core::v1::ConfigMap::default();
/// # map.metadata.name = Some("settings".into());
/// # map.metadata.namespace = Some("default".into());
/// # client.create(&map).await?;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::{ObjectKey, client::retry_on_conflict};
///
/// let (client, key) = (&client, &ObjectKey::new("default", "settings"));
/// retry_on_conflict(async || {
///     let Some(mut map) = client.live().get::<ConfigMap>(key).await? else { return Ok(()) };
///     map.immutable = Some(true);
///     client.update(&map).await.map(drop)
/// })
/// .await?;
/// # client.caches().stop().await;
/// # Ok(()) }
/// ```
pub async fn retry_on_conflict<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let mut retry = ConflictRetry::new();
    loop {
        match attempt().await {
            Err(error) if error.is_conflict() && retry.pause().await => {}
            done => return done,
        }
    }
}
