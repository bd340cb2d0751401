//! How many requests were made, by answer: `rest_client_requests_total`, as client-go counts them, so
//! those that were sent again too.

use http::{Method, Request};
use kube::client::Body;

use crate::metrics::{Registry, WeakRegistry};
use crate::outage::Outage;
use crate::retry::{Account, Attempts};

/// A client whose requests are counted.
pub(super) fn counted(client: kube::Client, registry: &Registry) -> kube::Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let registry = registry.downgrade();
    // For clients that do not know their server by name.
    let outage = Outage::new("the API server".into());
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let (client, registry, outage) = (client.clone(), registry.clone(), outage.clone());
        async move {
            let account = Account::default();
            request.extensions_mut().insert(account.clone());
            let mut counting = Counting { registry, method: request.method().clone(), account, code: None };
            let answer = client.send(request).await;
            counting.code = answer.as_ref().ok().map(|answer| answer.status().as_str().to_owned());
            outage.note(answer)
        }
    });
    kube::Client::new(service, namespace).with_valid_until(valid_until)
}

/// A request that is under way. It counts when it is done with, so also when its sender gives it up.
struct Counting {
    registry: WeakRegistry,
    method: Method,
    account: Account,
    /// The last answer's, if there was one.
    code: Option<String>,
}

impl Drop for Counting {
    fn drop(&mut self) {
        let Some(registry) = self.registry.upgrade() else { return };
        let Attempts { host, refusals, pausing } = self.account.close();
        let count = |code: &str| {
            let labels = [("code", code), ("host", &*host), ("method", self.method.as_str())];
            let help = "HTTP requests that were sent, by the answer's code, the host and the method";
            registry.counter("rest_client_requests_total", help, &labels).inc();
        };
        for refusal in &refusals {
            count(refusal.as_str());
        }
        match &self.code {
            Some(code) => count(code),
            // What was given up between two tries has had its answers.
            None if pausing => {}
            None => count("<error>"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use http::Response;
    use tower::BoxError;

    use super::*;
    use crate::retry::with_retries;

    /// A server that is busy twice, then accepts requests and forgets them.
    #[tokio::test(start_paused = true)]
    async fn requests_that_are_given_up_are_counted() {
        let asked = Arc::new(AtomicUsize::new(0));
        let server = tower::service_fn(move |_: Request<Body>| {
            let nth = asked.fetch_add(1, Ordering::Relaxed);
            async move {
                if nth >= 2 {
                    futures::future::pending::<()>().await;
                }
                let answer = Response::builder().status(429).header("retry-after", "60");
                answer.body(Body::empty()).map_err(BoxError::from)
            }
        });
        let registry = Registry::default();
        let client = with_retries(kube::Client::new(server, "default"), "server".into(), None);
        let client = counted(client, &registry);
        let given_up_after = async |seconds| {
            let request = Request::get("/version").body(Body::empty()).unwrap();
            let sent = tokio::time::timeout(Duration::from_secs(seconds), client.send(request)).await;
            assert!(sent.is_err(), "no answer");
            let count = |code| {
                let labels = [("code", code), ("host", "server"), ("method", "GET")];
                registry.counter("rest_client_requests_total", "", &labels).get()
            };
            (count("429"), count("<error>"))
        };
        assert_eq!(given_up_after(30).await, (1, 0), "in the pause: there is no other request");
        assert_eq!(given_up_after(90).await, (2, 1));
        assert_eq!(given_up_after(30).await, (2, 2));
    }
}
