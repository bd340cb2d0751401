//! The user of a request: by client certificate, bearer token or impersonation, or anonymous.

mod impersonation;
mod peer;
mod service_account;
mod websocket;

pub use crate::tokens::{ISSUER, TokenKey, Tokens};
pub use crate::user::{MASTERS, User};
pub(crate) use impersonation::impersonate;
pub(crate) use peer::ClientCertificate;
pub use peer::Peer;

use http::HeaderMap;

use crate::api::Api;
use crate::status::Status;

/// The user of a token, and the audiences it was accepted for.
pub(crate) struct Authenticated {
    /// The user.
    pub user: User,
    /// The audiences asked for that the token is meant for.
    pub audiences: Vec<String>,
}

/// The user that a request comes from, before [impersonation](impersonate). A certificate comes before a token, and one that
/// does not count does no harm beside a token that does.
pub(crate) async fn authenticate(api: &Api, headers: &HeaderMap, peer: Option<&Peer>) -> Result<User, Status> {
    let is_certificate_refused = match peer {
        None => false,
        Some(Peer::Local(user)) => return Ok(user.clone()),
        Some(Peer::Certified(certificate)) => match certificate.user(api.now()) {
            Ok(Some(user)) => return Ok(user.clone()),
            Ok(None) => false,
            Err(why) => {
                tracing::debug!(why, "a client certificate was refused");
                true
            }
        },
    };
    let token = match bearer(headers) {
        Some(token) => Some(token.to_owned()),
        None => websocket::bearer(headers).map_err(|why| {
            tracing::debug!(why, "the token of a WebSocket was refused");
            Status::unauthorized()
        })?,
    };
    match token {
        Some(token) => match token_user(api, &token, &[ISSUER.to_owned()]).await {
            Ok(authenticated) => Ok(authenticated.user),
            Err(why) => {
                tracing::debug!(%why, "a bearer token was refused");
                Err(Status::unauthorized())
            }
        },
        None if is_certificate_refused => Err(Status::unauthorized()),
        // Credentials of any other sort count as none.
        None => Ok(User::anonymous()),
    }
}

/// The credentials that a request was refused with, as the audit names them. Mirrors `getAuthMethods` of upstream's
/// `endpoints/filters/authn_audit.go`.
pub(crate) fn attempted(headers: &HeaderMap, peer: Option<&Peer>) -> String {
    let authorization = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let scheme = authorization.and_then(|value| value.trim().split_once(' ')).map_or("", |(scheme, _)| scheme);
    let mut methods = Vec::new();
    methods.extend(["basic", "bearer"].into_iter().filter(|known| scheme.eq_ignore_ascii_case(known)));
    if matches!(peer, Some(Peer::Certified(_))) {
        methods.push("x509");
    }
    methods.join(", ")
}

/// The user of a token that is used for one of `audiences`, or why it is not accepted.
pub(crate) async fn token_user(api: &Api, token: &str, audiences: &[String]) -> Result<Authenticated, String> {
    // A static token is good for any audience.
    match api.tokens.find(token) {
        Some(user) => Ok(Authenticated { user: user.clone(), audiences: audiences.to_vec() }),
        None => service_account::authenticate(api, token, audiences).await,
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut parts = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?.trim().split(' ');
    let is_bearer = parts.next()?.eq_ignore_ascii_case("bearer");
    parts.next().filter(|token| is_bearer && !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_user_and_group() {
        let authority = crate::pki::Authority::generate().expect("made");
        let client = authority.client("jane", "devs").expect("signed");
        let (_, pem) = x509_parser::pem::parse_x509_pem(client.certificate.as_bytes()).expect("PEM");
        let mut user = User::from_certificate(&pem.contents).expect("a user");
        let credential = user.extra.remove(crate::user::CREDENTIAL_ID).expect("an id");
        assert!(credential[0].starts_with("X509SHA256=") && credential[0].len() == 75, "{credential:?}");
        assert_eq!(user, User::new("jane", ["devs".to_owned()]));
    }
}
