//! Objects that every cluster has from the start.

use bytes::Bytes;
use serde_json::{Value, json};
use windlass_store::{Expect, Write};

use crate::api::Api;
use crate::catalog::Served;
use crate::object;
use crate::registry::stored;
use crate::status::Status;

/// Namespaces of a new cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates what is missing; what is there stays as it is.
pub(crate) async fn create_defaults(api: &Api) -> Result<(), Status> {
    for name in NAMESPACES {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(api, "", "v1", "namespaces", object).await?;
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
    });
    create(api, "", "v1", "services", service).await
}

async fn create(api: &Api, group: &str, version: &str, plural: &str, mut object: Value) -> Result<(), Status> {
    let snapshot = api.catalog.snapshot();
    let served = snapshot.find(group, version, plural).ok_or_else(Status::no_such_resource)?;
    complete(served, &mut object);
    let namespace = object::text(&object, "namespace").to_owned();
    let key = Bytes::from(served.key(&namespace, object::name(&object)));
    let value = stored::encode(&object);
    // A conflict means that it is there already.
    api.store.txn(vec![Write::Put { key, expect: Expect::Absent, value }]).await.map_err(Status::internal)?;
    Ok(())
}

/// Fills in what creating an object does.
pub(crate) fn complete(served: &Served, object: &mut Value) {
    let metadata = object::metadata_mut(object);
    metadata.insert("uid".into(), object::new_uid().into());
    metadata.insert("creationTimestamp".into(), object::time(jiff::Timestamp::now()).into());
    let strategy = served.strategy();
    strategy.default(object);
    strategy.prepare_create(object);
}
