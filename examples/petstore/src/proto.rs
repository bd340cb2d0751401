//! The wire types and gRPC stubs generated from `proto/` by the build script.
//!
//! Nothing here is validated: [`crate::store`] turns these messages into checked ones.

/// Package `google.type`.
pub mod google {
    /// Well-known types that are not part of protobuf itself.
    pub mod r#type {
        #![allow(clippy::all, clippy::pedantic, missing_docs)]
        tonic::include_proto!("google.r#type");
    }
}

/// Package `petstore`.
pub mod petstore {
    #![allow(clippy::all, clippy::pedantic, missing_docs)]
    tonic::include_proto!("petstore");
}

pub use google::r#type::Date;
pub use petstore::*;

/// The encoded descriptors of both packages, served over gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/petstore.bin"));
