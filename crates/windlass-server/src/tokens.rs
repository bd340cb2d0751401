//! Bearer tokens: static ones, and those of service accounts with the key that signs them.
//!
//! What is here knows nothing of what is stored: whether the account of a token still exists is
//! [`authn`](crate::authn)'s question. Tokens are never logged.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};
use sha2::Digest as _;

use crate::pki::{self, PkiError};
use crate::status::Status;
use crate::user::User;
use crate::validation::access::Access as _;

/// Static bearer tokens, for tools that cannot use client certificates.
///
/// Only digests are kept, and all of them are compared in full: how long a refusal takes says nothing
/// about the tokens.
#[derive(Clone, Default)]
pub struct Tokens(Vec<(Digest, User)>);

/// The SHA-256 of a token.
type Digest = [u8; 32];

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    /// Lets `token` stand for `user`.
    pub fn insert(&mut self, token: impl Into<String>, user: User) {
        self.0.push((digest(&token.into()), user));
    }

    /// The user of a token.
    pub(crate) fn find(&self, token: &str) -> Option<&User> {
        let digest = digest(token);
        let mut found = None;
        for (known, user) in &self.0 {
            let difference = known.iter().zip(&digest).fold(0, |all, (a, b)| all | (a ^ b));
            if std::hint::black_box(difference) == 0 {
                found = Some(user);
            }
        }
        found
    }
}

fn digest(token: &str) -> Digest {
    sha2::Sha256::digest(token.as_bytes()).into()
}

/// The issuer of tokens, and the audience that this server is.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The issuer of the tokens in Secrets.
pub(crate) const SECRET_ISSUER: &str = "kubernetes/serviceaccount";
/// What a P-256 public key in its standard form begins with; the point follows.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The key that tokens are signed with.
pub struct TokenKey {
    pair: EcdsaKeyPair,
    id: String,
    random: SystemRandom,
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TokenKey {
    /// A new key.
    pub fn generate() -> Result<Self, PkiError> {
        Self::from_pem(&pki::generate_key()?)
    }

    /// The key kept in `dir` (`sa.key`), made there if it is not.
    pub fn load_or_generate(dir: &Path) -> Result<Self, PkiError> {
        let path = dir.join("sa.key");
        Self::from_pem(&pki::load_or_generate_key(&path)?).map_err(|error| pki::damaged(&path, &error))
    }

    fn from_pem(pem: &str) -> Result<Self, PkiError> {
        let random = SystemRandom::new();
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|e| PkiError::Tls(e.to_string()))?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der(), &random)
            .map_err(|e| PkiError::Tls(e.to_string()))?;
        let mut spki = SPKI_PREFIX.to_vec();
        spki.extend_from_slice(pair.public_key().as_ref());
        let id = URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(&spki));
        Ok(Self { pair, id, random })
    }

    /// A token with these claims.
    fn sign(&self, claims: &Value) -> Result<String, Status> {
        let header = json!({"alg": "ES256", "kid": self.id});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.pair.sign(&self.random, signed.as_bytes());
        let signature = signature.map_err(|_| Status::internal("failed to generate token: no randomness"))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// A token without an end, for a Secret of type `kubernetes.io/service-account-token`: it is good as long as that
    /// Secret holds it and the account exists.
    pub fn secret_token(&self, namespace: &str, secret: &str, account: &str, uid: &str) -> Result<String, PkiError> {
        let claims = json!({
            "iss": SECRET_ISSUER, "sub": user_name(namespace, account),
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret,
            "kubernetes.io/serviceaccount/service-account.name": account,
            "kubernetes.io/serviceaccount/service-account.uid": uid,
        });
        self.sign(&claims).map_err(|status| PkiError::Tls(status.message))
    }

    /// The claims of a token that was signed with this key.
    pub(crate) fn verify(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let parse = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
        let header = parse(header)?;
        if header.text("alg") != "ES256" || header.text("kid") != self.id {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        public.verify(signed.as_bytes(), &signature).ok()?;
        parse(claims)
    }

    /// `/openid/v1/jwks`: the public key.
    pub(crate) fn key_set(&self) -> Value {
        // An uncompressed point: 4, x, y.
        let point = self.pair.public_key().as_ref();
        let coordinate = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": coordinate(1..33), "y": coordinate(33..65),
        }]})
    }

    /// `/.well-known/openid-configuration`.
    pub(crate) fn configuration() -> Value {
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }
}

/// What a token is to say.
pub(crate) struct Grant<'a> {
    /// The account's namespace.
    pub namespace: &'a str,
    /// The account's name.
    pub name: &'a str,
    /// The account's uid.
    pub uid: &'a str,
    /// The audiences that the token is meant for.
    pub audiences: &'a [String],
    /// When the token is made.
    pub now: Timestamp,
    /// How long it is good for.
    pub seconds: i64,
    /// What it is bound to.
    pub bound: Vec<Bound>,
    /// Tells it from all other tokens.
    pub id: &'a str,
}

/// An object that a token is bound to.
pub(crate) struct Bound {
    /// The claim: `pod`, `secret` or `node`.
    pub claim: &'static str,
    /// The object's name.
    pub name: String,
    /// The object's uid.
    pub uid: String,
}

impl Grant<'_> {
    /// The token.
    pub(crate) fn sign(&self, key: &TokenKey) -> Result<String, Status> {
        let now = self.now.as_second();
        let mut kubernetes = Map::new();
        kubernetes.insert("namespace".into(), self.namespace.into());
        kubernetes.insert("serviceaccount".into(), json!({"name": self.name, "uid": self.uid}));
        for bound in &self.bound {
            let mut reference = Map::from_iter([("name".to_owned(), bound.name.as_str().into())]);
            if !bound.uid.is_empty() {
                reference.insert("uid".into(), bound.uid.as_str().into());
            }
            kubernetes.insert(bound.claim.into(), reference.into());
        }
        key.sign(&json!({
            "iss": ISSUER, "sub": user_name(self.namespace, self.name), "aud": self.audiences,
            "exp": now + self.seconds, "iat": now, "nbf": now, "jti": self.id,
            "kubernetes.io": kubernetes,
        }))
    }
}

/// The user that a service account is.
pub(crate) fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_tokens_are_found_and_not_shown() {
        let mut tokens = Tokens::default();
        tokens.insert("secret", User::admin());
        assert_eq!(tokens.find("secret"), Some(&User::admin()));
        assert_eq!(tokens.find("wrong"), None);
        assert!(!format!("{tokens:?}").contains("secret"));
    }
}
