//! Looking: formats, selectors, descriptions, documentation, discovery.

use serde_json::Value;

use super::{SETTINGS, cells, deployment, has, kubectl};

#[test]
fn objects_are_printed_in_every_format() {
    kubectl!(cluster, k);
    assert_eq!(k.feed("create -f -", SETTINGS), "configmap/settings created\n");
    assert_eq!(cells(&k.run("get configmaps"))[0], ["NAME", "DATA", "AGE"]);
    assert_eq!(cells(&k.run("get cm settings"))[1][..2], ["settings", "2"]);
    assert_eq!(k.run("get cm settings -o name"), "configmap/settings\n");
    assert_eq!(k.run("get cm settings --no-headers -o custom-columns=A:.data.colour,B:.data.size"), "red   1\n");
    k.run("create secret generic sealed --from-literal=a=b");
    assert_eq!(k.run("get secrets -o jsonpath={.items[*].data.a}"), "Yg==");
    assert_eq!(k.run("get cm settings -o go-template={{.data.size}}"), "1");
    let json: Value = serde_json::from_str(&k.run("get cm settings -o json")).unwrap();
    assert_eq!(json["data"], serde_json::json!({"colour": "red", "size": "1"}));
    assert_eq!(json["metadata"]["namespace"], "default");
    let list: Value = serde_json::from_str(&k.run("get secrets,ns -o json")).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 5);
    has(&k.run("get cm settings -o yaml"), &["kind: ConfigMap\n", "  colour: red\n", "  size: \"1\"\n"]);
    assert_eq!(cells(&k.run("get secrets -A"))[1][..4], ["default", "sealed", "Opaque", "1"]);
    assert_eq!(k.run("get --raw /api/v1/namespaces/default/configmaps/settings").lines().count(), 1);
}

#[test]
fn tables_have_upstreams_columns() {
    kubectl!(cluster, k);
    k.feed("apply -f -", &deployment(2, "nginx:1.27"));
    k.pending_pod("solo");
    k.run("expose deployment web --port=80");
    let wide = k.run("get deployments -o wide");
    let header = ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"];
    assert_eq!(cells(&wide)[0], header);
    assert_eq!(cells(&wide)[1][5..], ["web", "nginx:1.27", "app=web"]);
    let pods = k.run("get pod solo -o wide");
    let header = ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"];
    assert_eq!(cells(&pods)[0], header);
    assert_eq!(cells(&k.run("get svc web"))[0], ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]);
    has(&k.run("get all"), &["pod/solo", "service/web", "deployment.apps/web"]);
    let sorted = k.run("get namespaces --sort-by=.metadata.name -o name");
    assert_eq!(sorted.lines().next(), Some("namespace/default"));
    assert_eq!(cells(&k.run("get deploy -L app --show-labels"))[0][5..], ["APP", "LABELS"]);
}

#[test]
fn selectors_choose_objects() {
    kubectl!(cluster, k);
    k.run("create secret generic one");
    k.run("create secret generic two");
    k.run("label secret one tier=front");
    assert_eq!(k.run("get secrets -l tier=front -o name"), "secret/one\n");
    assert_eq!(k.run("get secrets -l !tier -o name"), "secret/two\n");
    assert_eq!(k.run("get secrets -l tier!=front -o name"), "secret/two\n");
    assert_eq!(k.run("get secrets --field-selector=metadata.name=two -o name"), "secret/two\n");
    assert_eq!(k.run("get secrets --chunk-size=1 -o name"), "secret/one\nsecret/two\n");
    has(&k.fails("get cm --field-selector=data.x=1"), &["BadRequest", "is not a known field selector"]);
    has(&k.fails("get cm -l a==b=c"), &["found '=', expected"]);
}

#[test]
fn objects_are_described() {
    kubectl!(cluster, k);
    k.feed("create -f -", SETTINGS);
    has(&k.run("describe configmap settings"), &["Name:         settings", "colour:\n----\nred"]);
    k.feed("apply -f -", &deployment(3, "nginx:1.27"));
    has(&k.run("describe deployment web"), &["3 desired", "25% max unavailable, 25% max surge", "nginx:1.27"]);
    k.pending_pod("solo");
    has(&k.run("describe pod solo"), &["Status:", "Pending", "QoS Class:", "BestEffort"]);
    k.run("expose deployment web --port=80");
    has(&k.run("describe service web"), &["Type:", "ClusterIP", "80/TCP"]);
    has(&k.run("describe namespace default"), &["Status:       Active"]);
}

#[test]
fn fields_are_explained() {
    kubectl!(cluster, k);
    has(&k.run("explain pod"), &["Pod", "spec\t", "status\t"]);
    has(&k.run("explain deployment.spec.strategy"), &["rollingUpdate", "type\t<string>"]);
    has(&k.run("explain pods.spec.containers --recursive"), &["livenessProbe", "httpGet", "terminationMessagePath"]);
    has(&k.run("explain --api-version=autoscaling/v2 hpa.spec"), &["maxReplicas", "-required-"]);
    has(&k.fails("explain pod.nonsense"), &["nonsense"]);
}

#[test]
fn discovery_lists_what_is_served() {
    kubectl!(cluster, k);
    let resources = k.run("api-resources");
    for line in ["configmaps", "deployments", "customresourcedefinitions", "leases", "validatingwebhookconfigurations"]
    {
        has(&resources, &[line]);
    }
    let apps = k.run("api-resources --api-group=apps --namespaced=true -o name");
    let expected = ["controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"];
    assert_eq!(apps, expected.map(|name| format!("{name}.apps\n")).concat());
    has(&k.run("api-resources --verbs=list,watch -o wide"), &["deletecollection", "po"]);
    has(&k.run("api-versions"), &["apps/v1\n", "apiextensions.k8s.io/v1\n", "\nv1\n"]);
    has(&k.run("version"), &["v1.36"]);
    has(&k.run("cluster-info"), &[&cluster.server]);
}

#[test]
fn what_is_missing_is_said_to_be() {
    kubectl!(cluster, k);
    assert_eq!(k.fails("get cm nope"), "Error from server (NotFound): configmaps \"nope\" not found\n");
    assert_eq!(k.fails("get gizmos"), "error: the server doesn't have a resource type \"gizmos\"\n");
    has(&k.fails("describe pod nope"), &["pods \"nope\" not found"]);
    has(&k.fails("create cm here -n nowhere"), &["namespaces \"nowhere\" not found"]);
    k.pending_pod("solo");
    assert_eq!(k.run("logs solo"), "", "nothing runs it yet");
    has(&k.fails("logs solo -c nope"), &["container nope is not valid for pod solo"]);
    has(&k.fails("exec solo -- ls"), &["pod solo does not have a host assigned"]);
}
