//! Built-in admission that fills in what a cluster decides: upstream's plugins Priority, DefaultTolerationSeconds,
//! StorageObjectInUseProtection and RuntimeClass.

use serde_json::{Value, json};

use super::{priority, runtime_class};
use crate::object::metadata_mut;
use crate::registry::Context;
use crate::status::Status;
use crate::validation::access::Access as _;

/// How long a pod tolerates an unreachable node when it does not say.
const TOLERATION_SECONDS: i64 = 300;

/// Fills in a new object.
pub(crate) async fn create(context: &Context, object: &mut Value) -> Result<(), Status> {
    match (&*context.served.group, &*context.served.kind) {
        ("", "Pod") => {
            priority::create(context, object).await?;
            tolerate_failing_nodes(object);
            runtime_class::create(context, object).await
        }
        ("", "PersistentVolumeClaim") => {
            protect(object, "kubernetes.io/pvc-protection");
            Ok(())
        }
        ("", "PersistentVolume") => {
            protect(object, "kubernetes.io/pv-protection");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Fills in a changed object.
pub(crate) fn update(context: &Context, object: &mut Value, live: &Value) {
    if (&*context.served.group, &*context.served.kind, context.subresource()) == ("", "Pod", "") {
        priority::update(object, live);
        tolerate_failing_nodes(object);
    }
}

fn tolerate_failing_nodes(pod: &mut Value) {
    let spec = pod.at("spec");
    let tolerated = |key: &str| {
        spec.list("tolerations").iter().any(|toleration| {
            let matches_key = toleration.text("key") == key || toleration.text("key").is_empty();
            matches_key && matches!(toleration.text("effect"), "" | "NoExecute")
        })
    };
    let missing: Vec<Value> = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        .into_iter()
        .filter(|key| !tolerated(key))
        .map(|key| {
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS})
        })
        .collect();
    if missing.is_empty() {
        return;
    }
    match pod["spec"].get_mut("tolerations").and_then(Value::as_array_mut) {
        Some(tolerations) => tolerations.extend(missing),
        None => pod["spec"]["tolerations"] = missing.into(),
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    let metadata = metadata_mut(object);
    match metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
        Some(finalizers) if finalizers.iter().any(|known| known == finalizer) => {}
        Some(finalizers) => finalizers.push(finalizer.into()),
        None => {
            metadata.insert("finalizers".into(), json!([finalizer]));
        }
    }
}
