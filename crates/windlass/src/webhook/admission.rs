//! What users write for admission: defaulting, validating, or the whole review by hand.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::DynamicObject;
use kube::core::admission::AdmissionRequest;
use serde_json::Value;

use super::{Denied, Response, Warnings, diff};
use crate::decode::{DecodeError, from_ref};
use crate::object::{Object, TypedObject};

pub use kube::core::admission::Operation;

/// An admission request: the user, the operation and the object.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::webhook::Request;
///
/// fn who(request: &Request<ConfigMap>) -> &str {
///     request.user_info.username.as_deref().unwrap_or("somebody")
/// }
/// ```
pub type Request<K = DynamicObject> = AdmissionRequest<K>;

/// What a validator decides: admitted, perhaps with warnings, or denied.
///
/// ```
/// use windlass::webhook::{Denied, Verdict, Warnings};
///
/// fn judge(legs: u8) -> Verdict {
///     match legs {
///         0 => Err(Denied::new("how does it walk?")),
///         1 => Ok(Warnings::from("one leg is not many")),
///         _ => Ok(Warnings::none()),
///     }
/// }
/// ```
pub type Verdict = Result<Warnings, Denied>;

/// Fills in what a user left out, before the object is validated and stored.
///
/// Called for creates and updates, never for deletes. It must be idempotent: the API server may
/// call again after other webhooks.
///
/// What it changes is sent as a patch; fields that the type does not know are left alone.
///
/// `old_object` of the request is absent if what is stored no longer fits the type, as when a field has
/// become required since: such an object can be repaired.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::webhook::{Defaulter, Denied, Request};
///
/// struct Legs;
///
/// impl Defaulter<ConfigMap> for Legs {
///     async fn set_defaults(&self, map: &mut ConfigMap, _: &Request<ConfigMap>) -> Result<(), Denied> {
///         map.data.get_or_insert_default().entry("legs".into()).or_insert("4".into());
///         Ok(())
///     }
/// }
/// ```
pub trait Defaulter<K: Object>: Send + Sync + 'static {
    /// Changes the object in place, or denies the request.
    fn set_defaults(&self, object: &mut K, request: &Request<K>) -> impl Future<Output = Result<(), Denied>> + Send;
}

/// Decides whether an object may be as it is.
///
/// Creates and updates are validated. A validator of deletes says so in [`OPERATIONS`](Self::OPERATIONS), as below;
/// [`Admission::operations`] can still choose others.
///
/// An object in the request that does not fit the type is refused. One that is stored and no longer does,
/// as when a field has become required since, can still be repaired and deleted, with a warning that says
/// what does not fit: an update that repairs it is asked about with
/// [`validate_create`](Self::validate_create), since there is nothing to compare it with; a delete of it is
/// not asked about, nor are changes to its metadata once it is being deleted, so that its finalizers can be
/// taken off.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::webhook::{FieldErrors, Request, Validate, Verdict};
///
/// struct Legs;
///
/// impl Validate<ConfigMap> for Legs {
///     async fn validate_create(&self, map: &ConfigMap, request: &Request<ConfigMap>) -> Verdict {
///         let mut errors = FieldErrors::default();
///         if !map.data.as_ref().is_some_and(|data| data.contains_key("legs")) {
///             errors.required("data.legs", "");
///         }
///         errors.into_result::<ConfigMap>(&request.name)
///     }
/// }
/// ```
///
/// A validator that is asked about deletes, too:
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::webhook::{Denied, Operation, Request, Validate, Verdict, Warnings, Webhooks};
///
/// struct Protected;
///
/// impl Validate<ConfigMap> for Protected {
///     const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update, Operation::Delete];
///
///     async fn validate_create(&self, _: &ConfigMap, _: &Request<ConfigMap>) -> Verdict {
///         Ok(Warnings::none())
///     }
///
///     async fn validate_delete(&self, map: &ConfigMap, _: &Request<ConfigMap>) -> Verdict {
///         if map.immutable == Some(true) { Err(Denied::new("it stays")) } else { Ok(Warnings::none()) }
///     }
/// }
///
/// let webhooks = Webhooks::new().validator::<ConfigMap>(Protected);
/// ```
pub trait Validate<K: Object>: Send + Sync + 'static {
    /// What the validator is asked about: creates and updates, unless an implementation says otherwise.
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update];

    /// Decides about a new object.
    fn validate_create(&self, object: &K, request: &Request<K>) -> impl Future<Output = Verdict> + Send;

    /// Decides about a change; by default as if the object were new. `old` is what is stored, which may break
    /// rules that are newer than it.
    fn validate_update(&self, old: &K, new: &K, request: &Request<K>) -> impl Future<Output = Verdict> + Send {
        let _ = old;
        self.validate_create(new, request)
    }

    /// Decides whether an object may go; by default it may. [`OPERATIONS`](Self::OPERATIONS) must name
    /// [`Operation::Delete`], or API servers do not ask.
    fn validate_delete(&self, object: &K, request: &Request<K>) -> impl Future<Output = Verdict> + Send {
        let _ = (object, request);
        async { Ok(Warnings::none()) }
    }
}

/// Answers reviews by hand, of any kind: with what neither [`Defaulter`] nor [`Validate`] covers.
///
/// ```
/// use windlass::webhook::{Handle, Request, Response};
///
/// struct AllowAll;
///
/// impl Handle for AllowAll {
///     async fn handle(&self, request: Request) -> Response {
///         Response::allowed().audit("seen", request.name)
///     }
/// }
/// ```
pub trait Handle: Send + Sync + 'static {
    /// Answers one review.
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send;
}

/// A raw handler made of a function.
///
/// ```
/// use windlass::webhook::{self, Admission, Response};
///
/// let hook = Admission::validating_raw(
///     "/validate-anything",
///     webhook::from_fn(|request| async move { Response::allowed().warn(format!("hello, {}", request.name)) }),
/// );
/// ```
pub fn from_fn<F, Fut>(function: F) -> impl Handle
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    FromFn(function)
}

struct FromFn<F>(F);

impl<F, Fut> Handle for FromFn<F>
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    async fn handle(&self, request: Request) -> Response {
        (self.0)(request).await
    }
}

/// Whether a webhook may change objects or only judge them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Mutating,
    Validating,
}

impl Phase {
    /// The name of the configuration that an operator of this name makes.
    pub(super) fn configuration(self, name: &str) -> String {
        let phase = match self {
            Self::Mutating => "mutating",
            Self::Validating => "validating",
        };
        format!("{name}-{phase}-webhook-configuration")
    }
}

fn operations_of<K: Object, V: Validate<K>>(_: &V) -> &'static [Operation] {
    V::OPERATIONS
}

/// What becomes of a request when the webhook cannot be asked.
///
/// ```
/// use windlass::webhook::{Admission, FailurePolicy, Response, from_fn};
///
/// let hook = Admission::validating_raw("/x", from_fn(|_| async { Response::allowed() }))
///     .failure_policy(FailurePolicy::Ignore);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It is refused.
    #[default]
    Fail,
    /// It goes on as if there were no webhook.
    Ignore,
}

pub(super) type Respond = Arc<dyn Fn(Value) -> BoxFuture<'static, Response> + Send + Sync>;

/// One admission webhook: who answers, at which path, and what it wants to be asked about.
///
/// Everything but the path only matters when the configuration is made from it, by
/// [`SelfManaged::register`](super::SelfManaged::register) or
/// [`Webhooks::validating_configuration`](super::Webhooks::validating_configuration).
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass::webhook::{Request, Validate, Verdict, Warnings};
/// # struct Legs;
/// # impl Validate<ConfigMap> for Legs {
/// #     async fn validate_create(&self, _: &ConfigMap, _: &Request<ConfigMap>) -> Verdict { Ok(Warnings::none()) }
/// # }
/// use windlass::webhook::{Admission, Operation, Webhooks};
///
/// let hook = Admission::validating::<ConfigMap>(Legs).operations([Operation::Create, Operation::Delete]);
/// assert_eq!(hook.path(), "/validate--v1-configmap");
/// let webhooks = Webhooks::new().admission(hook);
/// ```
#[derive(Clone)]
#[must_use = "a webhook does nothing before it is added to `Webhooks`"]
pub struct Admission {
    pub(super) phase: Phase,
    pub(super) path: String,
    pub(super) name: String,
    pub(super) rules: Vec<RuleWithOperations>,
    pub(super) failure_policy: FailurePolicy,
    pub(super) timeout: Duration,
    pub(super) reinvoke: bool,
    pub(super) namespace_selector: Option<LabelSelector>,
    pub(super) object_selector: Option<LabelSelector>,
    pub(super) respond: Respond,
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("name", &self.name).field("path", &self.path).finish_non_exhaustive()
    }
}

impl Admission {
    /// A defaulting webhook at controller-runtime's path, `/mutate-<group>-<version>-<kind>`.
    pub fn defaulting<K: TypedObject>(defaulter: impl Defaulter<K>) -> Self {
        let defaulter = Arc::new(defaulter);
        let respond: Respond = Arc::new(move |request| {
            let defaulter = Arc::clone(&defaulter);
            Box::pin(async move { set_defaults(&*defaulter, request).await.unwrap_or_else(Into::into) })
        });
        Self::for_kind::<K>(Phase::Mutating, respond)
    }

    /// A validating webhook at controller-runtime's path, `/validate-<group>-<version>-<kind>`, that is asked about the
    /// validator's [operations](Validate::OPERATIONS).
    pub fn validating<K: TypedObject>(validator: impl Validate<K>) -> Self {
        let operations = operations_of(&validator);
        let validator = Arc::new(validator);
        let respond: Respond = Arc::new(move |request| {
            let validator = Arc::clone(&validator);
            Box::pin(async move { validate(&*validator, &request).await.into() })
        });
        Self::for_kind::<K>(Phase::Validating, respond).operations(operations.iter().cloned())
    }

    /// A webhook that may change objects, answered by hand. It needs [rules](Self::rule) to be
    /// registered.
    pub fn mutating_raw(path: impl Into<String>, handler: impl Handle) -> Self {
        Self::raw(Phase::Mutating, path.into(), handler)
    }

    /// A webhook that may only judge, answered by hand. It needs [rules](Self::rule) to be
    /// registered.
    pub fn validating_raw(path: impl Into<String>, handler: impl Handle) -> Self {
        Self::raw(Phase::Validating, path.into(), handler)
    }

    fn raw(phase: Phase, path: String, handler: impl Handle) -> Self {
        let handler = Arc::new(handler);
        let respond: Respond = Arc::new(move |request| {
            let handler = Arc::clone(&handler);
            Box::pin(async move {
                match from_ref(&request) {
                    Ok(request) => handler.handle(request).await,
                    Err(error) => bad_request(format!("cannot decode the request: {error}")).into(),
                }
            })
        });
        let name = match path.trim_matches('/') {
            "" => "root.kb.io".to_owned(),
            path => format!("{}.kb.io", path.replace(['/', '_'], "-").to_lowercase()),
        };
        Self::new(phase, path, name, Vec::new(), respond)
    }

    fn for_kind<K: TypedObject>(phase: Phase, respond: Respond) -> Self {
        let dynamic = K::DynamicType::default();
        let (group, version) = (K::group(&dynamic), K::version(&dynamic));
        let kind = K::kind(&dynamic).to_lowercase();
        let (prefix, initial) = match phase {
            Phase::Mutating => ("mutate", 'm'),
            Phase::Validating => ("validate", 'v'),
        };
        let path = format!("/{prefix}-{}-{version}-{kind}", group.replace('.', "-"));
        let name = format!("{initial}{kind}-{version}.kb.io");
        let rule = RuleWithOperations {
            api_groups: Some(vec![group.into_owned()]),
            api_versions: Some(vec![version.into_owned()]),
            operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
            resources: Some(vec![K::plural(&dynamic).into_owned()]),
            scope: None,
        };
        Self::new(phase, path, name, vec![rule], respond)
    }

    fn new(phase: Phase, path: String, name: String, rules: Vec<RuleWithOperations>, respond: Respond) -> Self {
        Self {
            phase,
            path,
            name,
            rules,
            failure_policy: FailurePolicy::default(),
            timeout: Duration::from_secs(10),
            reinvoke: false,
            namespace_selector: None,
            object_selector: None,
            respond,
        }
    }

    /// Serves it at another path: letters, digits, `-` and `_` between slashes.
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Where it is served.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its name in the configuration, a domain of at least three parts. By default kubebuilder's,
    /// as `vpet-v1.kb.io`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Which operations it is asked about, in all its rules. Of a validator these are its
    /// [`OPERATIONS`](Validate::OPERATIONS) by default.
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        let names: Vec<String> =
            operations.into_iter().map(|operation| operation_name(&operation).to_owned()).collect();
        for rule in &mut self.rules {
            rule.operations = Some(names.clone());
        }
        self
    }

    /// Asks it about more.
    pub fn rule(mut self, rule: RuleWithOperations) -> Self {
        self.rules.push(rule);
        self
    }

    /// What becomes of requests when it cannot be asked; they fail by default.
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.failure_policy = policy;
        self
    }

    /// How long the API server waits for it, from 1 to 30 seconds; 10 by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Asks it again when a later webhook has changed the object. Only for those that change.
    pub fn reinvoke(mut self) -> Self {
        self.reinvoke = true;
        self
    }

    /// Asks it only about objects in namespaces with these labels.
    pub fn in_namespaces(mut self, selector: LabelSelector) -> Self {
        self.namespace_selector = Some(selector);
        self
    }

    /// Asks it only about objects with these labels.
    pub fn labelled(mut self, selector: LabelSelector) -> Self {
        self.object_selector = Some(selector);
        self
    }
}

fn operation_name(operation: &Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

async fn set_defaults<K: TypedObject>(defaulter: &impl Defaulter<K>, sent: Value) -> Result<Response, Denied> {
    if sent["operation"] == "DELETE" || sent["operation"] == "CONNECT" {
        return Ok(Response::allowed());
    }
    let request = match decode::<K>(&sent)? {
        Decoded::Fits(request) | Decoded::NewFits(request, _) => request,
        Decoded::Leaves(warning) => return Ok(Response::allowed().warn(warning)),
    };
    let Some(mut object) = request.object.clone() else {
        return Err(bad_request("there is no object in the request to decode"));
    };
    let encode = |object: &K| {
        serde_json::to_value(object).map_err(|error| Denied::with_code(500, "InternalError", error.to_string()))
    };
    let before = encode(&object)?;
    defaulter.set_defaults(&mut object, &request).await?;
    Ok(Response::allowed().with_patch(diff::patch(&sent["object"], &before, &encode(&object)?)))
}

async fn validate<K: TypedObject>(validator: &impl Validate<K>, sent: &Value) -> Verdict {
    if sent["operation"] == "CONNECT" {
        return Ok(Warnings::none());
    }
    let (request, misfit) = match decode::<K>(sent)? {
        Decoded::Fits(request) => (request, None),
        Decoded::NewFits(request, misfit) => (request, Some(misfit)),
        Decoded::Leaves(warning) => return Ok(warning.into()),
    };
    let verdict = match (&request.operation, &request.old_object, &request.object) {
        (Operation::Create, _, Some(new)) => validator.validate_create(new, &request).await,
        (Operation::Update, Some(old), Some(new)) => validator.validate_update(old, new, &request).await,
        (Operation::Update, None, Some(new)) if misfit.is_some() => validator.validate_create(new, &request).await,
        (Operation::Delete, Some(old), _) => validator.validate_delete(old, &request).await,
        (Operation::Delete, None, _) if misfit.is_some() => Ok(Warnings::none()),
        _ => Err(bad_request("there is no object in the request to decode")),
    };
    verdict.map(|mut warnings| {
        warnings.extend(misfit);
        warnings
    })
}

/// A request with its objects as the type, as far as they fit it.
enum Decoded<K: Object> {
    Fits(Request<K>),
    /// What is stored does not, and is left out; and how it does not.
    NewFits(Request<K>, String),
    /// Neither what is stored nor what it is to be; but it is on its way out, and only its metadata
    /// changes, as when finalizers are taken off.
    Leaves(String),
}

/// On failure the message says which object does not fit, and why.
fn decode<K: TypedObject>(sent: &Value) -> Result<Decoded<K>, Denied> {
    let dynamic = K::DynamicType::default();
    let asked = &sent["kind"];
    let expected = [K::group(&dynamic), K::version(&dynamic), K::kind(&dynamic)];
    if ["group", "version", "kind"].iter().zip(&expected).any(|(field, expected)| asked[field] != **expected) {
        let [group, version, kind] = &expected;
        return Err(bad_request(format!("expected {kind} of {group}/{version}, not {asked}")));
    }
    let error = match from_ref(sent) {
        Ok(request) => return Ok(Decoded::Fits(request)),
        Err(error) => error,
    };
    let misfit = |field: &str| {
        let object = sent.get(field).filter(|object| !object.is_null())?;
        let error = from_ref::<K>(object).err()?;
        Some(format!("{field} does not fit {}: {error}", expected[2]))
    };
    if let Some(misfit) = misfit("object") {
        return if leaves(sent) { Ok(Decoded::Leaves(misfit)) } else { Err(bad_request(misfit)) };
    }
    let undecodable = |error: DecodeError| bad_request(format!("cannot decode the request: {error}"));
    let Some(misfit) = misfit("oldObject") else { return Err(undecodable(error)) };
    let mut rest = sent.clone();
    rest["oldObject"] = Value::Null;
    from_ref(&rest).map(|request| Decoded::NewFits(request, misfit)).map_err(undecodable)
}

/// Whether a request changes nothing but the metadata of an object that is being deleted.
fn leaves(sent: &Value) -> bool {
    let (Some(old), Some(new)) = (sent["oldObject"].as_object(), sent["object"].as_object()) else { return false };
    let known = |object: &serde_json::Map<String, Value>, other: &serde_json::Map<String, Value>| {
        object.iter().all(|(field, value)| field == "metadata" || other.get(field) == Some(value))
    };
    sent["operation"] == "UPDATE"
        && !sent["oldObject"]["metadata"]["deletionTimestamp"].is_null()
        && known(old, new)
        && known(new, old)
}

fn bad_request(message: impl Into<String>) -> Denied {
    Denied::with_code(400, "BadRequest", message)
}

#[cfg(test)]
mod tests;
