//! How this server proves to aggregated servers that requests come from it: a client certificate of an authority that
//! signs nothing else.
//!
//! Aggregated servers read the authority and the names of the headers from the ConfigMap
//! `kube-system/extension-apiserver-authentication`, as upstream's `requestheader` options fill it.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::pki::{Authority, Identity, PkiError};

/// The common name of the certificate, as kubeadm has it.
const NAME: &str = "front-proxy-client";

/// The certificate that this server shows to aggregated servers.
pub(crate) struct FrontProxy {
    authority: String,
    pub(super) identity: Identity,
    /// The authority of client certificates, as PEM, once there are any.
    clients: OnceLock<String>,
}

impl FrontProxy {
    /// A certificate of this authority.
    pub(crate) fn new(authority: &Authority) -> Result<Self, PkiError> {
        let identity = authority.client(NAME, "")?;
        Ok(Self { authority: authority.certificate().to_owned(), identity, clients: OnceLock::new() })
    }

    /// Notes the authority of client certificates, as PEM. The first one counts.
    pub(crate) fn set_clients(&self, authority: &str) {
        let _ = self.clients.set(authority.to_owned());
    }

    /// The data of the ConfigMap that aggregated servers read.
    pub(crate) fn published(&self) -> Value {
        let mut data = json!({
            "requestheader-allowed-names": format!("[\"{NAME}\"]"),
            "requestheader-client-ca-file": self.authority,
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
        });
        if let Some(clients) = self.clients.get() {
            data["client-ca-file"] = clients.as_str().into();
        }
        data
    }
}
