// SPDX-License-Identifier: Apache-2.0

//! The wire types and gRPC stubs that `petstore-generate` makes of `proto/`.
//!
//! Nothing here is validated: [`super::message`] turns these messages into checked ones.

/// Package `google.type`.
pub mod google {
    /// Well-known types that are not part of protobuf itself.
    pub mod r#type {
        #![allow(clippy::all)]
        include!("generated/google.type.rs");
    }
}

/// Package `petstore`.
pub mod petstore {
    #![allow(clippy::all)]
    include!("generated/petstore.rs");
}

pub use google::r#type::Date;
pub use petstore::*;

/// The encoded descriptors of both packages, served over gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/petstore.bin");
