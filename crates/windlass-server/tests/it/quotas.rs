//! Quotas and limit ranges: what is refused, what is charged, what is filled in.

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;
use windlass_store::{Expect, Write};

use crate::client::{Answer, create, get, post, send, start};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A quota whose usage is known: no controller runs here that would find out.
async fn quota(server: &Server, name: &str, hard: &Value, used: &Value) {
    create(server, QUOTAS, &json!({"metadata": {"name": name}, "spec": {"hard": hard}})).await;
    let status = json!({"status": {"hard": hard, "used": used}});
    let answer = send(server, Method::PATCH, &format!("{QUOTAS}/{name}/status"), &status).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

async fn used(server: &Server, name: &str) -> Value {
    get(server, &format!("{QUOTAS}/{name}")).await.body["status"]["used"].clone()
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn pod(name: &str, resources: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

#[track_caller]
fn check_forbidden(answer: &Answer, message: &str) {
    assert_eq!((answer.code, answer.body["reason"].as_str()), (403, Some("Forbidden")), "{}", answer.body);
    assert_eq!(answer.message(), message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_stay_within_the_quota() {
    let server = start().await;
    quota(&server, "q", &json!({"count/secrets": "7"}), &json!({"count/secrets": "2"})).await;
    quota(&server, "r", &json!({"secrets": "100"}), &json!({"secrets": "0"})).await;
    let service = server.service();
    let writers = (0..24).map(|i| {
        let service = service.clone();
        tokio::spawn(async move {
            let body = named(&format!("s{i}"));
            crate::client::send_to(service, Method::POST, SECRETS, &body).await.code
        })
    });
    let codes: Vec<u16> = join_all(writers).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 5, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 19, "{codes:?}");
    assert_eq!(used(&server, "q").await, json!({"count/secrets": "7"}));
    assert_eq!(used(&server, "r").await, json!({"secrets": "5"}));
    let stored = get(&server, SECRETS).await.body["items"].as_array().unwrap().len();
    assert_eq!(stored, 5);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn only_what_is_stored_is_charged() {
    let server = start().await;
    quota(&server, "q", &json!({"secrets": "2"}), &json!({"secrets": "0"})).await;
    let dry = post(&server, &format!("{SECRETS}?dryRun=All"), &named("a")).await;
    assert_eq!(dry.code, 201);
    assert_eq!(used(&server, "q").await, json!({"secrets": "0"}));
    create(&server, SECRETS, &named("a")).await;
    assert_eq!(post(&server, SECRETS, &named("a")).await.code, 409);
    assert_eq!(post(&server, SECRETS, &named("Not A Name")).await.code, 422);
    assert_eq!(used(&server, "q").await, json!({"secrets": "1"}));
    create(&server, SECRETS, &json!({"metadata": {"generateName": "g-"}})).await;
    let refused = post(&server, &format!("{SECRETS}?dryRun=All"), &named("b")).await;
    let why =
        "secrets \"b\" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=2, limited: secrets=2";
    check_forbidden(&refused, why);
    // Other kinds and other namespaces do not care.
    create(&server, &format!("{NAMESPACE}/configmaps"), &named("c")).await;
    create(&server, "/api/v1/namespaces/kube-public/secrets", &named("b")).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_update_is_charged_for_what_it_adds() {
    let server = start().await;
    let hard = json!({"services": "1", "services.nodeports": "1", "services.loadbalancers": "0"});
    let none = json!({"services": "0", "services.nodeports": "0", "services.loadbalancers": "0"});
    quota(&server, "q", &hard, &none).await;
    let body = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80, "name": "a"}]}});
    create(&server, SERVICES, &body).await;
    let path = format!("{SERVICES}/web");
    let balanced = send(&server, Method::PATCH, &path, &json!({"spec": {"type": "LoadBalancer"}})).await;
    check_forbidden(
        &balanced,
        "services \"web\" is forbidden: exceeded quota: q, requested: services.loadbalancers=1, used: \
         services.loadbalancers=0, limited: services.loadbalancers=0",
    );
    let dry = send(&server, Method::PATCH, &format!("{path}?dryRun=All"), &json!({"spec": {"type": "NodePort"}})).await;
    assert_eq!(dry.code, 200, "{}", dry.body);
    assert_eq!(used(&server, "q").await["services.nodeports"], "0");
    let opened = send(&server, Method::PATCH, &path, &json!({"spec": {"type": "NodePort"}})).await;
    assert_eq!(opened.code, 200, "{}", opened.body);
    let after = json!({"services": "1", "services.nodeports": "1", "services.loadbalancers": "0"});
    assert_eq!(used(&server, "q").await, after);
    let labelled = send(&server, Method::PATCH, &path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labelled.code, 200, "{}", labelled.body);
    assert_eq!(used(&server, "q").await, after);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn quotas_count_from_their_first_status_to_their_deletion() {
    let server = start().await;
    create(&server, QUOTAS, &json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}})).await;
    create(&server, PODS, &pod("early", &json!({}))).await;
    let hard = json!({"status": {"hard": {"pods": "0"}}});
    send(&server, Method::PATCH, &format!("{QUOTAS}/q/status"), &hard).await;
    let unknown = post(&server, PODS, &pod("p", &json!({}))).await;
    check_forbidden(&unknown, "pods \"p\" is forbidden: status unknown for quota: q, resources: pods");
    send(&server, Method::PATCH, &format!("{QUOTAS}/q/status"), &json!({"status": {"used": {"pods": "1"}}})).await;
    let exceeded = post(&server, PODS, &pod("p", &json!({}))).await;
    let why = "pods \"p\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=0";
    check_forbidden(&exceeded, why);
    assert_eq!(send(&server, Method::DELETE, &format!("{QUOTAS}/q"), &Value::Null).await.code, 200);
    create(&server, PODS, &pod("p", &json!({}))).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn scopes_and_requirements_decide_which_pods_are_charged() {
    let server = start().await;
    let spec = json!({"hard": {"requests.cpu": "1"}, "scopeSelector": {"matchExpressions": [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
    ]}});
    create(&server, QUOTAS, &json!({"metadata": {"name": "q"}, "spec": spec})).await;
    let status = json!({"status": {"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": "0"}}});
    send(&server, Method::PATCH, &format!("{QUOTAS}/q/status"), &status).await;
    let class = json!({"metadata": {"name": "high"}, "value": 10});
    create(&server, "/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
    create(&server, PODS, &pod("low", &json!({"requests": {"cpu": "9"}}))).await;
    let mut high = pod("high", &json!({}));
    high["spec"]["priorityClassName"] = "high".into();
    let silent = post(&server, PODS, &high).await;
    check_forbidden(&silent, "pods \"high\" is forbidden: failed quota: q: must specify requests.cpu for: c");
    high["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "600m"}});
    create(&server, PODS, &high).await;
    assert_eq!(used(&server, "q").await, json!({"requests.cpu": "600m"}));
    high["metadata"]["name"] = "higher".into();
    let exceeded = post(&server, PODS, &high).await;
    check_forbidden(
        &exceeded,
        "pods \"higher\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, \
         limited: requests.cpu=1",
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_resize_is_charged_and_limited() {
    let server = start().await;
    quota(&server, "q", &json!({"requests.cpu": "1"}), &json!({"requests.cpu": "0"})).await;
    let limits = json!([{"type": "Container", "max": {"cpu": "900m"}}]);
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": limits}});
    create(&server, &format!("{NAMESPACE}/limitranges"), &range).await;
    let asks = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": "900m"}});
    create(&server, PODS, &pod("other", &asks("300m"))).await;
    create(&server, PODS, &pod("p", &asks("500m"))).await;
    let resize = async |resources: Value| {
        let container = json!({"name": "c", "image": "i", "resources": resources});
        let patch = json!({"spec": {"containers": [container]}});
        send(&server, Method::PATCH, &format!("{PODS}/p/resize"), &patch).await
    };
    let refused = resize(asks("800m")).await;
    check_forbidden(
        &refused,
        "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=800m, limited: \
         requests.cpu=1",
    );
    let refused = resize(json!({"requests": {"cpu": "600m"}, "limits": {"cpu": "1"}})).await;
    check_forbidden(&refused, "pods \"p\" is forbidden: maximum cpu usage per Container is 900m, but limit is 1");
    let resized = resize(asks("700m")).await;
    assert_eq!(resized.code, 200, "{}", resized.body);
    assert_eq!(used(&server, "q").await, json!({"requests.cpu": "1"}));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn storage_is_charged_by_class() {
    let server = start().await;
    let gold = "gold.storageclass.storage.k8s.io/requests.storage";
    quota(&server, "q", &json!({gold: "2Gi"}), &json!({gold: "1Gi"})).await;
    let claim = |name: &str, class: &str, storage: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
               "resources": {"requests": {"storage": storage}}}})
    };
    let claims = format!("{NAMESPACE}/persistentvolumeclaims");
    create(&server, &claims, &claim("silver", "silver", "10Gi")).await;
    create(&server, &claims, &claim("a", "gold", "512Mi")).await;
    assert_eq!(used(&server, "q").await, json!({gold: "1536Mi"}));
    let refused = post(&server, &claims, &claim("b", "gold", "1Gi")).await;
    let why = format!(
        "persistentvolumeclaims \"b\" is forbidden: exceeded quota: q, requested: {gold}=1Gi, used: {gold}=1536Mi, \
         limited: {gold}=2Gi"
    );
    check_forbidden(&refused, &why);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn custom_resources_are_counted() {
    let server = start().await;
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    quota(&server, "q", &json!({"count/widgets.example.com": "1"}), &json!({"count/widgets.example.com": "0"})).await;
    let widget = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    create(&server, widgets, &widget("a")).await;
    let refused = post(&server, widgets, &widget("b")).await;
    check_forbidden(
        &refused,
        "widgets.example.com \"b\" is forbidden: exceeded quota: q, requested: count/widgets.example.com=1, used: \
         count/widgets.example.com=1, limited: count/widgets.example.com=1",
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_quota_that_another_server_wrote_takes_effect() {
    let server = start().await;
    let quota = json!({"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "q", "namespace": "default"},
                       "status": {"hard": {"secrets": "0"}, "used": {"secrets": "0"}}});
    let value = windlass_store::Value::plain(serde_json::to_vec(&quota).unwrap());
    let write = Write::Put { key: "/registry/resourcequotas/default/q".into(), expect: Expect::Absent, value };
    server.api().store.txn(vec![write]).await.unwrap();
    let refused = async {
        while post(&server, &format!("{SECRETS}?dryRun=All"), &named("s")).await.code != 403 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), refused).await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn limit_ranges_fill_in_and_refuse() {
    let server = start().await;
    let limits = json!([
        {"type": "Container", "default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}},
        {"type": "Pod", "max": {"cpu": "1500m"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}},
    ]);
    let ranges = format!("{NAMESPACE}/limitranges");
    create(&server, &ranges, &json!({"metadata": {"name": "l"}, "spec": {"limits": limits}})).await;
    let made = create(&server, PODS, &pod("p", &json!({}))).await;
    let resources = json!({"limits": {"cpu": "200m"}, "requests": {"cpu": "100m"}});
    assert_eq!(made["spec"]["containers"][0]["resources"], resources);
    assert_eq!(made["status"]["qosClass"], "Burstable");
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let mut large = pod("large", &json!({"limits": {"cpu": "1"}}));
    let second = json!({"name": "d", "image": "i", "resources": {"limits": {"cpu": "900m"}}});
    large["spec"]["containers"].as_array_mut().unwrap().push(second);
    let refused = post(&server, PODS, &large).await;
    check_forbidden(&refused, "pods \"large\" is forbidden: maximum cpu usage per Pod is 1500m, but limit is 1900m");
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
                       "resources": {"requests": {"storage": "1Mi"}}}});
    let refused = post(&server, &format!("{NAMESPACE}/persistentvolumeclaims"), &claim).await;
    check_forbidden(
        &refused,
        "persistentvolumeclaims \"c\" is forbidden: minimum storage usage per PersistentVolumeClaim is 1Gi, but \
         request is 1Mi",
    );
    assert_eq!(send(&server, Method::DELETE, &format!("{ranges}/l"), &Value::Null).await.code, 200);
    let free = create(&server, PODS, &pod("free", &json!({}))).await;
    assert_eq!(free["spec"]["containers"][0]["resources"], json!({}));
    server.stop().await.unwrap();
}
