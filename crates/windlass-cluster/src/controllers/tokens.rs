//! Fills in Secrets of type `kubernetes.io/service-account-token` with a token of the account that they name, and
//! deletes those whose account does not exist.
//!
//! Mirrors upstream's `pkg/controller/serviceaccount/tokens_controller.go`.

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::PartialObjectMeta;
use windlass::cache::Scope;
use windlass::client::ClientError;
use windlass::client::options::DeleteOptions;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};
use windlass_server::authn::TokenKey;

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

type Account = PartialObjectMeta<ServiceAccount>;

pub(super) fn add(manager: &mut Manager, key: Arc<TokenKey>, authority: String) -> Result<(), ManagerError> {
    manager.add(
        Controller::<Secret>::new("serviceaccount-token-controller")
            .scope(Scope::default().fields(format!("type={TYPE}")))
            .refers_to::<Account, _, _>(account_of)
            .complete(Tokens { key, authority: ByteString(authority.into_bytes()) }),
    )
}

struct Tokens {
    key: Arc<TokenKey>,
    authority: ByteString,
}

/// The account that a Secret names.
fn account_of(secret: &Secret) -> Option<ObjectKey> {
    let name = secret.metadata.annotations.as_ref()?.get(ACCOUNT_NAME)?;
    Some(ObjectKey::of(secret).sibling(name))
}

impl Reconcile<Secret> for Tokens {
    async fn reconcile(&self, secret: Arc<Secret>, ctx: Context) -> windlass::Result {
        let Some(key) = account_of(&secret).filter(|_| secret.metadata.deletion_timestamp.is_none()) else {
            return Ok(Outcome::Done);
        };
        let uid =
            secret.metadata.annotations.as_ref().and_then(|all| all.get(ACCOUNT_UID)).filter(|uid| !uid.is_empty());
        let is_it = |account: &Account| uid.is_none_or(|uid| account.metadata.uid.as_ref() == Some(uid));
        let mut account = ctx.get::<Account>(&key).await?.filter(|account| is_it(account));
        if account.is_none() {
            // The cache may not show it yet.
            account = ctx.live().get::<Account>(&key).await?.filter(|account| is_it(account)).map(Arc::new);
        }
        let Some(account) = account else { return delete(&ctx, &secret).await };
        let Some(filled) = self.filled(&secret, &account)? else { return Ok(Outcome::Done) };
        match ctx.client().update(&filled).await {
            // It has changed or gone, and its event is on its way.
            Err(error) if !(error.is_conflict() || error.is_not_found()) => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }
}

impl Tokens {
    /// The Secret with what it lacks; `None` if it lacks nothing.
    fn filled(&self, secret: &Secret, account: &Account) -> windlass::Result<Option<Secret>> {
        let (namespace, name) = (text(secret.metadata.namespace.as_ref()), text(account.metadata.name.as_ref()));
        let mut filled = secret.clone();
        let data = filled.data.get_or_insert_default();
        let has = |field: &str| secret.data.as_ref().and_then(|data| data.get(field)).is_some_and(|v| !v.0.is_empty());
        let is_complete = data.get("ca.crt") == Some(&self.authority) && has("namespace") && has("token");
        if is_complete {
            return Ok(None);
        }
        data.insert("ca.crt".to_owned(), self.authority.clone());
        if !has("namespace") {
            data.insert("namespace".to_owned(), ByteString(namespace.as_bytes().to_vec()));
        }
        let uid = text(account.metadata.uid.as_ref());
        if !has("token") {
            let token = self.key.secret_token(namespace, text(secret.metadata.name.as_ref()), name, uid)?;
            data.insert("token".to_owned(), ByteString(token.into_bytes()));
        }
        let annotations = filled.metadata.annotations.get_or_insert_default();
        annotations.insert(ACCOUNT_NAME.to_owned(), name.to_owned());
        annotations.insert(ACCOUNT_UID.to_owned(), uid.to_owned());
        Ok(Some(filled))
    }
}

fn text(field: Option<&String>) -> &str {
    field.map(String::as_str).unwrap_or_default()
}

async fn delete(ctx: &Context, secret: &Secret) -> windlass::Result {
    let mut options = DeleteOptions::new();
    if let Some(uid) = &secret.metadata.uid {
        options = options.uid(uid);
    }
    let is_expected = |error: &ClientError| error.is_conflict() || error.is_not_found();
    match ctx.client().delete_with::<Secret>(&ObjectKey::of(secret), options).await {
        Err(error) if !is_expected(&error) => Err(error.into()),
        _ => Ok(Outcome::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_gets_only_what_it_lacks() {
        let tokens = Tokens {
            key: Arc::new(TokenKey::generate().expect("valid")),
            authority: ByteString(b"authority".to_vec()),
        };
        let mut account = Account::default();
        (account.metadata.name, account.metadata.uid) = (Some("robot".into()), Some("u".into()));
        let mut secret = Secret::default();
        (secret.metadata.name, secret.metadata.namespace) = (Some("s".into()), Some("n".into()));
        let filled = tokens.filled(&secret, &account).expect("valid").expect("it lacks everything");
        let data = filled.data.as_ref().expect("valid");
        assert_eq!((data["ca.crt"].0.as_slice(), data["namespace"].0.as_slice()), (&b"authority"[..], &b"n"[..]));
        assert_eq!(filled.metadata.annotations.as_ref().expect("valid")[ACCOUNT_UID], "u");
        assert_eq!(tokens.filled(&filled, &account).expect("valid"), None);

        let mut emptied = filled.clone();
        emptied.data.as_mut().expect("valid").remove("token");
        let again = tokens.filled(&emptied, &account).expect("valid").expect("it lacks a token");
        assert_eq!(again.data.expect("valid")["namespace"], data["namespace"]);
    }
}
