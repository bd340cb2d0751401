//! The conditions of stages, and the numbers that objects determine: in jq and in CEL.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::StageError;
use crate::cel::{Program, Scope, go_duration};
use crate::jq::Query;
use crate::objects::{ExpressionFrom, MatchExpression, SelectorJq};

#[derive(Debug)]
pub(super) enum Condition {
    /// What the results of a query are compared with.
    Query { query: Query, operator: Operator, values: Vec<String> },
    /// An expression that holds.
    Holds(Program),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// A number that an object may determine.
#[derive(Debug)]
pub(super) struct Amount {
    value: Option<i64>,
    source: Option<Source>,
}

/// Where an object says a number.
#[derive(Debug)]
enum Source {
    Query(Query),
    Expression(Program),
}

/// What expressions see: the object as `self`.
pub(super) struct About<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl Scope for About<'_> {
    fn variable(&self, name: &str) -> Option<&Value> {
        (name == "self").then_some(self.object)
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn random(&self) -> f64 {
        fastrand::f64()
    }

    /// kwok knows the types of pods and nodes alone.
    fn is_typed(&self) -> bool {
        self.object["apiVersion"] == "v1" && (self.object["kind"] == "Pod" || self.object["kind"] == "Node")
    }
}

impl Condition {
    pub(super) fn new(expression: &MatchExpression) -> Result<Self, StageError> {
        // jq comes first where both are there, as in kwok.
        if let (Some(cel), None) = (&expression.cel, &expression.jq) {
            return Ok(Self::Holds(Program::parse(&cel.expression)?));
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
        Ok(Self::Query { query: Query::parse(&key)?, operator, values })
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let (query, operator, values) = match self {
            Self::Query { query, operator, values } => (query, operator, values),
            Self::Holds(program) => return program.holds(&About { object, now: Timestamp::now() }),
        };
        let results = query.run(object).unwrap_or_default();
        let has = || {
            results.iter().any(|result| match result {
                Value::String(text) => values.contains(text),
                Value::Bool(_) | Value::Number(_) => values.contains(&result.to_string()),
                _ => false,
            })
        };
        match operator {
            Operator::In => has(),
            Operator::NotIn => !has(),
            Operator::Exists => !results.is_empty(),
            Operator::DoesNotExist => results.is_empty(),
        }
    }
}

impl Amount {
    pub(super) fn new(value: Option<i64>, from: Option<&ExpressionFrom>) -> Result<Self, StageError> {
        let source = match from {
            None => None,
            Some(ExpressionFrom { cel: Some(cel), .. }) => Some(Source::Expression(Program::parse(&cel.expression)?)),
            Some(from) => {
                let expression = from.jq.as_ref().map_or(&from.expression_from, |jq| &jq.expression);
                if expression.is_empty() { None } else { Some(Source::Query(Query::parse(expression)?)) }
            }
        };
        Ok(Self { value, source })
    }

    fn result(&self, object: &Value) -> Option<Value> {
        match self.source.as_ref()? {
            Source::Query(query) => query.run(object)?.into_iter().next(),
            Source::Expression(_) => None,
        }
    }

    /// As a weight; `None` if the object says something that is none.
    pub(super) fn number(&self, object: &Value) -> Option<i64> {
        if let Some(Source::Expression(program)) = &self.source {
            let about = About { object, now: Timestamp::now() };
            return program.evaluate(&about).ok()?.as_f64().map(|number| number as i64);
        }
        match self.result(object) {
            Some(Value::String(text)) => text.parse().ok(),
            Some(Value::Number(number)) => number.as_f64().map(|number| number as i64),
            _ => self.value,
        }
    }

    /// As a duration, or the time that is left until a point in time.
    pub(super) fn duration(&self, object: &Value, now: Timestamp) -> Option<Duration> {
        let default = || self.value.map(|value| Duration::from_millis(value.max(0).unsigned_abs()));
        if let Some(Source::Expression(program)) = &self.source {
            let about = About { object, now };
            let span = program.evaluate(&about).ok()?.as_duration()?;
            return Some(Duration::try_from(span).unwrap_or_default());
        }
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
