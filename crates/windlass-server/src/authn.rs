//! Who a request is from: client certificate, bearer token, impersonation, or nobody.

use std::collections::HashMap;

use http::HeaderMap;

use crate::status::{Qualified, Status};

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

    /// A user who showed no credentials.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".into()],
            extra: HashMap::new(),
        }
    }

    /// Whether nobody is behind the request.
    pub fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
    }

    /// Whether the user may do anything.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    /// The user a verified client certificate stands for: its common name and organisations.
    pub fn from_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let groups: Vec<String> =
            subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
        Some(Self::new(name, groups))
    }
}

/// Static bearer tokens, for tools that cannot use client certificates.
#[derive(Clone, Default)]
pub struct Tokens(HashMap<String, User>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    /// Lets `token` stand for `user`.
    pub fn insert(&mut self, token: impl Into<String>, user: User) {
        self.0.insert(token.into(), user);
    }

    /// Who a request is from. `peer` is what the connection itself proved.
    pub fn authenticate(&self, headers: &HeaderMap, peer: Option<&User>) -> Result<User, Status> {
        let user = match (peer, bearer(headers)) {
            (Some(peer), _) => peer.clone(),
            (None, Some(token)) => self.0.get(token).cloned().ok_or_else(Status::unauthorized)?,
            (None, None) if headers.contains_key(http::header::AUTHORIZATION) => return Err(Status::unauthorized()),
            (None, None) => User::anonymous(),
        };
        impersonate(user, headers)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// Replaces the user by the one the `Impersonate-*` headers name, which only masters may do.
fn impersonate(user: User, headers: &HeaderMap) -> Result<User, Status> {
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let Some(name) = headers.get("impersonate-user").map(text).filter(|name| !name.is_empty()) else {
        let asks = headers.keys().any(|key| key.as_str().starts_with("impersonate-"));
        return if asks {
            Err(Status::internal("requested groups, uid or extra to impersonate, but no user".to_owned()))
        } else {
            Ok(user)
        };
    };
    if !user.is_master() {
        let why = format!(
            "User {} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
            crate::field::quote(&user.name)
        );
        return Err(Status::forbidden(Qualified { group: "", name: "users" }, &name, why));
    }
    let mut groups: Vec<String> = headers.get_all("impersonate-group").iter().map(text).collect();
    let standard = if name == "system:anonymous" { "system:unauthenticated" } else { "system:authenticated" };
    if name.starts_with("system:serviceaccount:") && groups.is_empty() {
        groups.push("system:serviceaccounts".into());
        if let Some(namespace) = name.split(':').nth(2) {
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
    }
    if !groups.iter().any(|group| group == standard) {
        groups.push(standard.into());
    }
    let mut extra: HashMap<String, Vec<String>> = HashMap::new();
    for (key, value) in headers {
        if let Some(key) = key.as_str().strip_prefix("impersonate-extra-") {
            let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().to_lowercase();
            extra.entry(key).or_default().push(text(value));
        }
    }
    let uid = headers.get("impersonate-uid").map(text).unwrap_or_default();
    Ok(User { name, uid, groups, extra })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_impersonation() {
        let mut tokens = Tokens::default();
        tokens.insert("secret", User::admin());
        let mut headers = HeaderMap::new();
        assert!(tokens.authenticate(&headers, None).expect("nobody").is_anonymous());
        headers.insert("authorization", "Bearer wrong".parse().expect("a value"));
        assert_eq!(tokens.authenticate(&headers, None).expect_err("refused").code, 401);
        headers.insert("authorization", "Bearer secret".parse().expect("a value"));
        headers.insert("impersonate-user", "jane".parse().expect("a value"));
        let jane = tokens.authenticate(&headers, None).expect("allowed");
        assert_eq!((jane.name.as_str(), jane.is_master()), ("jane", false));
        assert!(!format!("{tokens:?}").contains("secret"));
    }

    #[test]
    fn a_certificate_names_user_and_group() {
        let authority = crate::pki::Authority::generate().expect("made");
        let client = authority.client("jane", "devs").expect("signed");
        let (_, pem) = x509_parser::pem::parse_x509_pem(client.certificate.as_bytes()).expect("PEM");
        let user = User::from_certificate(&pem.contents).expect("a user");
        assert_eq!(user, User::new("jane", ["devs".to_owned()]));
    }
}
