//! Makes types of a schema.

mod alternatives;
mod names;
mod root;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::definition::{Definition, DefinitionVersion};
use super::model::{Field, Item, ItemId, Keywords, Model, Named, Type, Usage};
use super::normal;

/// The pattern that controller-gen gives to quantities.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// How deeply types nest, counted as the compiler does when it looks whether a type is `Send`: it gives up at 128. What is
/// deeper is a `Value` with the schema that the definition gives it.
const DEEPEST: usize = 100;
/// How many levels `serde_json` reads, with some to spare.
const READABLE: usize = 120;
/// What a struct in an `Option` takes of it, and what a list or a map takes.
const STRUCT: usize = 2;
const CONTAINER: usize = 5;

/// The types of a version.
///
/// `None` if the schema nests so deeply that generated code could not read the part of it that has no types.
pub(super) fn build(
    definition: &Definition,
    version: &DefinitionVersion,
    schema: &Map<String, Value>,
) -> Option<Model> {
    let mut builder = Builder::default();
    let root = root::build(&mut builder, definition, version, schema);
    if builder.is_too_deep {
        return None;
    }
    let mut model = Model { items: builder.items, root };
    names::assign(&mut model, &definition.kind);
    Some(model)
}

/// How many levels a value has.
fn levels(value: &Value) -> usize {
    let inner = match value {
        Value::Array(list) => list.iter().map(levels).max(),
        Value::Object(map) => map.values().map(levels).max(),
        _ => return 0,
    };
    1 + inner.unwrap_or(0)
}

#[derive(Default)]
struct Builder {
    items: Vec<Named>,
    known: HashMap<Item, ItemId>,
    /// Whether `kube` leaves the schema of an item alone.
    marked: Vec<bool>,
    /// How deep the place is that is looked at.
    depth: usize,
    /// Whether something was found that is deeper than a parser of JSON reads.
    is_too_deep: bool,
}

impl Builder {
    /// The item, which is made once.
    fn intern(&mut self, item: Item, description: &str) -> Type {
        if let Some(id) = self.known.get(&item) {
            return Type::Item(*id);
        }
        let id = self.push(item.clone(), description);
        self.known.insert(item, id);
        Type::Item(id)
    }

    /// An item that nothing else becomes equal to.
    fn push(&mut self, item: Item, description: &str) -> ItemId {
        let fields = item.fields().iter().map(|field| &field.usage);
        let marked = alternatives::is_marked(item.keywords()) || fields.into_iter().any(|usage| self.is_marked(usage));
        self.marked.push(marked);
        self.items.push(Named { item, description: description.to_owned(), name: String::new() });
        self.items.len() - 1
    }

    fn is_marked(&self, usage: &Usage) -> bool {
        alternatives::is_marked(&usage.keywords)
            || usage.inner.iter().any(|(_, keywords)| alternatives::is_marked(keywords))
            || usage.kind.item().is_some_and(|item| self.marked[item])
    }

    /// What a schema becomes where it is used.
    fn usage(&mut self, schema: &Map<String, Value>) -> Usage {
        let mut keywords = effective(schema);
        if keywords.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
            return int_or_string(keywords);
        }
        let nests = ["properties", "items", "additionalProperties"].iter().any(|key| keywords.contains_key(*key));
        if self.depth >= DEEPEST && nests {
            let keywords = normal::without_prose(schema);
            self.is_too_deep |= keywords.values().any(|value| levels(value) > READABLE);
            return scalar(Type::Value, keywords);
        }
        let objectlike = keywords.contains_key("properties") && !keywords.contains_key("type");
        let kind = if objectlike { "object" } else { keywords.get("type").and_then(Value::as_str).unwrap_or_default() };
        match kind.to_owned().as_str() {
            "string" => self.string(keywords, schema),
            "integer" => {
                let wide = keywords.get("format").is_none_or(|format| format != "int32");
                plain(if wide { Type::Int64 } else { Type::Int32 }, if wide { "int64" } else { "int32" }, keywords)
            }
            "number" => {
                let single = keywords.get("format").is_some_and(|format| format == "float");
                plain(
                    if single { Type::Float } else { Type::Double },
                    if single { "float" } else { "double" },
                    keywords,
                )
            }
            "boolean" => {
                keywords.remove("type");
                scalar(Type::Boolean, keywords)
            }
            "array" => self.array(keywords),
            "object" => self.object(keywords, schema),
            _ => scalar(Type::Value, keywords),
        }
    }

    fn string(&mut self, mut keywords: Keywords, schema: &Map<String, Value>) -> Usage {
        keywords.remove("type");
        let values: Option<Vec<String>> = keywords.get("enum").and_then(Value::as_array).and_then(|values| {
            let values: Option<Vec<String>> = values.iter().map(|value| value.as_str().map(str::to_owned)).collect();
            values.filter(|values| !values.is_empty())
        });
        let Some(mut values) = values else { return scalar(Type::String, keywords) };
        let mut seen = std::collections::HashSet::new();
        values.retain(|value| seen.insert(value.clone()));
        keywords.remove("enum");
        let local = local(&mut keywords);
        let item = Item::Strings { values, keywords: alternatives::kept(keywords) };
        Usage { kind: self.intern(item, description(schema)), keywords: local, inner: Vec::new() }
    }

    fn array(&mut self, mut keywords: Keywords) -> Usage {
        keywords.remove("type");
        let items = keywords.remove("items");
        let Some(Value::Object(items)) = items else {
            keywords.insert("items".into(), Value::Null);
            return scalar(Type::Vec(Box::new(Type::Value)), keywords);
        };
        self.container(keywords, "items", &items, Type::Vec)
    }

    /// An array or a map, whose elements may have keywords that their type does not imply.
    fn container(
        &mut self,
        mut keywords: Keywords,
        keyword: &str,
        elements: &Map<String, Value>,
        make: fn(Box<Type>) -> Type,
    ) -> Usage {
        self.depth += CONTAINER;
        let element = self.usage(elements);
        self.depth -= CONTAINER;
        let nullable = element.keywords.get("nullable") == Some(&Value::Bool(true));
        let kind = if nullable { Type::Option(Box::new(element.kind)) } else { element.kind };
        let mut inner = Vec::new();
        if kind.item().is_none() {
            if !element.keywords.is_empty() || !element.inner.is_empty() {
                // No type of ours is in there: the schema is written as it is.
                keywords.insert(keyword.to_owned(), Value::Object(normal::without_prose(elements)));
            }
        } else {
            if !element.keywords.is_empty() {
                inner.push((format!("/{keyword}"), element.keywords));
            }
            let deeper =
                element.inner.into_iter().map(|(pointer, keywords)| (format!("/{keyword}{pointer}"), keywords));
            inner.extend(deeper);
        }
        Usage { kind: make(Box::new(kind)), keywords: alternatives::kept(keywords), inner }
    }

    fn object(&mut self, mut keywords: Keywords, schema: &Map<String, Value>) -> Usage {
        if is_condition(&keywords) {
            return Usage {
                kind: Type::Condition,
                keywords: alternatives::kept(normal::without_prose(schema)),
                inner: Vec::new(),
            };
        }
        if keywords.get("type").is_none() {
            keywords.insert("type".into(), Value::Null);
        } else {
            keywords.remove("type");
        }
        let has_properties = keywords.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
        if !has_properties {
            keywords.remove("properties");
            match keywords.get("additionalProperties") {
                Some(Value::Object(_)) => {
                    let Some(Value::Object(values)) = keywords.remove("additionalProperties") else {
                        return scalar(Type::Value, keywords);
                    };
                    return self.container(keywords, "additionalProperties", &values, Type::Map);
                }
                Some(Value::Bool(true)) => {
                    keywords.remove("additionalProperties");
                    return scalar(Type::Map(Box::new(Type::Value)), keywords);
                }
                _ => {}
            }
            if keywords.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
                keywords.insert("type".into(), "object".into());
                return scalar(Type::Value, keywords);
            }
        }
        let local = local(&mut keywords);
        let item = self.structure(keywords);
        Usage { kind: self.intern(item, description(schema)), keywords: local, inner: Vec::new() }
    }

    /// The struct or the enum of an object with properties.
    fn structure(&mut self, mut keywords: Keywords) -> Item {
        let properties = match keywords.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        let required: Vec<String> = match keywords.get("required").and_then(Value::as_array) {
            Some(names) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            None => Vec::new(),
        };
        let one_of = alternatives::one_of(&properties, &keywords);
        let limited = alternatives::is_limited_to_one(&properties, &keywords);
        let all_known = required.iter().all(|name| properties.contains_key(name));
        self.depth += STRUCT;
        let fields = properties.iter().map(|(name, schema)| {
            let empty = Map::new();
            let schema = schema.as_object().unwrap_or(&empty);
            let usage = self.usage(schema);
            let description = description(schema).to_owned();
            Field { name: name.clone(), required: required.contains(name), description, usage }
        });
        let mut fields: Vec<Field> = fields.collect();
        self.depth -= STRUCT;
        // An enum needs what `kube` does to alternatives.
        if limited || one_of && !fields.iter().any(|field| self.is_marked(&field.usage)) {
            keywords.remove("oneOf");
            for field in &mut fields {
                field.required = true;
            }
            return Item::OneOf { variants: fields, keywords: alternatives::kept(keywords) };
        }
        if all_known {
            // The fields that are no options say it.
            keywords.remove("required");
        }
        let open = keywords.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        if open {
            // What `flatten` adds.
            keywords.insert("additionalProperties".into(), Value::Null);
        }
        let keywords = alternatives::kept(keywords);
        Item::Struct { fields, open, keywords }
    }
}

/// A type that is not one of ours, with all keywords where it is used.
fn scalar(kind: Type, mut keywords: Keywords) -> Usage {
    if let Some(Value::Array(values)) = keywords.get_mut("enum") {
        // A null at the end is what `Option` adds, and is taken out again.
        values.sort_by_key(|value| !value.is_null());
    }
    Usage { kind, keywords: alternatives::kept(keywords), inner: Vec::new() }
}

/// A number, whose Rust type implies a format.
fn plain(kind: Type, format: &str, mut keywords: Keywords) -> Usage {
    keywords.remove("type");
    match keywords.get("format") {
        Some(given) if given == format => {
            keywords.remove("format");
        }
        Some(_) => {}
        None => {
            keywords.insert("format".into(), Value::Null);
        }
    }
    scalar(kind, keywords)
}

fn int_or_string(mut keywords: Keywords) -> Usage {
    keywords.remove("x-kubernetes-int-or-string");
    // The API server adds it in any case.
    if keywords.get("anyOf") == Some(&json!([{"type": "integer"}, {"type": "string"}])) {
        keywords.remove("anyOf");
    }
    let quantity = keywords.get("pattern").is_some_and(|pattern| pattern == QUANTITY);
    scalar(if quantity { Type::Quantity } else { Type::IntOrString }, keywords)
}

/// Takes out what belongs to the place where a type is used, not to the type.
fn local(keywords: &mut Keywords) -> Keywords {
    let names = ["default", "nullable"];
    names.into_iter().filter_map(|name| keywords.remove(name).map(|value| (name.to_owned(), value))).collect()
}

/// The keywords with an effect. Those of the schemas inside are left as they are.
fn effective(schema: &Map<String, Value>) -> Keywords {
    let known = schema.iter().filter(|(key, value)| normal::has_effect(key, value));
    known.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn description(schema: &Map<String, Value>) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// Whether an object is what `k8s_openapi` calls `Condition`.
fn is_condition(keywords: &Keywords) -> bool {
    const FIELDS: [(&str, &str); 6] = [
        ("lastTransitionTime", "string"),
        ("message", "string"),
        ("observedGeneration", "integer"),
        ("reason", "string"),
        ("status", "string"),
        ("type", "string"),
    ];
    let Some(properties) = keywords.get("properties").and_then(Value::as_object) else { return false };
    let required = keywords.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|given| given == name));
    properties.len() == FIELDS.len()
        && properties.get("lastTransitionTime").is_some_and(|schema| schema["format"] == "date-time")
        && FIELDS.iter().all(|(name, kind)| properties.get(*name).is_some_and(|schema| schema["type"] == *kind))
        && ["lastTransitionTime", "message", "reason", "status", "type"].into_iter().all(is_required)
        && !keywords.contains_key("x-kubernetes-preserve-unknown-fields")
        && !keywords.contains_key("default")
}
