//! Default roles and bindings over restarts.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;
use windlass_store::{Memory, Store};

use crate::client::{get, send};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

async fn change(server: &Server, path: &str, patch: Value) {
    let answer = send(server, Method::PATCH, path, &patch).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

#[tokio::test]
async fn default_roles_are_restored_on_restart() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let start = || Server::builder().store(Arc::clone(&store)).start();
    let server = start().await.unwrap();
    let (discovery, basic) = (format!("{ROLES}/system:discovery"), format!("{ROLES}/system:basic-user"));
    let (bound, kept) = (format!("{BINDINGS}/system:discovery"), format!("{BINDINGS}/system:basic-user"));
    let (role, binding) = (get(&server, &discovery).await.body, get(&server, &bound).await.body);
    let extra = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    change(&server, &discovery, json!({"rules": [extra]})).await;
    change(&server, &bound, json!({"subjects": null})).await;
    let protected = json!({"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}});
    change(&server, &basic, json!({"metadata": protected, "rules": []})).await;
    assert_eq!(send(&server, Method::DELETE, &kept, &Value::Null).await.code, 200);
    drop(server);

    let server = start().await.unwrap();
    let rules = get(&server, &discovery).await.body["rules"].clone();
    let urls = |rules: &Value| -> usize {
        let rules = rules.as_array().unwrap().iter();
        rules.map(|rule| rule["nonResourceURLs"].as_array().map_or(0, Vec::len)).sum()
    };
    assert_eq!(rules[0], extra);
    assert_eq!(urls(&rules), urls(&role["rules"]));
    assert_eq!(get(&server, &bound).await.body["subjects"], binding["subjects"]);
    assert!(get(&server, &basic).await.body["rules"].as_array().is_none_or(Vec::is_empty));
    assert_eq!(get(&server, &kept).await.code, 200);
    let revision = *store.revision().borrow();
    drop(server);

    // Once all is well, a start writes nothing.
    drop(start().await.unwrap());
    assert_eq!(*store.revision().borrow(), revision);
}
