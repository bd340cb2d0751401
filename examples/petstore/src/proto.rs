//! The wire types and gRPC stubs that `petstore-generate` makes of `proto/`.
//!
//! Nothing here is validated: [`crate::store`] turns these messages into checked ones.

/// Package `google.type`.
pub mod google {
    /// Well-known types that are not part of protobuf itself.
    pub mod r#type {
        #![allow(clippy::all, clippy::pedantic, missing_docs)]
        include!("generated/google.type.rs");
    }
}

/// Package `petstore`.
pub mod petstore {
    #![allow(clippy::all, clippy::pedantic, missing_docs)]
    include!("generated/petstore.rs");
}

pub use google::r#type::Date;
pub use petstore::*;

/// The encoded descriptors of both packages, served over gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/petstore.bin");

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    #[test]
    fn generated_code_belongs_to_these_definitions() {
        let sums = include_str!("generated/sources.sha256");
        assert_eq!(sums.lines().count(), 2, "{sums}");
        for (sum, path) in sums.lines().filter_map(|line| line.split_once("  ")) {
            let text =
                std::fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a definition");
            let found = Sha256::digest(text);
            let found = found.iter().fold(String::new(), |found, byte| found + &format!("{byte:02x}"));
            assert_eq!(found, sum, "{path} has changed: run petstore-generate");
        }
    }
}
