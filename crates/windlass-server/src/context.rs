//! One request for a resource: its user, its verb and object, and the state of the server that it is answered from.

mod conversions;
mod size;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use jiff::Timestamp;
use serde_json::Value;

use crate::admission_config::AdmissionPlugin;
use crate::api::Api;
use crate::audit::Annotations;
use crate::catalog::Served;
use crate::codec::json;
use crate::codec::negotiate::{APPLY_TYPE, Accepted};
use crate::depth;
use crate::metrics::Waits;
use crate::object::{self, metadata_mut};
use crate::request::{Query, ResourcePath, Verb};
use crate::status::{Qualified, Status};
use crate::stored::{Encoded, Stored};
use crate::streams::upgrade::Takeover;
use crate::user::{MASTERS, User};
use crate::validation::metadata::Rules;
use crate::versions;

pub use crate::answer::Answer;
pub use conversions::Conversions;
pub(crate) use conversions::Wanted;

/// One request for a resource.
pub struct Context {
    /// The server.
    pub api: Arc<Api>,
    /// The resource asked for.
    pub served: Arc<Served>,
    /// The user of the request.
    pub user: User,
    /// What is to be done.
    pub verb: Verb,
    /// The path, resolved.
    pub path: ResourcePath,
    /// The query.
    pub query: Query,
    /// The headers.
    pub headers: HeaderMap,
    /// The form the client wants the answer in.
    pub accepted: Accepted,
    /// The body.
    pub body: Bytes,
    /// When the request came in.
    pub now: Timestamp,
    /// What the client is to be warned of.
    pub warnings: Vec<String>,
    /// What conversion webhooks said about its objects.
    pub conversions: Conversions,
    /// How long it has waited for admission webhooks.
    pub waits: Waits,
    /// What is added to its event in the audit log.
    pub(crate) annotations: Annotations,
    /// What the request was before it was taken apart.
    pub(crate) connection: Connection,
}

/// The part of a request that only matters where it is passed on, or where its connection becomes another.
#[derive(Default)]
pub(crate) struct Connection {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// Has something else serve the connection, if it can be taken over.
    pub(crate) takeover: Option<Takeover>,
}

impl Connection {
    /// What follows a proxying subresource in the path, as the client wrote it.
    pub(crate) fn rest(&self) -> &str {
        let path = self.uri.path();
        path.find("/proxy").map_or("", |at| &path[at + "/proxy".len()..])
    }
}

impl Context {
    /// What the server itself asks for when it writes the status of an object without a namespace: upstream's
    /// controllers inside the API server are its clients, and subject to admission.
    pub(crate) fn own_status_update(api: &Arc<Api>, served: &Arc<Served>, name: &str) -> Self {
        let mut own = Self::own(api, served, Verb::Update);
        own.path.name = Some(name.to_owned());
        own.path.subresource = Some("status".to_owned());
        own
    }

    /// What the server itself asks for when it creates an object without a namespace.
    pub(crate) fn own_create(api: &Arc<Api>, served: &Arc<Served>, object: &Value) -> Self {
        let mut own = Self::own(api, served, Verb::Create);
        own.headers.insert(http::header::USER_AGENT, http::HeaderValue::from_static("kube-apiserver"));
        own.body = object.to_string().into();
        own
    }

    fn own(api: &Arc<Api>, served: &Arc<Served>, verb: Verb) -> Self {
        let path = ResourcePath {
            group: served.group.to_string(),
            version: served.version.to_string(),
            namespace: None,
            resource: served.plural.to_string(),
            name: None,
            subresource: None,
            rest: None,
            watch_prefix: false,
        };
        Self {
            api: Arc::clone(api),
            served: Arc::clone(served),
            user: User::new("system:apiserver", [MASTERS.to_owned()]),
            verb,
            path,
            query: Query::default(),
            headers: HeaderMap::new(),
            accepted: Accepted::json(),
            body: Bytes::new(),
            now: api.now(),
            warnings: Vec::new(),
            conversions: Conversions::default(),
            waits: Waits::default(),
            annotations: Annotations::default(),
            connection: Connection::default(),
        }
    }

    /// The same request once more, without what was found out about it so far.
    pub(crate) fn fork(&self) -> Self {
        Self {
            api: Arc::clone(&self.api),
            served: Arc::clone(&self.served),
            user: self.user.clone(),
            verb: self.verb,
            path: self.path.clone(),
            query: self.query.clone(),
            headers: self.headers.clone(),
            accepted: self.accepted.clone(),
            body: self.body.clone(),
            now: self.now,
            warnings: Vec::new(),
            conversions: Conversions::default(),
            waits: self.waits.clone(),
            annotations: self.annotations.clone(),
            connection: Connection::default(),
        }
    }

    /// Whether the server runs an admission plugin.
    pub(crate) fn runs(&self, plugin: AdmissionPlugin) -> bool {
        self.api.plugins.contains(plugin)
    }

    /// The namespace of the path; empty for cluster-scoped resources.
    pub fn namespace(&self) -> &str {
        self.path.namespace.as_deref().unwrap_or_default()
    }

    /// The name in the path; empty if there is none.
    pub fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    /// The subresource in the path; empty if there is none.
    pub fn subresource(&self) -> &str {
        self.path.subresource.as_deref().unwrap_or_default()
    }

    /// The key of the object that the path names.
    pub fn key(&self) -> Bytes {
        self.served.key(self.namespace(), self.name()).into()
    }

    /// The resource as messages name it.
    pub fn qualified(&self) -> Qualified<'_> {
        self.served.qualified()
    }

    /// The kind as validation errors name it: a custom resource's is the one its body claims.
    pub(crate) fn qualified_kind_of<'a>(&'a self, object: &'a Value) -> Qualified<'a> {
        let kind = self.served.qualified_kind();
        let claimed = object.get("kind").and_then(Value::as_str).filter(|_| self.served.custom);
        Qualified { name: claimed.unwrap_or(kind.name), ..kind }
    }

    /// 404 for the object that the path names.
    pub fn not_found(&self) -> Status {
        Status::not_found(self.qualified(), self.name())
    }

    /// What the kind asks of metadata.
    pub fn metadata_rules(&self) -> Rules {
        self.served.metadata_rules()
    }

    /// The manager that writes are attributed to: the one given, or the client's product name.
    pub fn manager(&self, given: Option<&str>) -> String {
        if let Some(given) = given {
            return given.to_owned();
        }
        let agent = self.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let product = agent.unwrap_or("unknown").split('/').next().unwrap_or_default();
        product.chars().take(128).collect()
    }

    /// An object, in the form strategies handle, as the store takes it if it is not too large. `replaced` is the
    /// size of the stored object in its place.
    ///
    /// An object that is too large only because of what it says about owners loses that, unless it is applied: what was
    /// applied is known from there.
    pub(crate) async fn encode_within(&self, object: &Value, replaced: usize) -> Result<windlass_store::Value, Status> {
        let stored = versions::to_stored(&self.api, &self.served, object).await?;
        let encoded = Encoded::about(&stored, self.body.len());
        check_nesting(object, encoded.len())?;
        let Err(refusal) = size::check(&self.served, &stored, encoded.len(), replaced) else {
            return Ok(encoded.into_value());
        };
        if self.is_apply() || object::metadata(&stored).get("managedFields").is_none() {
            return Err(refusal);
        }
        drop(encoded);
        let mut stored = stored.into_owned();
        metadata_mut(&mut stored).remove("managedFields");
        let encoded = Encoded::about(&stored, self.body.len());
        size::check(&self.served, &stored, encoded.len(), replaced)?;
        Ok(encoded.into_value())
    }

    /// Whether this is a server-side apply.
    fn is_apply(&self) -> bool {
        let content_type = self.headers.get(http::header::CONTENT_TYPE);
        self.verb == Verb::Patch && content_type.is_some_and(|kind| kind.as_bytes().starts_with(APPLY_TYPE))
    }

    /// An object, in the form strategies handle, as the store takes it, however large: for what is deleted.
    pub async fn encode(&self, object: &Value) -> Result<windlass_store::Value, Status> {
        let stored = versions::to_stored(&self.api, &self.served, object).await?;
        let encoded = Encoded::about(&stored, self.body.len());
        check_nesting(object, encoded.len())?;
        Ok(encoded.into_value())
    }

    /// An object that was not stored, as the answer shows it.
    pub(crate) async fn unsaved(&self, object: &Value) -> Result<Stored, Status> {
        let stored = versions::to_stored(&self.api, &self.served, object).await?;
        let unsaved = Stored::unsaved(&stored);
        check_nesting(object, unsaved.bytes.len())?;
        Ok(unsaved)
    }

    /// One object as the answer, with the warnings gathered so far.
    pub fn answer(&mut self, code: StatusCode, object: Stored) -> Answer {
        Answer::Object { code, object, warnings: std::mem::take(&mut self.warnings) }
    }
}

/// What cannot be read again is not stored: patches and webhooks may nest deeper than any body. `size` is that of the object in
/// bytes, of which each level takes two: most objects have too few to nest too deep.
fn check_nesting(object: &Value, size: usize) -> Result<(), Status> {
    if size < 2 * depth::limit() || json::is_shallow(object) {
        return Ok(());
    }
    Err(Status::bad_request(format!("the object exceeded max depth of {}", depth::limit())))
}
