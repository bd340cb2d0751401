//! `/metrics`: what dashboards read.

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{apply, create, get, get_with, post, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn metrics(server: &Server) -> String {
    let answer = get_with(server, "/metrics", &[]).await;
    String::from_utf8(answer.body().to_vec()).unwrap()
}

/// The value of the one line of a metric that has all these labels.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<String> {
    let lines = text.lines().filter(|line| line.split('{').next() == Some(name));
    let found: Vec<&str> = lines.filter(|line| labels.iter().all(|label| line.contains(label))).collect();
    assert!(found.len() <= 1, "{found:#?}");
    found.first().map(|line| line.rsplit(' ').next().unwrap().to_owned())
}

#[tokio::test]
async fn requests_are_counted_by_what_they_do() {
    let server = start().await;
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    create(&server, &format!("{MAPS}?dryRun=All"), &map("a")).await;
    assert_eq!(post(&server, &format!("{MAPS}?dryRun=Some"), &map("a")).await.code, 422);
    create(&server, MAPS, &map("a")).await;
    assert_eq!(apply(&server, &format!("{MAPS}/a?fieldManager=m"), &map("a")).await.code, 200);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(&server, "/api/v1/namespaces/default/pods", &pod).await;
    for subresource in ["exec?command=ls", "log"] {
        let path = format!("/api/v1/namespaces/default/pods/p/{subresource}");
        crate::client::send(&server, Method::GET, &path, &Value::Null).await;
    }

    let text = metrics(&server).await;
    let total = |labels: &[&str]| value(&text, "apiserver_request_total", labels);
    let maps = "resource=\"configmaps\"";
    assert_eq!(total(&[maps, "verb=\"POST\"", "dry_run=\"All\"", "code=\"201\""]).as_deref(), Some("1"));
    assert_eq!(total(&[maps, "verb=\"POST\"", "dry_run=\"invalid\"", "code=\"422\""]).as_deref(), Some("1"));
    let made = [maps, "verb=\"POST\"", "dry_run=\"\"", "code=\"201\"", "scope=\"resource\"", "version=\"v1\""];
    assert_eq!(total(&made).as_deref(), Some("1"));
    assert_eq!(total(&[maps, "verb=\"APPLY\"", "code=\"200\""]).as_deref(), Some("1"));
    assert_eq!(total(&[maps, "verb=\"PATCH\""]), None);
    for subresource in ["subresource=\"exec\"", "subresource=\"log\""] {
        assert_eq!(total(&["resource=\"pods\"", subresource, "verb=\"CONNECT\""]).as_deref(), Some("1"));
    }
    // Dry runs do not tell how long the server takes.
    let sli = "apiserver_request_sli_duration_seconds_count";
    assert_eq!(value(&text, sli, &[maps, "verb=\"POST\""]).as_deref(), Some("1"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn sizes_of_what_is_read_are_counted() {
    let server = start().await;
    create(&server, MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v".repeat(2000)}})).await;
    let got = get_with(&server, &format!("{MAPS}/a"), &[]).await.body().len();
    let listed = get_with(&server, MAPS, &[]).await.body().len();
    assert_eq!(get(&server, &format!("{MAPS}/b")).await.code, 404);
    let text = metrics(&server).await;
    let one = [r#"resource="configmaps""#, r#"scope="resource""#, r#"verb="GET""#];
    let all = [r#"resource="configmaps""#, r#"scope="namespace""#, r#"verb="LIST""#];
    assert_eq!(value(&text, "apiserver_response_sizes_count", &one).as_deref(), Some("2"));
    let sum: usize = value(&text, "apiserver_response_sizes_sum", &one).unwrap().parse().unwrap();
    assert!(sum > got, "{sum} {got}");
    assert_eq!(value(&text, "apiserver_response_sizes_sum", &all), Some(listed.to_string()));
    let bucket = |bound: &str| {
        let bound = format!("le=\"{bound}\"");
        value(&text, "apiserver_response_sizes_bucket", &[&all[..], &[bound.as_str()]].concat())
    };
    assert_eq!((bucket("1000").as_deref(), bucket("1e+06").as_deref()), (Some("0"), Some("1")));
    server.stop().await.unwrap();
}
