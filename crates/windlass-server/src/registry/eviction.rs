//! `pods/eviction`: deletes a pod if its disruption budget can spare it.
//!
//! ```text
//! pod that runs nothing ─────────────────────────────────────────▶ delete
//! pod that is not ready, budget has enough without it ───────────▶ delete, unless it changed
//! any other ▶ take one disruption from the budget (429 if none) ─▶ delete
//! ```
//!
//! A disruption is taken by a compare-and-swap of the budget's status, so two evictions never take the same
//! one. Mirrors `pkg/registry/core/pod/storage/eviction.go`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use windlass_store::Range;

use super::create::place;
use super::subresource::created;
use super::update::{self, Admitted, Change};
use super::{Answer, Connection, Context, Stored, decode, delete, get, stored};
use crate::admission::{self, Act};
use crate::codec::negotiate::{self, Format};
use crate::codec::{self, Expected};
use crate::field::{FieldError, FieldErrors, Path};
use crate::object;
use crate::options::{DeleteOptions, FieldValidation, WriteOptions};
use crate::request::{Query, Verb};
use crate::state::contention::Attempts;
use crate::status::{Qualified, Status};
use crate::user::User;
use crate::validation::access::{Access as _, AccessMut as _};
use crate::validation::selector::Selector;

/// More evictions than this may not be waiting for the budget's controller.
const MOST_DISRUPTED: usize = 2000;
/// When to come back after a budget that is being worked on.
const RETRY_SECONDS: u32 = 10;
const CAUSE: &str = "DisruptionBudget";
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Deletes the pod that the path names if its disruption budget allows.
pub(super) async fn evict(context: &mut Context) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&context.query, "CreateOptions", false)?;
    let mut eviction = body(context, options.field_validation)?;
    place(context, &mut eviction)?;
    admission::mutate_view(context, Act::Create(&options), &mut eviction, None).await?;
    if object::name(&eviction) != context.name() {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let delete_options = delete_options(context, &eviction, &options)?;
    admission::validate(context, Act::Create(&options), Some(&eviction), None).await?;

    let Some(pod) = delete_without_budget(context, &delete_options).await? else {
        return Ok(created(context));
    };
    let spared = match budget(context, &pod).await? {
        Some(budget) => Some((object::name(&budget).to_owned(), spend(context, &pod, &budget, &delete_options).await?)),
        None => None,
    };
    match spared {
        Some((name, Spent::Nothing)) => {
            // The pod must still be as it was when it was found not to count.
            let revision = Some(object::text(&pod, "resourceVersion").to_owned());
            let guarded = DeleteOptions { resource_version: revision, ..delete_options.clone() };
            match condemn(context, &guarded).await {
                Err(status) if is_conflict(&status) && delete_options.resource_version.is_none() => {
                    return Err(unsettled(&name));
                }
                other => other?,
            }
        }
        _ => condemn(context, &delete_options).await?,
    }
    Ok(created(context))
}

/// The Eviction in the body: version v1, or the older one, which looks the same.
fn body(context: &mut Context, validation: FieldValidation) -> Result<Value, Status> {
    let content_type = context.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let format = negotiate::body_format(content_type, false)?;
    let is_old = format != Format::Protobuf
        && codec::body::read(&context.body, format).is_ok_and(|(body, _)| body.text("apiVersion") == "policy/v1beta1");
    let version = if is_old { "v1beta1" } else { "v1" };
    let expected = Expected { group: "policy", version, kind: "Eviction", custom: false };
    let mut eviction = decode::view(context, expected, validation)?;
    eviction.put("apiVersion", "policy/v1");
    Ok(eviction)
}

/// How the pod is to be deleted. The dry run may be asked for by the request or inside the body.
fn delete_options(context: &Context, eviction: &Value, options: &WriteOptions) -> Result<DeleteOptions, Status> {
    let given = eviction.at("deleteOptions");
    if given.flag("ignoreStoreReadErrorWithClusterBreakingPotential") {
        let path = Path::new("deleteOptions");
        let path = path.child("ignoreStoreReadErrorWithClusterBreakingPotential");
        let detail = "can not be set for pod eviction, try after removing the option";
        let errors = FieldErrors(vec![FieldError::invalid(&path, true, detail)]);
        return Err(Status::invalid(Qualified { group: "policy", name: "Eviction" }, context.name(), &errors));
    }
    let mut parsed = DeleteOptions::parse(&Query::default(), eviction.get("deleteOptions"))?;
    parsed.dry_run |= options.dry_run;
    Ok(parsed)
}

/// Deletes a pod that no budget has a say in; returns the pod if one may have.
async fn delete_without_budget(context: &mut Context, options: &DeleteOptions) -> Result<Option<Value>, Status> {
    let mut attempts = Attempts::begin();
    loop {
        let pod = get::read(context).await?.decode()?;
        let phase = pod.at("status").text("phase");
        let is_over = matches!(phase, "Succeeded" | "Failed") || object::is_deleting(&pod);
        if !is_over && phase != "Pending" {
            return Ok(Some(pod));
        }
        let mut guarded = options.clone();
        if !is_over && options.resource_version.is_none() {
            // It may become ready at any moment, and then its budget counts.
            guarded.resource_version = Some(object::text(&pod, "resourceVersion").to_owned());
        }
        match condemn(context, &guarded).await {
            Err(status) if is_conflict(&status) && options.resource_version.is_none() && attempts.again() => {}
            other => return other.map(|()| None),
        }
    }
}

fn is_conflict(status: &Status) -> bool {
    status.reason == "Conflict"
}

/// The budget that covers a pod, if there is one.
async fn budget(context: &Context, pod: &Value) -> Result<Option<Value>, Status> {
    let prefix = format!("/registry/poddisruptionbudgets/{}/", context.namespace());
    let found = context.api.store.range(Range::prefix(prefix), None, 0).await.map_err(Status::internal)?;
    let labels = object::metadata(pod).get("labels").unwrap_or(&Value::Null);
    let mut covering = Vec::new();
    for entry in &found.entries {
        let budget = stored::decode(&entry.value)?;
        let selector = Selector::from_object(budget.at("spec").at("selector"));
        if selector.is_some_and(|selector| selector.matches(labels)) {
            covering.push(budget);
        }
    }
    if covering.len() > 1 {
        // Upstream writes this Status under the HTTP status 201; clients that only look there believe it.
        let message =
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Status::unclassified(message));
    }
    Ok(covering.pop())
}

/// What an eviction took from a budget.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spent {
    /// One disruption.
    One,
    /// Nothing: the pod does not count.
    Nothing,
}

/// Takes a disruption for the pod from its budget, unless the pod is not ready and the budget does not need it.
async fn spend(context: &Context, pod: &Value, budget: &Value, options: &DeleteOptions) -> Result<Spent, Status> {
    if !is_ready(pod) {
        let status = budget.at("status");
        let (healthy, desired) = (status.int("currentHealthy"), status.int("desiredHealthy"));
        let always = budget.at("spec").text("unhealthyPodEvictionPolicy") == "AlwaysAllow";
        if always || (healthy >= desired && desired > 0) {
            return Ok(Spent::Nothing);
        }
    }
    let now = object::time(context.now);
    if options.dry_run {
        take(budget, context.name(), &now)?;
        return Ok(Spent::One);
    }
    let name = context.name();
    let mut own = of_budget(context, object::name(budget))?;
    let change = Change {
        transform: |_: &Context, live: &Value| take(live, name, &now),
        manager: Some("kube-apiserver"),
        options: &WriteOptions::default(),
        uid_is_precondition: false,
        admitted: Admitted::Object,
    };
    update::update(&mut own, change).await?;
    Ok(Spent::One)
}

/// The request that the server makes of itself: a write of the status of a budget.
fn of_budget(context: &Context, name: &str) -> Result<Context, Status> {
    let budgets = context.api.catalog.snapshot().find("policy", "v1", "poddisruptionbudgets").cloned();
    let mut path = context.path.clone();
    path.group = "policy".into();
    path.resource = "poddisruptionbudgets".into();
    path.name = Some(name.to_owned());
    path.subresource = Some("status".into());
    Ok(Context {
        api: Arc::clone(&context.api),
        served: budgets.ok_or_else(Status::no_such_resource)?,
        user: User::new("system:apiserver", ["system:masters".to_owned()]),
        verb: Verb::Update,
        path,
        query: Query::default(),
        headers: HeaderMap::new(),
        accepted: context.accepted.clone(),
        body: Bytes::new(),
        now: context.now,
        warnings: Vec::new(),
        conversions: super::Conversions::default(),
        waits: context.waits.clone(),
        annotations: context.annotations.clone(),
        connection: Connection::default(),
    })
}

fn is_ready(pod: &Value) -> bool {
    pod.at("status").list("conditions").iter().any(|c| c.text("type") == "Ready" && c.text("status") == "True")
}

/// The budget with one disruption less, or why there is none to take.
fn take(budget: &Value, pod: &str, now: &str) -> Result<Value, Status> {
    let name = object::name(budget);
    let status = budget.at("status");
    let allowed = status.int("disruptionsAllowed");
    if status.int("observedGeneration") < budget.at("metadata").int("generation") {
        return Err(unsettled(name));
    }
    let forbidden = |why: &str, detail: &str| {
        let budget = Qualified { group: "policy", name: "poddisruptionbudget" };
        let message = format!("The disruption budget {name} does not allow evicting pods currently: {detail}");
        Status::forbidden(budget, name, why).with_cause(CAUSE, message, "")
    };
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(forbidden(why, why));
    }
    if status.entries("disruptedPods").len() > MOST_DISRUPTED {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(forbidden(why, "too many pending evictions not confirmed by PDB controller"));
    }
    if allowed == 0 {
        return Err(too_many(exhausted(name, status)));
    }
    let mut changed = budget.clone();
    let status = changed.struct_mut("status");
    status.put("disruptionsAllowed", allowed - 1);
    if allowed == 1 {
        let observed = status.int("observedGeneration");
        set_insufficient(status, observed, now);
    }
    status.struct_mut("disruptedPods").put(pod, now);
    Ok(changed)
}

/// Why a budget has nothing to spare.
fn exhausted(name: &str, status: &Value) -> String {
    let (desired, healthy) = (status.int("desiredHealthy"), status.int("currentHealthy"));
    let denied = status.list("conditions").iter().find(|c| {
        c.text("type") == "DisruptionAllowed" && c.text("status") == "False" && !c.text("message").is_empty()
    });
    let (reason, why) = denied.map(|c| (c.text("reason"), c.text("message"))).unwrap_or_default();
    let no = format!("The disruption budget {name} does not allow evicting pods currently");
    if reason == "SyncFailed" {
        format!("{no} because it failed sync: {why}")
    } else if healthy <= desired {
        format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
    } else if denied.is_some() {
        format!("{no} ({reason}): {why}")
    } else {
        no
    }
}

/// The last disruption is taken: the condition says so before the controller does.
fn set_insufficient(status: &mut Value, observed: i64, now: &str) {
    let condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": now, "observedGeneration": observed,
    });
    set_condition(status, condition);
}

/// Puts a condition in place of the one of its type. The time stays if the status does.
fn set_condition(status: &mut Value, mut condition: Value) {
    if !status.at("conditions").is_array() {
        status.put("conditions", json!([]));
    }
    let known = status.items_mut("conditions").iter_mut().find(|known| known.text("type") == condition.text("type"));
    if let Some(known) = known {
        if known.text("status") == condition.text("status") {
            condition.copy_field("lastTransitionTime", known);
        }
        *known = condition;
    } else if let Some(Value::Array(all)) = status.get_mut("conditions") {
        all.push(condition);
    }
}

fn too_many(cause: impl Into<String>) -> Status {
    Status::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", REFUSED).with_cause(CAUSE, cause, "")
}

/// 429 for a budget, or a pod, that is changing right now.
fn unsettled(budget: &str) -> Status {
    let mut status = too_many(format!("The disruption budget {budget} is still being processed by the server."));
    status.retry_after = Some(RETRY_SECONDS);
    status
}

/// Says on the pod why it goes, and deletes it.
async fn condemn(context: &mut Context, options: &DeleteOptions) -> Result<(), Status> {
    let mut options = options.clone();
    if !options.dry_run {
        let marked = mark(context, &options).await?;
        if options.resource_version.is_some() {
            options.resource_version = Some(marked.revision.to_string());
        }
    }
    delete::unasked(context, &options).await
}

/// Puts the condition of a pod that is evicted on it.
async fn mark(context: &mut Context, options: &DeleteOptions) -> Result<Stored, Status> {
    let now = object::time(context.now);
    let subresource = context.path.subresource.replace("status".into());
    let change = Change {
        transform: |context: &Context, live: &Value| {
            delete::check_preconditions(context, options, live)?;
            let mut pod = live.clone();
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
            });
            set_condition(pod.struct_mut("status"), condition);
            Ok(pod)
        },
        manager: None,
        options: &WriteOptions::default(),
        uid_is_precondition: false,
        admitted: Admitted::Already,
    };
    let marked = update::update(context, change).await;
    context.path.subresource = subresource;
    Ok(marked?.object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: &Value, code: u16, cause: &str, retry: Option<u32>) {
        let budget = json!({"metadata": {"name": "b", "generation": 2}, "status": status});
        let refused = take(&budget, "p", "2026-01-01T00:00:00Z").expect_err("nothing is left");
        assert_eq!((refused.code.as_u16(), refused.retry_after), (code, retry));
        let causes = &refused.details.as_ref().expect("details").causes;
        assert_eq!((causes[0].reason.as_str(), causes[0].message.as_str()), (CAUSE, cause));
    }

    #[test]
    fn a_budget_says_why_it_spares_nothing() {
        let processed = "The disruption budget b is still being processed by the server.";
        check(&json!({"observedGeneration": 1, "disruptionsAllowed": 3}), 429, processed, Some(10));
        check(
            &json!({"observedGeneration": 2, "desiredHealthy": 3, "currentHealthy": 2}),
            429,
            "The disruption budget b needs 3 healthy pods and has 2 currently",
            None,
        );
        let condition =
            |reason: &str| json!([{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "so"}]);
        check(
            &json!({"observedGeneration": 2, "conditions": condition("SyncFailed")}),
            429,
            "The disruption budget b does not allow evicting pods currently because it failed sync: so",
            None,
        );
        check(
            &json!({"observedGeneration": 2, "currentHealthy": 1, "conditions": condition("Other")}),
            429,
            "The disruption budget b does not allow evicting pods currently (Other): so",
            None,
        );
        check(
            &json!({"observedGeneration": 2, "disruptionsAllowed": -1}),
            403,
            "The disruption budget b does not allow evicting pods currently: pdb disruptions allowed is negative",
            None,
        );
    }

    #[test]
    fn the_last_disruption_changes_the_condition() {
        let budget = json!({"metadata": {"name": "b", "generation": 1}, "status": {
            "observedGeneration": 1, "disruptionsAllowed": 1,
            "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
                            "lastTransitionTime": "2020-01-01T00:00:00Z"}],
        }});
        let left = take(&budget, "p", "2026-01-01T00:00:00Z").expect("one is left");
        assert_eq!(left["status"]["disruptionsAllowed"], 0);
        assert_eq!(left["status"]["disruptedPods"], json!({"p": "2026-01-01T00:00:00Z"}));
        let condition = &left["status"]["conditions"][0];
        assert_eq!(condition["reason"], "InsufficientPods");
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }
}
