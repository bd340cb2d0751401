//! Digests: `sha256:` and 64 hexadecimal digits, the name of a blob by its content.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Another algorithm, or none.
    #[error("the digest {0} is not of SHA-256")]
    Algorithm(String),
    /// Not 64 hexadecimal digits.
    #[error("{0} is not a digest")]
    Malformed(String),
}

/// The digest of bytes.
pub fn of(bytes: &[u8]) -> String {
    Hasher::default().update(bytes).finish()
}

/// Checks that a digest is one, before it becomes part of a path.
pub fn check(digest: &str) -> Result<(), DigestError> {
    let hex = digest.strip_prefix("sha256:").ok_or_else(|| DigestError::Algorithm(digest.to_owned()))?;
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    if hex.len() == 64 && hex.chars().all(is_hex) { Ok(()) } else { Err(DigestError::Malformed(digest.to_owned())) }
}

/// The hexadecimal digits of a digest that was checked.
pub(crate) fn hex(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

/// Where an OCI layout has a blob.
pub fn blob_path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

/// Computes a digest piece by piece.
#[derive(Debug, Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes more bytes in.
    #[must_use]
    pub fn update(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    pub fn finish(self) -> String {
        self.0.finalize().iter().fold("sha256:".to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_checked_before_they_are_paths() {
        let whole = of(b"x");
        assert_eq!(check(&whole), Ok(()));
        assert_eq!(blob_path(&whole), format!("blobs/sha256/{}", hex(&whole)));
        for text in ["", "sha256:", "sha512:00", "sha256:../../etc/passwd", &whole.to_uppercase()] {
            assert!(check(text).is_err(), "{text}");
        }
    }
}
