//! Container images without a container engine.
//!
//! An image is what the OCI's image specification says: a manifest that names a configuration and layers, all of them
//! blobs under the digest of their content. This crate reads [names](Name) of images, pulls and pushes images
//! ([`registry`]), reads them from [archives](archive), keeps them in a [`Store`] that all clusters of a user share, and
//! [unpacks](unpack) them into directories that containers have as their root.
//!
//! Nothing that comes from outside is trusted: sizes are bounded before anything is read, content must have the digest
//! that it was asked for by, and an archive cannot write outside of the directory that it is unpacked into.

pub mod archive;
pub mod digest;
pub mod manifest;
pub mod reference;
pub mod registry;
pub mod store;
pub mod tar;
#[cfg(target_os = "linux")]
pub mod unpack;
pub mod users;

pub use manifest::{Config, Manifest, ManifestError};
pub use reference::{Name, Reference};
pub use store::{Origin, Store, StoreError, Stored};
