//! Paths from a schema to one of its fields: `.spec.color`, `.spec['a.b']`.
//!
//! `selectableFields` and the `fieldPath` of a CEL rule name fields this way. A path is resolved
//! against the schema as written in the CRD.

use serde_json::{Map, Value};

/// Where a path leads.
#[derive(Debug)]
pub struct Found<'a> {
    /// The names on the way.
    pub steps: Vec<String>,
    /// The schema of the field.
    pub schema: &'a Map<String, Value>,
}

/// Follows `path` from `schema`. `brackets` says whether `['name']` is allowed.
pub fn resolve<'a>(path: &str, schema: &'a Map<String, Value>, brackets: bool) -> Result<Found<'a>, String> {
    let mut at = schema;
    let steps = walk(path, brackets, |name| {
        at = below(at, name).ok_or("does not refer to a valid field")?;
        Ok(())
    })?;
    Ok(Found { steps, schema: at })
}

/// The names a path consists of, wherever it leads.
pub(crate) fn steps(path: &str) -> Result<Vec<String>, String> {
    walk(path, true, |_| Ok(()))
}

fn walk(
    path: &str,
    brackets: bool,
    mut step: impl FnMut(&str) -> Result<(), &'static str>,
) -> Result<Vec<String>, String> {
    let mut tokens = tokens(path).into_iter();
    let mut steps = Vec::new();
    let end = || "unexpected end of JSON path".to_owned();
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or_else(end)?.to_owned(),
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or_else(end)?;
                let name = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let name = name.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                let name = unescape(name)?;
                match tokens.next().ok_or_else(end)? {
                    "]" => name,
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        step(&name)?;
        steps.push(name);
    }
    Ok(steps)
}

fn below<'a>(schema: &'a Map<String, Value>, name: &str) -> Option<&'a Map<String, Value>> {
    let properties = schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty());
    match properties {
        Some(properties) => properties.get(name)?.as_object(),
        None => schema.get("additionalProperties")?.as_object(),
    }
}

/// Splits at `.`, `[` and `]`, which are tokens themselves; a quoted string is one token.
fn tokens(path: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let length = if rest.starts_with('\'') {
            closing_quote(rest).map_or(rest.len(), |at| at + 1)
        } else if rest.starts_with(['.', '[', ']']) {
            1
        } else {
            rest.find(['.', '[', ']']).unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after;
    }
    tokens
}

fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (1..bytes.len()).find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\')
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            None | Some('\\') => '\\',
            Some('\'') => '\'',
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Result<&str, &str>) {
        let schema = json!({"properties": {"spec": {"properties": {"a.b": {"type": "string"}, "it's": {"type": "boolean"},
            "map": {"additionalProperties": {"type": "integer"}}}}}});
        let schema = schema.as_object().expect("an object");
        let found = resolve(path, schema, true);
        let ty = found.map(|found| found.schema["type"].as_str().unwrap_or_default().to_owned());
        assert_eq!(ty.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn paths_follow_fields_and_map_keys() {
        check(".spec['a.b']", Ok("string"));
        check(r".spec['it\'s']", Ok("boolean"));
        check(".spec.map.any", Ok("integer"));
        check(r".spec['a\.b']", Err(r"invalid string literal: invalid escape char \."));
        check(r".spec.map['a\tb\\c']", Ok("integer"));
        check(".spec.missing", Err("does not refer to a valid field"));
        check("spec", Err("expected [ or . but got: spec"));
        check(".spec[x]", Err("expected single quoted string but got x"));
        check(".spec.", Err("unexpected end of JSON path"));
    }
}
