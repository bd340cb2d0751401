//! Defaults in a CRD's schema: values that the schema around them accepts, rules included, with no
//! unknown fields. Upstream: `apiserver/schema/defaulting/validation.go`.
//!
//! A default inside the type or the metadata of a resource (the object itself, or an embedded one) is
//! tried as part of such a resource. All rules of all defaults share one budget.

use serde_json::{Map, Value, json};

use crate::crd::definition::visit;
use crate::crd::has_rules;
use crate::field::{FieldError, FieldErrors, Path};
use crate::rules::{OBJECT_BUDGET, Rules};
use crate::schema::validate::{self, embedded};
use crate::schema::{Schema, SchemaRef, prune};

/// Whether there is a default anywhere in a schema.
pub(super) fn has_any(schema: &Value) -> bool {
    let mut found = false;
    visit(schema, &mut |schema| found |= default_of(schema).is_some());
    found
}

/// Whether every default below a whole object's schema knows only fields that are declared. `written` is what
/// `schema` was read from.
pub(super) fn are_pruned(written: &Map<String, Value>, schema: &Schema) -> bool {
    default_of(written) == schema.default.as_ref()
        && below(written, schema).all(|(_, written, schema)| are_pruned(written, schema))
}

/// Checks every default below `schema`, which is a whole object's and was read from `written`.
pub(super) fn validate(
    written: &Map<String, Value>,
    schema: &Schema,
    require_pruned: bool,
    path: &Path<'_>,
    errors: &mut FieldErrors,
) {
    let mut check = Check { require_pruned, budget: OBJECT_BUDGET, errors };
    check.node(written, schema, Place { resource: schema, step: None, is_resource: true, inside_meta: false }, path);
}

/// A step from a resource down to a default.
#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item,
    /// Upstream does not look at defaults of map values.
    Value,
}

/// The steps from the nearest resource down to a default.
#[derive(Clone, Copy)]
struct Steps<'a> {
    above: Option<&'a Steps<'a>>,
    last: Step<'a>,
}

/// Where a schema sits.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The schema of the nearest resource.
    resource: &'a Schema,
    /// How to get here from it.
    step: Option<&'a Steps<'a>>,
    /// Whether this is that resource.
    is_resource: bool,
    /// Whether this is part of its type or metadata.
    inside_meta: bool,
}

struct Check<'e> {
    require_pruned: bool,
    /// What rules may still cost; negative if they cost too much.
    budget: i64,
    errors: &'e mut FieldErrors,
}

impl Check<'_> {
    fn node(&mut self, written: &Map<String, Value>, schema: &Schema, place: Place<'_>, path: &Path<'_>) {
        if let Some(default) = default_of(written) {
            let path = path.child("default");
            if place.inside_meta {
                self.inside_metadata(default, schema, place, &path);
            } else {
                self.plain(default, schema, place.is_resource, &path);
            }
        }
        for (step, written, schema) in below(written, schema) {
            if self.budget < 0 {
                return;
            }
            if schema.embedded {
                let place = Place { resource: schema, step: None, is_resource: true, inside_meta: false };
                self.step(step, written, schema, place, path);
                continue;
            }
            let meta = matches!(step, Step::Field("metadata" | "apiVersion" | "kind"));
            let steps = Steps { above: place.step, last: step };
            let inner = Place {
                step: Some(&steps),
                is_resource: false,
                inside_meta: place.inside_meta || (place.is_resource && meta),
                ..place
            };
            self.step(step, written, schema, inner, path);
        }
    }

    fn step(
        &mut self,
        step: Step<'_>,
        written: &Map<String, Value>,
        schema: &Schema,
        place: Place<'_>,
        path: &Path<'_>,
    ) {
        match step {
            Step::Field(name) => self.node(written, schema, place, &path.child("properties").key(name)),
            Step::Item => self.node(written, schema, place, &path.child("items")),
            Step::Value => {}
        }
    }

    fn plain(&mut self, default: &Value, schema: &Schema, resource: bool, path: &Path<'_>) {
        if self.require_pruned && !prune::is_pruned(default, schema) {
            self.errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
        }
        if let Some(problem) = embedded::malformed(default, schema, resource, path) {
            self.errors.push(problem);
            return;
        }
        let before = self.errors.0.len();
        embedded::validate_inside(default, schema, resource, path, self.errors);
        if self.errors.0.len() == before {
            self.value(default, schema, path);
        }
    }

    fn inside_metadata(&mut self, default: &Value, schema: &Schema, place: Place<'_>, path: &Path<'_>) {
        let object = surround(default, place.step);
        let root = Path::root();
        let mut problems = FieldErrors::default();
        match embedded::malformed(&object, place.resource, true, &root) {
            Some(problem) => problems.push(problem),
            None => embedded::validate_inside(&object, place.resource, true, &root, &mut problems),
        }
        if problems.is_empty() {
            self.value(default, schema, path);
        } else {
            let detail = format!("must result in valid metadata: {problems}");
            self.errors.push(FieldError::invalid(path, default.clone(), detail));
        }
    }

    /// Checks a default by its schema, and if that is content, by its rules: as a value that stays, and as one that is
    /// new.
    fn value(&mut self, default: &Value, schema: &Schema, path: &Path<'_>) {
        let before = self.errors.0.len();
        validate::validate(default, schema, &path.to_string(), self.errors);
        if self.errors.0.len() > before || !has_rules(schema) {
            return;
        }
        let Some(rules) = Rules::new(schema) else { return };
        let mut budget = rules.validate_default(schema, default, Some(default), path, self.budget, self.errors);
        if self.errors.0.len() == before {
            budget = budget.min(rules.validate_default(schema, default, None, path, self.budget, self.errors));
        }
        self.budget = budget;
    }
}

/// What is below a schema, beside what it was read from.
fn below<'a>(
    written: &'a Map<String, Value>,
    schema: &'a Schema,
) -> impl Iterator<Item = (Step<'a>, &'a Map<String, Value>, &'a Schema)> {
    let demands = schema.rules.as_deref().and_then(|rules| rules.metadata.as_deref());
    let object = |key: &str| written.get(key).and_then(Value::as_object);
    let items = object("items").zip(schema.items.as_deref()).map(|(written, schema)| (Step::Item, written, schema));
    let values = object("additionalProperties").zip(schema.additional.as_deref());
    let values = values.map(|(written, schema)| (Step::Value, written, schema));
    let properties = object("properties").into_iter().flatten().filter_map(move |(name, written)| {
        let schema = match schema.properties.get(name.as_str())? {
            SchemaRef::Definition { .. } => demands?,
            own => own,
        };
        Some((Step::Field(name), written.as_object()?, schema))
    });
    items.into_iter().chain(values).chain(properties)
}

/// The smallest resource that has a default where it would go.
fn surround(default: &Value, steps: Option<&Steps<'_>>) -> Value {
    let mut value = default.clone();
    let mut next = steps;
    while let Some(steps) = next {
        value = match steps.last {
            Step::Field(name) => json!({ name: value }),
            Step::Item | Step::Value => json!([value]),
        };
        next = steps.above;
    }
    if let Value::Object(object) = &mut value {
        object.entry("kind").or_insert_with(|| json!("Validation"));
        object.entry("apiVersion").or_insert_with(|| json!("validation/v1"));
    }
    value
}

/// `default: null` is no default.
fn default_of(schema: &Map<String, Value>) -> Option<&Value> {
    schema.get("default").filter(|default| !default.is_null())
}
