//! Checking a custom resource's values against its schema, in upstream's words.
//!
//! Every violation is reported, not just the first. The checks, their order and their texts follow
//! kube-openapi's validator, including which alternative of an `anyOf` or `oneOf` is blamed: the one
//! that passed the most checks (the match count below).
//!
//! On update, what did not change is not complained about: a violation inside a subtree that equals
//! its old value is dropped. Fields and map entries correlate by name, items of `map` lists by their
//! keys, other items not at all.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;

pub(crate) use self::correlation::Correlation;
use self::number::{Number, is_whole};
use super::format::Format;
use super::pattern::TooLong;
use super::{ListType, Rules, Schema, SchemaRef, Type, pattern};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path, quote};
use windlass_cel::growth::Growth;

mod correlation;
pub mod embedded;
pub mod list_type;
mod number;

/// Checks a new value. `prefix` is where it sits in its object; empty for the object itself.
pub fn validate(value: &Value, schema: &Schema, prefix: &str, errors: &mut FieldErrors) {
    run(value, None, schema, prefix, errors);
}

/// Checks a changed value, leaving what equals `old` alone.
pub fn validate_update(value: &Value, old: &Value, schema: &Schema, prefix: &str, errors: &mut FieldErrors) {
    run(value, Some(Old { value: old, schema }), schema, prefix, errors);
}

/// How long matching patterns may take for one object. Ordinary patterns take milliseconds for the largest objects.
const MOST_MATCHING: Duration = Duration::from_secs(2);

/// How long checking a value may take.
pub fn growth(schema: &Schema) -> Growth {
    let mut growth = Growth::default();
    growth.add(1, weight(schema));
    growth
}

/// The most that is done about any one value, in nanoseconds.
fn weight(schema: &Schema) -> f64 {
    const STEP: f64 = 100.0;
    // A value is as large as eight bytes of text.
    const TEXT: f64 = 8.0;
    let mut own = STEP;
    if let Some(rules) = schema.rules.as_deref() {
        own += rules.pattern.as_ref().map_or(0.0, |pattern| TEXT * pattern::states(pattern.source()) as f64);
        let alternatives = rules.all_of.iter().chain(&rules.any_of).chain(&rules.one_of).chain(rules.not.as_deref());
        own += alternatives.map(weight).sum::<f64>();
        own += rules.metadata.as_deref().map_or(0.0, weight);
    }
    below(schema).map(weight).fold(own, f64::max)
}

/// The schemas of what a value holds.
fn below(schema: &Schema) -> impl Iterator<Item = &Schema> {
    let all = schema.properties.values().chain(&schema.additional).chain(&schema.items);
    all.filter(|reference| !matches!(reference, SchemaRef::Definition { .. })).map(|reference| &**reference)
}

fn run(value: &Value, old: Option<Old<'_>>, schema: &Schema, prefix: &str, errors: &mut FieldErrors) {
    let mut check = Check { prefix, errors: Vec::new(), matching_time_left: MOST_MATCHING };
    check.node(value, old, schema, &Path::root());
    let mut seen = HashSet::new();
    for error in check.errors {
        if seen.insert((error.field.clone(), error.body())) {
            errors.push(error);
        }
    }
}

/// The old value that correlates with the one being checked, and the schema that says how what is
/// below it correlates.
#[derive(Clone, Copy)]
pub(crate) struct Old<'a> {
    /// The old value.
    pub(crate) value: &'a Value,
    /// Its schema.
    pub(crate) schema: &'a Schema,
}

impl<'a> Old<'a> {
    pub(crate) fn field(self, name: &str) -> Option<Old<'a>> {
        let value = self.value.get(name)?;
        let schema = match self.schema.properties.get(name) {
            // What is not declared is never the same: an object with metadata is compared by its other fields alone.
            Some(SchemaRef::Definition { .. }) => self.schema.rules.as_deref()?.metadata.as_deref()?,
            Some(own) => own,
            None => self.schema.additional.as_deref()?,
        };
        Some(Old { value, schema })
    }

    pub(crate) fn items(self) -> OldItems<'a> {
        OldItems { values: Correlation::new(Some(self.value), self.schema), schema: self.schema.items.as_deref() }
    }

    /// Whether the new value is the old one. Lists of type `map` compare regardless of order.
    pub(crate) fn equals(self, value: &Value) -> bool {
        match (self.value, value) {
            (Value::Object(old), Value::Object(new)) => {
                old.len() == new.len()
                    && new.iter().all(|(name, value)| self.field(name).is_some_and(|old| old.equals(value)))
            }
            (Value::Array(old), Value::Array(new)) => match self.schema.list_type {
                ListType::Map(_) if old.len() == new.len() => {
                    let old = self.items();
                    new.iter().all(|item| old.get(item).is_some_and(|old| old.equals(item)))
                }
                ListType::Map(_) => false,
                _ => old == new,
            },
            (old, new) => old == new,
        }
    }
}

/// The items of an old list.
pub(crate) struct OldItems<'a> {
    values: Correlation<'a>,
    schema: Option<&'a Schema>,
}

impl<'a> OldItems<'a> {
    /// The one that correlates with an item.
    pub(crate) fn get(&self, item: &Value) -> Option<Old<'a>> {
        let schema = self.schema?;
        self.values.get(item).map(|value| Old { value, schema })
    }
}

struct Check<'a> {
    prefix: &'a str,
    errors: Vec<FieldError>,
    /// How long matching patterns may still take.
    matching_time_left: Duration,
}

/// How many checks passed; an `anyOf` blames the alternative with the highest count.
type Matches = usize;

impl Check<'_> {
    /// Checks one value, and forgives what is wrong with it if it is what it was.
    fn node(&mut self, value: &Value, old: Option<Old<'_>>, schema: &Schema, path: &Path<'_>) -> Matches {
        let before = self.errors.len();
        let matches = self.checks(value, old, schema, path);
        if self.errors.len() > before && old.is_some_and(|old| old.equals(value)) {
            self.errors.truncate(before);
        }
        matches
    }

    fn checks(&mut self, value: &Value, old: Option<Old<'_>>, schema: &Schema, path: &Path<'_>) -> Matches {
        let rules = schema.rules.as_deref();
        let format = rules.and_then(|rules| rules.format);
        let mut matches = 0;
        if value.is_null() {
            matches += self.type_of_null(schema, path);
            self.enumeration(value, schema, path);
            return matches;
        }
        if schema.ty != Type::Any || format.is_some() {
            matches += 1 + self.type_of(value, schema, format, path);
        }
        matches += 2;
        if let Some(rules) = rules {
            matches += self.combinations(value, rules, path);
        }
        match value {
            Value::String(text) => {
                matches += 1;
                if let Some(rules) = rules {
                    self.string(text, rules, path);
                }
                if let Some(Format::Text(accepts)) = format {
                    matches += 1;
                    if !accepts(text) {
                        self.wrong_type(path, schema.format.as_deref().unwrap_or_default(), text);
                    }
                }
            }
            Value::Number(number) => {
                matches += 2;
                self.number(&Number::of(number), schema, format, path);
            }
            Value::Array(items) => matches += 2 + self.array(items, old, schema, path),
            _ => {}
        }
        matches += 1;
        self.enumeration(value, schema, path);
        if let Value::Object(map) = value {
            matches += 1 + self.object(map, old, schema, path);
        }
        matches + 1
    }

    fn type_of_null(&mut self, schema: &Schema, path: &Path<'_>) -> Matches {
        if schema.ty == Type::Any || schema.nullable {
            return 1;
        }
        self.wrong_type(path, type_name(schema.ty), "null");
        0
    }

    fn type_of(&mut self, value: &Value, schema: &Schema, format: Option<Format>, path: &Path<'_>) -> Matches {
        let (actual, actual_format) = match value {
            Value::Null => ("null", ""),
            Value::Bool(_) => ("boolean", ""),
            Value::Number(number) => match Number::of(number) {
                Number::Int(_) => ("integer", "int64"),
                Number::Float(_) => ("number", "float64"),
            },
            Value::String(_) => ("string", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
        };
        let numeric = matches!(schema.ty, Type::Integer | Type::Number | Type::IntOrString);
        let ok = match schema.ty {
            Type::Any => false,
            Type::Object => actual == "object",
            Type::Array => actual == "array",
            Type::String | Type::Quantity => actual == "string",
            Type::Boolean => actual == "boolean",
            Type::Number => matches!(actual, "integer" | "number"),
            Type::Integer | Type::IntOrString => {
                actual == "integer"
                    || (actual == "string" && schema.ty == Type::IntOrString)
                    || matches!(value, Value::Number(n) if Number::of(n).is_whole())
            }
        };
        let textual = matches!(value, Value::String(_) | Value::Array(_));
        let format_name = schema.format.as_deref().unwrap_or_default();
        if format.is_some() && !textual && !ok && actual_format != format_name {
            self.wrong_type(path, format_name, actual_format);
            return 0;
        }
        if ok || (format.is_some() && textual && !numeric) {
            return 1;
        }
        self.wrong_type(path, type_name(schema.ty), actual);
        0
    }

    fn string(&mut self, text: &str, rules: &Rules, path: &Path<'_>) {
        // Only the first of these is reported.
        if let Some(max) = rules.max_length.filter(|max| longer_than(text, *max)) {
            self.push(FieldError::too_long(path, max as usize));
        } else if let Some(min) = rules.min_length.filter(|min| (text.chars().count() as u64) < *min) {
            self.invalid(path, text, &format!("should be at least {min} chars long"));
        } else if let Some(pattern) = &rules.pattern {
            let matches = pattern.matches(text, &mut |time| {
                let left = self.matching_time_left.checked_sub(time);
                self.matching_time_left = left.unwrap_or_default();
                left.is_some()
            });
            let problem = match matches {
                Ok(true) => return,
                Ok(false) => "should match",
                Err(TooLong) => "takes too long to be matched with",
            };
            self.invalid(path, text, &format!("{problem} '{}'", pattern.source()));
        }
    }

    fn number(&mut self, value: &Number, schema: &Schema, format: Option<Format>, path: &Path<'_>) {
        let range = |number: &Number, what: &str| -> Option<String> {
            let (name, fits) = match (schema.ty, format) {
                (Type::Integer, Some(Format::Int32)) => ("integer with format int32", number.fits_int32()),
                (Type::Integer, Some(_)) => ("integer with format int64", number.is_int64()),
                (Type::Integer, None) => ("integer (default format)", number.is_int64()),
                (Type::Number, Some(Format::Float)) => ("number with format float", number.fits_float32()),
                _ => return None,
            };
            (!fits).then(|| format!("{what} value must be of type {name} in {path}"))
        };
        if let Some(text) = range(value, "Checked") {
            self.composite(text);
        }
        let Some(rules) = schema.rules.as_deref() else { return };
        if let Some(factor) = rules.multiple_of {
            let native = self.bound_in_range(range(&Number::from_f64(factor), "MultipleOf"));
            self.multiple_of(value, factor, native, path);
        }
        if let Some((minimum, exclusive)) = rules.minimum {
            let native = self.bound_in_range(range(&Number::from_f64(minimum), "Minimum boundary"));
            let (bound, ordering) = value.compare(minimum, native);
            if ordering.is_lt() || (exclusive && ordering.is_eq()) {
                let than = if exclusive { "greater than" } else { "greater than or equal to" };
                self.invalid(path, value.shown(native), &format!("should be {than} {bound}"));
            }
        }
        if let Some((maximum, exclusive)) = rules.maximum {
            let native = self.bound_in_range(range(&Number::from_f64(maximum), "Maximum boundary"));
            let (bound, ordering) = value.compare(maximum, native);
            if ordering.is_gt() || (exclusive && ordering.is_eq()) {
                let than = if exclusive { "less than" } else { "less than or equal to" };
                self.invalid(path, value.shown(native), &format!("should be {than} {bound}"));
            }
        }
    }

    /// A bound that its own type cannot hold is itself a violation, and is then compared as a float.
    fn bound_in_range(&mut self, problem: Option<String>) -> bool {
        let native = problem.is_none();
        if let Some(text) = problem {
            self.composite(text);
        }
        native
    }

    fn multiple_of(&mut self, value: &Number, factor: f64, native: bool, path: &Path<'_>) {
        let (shown_factor, positive, multiple) = match value {
            Number::Int(int) if native => {
                let factor = factor as i64;
                (factor.to_string(), factor > 0, factor > 0 && int % factor == 0)
            }
            other => {
                let value = other.as_f64();
                let quotient = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
                (windlass_cel::go::float::verbose(factor), factor > 0.0, is_whole(quotient))
            }
        };
        if !positive {
            let detail = format!("factor MultipleOf declared for {path} must be positive: {shown_factor}");
            self.push(FieldError::shown(ErrorKind::Invalid, path, shown_factor, detail));
        } else if !multiple {
            self.invalid(path, value.shown(native), &format!("should be a multiple of {shown_factor}"));
        }
    }

    fn array(&mut self, items: &[Value], old: Option<Old<'_>>, schema: &Schema, path: &Path<'_>) -> Matches {
        let mut matches = 0;
        if let Some(below) = schema.items.as_deref() {
            let old = old.map(Old::items);
            for (index, item) in items.iter().enumerate() {
                let old = old.as_ref().and_then(|old| old.get(item));
                matches += self.node(item, old, below, &path.index(index));
            }
        }
        let Some(rules) = schema.rules.as_deref() else { return matches };
        let size = items.len() as u64;
        if let Some(min) = rules.min_items.filter(|min| size < *min) {
            self.invalid(path, size, &format!("should have at least {min} items"));
        }
        if let Some(max) = rules.max_items.filter(|max| size > *max) {
            self.push(FieldError::too_many(path, items.len(), max as usize));
        }
        if rules.unique_items && has_duplicates(items) {
            self.invalid(path, "", "shouldn't contain duplicates");
        }
        matches
    }

    fn object(
        &mut self,
        map: &serde_json::Map<String, Value>,
        old: Option<Old<'_>>,
        schema: &Schema,
        path: &Path<'_>,
    ) -> Matches {
        let rules = schema.rules.as_deref();
        let size = map.len() as u64;
        if let Some(min) = rules.and_then(|rules| rules.min_properties).filter(|min| size < *min) {
            self.invalid(path, size, &format!("should have at least {min} properties"));
        }
        if let Some(max) = rules.and_then(|rules| rules.max_properties).filter(|max| size > *max) {
            self.push(FieldError::too_many(path, map.len(), max as usize));
        }
        let mut matches = 0;
        for (name, value) in map {
            let below = match schema.properties.get(name.as_str()) {
                // Metadata is checked as metadata; here it only meets what the author demands of it.
                Some(SchemaRef::Definition { .. }) => rules.and_then(|rules| rules.metadata.as_deref()),
                Some(below) => Some(&**below),
                None => schema.additional.as_deref(),
            };
            if rules.is_some_and(|rules| rules.closed) && !schema.properties.contains_key(name.as_str()) {
                let detail = format!("{path}.{name} in body is a forbidden property");
                self.push(FieldError::invalid(path, name.as_str(), detail));
                continue;
            }
            let Some(below) = below else { continue };
            // A type never ratchets: old and new are always shown at the same version.
            let fixed = path.is_root() && matches!(name.as_str(), "apiVersion" | "kind");
            let old = if fixed { None } else { old.and_then(|old| old.field(name)) };
            matches += self.node(value, old, below, &path.child(name));
        }
        for name in &schema.required {
            if !map.contains_key(&**name) {
                self.push(FieldError::required(&path.child(name), ""));
            }
        }
        matches
    }

    fn enumeration(&mut self, value: &Value, schema: &Schema, path: &Path<'_>) {
        if schema.enumeration.is_empty() || schema.enumeration.iter().any(|allowed| converts_to(value, allowed)) {
            return;
        }
        let texts: Vec<String> = schema
            .enumeration
            .iter()
            .map(|allowed| allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.push(FieldError::not_supported(path, value.clone(), &texts));
    }

    /// `anyOf`, `oneOf`, `allOf` and `not`. Nothing below them ratchets.
    fn combinations(&mut self, value: &Value, rules: &Rules, path: &Path<'_>) -> Matches {
        let mut matches = 0;
        let name = || quote(&path.to_string());
        if !rules.any_of.is_empty() {
            let mut best: Option<(Matches, Vec<FieldError>)> = None;
            for schema in &rules.any_of {
                let (count, errors) = self.attempt(value, schema, path);
                if errors.is_empty() {
                    best = Some((count, errors));
                    break;
                }
                if best.as_ref().is_none_or(|(most, _)| count > *most) {
                    best = Some((count, errors));
                }
            }
            if let Some((count, errors)) = best {
                if !errors.is_empty() {
                    self.composite(format!("{} must validate at least one schema (anyOf)", name()));
                }
                self.errors.extend(errors);
                matches += count;
            }
        }
        if !rules.one_of.is_empty() {
            matches += self.one_of(value, &rules.one_of, path);
        }
        if !rules.all_of.is_empty() {
            let mut valid = 0;
            for schema in &rules.all_of {
                let (count, errors) = self.attempt(value, schema, path);
                valid += usize::from(errors.is_empty());
                self.errors.extend(errors);
                matches += count;
            }
            if valid != rules.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.composite(format!("{} must validate all the schemas (allOf){none}", name()));
            }
        }
        if let Some(not) = &rules.not
            && self.attempt(value, not, path).1.is_empty()
        {
            self.composite(format!("{} must not validate the schema (not)", name()));
        }
        matches
    }

    fn one_of(&mut self, value: &Value, schemas: &[Schema], path: &Path<'_>) -> Matches {
        let mut valid = 0;
        let mut success = 0;
        let mut best: Option<(Matches, Vec<FieldError>)> = None;
        for schema in schemas {
            let (count, errors) = self.attempt(value, schema, path);
            if errors.is_empty() {
                if valid == 0 {
                    success = count;
                }
                valid += 1;
                best = None;
            } else if valid == 0 && best.as_ref().is_none_or(|(most, _)| count > *most) {
                best = Some((count, errors));
            }
        }
        if valid == 1 {
            return success;
        }
        let found =
            if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
        let name = quote(&path.to_string());
        self.composite(format!("{name} must validate one and only one schema (oneOf). {found}"));
        let Some((count, errors)) = best else { return 0 };
        self.errors.extend(errors);
        count
    }

    /// Checks one alternative without committing to what it finds.
    fn attempt(&mut self, value: &Value, schema: &Schema, path: &Path<'_>) -> (Matches, Vec<FieldError>) {
        let before = self.errors.len();
        let matches = self.node(value, None, schema, path);
        (matches, self.errors.split_off(before))
    }

    fn push(&mut self, mut error: FieldError) {
        if !self.prefix.is_empty() {
            error.field = match error.field.as_str() {
                "<nil>" => self.prefix.to_owned(),
                field => format!("{}.{field}", self.prefix),
            };
        }
        self.errors.push(error);
    }

    fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, what: &str) {
        self.push(FieldError::invalid(path, value, format!("{path} in body {what}")));
    }

    fn wrong_type(&mut self, path: &Path<'_>, expected: &str, actual: &str) {
        let detail = format!("{path} in body must be of type {expected}: {}", quote(actual));
        self.push(FieldError::new(ErrorKind::TypeInvalid, path, &actual.into(), detail));
    }

    /// A violation that upstream does not tie to a field.
    fn composite(&mut self, text: String) {
        self.push(FieldError::invalid(&Path::root(), "", text));
    }
}

const fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::Any => "",
        Type::Object => "object",
        Type::Array => "array",
        Type::String | Type::Quantity => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
    }
}

fn longer_than(text: &str, max: u64) -> bool {
    text.len() as u64 > max && text.chars().count() as u64 > max
}

fn has_duplicates(items: &[Value]) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().any(|item| !seen.insert(item.to_string()))
}

/// Whether `value`, converted to the type of `allowed` as Go converts, equals it. Null never does.
fn converts_to(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(value), Value::Number(allowed)) => match (Number::of(value), Number::of(allowed)) {
            (Number::Int(value), Number::Int(allowed)) => value == allowed,
            (Number::Float(value), Number::Int(allowed)) => value as i64 == allowed,
            (value, allowed) => value.as_f64().total_cmp(&allowed.as_f64()).is_eq(),
        },
        (value, allowed) => value == allowed,
    }
}

#[cfg(test)]
mod tests;
