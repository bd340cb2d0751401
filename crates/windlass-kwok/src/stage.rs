//! Stages as pure functions: which one is next for an object, when, and what it does then.
//!
//! Mirrors `pkg/utils/lifecycle` of kwok.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::jq::{Query, QueryError};
use crate::objects::{
    ExpressionFrom, Impersonation, MatchExpression, SelectorJq, StageEvent, StageFinalizers, StagePatch, StageSpec,
    StageStep,
};
use crate::template::{Functions, Template, TemplateError};

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
    /// CEL is not read.
    #[error("expressions in CEL are not supported, use jq")]
    Cel,
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
struct Condition {
    query: Query,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// A number that an object may determine.
#[derive(Debug)]
struct Amount {
    value: Option<i64>,
    query: Option<Query>,
}

#[derive(Debug)]
struct Step {
    event: Option<StageEvent>,
    finalizers: Option<StageFinalizers>,
    delete: bool,
    patch: Option<(StagePatch, Template)>,
}

/// Something that a stage does to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reports an event.
    Event(StageEvent),
    /// Patches it.
    Patch(Patch),
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
    /// As whom; as the controller itself if there is nobody.
    pub as_user: Option<String>,
}

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

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
        let patch = match step.patch {
            Some(patch) => {
                let template = Template::parse(&patch.template, functions)?;
                if let Some(kind) =
                    patch.kind.as_deref().filter(|kind| !matches!(*kind, "json" | "merge" | "strategic"))
                {
                    return Err(StageError::PatchType(kind.to_owned()));
                }
                Some((patch, template))
            }
            None => None,
        };
        Ok(Self { event: step.event, finalizers: step.finalizers, delete: step.delete, patch })
    }
}

impl Condition {
    fn new(expression: &MatchExpression) -> Result<Self, StageError> {
        if expression.cel.is_some() {
            return Err(StageError::Cel);
        }
        let MatchExpression { key, operator, values, .. } = expression.clone();
        let SelectorJq { key, operator, values } =
            expression.jq.clone().unwrap_or(SelectorJq { key, operator, values });
        let operator = match operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return Err(StageError::Operator(operator)),
        };
        Ok(Self { query: Query::parse(&key)?, operator, values })
    }

    fn matches(&self, object: &Value) -> bool {
        let results = self.query.run(object).unwrap_or_default();
        let has = || {
            results.iter().any(|result| match result {
                Value::String(text) => self.values.contains(text),
                Value::Bool(_) | Value::Number(_) => self.values.contains(&result.to_string()),
                _ => false,
            })
        };
        match self.operator {
            Operator::In => has(),
            Operator::NotIn => !has(),
            Operator::Exists => !results.is_empty(),
            Operator::DoesNotExist => results.is_empty(),
        }
    }
}

impl Amount {
    fn new(value: Option<i64>, from: Option<&ExpressionFrom>) -> Result<Self, StageError> {
        let query = match from {
            None => None,
            Some(from) if from.cel.is_some() => return Err(StageError::Cel),
            Some(from) => {
                let expression = from.jq.as_ref().map_or(&from.expression_from, |jq| &jq.expression);
                if expression.is_empty() { None } else { Some(Query::parse(expression)?) }
            }
        };
        Ok(Self { value, query })
    }

    fn result(&self, object: &Value) -> Option<Value> {
        self.query.as_ref()?.run(object)?.into_iter().next()
    }

    /// As a weight; `None` if the object says something that is none.
    fn number(&self, object: &Value) -> Option<i64> {
        match self.result(object) {
            Some(Value::String(text)) => text.parse().ok(),
            Some(Value::Number(number)) => number.as_f64().map(|number| number as i64),
            _ => self.value,
        }
    }

    /// As a duration, or the time that is left until a point in time.
    fn duration(&self, object: &Value, now: Timestamp) -> Option<Duration> {
        let default = || self.value.map(|value| Duration::from_millis(value.max(0).unsigned_abs()));
        let Some(Value::String(text)) = self.result(object) else { return default() };
        if text.is_empty() {
            return None;
        }
        if let Ok(until) = text.parse::<Timestamp>() {
            let left = until.duration_since(now);
            return Some(if left > SignedDuration::ZERO { left.unsigned_abs() } else { Duration::ZERO });
        }
        go_duration(&text).or_else(default)
    }
}

/// `1h2m3.5s`, as Go reads durations.
pub(crate) fn go_duration(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).filter(|at| *at > 0)?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let scale = match &rest[..unit] {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number * scale).ok()?;
        rest = &rest[unit..];
    }
    Some(total)
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
    let as_user = patch.impersonation.as_ref().map(|Impersonation { username }| username.clone());
    let as_user = as_user.filter(|user| !user.is_empty());
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
            // What kwok does with pods and nodes unless it is told otherwise.
            let content_type = if kind == Some("merge") { MERGE_PATCH } else { STRATEGIC_PATCH };
            let body = if patch.root.is_empty() { content } else { json!({ patch.root.as_str(): content }) };
            (content_type, body)
        }
    };
    Ok(Patch { subresource: patch.subresource.clone(), content_type, body, as_user })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions that the templates of these tests ask for.
    struct Known;

    impl Functions for Known {
        fn has(&self, name: &str) -> bool {
            name == "PodIPWith"
        }

        fn call(&self, _: &str, _: &[Value]) -> Result<Value, String> {
            Ok("10.0.0.7".into())
        }
    }

    fn stage(spec: &str) -> Stage {
        let spec: StageSpec = serde_saphyr::from_str(spec).expect("a spec");
        Stage::compile("s", &spec, &Known).expect("a stage").expect("a selector")
    }

    fn pod() -> Value {
        json!({
            "metadata": {
                "name": "p", "labels": {"app": "web"}, "finalizers": ["a", "b"],
                "annotations": {"delay": "1m30s", "weight": "3", "until": "2026-01-01T00:00:10Z"},
            },
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
            "status": {"phase": "Pending"},
        })
    }

    #[test]
    fn all_conditions_of_a_selector_hold() {
        let check = |selector: &str, expected: bool| {
            assert_eq!(
                stage(&format!("{{selector: {selector}, next: {{delete: true}}}}")).matches(&pod()),
                expected,
                "{selector}"
            );
        };
        check("{}", true);
        check("{matchLabels: {app: web}}", true);
        check("{matchLabels: {app: other}}", false);
        check("{matchAnnotations: {weight: '3'}}", true);
        check("{matchExpressions: [{key: .status.phase, operator: In, values: [Pending]}]}", true);
        check("{matchExpressions: [{jq: {key: .status.phase, operator: NotIn, values: [Pending]}}]}", false);
        check("{matchExpressions: [{key: .metadata.deletionTimestamp, operator: DoesNotExist}]}", true);
        check("{matchExpressions: [{key: '.status.conditions.[].type', operator: Exists}]}", false);
        check("{matchExpressions: [{key: '.status.conditions.[].type', operator: NotIn, values: [Ready]}]}", true);
        check("{matchLabels: {app: web}, matchExpressions: [{key: .status.podIP, operator: Exists}]}", false);
    }

    #[test]
    fn a_delay_is_fixed_random_or_the_objects() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let check = |delay: &str, expected_ms: u64| {
            let stage = stage(&format!("{{selector: {{}}, delay: {delay}, next: {{delete: true}}}}"));
            let delay_is = stage.delay(&pod(), now, &mut |below| below / 2);
            assert_eq!(delay_is.as_millis() as u64, expected_ms, "{delay}");
        };
        check("{durationMilliseconds: 1000}", 1_000);
        check("{durationMilliseconds: 1000, jitterDurationMilliseconds: 5000}", 3_000);
        check("{durationMilliseconds: 1000, jitterDurationMilliseconds: 500}", 500);
        check("{durationMilliseconds: 1, durationFrom: {expressionFrom: '.metadata.annotations[\"delay\"]'}}", 90_000);
        check("{durationMilliseconds: 7, durationFrom: {expressionFrom: '.metadata.annotations[\"none\"]'}}", 7);
        check("{durationFrom: {jq: {expression: .metadata.annotations.until}}}", 10_000);
        check("{durationMilliseconds: 9000, jitterDurationFrom: {expressionFrom: .metadata.deletionTimestamp}}", 9_000);
    }

    #[test]
    fn weights_decide_among_stages_that_match() {
        let named = |name: &str, rest: &str| {
            let spec: StageSpec =
                serde_saphyr::from_str(&format!("{{selector: {{}}, next: {{delete: true}}, {rest}}}")).expect("a spec");
            Stage::compile(name, &spec, &Known).expect("a stage").expect("a selector")
        };
        let check = |stages: &[Stage], random: u64, expected: &str| {
            let chosen = choose(stages, &pod(), &mut |below| random.min(below - 1)).map(Stage::name);
            assert_eq!(chosen, Some(expected), "{random}");
        };
        let weighed = [
            named("a", "weight: 1"),
            named("b", "weightFrom: {expressionFrom: .metadata.annotations.weight}"),
            named("c", "weight: 0"),
        ];
        check(&weighed, 0, "a");
        check(&weighed, 1, "b");
        check(&weighed, 3, "b");
        let equal = [named("a", "weight: 0"), named("b", "weight: 0")];
        check(&equal, 0, "a");
        check(&equal, 1, "b");
        assert!(choose::<Stage>(&[], &pod(), &mut |_| 0).is_none());
    }

    #[test]
    fn a_status_template_becomes_a_patch() {
        let stage = stage(
            "
selector: {}
next:
  event: {type: Normal, reason: R, message: M}
  finalizers: {add: [{value: c}], remove: [{value: a}]}
  statusPatchAs: {username: jane}
  statusTemplate: |
    {{ $now := \"x\" }}
    containerStatuses:
    {{ range .spec.containers }}
    - image: {{ .image | Quote }}
      ready: true
    {{ end }}
    podIP: {{ PodIPWith .spec.nodeName false | Quote }}
    phase: Running
",
        );
        let actions = stage.actions(&pod(), &Known).expect("actions");
        let [Action::Event(event), Action::Patch(finalizers), Action::Patch(status)] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        assert_eq!(event.reason, "R");
        let expected = json!([
            {"op": "remove", "path": "/metadata/finalizers/0"},
            {"op": "add", "path": "/metadata/finalizers/-", "value": "c"},
        ]);
        assert_eq!((finalizers.content_type, &finalizers.body), (JSON_PATCH, &expected));
        assert_eq!((status.subresource.as_str(), status.content_type), ("status", STRATEGIC_PATCH));
        assert_eq!(status.as_user.as_deref(), Some("jane"));
        let containers = json!([{"image": "i", "ready": true}]);
        assert_eq!(
            status.body,
            json!({"status": {"containerStatuses": containers, "podIP": "10.0.0.7", "phase": "Running"}})
        );
    }

    #[test]
    fn patches_have_a_type_and_a_root() {
        let stage = stage(
            "
selector: {}
next:
  patches:
  - {type: merge, template: 'spec: {x: 1}'}
  - {type: json, root: status, subresource: status, template: '[{op: add, path: /x, value: 1}]'}
  delete: true
",
        );
        let actions = stage.actions(&pod(), &Known).expect("actions");
        let [Action::Patch(merge), Action::Patch(json), Action::Delete] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        assert_eq!((merge.content_type, &merge.body), (MERGE_PATCH, &json!({"spec": {"x": 1}})));
        assert_eq!(json.body, json!([{"op": "add", "path": "/status/x", "value": 1}]));
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let check = |spec: &str, expected: &str| {
            let spec: StageSpec = serde_saphyr::from_str(spec).expect("a spec");
            let error = Stage::compile("s", &spec, &Known).expect_err("an error").to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("{selector: {matchExpressions: [{key: '.a |', operator: Exists}]}}", "cannot read the query");
        check("{selector: {matchExpressions: [{key: .a, operator: Gt}]}}", "operator \"Gt\" is not supported");
        check("{selector: {matchExpressions: [{cel: {expression: 'true'}}]}}", "CEL");
        check("{selector: {}, next: {statusTemplate: '{{ nosuch }}'}}", "function \"nosuch\" not defined");
        check("{selector: {}, next: {patches: [{type: odd}]}}", "unknown patch type odd");
        let spec: StageSpec = serde_saphyr::from_str("{next: {delete: true}}").expect("a spec");
        assert!(Stage::compile("s", &spec, &Known).expect("no error").is_none());
    }

    #[test]
    fn durations_are_gos() {
        let check =
            |text, expected: Option<u64>| assert_eq!(go_duration(text), expected.map(Duration::from_millis), "{text}");
        check("1h2m3.5s", Some(3_723_500));
        check("10ms", Some(10));
        check("0", Some(0));
        for bad in ["", "1", "s", "-1s", "1d"] {
            check(bad, None);
        }
    }
}
