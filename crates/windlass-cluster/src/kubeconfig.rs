//! The address and credentials of a cluster, as a kubeconfig.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use windlass_server::pki::Identity;

/// Address, certificate authority and client certificate.
#[derive(Clone)]
pub struct Credentials {
    server: String,
    authority: String,
    certificate: String,
    key: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Credentials {
    pub(crate) fn new(address: SocketAddr, authority: &str, identity: &Identity) -> Self {
        // A server that listens everywhere is reached here through loopback.
        let host = match address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        Self {
            server: format!("https://{}", SocketAddr::new(host, address.port())),
            authority: STANDARD.encode(authority),
            certificate: STANDARD.encode(&identity.certificate),
            key: STANDARD.encode(&identity.key),
        }
    }

    /// The URL of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// A kubeconfig whose only context, cluster and user are called `name`.
    pub fn kubeconfig(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {
                "certificate-authority-data": self.authority, "server": self.server,
            }}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
            "users": [{"name": name, "user": {
                "client-certificate-data": self.certificate, "client-key-data": self.key,
            }}],
        })
    }
}
