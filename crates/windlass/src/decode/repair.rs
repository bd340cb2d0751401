//! Making a document what its type accepts, where all that is wrong are nulls and missing fields.

use std::collections::HashSet;

use serde_json::Value;

use super::DecodeError;
use super::place::{self, Path, Step};

/// Whether a type accepts a document.
pub(super) type Accepts<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), serde_json::Error>;

/// Decoding attempts for one document, and how many bytes they may read in total: a document with ever more places to
/// repair must not stop everything else.
const ATTEMPTS: usize = 4096;
const BYTES: usize = 64 << 20;

/// Zero values as Go has them, in the order in which they are tried.
const ZEROS: [Zero; 8] = [
    Zero {
        json: "0",
        expected: &["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "integer", "number", "f32", "f64"],
    },
    Zero { json: "\"\"", expected: &["string", "character", "bytes", "byte array"] },
    Zero { json: "\"0001-01-01T00:00:00Z\"", expected: &["time", "date", "RFC 3339", "rfc3339", "RFC3339"] },
    Zero { json: "false", expected: &["bool"] },
    Zero { json: "[]", expected: &["sequence", "array", "list", "set"] },
    Zero { json: "{}", expected: &["map", "struct", "object"] },
    Zero { json: "\"0001-01-01\"", expected: &[] },
    Zero { json: "\"0s\"", expected: &["duration"] },
];

struct Zero {
    json: &'static str,
    /// Words in a type's description of what it expects that make this zero value likely.
    expected: &'static [&'static str],
}

/// The text of a document that the type accepts; or, if nulls and missing fields are not all that is wrong, what is.
pub(super) fn repair(json: &[u8], error: &serde_json::Error, accepts: Accepts<'_>) -> Result<Vec<u8>, DecodeError> {
    let Ok(document) = serde_json::from_slice::<Value>(json) else {
        return Err(refused(error));
    };
    let mut repair = Repair { document, hole: None, inserted: HashSet::new(), removed: None };
    let (mut attempts, mut read) = (0, 0);
    loop {
        let text = repair.document.to_string().into_bytes();
        let Err(error) = accepts(&text) else {
            return Ok(text);
        };
        let refusal = Refusal::new(&text, &error);
        (attempts, read) = (attempts + 1, read + text.len());
        if attempts >= ATTEMPTS || attempts > 8 && read >= BYTES {
            return Err(repair.describe(&refusal));
        }
        repair.step(refusal)?;
    }
}

/// What a decoder says about a text whose places cannot be told.
pub(super) fn refused(error: &serde_json::Error) -> DecodeError {
    DecodeError { path: String::new(), message: without_values(&error.to_string()) }
}

/// What a type says about a document that it does not accept.
#[derive(Clone)]
struct Refusal {
    path: Path,
    /// Without its position.
    message: String,
}

impl Refusal {
    fn new(text: &[u8], error: &serde_json::Error) -> Self {
        let message = error.to_string();
        let position = format!(" at line {} column {}", error.line(), error.column());
        let message = message.strip_suffix(&position).unwrap_or(&message).to_owned();
        let path = if error.line() == 0 { Path::new() } else { place::locate(text, place::position(text, error)) };
        Self { path, message }
    }

    /// The name of the field that is missing, if that is what is wrong.
    fn missing(&self) -> Option<&str> {
        self.message.strip_prefix("missing field `")?.strip_suffix('`')
    }
}

/// A document on its way.
struct Repair {
    document: Value,
    hole: Option<Hole>,
    /// Places that were missing and have something now, though it may be a null.
    inserted: HashSet<Path>,
    /// What was said of the place that was last left out, for which no zero value was accepted.
    removed: Option<Refusal>,
}

/// A place without a value, for which a zero value is sought.
struct Hole {
    path: Path,
    /// This and all like it in other elements of lists, which are filled together.
    places: Vec<Path>,
    /// Whether there was nothing, not even a null.
    missing: bool,
    /// Whether it is in something that the type buffers: what is in it is refused with what is around it. Not known
    /// before something was refused.
    buffered: Option<bool>,
    /// Which of [`ZEROS`] were not tried yet.
    untried: Vec<&'static Zero>,
    /// What was first said about it.
    refusal: Refusal,
}

impl Repair {
    /// Changes the document at the place that was refused.
    fn step(&mut self, refusal: Refusal) -> Result<(), DecodeError> {
        if let Some(hole) = self.hole.take_if(|hole| hole.is_refused(&refusal)) {
            // In what is buffered it may be another null.
            if hole.buffered == Some(true) && self.strip(&refusal.path) {
                self.hole = Some(hole);
                return Ok(());
            }
            return self.fill(hole, &refusal);
        }
        self.hole = None;
        let value = place::get(&self.document, &refusal.path);
        match (refusal.missing(), value) {
            (Some(name), Some(Value::Object(fields))) if !fields.contains_key(name) => {
                let name = name.to_owned();
                self.insert(&name, refusal);
                Ok(())
            }
            (_, Some(Value::Null)) => {
                let path = refusal.path.clone();
                let mut places = place::alike(&self.document, &path);
                places.retain(|place| place::get(&self.document, place) == Some(&Value::Null));
                let untried = ZEROS.iter().collect();
                let buffered = Some(false);
                self.fill(Hole { path, places, missing: false, buffered, untried, refusal: refusal.clone() }, &refusal)
            }
            // Something in there, of which the type says no more.
            _ => {
                if self.strip(&refusal.path) {
                    Ok(())
                } else {
                    Err(self.describe(&refusal))
                }
            }
        }
    }

    /// Puts a null where a field is missing: the type says next what it expects there, unless it accepts the null.
    fn insert(&mut self, name: &str, refusal: Refusal) {
        let member = |owner: &[Step]| owner.iter().cloned().chain([Step::Member(name.to_owned())]).collect::<Path>();
        let mut owners = place::alike(&self.document, &refusal.path);
        owners.retain(|owner| {
            let owner = place::get(&self.document, owner).and_then(Value::as_object);
            owner.is_some_and(|owner| !owner.contains_key(name))
        });
        let places: Vec<Path> = owners.iter().map(|owner| member(owner)).collect();
        for place in &places {
            self.set(place, Value::Null);
        }
        self.inserted.extend(places.iter().cloned());
        let (path, untried) = (member(&refusal.path), ZEROS.iter().collect());
        self.hole = Some(Hole { path, places, missing: true, buffered: None, untried, refusal });
    }

    /// Puts the next zero value in a place. Where there is none left, the place goes if it can: the type may have a
    /// default.
    fn fill(&mut self, mut hole: Hole, refusal: &Refusal) -> Result<(), DecodeError> {
        let expected = refusal.message.rsplit_once("expected ").map_or("", |(_, expected)| expected);
        let likely = |zero: &&Zero| zero.expected.iter().any(|word| expected.contains(word));
        if !hole.untried.is_empty() {
            let next = hole.untried.iter().position(likely).unwrap_or(0);
            let zero = serde_json::from_str(hole.untried.remove(next).json).unwrap_or(Value::Null);
            for place in &hole.places {
                self.set(place, zero.clone());
            }
            self.hole = Some(hole);
            return Ok(());
        }
        if !hole.missing && hole.places.iter().all(|place| self.remove(place)) {
            self.removed = Some(hole.refusal);
            return Ok(());
        }
        let removed = self.removed.as_ref().filter(|removed| removed.path == hole.path);
        Err(self.describe(removed.unwrap_or(&hole.refusal)))
    }

    /// Leaves out all members inside of a place that are null. Returns whether there were any.
    fn strip(&mut self, path: &[Step]) -> bool {
        let mut nulls = Vec::new();
        if let Some(value) = place::get(&self.document, path) {
            find_nulls(value, &mut path.to_vec(), &mut nulls);
        }
        nulls.retain(|null| !self.inserted.contains(null));
        nulls.iter().filter(|null| self.remove(null)).count() > 0
    }

    fn set(&mut self, path: &[Step], value: Value) {
        let Some((last, owner)) = path.split_last() else {
            self.document = value;
            return;
        };
        match (place::get_mut(&mut self.document, owner), last) {
            (Some(Value::Object(fields)), Step::Member(name)) => {
                fields.insert(name.clone(), value);
            }
            (Some(Value::Array(elements)), Step::Element(index)) => {
                if let Some(element) = elements.get_mut(*index) {
                    *element = value;
                }
            }
            _ => {}
        }
    }

    fn remove(&mut self, path: &[Step]) -> bool {
        let Some((Step::Member(name), owner)) = path.split_last() else {
            return false;
        };
        let owner = place::get_mut(&mut self.document, owner).and_then(Value::as_object_mut);
        owner.is_some_and(|fields| fields.remove(name).is_some())
    }

    /// What is wrong, for people.
    fn describe(&self, refusal: &Refusal) -> DecodeError {
        let mut path = refusal.path.clone();
        if let Some(name) = refusal.missing() {
            path.push(Step::Member(name.to_owned()));
            return DecodeError { path: place::display(&path), message: "missing field".to_owned() };
        }
        let value = place::get(&self.document, &path);
        let message = match refusal.message.as_str() {
            // What serde_json says of anything but a text or an object where there should be a variant.
            "expected value" => "expected a variant of an enum".to_owned(),
            message if value.is_some_and(|value| is_quoted(value, message)) => {
                "its type does not accept the value".to_owned()
            }
            message => without_values(message),
        };
        DecodeError { path: place::display(&path), message }
    }
}

impl Hole {
    /// Whether what is in the hole is what is refused.
    fn is_refused(&mut self, refusal: &Refusal) -> bool {
        if refusal.missing().is_some() {
            return false;
        }
        let around = self.path.split_last().map_or(&[][..], |(_, around)| around);
        let (here, around) = (self.places.contains(&refusal.path), refusal.path == around);
        if here || around {
            self.buffered.get_or_insert(!here);
        }
        here || around && self.buffered == Some(true)
    }
}

/// The paths of all members that are null, at any depth.
fn find_nulls(value: &Value, path: &mut Path, found: &mut Vec<Path>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                path.push(Step::Member(name.clone()));
                if value.is_null() {
                    found.push(path.clone());
                }
                find_nulls(value, path, found);
                path.pop();
            }
        }
        Value::Array(elements) => {
            for (index, value) in elements.iter().enumerate() {
                path.push(Step::Element(index));
                find_nulls(value, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

/// The kinds of message that are serde's own. What they quote is cut out by [`without_values`].
const SERDE: [&str; 7] = [
    "invalid type: ",
    "invalid value: ",
    "invalid length ",
    "unknown variant ",
    "unknown field ",
    "duplicate field ",
    "data did not match ",
];

/// Whether a message of a type's own may have something of the value in it. One about a text is likely to quote a part
/// of it, as parsers do.
fn is_quoted(value: &Value, message: &str) -> bool {
    if SERDE.iter().any(|start| message.starts_with(start)) {
        return false;
    }
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(number) => message.contains(&number.to_string()),
        Value::String(text) => !text.is_empty(),
        Value::Array(elements) => elements.iter().any(|value| is_quoted(value, message)),
        Value::Object(fields) => fields.values().any(|value| is_quoted(value, message)),
    }
}

/// What is wrong with an object, without what is in it, as it may be a secret: serde quotes the value
/// that it did not expect.
fn without_values(error: &str) -> String {
    let unexpected = ["invalid type: ", "invalid value: ", "unknown variant "];
    let quoted = unexpected.iter().any(|start| error.starts_with(start));
    match (error.find(['"', '`']), error.rfind(", expected")) {
        (Some(value), Some(expected)) if quoted && value < expected => {
            format!("{}{}", error[..value].trim_end(), &error[expected..])
        }
        _ => error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_without_what_is_there() {
        let check = |error, told| assert_eq!(without_values(error), told);
        check("invalid type: string \"x, expected y\", expected a map", "invalid type: string, expected a map");
        check("invalid type: integer `1234`, expected a string", "invalid type: integer, expected a string");
        check("invalid type: sequence, expected a map", "invalid type: sequence, expected a map");
        check("unknown variant `x`, expected `A` or `B`", "unknown variant, expected `A` or `B`");
        check("missing field `name` at line 1 column 2", "missing field `name` at line 1 column 2");
    }
}
