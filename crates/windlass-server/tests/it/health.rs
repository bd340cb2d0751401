//! `/readyz` and its checks, as upstream answers.

use http::Request;
use http_body_util::{BodyExt as _, Full};
use tower::ServiceExt as _;
use windlass_server::Server;

use crate::client::start;

async fn get(server: &Server, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Full::<bytes::Bytes>::default()).unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn registered_checks_are_part_of_readyz() {
    let server = start().await;
    let (_, own) = get(&server, "/readyz?verbose").await;
    let own = own.strip_suffix("readyz check passed\n").unwrap();
    server.add_ready_check("controller/replicaset", || Err("secret".to_owned()));
    server.add_ready_check("controller/job", || panic!("secret"));
    server.add_ready_check("controller/deployment", || Ok(()));
    let failed = "[-]controller/replicaset failed: reason withheld\n[-]controller/job failed: reason withheld\n\
                  [+]controller/deployment ok\n";
    assert_eq!(get(&server, "/readyz").await, (500, format!("{own}{failed}readyz check failed\n")));
    let excluded = "[+]controller/replicaset excluded: ok\n[+]controller/job excluded: ok\n[+]controller/deployment ok\n\
                    warn: some health checks cannot be excluded: no matches for \"a\",\"b\"\n";
    let query = "verbose&exclude=controller/replicaset&exclude=b&exclude=controller/job&exclude=a";
    assert_eq!(get(&server, &format!("/readyz?{query}")).await, (200, format!("{own}{excluded}readyz check passed\n")));
    for (path, answer) in [
        ("/readyz/controller/replicaset", (500, "internal server error: secret\n")),
        ("/readyz/controller/job", (500, "internal server error: the check panicked\n")),
        ("/readyz/controller/deployment", (200, "ok")),
        ("/readyz/controller/none", (404, "404 page not found\n")),
        ("/livez", (200, "ok")),
        ("/livez/controller/replicaset", (404, "404 page not found\n")),
        ("/healthz/ping", (200, "ok")),
    ] {
        assert_eq!(get(&server, path).await, (answer.0, answer.1.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn the_checks_have_upstreams_names() {
    let server = start().await;
    let (_, ready) = get(&server, "/readyz?verbose").await;
    let ready: Vec<&str> = ready.lines().collect();
    assert_eq!(&ready[..5], ["[+]ping ok", "[+]log ok", "[+]etcd ok", "[+]etcd-readiness ok", "[+]informer-sync ok"]);
    for name in ["poststarthook/rbac/bootstrap-roles", "autoregister-completion", "shutdown"] {
        assert!(ready.contains(&format!("[+]{name} ok").as_str()), "{name}");
    }
    let (_, live) = get(&server, "/livez?verbose").await;
    for name in ["etcd-readiness", "informer-sync", "shutdown"] {
        assert!(!live.contains(&format!("{name} ok")), "{name}");
    }
    assert_eq!(live.lines().count() + 3, ready.len());
}
