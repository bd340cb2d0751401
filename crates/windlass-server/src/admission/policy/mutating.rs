//! MutatingAdmissionPolicies: the patches they make, and applying them.

use std::collections::HashSet;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map as JsonMap, Value};

use super::{View, params};
use crate::admission::dispatch;
use crate::admission::request::{GroupVersionKind, Request};
use crate::admission_config::{BUDGET, Bound, Change, Compiled, Input, OutOfBudget, Policy, Round};
use crate::catalog::Served;
use crate::cel::value::{Made, Value as CelValue};
use crate::codec::base64;
use crate::patch::json::JsonPatch;
use crate::schema::{Schema, builtin};
use crate::status::{Cause, Status};
use crate::versions;

/// The policies' turn at a request. It may come twice: when the object changed after a policy had seen
/// it, the policy is asked again, if it wants that.
pub(in crate::admission) struct Mutation {
    policies: Vec<Bound>,
    again: bool,
    asked: HashSet<String>,
}

impl Mutation {
    pub(in crate::admission) fn new(policies: Vec<Bound>) -> Self {
        Self { policies, again: false, asked: HashSet::new() }
    }

    /// Lets the policies change the object, which is in the version of the request. Returns whether they did.
    pub(in crate::admission) async fn round(
        &mut self,
        request: &Arc<Request>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<bool, Status> {
        let again = std::mem::replace(&mut self.again, true);
        let before = object.clone();
        let mut problems = Vec::new();
        for bound in &self.policies {
            let policy = &bound.policy;
            let Some(served) = policy.constraints.matched(request, Some(object), old).await? else { continue };
            for binding in &bound.bindings {
                if let Some(constraints) = &binding.constraints
                    && constraints.matched(request, Some(object), old).await?.is_none()
                {
                    continue;
                }
                let prefix = format!("policy '{}' with binding '{}' denied request", policy.name, binding.name);
                let found = match params::collect(request, policy.param_kind.as_ref(), &binding.params).await {
                    Ok(found) => found,
                    Err(params::Failure::Reading(status)) => return Err(*status),
                    Err(params::Failure::Configuration(why)) => {
                        if !policy.ignores_failure {
                            problems.push((format!("{prefix}: failed to configure binding: {why}"), None));
                        }
                        continue;
                    }
                };
                for (index, params) in found.into_iter().enumerate() {
                    let id = format!("{}/{}/{index}", policy.name, binding.name);
                    let view = View::new(request, &served, Some(object), old).await?;
                    let long = view.is_long(policy, &params);
                    // Only a policy that had a turn may have another one.
                    let may_change = !again || (policy.reinvoked && self.asked.contains(&id));
                    let turn = Turn { request: Arc::clone(request), policy: Arc::clone(policy), view, params };
                    let (turn, found) =
                        request.api.offload.run(request.qualified(), long, move || turn.take(may_change)).await?;
                    let found = match found? {
                        Outcome::Passed => continue,
                        Outcome::Failed(why) => vec![why],
                        Outcome::Changed(found) => {
                            self.asked.insert(id);
                            found
                        }
                    };
                    if !policy.ignores_failure {
                        problems.extend(found.into_iter().map(|why| (format!("{prefix}: {why}"), Some("Invalid"))));
                    }
                    *object = returned(request, &served, turn.view.object).await?;
                }
            }
        }
        if problems.is_empty() { Ok(*object != before) } else { Err(refusal(request, problems)) }
    }
}

/// One policy's turn at an object, with one of its parameters.
struct Turn {
    request: Arc<Request>,
    policy: Arc<Policy>,
    view: View,
    params: Value,
}

/// What came of a policy's turn.
enum Outcome {
    /// It has nothing to say.
    Passed,
    /// It is not known whether it has.
    Failed(String),
    /// It changed the object; what went wrong on the way.
    Changed(Vec<String>),
}

impl Turn {
    fn take(mut self, may_change: bool) -> (Self, Result<Outcome, Status>) {
        let outcome = match self.policy.applies(self.view.input(&self.policy, &self.params)) {
            Ok(false) => Ok(Outcome::Passed),
            Err(why) => Ok(Outcome::Failed(why)),
            Ok(true) if !may_change => Ok(Outcome::Passed),
            Ok(true) => change(&self.request, &self.policy, &mut self.view, &self.params).map(Outcome::Changed),
        };
        (self, outcome)
    }
}

async fn returned(request: &Request, served: &Arc<Served>, object: Value) -> Result<Value, Status> {
    let same = (&served.group, &served.version) == (&request.served.group, &request.served.version);
    if same || request.is_view {
        return Ok(object);
    }
    versions::between(&request.api, served, &request.served, object).await
}

fn refusal(request: &Request, problems: Vec<(String, Option<&'static str>)>) -> Status {
    let mut status = Status::forbidden(request.qualified(), &request.name, "admission request denied by policy");
    if let Some((message, reason)) = problems.first() {
        status.message.clone_from(message);
        if let Some(reason) = reason {
            status.reason = (*reason).into();
        }
        status.code = StatusCode::FORBIDDEN;
    }
    let causes = &mut status.details.get_or_insert_default().causes;
    causes.extend(problems.into_iter().map(|(message, _)| Cause {
        reason: String::new(),
        message,
        field: String::new(),
    }));
    status
}

/// Applies the changes of one policy in order. Returns what went wrong.
fn change(request: &Request, policy: &Policy, view: &mut View, params: &Value) -> Result<Vec<String>, Status> {
    let kind = GroupVersionKind::of(&view.served, &request.subresource);
    let mut problems = Vec::new();
    for change in &policy.mutations {
        let changed = match change {
            Change::Apply(expression) => apply(request, expression, view.input(policy, params), &view.served, &kind),
            Change::Patch(expression) => patch(expression, view.input(policy, params)),
        };
        match changed {
            Err(why) => problems.push(why),
            Ok(changed) => {
                let mut object = dispatch::retyped(request, &view.served, &kind, changed).map_err(Status::internal)?;
                dispatch::default(request, &view.served, &mut object);
                view.object = object;
            }
        }
    }
    Ok(problems)
}

fn eval<'a>(expression: &'a Compiled, input: Input<'a>) -> Result<CelValue<'a>, String> {
    let mut budget = BUDGET;
    match Round::new(input).eval(expression, &mut budget) {
        Ok(outcome) => outcome,
        Err(OutOfBudget) => Err(OutOfBudget::MESSAGE.to_owned()),
    }
}

/// The object with a partial object applied to it.
fn apply(
    request: &Request,
    expression: &Compiled,
    input: Input<'_>,
    served: &Served,
    kind: &GroupVersionKind,
) -> Result<Value, String> {
    let CelValue::Object(made) = eval(expression, input)? else {
        return Err("unsupported return type from ApplyConfiguration expression".to_owned());
    };
    check_names(&made, "Object").map_err(|why| format!("type mismatch: {why}"))?;
    let mut configuration = object_to_json(&made)?;
    for field in ["apiVersion", "kind"] {
        if let Some(value) = input.object.get(field) {
            configuration.insert(field.to_owned(), value.clone());
        }
    }
    let mut object = input.object.clone();
    let configuration = Value::Object(configuration);
    let applied = match served.custom() {
        Some(custom) if !request.is_view => {
            let version = custom.version(&served.version).unwrap_or_else(|| custom.storage_version());
            crate::apply::apply_partial(&version.schema(), &mut object, &configuration)
        }
        _ => {
            let schema = builtin::by_kind(&kind.group, &kind.version, &kind.kind).map(builtin::definition);
            let any = Schema::default();
            crate::apply::apply_partial(schema.unwrap_or(&any), &mut object, &configuration)
        }
    };
    applied.map_err(|why| format!("error applying patch: {why}"))?;
    Ok(object)
}

/// The object with a JSON patch applied to it. A test that fails leaves it as it is.
fn patch(expression: &Compiled, input: Input<'_>) -> Result<Value, String> {
    let CelValue::List(operations) = eval(expression, input)? else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut patch = Vec::new();
    for operation in operations.iter() {
        let CelValue::Object(made) = operation.map_err(|error| error.to_string())? else {
            return Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned());
        };
        if let Some(CelValue::Object(value)) = made.fields.get("value") {
            check_names(value, &value.name).map_err(|why| format!("type mismatch: {why}"))?;
        }
        patch.push(Value::Object(object_to_json(&made)?));
    }
    let patch = Value::Array(patch);
    let decoded = JsonPatch::decode(&patch, true).map_err(|status| format!("JSON Patch: {}", status.message))?;
    let mut object = input.object.clone();
    match decoded.apply_or_explain(&mut object) {
        Ok(()) => Ok(object),
        Err(why) if why.contains("test") && why.contains("failed") => Ok(input.object.clone()),
        Err(why) => Err(format!("JSON Patch: {why}")),
    }
}

/// Objects are called after where they are: `Object.spec` in the field `spec` of `Object`.
fn check_names(made: &Made<'_>, expected: &str) -> Result<(), String> {
    if *made.name != *expected {
        return Err(format!(
            "unexpected type name \"{}\", expected \"{expected}\", which matches field name path from root Object type",
            made.name
        ));
    }
    for (field, value) in &made.fields {
        check_value_names(value, &format!("{expected}.{field}"))?;
    }
    Ok(())
}

fn check_value_names(value: &CelValue<'_>, expected: &str) -> Result<(), String> {
    match value {
        CelValue::Object(made) => check_names(made, expected),
        CelValue::List(list) => list.iter().flatten().try_for_each(|item| check_value_names(&item, expected)),
        _ => Ok(()),
    }
}

fn object_to_json(made: &Made<'_>) -> Result<JsonMap<String, Value>, String> {
    made.fields.iter().map(|(name, value)| Ok((name.to_string(), to_json(value)?))).collect()
}

/// A value as JSON.
fn to_json(value: &CelValue<'_>) -> Result<Value, String> {
    Ok(match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(value) => (*value).into(),
        CelValue::Int(value) => (*value).into(),
        CelValue::Uint(value) => (*value).into(),
        CelValue::Double(value) => serde_json::Number::from_f64(*value).map_or(Value::Null, Value::Number),
        CelValue::String(text) => (**text).into(),
        CelValue::Bytes(bytes) => base64::encode(bytes).into(),
        CelValue::Preserved(json) => (*json).clone(),
        CelValue::List(list) => {
            let items = list.iter().map(|item| to_json(&item.map_err(|error| error.to_string())?));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        CelValue::Map(map) => {
            let mut out = JsonMap::new();
            for key in map.keys() {
                let CelValue::String(name) = &key else {
                    return Err(format!("a map key of type {} cannot be JSON", key.type_name()));
                };
                if let Some(value) = map.find(&key).map_err(|error| error.to_string())? {
                    out.insert(name.to_string(), to_json(&value)?);
                }
            }
            Value::Object(out)
        }
        CelValue::Object(made) => Value::Object(object_to_json(made)?),
        CelValue::Optional(Some(value)) => to_json(value)?,
        other => return Err(format!("a value of type {} cannot be JSON", other.type_name())),
    })
}
