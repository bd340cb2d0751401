//! ValidatingAdmissionPolicies: what they decide, and what follows from it.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::programs::{Input, OutOfBudget, Round};
use super::{BUDGET, Binding, Bound, Policy, View, params};
use crate::admission::request::Request;
use crate::cel::value::Value as CelValue;
use crate::status::{Cause, Status};

/// The longest message an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;

/// A refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) message: String,
    /// The machine-readable reason; empty for the usual one.
    pub(super) reason: String,
}

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
                    denied.get_or_insert((prefix, Denial { message, reason: String::new() }));
                    continue;
                }
            };
            for params in found {
                let (policy, view) = (Arc::clone(&bound.policy), Arc::clone(&views[view]));
                let long = view.is_long(&policy, &params);
                let work = move || decide(&policy, view.input(&policy, &params));
                for denial in request.api.offload.run(request.qualified(), long, work).await? {
                    act(binding, &prefix, denial, &mut denied, warnings);
                }
            }
        }
    }
    match denied {
        None => Ok(()),
        Some((prefix, denial)) => Err(refusal(request, &prefix, &denial)),
    }
}

/// Does what the binding says about a refusal. Audit logs are not kept.
fn act(
    binding: &Binding,
    prefix: &str,
    denial: Denial,
    denied: &mut Option<(String, Denial)>,
    warnings: &mut Vec<String>,
) {
    let has = |action: &str| binding.actions.iter().any(|known| known == action);
    if has("Warn") {
        warnings.push(format!("Validation failed for {prefix}: {}", denial.message));
    }
    if has("Deny") {
        denied.get_or_insert((prefix.to_owned(), denial));
    }
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

/// What a policy refuses about a request.
pub(super) fn decide(policy: &Policy, input: Input<'_>) -> Vec<Denial> {
    // What goes wrong counts as a refusal, unless failures are ignored.
    let failed = |message: String| {
        if policy.ignores_failure { Vec::new() } else { vec![Denial { message, reason: String::new() }] }
    };
    match policy.applies(input) {
        Ok(true) => {}
        Ok(false) => return Vec::new(),
        Err(why) => return failed(why),
    }
    let mut budget = BUDGET;
    let mut round = Round::new(input);
    let mut outcomes = Vec::with_capacity(policy.validations.len());
    for validation in &policy.validations {
        match round.eval(&validation.expression, &mut budget) {
            Ok(outcome) => outcomes.push(outcome),
            Err(OutOfBudget) => return failed(OutOfBudget::MESSAGE.to_owned()),
        }
    }
    let mut messages = Round::new(input);
    let mut denials = Vec::new();
    for (validation, outcome) in policy.validations.iter().zip(outcomes) {
        match outcome {
            Ok(CelValue::Bool(true)) => {}
            Err(why) => denials.extend(failed(why)),
            Ok(_) => {
                let message = match &validation.message_expression {
                    None => None,
                    Some(expression) => {
                        if let Ok(outcome) = messages.eval(expression, &mut budget) {
                            outcome.ok().and_then(|value| usable(&value))
                        } else {
                            denials.extend(failed(format!("failed messageExpression: {}", OutOfBudget::MESSAGE)));
                            continue;
                        }
                    }
                };
                let message = message.unwrap_or_else(|| match validation.message.as_str() {
                    "" => format!("failed expression: {}", validation.expression.text.trim()),
                    message => message.to_owned(),
                });
                denials.push(Denial { message, reason: validation.reason.clone() });
            }
        }
    }
    denials.extend(annotations(policy, input).into_iter().flat_map(failed));
    denials
}

/// What goes wrong with the values for the audit log; the values themselves are not kept.
fn annotations(policy: &Policy, input: Input<'_>) -> Vec<String> {
    let mut round = Round::new(input);
    let mut budget = BUDGET;
    let mut problems = Vec::new();
    for annotation in &policy.annotations {
        match round.eval(annotation, &mut budget) {
            Err(OutOfBudget) => return vec![OutOfBudget::MESSAGE.to_owned()],
            Ok(Ok(_)) => {}
            Ok(Err(why)) => problems.push(why),
        }
    }
    problems
}

/// A message that can be shown.
fn usable(value: &CelValue<'_>) -> Option<String> {
    let CelValue::String(text) = value else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}
