//! The user of a request, as every part of the server sees it. How it is found out is [`authn`](crate::authn)'s.

use std::collections::HashMap;

use sha2::Digest as _;

/// The extra value that says which credential was used.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The extra value in which the token of a pod names the pod's node.
pub(crate) const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The group whose members may do anything.
pub const MASTERS: &str = "system:masters";

/// An authenticated (or anonymous) user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// A unique id, where one is known.
    pub uid: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
    /// More about the user, by key.
    pub extra: HashMap<String, Vec<String>>,
}

impl User {
    /// A user with just a name and groups; authenticated users are in `system:authenticated` too.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        groups.push("system:authenticated".into());
        Self { name: name.into(), uid: String::new(), groups, extra: HashMap::new() }
    }

    /// The user of in-process clients and of the kubeconfig that the server writes.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", [MASTERS.to_owned()])
    }

    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".into()],
            extra: HashMap::new(),
        }
    }

    /// Whether the user may do anything.
    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    /// The user that a verified client certificate stands for: its common name and organisations. `None` if it has no name.
    pub fn from_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let subject = certificate.subject();
        // Of several, Go takes the last.
        let name = subject.iter_common_name().last()?.as_str().ok().filter(|name| !name.is_empty())?.to_owned();
        let groups: Vec<String> =
            subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
        let mut user = Self::new(name, groups);
        let digest = sha2::Sha256::digest(der).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={digest}")]);
        Some(user)
    }
}
