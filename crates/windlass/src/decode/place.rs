//! Places in a JSON document: which value a position of the text belongs to, and how its path is written.

use serde_json::Value;

use super::scan::skip_string;

/// One step into a document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Member(String),
    Element(usize),
}

/// A way into a document, from the top.
pub(super) type Path = Vec<Step>;

/// The innermost value that a position belongs to: one that begins before it, and ends there or later.
pub(super) fn locate(json: &[u8], position: usize) -> Path {
    let mut path = Path::new();
    let mut at = 0;
    // For every open object or array: whether it is an object whose next text is a name.
    let mut open: Vec<Option<bool>> = Vec::new();
    while let Some(byte) = json.get(at) {
        let end = match byte {
            b'"' => skip_string(json, at).unwrap_or(json.len()),
            b'{' | b'}' | b'[' | b']' | b',' | b':' => at + 1,
            byte if byte.is_ascii_whitespace() => at + 1,
            _ => scalar_end(json, at),
        };
        match byte {
            b'{' => {
                open.push(Some(true));
                path.push(Step::Member(String::new()));
            }
            b'[' => {
                open.push(None);
                path.push(Step::Element(0));
            }
            b'}' | b']' => {
                open.pop();
                path.pop();
            }
            b',' => match (open.last_mut(), path.last_mut()) {
                (Some(Some(name)), _) => *name = true,
                (Some(None), Some(Step::Element(index))) => *index += 1,
                _ => {}
            },
            b'"' => {
                if let (Some(Some(name @ true)), Some(Step::Member(member))) = (open.last_mut(), path.last_mut()) {
                    *name = false;
                    *member = serde_json::from_slice(&json[at..end]).unwrap_or_default();
                }
            }
            _ => {}
        }
        if position <= end {
            // At a brace or comma it is the object or array itself.
            if matches!(byte, b'{' | b'[' | b',') {
                path.pop();
            }
            return path;
        }
        at = end;
    }
    Path::new()
}

fn scalar_end(json: &[u8], start: usize) -> usize {
    let rest = json[start + 1..].iter();
    let length = rest.take_while(|byte| !b"\"{}[],: \n\r\t".contains(byte)).count();
    start + 1 + length
}

/// Where a decoder's error is in a text: the number of bytes it had read.
pub(super) fn position(json: &[u8], error: &serde_json::Error) -> usize {
    let line = error.line().saturating_sub(1);
    let before: usize = json.split_inclusive(|byte| *byte == b'\n').take(line).map(<[u8]>::len).sum();
    before + error.column()
}

/// As it is written in messages: `spec.rules[2].hosts["a.example.com"]`.
pub(super) fn display(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Element(index) => text.push_str(&["[", &index.to_string(), "]"].concat()),
            Step::Member(name) if is_plain(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Member(name) => text.push_str(&["[", &format!("{name:?}"), "]"].concat()),
        }
    }
    text
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || "-_$".contains(letter))
}

pub(super) fn get<'v>(value: &'v Value, path: &[Step]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Member(name) => value.as_object()?.get(name),
        Step::Element(index) => value.as_array()?.get(*index),
    })
}

pub(super) fn get_mut<'v>(value: &'v mut Value, path: &[Step]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Member(name) => value.as_object_mut()?.get_mut(name),
        Step::Element(index) => value.as_array_mut()?.get_mut(*index),
    })
}

/// The paths of all values that differ from a path in the positions of list elements only.
pub(super) fn alike(value: &Value, path: &[Step]) -> Vec<Path> {
    let mut found = vec![(Path::new(), value)];
    for step in path {
        found = found.into_iter().flat_map(|(path, value)| children(&path, value, step)).collect();
    }
    found.into_iter().map(|(path, _)| path).collect()
}

fn children<'v>(path: &[Step], value: &'v Value, step: &Step) -> Vec<(Path, &'v Value)> {
    let with = |step: Step| path.iter().cloned().chain([step]).collect::<Path>();
    match (step, value) {
        (Step::Member(name), Value::Object(fields)) => {
            fields.get(name).map(|value| (with(Step::Member(name.clone())), value)).into_iter().collect()
        }
        (Step::Element(_), Value::Array(elements)) => {
            elements.iter().enumerate().map(|(index, value)| (with(Step::Element(index)), value)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_belongs_to_the_innermost_value() {
        let text = br#"{"a":{"b":[1,null,{"c":""}]},"d\"}":true}"#;
        let path = |token: &str| {
            let at = String::from_utf8_lossy(text).find(token).map(|at| at + token.len());
            display(&locate(text, at.unwrap_or_default()))
        };
        for (token, expected) in [
            ("null", "a.b[1]"),
            ("1", "a.b[0]"),
            ("\"c\":\"\"", "a.b[2].c"),
            ("\"c\":\"\"}", "a.b[2]"),
            ("\"c\":\"\"}]", "a.b"),
            ("\"c\":\"\"}]}", "a"),
            ("true", "[\"d\\\"}\"]"),
            ("true}", ""),
        ] {
            assert_eq!(path(token), expected, "after {token}");
        }
        for broken in ["", "{", "[", "\"", "{\"a\"", "[,", "}", "{]", "\\"] {
            for position in 0..4 {
                locate(broken.as_bytes(), position);
            }
        }
    }

    #[test]
    fn a_line_and_column_are_a_position() {
        let text = b"{\n  \"a\": [1,\n  true]}";
        let error = serde_json::from_slice::<std::collections::BTreeMap<String, Vec<u8>>>(text).err();
        let position = error.map(|error| position(text, &error)).unwrap_or_default();
        assert_eq!(display(&locate(text, position)), "a[1]");
    }

    #[test]
    fn elements_of_one_list_are_alike() {
        let value = serde_json::json!({"a": [{"b": null}, {"c": 1}, {"b": 2}], "b": null});
        let path = [Step::Member("a".into()), Step::Element(2), Step::Member("b".into())];
        let found: Vec<String> = alike(&value, &path).iter().map(|path| display(path)).collect();
        assert_eq!(found, ["a[0].b", "a[2].b"]);
    }
}
