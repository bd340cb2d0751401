//! Stages as pure functions: which one is next for an object, when, and what it does then.
//!
//! Mirrors `pkg/utils/lifecycle` of kwok.

mod condition;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::cel::{CelError, Scope as _};
use crate::jq::QueryError;
use crate::objects::{Impersonation, StageApply, StageEvent, StageFinalizers, StagePatch, StageSpec, StageStep};
use crate::template::{Functions, Template, TemplateError};

use condition::{About, Amount, Condition};

/// Why a stage cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// A query in it.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A template in it.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// What a template became is no YAML.
    #[error("the template became no YAML: {0}")]
    Yaml(String),
    /// An operator of its selector.
    #[error("operator {0:?} is not supported")]
    Operator(String),
    /// A patch of it.
    #[error("unknown patch type {0}")]
    PatchType(String),
    /// An expression in it.
    #[error(transparent)]
    Cel(#[from] CelError),
    /// What a template became names no object.
    #[error("the template became no object with apiVersion, kind and metadata.name")]
    Unnamed,
}

/// A stage that can be carried out.
#[derive(Debug)]
pub struct Stage {
    name: String,
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
    conditions: Vec<Condition>,
    weight: Amount,
    delay: Option<(Amount, Option<Amount>)>,
    immediate: bool,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    event: Option<StageEvent>,
    finalizers: Option<StageFinalizers>,
    delete: bool,
    patch: Option<(StagePatch, Template)>,
    apply: Option<(StageApply, Template)>,
}

/// Something that a stage does to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reports an event.
    Event(StageEvent),
    /// Patches it.
    Patch(Patch),
    /// Creates or patches another object, which the patch names.
    Apply(Patch),
    /// Deletes it.
    Delete,
}

/// A patch of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// What is patched; the object itself if it is empty.
    pub subresource: String,
    /// The media type.
    pub content_type: &'static str,
    /// The patch.
    pub body: Value,
    /// As whom; as the controller itself if no user is named.
    pub as_user: Option<String>,
}

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

impl Stage {
    /// Reads a stage whose templates may use these functions. `None` if it selects nothing.
    pub fn compile(name: &str, spec: &StageSpec, functions: &dyn Functions) -> Result<Option<Self>, StageError> {
        let Some(selector) = &spec.selector else { return Ok(None) };
        let pairs = |map: &std::collections::BTreeMap<String, String>| map.clone().into_iter().collect();
        let delay = match &spec.delay {
            None => None,
            Some(delay) => {
                let base = Amount::new(Some(delay.duration_milliseconds.unwrap_or(0)), delay.duration_from.as_ref())?;
                let jitter = match (&delay.jitter_duration_milliseconds, &delay.jitter_duration_from) {
                    (None, None) => None,
                    (value, from) => Some(Amount::new(*value, from.as_ref())?),
                };
                Some((base, jitter))
            }
        };
        let steps = steps(spec).into_iter().map(|step| Step::new(step, functions)).collect::<Result<_, _>>()?;
        Ok(Some(Self {
            name: name.to_owned(),
            labels: pairs(&selector.match_labels),
            annotations: pairs(&selector.match_annotations),
            conditions: selector.match_expressions.iter().map(Condition::new).collect::<Result<_, _>>()?,
            weight: Amount::new(Some(spec.weight), spec.weight_from.as_ref())?,
            delay,
            immediate: spec.immediate_next_stage.unwrap_or(false),
            steps,
        }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the next stage follows at once.
    pub fn is_immediate(&self) -> bool {
        self.immediate
    }

    /// Whether it is for an object in this state.
    pub fn matches(&self, object: &Value) -> bool {
        let has = |map: &str, wanted: &[(String, String)]| {
            wanted.iter().all(|(name, value)| object["metadata"][map][name].as_str() == Some(value))
        };
        has("labels", &self.labels)
            && has("annotations", &self.annotations)
            && self.conditions.iter().all(|condition| condition.matches(object))
    }

    /// How long it waits. `random` gives a number below its argument.
    pub fn delay(&self, object: &Value, now: Timestamp, random: &mut dyn FnMut(u64) -> u64) -> Duration {
        let Some((base, jitter)) = &self.delay else { return Duration::ZERO };
        let Some(base) = base.duration(object, now) else { return Duration::ZERO };
        let most = jitter.as_ref().and_then(|jitter| jitter.duration(object, now));
        match most {
            Some(most) if most <= base => most,
            Some(most) => {
                let span = u64::try_from(most.saturating_sub(base).as_millis()).unwrap_or(u64::MAX).max(1);
                base + Duration::from_millis(random(span))
            }
            None => base,
        }
    }

    /// What it does to an object, in order.
    pub fn actions(&self, object: &Value, functions: &dyn Functions) -> Result<Vec<Action>, StageError> {
        let mut actions = Vec::new();
        let mut is_deleted = false;
        for step in &self.steps {
            actions.extend(step.event.clone().map(Action::Event));
            if is_deleted {
                continue;
            }
            if let Some(change) = &step.finalizers {
                let operations = finalizers(object, change);
                if !operations.is_empty() {
                    actions.push(Action::Patch(Patch {
                        subresource: String::new(),
                        content_type: JSON_PATCH,
                        body: operations.into(),
                        as_user: None,
                    }));
                }
            }
            if step.delete {
                is_deleted = true;
                actions.push(Action::Delete);
                continue;
            }
            if let Some((patch, template)) = &step.patch {
                actions.push(Action::Patch(render(patch, template, object, functions)?));
            }
            if let Some((apply, template)) = &step.apply {
                actions.push(Action::Apply(render_apply(apply, template, object, functions)?));
            }
        }
        Ok(actions)
    }
}

/// The stage that an object is in, of all that there are. `random` gives a number below its argument.
pub fn choose<'s, S: AsRef<Stage>>(
    stages: &'s [S],
    object: &Value,
    random: &mut dyn FnMut(u64) -> u64,
) -> Option<&'s S> {
    let matching: Vec<&S> = stages.iter().filter(|stage| stage.as_ref().matches(object)).collect();
    if matching.len() <= 1 {
        return matching.into_iter().next();
    }
    let weights: Vec<Option<i64>> = matching.iter().map(|stage| stage.as_ref().weight.number(object)).collect();
    let total: i64 = weights.iter().flatten().map(|weight| (*weight).max(0)).sum();
    if total == 0 {
        // Those whose weight could be told come first, as in kwok.
        let told: Vec<&S> =
            matching.iter().zip(&weights).filter(|(_, weight)| weight.is_some()).map(|(stage, _)| *stage).collect();
        let among = if told.is_empty() { matching } else { told };
        return among.get(random(among.len() as u64) as usize).copied();
    }
    let mut left = random(total.unsigned_abs()) as i64;
    for (stage, weight) in matching.iter().zip(weights) {
        left -= weight.unwrap_or(0).max(0);
        if left < 0 {
            return Some(stage);
        }
    }
    matching.last().copied()
}

impl AsRef<Stage> for Stage {
    fn as_ref(&self) -> &Stage {
        self
    }
}

/// The steps of a stage in either form. Mirrors `Convert_v1alpha1_StageSpec_To_internalversion_StageSpec`.
fn steps(spec: &StageSpec) -> Vec<StageStep> {
    let (true, Some(next)) = (spec.steps.is_empty(), &spec.next) else { return spec.steps.clone() };
    let mut steps = Vec::new();
    if next.event.is_some() {
        steps.push(StageStep { event: next.event.clone(), ..StageStep::default() });
    }
    if next.finalizers.is_some() {
        steps.push(StageStep { finalizers: next.finalizers.clone(), ..StageStep::default() });
    }
    let mut patches = next.patches.clone();
    if patches.is_empty() && !next.status_template.is_empty() {
        patches.push(StagePatch {
            subresource: next.status_subresource.clone().unwrap_or_else(|| "status".to_owned()),
            root: "status".to_owned(),
            template: next.status_template.clone(),
            kind: None,
            impersonation: next.status_patch_as.clone(),
        });
    }
    steps.extend(patches.into_iter().map(|patch| StageStep { patch: Some(patch), ..StageStep::default() }));
    if next.delete {
        steps.push(StageStep { delete: true, ..StageStep::default() });
    }
    steps
}

impl Step {
    fn new(step: StageStep, functions: &dyn Functions) -> Result<Self, StageError> {
        let check = |kind: Option<&str>, known: [&str; 3]| match kind.filter(|kind| !known.contains(kind)) {
            Some(unknown) => Err(StageError::PatchType(unknown.to_owned())),
            None => Ok(()),
        };
        let patch = match step.patch {
            Some(patch) => {
                let template = Template::parse(&patch.template, functions)?;
                check(patch.kind.as_deref(), ["json", "merge", "strategic"])?;
                Some((patch, template))
            }
            None => None,
        };
        let apply = match step.apply {
            Some(apply) => {
                let template = Template::parse(&apply.template, functions)?;
                check(apply.kind.as_deref(), ["apply", "merge", "strategic"])?;
                Some((apply, template))
            }
            None => None,
        };
        Ok(Self { event: step.event, finalizers: step.finalizers, delete: step.delete, patch, apply })
    }
}

/// The operations that change an object's finalizers. Mirrors `finalizersModify`.
fn finalizers(object: &Value, change: &StageFinalizers) -> Vec<Value> {
    let has: Vec<&str> =
        object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let removed: Vec<usize> =
        (0..has.len()).rev().filter(|at| change.remove.iter().any(|item| item.value == has[*at])).collect();
    let is_emptied = change.empty || (!change.remove.is_empty() && removed.len() == has.len());
    let mut operations = Vec::new();
    if is_emptied {
        if !has.is_empty() {
            operations.push(json!({"op": "remove", "path": "/metadata/finalizers"}));
        }
    } else {
        operations
            .extend(removed.iter().map(|at| json!({"op": "remove", "path": format!("/metadata/finalizers/{at}")})));
    }
    if change.add.is_empty() {
        return operations;
    }
    if has.is_empty() || is_emptied {
        let values: Vec<&str> = change.add.iter().map(|item| item.value.as_str()).collect();
        operations.push(json!({"op": "add", "path": "/metadata/finalizers", "value": values}));
    } else {
        let new = change.add.iter().filter(|item| !has.contains(&item.value.as_str()));
        operations.extend(new.map(|item| json!({"op": "add", "path": "/metadata/finalizers/-", "value": item.value})));
    }
    operations
}

fn render(
    patch: &StagePatch,
    template: &Template,
    object: &Value,
    functions: &dyn Functions,
) -> Result<Patch, StageError> {
    let text = template.render(object, functions)?;
    let content: Value = serde_saphyr::from_str(&text).map_err(|error| StageError::Yaml(error.to_string()))?;
    let as_user = impersonated(patch.impersonation.as_ref());
    let (content_type, body) = match patch.kind.as_deref() {
        Some("json") => {
            let mut operations = content.as_array().cloned().unwrap_or_default();
            if !patch.root.is_empty() {
                for operation in &mut operations {
                    let path = operation["path"].as_str().unwrap_or_default();
                    operation["path"] = format!("/{}{path}", patch.root).into();
                }
            }
            (JSON_PATCH, operations.into())
        }
        kind => {
            let is_strategic = kind
                .map_or_else(|| About { object, now: Timestamp::UNIX_EPOCH }.is_typed(), |kind| kind == "strategic");
            let content_type = if is_strategic { STRATEGIC_PATCH } else { MERGE_PATCH };
            let body = if patch.root.is_empty() { content } else { json!({ patch.root.as_str(): content }) };
            (content_type, body)
        }
    };
    Ok(Patch { subresource: patch.subresource.clone(), content_type, body, as_user })
}

fn impersonated(config: Option<&Impersonation>) -> Option<String> {
    config.map(|Impersonation { username }| username.clone()).filter(|user| !user.is_empty())
}

/// Another object, as a patch that names it.
fn render_apply(
    apply: &StageApply,
    template: &Template,
    object: &Value,
    functions: &dyn Functions,
) -> Result<Patch, StageError> {
    let text = template.render(object, functions)?;
    let body: Value = serde_saphyr::from_str(&text).map_err(|error| StageError::Yaml(error.to_string()))?;
    let named = [&body["apiVersion"], &body["kind"], &body["metadata"]["name"]];
    if named.iter().any(|name| name.as_str().is_none_or(str::is_empty)) {
        return Err(StageError::Unnamed);
    }
    let content_type = match apply.kind.as_deref() {
        Some("merge") => MERGE_PATCH,
        Some("strategic") => STRATEGIC_PATCH,
        _ => APPLY_PATCH,
    };
    let as_user = impersonated(apply.impersonation.as_ref());
    Ok(Patch { subresource: apply.subresource.clone(), content_type, body, as_user })
}

#[cfg(test)]
mod tests;
