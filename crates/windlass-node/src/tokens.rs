//! Tokens of ServiceAccounts for pods, from the API server.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::api::{Api, path};

/// Which token is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFor {
    /// The node that the pod runs on.
    pub node: Arc<str>,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's ServiceAccount.
    pub service_account: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub uid: String,
    /// What the token is for; the API server if empty.
    pub audience: String,
    /// How long it is to be valid.
    pub expiration_seconds: i64,
}

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// What is presented.
    pub token: String,
    /// Until when it is valid.
    pub expires: Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Gives tokens to pods.
pub trait Tokens: Send + Sync + 'static {
    /// A new token; why there is none otherwise.
    fn token(&self, wanted: &TokenFor) -> BoxFuture<'static, Result<Token, String>>;
}

/// Tokens that the API server issues to nodes for their pods.
#[derive(Clone)]
pub struct ApiTokens {
    api: Api,
}

impl std::fmt::Debug for ApiTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiTokens").finish_non_exhaustive()
    }
}

impl ApiTokens {
    /// Requests are made with this client, each with the [node](crate::ActingNode) that it is made for.
    pub fn new(client: kube::Client) -> Self {
        Self { api: Api::new(client) }
    }
}

impl Tokens for ApiTokens {
    fn token(&self, wanted: &TokenFor) -> BoxFuture<'static, Result<Token, String>> {
        let (api, wanted) = (self.api.clone(), wanted.clone());
        Box::pin(async move {
            let account = path(&wanted.namespace, "serviceaccounts", &wanted.service_account);
            let account = account.ok_or_else(|| format!("{:?} is not a ServiceAccount", wanted.service_account))?;
            let audiences: Vec<&str> =
                Some(wanted.audience.as_str()).filter(|audience| !audience.is_empty()).into_iter().collect();
            let request = json!({
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {
                    "audiences": audiences,
                    "expirationSeconds": wanted.expiration_seconds,
                    "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": wanted.pod, "uid": wanted.uid },
                },
            });
            let issued: Result<TokenRequest, _> = api.post(&wanted.node, &format!("{account}/token"), &request).await;
            let issued = issued.map_err(|error| error.to_string())?;
            let status = issued.status.unwrap_or_default();
            match (status.token, status.expiration_timestamp) {
                (Some(token), Some(expires)) => Ok(Token { token, expires: expires.0 }),
                _ => Err("the API server issued no token".to_owned()),
            }
        })
    }
}
