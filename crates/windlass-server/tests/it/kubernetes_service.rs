//! The Service by which the cluster reaches its own API server comes back by itself.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;
use windlass_server::pki::Authority;

use crate::client::{eventually, get, get_with, send, start};

const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

/// Waits for an object to be as it should.
async fn until(server: &Server, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    eventually(server, path, |answer| answer.code == 200 && is_right(&answer.body)).await
}

#[tokio::test(start_paused = true)]
async fn the_service_and_its_endpoints_come_back() {
    let server = start().await;
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    let port = listener.address().port();
    let has_port = |service: &Value| service["spec"]["ports"][0]["targetPort"] == port;
    until(&server, SERVICE, has_port).await;
    let api = get(&server, "/api").await.body;
    let advertised = api["serverAddressByClientCIDRs"][0]["serverAddress"].as_str().unwrap().to_owned();
    assert!(advertised.ends_with(&format!(":{port}")), "{advertised}");

    send(&server, Method::DELETE, SERVICE, &Value::Null).await;
    assert_eq!(get(&server, SERVICE).await.code, 404);
    tokio::time::advance(Duration::from_secs(10)).await;
    let service = until(&server, SERVICE, has_port).await;
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(service["metadata"]["labels"], json!({"component": "apiserver", "provider": "kubernetes"}));

    // A host without a network has no address that Endpoints may hold.
    if !advertised.starts_with("127.") {
        let ip = advertised.rsplit_once(':').unwrap().0;
        let has_ip = |endpoints: &Value| endpoints["subsets"][0]["addresses"] == json!([{"ip": ip}]);
        let endpoints = until(&server, ENDPOINTS, has_ip).await;
        assert_eq!(endpoints["metadata"]["labels"]["endpointslice.kubernetes.io/skip-mirror"], "true");
        until(&server, SLICE, |slice| slice["ports"][0]["port"] == port).await;
        let elsewhere = json!({"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 1}]}]});
        assert_eq!(send(&server, Method::PATCH, ENDPOINTS, &elsewhere).await.code, 200);
        assert_eq!(send(&server, Method::DELETE, SLICE, &Value::Null).await.code, 200);
        tokio::time::advance(Duration::from_secs(10)).await;
        until(&server, ENDPOINTS, has_ip).await;
        let slice = until(&server, SLICE, |slice| slice["ports"][0]["port"] == port).await;
        assert_eq!(slice["endpoints"][0]["addresses"], json!([ip]));
    }
    listener.stop().await;
    server.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_while_nothing_changes() {
    let server = start().await;
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    until(&server, SERVICE, |_| true).await;
    // What the server wrote itself is looked at once more.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let requests = async || {
        let metrics = get_with(&server, "/metrics", &[]).await;
        let text = String::from_utf8(metrics.body().to_vec()).unwrap();
        let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        let lines = text.lines().filter(|line| line.starts_with("apiserver_request_total{"));
        // The server's own Lease is renewed three times an hour.
        lines.filter(|line| !line.contains("resource=\"leases\"")).map(count).sum::<u64>()
    };
    let before = requests().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(requests().await, before);
    listener.stop().await;
    server.stop().await.unwrap();
}
