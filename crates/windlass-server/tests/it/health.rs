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
    const OWN: &str = "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]informer-sync ok\n\
                       [+]poststarthook/crd-informer-synced ok\n[+]shutdown ok\n";
    let server = start().await;
    server.add_ready_check("controller/replicaset", || Err("secret".to_owned()));
    server.add_ready_check("controller/job", || panic!("secret"));
    server.add_ready_check("controller/deployment", || Ok(()));
    let failed = "[-]controller/replicaset failed: reason withheld\n[-]controller/job failed: reason withheld\n\
                  [+]controller/deployment ok\n";
    assert_eq!(get(&server, "/readyz").await, (500, format!("{OWN}{failed}readyz check failed\n")));
    let excluded = "[+]controller/replicaset excluded: ok\n[+]controller/job excluded: ok\n[+]controller/deployment ok\n\
                    warn: some health checks cannot be excluded: no matches for \"a\",\"b\"\n";
    let query = "verbose&exclude=controller/replicaset&exclude=b&exclude=controller/job&exclude=a";
    assert_eq!(get(&server, &format!("/readyz?{query}")).await, (200, format!("{OWN}{excluded}readyz check passed\n")));
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
