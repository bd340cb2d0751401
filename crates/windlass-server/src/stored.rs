//! An object as the store keeps it: bytes in the storage version, decoded only where a part of the server
//! needs to look inside.

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
    pub(crate) fn unsaved(object: &Value) -> Self {
        Self { bytes: write::to_vec(object).into(), revision: Revision::MAX }
    }

    /// The object, decoded.
    pub fn decode(&self) -> Result<Value, Status> {
        decode(&self.bytes)
    }
}

/// Decodes stored bytes.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, Status> {
    match json::parse(bytes) {
        Ok(parsed) => Ok(parsed.value),
        Err(error) => Err(Status::internal(format!("a stored object cannot be read: {error}"))),
    }
}

/// Encodes an object for storage; the store fills in its resourceVersion.
pub(crate) fn encode(object: &Value) -> windlass_store::Value {
    encode_about(object, 0)
}

/// [`encode`] for an object of about `size` bytes.
pub(crate) fn encode_about(object: &Value, size: usize) -> windlass_store::Value {
    Encoded::about(object, size).into_value()
}

/// An encoded object.
pub(crate) struct Encoded {
    bytes: Vec<u8>,
    /// Where the store puts its resourceVersion.
    version_at: Option<usize>,
}

impl Encoded {
    /// Encodes an object of about `size` bytes.
    pub(crate) fn about(object: &Value, size: usize) -> Self {
        let mut bytes = Vec::with_capacity(size + 1024);
        let version_at = write::write_object(object, &mut bytes);
        Self { bytes, version_at }
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What the store takes.
    pub(crate) fn into_value(self) -> windlass_store::Value {
        match self.version_at {
            Some(at) => windlass_store::Value::splice(self.bytes, at),
            None => windlass_store::Value::plain(self.bytes),
        }
    }
}
