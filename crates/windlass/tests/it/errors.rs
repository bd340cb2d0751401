//! How errors of the server read, and what can be told from them.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Patch;
use serde_json::json;
use windlass::children::ChildError;
use windlass::webhook::Denied;
use windlass::{CachedClient, ObjectKey, ReconcileError};

#[derive(Debug, thiserror::Error)]
enum Own {
    #[error(transparent)]
    Client(#[from] windlass::client::ClientError),
}

#[tokio::test]
async fn conflicts_are_known_however_they_are_wrapped() {
    let server = windlass_server::Server::builder().start().await.expect("a server");
    let client = CachedClient::standalone(kube::Client::new(server.service(), "default"), "t");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("x".into());
    map.metadata.namespace = Some("default".into());
    let old = client.create(&map).await.expect("created");
    client.patch::<ConfigMap>(&ObjectKey::of(&old), &Patch::Merge(json!({"data": {"a": "b"}}))).await.expect("patched");
    let conflict = async || client.update(&old).await.expect_err("a conflict");

    let message = "update configmaps/v1 default/x: Operation cannot be fulfilled on configmaps \"x\": the object has been \
        modified; please apply your changes to the latest version and try again";
    assert_eq!(format!("{:?}", conflict().await), message);
    assert_eq!(ReconcileError::new(conflict().await).to_string(), message);
    assert!(ReconcileError::new(conflict().await).is_conflict());
    assert!(ReconcileError::new(ChildError::from(conflict().await)).is_conflict());
    assert!(ReconcileError::new(Own::from(conflict().await)).is_conflict());
    assert_eq!(Denied::from(Own::from(conflict().await)).status().code, 409);
    client.caches().stop().await;
}
