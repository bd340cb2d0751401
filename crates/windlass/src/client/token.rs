//! Tokens of service accounts.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::BoundObjectReference;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::PostParams;
use serde_json::json;

use super::{CachedClient, ClientError};
use crate::key::ObjectKey;
use crate::object::{AsObject, Object, types_of};

/// What a [token](CachedClient::token) is for.
///
/// ```
/// use std::time::Duration;
/// use windlass::client::options::TokenOptions;
///
/// let options = TokenOptions::new().audiences(["vault"]).expiration(Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct TokenOptions {
    audiences: Vec<String>,
    expiration: Option<Duration>,
    bound_to: Option<BoundObjectReference>,
}

impl TokenOptions {
    /// A token for the API server, for as long as the server says.
    pub fn new() -> Self {
        Self::default()
    }

    /// The audiences that accept the token, instead of the API server.
    pub fn audiences(mut self, audiences: impl IntoIterator<Item: Into<String>>) -> Self {
        self.audiences = audiences.into_iter().map(Into::into).collect();
        self
    }

    /// How long the token is to be valid, in whole seconds. Servers refuse less than ten minutes, and may give
    /// another time.
    pub fn expiration(mut self, expiration: Duration) -> Self {
        self.expiration = Some(expiration);
        self
    }

    /// The object, a pod, a node or a secret, without which the token is not valid any more.
    pub fn bound_to<Form>(mut self, object: &impl AsObject<Form, Object: Object>) -> Self {
        let object = object.as_object();
        let (types, meta) = (types_of(object), object.meta());
        self.bound_to = Some(BoundObjectReference {
            api_version: types.as_ref().map(|types| types.api_version.clone()),
            kind: types.map(|types| types.kind),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
        });
        self
    }
}

/// A token of a service account. It is not shown by `Debug`.
///
/// ```
/// # use windlass::client::Token;
/// fn header(token: &Token) -> String {
///     format!("Bearer {}", token.as_str())
/// }
/// ```
#[derive(Clone)]
pub struct Token {
    token: String,
    expires_at: Timestamp,
}

impl Token {
    /// The token itself. It is a secret.
    pub fn as_str(&self) -> &str {
        &self.token
    }

    /// When it stops being valid.
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// The part of a `TokenRequest` that the server fills in. Not k8s-openapi's type: which of its fields are optional
/// depends on the Kubernetes version.
#[derive(serde::Deserialize)]
struct Answer {
    status: Option<Granted>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Granted {
    token: Option<String>,
    expiration_timestamp: Option<Time>,
}

impl CachedClient {
    /// Requests a token of a service account. The operator needs the verb `create` on `serviceaccounts/token`.
    ///
    /// ```
    /// # use windlass::{Context, ObjectKey};
    /// use windlass::client::options::TokenOptions;
    ///
    /// # async fn example(ctx: Context) -> windlass::Result<()> {
    /// let account = ObjectKey::new("shop", "uploader");
    /// let token = ctx.client().token(&account, TokenOptions::new().audiences(["vault"])).await?;
    /// tracing::info!(until = %token.expires_at(), "got a token");
    /// # Ok(()) }
    /// ```
    pub async fn token(&self, service_account: &ObjectKey, options: TokenOptions) -> Result<Token, ClientError> {
        const VERB: &str = "request a token of";
        let accounts = self.objects::<ServiceAccount>();
        let (request, name) = accounts.locate(VERB, service_account)?;
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": options.audiences,
                "boundObjectRef": options.bound_to,
                "expirationSeconds": options.expiration.map(seconds),
            },
        });
        let request = request.create_subresource("token", &name, &PostParams::default(), accounts.encode(&body)?);
        let answer: Answer = accounts.send(VERB, service_account, request).await?;
        if let Some((Some(token), Some(expires_at))) =
            answer.status.map(|status| (status.token, status.expiration_timestamp))
        {
            Ok(Token { token, expires_at: expires_at.0 })
        } else {
            let missing = serde::de::Error::custom("the answer has no token");
            Err(accounts.request_error(VERB, service_account, kube::Error::SerdeError(missing)))
        }
    }
}
