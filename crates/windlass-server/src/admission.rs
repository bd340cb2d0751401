//! Admission: what may still change or refuse a write after it was decoded and before it is stored.
//!
//! Runs inside the registry's retry loop, in upstream's order:
//!
//! ```text
//! namespace life cycle ▸ limit ranges ▸ accounts ▸ nodes ▸ defaults a cluster decides ▸ mutating policies ▸ mutating webhooks
//!     (again if needed) ▸ the registry prepares and validates ▸ limit ranges ▸ classes ▸ validating policies
//!     ▸ validating webhooks ▸ quotas ▸ store
//! ```
//!
//! Where no webhook is registered and no policy is in effect, their part is two atomic loads; where a
//! namespace has no limit range and no quota, theirs is a look into a map. [`admission_config`](crate::admission_config) says which
//! of the built-in ones run, and which webhooks and policies there are; those that are off by default are in `optional`.

mod bound_pods;
mod certificates;
mod classes;
mod defaults;
mod dispatch;
mod limit_range;
mod matching;
mod node_restriction;
mod optional;
mod pod_security;
mod policy;
mod priority;
pub(crate) mod quota;
mod request;
mod review;
mod runtime_class;
mod service_account;

pub(crate) use priority::SYSTEM_CLASSES;
pub(crate) use request::Act;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use dispatch::Mutation;
use request::Request;

use crate::admission_config::AdmissionPlugin;
use crate::api::Api;
use crate::catalog::Served;
use crate::codec::peek::{self, Raw};
use crate::context::Context;
use crate::object;
use crate::options::{DeleteOptions, WriteOptions};
use crate::status::{Cause, Qualified, Status};
use crate::versions;

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What may still change a new object before it is validated.
pub(crate) async fn mutate_create(
    context: &mut Context,
    object: &mut Value,
    options: &WriteOptions,
) -> Result<(), Status> {
    let act = Act::Create(options);
    namespace(context, act, object).await?;
    complete(context, act, object).await?;
    if let Some(mut webhooks) = mutating(context, act, Some(object))
        && ask(context, &mut webhooks, Some(object), None).await?
    {
        complete(context, act, object).await?;
        ask(context, &mut webhooks, Some(object), None).await?;
    }
    always_deny(context, Some(object))
}

/// What the built-in plugins make of a new object.
async fn complete(context: &Context, act: Act<'_>, object: &mut Value) -> Result<(), Status> {
    limit_range::mutate(context, act, object, None).await?;
    let is_pod = (&*context.served.group, &*context.served.kind) == ("", "Pod");
    if is_pod && context.runs(AdmissionPlugin::ServiceAccount) {
        service_account::create(context, object).await?;
    }
    restrict(context, act, Some(object), None).await?;
    defaults::create(context, object).await
}

/// Refuses what a node must not write.
async fn restrict(context: &Context, act: Act<'_>, object: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
    if context.runs(AdmissionPlugin::NodeRestriction) {
        node_restriction::admit(context, act, object, old).await?;
    }
    Ok(())
}

/// What may still change an object before its change is validated.
pub(crate) async fn mutate_update(
    context: &mut Context,
    object: &mut Value,
    live: &Value,
    options: &WriteOptions,
) -> Result<(), Status> {
    let act = Act::Update(options);
    limit_range::mutate(context, act, object, Some(live)).await?;
    restrict(context, act, Some(object), Some(live)).await?;
    defaults::update(context, object, live);
    if let Some(mut webhooks) = mutating(context, act, Some(object))
        && ask(context, &mut webhooks, Some(object), Some(live)).await?
    {
        limit_range::mutate(context, act, object, Some(live)).await?;
        defaults::update(context, object, live);
        ask(context, &mut webhooks, Some(object), Some(live)).await?;
    }
    always_deny(context, Some(object))
}

/// Whether a webhook or policy might be asked about a write.
pub(crate) fn has_a_say(api: &Api) -> bool {
    !(api.webhooks.load().is_empty() && api.policies.load().is_empty())
}

/// What may still change what a subresource takes: a Scale, a Binding, an Eviction.
pub(crate) async fn mutate_view(
    context: &mut Context,
    act: Act<'_>,
    view: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    namespace(context, act, view).await?;
    if !matches!(act, Act::Connect) {
        restrict(context, act, Some(view), old).await?;
    }
    let is_binding =
        (&*context.served.group, &*context.served.plural, context.subresource()) == ("", "pods", "binding");
    if is_binding && matches!(act, Act::Create(_)) && context.runs(AdmissionPlugin::PodTopologyLabels) {
        bound_pods::label_binding(context, view).await?;
    }
    if let Some(mut webhooks) = mutating(context, act, Some(view))
        && ask(context, &mut webhooks, Some(view), old).await?
    {
        ask(context, &mut webhooks, Some(view), old).await?;
    }
    always_deny(context, Some(view))
}

/// What may still refuse an object that is valid.
pub(crate) async fn validate(
    context: &mut Context,
    act: Act<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    if context.api.plugins.has_optional() {
        // Boxed: most servers run none of them.
        Box::pin(optional::validate(context, act, object, old)).await?;
    }
    if let Some(object) = object {
        limit_range::validate(context, act, object, old).await?;
        certificates::validate(context, act, object, old)?;
        built_in(context, act, object, old).await?;
    }
    let loaded = context.api.webhooks.load();
    let hooks =
        if context.runs(AdmissionPlugin::ValidatingAdmissionWebhook) { loaded.validating.clone() } else { Vec::new() };
    let has_policies = context.runs(AdmissionPlugin::ValidatingAdmissionPolicy) && !is_review(context);
    let policies = if has_policies { context.api.policies.load().validating.clone() } else { Vec::new() };
    if (hooks.is_empty() && policies.is_empty()) || is_exempt(context) {
        return Ok(());
    }
    let request = Request::new(context, act, object);
    let served = Arc::clone(&context.served);
    let object = object.map(|object| as_shown(&served, &request, object));
    let old = old.map(|old| as_shown(&served, &request, old));
    let (object, old) = (object.as_deref(), old.as_deref());
    if !policies.is_empty() {
        Box::pin(policy::validate(&request, &policies, object, old, &mut context.warnings)).await?;
    }
    // Boxed, here and below: few writes wait for webhooks, and all would be as large as one that does.
    Box::pin(dispatch::validate(&request, &hooks, object, old, &mut context.warnings)).await
}

/// What the built-in plugins say about an object that is valid.
async fn built_in(context: &mut Context, act: Act<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    // A pod that nothing else could change has been checked when it was given its account.
    let is_unchanged = matches!(act, Act::Create(_)) && !has_a_say(&context.api);
    if context.runs(AdmissionPlugin::ServiceAccount) && !is_unchanged {
        service_account::validate(context, act, object).await?;
    }
    if context.runs(AdmissionPlugin::PodSecurity) {
        pod_security::validate(context, act, object, old).await?;
    }
    if context.runs(AdmissionPlugin::Priority) {
        priority::validate(context, act, object).await?;
    }
    if context.runs(AdmissionPlugin::PersistentVolumeClaimResize) {
        classes::resize(context, act, object, old).await?;
    }
    if context.runs(AdmissionPlugin::RuntimeClass) {
        runtime_class::validate(context, act, object).await?;
    }
    bound_pods::validate(context, act, object, old).await?;
    Ok(())
}

/// What may still refuse a delete: namespaces that stay, and webhooks of both kinds.
pub(crate) async fn delete(context: &mut Context, live: &Value, options: &DeleteOptions) -> Result<(), Status> {
    may_delete(context)?;
    let act = Act::Delete(options);
    restrict(context, act, None, Some(live)).await?;
    if let Some(mut webhooks) = mutating(context, act, None)
        && ask(context, &mut webhooks, None, Some(live)).await?
    {
        ask(context, &mut webhooks, None, Some(live)).await?;
    }
    always_deny(context, None)?;
    validate(context, act, None, Some(live)).await
}

/// What may still change or refuse a connection to something in the cluster: exec, attach, port forwarding, proxying.
/// Returns its options, if a webhook or policy was asked.
pub(crate) async fn connect(context: &mut Context) -> Result<Option<Value>, Status> {
    if context.query.all("dryRun").any(|value| !value.is_empty()) {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    if !has_a_say(&context.api) {
        return always_deny(context, None).map(|()| None);
    }
    let mut options = request::connect_options(context);
    mutate_view(context, Act::Connect, &mut options, None).await?;
    validate(context, Act::Connect, Some(&options), None).await?;
    Ok(Some(options))
}

/// Puts webhook configurations and policies into effect after one was written.
pub(crate) async fn take_effect(api: &Api) -> Result<(), Status> {
    api.webhooks.refresh().await.map_err(Status::internal)?;
    api.policies.refresh().await.map_err(Status::internal)
}

/// What changes objects: policies, then webhooks.
struct Mutators {
    policies: policy::Mutation,
    webhooks: Mutation,
    /// Whether this is the second round.
    again: bool,
}

/// The mutating policies' and webhooks' turn, if there are any.
fn mutating(context: &Context, act: Act<'_>, object: Option<&Value>) -> Option<Mutators> {
    let loaded = context.api.webhooks.load();
    let hooks =
        if context.runs(AdmissionPlugin::MutatingAdmissionWebhook) { loaded.mutating.clone() } else { Vec::new() };
    let has_policies = context.runs(AdmissionPlugin::MutatingAdmissionPolicy) && !is_review(context);
    let policies = if has_policies { context.api.policies.load().mutating.clone() } else { Vec::new() };
    if (hooks.is_empty() && policies.is_empty()) || is_exempt(context) {
        return None;
    }
    let webhooks = Mutation::new(Request::new(context, act, object), hooks);
    Some(Mutators { policies: policy::Mutation::new(policies), webhooks, again: false })
}

/// One round of mutating policies and webhooks; returns whether there is to be another. The objects are
/// in the form strategies handle.
async fn ask(
    context: &mut Context,
    mutators: &mut Mutators,
    object: Option<&mut Value>,
    old: Option<&Value>,
) -> Result<bool, Status> {
    let served = Arc::clone(&context.served);
    let Mutators { policies, webhooks, again } = mutators;
    let first = !std::mem::replace(again, true);
    let is_view = webhooks.request().is_view;
    let shown_old = old.map(|old| as_shown(&served, webhooks.request(), old).into_owned());
    let Some(object) = object else {
        return Box::pin(webhooks.round(None, shown_old.as_ref(), &mut context.warnings)).await;
    };
    let mut shown = as_shown(&served, webhooks.request(), object).into_owned();
    let changed = Box::pin(policies.round(webhooks.request(), &mut shown, shown_old.as_ref())).await?;
    let again = Box::pin(webhooks.round(Some(&mut shown), shown_old.as_ref(), &mut context.warnings)).await?;
    keep_managed_fields(context, object, &mut shown);
    *object = if is_view { shown } else { versions::into_handled(&served, shown) };
    Ok(again || (changed && first))
}

/// Webhooks may change `managedFields`, but what they make of it must still be readable.
fn keep_managed_fields(context: &mut Context, before: &Value, after: &mut Value) {
    let Err(why) = crate::apply::check_managed_fields(after) else { return };
    match object::metadata(before).get("managedFields") {
        Some(fields) => object::metadata_mut(after).insert("managedFields".into(), fields.clone()),
        None => object::metadata_mut(after).remove("managedFields"),
    };
    context.warnings.push(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
         mutating admission controller; please fix your requests: {why}"
    ));
}

/// An object as webhooks see it: in the version of the request.
fn as_shown<'a>(served: &Served, request: &Request, object: &'a Value) -> Cow<'a, Value> {
    if request.is_view { Cow::Borrowed(object) } else { versions::handled_to_served(served, object) }
}

/// What configures admission is not subject to webhooks, lest one lock all users out for good.
fn is_exempt(context: &Context) -> bool {
    &*context.served.group == "admissionregistration.k8s.io"
        && matches!(
            &*context.served.kind,
            "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

/// Reviews of identity and access are not subject to policies: refusing those would break the cluster. Webhooks
/// do see them (`pkg/kubeapiserver/admission/exclusion`).
fn is_review(context: &Context) -> bool {
    matches!(&*context.served.group, "authentication.k8s.io" | "authorization.k8s.io")
        && matches!(
            &*context.served.plural,
            "selfsubjectreviews"
                | "tokenreviews"
                | "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "subjectaccessreviews"
        )
}

/// Before a create, of an object or of what a subresource takes: the namespace must exist and not be going away.
async fn namespace(context: &Context, act: Act<'_>, object: &Value) -> Result<(), Status> {
    let namespace = context.namespace();
    if !context.served.namespaced || !matches!(act, Act::Create(_)) {
        return Ok(());
    }
    if context.runs(AdmissionPlugin::NamespaceAutoProvision) && !act.dry_run() {
        Box::pin(optional::provide_namespace(context, object)).await?;
    }
    // What a review says about a namespace must not depend on whether there is one.
    if !context.runs(AdmissionPlugin::NamespaceLifecycle) || is_review(context) {
        return Ok(());
    }
    let Some(entry) = context.api.store.get(&namespace_key(namespace)).await.map_err(Status::internal)? else {
        return Err(no_namespace(namespace));
    };
    let deleting = peek::metadata(&entry.value).is_some_and(|metadata| metadata.field("deletionTimestamp").is_some());
    let phase = Raw::new(&entry.value).path(&["status", "phase"]);
    if deleting || phase.and_then(|phase| phase.as_str()).as_deref() == Some("Terminating") {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = refused(context, object, why);
        status.details.get_or_insert_default().causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        });
        return Err(status);
    }
    Ok(())
}

/// Upstream's plugin AlwaysDeny, the last of those that may change something.
fn always_deny(context: &Context, object: Option<&Value>) -> Result<(), Status> {
    if !context.runs(AdmissionPlugin::AlwaysDeny) {
        return Ok(());
    }
    Err(refused(context, object.unwrap_or(&Value::Null), "admission control is denying all modifications"))
}

fn namespace_key(name: &str) -> Vec<u8> {
    format!("/registry/namespaces/{name}").into_bytes()
}

fn no_namespace(name: &str) -> Status {
    Status::not_found(Qualified { group: "", name: "namespaces" }, name)
}

/// 403 of a plugin. A name that is yet to be generated is shown as far as it is known.
fn refused(context: &Context, object: &Value, why: impl std::fmt::Display) -> Status {
    let names = [context.name(), object::name(object), object::text(object, "generateName")];
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
    Status::forbidden(context.qualified(), name, why)
}

/// Before a delete: some namespaces stay, and so do the classes that the cluster's own pods need.
fn may_delete(context: &Context) -> Result<(), Status> {
    if (&*context.served.group, &*context.served.plural) == ("scheduling.k8s.io", "priorityclasses")
        && priority::is_system_class(context.name())
    {
        let why = "this is a system priority class and cannot be deleted";
        return Err(Status::forbidden(context.qualified(), context.name(), why));
    }
    if context.runs(AdmissionPlugin::NamespaceLifecycle)
        && context.served.group.is_empty()
        && &*context.served.plural == "namespaces"
        && IMMORTAL.contains(&context.name())
    {
        let why = "this namespace may not be deleted";
        return Err(Status::forbidden(context.qualified(), context.name(), why));
    }
    Ok(())
}
