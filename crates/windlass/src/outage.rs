//! Requests that get no answer: the error names the server and the cause, and an outage is logged once when it
//! begins and once when it is over, however many requests fail in between.

use std::sync::Arc;

use http::Response;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::BoxError;

use crate::report::Chain;

/// A request got no answer.
#[derive(Debug, thiserror::Error)]
#[error("{host} cannot be reached: {}", Chain(&**source))]
pub(crate) struct Unreachable {
    host: Arc<str>,
    #[source]
    source: BoxError,
}

/// Whether a request failed for want of an answer, and that was logged.
pub(crate) fn is_unreachable(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(source) if source.is::<Unreachable>())
}

/// What is worth telling of an error of the client: the server's own message, or why there is none. kube's rendering
/// repeats the whole status, and names the layer that failed.
pub(crate) fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(source) => Chain(&**source).to_string(),
        kube::Error::HyperError(source) => Chain(source).to_string(),
        other => Chain(other).to_string(),
    }
}

/// Whether a server answers at present. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    host: Arc<str>,
    since: Arc<Mutex<Option<Instant>>>,
}

impl Outage {
    pub(crate) fn new(host: Arc<str>) -> Self {
        Self { host, since: Arc::default() }
    }

    /// Logs the first request of an outage that gets no answer.
    fn begin(&self, source: BoxError) -> Unreachable {
        let error = Unreachable { host: Arc::clone(&self.host), source };
        let mut since = self.since.lock();
        if since.is_none() {
            *since = Some(Instant::now());
            tracing::warn!(%error, "the API server does not answer; requests are tried again");
        }
        error
    }

    /// Notes whether a request was answered. An error that was noted already is passed on as it is.
    pub(crate) fn note(&self, answer: Result<Response<Body>, kube::Error>) -> Result<Response<Body>, BoxError> {
        match answer {
            Ok(response) => {
                if let Some(began) = self.since.lock().take() {
                    tracing::info!(host = %self.host, after = ?began.elapsed(), "the API server answers again");
                }
                Ok(response)
            }
            Err(kube::Error::Service(source)) if !source.is::<Unreachable>() => Err(self.begin(source).into()),
            Err(kube::Error::HyperError(source)) => Err(self.begin(source.into()).into()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn refused() -> kube::Error {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        kube::Error::Service(refused.into())
    }

    #[test]
    fn an_error_names_server_and_cause_and_is_noted_once() {
        let inner = Outage::new("https://127.0.0.1:6443".into());
        let outer = Outage::new("another layer".into());
        let noted = kube::Error::Service(inner.note(Err(refused())).unwrap_err());
        assert!(is_unreachable(&noted));
        let noted = *outer.note(Err(noted)).unwrap_err().downcast::<kube::Error>().unwrap();
        assert_eq!(cause(&noted), "https://127.0.0.1:6443 cannot be reached: connection refused");
        assert!(inner.since.lock().is_some() && outer.since.lock().is_none());
        inner.note(Ok(Response::new(Body::empty()))).unwrap();
        assert!(inner.since.lock().is_none(), "over");
    }
}
