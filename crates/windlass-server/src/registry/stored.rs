//! An object as the store keeps it: bytes in the storage version, decoded only when somebody needs to
//! look inside.

use bytes::Bytes;
use serde_json::Value;
use windlass_store::{Entry, Revision};

use crate::codec::{json, write};
use crate::status::Status;

/// An object in the version it is stored in.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The object, ready to serve.
    pub bytes: Bytes,
    /// The revision of its last write; the highest there is if it was not stored (dry run).
    pub revision: Revision,
}

impl From<Entry> for Stored {
    fn from(entry: Entry) -> Self {
        Self { bytes: entry.value, revision: entry.modified }
    }
}

impl Stored {
    /// An object that was not stored, because it was a dry run.
    pub fn unsaved(object: &Value) -> Self {
        Self { bytes: write::to_vec(object).into(), revision: Revision::MAX }
    }

    /// The object, decoded.
    pub fn decode(&self) -> Result<Value, Status> {
        decode(&self.bytes)
    }
}

/// Decodes stored bytes.
pub fn decode(bytes: &[u8]) -> Result<Value, Status> {
    match json::parse(bytes) {
        Ok(parsed) => Ok(parsed.value),
        Err(error) => Err(Status::internal(format!("a stored object cannot be read: {error}"))),
    }
}

/// Encodes an object for storage; the store fills in its resourceVersion.
pub fn encode(object: &Value) -> windlass_store::Value {
    encode_about(object, 0)
}

/// [`encode`] for an object of about `size` bytes.
pub fn encode_about(object: &Value, size: usize) -> windlass_store::Value {
    let mut out = Vec::with_capacity(size + 1024);
    match write::write_object(object, &mut out) {
        Some(at) => windlass_store::Value::splice(out, at),
        None => windlass_store::Value::plain(out),
    }
}
