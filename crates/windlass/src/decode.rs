//! JSON from a server as an object type: strict and fast first, as Go reads it if that fails.
//!
//! Go writes `null` for what it has no value for (a time that is zero, an empty list), leaves out fields that others
//! declare as required, and reads both as the zero value of the field's type. serde refuses both. So a document that a
//! type refuses is repaired: a `null` or a missing field at the place that is refused becomes the zero value that the
//! type accepts there (an empty text, 0, false, an empty list or map, a struct of zero values, the first second of the
//! year 1), until the type accepts the whole document or refuses something else. `null` stays where the type accepts
//! it, as an `Option` does.
//!
//! The repaired text is decoded by the same code as any other, so that a type costs no more to compile; its place in
//! the document is found by the position that the error names. An error names the path of the field that is refused
//! and what is wrong, never the value, which may be a secret.
//!
//! What serde buffers (in `#[serde(flatten)]`, untagged and internally tagged enums) has no positions: there every
//! `null` counts as a field that is missing, and required fields of the innermost object that has a position are
//! filled. An enum has no zero value unless one of its variants is written as the empty text.

mod place;
mod repair;
pub(crate) mod scan;

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why an object does not fit its type: where, and how, without the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecodeError {
    /// As `status.conditions[0].type`; empty for the document as a whole.
    path: String,
    message: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

impl std::error::Error for DecodeError {}

impl From<DecodeError> for serde_json::Error {
    fn from(error: DecodeError) -> Self {
        serde::de::Error::custom(error)
    }
}

/// Decodes an object.
pub(crate) fn from_slice<T: DeserializeOwned>(json: &[u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(json)
        .or_else(|error| repair(json, &error, |json| serde_json::from_slice(json)).map(|(object, _)| object))
}

/// Decodes an object from a value that is used otherwise, too.
pub(crate) fn from_ref<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    T::deserialize(value).or_else(|_| from_slice(value.to_string().as_bytes()))
}

/// Decodes an object that was encoded by the same type, in which nothing is to be filled in.
pub(crate) fn strictly<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    T::deserialize(value).map_err(|error| repair::refused(&error))
}

/// Decodes a text that its type refuses, with this error; and the text it can be decoded from.
#[cold]
pub(crate) fn repair<T>(
    json: &[u8],
    error: &serde_json::Error,
    mut decode: impl FnMut(&[u8]) -> Result<T, serde_json::Error>,
) -> Result<(T, Vec<u8>), DecodeError> {
    let mut object = None;
    let mut accepts = |json: &[u8]| decode(json).map(|decoded| object = Some(decoded));
    let json = repair::repair(json, error, &mut accepts)?;
    object.map(|object| (object, json)).ok_or_else(|| repair::refused(error))
}

#[cfg(test)]
mod tests;
