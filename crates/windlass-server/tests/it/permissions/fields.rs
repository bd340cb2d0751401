//! Fields that take more than the right to write their object.

use serde_json::{Value, json};
use windlass_server::authn::User;

use super::{Ask, Checker, grant};
use crate::client::{create, send};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

fn policy(kind: &str, name: &str) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let mut spec = json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "matchConstraints": {"resourceRules": [rule]}});
    if kind == "mutating" {
        spec["reinvocationPolicy"] = "Never".into();
        spec["mutations"] =
            json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/x'}]"}}]);
    } else {
        spec["validations"] = json!([{"expression": "true"}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn binding(kind: &str, name: &str, policy: &str, reference: Value) -> Value {
    let mut reference = reference;
    reference["parameterNotFoundAction"] = "Deny".into();
    let mut spec = json!({"policyName": policy, "paramRef": reference});
    if kind == "validating" {
        spec["validationActions"] = json!(["Deny"]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_policy_reads_only_what_its_writer_may_read() {
    let mut checker = Checker::start().await;
    for kind in ["validating", "mutating"] {
        let (policies, bindings) = (format!("{kind}admissionpolicies"), format!("{kind}admissionpolicybindings"));
        let path = format!("{ADMISSION}/{policies}");
        let write = format!("create,patch {policies}.admissionregistration.k8s.io");
        let user = checker.user(&[&write, "get secrets:one", "list secrets"]).await;
        let answer = Ask::post(&path, policy(kind, "p")).send(&checker.server, user.clone()).await;
        let user = format!("&{{{}  [system:authenticated] map[]}}", user.name);
        let why = format!(
            "spec.paramKind: Forbidden: user {user} must have \"get\" permission on all objects of the referenced \
             paramKind (kind=Secret, apiVersion=v1)"
        );
        assert_eq!((answer.code, answer.message().split(": ").skip(1).collect::<Vec<_>>().join(": ")), (422, why));
        checker.answers(&[&write, "get secrets"], Ask::post(&path, policy(kind, "p")), 201).await;
        // What stays as it is was allowed before.
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        checker.answers(&[&write], Ask::patch(&format!("{path}/p"), labels), 200).await;

        let path = format!("{ADMISSION}/{bindings}");
        let write = format!("create {bindings}.admissionregistration.k8s.io");
        let one = json!({"name": "one", "namespace": "default"});
        let any = json!({"selector": {}, "namespace": "default"});
        for (name, reference, short, enough) in
            [("named", one, "get secrets:two", "get secrets:one"), ("selected", any, "get secrets", "list secrets")]
        {
            let ask = || Ask::post(&path, binding(kind, name, "p", reference.clone()));
            let answer = checker.answers(&[&write, short], ask(), 422).await;
            let why = "permission on the object referenced by paramRef";
            assert!(answer.message().ends_with(why), "{}", answer.body);
            checker.answers(&[&write, enough], ask(), 201).await;
        }
        // It is not known what a binding without a policy is going to read.
        let ask = || Ask::post(&path, binding(kind, "early", "later", json!({"name": "one", "namespace": "default"})));
        let answer = checker.answers(&[&write, "get secrets"], ask(), 422).await;
        assert!(answer.message().contains("unable to get policy later to determine"), "{}", answer.body);
        checker.answers(&[&write, "get *.*"], ask(), 201).await;
    }
    checker.server.stop().await.unwrap();
}

fn claim(name: &str, admin: bool) -> Value {
    let exactly = json!({"deviceClassName": "gpu", "adminAccess": admin});
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
}

fn allocation(node: &str) -> Value {
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    json!({"devices": {"results": [{"request": "r", "driver": "a.com", "pool": "p", "device": "d"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}})
}

#[tokio::test]
async fn devices_are_handed_out_by_those_who_may_bind_claims() {
    let mut checker = Checker::start().await;
    create(&checker.server, CLAIMS, &claim("c", false)).await;
    let path = format!("{CLAIMS}/c/status");
    let (write, bind) = ("patch resourceclaims.resource.k8s.io/status", "patch resourceclaims.resource.k8s.io/binding");
    let allocate = || Ask::patch(&path, json!({"status": {"allocation": allocation("n")}}));
    let answer = checker.answers(&[write], allocate(), 422).await;
    let why = "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires \
               resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is \
               forbidden: User \"user-1\" cannot patch resource \"resourceclaims/binding\" in API group \
               \"resource.k8s.io\" at the cluster scope";
    assert!(answer.message().ends_with(why), "{}", answer.body);
    checker.answers(&[write, bind], allocate(), 200).await;

    let report =
        || Ask::patch(&path, json!({"status": {"devices": [{"driver": "a.com", "pool": "p", "device": "d"}]}}));
    let driver = |verb: &str, name: &str| format!("{verb}-node:patch resourceclaims.resource.k8s.io/driver:{name}");
    let answer = checker.answers(&[write, bind, &driver("arbitrary", "b.com")], report(), 422).await;
    let why = "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", \
               verb=\"[arbitrary-node:patch]\" permission: resourceclaims.resource.k8s.io \"a.com\" is forbidden";
    assert!(answer.message().contains(why), "{}", answer.body);
    // A driver on the node that the claim is for reports on its own devices.
    let name = "system:serviceaccount:ns:driver";
    grant(&checker.server, name, &[write, &driver("associated", "a.com")]).await;
    let elsewhere = report().send(&checker.server, User::new(name, [])).await;
    assert_eq!(elsewhere.code, 422, "{}", elsewhere.body);
    let mut local = User::new(name, []);
    local.extra.insert("authentication.kubernetes.io/node-name".into(), vec!["n".into()]);
    let reported = report().send(&checker.server, local).await;
    assert_eq!(reported.code, 200, "{}", reported.body);
    let other = || Ask::patch(&path, json!({"status": {"devices": []}}));
    checker.answers(&[write], other(), 422).await;
    checker.answers(&[write, &driver("arbitrary", "a.com")], other(), 200).await;
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn admin_access_takes_a_labelled_namespace() {
    let checker = Checker::start().await;
    let template = |name: &str| {
        let spec = claim(name, true)["spec"].clone();
        json!({"metadata": {"name": name}, "spec": {"spec": spec}})
    };
    let templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
    let why = "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the \
               `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    for (path, body) in [(CLAIMS, claim("c", true)), (templates, template("c"))] {
        let answer = send(&checker.server, http::Method::POST, path, &body).await;
        assert_eq!(answer.code, 422, "{}", answer.body);
        assert!(answer.message().ends_with(why), "{}", answer.body);
    }
    let labels = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    assert_eq!(send(&checker.server, http::Method::PATCH, "/api/v1/namespaces/default", &labels).await.code, 200);
    create(&checker.server, CLAIMS, &claim("c", true)).await;
    create(&checker.server, templates, &template("c")).await;
    checker.server.stop().await.unwrap();
}
