//! The system's clock as TLS reads it: for certificates, and for the age of sessions.

use std::time::{Duration, SystemTime};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The time since 1970. A clock that shows an earlier time counts as one that shows 1970: rustls's own panics there, in every
/// handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsClock(fn() -> SystemTime);

impl TlsClock {
    pub(crate) const SYSTEM: Self = Self(SystemTime::now);

    pub(crate) fn since_1970(self) -> Duration {
        (self.0)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.since_1970()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::super::Authority;
    use super::*;

    const IN_1969: TlsClock = TlsClock(|| SystemTime::UNIX_EPOCH - Duration::from_secs(3600));

    /// Each handshake panicked.
    #[tokio::test]
    async fn a_clock_before_1970_does_not_end_handshakes() {
        assert_eq!(IN_1969.since_1970(), Duration::ZERO);
        assert!(TlsClock::SYSTEM.since_1970() > Duration::from_secs(1_700_000_000));
        let authority = Authority::generate().expect("made");
        let identity = authority.server(&["localhost".to_owned()]).expect("signed");
        let (mut server, _) = authority.api_config(&identity).expect("TLS accepts it");
        assert!(format!("{:?}", server.time_provider).starts_with("TlsClock"), "{:?}", server.time_provider);
        server.time_provider = Arc::new(IN_1969);
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).expect("PEM")).expect("added");
        // To a client in 1969 the certificate is not valid yet.
        for (clock, expected) in [(TlsClock::SYSTEM, Ok(())), (IN_1969, Err(()))] {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let client = rustls::ClientConfig::builder_with_details(provider, Arc::new(clock))
                .with_safe_default_protocol_versions()
                .expect("supported")
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            let (near, far) = tokio::io::duplex(1 << 16);
            let (_, connected) = tokio::join!(
                TlsAcceptor::from(Arc::new(server.clone())).accept(far),
                TlsConnector::from(Arc::new(client)).connect("localhost".try_into().expect("a name"), near),
            );
            assert_eq!(connected.map(drop).map_err(drop), expected);
        }
    }
}
