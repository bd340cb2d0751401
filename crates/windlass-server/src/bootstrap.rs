//! Objects that every cluster has from the start.

use bytes::Bytes;
use serde_json::{Value, json};
use windlass_store::{Expect, Write};

use crate::admission::SYSTEM_CLASSES;
use crate::admission_config::AdmissionPlugin;
use crate::api::Api;
use crate::object;
use crate::registry::allocation;
use crate::status::Status;
use crate::stored;

/// Namespaces of a new cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates what is missing; what is there stays as it is.
pub(crate) async fn create_defaults(api: &Api) -> Result<(), Status> {
    for name in NAMESPACES {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(api, "", "v1", "namespaces", object).await?;
        // Pods can be created there as soon as the server answers, before a controller has looked around.
        if api.plugins.contains(AdmissionPlugin::ServiceAccount) {
            let metadata = json!({"name": "default", "namespace": name});
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
            create(api, "", "v1", "serviceaccounts", account).await?;
        }
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
    create(api, "", "v1", "services", service).await?;
    let address = allocation::ip_address("10.96.0.1", "default", "kubernetes");
    create(api, "networking.k8s.io", "v1", "ipaddresses", address).await?;
    let now = object::time(jiff::Timestamp::now());
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes", "finalizers": ["networking.k8s.io/service-cidr-finalizer"]},
        "spec": {"cidrs": ["10.96.0.0/16"]},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready",
            "lastTransitionTime": now,
        }]},
    });
    create(api, "networking.k8s.io", "v1", "servicecidrs", range).await?;
    for (name, value, description) in SYSTEM_CLASSES {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            "description": description, "preemptionPolicy": "PreemptLowerPriority",
        });
        create(api, "scheduling.k8s.io", "v1", "priorityclasses", class).await?;
    }
    Ok(())
}

async fn create(api: &Api, group: &str, version: &str, plural: &str, mut object: Value) -> Result<(), Status> {
    let snapshot = api.catalog.snapshot();
    let served = snapshot.find(group, version, plural).ok_or_else(Status::no_such_resource)?;
    served.complete(&mut object);
    let namespace = object::text(&object, "namespace").to_owned();
    let key = Bytes::from(served.key(&namespace, object::name(&object)));
    let value = stored::encode(&object);
    // A conflict means that it is there already.
    api.store.txn(vec![Write::Put { key, expect: Expect::Absent, value }]).await.map_err(Status::internal)?;
    Ok(())
}
