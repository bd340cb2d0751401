//! `x-kubernetes-validations`: the rules of a schema, compiled, and checking objects against them.
//!
//! After `apiextensions-apiserver/pkg/apiserver/schema/cel`: every rule is evaluated wherever its
//! schema applies, with `self` and, if there is a value to compare with, `oldSelf`. What evaluation
//! may cost is bounded per rule and per object. A rule that fails on a value that did not change is
//! reported as a warning only.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;
use windlass_cel::escape::escape;
use windlass_cel::growth::{self, Growth};
use windlass_cel::types::{Declared, Type};
use windlass_cel::value::{Error, Outcome, Shape, Value, adapt};
use windlass_cel::{Allowance, CALL_LIMIT, CompileError, Environment, Globals, Program, compile};

use self::declare::declare;
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::schema::validate::{Correlation, Old, OldItems};
use crate::schema::{Schema, SchemaRef, Type as JsonType, Validation};

pub mod declare;
pub mod field_path;

/// What all rules together may cost for one object.
pub const OBJECT_BUDGET: i64 = 10_000_000;
/// The longest message an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;
/// The name of the type that rules are about, as far as anybody sees it.
const SELF_TYPE: &str = "selfType";

/// The rules of a schema and of everything below it.
#[derive(Debug, Default)]
pub struct Rules {
    own: Vec<Rule>,
    items: Option<Box<Rules>>,
    properties: BTreeMap<Box<str>, Rules>,
    additional: Option<Box<Rules>>,
    all_of: Vec<Rules>,
    /// How long checking a value may take, its properties' own rules apart.
    growth: Growth,
}

/// One rule.
#[derive(Debug)]
pub(crate) struct Rule {
    validation: Validation,
    /// Where failures are reported, below the value.
    field_path: Option<String>,
    compiled: Compiled,
}

/// What came of compiling a rule.
#[derive(Debug, Default)]
pub struct Compiled {
    /// The rule; `None` if it is empty or wrong.
    pub program: Option<Program>,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// The expression that makes the message.
    pub message: Option<Program>,
    /// What is wrong with that.
    pub message_problem: Option<String>,
    /// Whether the rule compares with an old value.
    pub uses_old: bool,
}

/// What a rule at a place of a schema can refer to.
pub struct Place {
    plain: Environment,
    optional: Environment,
}

impl Place {
    /// The place that `declared` describes.
    pub fn new(declared: &Declared) -> Self {
        let declared = Arc::new(declared.clone());
        let own = declared.ty.clone();
        let environment = Environment::new().with("self", own.clone()).about(declared);
        Self {
            plain: environment.clone().with("oldSelf", own.clone()),
            optional: environment.with("oldSelf", Type::optional(own)),
        }
    }

    /// Compiles a rule and its message.
    pub fn compile(&self, validation: &Validation) -> Compiled {
        let mut compiled = Compiled::default();
        if validation.rule.trim().is_empty() {
            return compiled;
        }
        let environment = if validation.optional_old_self { &self.optional } else { &self.plain };
        match compile(&validation.rule, environment) {
            Ok(program) if !matches!(program.ty, Type::Bool) => {
                compiled.problem = Some("cel expression must evaluate to a bool".to_owned());
                return compiled;
            }
            Ok(program) => {
                compiled.uses_old = program.mentions("oldSelf");
                compiled.program = Some(program);
            }
            Err(error) => {
                compiled.uses_old = matches!(error, CompileError::Program(_)) && validation.rule.contains("oldSelf");
                compiled.problem = Some(match error {
                    CompileError::Invalid(issues) => format!("compilation failed: {issues}"),
                    CompileError::Program(problem) => format!("program instantiation failed: {problem}"),
                });
                return compiled;
            }
        }
        let expression = validation.message_expression.as_deref().filter(|expression| !expression.is_empty());
        match expression.map(|expression| compile(expression, environment)) {
            None => {}
            Some(Ok(program)) if !matches!(program.ty, Type::String) => {
                compiled.message_problem = Some("messageExpression must evaluate to a string".to_owned());
            }
            Some(Ok(program)) => compiled.message = Some(program),
            Some(Err(CompileError::Invalid(issues))) => {
                compiled.message_problem = Some(format!("messageExpression compilation failed: {issues}"));
            }
            Some(Err(CompileError::Program(problem))) => {
                compiled.message_problem = Some(format!("messageExpression instantiation failed: {problem}"));
            }
        }
        compiled
    }
}

/// Declares what the schema of a whole object describes.
pub(crate) fn declare_root(schema: &Schema) -> Option<Declared> {
    declare(schema, SELF_TYPE)
}

impl Rules {
    /// Compiles the rules of a whole object's schema. `None` if there are none.
    pub fn new(schema: &Schema) -> Option<Self> {
        let declared = declare_root(schema);
        Self::build(schema, schema, declared.as_ref())
    }

    /// Compiles the rules that `source` holds about values of `schema`. They differ only below an
    /// `allOf`, which may restrict values but not describe them.
    fn build(source: &Schema, schema: &Schema, declared: Option<&Declared>) -> Option<Self> {
        let own = source.rules.as_deref();
        let mut rules = Self::default();
        if let Some(validations) = own.map(|own| &own.validations).filter(|validations| !validations.is_empty()) {
            let place = declared.map(Place::new);
            rules.own = validations.iter().map(|validation| Rule::new(validation, schema, place.as_ref())).collect();
        }
        let element = declared.and_then(|declared| declared.element.as_deref());
        if let (Some(source), Some(schema)) = (source.items.as_deref(), schema.items.as_deref()) {
            rules.items = Self::build(source, schema, element).map(Box::new);
        }
        if let (Some(source), Some(schema)) = (source.additional.as_deref(), schema.additional.as_deref()) {
            rules.additional = Self::build(source, schema, element).map(Box::new);
        }
        for (name, source_below) in &source.properties {
            let Some(below) = schema.properties.get(name) else { continue };
            let (source_below, below) = match (source_below, below) {
                // What the author demands of metadata is kept apart.
                (_, SchemaRef::Definition { .. }) => match (metadata_demands(source), metadata_demands(schema)) {
                    (Some(source), Some(schema)) => (source, schema),
                    _ => continue,
                },
                (source, below) => (&**source, &**below),
            };
            let fresh;
            let declared = match escape(name) {
                Some(escaped) => match declared.and_then(|declared| declared.field(&escaped)) {
                    Some(declared) => declared,
                    None => continue,
                },
                None => match declare(below, SELF_TYPE) {
                    Some(declared) => {
                        fresh = declared;
                        &fresh
                    }
                    None => continue,
                },
            };
            if let Some(found) = Self::build(source_below, below, Some(declared)) {
                rules.properties.insert(name.clone(), found);
            }
        }
        if let Some(own) = own {
            rules.all_of = own.all_of.iter().filter_map(|source| Self::build(source, schema, declared)).collect();
        }
        rules.growth = rules.growth_here();
        (!rules.is_empty()).then_some(rules)
    }

    fn growth_here(&self) -> Growth {
        let mut growth = Growth::default();
        for rule in &self.own {
            for program in [&rule.compiled.program, &rule.compiled.message].into_iter().flatten() {
                growth.join(&program.growth);
            }
        }
        for below in &self.all_of {
            growth.join(&below.growth_in_all());
        }
        for below in [&self.items, &self.additional].into_iter().flatten() {
            growth.join(&below.growth_in_all().for_each());
        }
        growth
    }

    /// How long checking a value may take without a look at which of its properties are large.
    fn growth_in_all(&self) -> Growth {
        let mut growth = self.growth;
        self.properties.values().for_each(|below| growth.join(&below.growth_in_all()));
        growth
    }

    /// How many nanoseconds checking an object may take, by the size of what each rule sees: the value it is about,
    /// and of an object's metadata the names.
    pub fn nanoseconds(&self, object: &Json, old: Option<&Json>) -> f64 {
        let mut sum = 0.0;
        self.estimate(object, old, true, &mut sum);
        sum
    }

    /// Adds what checking a value may take. Returns the size of what there is to see, looking at each part once.
    fn estimate(&self, value: &Json, old: Option<&Json>, is_root: bool, sum: &mut f64) -> usize {
        let mut size = 0;
        let all = |value: Option<&Json>| value.map_or(0, growth::size);
        if let (Json::Object(map), false) = (value, self.properties.is_empty() && !is_root) {
            let old = old.and_then(Json::as_object);
            for (name, field) in map {
                let old = old.and_then(|old| old.get(name));
                let below = self.properties.get(name.as_str());
                size += name.len()
                    + match below {
                        _ if is_root && name == "metadata" => {
                            let names = ["name", "generateName"];
                            let size = names
                                .iter()
                                .map(|name| all(field.get(name)) + all(old.and_then(|old| old.get(name))))
                                .sum();
                            *sum += below.map_or(0.0, |below| below.growth_in_all().nanoseconds(size));
                            size
                        }
                        Some(below) => below.estimate(field, old, false, sum),
                        None => growth::size(field) + all(old),
                    };
            }
            let gone = old.into_iter().flatten().filter(|(name, _)| !map.contains_key(*name));
            size += gone.map(|(name, field)| name.len() + growth::size(field)).sum::<usize>();
        } else {
            size = growth::size(value) + all(old);
        }
        *sum += self.growth.nanoseconds(size);
        size
    }

    fn is_empty(&self) -> bool {
        self.own.is_empty()
            && self.items.is_none()
            && self.properties.is_empty()
            && self.additional.is_none()
            && self.all_of.is_empty()
    }

    /// Checks an object, and says what is wrong with it and what was wrong before.
    pub fn validate(
        &self,
        schema: &Schema,
        object: &Json,
        old: Option<&Json>,
        errors: &mut FieldErrors,
        warnings: &mut Vec<String>,
    ) {
        let mut check = Check { budget: OBJECT_BUDGET, allowance: Allowance::OBJECT, errors, warnings, compared: None };
        let same = Same { own: old.map(|value| Old { value, schema }), parent: None };
        // It makes no difference here whether the budget was used up.
        let _ = check.node(self, schema, object, old, same, &Path::root());
    }

    /// Checks a default at `path` of a CRD with what is left of a budget, and returns what is left then: less than
    /// nothing if that was not enough. Nothing is forgiven.
    pub fn validate_default(
        &self,
        schema: &Schema,
        default: &Json,
        old: Option<&Json>,
        path: &Path<'_>,
        budget: i64,
        errors: &mut FieldErrors,
    ) -> i64 {
        let mut check =
            Check { budget, allowance: Allowance::OBJECT, errors, warnings: &mut Vec::new(), compared: None };
        let same = Same { own: None, parent: None };
        match check.node(self, schema, default, old, same, path) {
            Flow::Continue(()) => check.budget,
            Flow::Break(()) => -1,
        }
    }
}

/// What the author of a schema demands of metadata.
fn metadata_demands(schema: &Schema) -> Option<&Schema> {
    schema.rules.as_deref()?.metadata.as_deref()
}

impl Rule {
    fn new(validation: &Validation, schema: &Schema, place: Option<&Place>) -> Self {
        let compiled = match place {
            Some(place) => place.compile(validation),
            None => Compiled {
                problem: Some("failed to convert to declType for CEL validation rules".to_owned()),
                ..Compiled::default()
            },
        };
        let field_path =
            validation.field_path.as_deref().filter(|path| !path.is_empty()).and_then(|path| normalized(path, schema));
        Self { validation: validation.clone(), field_path, compiled }
    }

    /// The rule as messages show it.
    fn shown(&self) -> &str {
        match self.validation.message.as_deref() {
            Some(message) if !message.is_empty() => message.trim(),
            _ => self.validation.rule.trim(),
        }
    }

    fn message(&self) -> String {
        match self.validation.message.as_deref() {
            Some(message) if !message.is_empty() => message.trim().to_owned(),
            _ => format!("failed rule: {}", self.shown()),
        }
    }

    fn error(&self, path: &Path<'_>, value: &Json, schema: &Schema, detail: String) -> FieldError {
        let omitted = matches!(schema.ty, JsonType::Object | JsonType::Array);
        let shown = |kind: ErrorKind, detail: String| {
            if omitted {
                FieldError::without_value(kind, path, detail)
            } else {
                FieldError::new(kind, path, value, detail)
            }
        };
        match self.validation.reason.as_deref() {
            Some("FieldValueForbidden") => FieldError::forbidden(path, detail),
            Some("FieldValueRequired") => FieldError::required(path, detail),
            Some("FieldValueDuplicate") => shown(ErrorKind::Duplicate, String::new()),
            _ => shown(ErrorKind::Invalid, detail),
        }
    }
}

/// A rule's field path as errors show it.
fn normalized(path: &str, schema: &Schema) -> Option<String> {
    let mut out = String::new();
    let mut at = Some(schema);
    for step in field_path::steps(path).ok()? {
        let schema = at?;
        if schema.properties.is_empty() {
            out.push('[');
            out.push_str(&step);
            out.push(']');
            at = schema.additional.as_deref();
            at?;
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&step);
            at = Some(schema.properties.get(step.as_str())?);
        }
    }
    Some(out)
}

/// The old value that a value is compared with to see whether it changed, or the nearest above it.
#[derive(Clone, Copy)]
struct Same<'a> {
    own: Option<Old<'a>>,
    parent: Option<(Old<'a>, &'a Json)>,
}

impl<'a> Same<'a> {
    fn field(self, name: &str, value: &'a Json) -> Self {
        match self.own {
            None => self,
            // A type is always shown at the same version, so its change cannot be seen.
            Some(_) if self.parent.is_none() && matches!(name, "apiVersion" | "kind") => {
                Self { own: None, parent: None }
            }
            Some(own) => Self { own: own.field(name), parent: Some((own, value)) },
        }
    }

    /// `items` are those of the old value here.
    fn item(self, items: Option<&OldItems<'a>>, item: &Json, value: &'a Json) -> Self {
        match (self.own, items) {
            (Some(own), Some(items)) => Self { own: items.get(item), parent: Some((own, value)) },
            _ => self,
        }
    }

    /// The old and the new value that tell whether anything changed here, if any do.
    fn compared(self, value: &'a Json) -> Option<(Old<'a>, &'a Json)> {
        self.own.map(|own| (own, value)).or(self.parent)
    }
}

struct Check<'c> {
    budget: i64,
    allowance: Allowance,
    errors: &'c mut FieldErrors,
    warnings: &'c mut Vec<String>,
    /// Where two values are that were compared last, and whether they are equal: the items of a list may all ask
    /// for the list.
    compared: Option<([*const Json; 2], bool)>,
}

/// Checking goes on, or the budget is used up.
type Flow = std::ops::ControlFlow<()>;
const CONTINUE: Flow = Flow::Continue(());
const BREAK: Flow = Flow::Break(());

impl Check<'_> {
    fn node(
        &mut self,
        rules: &Rules,
        schema: &Schema,
        value: &Json,
        old: Option<&Json>,
        same: Same<'_>,
        path: &Path<'_>,
    ) -> Flow {
        if value.is_null() {
            return CONTINUE;
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(rules, schema, value, old, same, path)?;
        for below in &rules.all_of {
            self.node(below, schema, value, old, Same { own: None, parent: same.parent }, path)?;
        }
        match value {
            Json::Array(items) => self.items(rules, schema, items, value, old, same, path),
            Json::Object(map) => self.fields(rules, schema, map, value, old, same, path),
            _ => CONTINUE,
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn items(
        &mut self,
        rules: &Rules,
        schema: &Schema,
        items: &[Json],
        value: &Json,
        old: Option<&Json>,
        same: Same<'_>,
        path: &Path<'_>,
    ) -> Flow {
        let (Some(below), Some(item_schema)) = (rules.items.as_deref(), schema.items.as_deref()) else {
            return CONTINUE;
        };
        let old = Correlation::new(old, schema);
        let same_items = same.own.map(Old::items);
        for (index, item) in items.iter().enumerate() {
            let same = same.item(same_items.as_ref(), item, value);
            self.node(below, item_schema, item, old.get(item), same, &path.index(index))?;
        }
        CONTINUE
    }

    #[allow(clippy::too_many_arguments)]
    fn fields(
        &mut self,
        rules: &Rules,
        schema: &Schema,
        map: &serde_json::Map<String, Json>,
        value: &Json,
        old: Option<&Json>,
        same: Same<'_>,
        path: &Path<'_>,
    ) -> Flow {
        let old = |name: &str| old.and_then(|old| old.get(name));
        if let (Some(below), Some(schema)) = (rules.additional.as_deref(), schema.additional.as_deref()) {
            for (name, field) in map {
                self.node(below, schema, field, old(name), same.field(name, value), &path.key(name))?;
            }
        }
        for (name, below) in &rules.properties {
            let Some(field) = map.get(&**name) else { continue };
            let field_schema = match schema.properties.get(name) {
                Some(SchemaRef::Definition { .. }) => metadata_demands(schema),
                Some(field_schema) => Some(&**field_schema),
                None => None,
            };
            let Some(field_schema) = field_schema else { continue };
            self.node(below, field_schema, field, old(name), same.field(name, value), &path.child(name))?;
        }
        CONTINUE
    }

    /// Whether nothing changed here.
    fn unchanged(&mut self, same: Same<'_>, value: &Json) -> bool {
        let Some((old, new)) = same.compared(value) else { return false };
        let places = [std::ptr::from_ref(old.value), std::ptr::from_ref(new)];
        if let Some((_, equal)) = self.compared.filter(|(known, _)| *known == places) {
            return equal;
        }
        let equal = old.equals(new);
        self.compared = Some((places, equal));
        equal
    }

    fn rules(
        &mut self,
        rules: &Rules,
        schema: &Schema,
        value: &Json,
        old: Option<&Json>,
        same: Same<'_>,
        path: &Path<'_>,
    ) -> Flow {
        if rules.own.is_empty() {
            return CONTINUE;
        }
        if self.budget <= 0 {
            self.out_of_budget(schema, path);
            return BREAK;
        }
        let sees_old = rules.own.iter().any(|rule| rule.compiled.uses_old);
        for rule in &rules.own {
            if let Some(problem) = &rule.compiled.problem {
                self.invalid(schema, path, format!("rule compile error: {problem}"));
                continue;
            }
            let Some(program) = &rule.compiled.program else { continue };
            if rule.compiled.uses_old && old.is_none() && !rule.validation.optional_old_self {
                continue;
            }
            self.rule(rule, program, schema, value, old, sees_old, same, path)?;
        }
        CONTINUE
    }

    #[allow(clippy::too_many_arguments)]
    fn rule(
        &mut self,
        rule: &Rule,
        program: &Program,
        schema: &Schema,
        value: &Json,
        old: Option<&Json>,
        sees_old: bool,
        same: Same<'_>,
        path: &Path<'_>,
    ) -> Flow {
        let mut globals =
            Selves { value, old, shape: Shape::Schema(schema), optional: rule.validation.optional_old_self };
        let (outcome, cost) = program.eval_within(&mut globals, CALL_LIMIT, &mut self.allowance);
        if cost as i64 > self.budget {
            self.out_of_budget(schema, path);
            return BREAK;
        }
        self.budget -= cost as i64;
        match outcome {
            Ok(Value::Bool(true)) => CONTINUE,
            Ok(_) => {
                // As upstream has it, a message sees a plain old value, and that only where a rule looks at it.
                let old = old.filter(|_| sees_old);
                let mut globals = Selves { value, old, shape: Shape::Schema(schema), optional: false };
                self.failed(rule, schema, value, &mut globals, same, path)
            }
            Err(Error::Exhausted) => {
                let shown = rule.shown();
                let detail = format!(
                    "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}",
                    Error::Exhausted
                );
                self.invalid(schema, path, detail);
                BREAK
            }
            Err(Error::Failed(problem)) => {
                let shown = rule.shown();
                let detail = if problem.starts_with("no such overload") {
                    format!(
                        "'{problem}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
                    )
                } else {
                    format!("{problem} evaluating rule: {shown}")
                };
                self.invalid(schema, path, detail);
                CONTINUE
            }
        }
    }

    fn failed<'a>(
        &mut self,
        rule: &'a Rule,
        schema: &'a Schema,
        value: &'a Json,
        globals: &mut Selves<'a>,
        same: Same<'_>,
        path: &Path<'_>,
    ) -> Flow {
        let field = rule.field_path.as_deref().unwrap_or_default();
        let below = path.child(field);
        let at = if field.is_empty() { path } else { &below };
        let mut detail = None;
        let mut flow = CONTINUE;
        if let Some(message) = &rule.compiled.message {
            let (outcome, cost) = message.eval_within(globals, CALL_LIMIT, &mut self.allowance);
            let source = rule.validation.message_expression.as_deref().unwrap_or_default();
            let exhausted = if cost as i64 > self.budget {
                Some("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned())
            } else if matches!(outcome, Err(Error::Exhausted)) {
                let source = crate::field::quote(source);
                Some(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {source}"
                ))
            } else {
                None
            };
            if let Some(detail) = exhausted {
                flow = BREAK;
                let error = FieldError::shown(ErrorKind::Invalid, at, type_name(schema), detail);
                self.report(rule, error, same, value);
                return flow;
            }
            self.budget -= cost as i64;
            detail = usable(outcome);
        }
        let error = rule.error(at, value, schema, detail.unwrap_or_else(|| rule.message()));
        self.report(rule, error, same, value);
        flow
    }

    /// What was wrong before is only worth a warning.
    fn report(&mut self, rule: &Rule, error: FieldError, same: Same<'_>, value: &Json) {
        if !rule.compiled.uses_old && self.unchanged(same, value) {
            self.warnings.push(error.to_string());
        } else {
            self.errors.push(error);
        }
    }

    fn invalid(&mut self, schema: &Schema, path: &Path<'_>, detail: String) {
        self.errors.push(FieldError::shown(ErrorKind::Invalid, path, type_name(schema), detail));
    }

    fn out_of_budget(&mut self, schema: &Schema, path: &Path<'_>) {
        let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
        self.invalid(schema, path, detail.to_owned());
    }
}

/// A message that can be shown.
fn usable(outcome: Outcome<'_>) -> Option<String> {
    let Ok(Value::String(text)) = outcome else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}

/// A schema's type, quoted.
fn type_name(schema: &Schema) -> &'static str {
    match schema.ty {
        JsonType::Object => "\"object\"",
        JsonType::Array => "\"array\"",
        JsonType::String | JsonType::Quantity => "\"string\"",
        JsonType::Integer => "\"integer\"",
        JsonType::Number => "\"number\"",
        JsonType::Boolean => "\"boolean\"",
        JsonType::Any | JsonType::IntOrString => "\"\"",
    }
}

/// `self` and `oldSelf`.
struct Selves<'a> {
    value: &'a Json,
    old: Option<&'a Json>,
    shape: Shape<'a>,
    optional: bool,
}

impl<'a> Globals<'a> for Selves<'a> {
    fn get(&mut self, index: usize) -> Outcome<'a> {
        match (index, self.old) {
            (0, _) => adapt(self.value, self.shape),
            (_, Some(old)) if self.optional => adapt(old, self.shape).map(Value::some),
            (_, Some(old)) => adapt(old, self.shape),
            (_, None) if self.optional => Ok(Value::Optional(None)),
            (_, None) => Err(Error::new("no such attribute(s): oldSelf")),
        }
    }
}

#[cfg(test)]
mod tests;
