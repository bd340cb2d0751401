//! Policies are told what is doubtful about them.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use windlass_cluster::Cluster;

use crate::objects::{create, merge, namespaced, until, until_there};

#[tokio::test]
async fn a_policys_status_has_the_warnings_of_its_generation() {
    let cluster = Cluster::start().await.unwrap();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client());
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]});
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.replicas < 3"}, {"expression": "object.spec.replicsa < 3"}]}});
    create(&policies, policy).await;
    let observed = |policy: Option<&ValidatingAdmissionPolicy>, generation: i64| {
        policy.and_then(|policy| policy.status.as_ref()?.observed_generation) == Some(generation)
    };
    until(&policies, "p", |policy| observed(policy, 1)).await;
    let seen = policies.get("p").await.unwrap();
    let warnings = seen.status.unwrap().type_checking.unwrap().expression_warnings.unwrap();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].field_ref, "spec.validations[1].expression");
    let start = "apps/v1, Kind=Deployment: compilation failed: ERROR: <input>:1:12: undefined field 'replicsa'";
    assert!(warnings[0].warning.starts_with(start), "{}", warnings[0].warning);
    let owners = seen.metadata.managed_fields.unwrap();
    assert!(owners.iter().any(|entry| entry.manager.as_deref() == Some("validatingadmissionpolicy-status")));

    merge(&policies, "p", json!({"spec": {"validations": [{"expression": "object.spec.replicas < 3"}]}})).await;
    until(&policies, "p", |policy| observed(policy, 2)).await;
    let checked = policies.get("p").await.unwrap().status.unwrap().type_checking;
    assert_eq!(checked.and_then(|checked| checked.expression_warnings), None);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn admission_can_tell_controllers_from_administrators() {
    let cluster = Cluster::start().await.unwrap();
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policy = json!({"metadata": {"name": "controllers-only"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression":
            "request.userInfo.username == 'system:serviceaccount:kube-system:root-ca-cert-publisher'"}]}});
    create(&Api::<ValidatingAdmissionPolicy>::all(cluster.client()), policy).await;
    let binding = json!({"metadata": {"name": "controllers-only"}, "spec": {
        "policyName": "controllers-only", "validationActions": ["Deny"]}});
    create(&Api::<ValidatingAdmissionPolicyBinding>::all(cluster.client()), binding).await;

    create(&Api::<Namespace>::all(cluster.client()), json!({"metadata": {"name": "n"}})).await;
    let maps: Api<ConfigMap> = namespaced(&cluster.client(), "n");
    until_there(&maps, "kube-root-ca.crt").await;
    let mine = serde_json::from_value(json!({"metadata": {"name": "mine"}})).unwrap();
    let refused = maps.create(&PostParams::default(), &mine).await;
    assert!(refused.unwrap_err().to_string().contains("controllers-only"));
    cluster.stop().await.unwrap();
}
