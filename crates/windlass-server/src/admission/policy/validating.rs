//! ValidatingAdmissionPolicies: what they decide, and what follows from it.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::{View, params};
use crate::admission::request::Request;
use crate::admission_config::{BUDGET, Binding, Bound, Input, OutOfBudget, Policy, Round};
use crate::audit;
use crate::cel::value::Value as CelValue;
use crate::status::{Cause, Status};

/// The longest message an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;

/// The longest value of an annotation.
const MAX_ANNOTATION: usize = 10 * 1024;
/// The annotation of a request that a policy with the action `Audit` refuses.
const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// A refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) message: String,
    /// The machine-readable reason; empty for the usual one.
    pub(super) reason: String,
    /// Which validation refuses; `None` if a value for the audit log cannot be computed, which refuses whatever the
    /// binding says.
    pub(super) index: Option<usize>,
}

/// What a policy says about a request.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) denials: Vec<Denial>,
    pub(super) annotations: Annotations,
}

/// Keys and values for the audit log.
type Annotations = Vec<(String, String)>;

/// Asks all policies that are about a request; the first one that refuses it decides.
pub(in crate::admission) async fn validate(
    request: &Request,
    policies: &[Bound],
    object: Option<&Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let mut denied: Option<(String, Denial)> = None;
    let mut views: Vec<Arc<View>> = Vec::new();
    for bound in policies {
        let policy = &*bound.policy;
        let Some(served) = policy.constraints.matched(request, object, old).await? else { continue };
        let is_it = |view: &Arc<View>| (&view.served.group, &view.served.version) == (&served.group, &served.version);
        let view = if let Some(at) = views.iter().position(is_it) {
            at
        } else {
            views.push(Arc::new(View::new(request, &served, object, old).await?));
            views.len() - 1
        };
        let mut annotations: Vec<(String, Vec<String>)> = Vec::new();
        for binding in &bound.bindings {
            if let Some(constraints) = &binding.constraints
                && constraints.matched(request, object, old).await?.is_none()
            {
                continue;
            }
            let prefix = format!("ValidatingAdmissionPolicy '{}' with binding '{}'", policy.name, binding.name);
            let found = match params::collect(request, policy.param_kind.as_ref(), &binding.params).await {
                Ok(found) => found,
                Err(params::Failure::Reading(status)) => return Err(*status),
                Err(params::Failure::Configuration(_)) if policy.ignores_failure => continue,
                Err(params::Failure::Configuration(why)) => {
                    let message = format!("failed to configure binding: {why}");
                    denied.get_or_insert((prefix, Denial { message, reason: String::new(), index: None }));
                    continue;
                }
            };
            for params in found {
                let (policy, view) = (Arc::clone(&bound.policy), Arc::clone(&views[view]));
                let long = view.is_long(&policy, &params);
                let work = move || decide(&policy, view.input(&policy, &params));
                let decision = request.api.offload.run(request.qualified(), long, work).await?;
                for denial in decision.denials {
                    act(request, binding, &prefix, denial, &mut denied, warnings);
                }
                decision.annotations.into_iter().for_each(|(key, value)| collect(&mut annotations, key, value));
            }
        }
        for (key, values) in annotations {
            request.annotations.add_named(&policy.name, &key, &values.join(", "));
        }
    }
    match denied {
        None => Ok(()),
        Some((prefix, denial)) => Err(refusal(request, &prefix, &denial)),
    }
}

/// Adds a value for the audit log. Bindings and parameters that give the same value count once.
fn collect(annotations: &mut Vec<(String, Vec<String>)>, key: String, mut value: String) {
    let mut end = value.len().min(MAX_ANNOTATION);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value.truncate(end);
    match annotations.iter_mut().find(|(known, _)| *known == key) {
        Some((_, values)) if values.contains(&value) => {}
        Some((_, values)) => values.push(value),
        None => annotations.push((key, vec![value])),
    }
}

/// Does what the binding says about a refusal.
fn act(
    request: &Request,
    binding: &Binding,
    prefix: &str,
    denial: Denial,
    denied: &mut Option<(String, Denial)>,
    warnings: &mut Vec<String>,
) {
    let Some(index) = denial.index else {
        denied.get_or_insert((prefix.to_owned(), denial));
        return;
    };
    let has = |action: &str| binding.actions.iter().any(|known| known == action);
    if has("Audit") {
        request.annotations.add(FAILURE, || failure(binding, &denial.message, index));
    }
    if has("Warn") {
        warnings.push(format!("Validation failed for {prefix}: {}", denial.message));
    }
    if has("Deny") {
        denied.get_or_insert((prefix.to_owned(), denial));
    }
}

/// A refusal as the audit log has it: a list of one.
fn failure(binding: &Binding, message: &str, index: usize) -> String {
    let failure = audit::object(&[
        ("message", message.into()),
        ("policy", binding.policy.as_str().into()),
        ("binding", binding.name.as_str().into()),
        ("expressionIndex", index.into()),
        ("validationActions", binding.actions.clone().into()),
    ]);
    format!("[{failure}]")
}

fn refusal(request: &Request, prefix: &str, denial: &Denial) -> Status {
    let message = format!("{prefix} denied request: {}", denial.message);
    let mut status = Status::forbidden(request.qualified(), &request.name, &message);
    let (reason, code) = match denial.reason.as_str() {
        "Forbidden" => ("Forbidden", StatusCode::FORBIDDEN),
        "Unauthorized" => ("Unauthorized", StatusCode::UNAUTHORIZED),
        "RequestEntityTooLarge" => ("RequestEntityTooLarge", StatusCode::PAYLOAD_TOO_LARGE),
        _ => ("Invalid", StatusCode::UNPROCESSABLE_ENTITY),
    };
    status.reason = reason.into();
    status.code = code;
    let causes = &mut status.details.get_or_insert_default().causes;
    causes.push(Cause { reason: String::new(), message, field: String::new() });
    status
}

/// What a policy says about a request.
pub(super) fn decide(policy: &Policy, input: Input<'_>) -> Decision {
    // What goes wrong counts as a refusal, unless failures are ignored.
    let failed = |message: String, index: Option<usize>| {
        (!policy.ignores_failure).then(|| Denial { message, reason: String::new(), index })
    };
    let only =
        |message: String| Decision { denials: failed(message, Some(0)).into_iter().collect(), ..Decision::default() };
    match policy.applies(input) {
        Ok(true) => {}
        Ok(false) => return Decision::default(),
        Err(why) => return only(why),
    }
    let mut budget = BUDGET;
    let mut round = Round::new(input);
    let mut outcomes = Vec::with_capacity(policy.validations.len());
    for validation in &policy.validations {
        match round.eval(&validation.expression, &mut budget) {
            Ok(outcome) => outcomes.push(outcome),
            Err(OutOfBudget) => return only(OutOfBudget::MESSAGE.to_owned()),
        }
    }
    let mut messages = Round::new(input);
    let mut denials = Vec::new();
    for (index, (validation, outcome)) in policy.validations.iter().zip(outcomes).enumerate() {
        match outcome {
            Ok(CelValue::Bool(true)) => {}
            Err(why) => denials.extend(failed(why, Some(index))),
            Ok(_) => {
                let message = match &validation.message_expression {
                    None => None,
                    Some(expression) => {
                        if let Ok(outcome) = messages.eval(expression, &mut budget) {
                            outcome.ok().and_then(|value| usable(&value))
                        } else {
                            let why = format!("failed messageExpression: {}", OutOfBudget::MESSAGE);
                            denials.extend(failed(why, Some(index)));
                            continue;
                        }
                    }
                };
                let message = message.unwrap_or_else(|| match validation.message.as_str() {
                    "" => format!("failed expression: {}", validation.expression.text.trim()),
                    message => message.to_owned(),
                });
                denials.push(Denial { message, reason: validation.reason.clone(), index: Some(index) });
            }
        }
    }
    match annotations(policy, input) {
        Err(OutOfBudget) => only(OutOfBudget::MESSAGE.to_owned()),
        Ok((annotations, problems)) => {
            denials.extend(problems.into_iter().filter_map(|why| failed(why, None)));
            Decision { denials, annotations }
        }
    }
}

/// The values for the audit log, and what goes wrong with them.
fn annotations(policy: &Policy, input: Input<'_>) -> Result<(Annotations, Vec<String>), OutOfBudget> {
    let mut round = Round::new(input);
    let mut budget = BUDGET;
    let (mut values, mut problems) = (Vec::new(), Vec::new());
    for annotation in &policy.annotations {
        match round.eval(&annotation.value, &mut budget)? {
            Ok(CelValue::String(text)) if !text.trim().is_empty() => {
                values.push((annotation.key.clone(), text.trim().to_owned()));
            }
            Ok(_) => {}
            Err(why) => problems.push(why),
        }
    }
    Ok((values, problems))
}

/// A message that can be shown.
fn usable(value: &CelValue<'_>) -> Option<String> {
    let CelValue::String(text) = value else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}
