//! The OpenAPI documents: v3 per group version, v2 as a whole, in JSON and in protobuf.
//!
//! kubectl reads them to explain fields, to validate on the client side where the server cannot, and to learn
//! how lists merge. So every kind has its schema with the `x-kubernetes-*` extensions, every path its
//! operations with their group version kind and query parameters. Built-in fields have the descriptions that the server
//! is given.
//!
//! Documents are built one definition at a time straight into bytes, and are meant to be cached by the caller
//! until a CRD of theirs changes. None of this happens unless a client asks.

mod definitions;
pub mod descriptions;
mod operations;
mod render;
pub mod v2;
pub mod v3;

/// Which of the two OpenAPI versions is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

impl Dialect {
    /// A reference to a definition.
    fn reference(self, name: &str) -> String {
        match self {
            Self::V2 => format!("#/definitions/{name}"),
            Self::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

/// Writes `"key":value` pairs of a JSON object one by one, so that the whole never exists as a tree.
struct ObjectWriter {
    out: Vec<u8>,
    first: bool,
}

impl ObjectWriter {
    /// Continues `out`, which so far ends before the object.
    fn new(mut out: Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
        write(&mut self.out, &key.into());
        self.out.push(b':');
        &mut self.out
    }

    fn entry(&mut self, key: &str, value: &serde_json::Value) {
        write(self.key(key), value);
    }

    /// An object as the value of `key`.
    fn nested(&mut self, key: &str, fill: impl FnOnce(&mut ObjectWriter)) {
        self.key(key);
        let mut nested = ObjectWriter::new(std::mem::take(&mut self.out));
        fill(&mut nested);
        self.out = nested.finish();
    }

    fn finish(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }
}

fn write(out: &mut Vec<u8>, value: &serde_json::Value) {
    serde_json::to_writer(out, value).expect("invariant: writing JSON to memory cannot fail");
}

#[cfg(test)]
mod tests;
