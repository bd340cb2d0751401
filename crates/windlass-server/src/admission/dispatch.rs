//! Asking webhooks: mutating ones one after the other, validating ones all at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};

use super::matching::{self, Invocation};
use super::request::{GroupVersionKind, Request, retyped_options};
use super::review::{self, Encoded, Response, Version};
use crate::admission_config::{Hook, Subject, Variables};
use crate::audit::{self, Level};
use crate::catalog::Served;
use crate::codec::typed::decode_typed;
use crate::codec::{self, Decoded};
use crate::field::quote;
use crate::patch::go_type;
use crate::patch::json::JsonPatch;
use crate::schema::builtin;
use crate::schema::validate::embedded::metadata_problem;
use crate::status::Status;
use crate::webhook::ANSWER_LIMIT;
use crate::{effort, versions};

/// What the names of annotations in events begin with.
const MUTATION: &str = "mutation.webhook.admission.k8s.io";
const PATCH: &str = "patch.webhook.admission.k8s.io";
const VALIDATING: &str = "validating.webhook.admission.k8s.io";

/// Why a webhook's answer is not a yes.
enum Failure {
    /// It could not be asked, or its answer is of no use: what then is its `failurePolicy`.
    Calling(String),
    /// It said no, or the request cannot go on.
    Final(Box<Status>),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Final(Box::new(status))
    }
}

/// The objects of a request in the version a webhook wants them in.
struct Versioned {
    served: Arc<Served>,
    object: Option<Value>,
    old: Option<Value>,
}

impl Versioned {
    /// The objects in the version of an invocation.
    async fn to_version(&self, request: &Request, served: &Arc<Served>) -> Result<Self, Status> {
        let convert = async |object: &Option<Value>| match object {
            Some(object) if !request.is_view => {
                versions::between(&request.api, &self.served, served, object.clone()).await.map(Some)
            }
            object => Ok(object.clone()),
        };
        let (object, old) = (convert(&self.object).await?, convert(&self.old).await?);
        Ok(Self { served: Arc::clone(served), object, old })
    }

    fn is(&self, served: &Arc<Served>) -> bool {
        (&self.served.group, &self.served.version) == (&served.group, &served.version)
    }
}

/// The mutating webhooks' turn at a request. It may come twice: when a webhook changed the object after
/// another had seen it, the other is asked again, if it wants that.
pub(super) struct Mutation {
    request: Arc<Request>,
    hooks: Vec<Arc<Hook>>,
    again: bool,
    asked: HashSet<String>,
    ask_again: HashSet<String>,
    last: Option<Value>,
}

impl Mutation {
    pub(super) fn new(request: Request, hooks: Vec<Arc<Hook>>) -> Self {
        Self {
            request: Arc::new(request),
            hooks,
            again: false,
            asked: HashSet::new(),
            ask_again: HashSet::new(),
            last: None,
        }
    }

    /// What is asked for.
    pub(super) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// Asks the webhooks. `object` is in the version of the request. Returns whether there is to be a second
    /// round.
    pub(super) async fn round(
        &mut self,
        object: Option<&mut Value>,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        if self.again && self.last.as_ref() != object.as_deref() {
            self.ask_again.extend(self.asked.drain());
        }
        let mut changed = false;
        let mut current = Versioned {
            served: Arc::clone(&self.request.served),
            object: object.as_deref().cloned(),
            old: old.cloned(),
        };
        for (index, hook) in self.hooks.clone().into_iter().enumerate() {
            let invocation =
                matching::invocation(&self.request, &hook, current.object.as_ref(), current.old.as_ref()).await?;
            let Some(invocation) = invocation else { continue };
            if self.again && hook.conditions.is_empty() && !self.ask_again.contains(&hook.id) {
                continue;
            }
            if !current.is(&invocation.served) {
                current = current.to_version(&self.request, &invocation.served).await?;
            }
            if !conditions_hold(&self.request, &invocation, &current).await? {
                continue;
            }
            if self.again && !self.ask_again.contains(&hook.id) {
                continue;
            }
            let place = format!("round_{}_index_{index}", u8::from(self.again));
            let outcome = mutate(&self.request, &invocation, &mut current, warnings, &place).await;
            note_mutation(&self.request, &hook, &place, matches!(outcome, Ok(true)));
            if matches!(outcome, Ok(true)) {
                self.ask_again.extend(self.asked.drain());
                changed = true;
            }
            if hook.reinvoked {
                self.asked.insert(hook.id.clone());
            }
            settle(&self.request, &hook, outcome.map(drop), || format!("failed-open.{MUTATION}/{place}"))?;
        }
        if let (Some(object), Some(new)) = (object, current.object) {
            let same = current.served.group == self.request.served.group
                && current.served.version == self.request.served.version;
            *object = if same || self.request.is_view {
                new
            } else {
                versions::between(&self.request.api, &current.served, &self.request.served, new).await?
            };
            self.last = Some(object.clone());
        }
        Ok(changed && !std::mem::replace(&mut self.again, true))
    }
}

/// Adds to the event of the request whether a webhook changed its object.
fn note_mutation(request: &Request, hook: &Hook, place: &str, mutated: bool) {
    request.annotations.add(format!("{MUTATION}/{place}"), || {
        audit::object(&[
            ("configuration", hook.configuration().into()),
            ("webhook", hook.name.as_str().into()),
            ("mutated", mutated.into()),
        ])
    });
}

/// Asks one mutating webhook; returns whether it changed the object. `place` is where the event of the request says so.
async fn mutate(
    request: &Request,
    invocation: &Invocation,
    current: &mut Versioned,
    warnings: &mut Vec<String>,
    place: &str,
) -> Result<bool, Failure> {
    let hook = &invocation.hook;
    let encoded = Encoded::new(current.object.as_ref(), current.old.as_ref());
    let asked = Instant::now();
    let response = call(request, invocation, &encoded, true).await;
    request.waits.add(asked.elapsed());
    let response = response?;
    annotate(request, hook, &response);
    warnings.extend(response.warnings.iter().cloned());
    if !response.allowed {
        return Err(review::denied(&hook.name, &response.result).into());
    }
    if response.patch.is_empty() {
        return Ok(false);
    }
    let undecodable = |why: String| Failure::Calling(format!("received undecodable patch in webhook response: {why}"));
    let operations = codec::json::parse(&response.patch).map_err(|error| undecodable(error.to_string()))?.value;
    let patch = JsonPatch::decode(&operations, true).map_err(|status| undecodable(status.message))?;
    if patch.is_empty() {
        return Ok(false);
    }
    let Some(object) = &mut current.object else {
        let why = "attempted to modify the object, which is not supported for this operation";
        return Err(Status::internal(format!("admission webhook {} {why}", quote(&hook.name))).into());
    };
    if response.patch_type != "JSONPatch" {
        return Err(Failure::Calling(format!("unsupported patch type {}", quote(&response.patch_type))));
    }
    let mut patched = object.clone();
    patch.apply_or_explain(&mut patched).map_err(Status::internal)?;
    let mut patched = retyped(request, &invocation.served, &invocation.kind, patched).map_err(Status::internal)?;
    request.annotations.add_from(Level::Request, format!("{PATCH}/{place}"), || {
        audit::object(&[
            ("configuration", hook.configuration().into()),
            ("webhook", hook.name.as_str().into()),
            ("patch", operations.clone()),
            ("patchType", "JSONPatch".into()),
        ])
    });
    let changed = patched != *object;
    if changed {
        default(request, &invocation.served, &mut patched);
        *object = patched;
    }
    Ok(changed)
}

/// A patched object, decoded against its schema: what the schema does not know is gone.
pub(super) fn retyped(
    request: &Request,
    served: &Served,
    kind: &GroupVersionKind,
    mut value: Value,
) -> Result<Value, String> {
    if let (Some(custom), false) = (served.custom(), request.is_view) {
        if !value.is_object() {
            return Err("the patch left no object".to_owned());
        }
        let version = custom.version(&served.version).unwrap_or_else(|| custom.storage_version());
        custom.decode(&mut value, version);
        drop_malformed_metadata(&mut value)?;
        return Ok(value);
    }
    let written = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    let api_version =
        if kind.group.is_empty() { kind.version.to_string() } else { format!("{}/{}", kind.group, kind.version) };
    if (written("kind"), written("apiVersion")) != (&*kind.kind, &*api_version) {
        let (kind, found) = (quote(&kind.kind), quote(written("kind")));
        return Err(format!(
            "the patch made an object of kind {found} in {} out of one of kind {kind}",
            quote(written("apiVersion"))
        ));
    }
    let schema = builtin::by_kind(&kind.group, &kind.version, &kind.kind).map(builtin::definition);
    let Some(schema) = schema else { return retyped_options(&kind.kind, value) };
    Ok(decode_typed(Decoded { value, duplicates: Vec::new(), source: None }, schema)?.value)
}

/// Metadata that is not what its field holds is left out, field by field. Upstream stores it, and leaves it out
/// whenever the object is read.
fn drop_malformed_metadata(object: &mut Value) -> Result<(), String> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(()) };
    let Some(fields) = metadata.as_object_mut() else {
        return Err(format!("invalid metadata: expected object, got {}", go_type(metadata)));
    };
    fields.retain(|name, value| metadata_problem(&json!({ name: value.clone() })).is_none());
    Ok(())
}

/// Fills in what the patch made necessary.
pub(super) fn default(request: &Request, served: &Served, object: &mut Value) {
    if request.is_view {
        return;
    }
    let mut handled = versions::into_handled(served, object.clone());
    served.strategy().default(&mut handled);
    *object = versions::handled_to_served(served, &handled).into_owned();
}

/// Asks all validating webhooks that want to be asked; the first one that objects decides.
pub(super) async fn validate(
    request: &Request,
    hooks: &[Arc<Hook>],
    object: Option<&Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let mut relevant: Vec<(Invocation, usize)> = Vec::new();
    let mut forms: Vec<Versioned> = Vec::new();
    for hook in hooks {
        let Some(invocation) = matching::invocation(request, hook, object, old).await? else { continue };
        let known = forms.iter().position(|form| form.is(&invocation.served));
        let form = if let Some(form) = known {
            form
        } else {
            let own = Versioned { served: Arc::clone(&request.served), object: object.cloned(), old: old.cloned() };
            let is_own = own.is(&invocation.served);
            forms.push(if is_own { own } else { own.to_version(request, &invocation.served).await? });
            forms.len() - 1
        };
        if conditions_hold(request, &invocation, &forms[form]).await? {
            relevant.push((invocation, form));
        }
    }
    if relevant.is_empty() {
        return Ok(());
    }
    if Instant::now() >= request.deadline {
        return Err(Status::timed_out());
    }
    let encoded: Vec<Encoded> =
        forms.iter().map(|form| Encoded::new(form.object.as_ref(), form.old.as_ref())).collect();
    let calls = relevant.iter().map(|(invocation, form)| call(request, invocation, &encoded[*form], false));
    let asked = Instant::now();
    let outcomes = join_all(calls).await;
    request.waits.add(asked.elapsed());
    let mut failure = None;
    for (index, ((invocation, _), outcome)) in relevant.iter().zip(outcomes).enumerate() {
        let outcome = outcome.and_then(|response| {
            annotate(request, &invocation.hook, &response);
            warnings.extend(response.warnings.iter().cloned());
            if response.allowed { Ok(()) } else { Err(review::denied(&invocation.hook.name, &response.result).into()) }
        });
        let failed_open = || format!("failed-open.{VALIDATING}/round_0_index_{index}");
        if let Err(status) = settle(request, &invocation.hook, outcome, failed_open) {
            failure.get_or_insert(status);
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Adds what a webhook has to say to the event of the request.
fn annotate(request: &Request, hook: &Hook, response: &Response) {
    for (name, value) in &response.annotations {
        request.annotations.add_named(&hook.name, name, value);
    }
}

/// What becomes of the request after a webhook was asked. `failed_open` is the annotation of one that is passed over.
fn settle(
    request: &Request,
    hook: &Hook,
    outcome: Result<(), Failure>,
    failed_open: impl FnOnce() -> String,
) -> Result<(), Status> {
    match outcome {
        Ok(()) => Ok(()),
        Err(Failure::Final(status)) => Err(*status),
        Err(Failure::Calling(why)) if hook.ignores_failure => {
            tracing::warn!(webhook = hook.name, %why, "a webhook that may fail was passed over");
            request.annotations.add(failed_open(), || hook.name.clone());
            if Instant::now() >= request.deadline { Err(Status::timed_out()) } else { Ok(()) }
        }
        Err(Failure::Calling(why)) => {
            Err(Status::internal(format!("failed calling webhook {}: {why}", quote(&hook.name))))
        }
    }
}

/// Whether the webhook's conditions hold. An error counts as its `failurePolicy` says.
async fn conditions_hold(request: &Request, invocation: &Invocation, objects: &Versioned) -> Result<bool, Status> {
    let hook = Arc::clone(&invocation.hook);
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let subject = Subject { user: request.user.clone(), policy: Arc::clone(&request.api.rbac.policy()) };
    let asked = review::variable(request, invocation);
    let (object, old) = (objects.object.as_ref(), objects.old.as_ref());
    let size = object.map_or(0, effort::size) + old.map_or(0, effort::size);
    let ask = move |hook: &Hook, object: Option<&Value>, old: Option<&Value>| {
        hook.conditions.hold(Variables {
            object: object.unwrap_or(&Value::Null),
            old_object: old.unwrap_or(&Value::Null),
            request: &asked,
            subject: &subject,
        })
    };
    let held = if hook.conditions.growth().is_long(size) {
        // Others need the objects too, so these are copies.
        let (hook, object, old) = (Arc::clone(&hook), object.cloned(), old.cloned());
        request.api.offload.run(request.qualified(), true, move || ask(&hook, object.as_ref(), old.as_ref())).await?
    } else {
        ask(&hook, object, old)
    };
    match held {
        Ok(hold) => Ok(hold),
        Err(_) if hook.ignores_failure => Ok(false),
        Err(why) => Err(Status::forbidden(request.qualified(), &request.name, why)),
    }
}

/// Sends the review and reads the answer.
async fn call(
    request: &Request,
    invocation: &Invocation,
    objects: &Encoded,
    mutating: bool,
) -> Result<Response, Failure> {
    let hook = &invocation.hook;
    if request.dry_run {
        match hook.side_effects.as_deref() {
            None => return Err(Failure::Calling("Webhook SideEffects is nil".to_owned())),
            Some("None" | "NoneOnDryRun") => {}
            Some(_) => {
                let why = format!("admission webhook {} does not support dry run", quote(&hook.name));
                return Err(Status::bad_request(why).into());
            }
        }
    }
    let unknown = "could not create admission objects: webhook does not accept known AdmissionReview versions \
                   (v1, v1beta1)";
    let version = Version::pick(&hook.review_versions).ok_or_else(|| Failure::Calling(unknown.to_owned()))?;
    let client = hook.client.as_ref().map_err(|why| Failure::Calling(format!("could not get REST client: {why}")))?;
    let uid = crate::object::new_uid();
    let body = review::encode(request, invocation, version, &uid, objects);
    let limit = hook.timeout.min(request.deadline.saturating_duration_since(Instant::now()));
    // Webhooks are told whole seconds.
    let told = Duration::from_millis(limit.as_millis().div_ceil(1000) as u64 * 1000);
    let failed = |why: String| Failure::Calling(format!("failed to call webhook: {why}"));
    let answer = client.call(body, told, limit, ANSWER_LIMIT).await.map_err(failed)?;
    let response = review::decode(version, &answer).map_err(failed)?;
    review::verify(version, &uid, mutating, &answer, response)
        .map_err(|why| Failure::Calling(format!("received invalid webhook response: {why}")))
}
