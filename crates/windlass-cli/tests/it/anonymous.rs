//! What a client without credentials gets: health and version, nothing else.

use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::windlass::Cluster;

/// A client that trusts the server and does not say who it is.
async fn anonymous(cluster: &Cluster) -> Client {
    let file = Kubeconfig::read_from(&cluster.kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let mut nobody = Config::new(config.cluster_url);
    nobody.root_cert = config.root_cert;
    Client::try_from(nobody).unwrap()
}

async fn code(client: &Client, method: &str, path: &str) -> u16 {
    let request = Request::builder().method(method).uri(path).body(Vec::new()).unwrap();
    match client.request_text(request).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

#[tokio::test]
async fn anonymous_users_get_health_and_version_only() {
    let cluster = Cluster::ephemeral();
    let client = anonymous(&cluster).await;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(code(&client, "GET", path).await, 200, "{path}");
    }
    for path in ["/", "/api", "/apis", "/api/v1", "/api/v1/secrets", "/openapi/v2", "/openapi/v3", "/metrics"] {
        assert_eq!(code(&client, "GET", path).await, 403, "{path}");
    }
    assert_eq!(code(&client, "POST", "/api/v1/namespaces").await, 403);
    assert_eq!(code(&client, "DELETE", "/api/v1/namespaces/default").await, 403);
}

#[tokio::test]
async fn a_wrong_token_is_refused() {
    let cluster = Cluster::ephemeral();
    let client = anonymous(&cluster).await;
    let request = Request::get("/version").header("authorization", "Bearer wrong").body(Vec::new()).unwrap();
    let Err(kube::Error::Api(status)) = client.request_text(request).await else { panic!("it was let in") };
    assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));
}
