//! Policies are told what is doubtful about them, and roles gather rules.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use windlass_cluster::{BuiltIn, Cluster, Controllers};

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

#[tokio::test]
async fn aggregated_roles_are_applied_by_their_controller() {
    let cluster = Cluster::start().await.unwrap();
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let has_rules = |role: Option<&ClusterRole>, least: usize| {
        role.and_then(|role| role.rules.as_ref()).is_some_and(|rules| rules.len() >= least)
    };
    until(&roles, "admin", |role| has_rules(role, 10)).await;
    let select = json!({"matchLabels": {"to": "top"}});
    create(&roles, json!({"metadata": {"name": "top"}, "aggregationRule": {"clusterRoleSelectors": [select]}})).await;
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    create(&roles, json!({"metadata": {"name": "part", "labels": {"to": "top"}}, "rules": [rule]})).await;
    until(&roles, "top", |role| has_rules(role, 1)).await;
    let managers = roles.get("top").await.unwrap().metadata.managed_fields.unwrap();
    let entry = managers.iter().find(|entry| entry.manager.as_deref() == Some("clusterrole-aggregation-controller"));
    assert_eq!(entry.and_then(|entry| entry.operation.as_deref()), Some("Apply"));
    merge(&roles, "part", json!({"metadata": {"labels": {"to": null}}})).await;
    until(&roles, "top", |role| role.is_some_and(|role| role.rules.is_none())).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn an_api_server_alone_aggregates_no_roles() {
    let cluster = Cluster::builder().controllers(Controllers::none()).start().await.unwrap();
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let view = roles.get("view").await.unwrap();
    assert!(view.aggregation_rule.is_some() && view.rules.is_none(), "{view:?}");
    let cluster = cluster.restart().await.unwrap();
    let same = Api::<ClusterRole>::all(cluster.client()).get("view").await.unwrap();
    assert_eq!(same.metadata.resource_version, view.metadata.resource_version);
    assert_eq!(BuiltIn::RoleAggregation.name(), "clusterrole-aggregation-controller");
    cluster.stop().await.unwrap();
}
