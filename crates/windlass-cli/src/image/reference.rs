//! Names of images: `registry/repository:tag`, with docker's defaults for what is left out.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};

/// A name with all its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub registry: String,
    pub repository: String,
    pub tag: String,
}

impl FromStr for Reference {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.contains('@') {
            bail!("{text:?} has a digest, which an image that is built gets from its content");
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
            bail!("{text:?} is not the name of an image: lower-case letters, digits and .-_ between slashes");
        }
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if tag.is_empty() || tag.len() > 128 || !tag.chars().all(inner) || tag.starts_with(['.', '-']) {
            bail!("{tag:?} is not a tag: up to 128 letters, digits and .-_");
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
    pub(crate) fn short_name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or(&self.repository)
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
