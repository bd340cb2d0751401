//! JSON Patch (RFC 6902) with the quirks of `evanphx/json-patch` v4, which upstream uses.
//!
//! An object's null member reads as absent: `replace` of a missing key sets it, `copy` from a missing
//! key sets null, and `test` of an absent path against null (or against no value) passes. Indices may
//! be negative, counting from the end. The text before the first `/` of a path is ignored.

use serde_json::{Map, Value};

use super::does_not_apply;
use crate::codec::json::{go_type_of, nests_within};
use crate::depth;
use crate::status::Status;

/// More operations than this are refused.
const MAX_OPERATIONS: usize = 10_000;

/// How many bytes the `copy` operations of one patch may add together.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// How many values one patch may move about.
const MAX_VISITED: usize = 4_000_000;

/// A decoded JSON Patch.
#[derive(Debug)]
pub struct JsonPatch<'a> {
    operations: Vec<Option<&'a Map<String, Value>>>,
    /// What strict field validation complains about: unknown fields of operations, worded as upstream
    /// reports them. With `fieldValidation=Warn` these are warnings.
    pub strict_errors: Vec<String>,
}

/// Why an operation cannot be applied. Clients only learn that one could not; webhooks' authors learn why.
struct DoesNotApply(String);

impl DoesNotApply {
    /// Says which operation it was.
    fn within(self, context: std::fmt::Arguments<'_>) -> Self {
        Self(format!("{context}: {}", self.0))
    }
}

type Outcome<T> = Result<T, DoesNotApply>;

/// What the operations of one patch have cost so far.
#[derive(Default)]
struct Spent {
    copied: usize,
    visited: usize,
}

impl Spent {
    /// Refuses to put `value` at `path` if that nests too deep. Operations could otherwise double the depth
    /// of a document, each of them, until walking it overflows the stack.
    fn nest(&mut self, path: &str, value: &Value) -> Outcome<()> {
        let managed = if path.starts_with("/metadata/managedFields") { depth::MANAGED } else { 0 };
        let above = path.split('/').skip(1).count();
        let levels = (depth::limit() + managed).checked_sub(above);
        let fits = levels.is_some_and(|levels| nests_within(value, levels, &mut self.visited));
        if !fits || self.visited > MAX_VISITED {
            return Err(DoesNotApply("exceeded max depth".to_owned()));
        }
        Ok(())
    }
}

impl<'a> JsonPatch<'a> {
    /// Reads a patch. `lenient` is `fieldValidation=Ignore`, where upstream skips the typed decoding
    /// and words the remaining error differently.
    pub fn decode(patch: &'a Value, lenient: bool) -> Result<Self, Status> {
        let list = match patch {
            Value::Null => &[][..],
            Value::Array(list) => list,
            other => {
                let found = go_type_of(other);
                return Err(Status::bad_request(if lenient {
                    format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Patch")
                } else {
                    format!(
                        "error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
                    )
                }));
            }
        };
        let mut strict_errors = Vec::new();
        let mut operations = Vec::with_capacity(list.len());
        for (index, operation) in list.iter().enumerate() {
            operations.push(match operation {
                Value::Null => None,
                Value::Object(fields) => {
                    if !lenient {
                        check_fields(index, fields, &mut strict_errors)?;
                    }
                    Some(fields)
                }
                other => {
                    let found = go_type_of(other);
                    return Err(Status::bad_request(if lenient {
                        format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Operation")
                    } else {
                        format!(
                            "error decoding patch: json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp"
                        )
                    }));
                }
            });
        }
        if operations.len() > MAX_OPERATIONS {
            return Err(Status::too_large(format_args!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            )));
        }
        Ok(Self { operations, strict_errors })
    }

    /// Whether it changes nothing because it has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Runs every operation on `document`, in order.
    pub fn apply(&self, document: &mut Value) -> Result<(), Status> {
        self.apply_or_explain(document).map_err(|_| does_not_apply())
    }

    /// The same; the error says which operation failed and why, in the words of the library upstream uses.
    pub fn apply_or_explain(&self, document: &mut Value) -> Result<(), String> {
        let mut spent = Spent::default();
        for operation in &self.operations {
            run(document, operation.unwrap_or(&Map::new()), &mut spent).map_err(|DoesNotApply(why)| why)?;
        }
        Ok(())
    }
}

fn check_fields(index: usize, fields: &Map<String, Value>, strict_errors: &mut Vec<String>) -> Result<(), Status> {
    for (name, value) in fields {
        match name.as_str() {
            "op" | "path" | "from" => {
                if !matches!(value, Value::String(_) | Value::Null) {
                    return Err(Status::bad_request(format!(
                        "error decoding patch: json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
                        go_type_of(value)
                    )));
                }
            }
            "value" => {}
            other => strict_errors.push(format!("json patch unknown field \"[{index}].{other}\"")),
        }
    }
    Ok(())
}

fn run(document: &mut Value, operation: &Map<String, Value>, spent: &mut Spent) -> Outcome<()> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let path = || text("path").ok_or_else(|| DoesNotApply(format!("operation missing path field: {MISSING}")));
    let from = || text("from").ok_or_else(|| DoesNotApply(format!("operation, missing from field: {MISSING}")));
    let value = operation.get("value");
    match text("op").unwrap_or("unknown") {
        "add" => {
            let path = text("path").ok_or_else(|| missing("add operation failed to decode path"))?;
            let absent = || missing(format_args!("add operation does not apply: doc is missing path: \"{path}\""));
            let (target, key) = find(document, path).ok_or_else(absent)?;
            spent.nest(path, value.unwrap_or(&Value::Null))?;
            add(target, &key, value.cloned().unwrap_or_default())
                .map_err(|why| why.within(format_args!("error in add for path: '{path}'")))
        }
        "remove" => {
            let path = text("path").ok_or_else(|| missing("remove operation failed to decode path"))?;
            let absent = || missing(format_args!("remove operation does not apply: doc is missing path: \"{path}\""));
            let (target, key) = find(document, path).ok_or_else(absent)?;
            let removed = remove(target, &key);
            removed.map(drop).map_err(|why| why.within(format_args!("error in remove for path: '{path}'")))
        }
        "replace" => {
            let path = path().map_err(|why| why.within(format_args!("replace operation failed to decode path")))?;
            spent.nest(path, value.unwrap_or(&Value::Null))?;
            replace(document, path, value)
        }
        "move" => {
            let from = from().map_err(|why| why.within(format_args!("move operation failed to decode from")))?;
            let absent = || missing(format_args!("move operation does not apply: doc is missing from path: {from}"));
            let (target, key) = find(document, from).ok_or_else(absent)?;
            let moved = remove(target, &key);
            let moved = moved.map_err(|why| why.within(format_args!("error in move for path: '{key}'")))?;
            let path = path().map_err(|why| why.within(format_args!("move operation failed to decode path")))?;
            let absent =
                || missing(format_args!("move operation does not apply: doc is missing destination path: {path}"));
            let (target, key) = find(document, path).ok_or_else(absent)?;
            spent.nest(path, &moved)?;
            add(target, &key, moved).map_err(|why| why.within(format_args!("error in move for path: '{path}'")))
        }
        "copy" => {
            let from = from().map_err(|why| why.within(format_args!("copy operation failed to decode from")))?;
            let absent = || missing(format_args!("copy operation does not apply: doc is missing from path: {from}"));
            let (target, key) = find(document, from).ok_or_else(absent)?;
            let copy = get(target, &key);
            let copy = copy.map_err(|why| why.within(format_args!("error in copy for from: '{from}'")))?;
            let copy = copy.cloned().unwrap_or_default();
            let path = text("path").ok_or_else(|| missing("copy operation failed to decode path"))?;
            let absent =
                || missing(format_args!("copy operation does not apply: doc is missing destination path: {path}"));
            let (target, key) = find(document, path).ok_or_else(absent)?;
            spent.nest(path, &copy)?;
            spent.copied += serialized_len(&copy);
            let copied = spent.copied;
            if copied > MAX_COPIED_BYTES {
                return Err(DoesNotApply(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the \
                     limit {MAX_COPIED_BYTES}"
                )));
            }
            add(target, &key, copy).map_err(|why| why.within(format_args!("error while adding value during copy")))
        }
        "test" => {
            let path = path().map_err(|why| why.within(format_args!("test operation failed to decode path")))?;
            test(document, path, value)
        }
        other => Err(DoesNotApply(format!("Unexpected kind: {other}"))),
    }
}

/// What the library says when something is not there.
const MISSING: &str = "missing value";

fn missing(what: impl std::fmt::Display) -> DoesNotApply {
    DoesNotApply(format!("{what}: {MISSING}"))
}

fn replace(document: &mut Value, path: &str, value: Option<&Value>) -> Outcome<()> {
    if path.is_empty() {
        return match value {
            Some(value @ (Value::Object(_) | Value::Array(_))) => {
                *document = value.clone();
                Ok(())
            }
            _ => Err(DoesNotApply("replace operation value must be object or array: %!w(<nil>)".to_owned())),
        };
    }
    let absent = || missing(format_args!("replace operation does not apply: doc is missing path: {path}"));
    let (target, key) = find(document, path).ok_or_else(absent)?;
    let value = value.cloned().unwrap_or_default();
    match target {
        Value::Array(items) => {
            let no_key = |_| missing(format_args!("replace operation does not apply: doc is missing key: {path}"));
            let index = existing_index(&key, items.len()).map_err(no_key)?;
            items[index] = value;
        }
        Value::Object(map) => {
            map.insert(key, value);
        }
        _ => return Err(absent()),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, value: Option<&Value>) -> Outcome<()> {
    let actual = if path.is_empty() {
        Some(&*document)
    } else {
        let absent = || missing(format_args!("test operation does not apply: is missing path: {path}"));
        let (target, key) = find(document, path).ok_or_else(absent)?;
        get(target, &key).map_err(|why| why.within(format_args!("error in test for path: '{path}'")))?
    };
    // Null and absent are the same on both sides.
    if actual.filter(|v| !v.is_null()) == value.filter(|v| !v.is_null()) {
        Ok(())
    } else {
        Err(DoesNotApply(format!("testing value {path} failed: test failed")))
    }
}

/// The container a path ends in, and the last segment; `None` if the document has no such container.
fn find<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let mut segments = path.split('/').skip(1).peekable();
    let mut target = document;
    while let Some(segment) = segments.next() {
        let key = unescape(segment);
        if segments.peek().is_none() {
            return Some((target, key));
        }
        target = match target {
            Value::Object(map) => map.get_mut(&key)?,
            Value::Array(items) => {
                let index = existing_index(&key, items.len()).ok()?;
                &mut items[index]
            }
            _ => return None,
        };
        if !matches!(target, Value::Object(_) | Value::Array(_)) {
            return None;
        }
    }
    None
}

/// One pass, as upstream's replacer: `~01` reads as `~1`.
fn unescape(segment: &str) -> String {
    if !segment.contains('~') {
        return segment.to_owned();
    }
    let mut out = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        let tail = &rest[at..];
        let (plain, length) = match tail.as_bytes().get(1) {
            Some(b'0') => ('~', 2),
            Some(b'1') => ('/', 2),
            _ => ('~', 1),
        };
        out.push(plain);
        rest = &tail[length..];
    }
    out.push_str(rest);
    out
}

fn get<'v>(target: &'v Value, key: &str) -> Outcome<Option<&'v Value>> {
    match target {
        Value::Object(map) => Ok(map.get(key)),
        Value::Array(items) => Ok(Some(&items[existing_index(key, items.len())?])),
        _ => Ok(None),
    }
}

fn add(target: &mut Value, key: &str, value: Value) -> Outcome<()> {
    match target {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        // Negative indices count from the end of the list as it will be.
        Value::Array(items) => {
            if key.parse::<i64>().is_err() {
                let why = format!("value was not a proper array index: '{key}'");
                return existing_index(key, 0).map(drop).map_err(|number| number.within(format_args!("{why}")));
            }
            items.insert(existing_index(key, items.len() + 1)?, value);
        }
        _ => return Err(missing("the document is neither an object nor a list")),
    }
    Ok(())
}

fn remove(target: &mut Value, key: &str) -> Outcome<Value> {
    match target {
        Value::Object(map) => {
            map.remove(key).ok_or_else(|| missing(format_args!("Unable to remove nonexistent key: {key}")))
        }
        Value::Array(items) => Ok(items.remove(existing_index(key, items.len())?)),
        _ => Err(missing(format_args!("Unable to remove nonexistent key: {key}"))),
    }
}

/// An index below `len`, as Go's `strconv.Atoi` reads it; negative ones count from the end.
fn existing_index(key: &str, len: usize) -> Outcome<usize> {
    let index: i64 = key
        .parse()
        .map_err(|_| DoesNotApply(format!("strconv.Atoi: parsing {}: invalid syntax", crate::field::quote(key))))?;
    let from_start = if index < 0 { index + len as i64 } else { index };
    let invalid = || DoesNotApply(format!("Unable to access invalid index: {index}: invalid index referenced"));
    usize::try_from(from_start).ok().filter(|i| *i < len).ok_or_else(invalid)
}

fn serialized_len(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and a JSON value always serialises.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(document: &Value, patch: &Value, expected: Option<Value>) {
        let mut copy = document.clone();
        let outcome = JsonPatch::decode(patch, false).unwrap().apply(&mut copy);
        if let Some(expected) = expected {
            outcome.unwrap();
            assert_eq!(copy, expected, "{patch}");
        } else {
            let status = outcome.unwrap_err();
            assert_eq!(status.code, 422, "{patch}");
            assert_eq!(status.message, "the server rejected our request due to an error in our request");
            assert_eq!(status.to_value()["details"], json!({}));
        }
    }

    #[test]
    fn objects_are_edited() {
        let document = json!({"data": {"k": "v", "x": "1", "null": null}, "metadata": {"annotations": {"e.com/a": "b", "~": "t"}}});
        let data = |data: Value| Some(json!({"data": data, "metadata": document["metadata"]}));
        check(
            &document,
            &json!([{"op": "add", "path": "/data/n", "value": "new"}, {"op": "replace", "path": "/data/k", "value": "v2"},
                    {"op": "remove", "path": "/data/x"}, {"op": "remove", "path": "/data/null"}]),
            data(json!({"k": "v2", "n": "new"})),
        );
        check(
            &document,
            &json!([{"op": "replace", "path": "/data/none", "value": "x"}]),
            data(json!({"k": "v", "x": "1", "null": null, "none": "x"})),
        );
        check(
            &document,
            &json!([{"op": "move", "from": "/data/k", "path": "/data/m"}, {"op": "copy", "from": "/data/x", "path": "/data/c"},
                    {"op": "copy", "from": "/data/absent", "path": "/data/a"}]),
            data(json!({"m": "v", "x": "1", "c": "1", "null": null, "a": null})),
        );
        check(
            &document,
            &json!([{"op": "replace", "path": "/metadata/annotations/e.com~1a", "value": 1},
                    {"op": "remove", "path": "/metadata/annotations/~0"}, {"op": "replace", "path": "/data", "value": 2}]),
            Some(json!({"data": 2, "metadata": {"annotations": {"e.com/a": 1}}})),
        );
        check(&document, &json!([{"op": "replace", "path": "", "value": {"a": 1}}]), Some(json!({"a": 1})));
        // The text before the first slash does not count.
        check(&json!({"a": 1}), &json!([{"op": "remove", "path": "anything/a"}]), Some(json!({})));
        check(&json!({"a": 1}), &json!([{"op": "add", "path": "/b"}]), Some(json!({"a": 1, "b": null})));
    }

    #[test]
    fn lists_take_indices_from_both_ends() {
        let document = json!({"l": ["a", "b"]});
        let list = |list: Value| Some(json!({"l": list}));
        check(&document, &json!([{"op": "add", "path": "/l/-", "value": "c"}]), list(json!(["a", "b", "c"])));
        check(&document, &json!([{"op": "add", "path": "/l/0", "value": "c"}]), list(json!(["c", "a", "b"])));
        check(&document, &json!([{"op": "add", "path": "/l/-1", "value": "c"}]), list(json!(["a", "b", "c"])));
        check(&document, &json!([{"op": "replace", "path": "/l/-1", "value": "c"}]), list(json!(["a", "c"])));
        check(&document, &json!([{"op": "remove", "path": "/l/-2"}]), list(json!(["b"])));
        for path in ["/l/3", "/l/-4", "/l/x", "/l/"] {
            check(&document, &json!([{"op": "add", "path": path, "value": 1}]), None);
        }
        for path in ["/l/2", "/l/-3", "/l/-", "/l/0/x"] {
            check(&document, &json!([{"op": "replace", "path": path, "value": 1}]), None);
        }
    }

    #[test]
    fn absent_and_null_test_equal() {
        let document = json!({"a": null, "b": {"c": 1}});
        for (path, value, passes) in [
            ("/none", json!(null), true),
            ("/a", json!(null), true),
            ("/b", json!({"c": 1}), true),
            ("/b", json!(null), false),
            ("/b/c", json!(1.0), false),
            ("/none/x", json!(null), false),
        ] {
            let expected = passes.then(|| document.clone());
            check(&document, &json!([{"op": "test", "path": path, "value": value}]), expected);
        }
        check(&document, &json!([{"op": "test", "path": "/none"}]), Some(document.clone()));
        check(&document, &json!([{"op": "test", "path": "", "value": document}]), Some(document.clone()));
    }

    #[test]
    fn what_does_not_fit_is_422() {
        let document = json!({"data": {"k": "v"}});
        for operation in [
            json!({"op": "remove", "path": "/data/none"}),
            json!({"op": "add", "path": "/binaryData/x", "value": 1}),
            json!({"op": "add", "path": "", "value": {}}),
            json!({"op": "replace", "path": "", "value": 1}),
            json!({"op": "frob", "path": "/data/k"}),
            json!({"op": "add"}),
            json!({"path": "/data/k"}),
            json!({"op": "move", "from": "/data/none", "path": "/data/x"}),
            json!({"op": "move", "from": "/data", "path": "/data/x"}),
            json!(null),
        ] {
            check(&document, &json!([operation]), None);
        }
    }

    #[test]
    fn copies_are_bounded() {
        let doubling: Vec<Value> = (0..40).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})).collect();
        check(&json!({"a": ["xxxxxxxxxxxxxxxxxxxxxxxx"]}), &Value::from(doubling), None);
    }

    #[test]
    fn operations_cannot_nest_without_bound() {
        let mut path = "/a".to_owned();
        let mut doubling = Vec::new();
        for levels in 0..14_u32 {
            doubling.push(json!({"op": "copy", "from": "/a", "path": format!("{path}/a")}));
            path = format!("/a{}", "/a".repeat(2_usize.pow(levels + 1) - 1));
        }
        check(&json!({"a": {}}), &doubling[..6].into(), Some(nested(64)));
        check(&json!({"a": {}}), &Value::from(doubling), None);
        let document: Map<String, Value> = (0..1000).map(|n| (n.to_string(), json!({}))).collect();
        let chain = (1..1000).map(|n| json!({"op": "move", "from": format!("/{}", n - 1), "path": format!("/{n}/x")}));
        check(&Value::Object(document), &chain.collect(), None);
        let value = nested(depth::SHALLOW - 1);
        check(&json!({}), &json!([{"op": "add", "path": "/a", "value": value["a"]}]), Some(nested(depth::SHALLOW - 1)));
        check(&json!({"a": {}}), &json!([{"op": "add", "path": "/a/a", "value": value}]), None);
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!({}), |inner, _| json!({"a": inner}))
    }

    #[test]
    fn malformed_patches_are_bad_requests() {
        let refused = |patch: Value, lenient| JsonPatch::decode(&patch, lenient).unwrap_err();
        let status = refused(json!({"op": "add"}), false);
        assert_eq!(status.code, 400);
        assert_eq!(
            status.message,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        );
        assert_eq!(
            refused(json!([{"op": 1}]), false).message,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
        );
        assert_eq!(
            refused(json!("x"), true).message,
            "json: cannot unmarshal string into Go value of type jsonpatch.Patch"
        );
        let many: Vec<Value> = (0..10_001).map(|_| json!({})).collect();
        let status = refused(Value::from(many), false);
        assert_eq!(status.code, 413);
        assert_eq!(
            status.message,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
        let patch = json!([{"op": "add", "path": "/a", "value": 1, "extra": 1}]);
        assert_eq!(
            JsonPatch::decode(&patch, false).unwrap().strict_errors,
            [r#"json patch unknown field "[0].extra""#]
        );
    }
}
