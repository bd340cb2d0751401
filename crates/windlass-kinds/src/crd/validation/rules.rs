//! The CEL rules of a schema, when the CRD is written: they must compile, fit the data's types, and
//! not cost too much. Estimates multiply what a rule costs once with how often its place can occur.

use serde_json::{Map, Value};

use super::shown;
use crate::cel::escape::escape;
use crate::cel::types::Declared;
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::rules::declare::declare;
use crate::rules::{Compiled, Place};
use crate::schema::{Rules, Schema, SchemaRef, Validation};

/// The most one expression may cost.
const EXPRESSION_LIMIT: u64 = 10_000_000;
/// The most all expressions of a schema may cost together.
const SCHEMA_LIMIT: u64 = 100_000_000;

/// What is known about the values at a place of a schema.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    schema: &'a Schema,
    declared: Option<&'a Declared>,
    /// How many such values there can be, if that is limited.
    cardinality: Option<u64>,
}

impl<'a> Scope<'a> {
    /// The scope of a whole object.
    pub(super) fn root(schema: &'a Schema) -> Self {
        Self { schema, declared: None, cardinality: Some(1) }
    }

    /// What the values here are, if no rule above needed to know. Below the first rule, what a value is follows from
    /// what is around it: that is how much of metadata can be seen.
    pub(super) fn fresh(self) -> Option<Declared> {
        if self.declared.is_some() { None } else { declare(self.schema, "selfType") }
    }

    /// This scope with what [`fresh`](Self::fresh) found.
    pub(super) fn with<'b>(self, fresh: Option<&'b Declared>) -> Scope<'b>
    where
        'a: 'b,
    {
        Scope { declared: self.declared.or(fresh), ..self }
    }

    /// The scope of a property; `written` is the schema around it as the CRD has it.
    pub(super) fn property(self, name: &str, written: &Map<String, Value>) -> Option<Self> {
        let schema = match self.schema.properties.get(name)? {
            SchemaRef::Definition { .. } => {
                self.schema.rules.as_deref().and_then(|rules: &Rules| rules.metadata.as_deref())?
            }
            below => below,
        };
        let declared = self.declared.and_then(|declared| declared.field(&escape(name)?));
        Some(self.below(schema, declared, written))
    }

    /// The scope of a list's items.
    pub(super) fn items(self, written: &Map<String, Value>) -> Option<Self> {
        Some(self.below(self.schema.items.as_deref()?, self.element(), written))
    }

    /// The scope of a map's values.
    pub(super) fn additional(self, written: &Map<String, Value>) -> Option<Self> {
        Some(self.below(self.schema.additional.as_deref()?, self.element(), written))
    }

    fn element(self) -> Option<&'a Declared> {
        self.declared?.element.as_deref()
    }

    fn below(self, schema: &'a Schema, declared: Option<&'a Declared>, written: &Map<String, Value>) -> Self {
        let times = |cardinality: u64| Some(cardinality.saturating_mul(max_elements(written)?));
        let cardinality = self.cardinality.and_then(times);
        Self { schema, declared, cardinality }
    }
}

/// By how much a schema multiplies what is below it; `None` if without limit.
fn max_elements(schema: &Map<String, Value>) -> Option<u64> {
    let limit = |key: &str| schema.get(key).and_then(Value::as_i64).map(|limit| limit.max(0) as u64);
    match schema.get("type").and_then(Value::as_str) {
        Some("object") if schema.get("additionalProperties").is_some_and(|below| !below.is_null()) => {
            limit("maxProperties")
        }
        Some("array") => limit("maxItems"),
        _ => Some(1),
    }
}

/// What checking the rules of a schema found.
#[derive(Default)]
pub(super) struct Found {
    /// Violations; they come after those of the schema.
    errors: FieldErrors,
    /// Whether single expressions may be too expensive, because they were there before.
    tolerate_cost: bool,
    total: u64,
    expensive: Vec<(String, u64)>,
}

impl Found {
    /// Nothing yet. `tolerate_cost`: single expressions may be too expensive.
    pub(super) fn new(tolerate_cost: bool) -> Self {
        Self { tolerate_cost, ..Self::default() }
    }

    /// Checks the rules of one schema. `uncorrelated` is the list whose items have no old values.
    pub(super) fn check(
        &mut self,
        written: &Map<String, Value>,
        scope: Scope<'_>,
        uncorrelated: Option<&Path<'_>>,
        path: &Path<'_>,
    ) {
        let path = path.child("x-kubernetes-validations");
        let Some(declared) = scope.declared else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: \
                          unable to convert structural schema to CEL declarations";
            self.errors.push(FieldError::without_value(ErrorKind::Internal, &path, detail));
            return;
        };
        let rules = written.get("x-kubernetes-validations").and_then(Value::as_array);
        let validations = scope.schema.rules.as_deref().map(|rules| rules.validations.as_slice()).unwrap_or_default();
        let place = Place::new(declared);
        let cardinality = scope.cardinality.unwrap_or_else(|| declared.max_cardinality());
        for (index, (validation, written)) in validations.iter().zip(rules.into_iter().flatten()).enumerate() {
            let compiled = place.compile(validation);
            self.rule(&compiled, validation, written, cardinality, uncorrelated, &path.index(index));
        }
    }

    fn rule(
        &mut self,
        compiled: &Compiled,
        validation: &Validation,
        written: &Value,
        cardinality: u64,
        uncorrelated: Option<&Path<'_>>,
        path: &Path<'_>,
    ) {
        let rule_path = path.child("rule");
        let cost = compiled.program.as_ref().map_or(0, |program| program.max_cost.saturating_mul(cardinality));
        self.observe(cost, "estimated rule cost", &rule_path);
        if let Some(problem) = &compiled.problem {
            self.errors.push(FieldError::shown(ErrorKind::Invalid, &rule_path, shown::rule(written), problem));
        }
        let message_path = path.child("messageExpression");
        if let Some(problem) = &compiled.message_problem {
            self.errors.push(FieldError::shown(ErrorKind::Invalid, &message_path, shown::rule(written), problem));
        } else if let Some(message) = &compiled.message {
            self.observe(message.max_cost, "estimated messageExpression cost", &message_path);
        }
        if compiled.uses_old {
            if let Some(uncorrelated) = uncorrelated {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}");
                self.errors.push(FieldError::invalid(&rule_path, validation.rule.as_str(), detail));
            }
        } else if let Some(optional) = written.get("optionalOldSelf").and_then(Value::as_bool) {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(&path.child("optionalOldSelf"), optional, detail));
        }
    }

    fn observe(&mut self, cost: u64, what: &str, path: &Path<'_>) {
        if !self.tolerate_cost && cost > EXPRESSION_LIMIT {
            self.errors.push(FieldError::forbidden(path, too_expensive(what, cost, EXPRESSION_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((path.to_string(), cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(4);
        }
    }

    /// Adds what was found, and what all rules together are guilty of.
    pub(super) fn finish(mut self, path: &Path<'_>, errors: &mut FieldErrors) {
        errors.0.append(&mut self.errors.0);
        if self.total <= SCHEMA_LIMIT {
            return;
        }
        for (path, _) in &self.expensive {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(&Path::new(path), detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, too_expensive(what, self.total, SCHEMA_LIMIT)));
    }
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
