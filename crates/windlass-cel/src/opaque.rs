//! The types of Kubernetes' libraries, which expressions can only hand to functions: addresses, quantities, versions, URLs
//! and named formats.

pub(crate) mod ip;
pub(crate) mod named_format;
pub(crate) mod quantity;
pub(crate) mod semver;
pub(crate) mod url;

pub use ip::Cidr;
pub use named_format::NamedFormat;
pub use quantity::Quantity;
pub use semver::Semver;
pub use url::Url;
