//! Logs, streams and proxied requests: everything is checked that upstream checks before it dials.

use http::Method;
use serde_json::{Value, json};

use crate::client::{create, get, post, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, containers: &[&str]) -> Value {
    let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name, "image": "i"})).collect();
    json!({"metadata": {"name": name}, "spec": {"containers": containers}})
}

#[tokio::test]
async fn logs_are_empty_before_there_is_a_node() {
    let server = start().await;
    let mut two = pod("two", &["a", "b"]);
    two["spec"]["initContainers"] = json!([{"name": "i", "image": "i"}]);
    create(&server, PODS, &pod("one", &["c"])).await;
    create(&server, PODS, &two).await;
    for (path, code, message) in [
        ("none/log", 404, "pods \"none\" not found"),
        ("one/log", 204, ""),
        ("one/log?container=c&tailLines=5&sinceSeconds=3", 204, ""),
        ("one/log?container=x", 400, "container x is not valid for pod one"),
        ("one/log?tailLines=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
        (
            "one/log?tailLines=-1&limitBytes=0",
            422,
            "PodLogOptions \"one\" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, \
             limitBytes: Invalid value: 0: must be greater than 0]",
        ),
        ("two/log", 400, "a container name must be specified for pod two, choose one of: [i a b]"),
        ("two/log?container=i", 204, ""),
        ("one/exec?container=x&command=ls", 400, "container x is not valid for pod one"),
        ("two/attach", 400, "a container name must be specified for pod two, choose one of: [i a b]"),
        ("one/exec?command=ls", 400, "pod one does not have a host assigned"),
        ("two/portforward", 400, "pod two does not have a host assigned"),
        ("two/portforward?ports=x", 400, "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax"),
        (
            "two/portforward?ports=%2B80",
            400,
            "cannot convert to []int32: strconv.ParseUint: parsing \"+80\": invalid syntax",
        ),
    ] {
        let answer = get(&server, &format!("{PODS}/{path}")).await;
        assert_eq!((answer.code, answer.message()), (code, message), "{path}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_stream_needs_a_node_that_is_there() {
    let server = start().await;
    create(&server, PODS, &pod("p", &["c"])).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(post(&server, &format!("{PODS}/p/binding"), &binding).await.code, 201);
    let log = get(&server, &format!("{PODS}/p/log")).await;
    assert_eq!((log.code, log.message()), (404, "nodes \"n\" not found"));

    create(&server, "/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await;
    let log = get(&server, &format!("{PODS}/p/log")).await;
    assert_eq!((log.code, log.message()), (500, "no preferred addresses found; known addresses: []"));
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}});
    assert_eq!(send(&server, Method::PATCH, "/api/v1/nodes/n/status", &status).await.code, 200);
    let log = get(&server, &format!("{PODS}/p/log")).await;
    let expected = "Get \"https://10.0.0.9:10250/containerLogs/default/p/c\": dial tcp 10.0.0.9:10250: \
                    connect: no route to host";
    assert_eq!((log.code, log.message()), (500, expected));
    let exec = post(&server, &format!("{PODS}/p/exec?command=ls"), &Value::Null).await;
    assert_eq!((exec.code, exec.message()), (400, "Upgrade request required"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn requests_are_proxied_to_pods_only() {
    let server = start().await;
    create(&server, PODS, &pod("p", &["c"])).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    create(&server, "/api/v1/namespaces/default/services", &service).await;
    create(&server, "/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}});
    assert_eq!(send(&server, Method::PATCH, "/api/v1/nodes/n/status", &status).await.code, 200);
    let none = "no endpoints available for service \"s\"";
    for (path, code, message) in [
        ("namespaces/default/pods/p/proxy/", 400, "address not allowed"),
        ("namespaces/default/pods/http:p:80/proxy/x", 400, "address not allowed"),
        ("namespaces/default/pods/q:80/proxy/", 404, "pods \"q\" not found"),
        ("namespaces/default/pods/ftp:p:80/proxy/", 400, "invalid pod request \"ftp:p:80\""),
        ("namespaces/default/services/s/proxy/", 503, none),
        ("namespaces/default/services/s:80/proxy/", 503, none),
        ("namespaces/default/services/s:81/proxy/", 503, "no service port 81 found for service \"s\""),
        ("namespaces/default/services/t:80/proxy/", 404, "services \"t\" not found"),
        ("namespaces/default/services/a:b:c:d/proxy/", 400, "invalid service request \"a:b:c:d\""),
        ("nodes/n/proxy/", 400, "address not allowed"),
        ("nodes/m/proxy/", 404, "nodes \"m\" not found"),
    ] {
        let answer = get(&server, &format!("/api/v1/{path}")).await;
        assert_eq!((answer.code, answer.message()), (code, message), "{path}");
    }

    let running = json!({"status": {"podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}]}});
    assert_eq!(send(&server, Method::PATCH, &format!("{PODS}/p/status"), &running).await.code, 200);
    let slice = json!({"metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
    "addressType": "IPv4", "ports": [{"name": "", "port": 8080}], "endpoints": [
        {"addresses": ["10.1.0.2"], "conditions": {}},
        {"addresses": ["10.1.0.1"], "targetRef": {"kind": "Pod", "namespace": "default", "name": "p"}},
    ]});
    create(&server, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
    let answer = get(&server, "/api/v1/namespaces/default/services/s:80/proxy/").await;
    let expected = "error trying to reach service: dial tcp 10.1.0.1:8080: connect: no route to host";
    assert_eq!((answer.code, answer.message()), (503, expected));
    server.stop().await.unwrap();
}
