//! A token in a file, as the service account of a pod has one.
//!
//! The file is read again once a minute, as client-go does, and at once when the server no longer takes the
//! token that was read last: a token that was replaced and revoked costs one refusal, not a minute.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

/// How long a token is used before the file is looked at again.
const REREAD: Duration = Duration::from_secs(60);

/// There is no token in a file.
#[derive(Debug, thiserror::Error)]
#[error("token {}: {source}", path.display())]
pub(crate) struct Unreadable {
    pub(crate) path: PathBuf,
    pub(crate) source: std::io::Error,
}

/// The token in a file, as the value of an `Authorization` header.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    header: HeaderValue,
    read: Instant,
}

impl TokenFile {
    /// The token file that an identity has, if that is what it is known by. The identity has none
    /// afterwards, and no token, which is what counts only until the file can be read.
    pub(crate) fn take(identity: &mut AuthInfo) -> Result<Option<Self>, Unreadable> {
        let password = identity.username.is_some() && identity.password.is_some();
        // These go first, wherever they come from; a command (`exec`) comes after both.
        if password || identity.auth_provider.is_some() {
            return Ok(None);
        }
        let Some(path) = identity.token_file.take() else { return Ok(None) };
        match identity.token.take() {
            Some(token) => Self::open_or(path.into(), token.expose_secret()).map(Some),
            None => Self::open(path).map(Some),
        }
    }

    pub(crate) fn open(path: impl Into<PathBuf>) -> Result<Self, Unreadable> {
        let path = path.into();
        match read(&path) {
            Ok(header) => Ok(Self::known(path, header)),
            Err(source) => Err(Unreadable { path, source }),
        }
    }

    /// With a token for as long as the file cannot be read.
    fn open_or(path: PathBuf, token: &str) -> Result<Self, Unreadable> {
        match read(&path).or_else(|_| header(token)) {
            Ok(header) => Ok(Self::known(path, header)),
            Err(source) => Err(Unreadable { path, source }),
        }
    }

    fn known(path: PathBuf, header: HeaderValue) -> Self {
        Self { known: Mutex::new(Known { header, read: Instant::now() }), path }
    }

    /// The token to send.
    pub(crate) fn header(&self) -> HeaderValue {
        let mut known = self.known.lock();
        if known.read.elapsed() >= REREAD {
            self.reread(&mut known);
        }
        known.header.clone()
    }

    /// The server refused this token. Whether there is another by now.
    pub(crate) fn is_replaced(&self, refused: &HeaderValue) -> bool {
        let mut known = self.known.lock();
        if known.header == refused {
            self.reread(&mut known);
        }
        known.header != refused
    }

    /// A file that cannot be read leaves the token that is known: some take the file away on purpose.
    fn reread(&self, known: &mut Known) {
        known.read = Instant::now();
        match read(&self.path) {
            Ok(header) => known.header = header,
            Err(error) => tracing::warn!(%error, path = %self.path.display(), "token not read again"),
        }
    }
}

fn read(path: &Path) -> std::io::Result<HeaderValue> {
    header(&std::fs::read_to_string(path)?)
}

/// A file that is empty is about to be written: there is no token in it.
fn header(token: &str) -> std::io::Result<HeaderValue> {
    let (token, invalid) = (token.trim(), std::io::ErrorKind::InvalidData);
    if token.is_empty() {
        return Err(std::io::Error::new(invalid, "it is empty"));
    }
    let header = HeaderValue::try_from(format!("Bearer {token}"));
    let mut header = header.map_err(|error| std::io::Error::new(invalid, error))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn identity(token: Option<&str>, file: &Path) -> AuthInfo {
        let fields = serde_json::json!({"token": token, "tokenFile": file});
        serde_json::from_value(fields).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_token_counts_until_the_file_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let mut known = identity(Some("stale"), &path);
        let token = TokenFile::take(&mut known).unwrap().unwrap();
        assert!(known.token.is_none() && known.token_file.is_none());
        assert_eq!(token.header(), "Bearer stale");
        std::fs::write(&path, "fresh\n").unwrap();
        tokio::time::advance(REREAD).await;
        assert_eq!(token.header(), "Bearer fresh");

        let token = TokenFile::take(&mut identity(Some("stale"), &path)).unwrap().unwrap();
        assert_eq!(token.header(), "Bearer fresh");
        TokenFile::take(&mut identity(None, &dir.path().join("gone"))).unwrap_err();
        let mut only = identity(Some("known"), &path);
        only.token_file = None;
        assert!(TokenFile::take(&mut only).unwrap().is_none() && only.token.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_file_is_no_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "\n").unwrap();
        let error = TokenFile::open(&path).unwrap_err().to_string();
        assert_eq!(error, format!("token {}: it is empty", path.display()));
        let token = TokenFile::take(&mut identity(Some("known"), &path)).unwrap().unwrap();
        assert_eq!(token.header(), "Bearer known");

        std::fs::write(&path, "good").unwrap();
        tokio::time::advance(REREAD).await;
        assert_eq!(token.header(), "Bearer good");
        // It is being replaced, and not by writing it elsewhere first.
        std::fs::write(&path, "").unwrap();
        tokio::time::advance(REREAD).await;
        assert_eq!(token.header(), "Bearer good");
        assert!(!token.is_replaced(&HeaderValue::from_static("Bearer good")));
        std::fs::write(&path, "better").unwrap();
        assert!(token.is_replaced(&HeaderValue::from_static("Bearer good")));
        assert_eq!(token.header(), "Bearer better");
    }
}
