//! Upstream's plugin PodSecurity: what pods of a namespace may ask for is said by labels of the namespace.
//!
//! Pods that violate what is enforced are refused; the author of a pod, or of a workload that makes pods, is warned of what
//! violates the level `warn`. What violates the level `audit` is in the event of the request. Labels that cannot be read are
//! refused where a namespace is written. The checks are in [`windlass_kinds::pod_security`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use windlass_kinds::pod_security::{
    PREFIX, Pod, PodSecurityLevel, PodSecurityPolicy, PodSecurityStandard, Verdict, details, existing_warnings,
    ignored, is_significant, is_stricter, would_violate,
};
use windlass_store::Range;

use super::Act;
use crate::codec::peek;
use crate::context::Context;
use crate::effort;
use crate::field::{FieldErrors, quote};
use crate::object;
use crate::status::Status;
use crate::validation::access::Access as _;

/// Looking at the pods of a namespace takes at most this long.
const LONGEST: Duration = Duration::from_secs(1);

/// Subresources of pods that do not change what a pod may do.
const IGNORED: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// What is added to the event of a request.
const ENFORCE_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";
const AUDIT_VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";
const EXEMPT: &str = "pod-security.kubernetes.io/exempt";
const ERROR: &str = "pod-security.kubernetes.io/error";

/// Judges a write of a namespace, a pod or a workload; any other passes.
pub(super) async fn validate(
    context: &mut Context,
    act: Act<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if !matches!(act, Act::Create(_) | Act::Update(_)) {
        return Ok(());
    }
    match (&*context.served.group, &*context.served.plural) {
        ("", "namespaces") => namespace(context, object, old).await,
        ("", "pods") => pod(context, object, old).await,
        ("", "replicationcontrollers" | "podtemplates")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs" | "cronjobs") => workload(context, object).await,
        _ => Ok(()),
    }
}

/// Checks the labels of a namespace, and warns of pods that are already there.
async fn namespace(context: &mut Context, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    if !context.subresource().is_empty() {
        return Ok(());
    }
    let configuration = Arc::clone(&context.api.pod_security);
    let name = object::name(object);
    let policy_of = |namespace: &Value| {
        let labels = namespace.at("metadata").at("labels");
        PodSecurityPolicy::of(|key| labels.text_opt(key), configuration.defaults)
    };
    let (policy, errors) = policy_of(object);
    let (old_policy, old_errors) = match old {
        Some(old) => policy_of(old),
        None => (policy, FieldErrors::default()),
    };
    if !errors.is_empty() && errors != old_errors {
        return Err(Status::invalid(context.served.qualified_kind(), name, &errors));
    }
    let is_exempt = configuration.exempts_namespace(name);
    if old.is_some() && !is_stricter(policy.enforce, old_policy.enforce) {
        return Ok(());
    }
    if is_exempt {
        context.warnings.extend(ignored(&configuration, name, &policy, object.at("metadata").at("labels")));
        return Ok(());
    }
    if old.is_none() {
        return Ok(());
    }
    let prefix = format!("/registry/pods/{name}/");
    let found = context.api.store.range(Range::prefix(prefix), None, 0).await.map_err(Status::internal)?;
    let pods: Vec<Bytes> = found.entries.into_iter().map(|entry| entry.value).collect();
    let long = effort::is_large_read(pods.iter().map(Bytes::len).sum());
    let (name, until) = (name.to_owned(), Instant::now() + LONGEST);
    let work = move || existing_warnings(&configuration, &name, policy.enforce, &pods, || Instant::now() > until);
    let warnings = context.api.offload.run(context.qualified(), long, work).await?;
    context.warnings.extend(warnings);
    Ok(())
}

/// Refuses a pod that violates what its namespace enforces.
async fn pod(context: &mut Context, pod: &Value, old: Option<&Value>) -> Result<(), Status> {
    if IGNORED.contains(&context.subresource()) || is_exempt(context) {
        return Ok(());
    }
    let Some((policy, errors)) = policy_of(context).await? else {
        let why = format!("failed to lookup namespace {}", quote(context.namespace()));
        return Err(Status::internal(why));
    };
    if errors.is_empty() && policy.allows_everything() {
        context.annotations.add(ENFORCE_POLICY, || PodSecurityStandard::default().to_string());
        return Ok(());
    }
    if old.is_some_and(|old| !is_significant(pod, old)) || is_exempt_class(context, pod) {
        return Ok(());
    }
    let verdict = Verdict::of(&policy, Pod::new(pod), true);
    context.annotations.add(ENFORCE_POLICY, || policy.enforce.to_string());
    audit(context, &policy, &errors, &verdict);
    if let Some(violations) = verdict.enforced {
        let standard = quote(&policy.enforce.to_string());
        let why = format!("violates PodSecurity {standard}: {}", details(&violations));
        return Err(Status::forbidden(context.qualified(), object::name(pod), why));
    }
    context.warnings.extend(verdict.warned.map(|violations| would_violate(policy.warn, &violations)));
    Ok(())
}

/// Warns of a workload whose pods would be refused.
async fn workload(context: &mut Context, object: &Value) -> Result<(), Status> {
    if !context.subresource().is_empty() || is_exempt(context) {
        return Ok(());
    }
    let template = match &*context.served.plural {
        "podtemplates" => object.at("template"),
        "cronjobs" => object.below(&["spec", "jobTemplate", "spec", "template"]),
        _ => object.at("spec").at("template"),
    };
    if template.is_null() {
        return Ok(());
    }
    let Some((policy, errors)) = policy_of(context).await? else { return Ok(()) };
    let is_silent = [policy.audit, policy.warn].iter().all(|one| one.level == PodSecurityLevel::Privileged);
    if (errors.is_empty() && is_silent) || is_exempt_class(context, template) {
        return Ok(());
    }
    let verdict = Verdict::of(&policy, Pod::new(template), false);
    audit(context, &policy, &errors, &verdict);
    context.warnings.extend(verdict.warned.map(|violations| would_violate(policy.warn, &violations)));
    Ok(())
}

/// Adds what violates the audited level to the event of the request, and what is wrong with the labels of the namespace.
fn audit(context: &Context, policy: &PodSecurityPolicy, errors: &FieldErrors, verdict: &Verdict) {
    if !errors.is_empty() {
        context.annotations.add(ERROR, || format!("Failed to parse policy: {errors}"));
    }
    if let Some(violations) = &verdict.audited {
        context.annotations.add(AUDIT_VIOLATIONS, || would_violate(policy.audit, violations));
    }
}

/// Whether the namespace or the user is not judged.
fn is_exempt(context: &Context) -> bool {
    let configuration = &context.api.pod_security;
    let why = if configuration.exempts_namespace(context.namespace()) {
        "namespace"
    } else if configuration.exempts_user(&context.user.name) {
        "user"
    } else {
        return false;
    };
    context.annotations.add(EXEMPT, || why.to_owned());
    true
}

/// Whether pods of the runtime class of a pod or a template are not judged.
fn is_exempt_class(context: &Context, pod: &Value) -> bool {
    let exempt = context.api.pod_security.exempts_runtime_class(pod.at("spec").text("runtimeClassName"));
    if exempt {
        context.annotations.add(EXEMPT, || "runtimeClass".to_owned());
    }
    exempt
}

/// The policy of the namespace of the request, and what is wrong with its labels; `None` if there is no such namespace.
async fn policy_of(context: &Context) -> Result<Option<(PodSecurityPolicy, FieldErrors)>, Status> {
    let key = format!("/registry/namespaces/{}", context.namespace());
    let entry = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)?;
    Ok(entry.map(|entry| {
        let labels: Vec<_> = peek::labels(&entry.value).filter(|(key, _)| key.starts_with(PREFIX)).collect();
        let find = |key: &str| labels.iter().find(|(name, _)| name == key).map(|(_, value)| &**value);
        PodSecurityPolicy::of(find, context.api.pod_security.defaults)
    }))
}
