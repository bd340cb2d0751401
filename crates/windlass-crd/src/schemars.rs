//! `schemars`, with the generator of this crate in the place of its own.
//!
//! For `#[kube(crates(schemars = "windlass::crd::schemars"))]`: `crd()` then makes its schema with
//! [`schema`](crate::schema). Nothing else needs this module; types derive `schemars::JsonSchema` itself.

pub use ::schemars::*;

/// The generator, with the calls that `kube`'s derive makes.
pub mod generate {
    pub use ::schemars::generate::{Contract, SchemaGenerator};

    use std::borrow::Cow;

    use ::schemars::{JsonSchema, Schema};

    /// Takes the settings of `kube`'s derive, and has no use for them.
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct SchemaSettings {
        /// Definitions never refer to schemas elsewhere.
        pub inline_subschemas: bool,
        /// Definitions never name a dialect.
        pub meta_schema: Option<Cow<'static, str>>,
    }

    impl SchemaSettings {
        /// The only settings there are.
        pub fn openapi3() -> Self {
            Self::default()
        }

        /// Calls the function, which may set what is set already.
        #[must_use]
        pub fn with(mut self, configure: impl FnOnce(&mut Self)) -> Self {
            configure(&mut self);
            self
        }

        /// Takes a transform of `kube`. The generator of this crate does what it would do.
        #[must_use]
        pub fn with_transform<T>(self, _transform: T) -> Self {
            self
        }

        /// The generator itself.
        pub fn into_generator(self) -> Generator {
            Generator(())
        }
    }

    /// Makes the schema of one type.
    #[derive(Debug)]
    pub struct Generator(());

    impl Generator {
        /// The structural schema of `T`.
        pub fn into_root_schema_for<T: JsonSchema + ?Sized>(self) -> Schema {
            crate::schema::<T>()
        }
    }
}
