//! What changed between two values, for messages about objects that may not change.

use std::fmt::Write as _;

use serde_json::Value;

/// One line for each value that was removed (`-`) or added (`+`), with its path.
pub fn lines(old: &Value, new: &Value) -> String {
    let mut out = String::new();
    walk(&mut String::new(), Some(old), Some(new), &mut out);
    out
}

fn walk(path: &mut String, old: Option<&Value>, new: Option<&Value>, out: &mut String) {
    match (old, new) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                below(path, &format!(".{key}"), a.get(key), b.get(key), out);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for i in 0..a.len().max(b.len()) {
                below(path, &format!("[{i}]"), a.get(i), b.get(i), out);
            }
        }
        _ if old == new => {}
        _ => {
            let field = path.trim_start_matches('.');
            for (sign, value) in [('-', old), ('+', new)] {
                if let Some(value) = value {
                    let _ = writeln!(out, "{sign} {field}: {value}");
                }
            }
        }
    }
}

fn below(path: &mut String, step: &str, old: Option<&Value>, new: Option<&Value>, out: &mut String) {
    let length = path.len();
    path.push_str(step);
    walk(path, old, new, out);
    path.truncate(length);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_change_is_a_line() {
        let old = json!({"a": [{"b": 1, "c": 2}], "d": "x"});
        let new = json!({"a": [{"b": 1, "c": 3}], "e": "y"});
        assert_eq!(lines(&old, &new), "- a[0].c: 2\n+ a[0].c: 3\n- d: \"x\"\n+ e: \"y\"\n");
    }
}
