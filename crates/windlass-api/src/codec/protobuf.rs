//! Kubernetes protobuf in both directions, driven by `facts/protobuf-1.36.json`.
//!
//! A document is the four bytes `k8s\0` and a `runtime.Unknown` message: the kind in `typeMeta`, the object's
//! own message in `raw`. Messages have JSON's shape but for embedded structs, which protobuf nests, and a
//! dozen types with forms of their own (timestamps, quantities, raw JSON ...).
//!
//! Decoding gives the zero values that protobuf clients always send; the typed decoder drops them again.
//! Encoding leaves out what JSON leaves out, which every reader takes for zero.

use std::borrow::Cow;

use serde_json::Value;

use self::table::Message;
use super::body::parse_group_version;
use super::json::lossy;

mod decode;
mod encode;
mod table;

const PREFIX: &[u8] = b"k8s\0";

/// An opened envelope.
#[derive(Clone, Debug)]
pub(crate) struct Envelope<'a> {
    /// The object's `apiVersion`; may be empty.
    pub api_version: Cow<'a, str>,
    /// The object's `kind`; may be empty.
    pub kind: Cow<'a, str>,
    /// The object's message.
    pub raw: &'a [u8],
}

/// Opens the envelope of a document, or says in upstream's words why it is none.
pub(crate) fn open(document: &[u8]) -> Result<Envelope<'_>, String> {
    if document.is_empty() {
        return Err("empty data".to_owned());
    }
    let Some(data) = document.strip_prefix(PREFIX) else {
        return Err("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned());
    };
    if data.is_empty() {
        return Err("empty body".to_owned());
    }
    let mut envelope = Envelope { api_version: Cow::Borrowed(""), kind: Cow::Borrowed(""), raw: &[] };
    let mut reader = decode::Reader::new(data, "Unknown");
    while let Some(field) = reader.next()? {
        match field.number {
            1 => {
                let mut reader = decode::Reader::new(field.bytes("TypeMeta")?, "TypeMeta");
                while let Some(field) = reader.next()? {
                    match field.number {
                        1 => envelope.api_version = lossy(field.bytes("APIVersion")?),
                        2 => envelope.kind = lossy(field.bytes("Kind")?),
                        _ => {}
                    }
                }
            }
            2 => envelope.raw = field.bytes("Raw")?,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Decodes the message of an object of the given kind. The value has no `kind` and `apiVersion`. `None`
/// if there is no such message.
pub(crate) fn decode(raw: &[u8], group: &str, version: &str, kind: &str) -> Option<Result<Value, String>> {
    let message = message_of(group, version, kind)?;
    Some(decode::object(message, raw))
}

/// An object of a kind that has no protobuf form, which upstream answers with 406.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "object *unstructured.Unstructured does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message"
)]
pub struct NotMarshalable;

/// Encodes an object, whose kind decides the message.
pub fn encode(object: &Value) -> Result<Vec<u8>, NotMarshalable> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = message_named(api_version, kind).ok_or(NotMarshalable)?;
    let mut raw = Vec::with_capacity(512);
    encode::fields(message, object.as_object().ok_or(NotMarshalable)?, &mut raw);
    Ok(seal(api_version, kind, &raw))
}

/// The message of a list, which is written field by field.
pub struct ListMessage {
    message: &'static Message,
    api_version: Box<str>,
    kind: Box<str>,
}

impl ListMessage {
    /// The message of the lists of a kind.
    pub fn of(api_version: &str, kind: &str) -> Result<Self, NotMarshalable> {
        let message = message_named(api_version, kind).ok_or(NotMarshalable)?;
        Ok(Self { message, api_version: api_version.into(), kind: kind.into() })
    }

    /// Writes some fields: what items are written piece by piece is what they are written at once.
    pub fn fields(&self, fields: &Value, out: &mut Vec<u8>) {
        if let Value::Object(fields) = fields {
            encode::fields(self.message, fields, out);
        }
    }

    /// What comes before and after `length` bytes of fields.
    pub fn envelope(&self, length: usize) -> (Vec<u8>, Vec<u8>) {
        envelope(&self.api_version, &self.kind, length)
    }
}

/// Writes one event of a watch around an encoded object, with the length that frames it in front.
pub fn write_watch_frame(event: &str, object: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    encode::bytes(1, event.as_bytes(), out);
    encode::nested(2, out, |out| encode::bytes(1, object, out));
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Puts an object's message into the envelope.
fn seal(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let (mut out, end) = envelope(api_version, kind, raw.len());
    out.reserve_exact(raw.len() + end.len());
    out.extend_from_slice(raw);
    out.extend_from_slice(&end);
    out
}

/// What comes before and after an object's message of so many bytes.
fn envelope(api_version: &str, kind: &str, length: usize) -> (Vec<u8>, Vec<u8>) {
    let mut out = PREFIX.to_vec();
    encode::nested(1, &mut out, |out| {
        encode::bytes(1, api_version.as_bytes(), out);
        encode::bytes(2, kind.as_bytes(), out);
    });
    encode::bytes_head(2, length, &mut out);
    let mut end = Vec::new();
    encode::bytes(3, b"", &mut end);
    encode::bytes(4, b"", &mut end);
    (out, end)
}

fn message_named(api_version: &str, kind: &str) -> Option<&'static Message> {
    let (group, version) = parse_group_version(api_version).ok()?;
    message_of(group, version, kind)
}

/// The message of a kind. Kinds of the meta group may come in any version that has them.
fn message_of(group: &str, version: &str, kind: &str) -> Option<&'static Message> {
    use crate::schema::builtin;
    let name = match builtin::by_kind(group, version, kind) {
        Some(id) => table::message_name(builtin::definition(id).name?),
        None if group == "meta.k8s.io" => format!("k8s.io.apimachinery.pkg.apis.meta.{version}.{kind}"),
        None if group == "apidiscovery.k8s.io" => format!("k8s.io.api.apidiscovery.{version}.{kind}"),
        None if group.is_empty() => format!("k8s.io.apimachinery.pkg.apis.meta.{version}.{kind}"),
        None => return None,
    };
    let v1 = || table::by_name(&format!("k8s.io.apimachinery.pkg.apis.meta.v1.{kind}"));
    table::by_name(&name).or_else(|| (group == "meta.k8s.io").then(v1).flatten())
}

#[cfg(test)]
mod tests;
