//! How objects are listed, written and deleted, where the defaults do not fit.
//!
//! Every method that has options is called as the one without, and `_with`: `list` and
//! [`list_with`](super::CachedClient::list_with), `delete` and [`delete_with`](super::CachedClient::delete_with).
//!
//! ```
//! # use k8s_openapi::api::core::v1::{ConfigMap, Pod};
//! # use windlass::{Context, ObjectKey};
//! use windlass::client::options::{ApplyOptions, DeleteOptions, ListOptions};
//!
//! # async fn example(ctx: Context, settings: ConfigMap) -> windlass::Result<()> {
//! let web = ListOptions::new().namespace("shop").labels("app=web").fields("status.phase!=Succeeded");
//! for pod in ctx.list_with::<Pod>(web).await? {
//!     // Not another pod that has its name by now, nor this one after a change.
//!     ctx.client().delete_with::<Pod>(&ObjectKey::of(&pod), DeleteOptions::of(&pod)).await?;
//! }
//! // What would be stored, without storing it; a conflict if another owns one of the fields.
//! let options = ApplyOptions::new().dry_run(true).force(false);
//! let result = ctx.client().apply_with(&settings, options).await?;
//! # Ok(()) }
//! ```

use std::time::Duration;

use kube::Resource;
use kube::api::{
    DeleteParams, ListParams, PatchParams, PostParams, Preconditions, PropagationPolicy, ValidationDirective,
};

pub use super::token::TokenOptions;
use crate::object::{AsObject, Object, is_cluster_scoped};
use crate::selector::FieldSelector;
pub use crate::selector::Labels;

/// Which objects are listed. Conditions add up: an object is listed if all of them hold.
///
/// ```
/// use windlass::client::options::ListOptions;
///
/// let web = ListOptions::new().namespace("shop").labels("app=web,tier in (front, back)");
/// let on_node = ListOptions::new().fields("spec.nodeName=node-1");
/// let by_index = ListOptions::new().index("image", "nginx"); // of `Lister::add_index`
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct ListOptions {
    namespace: Option<String>,
    labels: Option<Labels>,
    fields: Option<String>,
    index: Option<(String, String)>,
    limit: Option<u32>,
    continue_token: Option<String>,
}

impl ListOptions {
    /// All objects of the kind.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only objects of a namespace; the empty one means all. Of a type whose objects are in no namespace, all are
    /// listed.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        self
    }

    /// Only objects whose labels match: text such as `app=web,tier in (a,b),!legacy`, kube's
    /// [`Selector`](kube::core::Selector), or the `LabelSelector` of another object.
    pub fn labels(mut self, labels: impl Into<Labels>) -> Self {
        self.labels = Some(labels.into());
        self
    }

    /// Only objects whose fields match: text such as `spec.nodeName=n1,status.phase!=Running`. The operators are `=`,
    /// `==` and `!=`; a field that is missing has the empty value. From the cache, objects can be selected by every
    /// field with a single value. A server knows `metadata.name`, `metadata.namespace` and a few others of each kind,
    /// and refuses a list by any other.
    pub fn fields(mut self, fields: impl Into<String>) -> Self {
        self.fields = Some(fields.into()).filter(|fields| !fields.is_empty());
        self
    }

    /// Only objects that an index files under a value. The index is one that was added to a lister of the kind with
    /// [`Lister::add_index`](crate::cache::Lister::add_index); servers know of none.
    pub fn index(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.index = Some((name.into(), value.into()));
        self
    }

    /// No more objects than this; zero means no limit. From the cache these are any of them.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit).filter(|limit| *limit > 0);
        self
    }

    /// Goes on where the [page](super::Live::page) ended that had this token. Not for lists from the cache.
    pub fn continue_from(mut self, token: impl Into<String>) -> Self {
        self.continue_token = Some(token.into()).filter(|token| !token.is_empty());
        self
    }

    /// The namespace, for a kind whose objects may be in one.
    pub(super) fn place<K: Resource<Scope: 'static>>(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|_| !is_cluster_scoped::<K>())
    }

    /// Whether all that is selected is asked for, and not a part.
    pub(super) fn is_unlimited(&self) -> bool {
        self.limit.is_none() && self.continue_token.is_none()
    }

    /// For a list from the cache. The error says what cannot be done.
    pub(super) fn query<K: Object>(self) -> Result<Query, String> {
        if let Some(labels) = &self.labels {
            labels.check()?;
        }
        if self.continue_token.is_some() {
            return Err("a list from the cache has no pages to continue from".to_owned());
        }
        let fields = self.fields.as_deref().map(FieldSelector::parse).transpose()?.unwrap_or_default();
        let namespace = self.place::<K>().map(str::to_owned);
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        Ok(Query { namespace, labels: self.labels, fields, index: self.index, limit })
    }

    /// For a request. The error says what cannot be done.
    pub(super) fn params(&self) -> Result<ListParams, String> {
        if let Some(labels) = &self.labels {
            labels.check()?;
        }
        if let Some((index, _)) = &self.index {
            return Err(format!("a server does not know the index {index:?}: list from the cache"));
        }
        Ok(ListParams {
            label_selector: self.labels.as_ref().map(ToString::to_string).filter(|labels| !labels.is_empty()),
            field_selector: self.fields.clone(),
            limit: self.limit,
            continue_token: self.continue_token.clone(),
            ..ListParams::default()
        })
    }
}

/// What a list from the cache is of.
pub(super) struct Query {
    pub(super) namespace: Option<String>,
    labels: Option<Labels>,
    fields: FieldSelector,
    pub(super) index: Option<(String, String)>,
    pub(super) limit: usize,
}

impl Query {
    /// Whether an object is selected by its namespace, its labels and its fields.
    pub(super) fn matches<K: Object>(&self, object: &K) -> Result<bool, String> {
        let meta = object.meta();
        if self.namespace.is_some() && self.namespace != meta.namespace {
            return Ok(false);
        }
        if self.labels.as_ref().is_some_and(|selector| !selector.matches(meta.labels.as_ref())) {
            return Ok(false);
        }
        self.fields.matches(meta, object)
    }
}

/// How an object is created, updated or patched.
///
/// ```
/// use kube::api::ValidationDirective;
/// use windlass::client::options::WriteOptions;
///
/// let options = WriteOptions::new().dry_run(true).field_validation(ValidationDirective::Strict);
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct WriteOptions {
    dry_run: bool,
    field_manager: Option<String>,
    field_validation: Option<ValidationDirective>,
}

impl WriteOptions {
    /// As without options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the server only says what it would store. Cached reads do not show it.
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// The name under which the fields written are owned, instead of the client's
    /// [own](super::CachedClient::field_manager).
    pub fn field_manager(mut self, field_manager: impl Into<String>) -> Self {
        self.field_manager = Some(field_manager.into());
        self
    }

    /// What the server does about fields that it does not know or that are there twice. Without, it warns.
    pub fn field_validation(mut self, field_validation: ValidationDirective) -> Self {
        self.field_validation = Some(field_validation);
        self
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    pub(super) fn post_params(&self, field_manager: &str) -> PostParams {
        let field_manager = self.field_manager.clone().unwrap_or_else(|| field_manager.to_owned());
        PostParams { dry_run: self.dry_run, field_manager: Some(field_manager) }
    }

    pub(super) fn patch_params(&self, field_manager: &str, force: bool) -> PatchParams {
        let PostParams { dry_run, field_manager } = self.post_params(field_manager);
        PatchParams { dry_run, field_manager, force, ..PatchParams::default() }
    }

    pub(super) fn validation(&self) -> Option<&'static str> {
        self.field_validation.as_ref().map(|directive| match directive {
            ValidationDirective::Strict => "Strict",
            ValidationDirective::Warn => "Warn",
            ValidationDirective::Ignore => "Ignore",
        })
    }
}

/// How an object is applied (server-side apply).
///
/// ```
/// use windlass::client::options::ApplyOptions;
///
/// // Fails with a conflict where another field manager owns one of the fields.
/// let polite = ApplyOptions::new().force(false).field_manager("petstore-labels");
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
#[must_use]
pub struct ApplyOptions {
    pub(super) write: WriteOptions,
    pub(super) force: bool,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self { write: WriteOptions::default(), force: true }
    }
}

impl ApplyOptions {
    /// As without options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether fields that others own are taken over, which is so unless said otherwise. Otherwise that is a
    /// [conflict](super::ClientError::is_conflict), and nothing is written.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// See [`WriteOptions::dry_run`].
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.write = self.write.dry_run(dry_run);
        self
    }

    /// See [`WriteOptions::field_manager`].
    pub fn field_manager(mut self, field_manager: impl Into<String>) -> Self {
        self.write = self.write.field_manager(field_manager);
        self
    }

    /// See [`WriteOptions::field_validation`].
    pub fn field_validation(mut self, field_validation: ValidationDirective) -> Self {
        self.write = self.write.field_validation(field_validation);
        self
    }
}

/// How an object is deleted.
///
/// ```
/// use std::time::Duration;
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::api::PropagationPolicy;
/// use windlass::client::options::DeleteOptions;
///
/// # let pod = Pod::default();
/// let as_read = DeleteOptions::of(&pod); // a conflict if it has changed since, or is another by now
/// let at_once = DeleteOptions::new().grace_period(Duration::ZERO);
/// let children_first = DeleteOptions::new().propagation(PropagationPolicy::Foreground);
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct DeleteOptions {
    uid: Option<String>,
    resource_version: Option<String>,
    propagation: Option<PropagationPolicy>,
    grace_period: Option<Duration>,
    dry_run: bool,
}

impl DeleteOptions {
    /// As without options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only this object, and only as it was read: if it has changed since, or another has its name by now, that is a
    /// [conflict](super::ClientError::is_conflict). See [`uid`](Self::uid) for an object that may change.
    pub fn of<Form>(object: &impl AsObject<Form>) -> Self {
        let meta = object.as_object().meta();
        Self { uid: meta.uid.clone(), resource_version: meta.resource_version.clone(), ..Self::default() }
    }

    /// Only the object with this uid: if another has its name by now, that is a conflict.
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = Some(uid.into());
        self
    }

    /// Only the object in this version: if it has changed since, that is a conflict.
    pub fn resource_version(mut self, resource_version: impl Into<String>) -> Self {
        self.resource_version = Some(resource_version.into());
        self
    }

    /// What becomes of objects that the object owns. Without, the kind decides; for most they are deleted afterwards.
    pub fn propagation(mut self, propagation: PropagationPolicy) -> Self {
        self.propagation = Some(propagation);
        self
    }

    /// How long a pod may take to stop, in whole seconds, instead of what it says itself.
    pub fn grace_period(mut self, grace_period: Duration) -> Self {
        self.grace_period = Some(grace_period);
        self
    }

    /// Whether the server only checks that it would delete the object. Cached reads still show it.
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    pub(super) fn has_preconditions(&self) -> bool {
        self.uid.is_some() || self.resource_version.is_some()
    }

    pub(super) fn params(&self) -> DeleteParams {
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let preconditions = self
            .has_preconditions()
            .then(|| Preconditions { uid: self.uid.clone(), resource_version: self.resource_version.clone() });
        DeleteParams {
            dry_run: self.dry_run,
            grace_period_seconds: self.grace_period.map(seconds),
            propagation_policy: self.propagation.clone(),
            preconditions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_list_cannot_do_is_said() {
        let query = |options: ListOptions| options.query::<k8s_openapi::api::core::v1::Pod>().map(drop);
        assert_eq!(query(ListOptions::new().namespace("").fields("").limit(0)), Ok(()));
        assert!(query(ListOptions::new().labels("a=(")).is_err_and(|error| error.starts_with("label selector ")));
        assert!(query(ListOptions::new().fields("a")).is_err_and(|error| error.starts_with("field selector ")));
        assert!(query(ListOptions::new().continue_from("x")).is_err_and(|error| error.contains("pages")));
        let error = ListOptions::new().index("node", "n1").params().map(drop);
        assert_eq!(error, Err("a server does not know the index \"node\": list from the cache".into()));
        assert!(ListOptions::new().labels("a=(").params().is_err());
    }

    #[test]
    fn requests_carry_what_is_asked_for() {
        let params = ListOptions::new().labels(" a = b ").fields("x.y=z").limit(5).continue_from("t").params();
        let params = params.expect("possible");
        assert_eq!(params.label_selector.as_deref(), Some("a=b"));
        assert_eq!((params.field_selector.as_deref(), params.limit), (Some("x.y=z"), Some(5)));
        assert_eq!(params.continue_token.as_deref(), Some("t"));
        assert_eq!(ListOptions::new().labels("").params(), Ok(ListParams::default()));

        let write = WriteOptions::new().dry_run(true);
        assert_eq!(write.post_params("me"), PostParams { dry_run: true, field_manager: Some("me".into()) });
        let patch = ApplyOptions::new().field_manager("other").write.patch_params("me", true);
        assert_eq!((patch.field_manager.as_deref(), patch.force, patch.dry_run), (Some("other"), true, false));
        assert!(ApplyOptions::new().force && !ApplyOptions::new().force(false).force);

        let delete = DeleteOptions::new().grace_period(Duration::from_millis(2900)).params();
        assert_eq!((delete.grace_period_seconds, delete.preconditions), (Some(2), None));
        let mut pod = k8s_openapi::api::core::v1::Pod::default();
        (pod.metadata.uid, pod.metadata.resource_version) = (Some("u".into()), Some("7".into()));
        let exact = DeleteOptions::of(&pod).params().preconditions.expect("of this object");
        assert_eq!((exact.uid.as_deref(), exact.resource_version.as_deref()), (Some("u"), Some("7")));
    }
}
