//! How many requests were made, by answer: `rest_client_requests_total`, as client-go counts them, so
//! those that were sent again too.

use http::Request;
use kube::client::Body;
use tower::BoxError;

use crate::metrics::Registry;
use crate::retry::{Account, Attempts};

/// A client whose requests are counted.
pub(super) fn counted(client: kube::Client, registry: &Registry) -> kube::Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let registry = registry.downgrade();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let (client, registry) = (client.clone(), registry.clone());
        async move {
            let (method, account) = (request.method().clone(), Account::default());
            request.extensions_mut().insert(account.clone());
            let answer = client.send(request).await;
            let Some(registry) = registry.upgrade() else { return answer.map_err(BoxError::from) };
            let Attempts { host, refusals } = account.close();
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
