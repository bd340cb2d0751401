//! Checks the tokens of service accounts.
//!
//! A token is a JWT signed with ES256. It is good as long as its time has not run out and its service
//! account, and the object it is bound to, are still the ones it was made for. Tokens are never logged.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use sha2::Digest as _;

use super::{Authenticated, User};
use crate::api::Api;
use crate::codec::peek;
use crate::tokens::{ISSUER, SECRET_ISSUER, user_name};
use crate::validation::access::Access as _;

/// What the claims of tokens in Secrets begin with.
const SECRET_CLAIM: &str = "kubernetes.io/serviceaccount/";

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
        let [meant_for, audiences] = [&*meant_for, audiences].map(crate::cel::go::quote_list);
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
    use serde_json::json;

    use super::*;
    use crate::tokens::{Bound, Grant, TokenKey};

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
