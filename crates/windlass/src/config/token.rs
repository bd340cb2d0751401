//! A token in a file, as the service account of a pod has one.
//!
//! The file is read again once a minute, as client-go does, and at once when the server no longer takes the
//! token that was read last: a token that was replaced and revoked costs one refusal, not a minute.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ConfigError;

/// How long a token is used before the file is looked at again.
const REREAD: Duration = Duration::from_secs(60);

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
    /// The token file that an identity has, if that is what it is known by. The identity has none afterwards.
    pub(super) fn take(identity: &mut AuthInfo) -> Result<Option<Self>, ConfigError> {
        let password = identity.username.is_some() && identity.password.is_some();
        // These go first, wherever they come from.
        let other = password || identity.token.is_some() || identity.auth_provider.is_some();
        if other || identity.exec.is_some() {
            return Ok(None);
        }
        identity.token_file.take().map(Self::open).transpose()
    }

    pub(crate) fn open(path: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        let path = path.into();
        match read(&path) {
            Ok(header) => Ok(Self { known: Mutex::new(Known { header, read: Instant::now() }), path }),
            Err(source) => Err(ConfigError::Token { path, source }),
        }
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
    let token = std::fs::read_to_string(path)?;
    let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
    let mut header = header.map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
    header.set_sensitive(true);
    Ok(header)
}
