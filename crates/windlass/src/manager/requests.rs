//! How many requests were made, by answer: `rest_client_requests_total`, as client-go counts them, so
//! those that were sent again too.

use http::Request;
use kube::client::Body;
use tower::BoxError;

use crate::metrics::Registry;
use crate::retry::Origin;

/// A client whose requests are counted.
pub(super) fn counted(client: kube::Client, registry: &Registry) -> kube::Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let registry = registry.downgrade();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, registry) = (client.clone(), registry.clone());
        async move {
            let method = request.method().clone();
            let answer = client.send(request).await;
            let Some(registry) = registry.upgrade() else { return answer.map_err(BoxError::from) };
            // Known of clients that `config` has made.
            let origin = answer.as_ref().ok().and_then(|answer| answer.extensions().get::<Origin>().cloned());
            let Origin { host, refusals } = origin.unwrap_or_default();
            let count = |code: &str| {
                let labels = [("code", code), ("host", &*host), ("method", method.as_str())];
                let help = "HTTP requests that were sent, by the answer's code, the host and the method";
                registry.counter("rest_client_requests_total", help, &labels).inc();
            };
            for refusal in &refusals {
                count(refusal.as_str());
            }
            match &answer {
                Ok(answer) => count(answer.status().as_str()),
                Err(_) => count("<error>"),
            }
            answer.map_err(BoxError::from)
        }
    });
    kube::Client::new(service, namespace).with_valid_until(valid_until)
}
