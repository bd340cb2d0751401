//! Names of images: `registry/repository:tag`, with docker's defaults for what is left out.

use std::fmt;
use std::str::FromStr;

use crate::digest;

/// A name with all its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The host of the registry, perhaps with a port.
    pub registry: String,
    /// The path of the image in it.
    pub repository: String,
    /// Which of its versions.
    pub tag: String,
}

/// Text that is not the name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// A digest where an image is only about to get one.
    #[error("{0:?} has a digest, which an image that is built gets from its content")]
    Digest(String),
    /// Letters that names do not have.
    #[error("{0:?} is not the name of an image: lower-case letters, digits and .-_ between slashes")]
    Repository(String),
    /// Letters that tags do not have.
    #[error("{0:?} is not a tag: up to 128 letters, digits and .-_")]
    Tag(String),
    /// A digest that is not one.
    #[error(transparent)]
    Malformed(#[from] digest::DigestError),
}

impl FromStr for Reference {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.contains('@') {
            return Err(NameError::Digest(text.to_owned()));
        }
        let (registry, rest) = match text.split_once('/') {
            // As docker tells a host from the first part of a path.
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest.to_owned()),
            Some(_) => ("docker.io", text.to_owned()),
            None => ("docker.io", format!("library/{text}")),
        };
        let (repository, tag) = rest.rsplit_once(':').unwrap_or((&rest, "latest"));
        let lower = |part: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
            !part.is_empty() && part.chars().all(inner) && !part.starts_with(['.', '_', '-'])
        };
        if !repository.split('/').all(lower) {
            return Err(NameError::Repository(text.to_owned()));
        }
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if tag.is_empty() || tag.len() > 128 || !tag.chars().all(inner) || tag.starts_with(['.', '-']) {
            return Err(NameError::Tag(tag.to_owned()));
        }
        Ok(Self { registry: registry.to_owned(), repository: repository.to_owned(), tag: tag.to_owned() })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.registry, self.repository, self.tag)
    }
}

impl Reference {
    /// The last part of the name.
    pub fn short_name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or(&self.repository)
    }
}

/// The name of an image by its tag, or by its digest.
///
/// ```
/// use windlass_image::Name;
///
/// let name: Name = "nginx".parse()?;
/// assert_eq!(name.to_string(), "docker.io/library/nginx:latest");
/// # Ok::<(), windlass_image::reference::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name without its digest.
    pub reference: Reference,
    /// Its digest, which counts rather than the tag.
    pub digest: Option<String>,
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
        if let Some(digest) = digest {
            digest::check(digest)?;
        }
        Ok(Self { reference: name.parse()?, digest: digest.map(str::to_owned) })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.digest {
            Some(digest) => write!(f, "{}/{}@{digest}", self.reference.registry, self.reference.repository),
            None => self.reference.fmt(f),
        }
    }
}

impl From<Reference> for Name {
    fn from(reference: Reference) -> Self {
        Self { reference, digest: None }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_get_dockers_defaults() {
        for (text, whole) in [
            ("web", "docker.io/library/web:latest"),
            ("me/web:v1", "docker.io/me/web:v1"),
            ("localhost:5000/web", "localhost:5000/web:latest"),
            ("registry.example.com/a/b:1.0_x", "registry.example.com/a/b:1.0_x"),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), whole);
        }
        for text in ["", "Web", "a//b", "web:", "web:ü", "a b", "web@sha256:00"] {
            text.parse::<Reference>().unwrap_err();
        }
    }
}
