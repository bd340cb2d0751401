//! Replacements: a value of one object is put into fields of others.

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::fields::split;
use super::resource::{Id, Kind, Resource};
use super::select::Selector;

const DEFAULT_PATH: &str = "metadata.name";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Replacement {
    source: Option<Source>,
    source_value: Option<String>,
    targets: Vec<Target>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Source {
    group: String,
    version: String,
    kind: String,
    name: String,
    namespace: String,
    field_path: String,
    options: Options,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Target {
    select: Selector,
    #[serde(default)]
    reject: Vec<Selector>,
    #[serde(default)]
    field_paths: Vec<String>,
    #[serde(default)]
    options: Options,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Options {
    delimiter: String,
    index: i64,
    create: bool,
}

pub(super) fn apply(resources: &mut [Resource], replacement: &Replacement) -> Result<(), String> {
    let value = match (&replacement.source_value, &replacement.source) {
        (Some(value), None) => Value::String(value.clone()),
        (None, Some(source)) => source.value(resources)?,
        _ => return Err("a replacement has one of `source` and `sourceValue`".to_owned()),
    };
    replacement.targets.iter().try_for_each(|target| target.set(resources, &value))
}

impl Source {
    fn value(&self, resources: &[Resource]) -> Result<Value, String> {
        let kind = Kind::new(&self.group, &self.version, &self.kind);
        let fits = |id: &Id| {
            (self.name.is_empty() || self.name == id.name)
                && (self.namespace.is_empty() || self.namespace == id.effective_namespace())
                && kind.selects(&id.kind)
        };
        let mut found = resources.iter().filter(|resource| resource.ids().iter().any(fits));
        let describe = || format!("{} {}", self.kind, self.name);
        let source = found.next().ok_or_else(|| format!("the source of a replacement, {}, is missing", describe()))?;
        if found.next().is_some() {
            return Err(format!("the source of a replacement, {}, is not one object", describe()));
        }
        let path = if self.field_path.is_empty() { DEFAULT_PATH } else { &self.field_path };
        let mut object = source.object.clone();
        let mut value = None;
        Matcher { create: false, leaf: &Value::Null }.visit(&mut object, &parts(path), &mut |found| {
            value.get_or_insert_with(|| found.clone());
            Ok(())
        })?;
        let value = value.filter(|value| !value.is_null()).ok_or_else(|| format!("{} has no {path}", source.id()))?;
        if self.options.delimiter.is_empty() {
            return Ok(value);
        }
        let text = scalar(&value)?;
        let part = usize::try_from(self.options.index).ok().and_then(|at| text.split(&self.options.delimiter).nth(at));
        let part = part.ok_or_else(|| format!("{path} of {} has no part {}", source.id(), self.options.index))?;
        Ok(Value::String(part.to_owned()))
    }
}

impl Target {
    fn set(&self, resources: &mut [Resource], value: &Value) -> Result<(), String> {
        let select = self.select.compile()?;
        let reject = self.reject.iter().map(Selector::compile).collect::<Result<Vec<_>, _>>()?;
        let paths = if self.field_paths.is_empty() { &[DEFAULT_PATH.to_owned()][..] } else { &self.field_paths };
        for resource in resources {
            let ids = resource.ids();
            let rejected = reject.iter().any(|reject| {
                (reject.names_something() && ids.iter().any(|id| reject.selects_id(id)))
                    || (reject.has_entries() && reject.selects_entries(resource))
            });
            if rejected || !select.selects_entries(resource) || !ids.iter().any(|id| select.selects_id(id)) {
                continue;
            }
            for path in paths {
                let matcher = Matcher { create: self.options.create, leaf: value };
                let mut count = 0;
                matcher.visit(&mut resource.object, &parts(path), &mut |field| {
                    count += 1;
                    self.set_field(field, value)
                })?;
                if count == 0 {
                    return Err(format!("{} has no {path}, which a replacement sets", resource.id()));
                }
            }
        }
        Ok(())
    }

    fn set_field(&self, field: &mut Value, value: &Value) -> Result<(), String> {
        let value = if self.options.delimiter.is_empty() {
            value.clone()
        } else {
            let old = scalar(field)?;
            let mut parts: Vec<String> = old.split(&self.options.delimiter).map(str::to_owned).collect();
            let new = scalar(value)?;
            match usize::try_from(self.options.index) {
                Err(_) => parts.insert(0, new),
                Ok(at) if at >= parts.len() => parts.push(new),
                Ok(at) => parts[at] = new,
            }
            Value::String(parts.join(&self.options.delimiter))
        };
        // A plain value keeps its type.
        *field = match (&*field, &value) {
            (Value::String(_), Value::Number(_) | Value::Bool(_)) => Value::String(scalar(&value)?),
            (Value::Number(_) | Value::Bool(_), Value::String(text)) => {
                serde_json::from_str(text).ok().filter(|value: &Value| !value.is_object()).unwrap_or(value)
            }
            _ => value,
        };
        Ok(())
    }
}

fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Null => Ok(String::new()),
        _ => Err("only plain values have a delimiter".to_owned()),
    }
}

/// The parts of a path: `spec.containers.[name=a.b].image`, and `metadata.annotations.[a.b/c]` for names with dots.
fn parts(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut open: Option<String> = None;
    for part in split(path, '.') {
        let bracketed = match open.take() {
            Some(before) => format!("{before}.{part}"),
            None if part.starts_with('[') && !part.ends_with(']') => {
                open = Some(part);
                continue;
            }
            None => {
                parts.push(part);
                continue;
            }
        };
        if !bracketed.ends_with(']') {
            open = Some(bracketed);
        } else if bracketed.contains('=') {
            parts.push(bracketed);
        } else {
            parts.push(bracketed.trim_matches(['[', ']']).to_owned());
        }
    }
    parts.extend(open);
    parts
}

/// Finds what a path leads to.
struct Matcher<'a> {
    create: bool,
    /// What is created at the end of a path.
    leaf: &'a Value,
}

type Set<'a> = &'a mut dyn FnMut(&mut Value) -> Result<(), String>;

impl Matcher<'_> {
    fn visit(&self, value: &mut Value, path: &[String], set: Set<'_>) -> Result<(), String> {
        let Some((part, rest)) = path.split_first() else { return set(value) };
        if part == "*" {
            let items = value.as_array_mut().ok_or("`*` stands for the items of a list")?;
            return items.iter_mut().try_for_each(|item| self.visit(item, rest, set));
        }
        if let Ok(at) = part.parse::<usize>() {
            let items = value.as_array_mut().ok_or_else(|| format!("{part} is no item: there is no list"))?;
            if at == items.len() && self.create {
                items.push(self.made(rest));
            }
            let count = items.len();
            let item = items.get_mut(at).ok_or_else(|| format!("there is no item {at}, only {count}"))?;
            return self.visit(item, rest, set);
        }
        if let Some((name, expected)) = part.strip_prefix('[').and_then(|part| part.strip_suffix(']')?.split_once('='))
        {
            return self.items(value, name, expected, rest, set);
        }
        match value {
            Value::Object(fields) => {
                if self.create && !fields.contains_key(part) {
                    fields.insert(part.clone(), self.made(rest));
                }
                fields.get_mut(part).map_or(Ok(()), |next| self.visit(next, rest, set))
            }
            Value::String(_) => Err(format!("{part} is inside of a text, which is not supported by windlass")),
            _ => Ok(()),
        }
    }

    fn items(
        &self,
        value: &mut Value,
        name: &str,
        expected: &str,
        rest: &[String],
        set: Set<'_>,
    ) -> Result<(), String> {
        let Value::Array(items) = value else { return Ok(()) };
        let expression = Regex::new(expected).map_err(|error| format!("{expected:?}: {error}"))?;
        let fits = |item: &Value| {
            let value = if name.is_empty() { Some(item) } else { item.get(name) };
            value.and_then(|value| scalar(value).ok()).is_some_and(|text| expression.is_match(&text))
        };
        if self.create && !items.iter().any(fits) {
            let text = Value::String(expected.to_owned());
            items.push(if name.is_empty() { text } else { Map::from_iter([(name.to_owned(), text)]).into() });
        }
        items.iter_mut().filter(|item| fits(item)).try_for_each(|item| self.visit(item, rest, set))
    }

    /// What is created for the rest of a path to go through.
    fn made(&self, rest: &[String]) -> Value {
        match rest.first() {
            None if self.leaf.is_object() => Value::Object(Map::new()),
            None if self.leaf.is_array() => Value::Array(Vec::new()),
            None => Value::Null,
            Some(next) if next.starts_with('[') || next.parse::<usize>().is_ok() => Value::Array(Vec::new()),
            Some(_) => Value::Object(Map::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_what_is_in_brackets() {
        assert_eq!(parts("spec.[name=a.b].image"), ["spec", "[name=a.b]", "image"]);
        assert_eq!(parts("metadata.annotations.[a.b/c]"), ["metadata", "annotations", "a.b/c"]);
        assert_eq!(parts("a\\.b.0"), ["a.b", "0"]);
    }
}
