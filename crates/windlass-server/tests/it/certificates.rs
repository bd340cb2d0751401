//! Requests for certificates: the requester is the user of the request, and not all users get everything.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::string::{BmpString, TeletexString, UniversalString};
use rcgen::{CertificateParams, DnType, DnValue, KeyPair};
use serde_json::{Value, json};

use crate::client::{apply, get, post, start};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A request that claims to come from another user, for a member of an organization.
fn request(name: &str, signer: &str, organization: impl Into<DnValue>) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"],
            "username": "evil", "groups": ["system:masters"], "uid": "x"}})
}

#[tokio::test]
async fn requests_are_made_in_ones_own_name() {
    let server = start().await;
    let created = post(&server, REQUESTS, &request("posted", "example.com/a", "friends")).await;
    assert_eq!(created.code, 201, "{}", created.message());
    let path = format!("{REQUESTS}/applied");
    let forged = request("applied", "example.com/a", "friends");
    assert_eq!(apply(&server, &format!("{path}?fieldManager=m"), &forged).await.code, 201);
    let applied = get(&server, &path).await.body;
    for field in ["username", "groups", "uid", "extra"] {
        assert_eq!(applied["spec"].get(field), created.body["spec"].get(field), "{field}");
    }
    assert_ne!(applied["spec"]["username"], "evil");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn certificates_make_no_masters() {
    let server = start().await;
    let signer = "kubernetes.io/kube-apiserver-client";
    let refused = post(&server, REQUESTS, &request("a", signer, "system:masters")).await;
    assert_eq!(
        (refused.code, refused.message()),
        (
            403,
            "certificatesigningrequests.certificates.k8s.io \"a\" is forbidden: use of \
             kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
        )
    );
    assert_eq!(post(&server, REQUESTS, &request("b", signer, "friends")).await.code, 201);
    let masters = "system:masters";
    for (kind, organization) in [
        ("bmp", DnValue::BmpString(BmpString::try_from(masters).unwrap())),
        ("teletex", DnValue::TeletexString(TeletexString::try_from(masters).unwrap())),
        ("universal", DnValue::UniversalString(UniversalString::try_from(masters).unwrap())),
    ] {
        let refused = post(&server, REQUESTS, &request(kind, signer, organization)).await;
        assert_eq!(refused.code, 403, "{kind}: {}", refused.body);
    }
    let friends = DnValue::BmpString(BmpString::try_from("friends").unwrap());
    assert_eq!(post(&server, REQUESTS, &request("c", signer, friends)).await.code, 201);
    server.stop().await.unwrap();
}
