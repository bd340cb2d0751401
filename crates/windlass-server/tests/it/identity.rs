//! The Lease by which others know a server that listens.

use serde_json::json;
use windlass_server::pki::Authority;

use crate::client::{eventually, get, start};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

#[tokio::test]
async fn a_server_that_listens_has_an_identity_lease() {
    let server = start().await;
    let selected = format!("{LEASES}?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver");
    assert_eq!(get(&server, &selected).await.body["items"], json!([]));
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    let count = |answer: &crate::client::Answer| answer.body["items"].as_array().map_or(0, Vec::len);
    let found = eventually(&server, &selected, |answer| count(answer) == 1).await;
    let lease = &found["items"][0];
    let name = lease["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("apiserver-") && name.len() == 36, "{name}");
    assert!(lease["spec"]["holderIdentity"].as_str().unwrap().starts_with(&format!("{name}_")));
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 3600);
    listener.stop().await;
    assert_eq!(get(&server, &selected).await.body["items"], json!([]));
}
