//! Tokens of service accounts: signed, checked and described.
//!
//! A token is a JWT signed with ES256. It is good as long as its time has not run out and its service
//! account, and the object it is bound to, are still the ones it was made for. Tokens are never logged.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};
use sha2::Digest as _;

use super::{Authenticated, User};
use crate::api::Api;
use crate::codec::peek;
use crate::pki::{self, PkiError};
use crate::status::Status;
use crate::validation::access::Access as _;

/// The extra value in which the token of a pod names the pod's node.
pub(crate) const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// Who issues tokens, and the audience that this server is.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Who issues the tokens in Secrets.
const SECRET_ISSUER: &str = "kubernetes/serviceaccount";
/// What the claims of tokens in Secrets begin with.
const SECRET_CLAIM: &str = "kubernetes.io/serviceaccount/";

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
    fn verify(&self, token: &str) -> Option<Value> {
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
    /// Whom the token is meant for.
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

fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The groups that every service account of a namespace is in.
pub(super) fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The user of a token that is meant for one of `audiences` and still good; else why it is refused.
pub(super) async fn authenticate(api: &Api, token: &str, audiences: &[String]) -> Result<Authenticated, String> {
    const INVALID: &str = "invalid bearer token";
    let claims = api.token_key.verify(token).ok_or(INVALID)?;
    let refuse = |why: &str| format!("[{INVALID}, {why}]");
    match claims.text("iss") {
        ISSUER => {}
        // These are good for this server alone.
        SECRET_ISSUER if audiences.iter().any(|audience| audience == ISSUER) => {
            let user = secret_user(api, token, &claims).await.map_err(|why| refuse(&why))?;
            return Ok(Authenticated { user, audiences: vec![ISSUER.to_owned()] });
        }
        _ => return Err(INVALID.to_owned()),
    }
    let meant_for = claims.texts("aud");
    let accepted: Vec<String> =
        audiences.iter().filter(|audience| meant_for.contains(&audience.as_str())).cloned().collect();
    if accepted.is_empty() {
        let meant_for: Vec<String> = meant_for.into_iter().map(str::to_owned).collect();
        let [meant_for, audiences] = [&*meant_for, audiences].map(crate::authz::go_list);
        return Err(refuse(&format!("token audiences {meant_for} is invalid for the target audiences {audiences}")));
    }
    check_time(&claims, api.now().as_second()).map_err(refuse)?;
    check_objects(api, &claims).await.map_err(|why| refuse(&why))?;
    Ok(Authenticated { user: user(&claims), audiences: accepted })
}

/// The user of a token that a Secret holds. Mirrors `pkg/serviceaccount/legacy.go`.
async fn secret_user(api: &Api, token: &str, claims: &Value) -> Result<User, String> {
    let claim = |name: &str| claims.text(&format!("{SECRET_CLAIM}{name}")).to_owned();
    let (namespace, secret) = (claim("namespace"), claim("secret.name"));
    let (name, uid) = (claim("service-account.name"), claim("service-account.uid"));
    let get = async |key: String| api.store.get(key.as_bytes()).await.map_err(|error| error.to_string());
    let is_deleting = |value: &[u8]| peek::deletion_timestamp(value).is_some();
    let stored = get(format!("/registry/secrets/{namespace}/{secret}")).await?;
    let stored = stored.filter(|secret| !is_deleting(&secret.value)).ok_or("Token has been invalidated")?;
    let held = peek::Raw::new(&stored.value).path(&["data", "token"]).and_then(|token| token.as_str());
    let held = held.and_then(|held| STANDARD.decode(&*held).ok()).unwrap_or_default();
    // Both are hashed, so that how long this takes says nothing about the token.
    if sha2::Sha256::digest(&held) != sha2::Sha256::digest(token.as_bytes()) {
        return Err("Token does not match server's copy".to_owned());
    }
    let account = get(format!("/registry/serviceaccounts/{namespace}/{name}")).await?;
    let account = account.ok_or_else(|| format!("serviceaccounts {} not found", crate::field::quote(&name)))?;
    if is_deleting(&account.value) {
        return Err(format!("ServiceAccount {namespace}/{name} has been deleted"));
    }
    let known = peek::uid(&account.value).unwrap_or_default();
    if known != uid {
        return Err(format!("ServiceAccount UID ({known}) does not match claim ({uid})"));
    }
    let mut user = User::new(user_name(&namespace, &name), groups(&namespace));
    user.uid = uid;
    Ok(user)
}

/// Clocks may differ by a minute.
fn check_time(claims: &Value, now: i64) -> Result<(), &'static str> {
    const LEEWAY: i64 = 60;
    if now - LEEWAY > claims.int("exp") {
        return Err("service account token has expired");
    }
    if now + LEEWAY < claims.int("nbf") {
        return Err("service account token is not valid yet");
    }
    if now + LEEWAY < claims.int("iat") {
        return Err("service account token is issued in the future");
    }
    Ok(())
}

/// The account and what the token is bound to must still be there.
async fn check_objects(api: &Api, claims: &Value) -> Result<(), String> {
    let claims = claims.at("kubernetes.io");
    let namespace = claims.text("namespace");
    let account = claims.at("serviceaccount");
    let name = account.text("name");
    match state(api, &format!("/registry/serviceaccounts/{namespace}/{name}"), account).await? {
        State::Same => {}
        State::Gone => return Err(format!("serviceaccounts {} not found", crate::field::quote(name))),
        State::Other(uid) => {
            return Err(format!("service account UID ({uid}) does not match claim ({})", account.text("uid")));
        }
        State::Deleted => return Err(format!("service account {namespace}/{name} has been deleted")),
    }
    // The node of a pod's token is only for information.
    let node = if claims.has("pod") { None } else { Some(("node", "/registry/minions/".to_owned())) };
    let local = [("secret", "/registry/secrets/"), ("pod", "/registry/pods/")];
    let local = local.map(|(claim, prefix)| (claim, format!("{prefix}{namespace}/")));
    for (claim, prefix) in local.into_iter().chain(node).filter(|(claim, _)| claims.has(claim)) {
        let reference = claims.at(claim);
        match state(api, &format!("{prefix}{}", reference.text("name")), reference).await? {
            State::Same => {}
            State::Gone | State::Deleted => return Err("service account token has been invalidated".to_owned()),
            State::Other(uid) => {
                let claimed = reference.text("uid");
                return Err(format!(
                    "{claim} UID ({uid}) does not match service account {claim} ref claim ({claimed})"
                ));
            }
        }
    }
    Ok(())
}

/// What became of an object that a token names.
enum State {
    Same,
    Gone,
    /// Another one of that name is there; its uid.
    Other(String),
    /// It has been on its way out for more than a minute.
    Deleted,
}

async fn state(api: &Api, key: &str, reference: &Value) -> Result<State, String> {
    let entry = api.store.get(key.as_bytes()).await.map_err(|error| error.to_string())?;
    let Some(entry) = entry else { return Ok(State::Gone) };
    let metadata = peek::metadata(&entry.value);
    let field = |name: &str| metadata.as_ref().and_then(|m| m.field(name)).and_then(|v| v.as_str().map(String::from));
    let uid = field("uid").unwrap_or_default();
    if uid != reference.text("uid") {
        return Ok(State::Other(uid));
    }
    let deleted = field("deletionTimestamp").and_then(|time| time.parse::<Timestamp>().ok());
    let out = deleted.is_some_and(|time| time.as_second() + 60 < api.now().as_second());
    Ok(if out { State::Deleted } else { State::Same })
}

/// The user that checked claims stand for.
fn user(claims: &Value) -> User {
    let kubernetes = claims.at("kubernetes.io");
    let namespace = kubernetes.text("namespace");
    let account = kubernetes.at("serviceaccount");
    let mut user = User::new(user_name(namespace, account.text("name")), groups(namespace));
    account.text("uid").clone_into(&mut user.uid);
    let mut add = |key: &str, value: String| {
        user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
    };
    add("credential-id", format!("JTI={}", claims.text("jti")));
    for kind in ["pod", "node"].into_iter().filter(|kind| kubernetes.has(kind)) {
        let reference = kubernetes.at(kind);
        add(&format!("{kind}-name"), reference.text("name").to_owned());
        if !reference.text("uid").is_empty() {
            add(&format!("{kind}-uid"), reference.text("uid").to_owned());
        }
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(key: &TokenKey) -> String {
        let bound = vec![Bound { claim: "pod", name: "p".into(), uid: "2".into() }];
        let (audiences, now) = ([ISSUER.to_owned()], Timestamp::now());
        let grant =
            Grant { namespace: "n", name: "robot", uid: "1", audiences: &audiences, now, seconds: 600, bound, id: "i" };
        grant.sign(key).expect("signed")
    }

    #[test]
    fn only_own_tokens_are_accepted() {
        let key = TokenKey::generate().expect("a key");
        let token = token(&key);
        let claims = key.verify(&token).expect("own");
        assert_eq!(claims["sub"], "system:serviceaccount:n:robot");
        let user = user(&claims);
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"]);
        assert_eq!((user.uid.as_str(), user.extra["authentication.kubernetes.io/pod-name"][0].as_str()), ("1", "p"));
        assert!(TokenKey::generate().expect("a key").verify(&token).is_none());
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        assert!(key.verify(&format!("{signed}x.{signature}")).is_none());
        assert!(key.verify("garbage").is_none());
    }

    #[test]
    fn time_runs_out() {
        let claims = json!({"exp": 1000, "nbf": 500, "iat": 500});
        assert!(check_time(&claims, 700).is_ok());
        assert!(check_time(&claims, 1060).is_ok());
        assert_eq!(check_time(&claims, 1061), Err("service account token has expired"));
        assert_eq!(check_time(&claims, 400), Err("service account token is not valid yet"));
    }

    #[test]
    fn a_key_survives_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = TokenKey::load_or_generate(dir.path()).expect("made");
        let again = TokenKey::load_or_generate(dir.path()).expect("read");
        assert!(again.verify(&token(&first)).is_some());
        std::fs::write(dir.path().join("sa.key"), "").expect("written");
        let error = TokenKey::load_or_generate(dir.path()).expect_err("damaged").to_string();
        assert!(error.contains("sa.key is damaged"), "{error}");
        assert_eq!(first.key_set(), again.key_set());
    }
}
