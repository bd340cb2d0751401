//! Who may read the metrics: asked of the API server, as controller-runtime's filter does.
//!
//! The bearer token is reviewed (`TokenReview`), then whether its owner may `get` the path
//! (`SubjectAccessReview`). Answers are believed for a while, so that a scrape every few seconds
//! does not cost two requests each.

use std::collections::HashMap;
use std::time::Duration;

use http::StatusCode;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::http::{Answer, Head, text};

/// How long an answer is believed: a yes longer than a no.
const ALLOWED: Duration = Duration::from_secs(60);
const REFUSED: Duration = Duration::from_secs(10);
/// How long the server may take to say; the check waits no longer, and neither does a stop.
const REVIEW: Duration = Duration::from_secs(5);
/// Answers remembered at the same time.
const REMEMBERED: usize = 1024;

/// Asks the server about callers.
pub(super) struct Access {
    client: kube::Client,
    /// By digest of token and path; the tokens themselves are not kept.
    known: Mutex<HashMap<[u8; 32], (Verdict, Instant)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Unknown,
    Forbidden,
}

impl Access {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// `None` when the caller may go on, otherwise what to answer.
    pub(super) async fn refuse(&self, request: &Head) -> Option<Answer> {
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = header.and_then(bearer) else {
            return Some(text(StatusCode::UNAUTHORIZED, "Unauthorized\n"));
        };
        let path = request.uri().path();
        let reviewed = tokio::time::timeout(REVIEW, self.verdict(token, path)).await;
        match reviewed.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into()))) {
            Ok(Verdict::Allowed) => None,
            Ok(Verdict::Unknown) => Some(text(StatusCode::UNAUTHORIZED, "Unauthorized\n")),
            Ok(Verdict::Forbidden) => Some(text(StatusCode::FORBIDDEN, "Forbidden\n")),
            Err(error) => {
                tracing::warn!(%error, "caller of the metrics not reviewed");
                Some(text(StatusCode::INTERNAL_SERVER_ERROR, "Authentication failed\n"))
            }
        }
    }

    async fn verdict(&self, token: &str, path: &str) -> Result<Verdict, kube::Error> {
        let mut digest = Sha256::new();
        digest.update(token);
        digest.update([0]);
        digest.update(path);
        let digest: [u8; 32] = digest.finalize().into();
        let now = Instant::now();
        if let Some((verdict, until)) = self.known.lock().get(&digest)
            && now < *until
        {
            return Ok(*verdict);
        }
        let verdict = match self.user(token).await? {
            None => Verdict::Unknown,
            Some(user) => {
                if self.may_get(user, path).await? {
                    Verdict::Allowed
                } else {
                    Verdict::Forbidden
                }
            }
        };
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() < REMEMBERED {
            known.insert(digest, (verdict, now + if verdict == Verdict::Allowed { ALLOWED } else { REFUSED }));
        }
        Ok(verdict)
    }

    async fn user(&self, token: &str) -> Result<Option<UserInfo>, kube::Error> {
        // Optional in some versions of Kubernetes.
        #[allow(clippy::useless_conversion)]
        let spec = TokenReviewSpec { token: token.to_owned().into(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    async fn may_get(&self, user: UserInfo, path: &str) -> Result<bool, kube::Error> {
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(attributes),
            resource_attributes: None,
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

/// The token of an `Authorization` header. Schemes are the same in all cases (RFC 9110, section 11.1).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use kube::client::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unanswered_reviews_time_out() {
        let silent = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let access = Access::new(kube::Client::new(silent, "default"));
        let request = http::Request::get("/metrics").header(AUTHORIZATION, "Bearer token").body(()).unwrap();
        let (asked, refusal) = (Instant::now(), access.refuse(&request).await.unwrap());
        assert_eq!(refusal.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(asked.elapsed().as_secs(), REVIEW.as_secs());
    }
}
