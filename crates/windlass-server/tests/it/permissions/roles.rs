//! Rights that are about rights: roles, bindings and certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use super::{Ask, Checker, RBAC};
use crate::client::create;

const GROUP: &str = "rbac.authorization.k8s.io";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn role(name: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]})
}

fn binding(name: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "secrets"},
        "subjects": [{"kind": "User", "apiGroup": GROUP, "name": "friend"}]})
}

#[tokio::test]
async fn no_write_of_a_role_escalates_privileges() {
    let mut checker = Checker::start().await;
    create(&checker.server, &format!("{RBAC}/namespaces/default/roles"), &role("secrets")).await;
    for (plural, object, more, old) in [
        ("roles", role as fn(&str) -> Value, "escalate roles", json!({"rules": []})),
        ("rolebindings", binding, "bind roles", json!({"subjects": []})),
    ] {
        let all = format!("create,update,patch {plural}.{GROUP}");
        let more = format!("{more}.{GROUP}");
        let collection = format!("{RBAC}/namespaces/default/{plural}");
        let why = |name: &str| {
            format!(
                "{plural}.{GROUP} \"{name}\" is forbidden: user \"USER\" (groups=[\"system:authenticated\"]) is \
                 attempting to grant RBAC permissions not currently held:\n\
                 {{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}}"
            )
        };
        let (put, applied) = (format!("{collection}/put"), format!("{collection}/applied?fieldManager=m"));
        let held = "get secrets";
        for (name, ask) in [
            ("posted", Ask::post(&collection, object("posted"))),
            ("put", Ask::put(&put, object("put"))),
            ("applied", Ask::apply(&applied, object("applied"))),
        ] {
            checker.refuses(&[&all], ask.clone(), &why(name)).await;
            checker.answers(&[&all, &more], ask, 201).await;
        }
        // Nor does a change of what was harmless.
        for (name, rights) in [("first", &more), ("second", &held.to_owned())] {
            let mut harmless = object(name);
            for (field, value) in old.as_object().unwrap() {
                harmless[field] = value.clone();
            }
            create(&checker.server, &collection, &harmless).await;
            let path = format!("{collection}/{name}");
            let mut change = object(name);
            change.as_object_mut().unwrap().remove("metadata");
            checker.refuses(&[&all], Ask::patch(&path, change.clone()), &why(name)).await;
            checker.answers(&[&all, rights], Ask::patch(&path, change), 200).await;
        }
    }
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn approving_and_signing_take_rights_on_the_signer() {
    let mut checker = Checker::start().await;
    let pem = CertificateParams::default().serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let spec = json!({"request": STANDARD.encode(pem), "signerName": "example.com/a", "usages": ["client auth"]});
    for name in ["approve", "sign"] {
        create(&checker.server, REQUESTS, &json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let resource = "certificatesigningrequests.certificates.k8s.io";
    let why = |verb: &str| {
        format!(
            "{resource} \"{verb}\" is forbidden: user not permitted to {verb} requests with signerName \"example.com/a\""
        )
    };
    let condition = |kind: &str| json!([{"type": kind, "status": "True", "reason": "Because", "message": "m", "lastUpdateTime": null}]);
    let approve = json!({"status": {"conditions": condition("Approved")}});
    let sign = json!({"status": {"conditions": condition("Failed")}});
    for (verb, subresource, change) in [("approve", "approval", approve), ("sign", "status", sign)] {
        let path = format!("{REQUESTS}/{verb}/{subresource}");
        let ask = || Ask::patch(&path, change.clone());
        let patch = format!("patch {resource}/{subresource}");
        let signer = |name: &str| format!("{verb} signers.certificates.k8s.io:{name}");
        checker.answers(&[&signer("*"), &format!("patch {resource}")], ask(), 403).await;
        checker.refuses(&[&patch], ask(), &why(verb)).await;
        checker.refuses(&[&patch, &signer("example.com/b")], ask(), &why(verb)).await;
        checker.refuses(&[&patch, &signer("other.com/*")], ask(), &why(verb)).await;
        checker.answers(&[&patch, &signer("example.com/*")], ask(), 200).await;
    }
    checker.server.stop().await.unwrap();
}
