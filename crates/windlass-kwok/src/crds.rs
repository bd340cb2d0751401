//! The definitions of kwok's kinds, for a cluster that has none yet: they accept every field, and kwok's own definitions can
//! be applied over them.

use serde_json::{Value, json};

/// Kind, plural, singular, scope.
const KINDS: [(&str, &str, &str, bool); 12] = [
    ("Stage", "stages", "stage", false),
    ("Logs", "logs", "logs", true),
    ("ClusterLogs", "clusterlogs", "clusterlogs", false),
    ("Exec", "execs", "exec", true),
    ("ClusterExec", "clusterexecs", "clusterexec", false),
    ("Attach", "attaches", "attach", true),
    ("ClusterAttach", "clusterattaches", "clusterattach", false),
    ("PortForward", "portforwards", "portforward", true),
    ("ClusterPortForward", "clusterportforwards", "clusterportforward", false),
    ("ResourceUsage", "resourceusages", "resourceusage", true),
    ("ClusterResourceUsage", "clusterresourceusages", "clusterresourceusage", false),
    ("Metric", "metrics", "metric", false),
];

/// CustomResourceDefinitions of all of kwok's kinds.
pub fn definitions() -> Vec<Value> {
    KINDS
        .iter()
        .map(|(kind, plural, singular, namespaced)| {
            let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let schema = json!({"type": "object", "properties": {"spec": open, "status": open}, "required": ["spec"]});
            json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.kwok.x-k8s.io")},
                "spec": {
                    "group": "kwok.x-k8s.io",
                    "scope": if *namespaced { "Namespaced" } else { "Cluster" },
                    "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
                    "versions": [{
                        "name": "v1alpha1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
                    }],
                },
            })
        })
        .collect()
}

/// Creates the definitions that are missing.
pub async fn ensure(client: &kube::Client) -> Result<(), kube::Error> {
    for definition in definitions() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldManager=kwok";
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(definition.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        match client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other?),
        }
    }
    Ok(())
}
