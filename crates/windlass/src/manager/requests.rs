//! How many requests were made, by answer: `rest_client_requests_total`, as client-go counts them.

use http::Request;
use kube::client::Body;
use tower::BoxError;

use crate::metrics::Registry;
use crate::retry::Host;

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
            let code = answer.as_ref().map_or("<error>".to_owned(), |answer| answer.status().as_u16().to_string());
            // Known of clients that `config` has made.
            let host = answer.as_ref().ok().and_then(|answer| answer.extensions().get::<Host>().cloned());
            let host = host.unwrap_or_default();
            let labels = [("code", code.as_str()), ("host", &host.0), ("method", method.as_str())];
            let help = "Number of HTTP requests, partitioned by status code, method, and host.";
            registry.counter("rest_client_requests_total", help, &labels).inc();
            answer.map_err(BoxError::from)
        }
    });
    kube::Client::new(service, namespace).with_valid_until(valid_until)
}
