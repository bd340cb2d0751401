//! Selects objects by kind, name, namespace, labels and annotations. Names are regular expressions for the whole text.

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::resource::{Id, Resource};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[allow(clippy::struct_field_names, reason = "the fields have kustomize's names")]
pub(super) struct Selector {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub label_selector: String,
    pub annotation_selector: String,
}

/// A selector whose expressions were understood.
pub(super) struct Compiled {
    group: Option<Regex>,
    version: Option<Regex>,
    kind: Option<Regex>,
    name: Option<Regex>,
    namespace: Option<Regex>,
    labels: Requirements,
    annotations: Requirements,
}

impl Selector {
    pub(super) fn compile(&self) -> Result<Compiled, String> {
        Ok(Compiled {
            group: expression(&self.group)?,
            version: expression(&self.version)?,
            kind: expression(&self.kind)?,
            name: expression(&self.name)?,
            namespace: expression(&self.namespace)?,
            labels: Requirements::parse(&self.label_selector)?,
            annotations: Requirements::parse(&self.annotation_selector)?,
        })
    }
}

fn expression(text: &str) -> Result<Option<Regex>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let whole = format!("^(?:{})$", text.trim_start_matches('^').trim_end_matches('$'));
    Regex::new(&whole).map(Some).map_err(|error| format!("{text:?} is not a regular expression: {error}"))
}

fn fits(expression: Option<&Regex>, text: &str) -> bool {
    expression.is_none_or(|expression| expression.is_match(text))
}

impl Compiled {
    /// Whether an object is selected by its original or its current name.
    pub(super) fn selects(&self, resource: &Resource) -> bool {
        let (original, current) = (resource.original(), resource.id());
        let either = |expression: &Option<Regex>, of: &dyn Fn(&Id) -> String| {
            fits(expression.as_ref(), &of(&original)) || fits(expression.as_ref(), &of(&current))
        };
        either(&self.namespace, &|id| id.effective_namespace().to_owned())
            && either(&self.name, &|id| id.name.clone())
            && self.selects_kind(&current)
            && self.selects_entries(resource)
    }

    /// Whether a name is selected, whatever the object's labels are.
    pub(super) fn selects_id(&self, id: &Id) -> bool {
        self.selects_kind(id) && fits(self.name.as_ref(), &id.name) && fits(self.namespace.as_ref(), &id.namespace)
    }

    pub(super) fn selects_entries(&self, resource: &Resource) -> bool {
        self.labels.fit(resource.entries("labels")) && self.annotations.fit(resource.entries("annotations"))
    }

    /// Whether it says anything about kinds and names.
    pub(super) fn names_something(&self) -> bool {
        [&self.group, &self.version, &self.kind, &self.name, &self.namespace].iter().any(|part| part.is_some())
    }

    /// Whether it says anything about labels and annotations.
    pub(super) fn has_entries(&self) -> bool {
        !self.labels.0.is_empty() || !self.annotations.0.is_empty()
    }

    fn selects_kind(&self, id: &Id) -> bool {
        fits(self.group.as_ref(), &id.kind.group)
            && fits(self.version.as_ref(), &id.kind.version)
            && fits(self.kind.as_ref(), &id.kind.kind)
    }
}

/// A selector of labels as kubectl has it: `a=b,c!=d,e in (f,g),h,!i`.
struct Requirements(Vec<Requirement>);

struct Requirement {
    key: String,
    values: Vec<String>,
    /// Whether the values are those that are allowed, or those that are not.
    positive: bool,
}

impl Requirements {
    fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            // A comma between parentheses separates values.
            let comma = rest.find(',').unwrap_or(rest.len());
            let open = rest.find('(').unwrap_or(rest.len());
            let end = if open < comma {
                rest.find(')').map(|close| close + 1).ok_or_else(|| format!("{text:?} lacks a parenthesis"))?
            } else {
                comma
            };
            requirements.push(Requirement::parse(rest[..end].trim()));
            rest = rest[end..].trim_start().trim_start_matches(',').trim_start();
        }
        Ok(Self(requirements))
    }

    fn fit(&self, entries: Option<&Map<String, Value>>) -> bool {
        self.0.iter().all(|requirement| {
            let value = entries.and_then(|entries| entries.get(&requirement.key)).and_then(Value::as_str);
            match (value, requirement.values.is_empty()) {
                (found, true) => found.is_some() == requirement.positive,
                (Some(value), false) => {
                    requirement.values.iter().any(|allowed| allowed == value) == requirement.positive
                }
                (None, false) => !requirement.positive,
            }
        })
    }
}

impl Requirement {
    fn parse(text: &str) -> Self {
        let one = |key: &str, value: &str, positive| Self {
            key: key.trim().to_owned(),
            values: vec![value.trim().to_owned()],
            positive,
        };
        if let Some((before, values)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            let (key, positive) = match before.trim().strip_suffix(" notin") {
                Some(key) => (key, false),
                None => (before.trim().strip_suffix(" in").unwrap_or(before), true),
            };
            let values = values.split(',').map(|value| value.trim().to_owned()).collect();
            return Self { key: key.trim().to_owned(), values, positive };
        }
        if let Some((key, value)) = text.split_once("!=") {
            return one(key, value, false);
        }
        if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            return one(key, value, true);
        }
        let (key, positive) = text.strip_prefix('!').map_or((text, true), |key| (key, false));
        Self { key: key.trim().to_owned(), values: Vec::new(), positive }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_selected_as_in_kubectl() {
        let labels = json!({"a": "b", "c": "d"});
        let fits = |text: &str| Requirements::parse(text).unwrap().fit(labels.as_object());
        for text in ["", "a=b", "a==b,c", "a in (x, b),c!=x", "!e", "e!=f", "e notin (f)"] {
            assert!(fits(text), "{text}");
        }
        for text in ["a=c", "!a", "e", "a notin (b)", "a in (x),c", "e=f"] {
            assert!(!fits(text), "{text}");
        }
    }
}
