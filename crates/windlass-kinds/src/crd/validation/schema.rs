//! The schema of one version: which OpenAPI keywords it may use, and what the `x-kubernetes-*`
//! extensions ask of each other. Whether it is structural is checked next door.

use serde_json::{Map, Value};

use super::rules::{Found, Scope};
use super::{Options, defaults, shown, structural};
use crate::crd::definition::visit;
use crate::crd::outline::Outline;
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::schema::structural::Reader;
use crate::validation::access::Access;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Checks `schema` of a version; `status` says whether the status is a subresource.
pub(super) fn validate(validation: &Value, status: bool, options: Options, path: &Path<'_>, errors: &mut FieldErrors) {
    let openapi = validation.at("openAPIV3Schema");
    let Value::Object(schema) = openapi else { return };
    let path = path.child("openAPIV3Schema");
    let before = errors.0.len();
    if status {
        root_with_status(schema, &path, errors);
    }
    if flag(schema, "nullable") {
        errors.push(FieldError::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    let mut unsupported = None;
    let mut read = None;
    if options.structural {
        unsupported = structural::unsupported(schema);
        if unsupported.is_none() {
            let before = errors.0.len();
            structural::validate(schema, &path, errors);
            let (has_defaults, has_rules) = if errors.0.len() == before { contents(openapi) } else { (false, false) };
            if has_defaults || has_rules {
                let whole = Reader::new().root(openapi);
                if has_defaults {
                    defaults::validate(schema, &whole, options.pruned_defaults, &path, errors);
                }
                if has_rules && errors.0.len() == before {
                    read = Some(whole);
                }
            }
        }
    }
    let scope = read.as_ref().map(Scope::root);
    let mut check = Check { options, errors, rules: Found::new(options.tolerate_cost) };
    check.node(schema, Place { root: true, scope, ..Place::default() }, &path);
    let Check { errors, rules, .. } = check;
    rules.finish(&path, errors);
    if let (Some(problem), true) = (unsupported, errors.0.len() == before) {
        errors.push(FieldError::invalid(&path, "", problem));
    }
}

/// With a status subresource, the status is checked by itself: the root may not say anything that
/// would be lost.
fn root_with_status(schema: &Map<String, Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    const FORBIDDEN: &[&str] = &[
        "id",
        "$schema",
        "$ref",
        "nullable",
        "default",
        "enum",
        "maxProperties",
        "minProperties",
        "allOf",
        "oneOf",
        "anyOf",
        "not",
        "additionalProperties",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ];
    let ty = text(schema, "type");
    if !ty.is_empty() && ty != "object" {
        let detail =
            r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        errors.push(FieldError::invalid(&path.child("type"), ty, detail));
    } else if FORBIDDEN.iter().any(|key| schema.get(*key).is_some_and(|v| !v.is_null() && *v != Value::Bool(false))) {
        let detail = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
                      MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs \
                      Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the \
                      status subresource is enabled";
        errors.push(FieldError::shown(ErrorKind::Invalid, path, shown::schema(schema), detail));
    }
}

/// What is known about where a schema sits.
#[derive(Clone, Copy, Default)]
struct Place<'a> {
    /// It is the object's own.
    root: bool,
    /// It is inside the metadata of an object.
    inside_meta: bool,
    /// Why it may have no default.
    no_default: Option<&'static str>,
    /// What its CEL rules can see; `None` where rules are not checked.
    scope: Option<Scope<'a>>,
    /// The list around it whose items have no old values.
    uncorrelated: Option<&'a Path<'a>>,
}

struct Check<'a> {
    options: Options,
    errors: &'a mut FieldErrors,
    rules: Found,
}

impl Check<'_> {
    fn node(&mut self, schema: &Map<String, Value>, place: Place<'_>, path: &Path<'_>) {
        let before = self.errors.0.len();
        let outline = Outline::of(schema);
        self.type_and_default(outline, place, path);
        if !outline.unusual {
            if let Some(properties) = outline.properties {
                self.properties(schema, properties, place, path);
            }
            if let Some(items) = outline.items {
                self.items(schema, items, place, path);
            }
            return;
        }
        let has_rules = !list(schema, "x-kubernetes-validations").is_empty();
        let fresh = place.scope.filter(|_| has_rules).and_then(Scope::fresh);
        let place = Place { scope: place.scope.map(|scope| scope.with(fresh.as_ref())), ..place };
        self.unusual(schema, outline, place, path);
        if let (Some(scope), true) = (place.scope, has_rules)
            && self.errors.0.len() == before
        {
            self.rules.check(schema, scope, place.uncorrelated, path);
        }
    }

    /// Checks a schema that says more than what its values look like.
    fn unusual(&mut self, schema: &Map<String, Value>, outline: Outline<'_>, place: Place<'_>, path: &Path<'_>) {
        let inner = Place { root: false, scope: None, ..place };
        self.keywords(schema, place, path);
        if flag(schema, "uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.errors.push(FieldError::forbidden(&path.child("uniqueItems"), detail));
        }
        self.additional_properties(schema, Place { root: false, ..place }, path);
        if let Some(properties) = outline.properties {
            self.properties(schema, properties, place, path);
        }
        if let Some(Value::Object(not)) = schema.get("not") {
            self.node(not, inner, &path.child("not"));
        }
        for key in ["allOf", "oneOf", "anyOf"] {
            let at = path.child(key);
            for (index, below) in list(schema, key).iter().enumerate() {
                if let Value::Object(below) = below {
                    self.node(below, inner, &at.index(index));
                }
            }
        }
        if let Some(items) = outline.items {
            self.items(schema, items, place, path);
        }
        self.extensions(schema, path);
        self.validations(schema, path);
    }

    fn items(&mut self, schema: &Map<String, Value>, items: &Map<String, Value>, place: Place<'_>, path: &Path<'_>) {
        let scope = place.scope.and_then(|scope| scope.items(schema));
        let correlated = text(schema, "x-kubernetes-list-type") == "map";
        // What is named is the outermost list.
        let uncorrelated = place.uncorrelated.or((!correlated).then_some(path));
        self.node(items, Place { root: false, scope, uncorrelated, ..place }, &path.child("items"));
    }

    fn type_and_default(&mut self, outline: Outline<'_>, place: Place<'_>, path: &Path<'_>) {
        let ty = outline.ty;
        if self.options.valid_types && !ty.is_empty() && !TYPES.contains(&ty) {
            self.errors.push(FieldError::not_supported(&path.child("type"), ty, TYPES));
        }
        if let (Some(reason), Some(_)) = (place.no_default, outline.default) {
            self.errors.push(FieldError::forbidden(&path.child("default"), format!("must not be set {reason}")));
        }
        if ty == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            self.errors.push(FieldError::forbidden(&path.child("type"), detail));
        }
    }

    /// Keywords that OpenAPI has and Kubernetes does not.
    fn keywords(&mut self, schema: &Map<String, Value>, place: Place<'_>, path: &Path<'_>) {
        for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            let set = match schema.get(key) {
                None | Some(Value::Null) => false,
                Some(Value::String(text)) => key == "$ref" || !text.is_empty(),
                Some(Value::Object(map)) => !map.is_empty() || matches!(key, "additionalItems" | "dependencies"),
                Some(_) => true,
            };
            if set {
                self.errors.push(FieldError::forbidden(&path.child(key), format!("{key} is not supported")));
            }
        }
        if schema.get("items").is_some_and(|items| items.as_array().is_some_and(|list| !list.is_empty())) {
            let detail = "items must be a schema object and not an array";
            self.errors.push(FieldError::forbidden(&path.child("items"), detail));
        }
        if place.inside_meta && flag(schema, "x-kubernetes-embedded-resource") {
            let detail = "must not be used inside of resource meta";
            self.errors.push(FieldError::forbidden(&path.child("x-kubernetes-embedded-resource"), detail));
        }
    }

    fn additional_properties(&mut self, schema: &Map<String, Value>, place: Place<'_>, path: &Path<'_>) {
        let additional = match schema.get("additionalProperties") {
            None | Some(Value::Null) => return,
            Some(additional) => additional,
        };
        let path = path.child("additionalProperties");
        let has_properties = schema.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
        if has_properties && *additional != Value::Bool(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.errors.push(FieldError::forbidden(&path, detail));
        }
        let place = if place.inside_meta {
            Place { no_default: Some("inside additionalProperties applying to object metadata"), ..place }
        } else {
            place
        };
        if let Value::Object(additional) = additional {
            let scope = place.scope.and_then(|scope| scope.additional(schema));
            let place = Place { scope, ..place };
            self.node(additional, place, &path);
        }
    }

    fn properties(
        &mut self,
        schema: &Map<String, Value>,
        properties: &Map<String, Value>,
        place: Place<'_>,
        path: &Path<'_>,
    ) {
        let path = path.child("properties");
        let object = place.root || flag(schema, "x-kubernetes-embedded-resource");
        for (name, below) in properties {
            let Value::Object(below) = below else { continue };
            let scope = place.scope.and_then(|scope| scope.property(name, schema));
            let mut inner = Place { root: false, scope, ..place };
            let no_default = match name.as_str() {
                "metadata" => "in top-level metadata",
                "kind" => "in top-level kind",
                "apiVersion" => "in top-level apiVersion",
                _ => "",
            };
            if object && !no_default.is_empty() {
                inner.inside_meta = true;
                if place.root {
                    inner.no_default = Some(no_default);
                }
            }
            self.node(below, inner, &path.key(name));
        }
    }

    fn extensions(&mut self, schema: &Map<String, Value>, path: &Path<'_>) {
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let path = path.child("x-kubernetes-preserve-unknown-fields");
            self.errors.push(FieldError::invalid(&path, false, "must be true or undefined"));
        }
        let map_type = schema.get("x-kubernetes-map-type").and_then(Value::as_str);
        if let Some(map_type) = map_type {
            self.type_must_be(schema, "object", "x-kubernetes-map-type", path);
            if !matches!(map_type, "atomic" | "granular") {
                let path = path.child("x-kubernetes-map-type");
                self.errors.push(FieldError::not_supported(&path, map_type, &["atomic", "granular"]));
            }
        }
        let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
        if let Some(list_type) = list_type {
            if !self.type_must_be(schema, "array", "x-kubernetes-list-type", path)
                && self.options.atomic_sets
                && list_type == "set"
            {
                self.atomic_items(schema, path);
            }
            if !matches!(list_type, "atomic" | "set" | "map") {
                let path = path.child("x-kubernetes-list-type");
                self.errors.push(FieldError::not_supported(&path, list_type, &["atomic", "set", "map"]));
            }
        }
        self.list_map_keys(schema, list_type, path);
        if self.options.map_list_keys {
            map_list_items(schema, path, self.errors);
        }
    }

    /// Says so if the type does not go with an extension.
    fn type_must_be(&mut self, schema: &Map<String, Value>, expected: &str, key: &str, path: &Path<'_>) -> bool {
        let ty = text(schema, "type");
        if ty == expected {
            return false;
        }
        let path = path.child("type");
        let detail = format!("must be {expected} if {key} is specified");
        self.errors.push(if ty.is_empty() {
            FieldError::required(&path, detail)
        } else {
            FieldError::invalid(&path, ty, detail)
        });
        true
    }

    fn atomic_items(&mut self, schema: &Map<String, Value>, path: &Path<'_>) {
        let Some(Value::Object(items)) = schema.get("items") else { return };
        let Some(key) = non_atomic(items) else { return };
        // Upstream shows the list type even where the map type is wrong.
        let value = items.get("x-kubernetes-list-type").cloned().unwrap_or_default();
        let path = path.child("items");
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        self.errors.push(FieldError::invalid(&path.child(key), value, detail));
    }

    fn list_map_keys(&mut self, schema: &Map<String, Value>, list_type: Option<&str>, path: &Path<'_>) {
        let keys = list(schema, "x-kubernetes-list-map-keys");
        let keys_path = path.child("x-kubernetes-list-map-keys");
        if !keys.is_empty() && list_type != Some("map") {
            let path = path.child("x-kubernetes-list-type");
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            self.errors.push(match list_type {
                None => FieldError::required(&path, detail),
                Some(list_type) => FieldError::invalid(&path, list_type, detail),
            });
        }
        if list_type != Some("map") {
            return;
        }
        if keys.is_empty() {
            self.errors.push(FieldError::required(&keys_path, "must not be empty if x-kubernetes-list-type is map"));
        }
        let items_path = path.child("items");
        let items = match schema.get("items") {
            Some(Value::Object(items)) => items,
            Some(Value::Array(_)) => {
                let detail = "must only have a single schema if x-kubernetes-list-type is map";
                let items = schema.get("items").cloned().unwrap_or_default();
                self.errors.push(FieldError::invalid(&items_path, items, detail));
                return;
            }
            _ => {
                let detail = "must have a schema if x-kubernetes-list-type is map";
                self.errors.push(FieldError::required(&items_path, detail));
                return;
            }
        };
        let item_type = text(items, "type");
        if item_type != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            self.errors.push(FieldError::invalid(&items_path.child("type"), item_type, detail));
            return;
        }
        let properties_path = items_path.child("properties");
        for (index, key) in keys.iter().enumerate() {
            let name = key.as_str().unwrap_or_default();
            match items.get("properties").and_then(|properties| properties.get(name)) {
                Some(property) if matches!(property.text("type"), "array" | "object") => {
                    let path = properties_path.key(name);
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    self.errors.push(FieldError::invalid(&path.child("type"), item_type, detail));
                }
                Some(_) => {}
                None => {
                    let detail = "entries must all be names of item properties";
                    self.errors.push(FieldError::invalid(&keys_path, keys.to_vec(), detail));
                }
            }
            if keys[..index].contains(key) {
                let detail = "must not contain duplicate entries";
                self.errors.push(FieldError::invalid(&keys_path, keys.to_vec(), detail));
            }
        }
    }

    fn validations(&mut self, schema: &Map<String, Value>, path: &Path<'_>) {
        const REASONS: &[&str] =
            &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
        let path = path.child("x-kubernetes-validations");
        for (index, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
            let at = path.index(index);
            let message = rule.text("message");
            let has_newlines = |text: &str| text.contains(['\n', '\r']);
            if rule.text("rule").trim().is_empty() {
                self.errors.push(FieldError::required(&at.child("rule"), "rule is not specified"));
            } else if !message.is_empty() && message.trim().is_empty() {
                let detail = "must be non-empty if specified";
                self.errors.push(FieldError::invalid(&at.child("message"), message, detail));
            } else if has_newlines(message.trim()) {
                self.errors.push(FieldError::invalid(&at.child("message"), message, "must not contain line breaks"));
            } else if has_newlines(rule.text("rule").trim()) && message.trim().is_empty() {
                let detail = "message must be specified if rule contains line breaks";
                self.errors.push(FieldError::required(&at.child("message"), detail));
            }
            let expression = rule.text("messageExpression");
            if !expression.is_empty() && expression.trim().is_empty() {
                let detail = "messageExpression must be non-empty if specified";
                self.errors.push(FieldError::required(&at.child("messageExpression"), detail));
            }
            if let Some(reason) = rule.text_opt("reason").filter(|reason| !REASONS.contains(reason)) {
                self.errors.push(FieldError::not_supported(&at.child("reason"), reason, REASONS));
            }
            self.field_path(rule.text("fieldPath"), schema, &at.child("fieldPath"));
        }
    }

    fn field_path(&mut self, text: &str, schema: &Map<String, Value>, path: &Path<'_>) {
        if text.is_empty() {
            return;
        }
        let mut invalid = |detail: &str| self.errors.push(FieldError::invalid(path, text, detail));
        if text.trim().is_empty() {
            invalid("must be non-empty if specified");
        }
        if text.contains(['\n', '\r']) {
            invalid("must not contain line breaks");
        }
        if crate::rules::field_path::resolve(text, schema, true).is_err() {
            invalid("must be a valid path");
        }
    }
}

/// The extension by which the items of a set are not atomic, if they are not.
fn non_atomic(items: &Map<String, Value>) -> Option<&'static str> {
    let extension = |key: &str| items.get(key).and_then(Value::as_str);
    match text(items, "type") {
        "array" if extension("x-kubernetes-list-type").is_some_and(|ty| ty != "atomic") => {
            Some("x-kubernetes-list-type")
        }
        "object" if extension("x-kubernetes-map-type") != Some("atomic") => Some("x-kubernetes-map-type"),
        _ => None,
    }
}

/// Items of sets and map lists are never null, and the keys of map lists are always there.
fn map_list_items(schema: &Map<String, Value>, path: &Path<'_>, errors: &mut FieldErrors) {
    let list_type = text(schema, "x-kubernetes-list-type");
    let Some(Value::Object(items)) = schema.get("items") else { return };
    if !matches!(list_type, "set" | "map") {
        return;
    }
    let path = path.child("items");
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(&path.child("nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    let path = path.child("properties");
    for key in list(schema, "x-kubernetes-list-map-keys") {
        let name = key.as_str().unwrap_or_default();
        let Some(property) = items.get("properties").and_then(|properties| properties.get(name)) else { continue };
        let path = path.key(name);
        if !list(items, "required").contains(key) && !property.has("default") {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(&path.child("default"), detail));
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(&path.child("nullable"), detail));
        }
    }
}

/// Whether every default of a schema knows only fields that are declared.
pub(super) fn defaults_are_pruned(schema: &Value) -> bool {
    let Value::Object(written) = schema else { return true };
    !defaults::has_any(schema)
        || !structural::is_structural(schema)
        || defaults::are_pruned(written, &Reader::new().root(schema))
}

/// Whether there is a default, and whether there is a CEL rule, anywhere in a schema.
fn contents(schema: &Value) -> (bool, bool) {
    let (mut defaults, mut rules) = (false, false);
    visit(schema, &mut |schema| {
        defaults |= schema.get("default").is_some_and(|default| !default.is_null());
        rules |= !list(schema, "x-kubernetes-validations").is_empty();
    });
    (defaults, rules)
}

/// Whether every type in a schema is one OpenAPI v3 knows.
pub(super) fn types_are_valid(schema: &Value) -> bool {
    all(schema, |schema| text(schema, "type").is_empty() || TYPES.contains(&text(schema, "type")))
}

/// Whether the items of all sets are atomic.
pub(super) fn sets_are_atomic(schema: &Value) -> bool {
    all(schema, |schema| {
        let items = schema.get("items").and_then(Value::as_object);
        text(schema, "x-kubernetes-list-type") != "set" || items.is_none_or(|items| non_atomic(items).is_none())
    })
}

/// Whether the keys of all map lists are always there.
pub(super) fn map_list_keys_are_there(schema: &Value) -> bool {
    all(schema, |schema| {
        let mut errors = FieldErrors::default();
        map_list_items(schema, &Path::root(), &mut errors);
        errors.is_empty()
    })
}

fn all(schema: &Value, holds: impl Fn(&Map<String, Value>) -> bool) -> bool {
    let mut result = true;
    visit(schema, &mut |schema| result &= holds(schema));
    result
}

fn text<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn list<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
