//! What answers look like, whatever they are about.

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Map, json};
use tower::ServiceExt as _;
use windlass_server::authn::User;

use crate::client::{create, get, get_with, post, send_bytes, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn answers_are_indented_on_request() {
    let server = start().await;
    for (query, agent, laid_out) in [
        ("?pretty=true", "kubectl", true),
        ("?pretty=1&limit=1", "kubectl", true),
        ("?limit=1", "curl/8", true),
        ("?pretty=false", "curl/8", false),
        ("?limit=1", "kubectl", false),
    ] {
        let request = Request::get(format!("{MAPS}{query}")).header("user-agent", agent);
        let response = server.service().oneshot(request.body(Full::<bytes::Bytes>::default()).unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.starts_with(b"{\n  "), laid_out, "{query} of {agent}");
    }
}

#[tokio::test]
async fn many_warnings_are_cut() {
    let server = start().await;
    let mut map = json!({"metadata": {"name": "a"}});
    for i in 0..50 {
        map[format!("{i}{}", "x".repeat(300))] = json!(1);
    }
    let answer = post(&server, &format!("{MAPS}?fieldValidation=Warn"), &map).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert_eq!(answer.warnings.len(), 16);
    assert!(
        answer.warnings.iter().all(|warning| warning.len() <= 256 + "299 - \"\"".len() + 2),
        "{:?}",
        answer.warnings
    );
}

#[tokio::test]
async fn the_version_is_told_with_and_without_a_slash() {
    let server = start().await;
    assert_eq!(get(&server, "/version/").await.body, get(&server, "/version").await.body);
    assert_eq!(get(&server, "/version/").await.code, 200);
}

#[tokio::test]
async fn a_binding_names_the_pod_it_is_posted_to() {
    let server = start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(&server, pods, &pod).await;
    let binding = |name: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    let other = post(&server, &format!("{pods}/p/binding"), &binding("q")).await;
    assert_eq!((other.code, other.message()), (400, "name in URL does not match name in Binding object"));
    assert!(get(&server, &format!("{pods}/p")).await.body["spec"]["nodeName"].is_null());
    assert_eq!(post(&server, &format!("{pods}/p/binding"), &binding("p")).await.code, 201);
}

#[tokio::test]
async fn nothing_outlives_its_definition() {
    let server = start().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({"metadata": {"name": "foos.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    let foos = "/apis/example.com/v1/namespaces/default/foos";
    for round in 0..10 {
        create(&server, crds, &definition).await;
        let writer = async |writer: u32| {
            for i in 0..2000 {
                let foo = json!(Map::from_iter([("metadata".to_owned(), json!({"name": format!("f{writer}-{i}")}))]));
                if post(&server, foos, &foo).await.code != 201 {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let delete = async {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let path = format!("{crds}/foos.example.com");
            crate::client::send(&server, http::Method::DELETE, &path, &serde_json::Value::Null).await;
            while get(&server, &path).await.code != 404 {
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(writer(0), writer(1), writer(2), writer(3), delete);
        create(&server, crds, &definition).await;
        assert_eq!(get(&server, foos).await.body["items"], json!([]), "round {round}");
        let path = format!("{crds}/foos.example.com");
        crate::client::send(&server, http::Method::DELETE, &path, &serde_json::Value::Null).await;
        while get(&server, &path).await.code != 404 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn metadata_is_asked_for_as_what_it_is() {
    let server = start().await;
    create(&server, MAPS, &json!({"metadata": {"name": "a"}})).await;
    let one = format!("{MAPS}/a");
    let types = "only the following media types are accepted: application/json, application/yaml, \
                 application/vnd.kubernetes.protobuf";
    for (path, parameters, code, message) in [
        (MAPS, "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", 200, ""),
        (&one, "as=PartialObjectMetadata;g=meta.k8s.io;v=v1", 200, ""),
        (
            MAPS,
            "as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            406,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
        ),
        (
            &one,
            "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            406,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
        ),
        (&one, "as=PartialObjectMetadata;g=meta.k8s.io;v=v2", 406, types),
        (&one, "as=PartialObjectMetadata;g=apps;v=v1", 406, types),
        (&one, "as=PartialObjectMetadata", 406, types),
        (&one, "as=Foo;g=meta.k8s.io;v=v1", 406, types),
        (&one, "v=v1", 406, types),
        (
            "/api/v1/namespaces/default/configmaps/none",
            "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            404,
            "configmaps \"none\" not found",
        ),
    ] {
        let response = get_with(&server, path, &[("accept", &format!("application/json;{parameters}"))]).await;
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        let got = (response.status().as_u16(), body["message"].as_str().unwrap_or_default());
        assert_eq!(got, (code, message), "{path} {parameters}");
        if code == 406 {
            assert_eq!(body["reason"], "NotAcceptable");
        }
    }
    let accept = ("accept", "application/json;as=Foo;g=meta.k8s.io;v=v1,application/json");
    assert_eq!(get_with(&server, &one, &[accept]).await.status(), 200);
    server.stop().await.unwrap();
}

/// Upstream negotiates the form of the answer (`NegotiateOutputMediaType`) before it reads the body.
#[tokio::test]
async fn an_answer_in_no_form_is_refused_before_the_write() {
    let server = start().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    create(&server, pods, &pod).await;
    create(&server, MAPS, &json!({"metadata": {"name": "a"}})).await;
    create(&server, "/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "s"}})).await;
    let (map, merge) = (json!({"metadata": {"name": "a"}, "data": {"a": "b"}}), "application/merge-patch+json");
    let (new, json) = (json!({"metadata": {"name": "new"}}), "application/json");
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}});
    let operations = json!([{"op": "add", "path": "/data", "value": {"a": "b"}}]);
    let named = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    let status = json!({"status": {"message": "m"}});
    let label = json!({"spec": {"replicas": 2}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]});
    let deployment =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    create(&server, deployments, &deployment).await;
    let before = server.api().store.revision().borrow().to_owned();
    let requests = [
        (Method::POST, MAPS.to_owned(), json, &new),
        (Method::PUT, format!("{MAPS}/a"), json, &map),
        (Method::PUT, format!("{MAPS}/new"), json, &new),
        (Method::PATCH, format!("{MAPS}/a"), merge, &map),
        (Method::PATCH, format!("{MAPS}/a"), "application/strategic-merge-patch+json", &map),
        (Method::PATCH, format!("{MAPS}/a"), "application/json-patch+json", &operations),
        (Method::PATCH, format!("{MAPS}/a?fieldManager=m"), "application/apply-patch+yaml", &apply),
        (Method::DELETE, format!("{MAPS}/a"), json, &serde_json::Value::Null),
        (Method::DELETE, MAPS.to_owned(), json, &serde_json::Value::Null),
        (Method::PATCH, format!("{pods}/p/status"), merge, &status),
        (Method::PATCH, format!("{deployments}/d/scale"), merge, &label),
        (Method::POST, format!("{pods}/p/binding"), json, &named),
        (Method::POST, format!("{pods}/p/eviction"), json, &pod),
        (Method::POST, "/api/v1/namespaces/default/bindings".to_owned(), json, &named),
        (Method::POST, "/api/v1/namespaces/default/serviceaccounts/s/token".to_owned(), json, &new),
    ];
    for accept in ["text/html", ";", "application/json;as=Other;g=meta.k8s.io;v=v1"] {
        for (method, path, content_type, body) in &requests {
            let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
            let request = Request::builder().method(method).uri(path).header("accept", accept);
            let request =
                request.header("content-type", *content_type).body(Full::<bytes::Bytes>::from(bytes)).unwrap();
            let answer = server.service().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), 406, "{method} {path} {accept}");
        }
    }
    assert_eq!(*server.api().store.revision().borrow(), before, "nothing was written");
    server.stop().await.unwrap();
}

/// Whether an object can be shown as a list of metadata is found when it is shown, by upstream as well.
#[tokio::test]
async fn a_write_shown_as_a_list_of_metadata_is_done() {
    let server = start().await;
    let request = Request::post(MAPS).header("content-type", "application/json");
    let request = request.header("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let body = serde_json::to_vec(&json!({"metadata": {"name": "a"}})).unwrap();
    let answer = server.service().oneshot(request.body(Full::<bytes::Bytes>::from(body)).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 406);
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.code, 200);
    server.stop().await.unwrap();
}

/// Which fields objects can be selected by.
#[tokio::test]
async fn a_field_selector_names_fields_that_there_are() {
    let server = start().await;
    let get = |path: &'static str| send_bytes(server.service(), Method::GET, path, "", Vec::new());
    assert_eq!(get("/api/v1/pods?fieldSelector=spec.host=n1").await.code, 200);
    assert_eq!(
        get("/apis/rbac.authorization.k8s.io/v1/clusterroles?fieldSelector=metadata.namespace=").await.code,
        200
    );
    for path in ["/api/v1/namespaces", "/api/v1/nodes", "/apis/certificates.k8s.io/v1/certificatesigningrequests"] {
        let path = format!("{path}?fieldSelector=metadata.namespace=");
        let answer = send_bytes(server.service(), Method::GET, &path, "", Vec::new()).await;
        assert_eq!((answer.code, answer.message()), (400, "field label not supported: metadata.namespace"));
    }
    let other = get("/api/v1/watch/namespaces/default/configmaps/a?fieldSelector=metadata.name=b").await;
    assert_eq!((other.code, other.message()), (400, "fieldSelector metadata.name doesn't match requested name"));
    server.stop().await.unwrap();
}

/// Names and methods that lead nowhere are refused as such.
#[tokio::test]
async fn names_that_are_no_path_segments_are_refused() {
    let server = start().await;
    for (name, why) in [("%2e%2e", "\"..\": may not be '..'"), ("a%25b", "\"a%b\": may not contain '%'")] {
        let path = format!("/api/v1/namespaces/default/configmaps/{name}");
        let answer = send_bytes(server.service(), Method::GET, &path, "", Vec::new()).await;
        assert_eq!((answer.code, answer.message()), (400, &*format!("Name parameter invalid: {why}")));
    }
    for path in ["/api/v1/namespaces", "/api", "/api/v1", "/apis/apps/v1", "/version"] {
        let answer = send_bytes(server.service(), Method::HEAD, path, "", Vec::new()).await;
        assert_eq!(answer.code, 405, "{path}");
    }
    // Upstream serves these whatever the method.
    for path in ["/apis", "/apis/apps", "/healthz", "/openapi/v3"] {
        let answer = send_bytes(server.service(), Method::HEAD, path, "", Vec::new()).await;
        assert_eq!(answer.code, 200, "{path}");
    }
}

/// Upstream's `RequestInfo` has no verb for a method it does not know; RBAC then refuses what only `*` allows.
#[tokio::test]
async fn an_unknown_method_is_a_request_without_a_verb() {
    let server = start().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    for (user, verbs) in [("reader", json!(["get", "list"])), ("owner", json!(["*"]))] {
        let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs});
        create(&server, &format!("{roles}/clusterroles"), &json!({"metadata": {"name": user}, "rules": [rule]})).await;
        let binding = json!({"metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        create(&server, &format!("{roles}/clusterrolebindings"), &binding).await;
    }
    let path = "/api/v1/namespaces/default/configmaps";
    let send = async |user: &str, method: &str| {
        let service = server.service_as(User::new(user, []));
        send_bytes(service, Method::from_bytes(method.as_bytes()).unwrap(), path, "", Vec::new()).await
    };
    let refused = send("reader", "PROPFIND").await;
    let why = "configmaps is forbidden: User \"reader\" cannot  resource \"configmaps\" in API group \"\" in the \
               namespace \"default\"";
    assert_eq!((refused.code, refused.message()), (403, why));
    assert_eq!(send("reader", "OPTIONS").await.code, 403);
    for (user, method) in [("owner", "PROPFIND"), ("owner", "OPTIONS")] {
        let answer = send(user, method).await;
        let why = "the server does not allow this method on the requested resource";
        assert_eq!((answer.code, answer.message()), (405, why), "{user} {method}");
    }
    server.stop().await.unwrap();
}

/// HEAD reads what GET does: that is what authorisation is asked for, and custom resources and proxies take it.
#[tokio::test]
async fn head_is_a_verb_and_on_some_paths_a_method() {
    let server = start().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({"metadata": {"name": "lamps.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "lamps", "kind": "Lamp"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    let lamps = "/apis/example.com/v1/namespaces/default/lamps";
    let lamp = json!({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "a"}});
    create(&server, lamps, &lamp).await;
    let node =
        json!({"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.1.2.3"}]}});
    create(&server, "/api/v1/nodes", &node).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"verbs": ["get", "list"], "apiGroups": ["", "example.com"], "resources": ["*"]}]);
    create(&server, &format!("{rbac}/clusterroles"), &json!({"metadata": {"name": "reader"}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}]});
    create(&server, &format!("{rbac}/clusterrolebindings"), &binding).await;

    let (reader, nobody, master) = (User::new("reader", []), User::new("nobody", []), User::admin());
    let one = format!("{lamps}/a");
    for (user, method, path, code) in [
        (&reader, Method::HEAD, lamps, 200),
        (&reader, Method::HEAD, &*one, 200),
        (&nobody, Method::HEAD, &*one, 403),
        (&master, Method::HEAD, "/apis/example.com/v1/namespaces/default/lamps/b", 404),
        (&reader, Method::HEAD, "/api/v1/namespaces/default", 405),
        (&reader, Method::HEAD, "/api/v1/namespaces/default/pods", 405),
        (&reader, Method::HEAD, "/api/v1/namespaces/default/pods/p/log", 405),
        (&nobody, Method::HEAD, "/api/v1/namespaces/default/pods", 403),
        (&reader, Method::HEAD, "/api/v1/nothings", 404),
        // As far as dialling, which is not answered.
        (&reader, Method::HEAD, "/api/v1/nodes/n/proxy/metrics", 503),
        (&master, Method::OPTIONS, "/api/v1/nodes/n/proxy", 503),
        (&reader, Method::OPTIONS, "/api/v1/nodes/n/proxy", 403),
        (&master, Method::OPTIONS, "/api/v1/nodes/n", 405),
        (&master, Method::HEAD, "/api/v1/namespaces/default/pods/p/proxy", 404),
        (&master, Method::HEAD, "/api/v1/namespaces/default/services/s:80/proxy", 404),
    ] {
        let request = Request::builder().method(&method).uri(path).body(Full::<bytes::Bytes>::default()).unwrap();
        let response = server.service_as(user.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), code, "{method} {path} of {}", user.name);
        if method == Method::HEAD {
            assert!(response.headers().contains_key("content-length"), "{path}");
            assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty(), "{path}");
        }
    }
    server.stop().await.unwrap();
}
