//! What the connection of a request says about its user.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::User;
use crate::pki::ClientAuthorities;

/// The other end of a connection, in the extensions of its requests.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A client in the same process, which is trusted to be this user.
    Local(User),
    /// A client that has the key of a certificate.
    Certified(Arc<ClientCertificate>),
}

/// A client's certificate, checked once for all requests of a connection.
#[derive(Debug)]
pub struct ClientCertificate {
    /// `None` if the certificate counts but has no name; the error says why it does not count.
    user: Result<Option<User>, String>,
    /// Until when it counts.
    ends: Timestamp,
}

impl ClientCertificate {
    /// Checks the chain that a client has shown: upstream's `authentication/request/x509`.
    pub(crate) fn check(authorities: &ClientAuthorities, chain: &[CertificateDer<'_>], now: Timestamp) -> Self {
        let refused = |why: String| Self { user: Err(why), ends: Timestamp::MAX };
        let since = Duration::from_secs(now.as_second().max(0).unsigned_abs());
        if let Err(error) = authorities.verify(chain, UnixTime::since_unix_epoch(since)) {
            return refused(error.to_string());
        }
        // A chain that was verified has a first certificate, which can be read.
        let parsed = chain.first().and_then(|leaf| Some((leaf, x509_parser::parse_x509_certificate(leaf).ok()?.1)));
        let Some((leaf, parsed)) = parsed else { return refused("the certificate cannot be read".to_owned()) };
        let ends = Timestamp::from_second(parsed.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX);
        Self { user: Ok(User::from_certificate(leaf)), ends }
    }

    /// The user, if the certificate names one; the error says why it does not count now.
    pub(super) fn user(&self, now: Timestamp) -> Result<Option<&User>, &str> {
        if now > self.ends {
            return Err("the certificate has expired");
        }
        self.user.as_ref().map(Option::as_ref).map_err(String::as_str)
    }
}
