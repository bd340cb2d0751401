//! Admission plugins that are off by default, each as it is in a cluster that enables it.

use http::Method;
use serde_json::{Value, json};
use windlass_server::authn::User;
use windlass_server::{AdmissionPlugin, AdmissionPlugins, Server};

use crate::client::{Answer, create, get, post, send, send_to};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn with(plugin: AdmissionPlugin) -> Server {
    let plugins = AdmissionPlugins::default().without(AdmissionPlugin::ServiceAccount).with(plugin);
    Server::builder().admission_plugins(plugins).start().await.unwrap()
}

fn pod(name: &str, mut spec: Value) -> Value {
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent"}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn refusal(answer: &Answer) -> (u16, &str) {
    (answer.code, answer.message())
}

#[tokio::test]
async fn always_pull_images_changes_new_images_only() {
    let server = with(AdmissionPlugin::AlwaysPullImages).await;
    let volume = json!([{"name": "v", "image": {"reference": "r", "pullPolicy": "Never"}}]);
    let spec = json!({"volumes": volume, "initContainers": [{"name": "i", "image": "i", "imagePullPolicy": "Never"}]});
    let made = create(&server, PODS, &pod("p", spec)).await;
    assert_eq!(made["spec"]["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(made["spec"]["initContainers"][0]["imagePullPolicy"], "Always");
    assert_eq!(made["spec"]["volumes"][0]["image"]["pullPolicy"], "Always");
    let image = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&server, Method::PATCH, &format!("{PODS}/p"), &image).await.code, 200);
}

#[tokio::test]
async fn pods_must_be_apart_by_node_only() {
    let server = with(AdmissionPlugin::LimitPodHardAntiAffinityTopology).await;
    let apart = |key: &str| {
        let term = json!({"topologyKey": key, "labelSelector": {}});
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    create(&server, PODS, &pod("p", apart("kubernetes.io/hostname"))).await;
    let refused = post(&server, PODS, &pod("q", apart("topology.kubernetes.io/zone"))).await;
    let words = "pods \"q\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey \
                 topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed";
    assert_eq!(refusal(&refused), (403, words));
}

#[tokio::test]
async fn services_get_no_further_external_addresses() {
    let server = with(AdmissionPlugin::DenyServiceExternalIPs).await;
    let service = |addresses: Value| json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "externalIPs": addresses}});
    let words = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
    let refused = post(&server, SERVICES, &service(json!(["203.0.113.1"]))).await;
    assert_eq!(refusal(&refused), (403, words));
    create(&server, SERVICES, &service(json!([]))).await;
    let path = format!("{SERVICES}/s");
    let change = json!({"spec": {"externalIPs": ["203.0.113.1"]}});
    assert_eq!(refusal(&send(&server, Method::PATCH, &path, &change).await), (403, words));
    assert_eq!(send(&server, Method::PATCH, &path, &json!({"metadata": {"labels": {"a": "b"}}})).await.code, 200);
}

#[tokio::test]
async fn a_missing_namespace_is_provided() {
    let server = with(AdmissionPlugin::NamespaceAutoProvision).await;
    let map = json!({"metadata": {"name": "m"}});
    let tried = post(&server, "/api/v1/namespaces/new/configmaps?dryRun=All", &map).await;
    assert_eq!(refusal(&tried), (404, "namespaces \"new\" not found"));
    create(&server, "/api/v1/namespaces/new/configmaps", &map).await;
    let namespace = get(&server, "/api/v1/namespaces/new").await.body;
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "new");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    create(&server, "/api/v1/namespaces/new/configmaps", &json!({"metadata": {"name": "n"}})).await;
    let wrong = post(&server, "/api/v1/namespaces/N_/configmaps", &map).await;
    assert_eq!(wrong.code, 403);
    assert!(
        wrong.message().starts_with("configmaps \"m\" is forbidden: Namespace \"N_\" is invalid: "),
        "{}",
        wrong.body
    );
}

#[tokio::test]
async fn nothing_is_written_where_the_namespace_is_gone() {
    let plugins = AdmissionPlugins::default()
        .without(AdmissionPlugin::ServiceAccount)
        .without(AdmissionPlugin::NamespaceLifecycle)
        .with(AdmissionPlugin::NamespaceExists);
    let server = Server::builder().admission_plugins(plugins).start().await.unwrap();
    let answer = post(&server, "/api/v1/namespaces/none/configmaps", &json!({"metadata": {"name": "m"}})).await;
    assert_eq!(refusal(&answer), (404, "namespaces \"none\" not found"));
    create(&server, MAPS, &json!({"metadata": {"name": "m"}})).await;
    assert_eq!(send(&server, Method::DELETE, &format!("{MAPS}/m"), &Value::Null).await.code, 200);
}

#[tokio::test]
async fn extended_resources_are_tolerated() {
    let server = with(AdmissionPlugin::ExtendedResourceToleration).await;
    let amounts = json!({"example.com/device": "1", "cpu": "1"});
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]);
    let made = create(&server, PODS, &pod("p", json!({"containers": containers}))).await;
    let tolerations = made["spec"]["tolerations"].as_array().unwrap();
    let own = json!({"key": "example.com/device", "operator": "Exists", "effect": "NoSchedule"});
    assert!(tolerations.contains(&own), "{tolerations:?}");
    assert!(tolerations.iter().all(|toleration| toleration["key"] != "cpu"));
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let changed = send(&server, Method::PATCH, &format!("{PODS}/p"), &label).await;
    assert_eq!(changed.body["spec"]["tolerations"], made["spec"]["tolerations"], "nothing is added twice");
}

#[tokio::test]
async fn pods_get_the_node_selector_of_their_namespace() {
    let server = with(AdmissionPlugin::PodNodeSelector).await;
    let select = |selector: &str| json!({"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/node-selector": selector}}});
    let namespace = "/api/v1/namespaces/default";
    assert_eq!(send(&server, Method::PATCH, namespace, &select("env=test,zone=a")).await.code, 200);
    let made = create(&server, PODS, &pod("p", json!({"nodeSelector": {"disk": "fast", "zone": "a"}}))).await;
    assert_eq!(made["spec"]["nodeSelector"], json!({"disk": "fast", "env": "test", "zone": "a"}));
    let refused = post(&server, PODS, &pod("q", json!({"nodeSelector": {"env": "other"}}))).await;
    let words = "pods \"q\" is forbidden: pod node label selector conflicts with its namespace node label selector";
    assert_eq!(refusal(&refused), (403, words));
    assert_eq!(send(&server, Method::PATCH, namespace, &select("env")).await.code, 200);
    assert_eq!(refusal(&post(&server, PODS, &pod("q", json!({}))).await), (500, "invalid selector: [env]"));
}

#[tokio::test]
async fn owners_are_set_by_those_who_may_delete() {
    let server = with(AdmissionPlugin::OwnerReferencesPermissionEnforcement).await;
    let owner = create(&server, MAPS, &json!({"metadata": {"name": "owner"}})).await;
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "update", "patch"]}]);
    create(
        &server,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        &json!({"metadata": {"name": "r"}, "rules": rules}),
    )
    .await;
    let binding = json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}});
    create(&server, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let jane = || server.service_as(User::new("jane", ["system:authenticated".to_owned()]));
    let reference = |kind: &str, blocks: bool| json!({"apiVersion": "v1", "kind": kind, "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks});
    let owned = |name: &str, reference: Value| json!({"metadata": {"name": name, "ownerReferences": [reference]}});
    let by_jane = async |object: Value| send_to(jane(), Method::POST, MAPS, &object).await;

    assert_eq!(by_jane(owned("a", reference("ConfigMap", false))).await.code, 201);
    let words = "configmaps \"b\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource \
                 you can't set finalizers on: , <nil>";
    assert_eq!(refusal(&by_jane(owned("b", reference("ConfigMap", true))).await), (403, words));
    let words = "configmaps \"c\" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping \
                 for APIVersion v1 Kind Missing: no matches for kind \"Missing\" in version \"v1\"";
    assert_eq!(refusal(&by_jane(owned("c", reference("Missing", true))).await), (403, words));
    create(&server, MAPS, &owned("admins", reference("Missing", true))).await;

    let change = json!({"metadata": {"ownerReferences": []}});
    let refused = send_to(jane(), Method::PATCH, &format!("{MAPS}/a"), &change).await;
    let words = "configmaps \"a\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>";
    assert_eq!(refusal(&refused), (403, words));
    let unrelated = json!({"data": {"a": "b"}});
    assert_eq!(send_to(jane(), Method::PATCH, &format!("{MAPS}/a"), &unrelated).await.code, 200);
    assert_eq!(send(&server, Method::PATCH, &format!("{MAPS}/a"), &change).await.code, 200);
}

#[tokio::test]
async fn always_deny_denies_and_always_admit_does_nothing() {
    let server = with(AdmissionPlugin::AlwaysDeny).await;
    let words = "configmaps \"m\" is forbidden: admission control is denying all modifications";
    assert_eq!(refusal(&post(&server, MAPS, &json!({"metadata": {"name": "m"}})).await), (403, words));
    let path = "/api/v1/namespaces/default";
    let words = "namespaces \"default\" is forbidden: admission control is denying all modifications";
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(refusal(&send(&server, Method::PATCH, path, &label).await), (403, words));
    let path = "/api/v1/namespaces/kube-node-lease";
    let words = "namespaces \"kube-node-lease\" is forbidden: admission control is denying all modifications";
    assert_eq!(refusal(&send(&server, Method::DELETE, path, &Value::Null).await), (403, words));
    assert_eq!(get(&server, path).await.code, 200);
    create(&with(AdmissionPlugin::AlwaysAdmit).await, MAPS, &json!({"metadata": {"name": "m"}})).await;
}
