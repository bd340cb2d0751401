//! Keywords of schemas as attributes.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::{LINE, literal};
use crate::types::model::{Keywords, Type, Usage};

/// A value that takes more than this is written below the types, in a function.
const LONGEST: usize = 160;

/// One `#[schemars(...)]`: a head such as `extend`, and what is in it.
pub(super) struct Attribute {
    head: &'static str,
    parts: Vec<String>,
}

/// Values that are too long for an attribute, each in a function.
#[derive(Default)]
pub(super) struct Literals {
    names: HashMap<Value, String>,
    numbers: HashMap<String, u32>,
    /// The functions, in order.
    pub(super) functions: Vec<(String, Value)>,
    /// Whether keywords are added to schemas inside others.
    pub(super) inside: bool,
}

impl Literals {
    /// The attributes of a field.
    pub(super) fn usage(&mut self, usage: &Usage, special: &[String]) -> Vec<Attribute> {
        let mut keywords = usage.keywords.clone();
        let mut attributes: Vec<Attribute> =
            special.iter().map(|word| Attribute { head: "", parts: vec![word.clone()] }).collect();
        attributes.extend(limits(&usage.kind, &mut keywords));
        attributes.extend(self.extend(&keywords));
        for (pointer, keywords) in &usage.inner {
            self.inside = true;
            let value = self.value("inside", &Value::Object(keywords.clone()));
            let value = if value.ends_with("()") { value } else { format!("json!({value})") };
            let part = format!("transform = inside({}, {value})", literal::string(pointer));
            attributes.push(Attribute { head: "", parts: vec![part] });
        }
        attributes
    }

    /// The attribute that adds keywords to a schema.
    pub(super) fn extend(&mut self, keywords: &Keywords) -> Vec<Attribute> {
        if keywords.is_empty() {
            return Vec::new();
        }
        let parts =
            keywords.iter().map(|(key, value)| format!("{} = {}", literal::string(key), self.value(key, value)));
        vec![Attribute { head: "extend", parts: parts.collect() }]
    }

    /// A value, or the call of the function that has it.
    fn value(&mut self, keyword: &str, value: &Value) -> String {
        let text = literal::json(value);
        if text.len() <= LONGEST && !literal::is_text(value) {
            return text;
        }
        if let Some(name) = self.names.get(value) {
            return format!("{name}()");
        }
        let base: String =
            keyword.chars().map(|c| if c.is_ascii_uppercase() { format!("_{c}") } else { c.to_string() }).collect();
        let base = base.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let base = base.strip_prefix("x_kubernetes_").unwrap_or(&base).to_owned();
        let number = self.numbers.entry(base.clone()).or_default();
        *number += 1;
        let name = format!("{base}_{number}");
        self.names.insert(value.clone(), name.clone());
        self.functions.push((name.clone(), value.clone()));
        format!("{name}()")
    }
}

/// Attributes that schemars has words for, in the place of their keywords.
fn limits(kind: &Type, keywords: &mut Keywords) -> Vec<Attribute> {
    let mut attributes = Vec::new();
    let (head, least, most) = match kind {
        Type::Int32 | Type::Int64 => ("range", "minimum", "maximum"),
        Type::String => ("length", "minLength", "maxLength"),
        Type::Vec(_) => ("length", "minItems", "maxItems"),
        _ => return attributes,
    };
    let fits = |value: &Value| match kind {
        Type::Int32 => value.as_i64().is_some_and(|value| i32::try_from(value).is_ok()),
        Type::Int64 => value.is_i64() && value.as_i64().is_some_and(|value| value.unsigned_abs() < 1 << 31),
        _ => value.as_u64().is_some_and(|value| u32::try_from(value).is_ok()),
    };
    let mut parts = Vec::new();
    for (name, keyword) in [("min", least), ("max", most)] {
        if keywords.get(keyword).is_some_and(fits)
            && let Some(value) = keywords.remove(keyword)
        {
            parts.push(format!("{name} = {value}"));
        }
    }
    if !parts.is_empty() {
        attributes.push(Attribute { head, parts });
    }
    if *kind == Type::String
        && let Some(Value::String(pattern)) = keywords.get("pattern")
        && literal::string(pattern).len() <= LONGEST
    {
        attributes.push(Attribute { head: "regex", parts: vec![format!("pattern = {}", literal::string(pattern))] });
        keywords.remove("pattern");
    }
    attributes
}

/// The attributes on lines of their own.
pub(super) fn lines(attributes: &[Attribute], indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for attribute in attributes {
        let line = format!("{indent}{}", text(attribute));
        if line.len() <= LINE || attribute.parts.len() == 1 {
            lines.push(line);
            continue;
        }
        lines.push(format!("{indent}#[schemars({}(", attribute.head));
        for (number, part) in attribute.parts.iter().enumerate() {
            let comma = if number + 1 < attribute.parts.len() { "," } else { "" };
            lines.push(format!("{indent}    {part}{comma}"));
        }
        lines.push(format!("{indent}))]"));
    }
    lines
}

/// The attributes in front of what they are about.
pub(super) fn inline(attributes: &[Attribute]) -> String {
    let mut line = String::new();
    for attribute in attributes {
        let _ = write!(line, "{} ", text(attribute));
    }
    line
}

fn text(attribute: &Attribute) -> String {
    let parts = attribute.parts.join(", ");
    match attribute.head {
        "" => format!("#[schemars({parts})]"),
        head => format!("#[schemars({head}({parts}))]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_number_is_a_limit_too() {
        let mut keywords = Keywords::new();
        keywords.insert("minimum".into(), i64::MIN.into());
        keywords.insert("maximum".into(), 7.into());
        let attributes = limits(&Type::Int64, &mut keywords);
        assert_eq!(attributes.len(), 1);
        assert_eq!(attributes[0].parts, ["max = 7"]);
        assert_eq!(keywords.get("minimum"), Some(&Value::from(i64::MIN)));
    }
}
