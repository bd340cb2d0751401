//! What makes a schema structural: every value's type is declared outside `allOf`, `anyOf`, `oneOf`
//! and `not`, which may only restrict values. Upstream: `apiserver/schema/validation.go`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::crd::outline::Outline;
use crate::field::{FieldError, FieldErrors, Path};
use crate::schema::pattern;

/// Whether a schema is structural; one that is not there is.
pub(super) fn is_structural(schema: &Value) -> bool {
    let Value::Object(schema) = schema else { return true };
    if unsupported(schema).is_some() {
        return false;
    }
    let mut errors = FieldErrors::default();
    validate(schema, &Path::root(), &mut errors);
    errors.is_empty()
}

/// Checks that a whole object's schema is structural. Violations come sorted by their text.
pub(super) fn validate(schema: &Map<String, Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    let mut found = Found::default();
    invariants(schema, Level::Root, path, &mut found);
    complete(schema, schema, path, path, &mut found);
    found.violations.sort_by_cached_key(ToString::to_string);
    errors.0.append(&mut found.violations);
}

/// What was found so far. Big schemas repeat a few patterns a thousand times; each is read once.
#[derive(Default)]
struct Found {
    violations: Vec<FieldError>,
    good_patterns: HashSet<String>,
}

impl Found {
    fn push(&mut self, violation: FieldError) {
        self.violations.push(violation);
    }

    fn problem_of(&mut self, pattern: &str) -> Option<String> {
        if self.good_patterns.contains(pattern) {
            return None;
        }
        let problem = pattern::check(pattern).err();
        if problem.is_none() {
            self.good_patterns.insert(pattern.to_owned());
        }
        problem
    }
}

/// What keeps a schema from being read as a structural one at all.
pub(super) fn unsupported(schema: &Map<String, Value>) -> Option<String> {
    let outline = Outline::of(schema);
    if !outline.unusual {
        let properties = outline.properties.into_iter().flat_map(Map::values).filter_map(Value::as_object);
        return outline.items.into_iter().chain(properties).find_map(unsupported);
    }
    for (key, name) in [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ] {
        if is_set(schema, key) {
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    let nested = |key: &str| schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let below = |key: &str| schema.get(key).and_then(Value::as_object);
    let combined = below("not")
        .into_iter()
        .chain(["allOf", "anyOf", "oneOf"].into_iter().flat_map(nested).filter_map(Value::as_object));
    if let Some(problem) = combined.into_iter().find_map(unsupported) {
        return Some(problem);
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned());
    }
    if schema.get("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let properties = below("properties").into_iter().flat_map(Map::values).filter_map(Value::as_object);
    below("items").into_iter().chain(properties).chain(below("additionalProperties")).find_map(unsupported)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

fn invariants(schema: &Map<String, Value>, level: Level, path: &Path<'_>, errors: &mut Found) {
    let outline = Outline::of(schema);
    let (ty, items) = (outline.ty, outline.items);
    if ty == "array" && items.is_none() {
        errors.push(FieldError::required(&path.child("items"), "must be specified"));
    }
    if let Some(items) = items {
        invariants(items, Level::Item, &path.child("items"), errors);
    }
    if let Some(properties) = outline.properties {
        let path = path.child("properties");
        for (name, below) in properties {
            if let Value::Object(below) = below {
                invariants(below, Level::Field, &path.key(name), errors);
            }
        }
    }
    if !outline.unusual && level != Level::Root {
        pattern(outline.pattern, path, errors);
        if ty.is_empty() {
            type_invariants(schema, ty, false, level, path, errors);
        }
        return;
    }
    let additional = schema.get("additionalProperties").filter(|value| !value.is_null());
    if let Some(additional) = additional {
        let path = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(&path, "must not be used at the root"));
        }
        if let Value::Object(additional) = additional {
            invariants(additional, Level::Field, &path, errors);
        }
    }
    extensions(schema, path, errors);
    value_validation(schema, is_int_or_string(schema), is_all_of_int_or_string(schema), path, errors);
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    type_invariants(schema, ty, embedded, level, path, errors);
    if embedded && additional.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), detail));
    }
    metadata_invariants(schema, level == Level::Root || embedded, level, path, errors);
    let no_properties = schema.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
    if embedded && !flag(schema, "x-kubernetes-preserve-unknown-fields") && no_properties {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&path.child("properties"), detail));
    }
}

fn type_invariants(
    schema: &Map<String, Value>,
    ty: &str,
    embedded: bool,
    level: Level,
    path: &Path<'_>,
    errors: &mut Found,
) {
    let path = path.child("type");
    let any = flag(schema, "x-kubernetes-int-or-string") || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match ty {
            "" => FieldError::required(&path, detail),
            ty => FieldError::invalid(&path, ty, detail),
        });
    } else if ty.is_empty() && !any {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.push(FieldError::required(&path, format!("must not be empty {place}")));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(&path, ty, "must be object at the root"));
    }
}

fn metadata_invariants(schema: &Map<String, Value>, checked: bool, level: Level, path: &Path<'_>, errors: &mut Found) {
    let Some(Value::Object(properties)) = schema.get("properties") else { return };
    let path = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let (true, Some(Value::Object(below))) = (checked, properties.get(name))
            && text(below, "type") != "string"
        {
            let path = path.key(name);
            errors.push(FieldError::invalid(&path.child("type"), text(below, "type"), "must be string"));
        }
    }
    let Some(Value::Object(metadata)) = properties.get("metadata") else { return };
    let path = path.key("metadata");
    if checked && text(metadata, "type") != "object" {
        errors.push(FieldError::invalid(&path.child("type"), text(metadata, "type"), "must be object"));
    }
    if level == Level::Root && restricts_more_than_names(metadata) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(&path, detail));
    }
}

fn restricts_more_than_names(metadata: &Map<String, Value>) -> bool {
    metadata.keys().any(|key| match key.as_str() {
        "type" | "default" => false,
        "properties" => {
            let names = metadata[key].as_object().into_iter().flat_map(Map::keys);
            names.into_iter().any(|name| !matches!(name.as_str(), "name" | "generateName"))
        }
        key => is_set(metadata, key),
    })
}

fn extensions(schema: &Map<String, Value>, path: &Path<'_>, errors: &mut Found) {
    if !flag(schema, "x-kubernetes-int-or-string") {
        return;
    }
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(schema, key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(&path.child(key), true, detail));
        }
    }
}

/// Whether `anyOf` just spells out what `x-kubernetes-int-or-string` means.
fn is_int_or_string(schema: &Map<String, Value>) -> bool {
    let alternatives = schema.get("anyOf").and_then(Value::as_array);
    let only_type = |schema: &Value, ty: &str| {
        schema
            .as_object()
            .is_some_and(|map| map.keys().all(|key| key == "type" || !is_set(map, key)) && text(map, "type") == ty)
    };
    alternatives
        .is_some_and(|list| matches!(list.as_slice(), [a, b] if only_type(a, "integer") && only_type(b, "string")))
}

fn is_all_of_int_or_string(schema: &Map<String, Value>) -> bool {
    let first = schema.get("allOf").and_then(|all| all.get(0)).and_then(Value::as_object);
    first.is_some_and(is_int_or_string)
}

fn value_validation(
    schema: &Map<String, Value>,
    skip_any_of: bool,
    skip_first_any_of: bool,
    path: &Path<'_>,
    errors: &mut Found,
) {
    if !skip_any_of {
        each_alternative(schema, "anyOf", path, &mut |_, below, path| nested(below, false, path, errors));
    }
    each_alternative(schema, "allOf", path, &mut |index, below, path| {
        nested(below, skip_first_any_of && index == 0, path, errors);
    });
    each_alternative(schema, "oneOf", path, &mut |_, below, path| nested(below, false, path, errors));
    if let Some(Value::Object(not)) = schema.get("not") {
        nested(not, false, &path.child("not"), errors);
    }
    pattern(text(schema, "pattern"), path, errors);
}

fn pattern(pattern: &str, path: &Path<'_>, errors: &mut Found) {
    if !pattern.is_empty()
        && let Some(problem) = errors.problem_of(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {problem}");
        errors.push(FieldError::invalid(&path.child("pattern"), pattern, detail));
    }
}

/// Checks a schema under `allOf`, `anyOf`, `oneOf` or `not`.
fn nested(schema: &Map<String, Value>, skip_any_of: bool, path: &Path<'_>, errors: &mut Found) {
    value_validation(schema, skip_any_of, false, path, errors);
    if let Some(Value::Object(items)) = schema.get("items") {
        nested(items, false, &path.child("items"), errors);
    }
    each_property(schema, path, &mut |below, path| nested(below, false, path, errors));
    let additional = schema.get("additionalProperties");
    if additional.is_some_and(|additional| additional.is_object() || *additional == Value::Bool(true)) {
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), "must be undefined to be structural"));
    }
    for (key, state) in [
        ("type", "empty"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ] {
        if is_set(schema, key) {
            errors.push(FieldError::forbidden(&path.child(key), format!("must be {state} to be structural")));
        }
    }
    if schema.get("properties").and_then(|properties| properties.get("metadata")).is_some() {
        let path = path.child("properties");
        errors.push(FieldError::forbidden(&path.key("metadata"), "must not be specified in a nested context"));
    }
}

/// Checks that what `restricting` restricts is declared in `declared`.
fn complete(
    restricting: &Map<String, Value>,
    declared: &Map<String, Value>,
    declared_path: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Found,
) {
    if let Some(Value::Object(not)) = restricting.get("not") {
        complete_nested(not, Some(declared), declared_path, &path.child("not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        each_alternative(restricting, key, path, &mut |_, below, path| {
            complete_nested(below, Some(declared), declared_path, path, errors);
        });
    }
}

fn complete_nested(
    restricting: &Map<String, Value>,
    declared: Option<&Map<String, Value>>,
    declared_path: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Found,
) {
    let Some(declared) = declared else {
        errors.push(FieldError::required(declared_path, format!("because it is defined in {path}")));
        return;
    };
    complete(restricting, declared, declared_path, path, errors);
    if let Some(Value::Object(items)) = restricting.get("items") {
        let below = declared.get("items").and_then(Value::as_object);
        complete_nested(items, below, &declared_path.child("items"), &path.child("items"), errors);
    }
    let declared_path = declared_path.child("properties");
    let path = path.child("properties");
    for (name, below) in restricting.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let Value::Object(below) = below else { continue };
        let declared =
            declared.get("properties").and_then(|properties| properties.get(name)).and_then(Value::as_object);
        complete_nested(below, declared, &declared_path.key(name), &path.key(name), errors);
    }
}

fn each_property(schema: &Map<String, Value>, path: &Path<'_>, f: &mut impl FnMut(&Map<String, Value>, &Path<'_>)) {
    let Some(Value::Object(properties)) = schema.get("properties") else { return };
    let path = path.child("properties");
    for (name, below) in properties {
        if let Value::Object(below) = below {
            f(below, &path.key(name));
        }
    }
}

fn each_alternative(
    schema: &Map<String, Value>,
    key: &str,
    path: &Path<'_>,
    f: &mut impl FnMut(usize, &Map<String, Value>, &Path<'_>),
) {
    let Some(Value::Array(alternatives)) = schema.get(key) else { return };
    let path = path.child(key);
    for (index, below) in alternatives.iter().enumerate() {
        if let Value::Object(below) = below {
            f(index, below, &path.index(index));
        }
    }
}

/// Whether a key says anything: Go's zero values do not.
fn is_set(schema: &Map<String, Value>, key: &str) -> bool {
    match schema.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => {
            !map.is_empty() || matches!(key, "additionalItems" | "not" | "additionalProperties")
        }
        Some(_) => true,
    }
}

fn text<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}
