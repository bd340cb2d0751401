//! From the schema that `schemars` makes to a structural one, which is what definitions need.
//!
//! A structural schema says for each value what it is made of, once, and outside of `oneOf`, `anyOf` and `allOf`; what is
//! within those only restricts values. So the forms of an enum are joined into one that has the fields of all of them
//! ([`join`]), and each branch keeps what tells it from the others. Where forms have nothing in common, the value is left
//! open.
//!
//! The conversion never fails. A keyword with a value that no API server can read becomes a type that says so, and the
//! API server refuses the definition with the name of the field.

mod join;
mod keywords;

use serde_json::{Map, Value, json};

use crate::markers::{self, IMMUTABLE};
use crate::rule;
use keywords::{ARRAY, OBJECT};

type Schema = Map<String, Value>;

/// Converts the schemas of one type.
pub(crate) struct Converter<'a> {
    /// What recursive types refer to.
    definitions: &'a Schema,
}

impl<'a> Converter<'a> {
    pub(crate) fn new(definitions: &'a Schema) -> Self {
        Self { definitions }
    }

    /// The schema of the type itself. `written` is the schema of what the type writes.
    pub(crate) fn root(&self, read: &Value, written: &Value) -> Schema {
        let mut schema = self.convert(read, Some(written));
        schema.remove("nullable");
        schema
    }

    fn convert(&self, read: &Value, written: Option<&Value>) -> Schema {
        let Value::Object(read) = read else {
            return if *read == Value::Bool(false) { nothing() } else { anything() };
        };
        let written = written.and_then(Value::as_object);
        let mut schema = keywords::kept(read);
        if let Some(reference) = read.get("$ref") {
            self.cut(reference, &mut schema);
        }
        self.add_fields(&mut schema, read, written);
        self.add_elements(&mut schema, read, written);
        if !is(&schema, "x-kubernetes-int-or-string") {
            self.add_forms(&mut schema, read, written);
        }
        finish(&mut schema);
        if let Some(excluded) = read.get("not") {
            let excluded = join::restrictions_alone(&self.convert(excluded, None));
            // Without a part of it, it would exclude more.
            if join::says_all_of(&schema, &excluded) {
                schema.insert("not".to_string(), Value::Object(excluded));
            }
        }
        schema
    }

    /// A type within itself: structural schemas are finite, so the inner one is left open.
    fn cut(&self, reference: &Value, schema: &mut Schema) {
        let name = reference.as_str().and_then(|reference| reference.rsplit('/').next()).unwrap_or_default();
        if let Some(Value::Object(definition)) = self.definitions.get(name) {
            let known = keywords::kept(definition);
            for keyword in ["type", "description"] {
                if let Some(value) = known.get(keyword) {
                    schema.entry(keyword).or_insert_with(|| value.clone());
                }
            }
        }
        schema.insert("x-kubernetes-preserve-unknown-fields".to_string(), Value::Bool(true));
    }

    /// What an object has in it: fields by name, or entries of a map.
    fn add_fields(&self, schema: &mut Schema, read: &Schema, written: Option<&Schema>) {
        let mut fields = Schema::new();
        for (name, field) in object(read, "properties") {
            let other = written.and_then(|written| object(written, "properties").find(|(other, _)| *other == name));
            let mut converted = self.convert(field, other.map(|(_, other)| other));
            if written.is_some_and(|written| !requires(written, name)) && field.get("nullable").is_none() {
                converted.remove("nullable");
            }
            if field.get(IMMUTABLE).is_some() && !requires(read, name) {
                rule::add(schema, markers::stays(name));
            }
            fields.insert(name.clone(), Value::Object(converted));
        }
        // Keys that match a pattern are entries of a map whose keys are numbers.
        let patterns = object(read, "patternProperties").map(|(_, entry)| entry);
        let rest =
            ["additionalProperties", "unevaluatedProperties"].into_iter().filter_map(|keyword| read.get(keyword));
        let entries = patterns.chain(rest).filter(|entry| **entry != Value::Bool(false));
        let entries = entries.map(|entry| self.convert(entry, None)).reduce(|one, other| join::either(&one, &other));
        if !fields.is_empty() {
            schema.insert("properties".to_string(), Value::Object(fields));
        }
        match entries {
            // A definition has one or the other.
            Some(_) if schema.contains_key("properties") => {
                schema.insert("x-kubernetes-preserve-unknown-fields".to_string(), Value::Bool(true));
            }
            Some(entries) if is(schema, "x-kubernetes-preserve-unknown-fields") && entries == anything() => {}
            Some(entries) => {
                schema.insert("additionalProperties".to_string(), Value::Object(entries));
            }
            None => {}
        }
    }

    /// What a list has in it. A tuple is a list of fixed length whose elements are any of the tuple's.
    fn add_elements(&self, schema: &mut Schema, read: &Schema, written: Option<&Schema>) {
        let written = |keyword: &str| written.and_then(|written| written.get(keyword));
        let tuple = read.get("prefixItems").and_then(Value::as_array).into_iter().flatten();
        let list = read.get("items").filter(|items| **items != Value::Bool(false));
        let elements = tuple
            .map(|element| self.convert(element, None))
            .chain(list.map(|element| self.convert(element, written("items"))))
            .reduce(|one, other| join::either(&one, &other));
        if let Some(elements) = elements {
            schema.insert("items".to_string(), Value::Object(elements));
        }
        // API servers refuse `uniqueItems`, but not sets of scalars.
        if is(read, "uniqueItems") && !schema.contains_key("x-kubernetes-list-type") && has_scalars(schema) {
            schema.insert("x-kubernetes-list-type".to_string(), "set".into());
        }
    }

    /// What `oneOf`, `anyOf` and `allOf` say: the variants of an enum, an optional value, flattened enums.
    fn add_forms(&self, schema: &mut Schema, read: &Schema, written: Option<&Schema>) {
        for keyword in ["allOf", "oneOf", "anyOf"] {
            let Some(forms) = read.get(keyword).and_then(Value::as_array) else { continue };
            let others = written.and_then(|written| written.get(keyword)).and_then(Value::as_array);
            let others = others.filter(|others| others.len() == forms.len());
            // `null` is said with `nullable`.
            let null = forms.iter().any(is_null);
            let forms: Vec<(&Value, Option<&Value>)> = forms
                .iter()
                .enumerate()
                .filter(|(_, form)| !is_null(form))
                .map(|(index, form)| (form, others.and_then(|others| others.get(index))))
                .collect();
            if null && keyword != "allOf" {
                schema.entry("nullable").or_insert(Value::Bool(true));
            }
            // A form that restricts nothing makes the others mere examples.
            let open = keyword != "allOf" && forms.iter().any(|(form, _)| is_empty(form));
            let forms: Vec<_> = forms.into_iter().filter(|(form, _)| !is_empty(form)).collect();
            match forms.as_slice() {
                [] => {}
                [(form, other)] if !open => join::both(schema, &self.convert(form, *other)),
                forms => {
                    let forms: Vec<Schema> = forms
                        .iter()
                        .map(|(form, other)| without_words_of_variant(self.convert(form, *other), form))
                        .collect();
                    add_joined(schema, keyword, &forms, open);
                }
            }
        }
    }
}

/// Adds several forms: what they are made of to the schema, and what tells them apart to its `oneOf`, `anyOf` or `allOf`.
fn add_joined(schema: &mut Schema, keyword: &str, forms: &[Schema], open: bool) {
    let joined = if keyword == "allOf" {
        let mut all = Schema::new();
        for form in forms {
            join::both(&mut all, form);
        }
        all
    } else {
        // An open form is of the same type, and restricts nothing.
        let bare = forms.first().filter(|_| open).and_then(|form| form.get("type"));
        let bare = bare.map(|kind| Schema::from_iter([("type".to_string(), kind.clone())]));
        let Some(joined) = forms.iter().cloned().chain(bare).reduce(|one, other| join::either(&one, &other)) else {
            return;
        };
        joined
    };
    let choices: Vec<Schema> = forms.iter().map(|form| join::restrictions(form, &joined)).collect();
    join::both(schema, &joined);
    // An open form, or forms of which one is not restricted, choose nothing; and all values of an enum are in one list.
    let values = |choice: &Schema| choice.len() == 1 && choice.contains_key("enum");
    let restricts = match keyword {
        "allOf" => choices.iter().any(|choice| !choice.is_empty()),
        _ => !open && choices.iter().all(|choice| !choice.is_empty()) && !choices.iter().all(values),
    };
    if restricts && keywords::type_of(schema).is_some() {
        // Of forms whose fields have unlike types, what is left may fit one value twice.
        let unlike = keyword == "oneOf" && forms.iter().any(|form| !join::has_types_of(&joined, form));
        let keyword = if unlike && !schema.contains_key("anyOf") { "anyOf" } else { keyword };
        let choices = choices.into_iter().filter(|choice| !choice.is_empty()).map(Value::Object).collect();
        schema.insert(keyword.to_string(), Value::Array(choices));
    }
}

/// The comment on a variant does not describe the enum. It describes the value that the variant holds under its name.
fn without_words_of_variant(mut converted: Schema, form: &Value) -> Schema {
    converted.remove("title");
    let Some(description) = converted.remove("description") else { return converted };
    let single = object_of(form, "properties").is_some_and(|fields| fields.len() == 1);
    if !single || form.get("additionalProperties") != Some(&Value::Bool(false)) {
        return converted;
    }
    let fields = converted.get_mut("properties").and_then(Value::as_object_mut);
    for (_, field) in fields.into_iter().flatten() {
        if let Value::Object(field) = field {
            field.insert("description".to_string(), description.clone());
        }
    }
    converted
}

/// Gives the schema the type that its keywords imply, and what definitions need for that type.
fn finish(schema: &mut Schema) {
    if is(schema, "x-kubernetes-int-or-string") {
        schema.remove("type");
        schema.insert("anyOf".to_string(), json!([{ "type": "integer" }, { "type": "string" }]));
        return;
    }
    if keywords::type_of(schema).is_none() {
        match implied_type(schema) {
            Some(implied) => {
                schema.insert("type".to_string(), implied.into());
            }
            None => {
                schema.insert("x-kubernetes-preserve-unknown-fields".to_string(), Value::Bool(true));
            }
        }
    }
    if keywords::type_of(schema) == Some(ARRAY) {
        schema.entry("items").or_insert_with(|| Value::Object(anything()));
    }
    let inside = ["properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"];
    if is(schema, "x-kubernetes-embedded-resource") && !inside.iter().any(|keyword| schema.contains_key(*keyword)) {
        schema.insert("x-kubernetes-preserve-unknown-fields".to_string(), Value::Bool(true));
    }
}

/// The type of a schema that names none.
fn implied_type(schema: &Schema) -> Option<&'static str> {
    let of_objects = ["properties", "additionalProperties", "required", "x-kubernetes-embedded-resource"];
    if of_objects.iter().any(|keyword| schema.contains_key(*keyword)) {
        return Some(OBJECT);
    }
    if schema.contains_key("items") {
        return Some(ARRAY);
    }
    let mut values = schema.get("enum").and_then(Value::as_array)?.iter().map(keywords::type_of_value);
    let first = values.next()??;
    values.all(|other| other == Some(first)).then_some(first)
}

/// Whether the elements of the list are scalars.
fn has_scalars(schema: &Schema) -> bool {
    let elements = schema.get("items").and_then(Value::as_object);
    elements.and_then(keywords::type_of).is_some_and(|kind| kind != OBJECT && kind != ARRAY)
}

/// The schema of any value at all.
fn anything() -> Schema {
    Schema::from_iter([("x-kubernetes-preserve-unknown-fields".to_string(), Value::Bool(true))])
}

/// The schema of no value.
fn nothing() -> Schema {
    let mut schema = anything();
    schema.insert("not".to_string(), json!({}));
    schema
}

fn is(schema: &Schema, keyword: &str) -> bool {
    schema.get(keyword) == Some(&Value::Bool(true))
}

/// Whether only `null` fits.
fn is_null(form: &Value) -> bool {
    form.get("type").and_then(Value::as_str) == Some("null") || form.get("const") == Some(&Value::Null)
}

/// Whether every value fits.
fn is_empty(form: &Value) -> bool {
    *form == Value::Bool(true) || form.as_object().is_some_and(Map::is_empty)
}

fn requires(schema: &Schema, field: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| required.iter().any(|name| name == field))
}

fn object<'a>(schema: &'a Schema, keyword: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema.get(keyword).and_then(Value::as_object).into_iter().flatten()
}

fn object_of<'a>(schema: &'a Value, keyword: &str) -> Option<&'a Schema> {
    schema.get(keyword).and_then(Value::as_object)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
