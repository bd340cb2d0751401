//! Namespaces come with what pods need, and go with everything in them.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, Secret, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::core::DynamicObject;
use serde_json::json;
use windlass_cluster::{BuiltIn, Cluster, Controllers};

use crate::objects::{create, install, merge, namespaced, object, until, until_gone, until_there};

fn namespaces(client: &kube::Client) -> Api<Namespace> {
    Api::all(client.clone())
}

fn condition<'a>(namespace: Option<&'a Namespace>, type_: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = namespace?.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((&condition.status, condition.reason.as_deref()?, condition.message.as_deref()?))
}

#[tokio::test]
async fn service_accounts_and_authorities_are_recreated() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    create(&namespaces(&client), json!({"metadata": {"name": "a"}})).await;
    let accounts: Api<ServiceAccount> = namespaced(&client, "a");
    let maps: Api<ConfigMap> = namespaced(&client, "a");
    let account = until_there(&accounts, "default").await;
    let map = until_there(&maps, "kube-root-ca.crt").await;
    assert!(map.data.unwrap()["ca.crt"].starts_with("-----BEGIN CERTIFICATE-----"));

    accounts.delete("default", &DeleteParams::default()).await.unwrap();
    until(&accounts, "default", |new| new.is_some_and(|new| new.metadata.uid != account.metadata.uid)).await;
    merge(&maps, "kube-root-ca.crt", json!({"data": {"ca.crt": "forged", "more": "x"}})).await;
    until(&maps, "kube-root-ca.crt", |map| {
        map.and_then(|map| map.data.as_ref()).is_some_and(|data| data.len() == 1 && data["ca.crt"] != "forged")
    })
    .await;
    maps.delete("kube-root-ca.crt", &DeleteParams::default()).await.unwrap();
    until_there(&maps, "kube-root-ca.crt").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_deleted_namespace_goes_with_built_in_and_custom_objects() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    install(&client, "Jar", "Namespaced").await;
    create(&namespaces(&client), json!({"metadata": {"name": "a"}})).await;
    let jars: Api<DynamicObject> = {
        let resource = kube::api::ApiResource {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            api_version: "example.com/v1".to_owned(),
            kind: "Jar".to_owned(),
            plural: "jars".to_owned(),
        };
        Api::namespaced_with(client.clone(), "a", &resource)
    };
    create(&jars, json!({"apiVersion": "example.com/v1", "kind": "Jar", "metadata": {"name": "j"}})).await;
    let pods: Api<Pod> = namespaced(&client, "a");
    create(&pods, json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})).await;
    namespaces(&client).delete("a", &DeleteParams::default()).await.unwrap();
    until_gone(&namespaces(&client), "a").await;
    assert!(jars.get_opt("j").await.unwrap().is_none());
    assert!(pods.get_opt("p").await.unwrap().is_none());
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_finalizer_holds_a_namespace_and_its_status_tells() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let all = namespaces(&client);
    create(&all, json!({"metadata": {"name": "a"}})).await;
    let maps: Api<ConfigMap> = namespaced(&client, "a");
    create(&maps, json!({"metadata": {"name": "held", "finalizers": ["e.com/one", "e.com/two"]}})).await;
    all.delete("a", &DeleteParams::default()).await.unwrap();
    until(&all, "a", |namespace| {
        condition(namespace, "NamespaceFinalizersRemaining")
            == Some((
                "True",
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: e.com/one in 1 resource instances, \
                 e.com/two in 1 resource instances",
            ))
    })
    .await;
    let namespace = all.get("a").await.unwrap();
    assert_eq!(
        condition(Some(&namespace), "NamespaceContentRemaining"),
        Some(("True", "SomeResourcesRemain", "Some resources are remaining: configmaps. has 1 resource instances"))
    );
    merge(&maps, "held", json!({"metadata": {"finalizers": ["e.com/two"]}})).await;
    until(&all, "a", |namespace| {
        let said = condition(namespace, "NamespaceFinalizersRemaining");
        said.is_some_and(|(.., message)| message.ends_with("remaining: e.com/two in 1 resource instances"))
    })
    .await;
    merge(&maps, "held", json!({"metadata": {"finalizers": null}})).await;
    until_gone(&all, "a").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn pods_go_before_anything_else() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let all = namespaces(&client);
    create(&all, json!({"metadata": {"name": "a"}})).await;
    let pods: Api<Pod> = namespaced(&client, "a");
    let maps: Api<ConfigMap> = namespaced(&client, "a");
    let pod = json!({
        "metadata": {"name": "p", "finalizers": ["e.com/hold"]}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    create(&pods, pod).await;
    create(&maps, json!({"metadata": {"name": "m"}})).await;
    all.delete("a", &DeleteParams::default()).await.unwrap();
    until(&all, "a", |namespace| condition(namespace, "NamespaceDeletionContentFailure").is_some()).await;
    assert!(maps.get_opt("m").await.unwrap().is_some_and(|map| map.metadata.deletion_timestamp.is_none()));
    merge(&pods, "p", json!({"metadata": {"finalizers": null}})).await;
    until_gone(&all, "a").await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn without_controllers_a_namespace_stays_as_it_is() {
    let cluster = Cluster::builder().controllers(Controllers::none()).start().await.unwrap();
    let client = cluster.client();
    create(&namespaces(&client), json!({"metadata": {"name": "a"}})).await;
    namespaces(&client).delete("a", &DeleteParams::default()).await.unwrap();
    let namespace = namespaces(&client).get("a").await.unwrap();
    assert_eq!(namespace.spec.unwrap().finalizers.unwrap(), ["kubernetes"]);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn controllers_can_be_chosen_one_by_one() {
    let only = Controllers::none().with(BuiltIn::ServiceAccount);
    let cluster = Cluster::builder().controllers(only).start().await.unwrap();
    let client = cluster.client();
    until_there(&namespaced::<ServiceAccount>(&client, "default"), "default").await;
    let maps: Api<ConfigMap> = namespaced(&client, "default");
    assert!(maps.get_opt("kube-root-ca.crt").await.unwrap().is_none());
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_quota_knows_what_is_used() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let quotas: Api<ResourceQuota> = namespaced(&client, "default");
    let hard = json!({"count/secrets": "5", "pods": "2", "requests.cpu": "1"});
    create(&quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    let is = |secrets: &'static str, pods: &'static str, cpu: &'static str| {
        let wanted = json!({"count/secrets": secrets, "pods": pods, "requests.cpu": cpu});
        move |quota: Option<&ResourceQuota>| {
            quota.and_then(|quota| quota.status.as_ref()).is_some_and(|status| json!(status.used) == wanted)
        }
    };
    until(&quotas, "q", is("0", "0", "0")).await;
    let pods: Api<Pod> = namespaced(&client, "default");
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}});
    create(&pods, json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}})).await;
    create(&namespaced::<Secret>(&client, "default"), json!({"metadata": {"name": "s"}})).await;
    until(&quotas, "q", is("1", "1", "500m")).await;
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    until(&quotas, "q", is("1", "0", "0")).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_quota_refuses_what_is_too_much_until_something_goes() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let quotas: Api<ResourceQuota> = namespaced(&client, "default");
    create(&quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})).await;
    let is = |pods: &'static str| {
        move |quota: Option<&ResourceQuota>| {
            let status = quota.and_then(|quota| quota.status.as_ref());
            status.is_some_and(|status| json!(status.used) == json!({"pods": pods}))
        }
    };
    until(&quotas, "q", is("0")).await;
    let pods: Api<Pod> = namespaced(&client, "default");
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(&pods, pod("a")).await;
    // Admission has charged the pod before anybody could count it.
    assert!(is("1")(Some(&quotas.get("q").await.unwrap())));
    let refused = pods.create(&PostParams::default(), &object(pod("b"))).await.unwrap_err();
    let why = "pods \"b\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
    assert!(refused.to_string().contains(why), "{refused}");
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    until(&quotas, "q", is("0")).await;
    create(&pods, pod("b")).await;
    cluster.stop().await.unwrap();
}
