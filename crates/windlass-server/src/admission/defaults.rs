//! Built-in admission that fills in what a cluster decides: upstream's plugins DefaultTolerationSeconds,
//! Priority and StorageObjectInUseProtection.

use serde_json::{Value, json};

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
            tolerate_failing_nodes(object);
            prioritize(context, object).await
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
pub(crate) fn update(context: &Context, object: &mut Value) {
    if (&*context.served.group, &*context.served.kind, context.subresource()) == ("", "Pod", "") {
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

/// The priority of a pod comes from its class, or the default class, or is 0.
async fn prioritize(context: &Context, pod: &mut Value) -> Result<(), Status> {
    let name = pod.at("spec").text("priorityClassName").to_owned();
    let class = match name.as_str() {
        "" => default_class(context).await?,
        "system-cluster-critical" => Some(json!({"value": 2_000_000_000})),
        "system-node-critical" => Some(json!({"value": 2_000_001_000})),
        name => {
            let key = format!("/registry/priorityclasses/{name}");
            let Some(entry) = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)? else {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(Status::forbidden(context.qualified(), crate::object::name(pod), why));
            };
            Some(crate::registry::stored::decode(&entry.value)?)
        }
    };
    let class = class.unwrap_or_else(|| json!({}));
    if name.is_empty() && !class.at("metadata").text("name").is_empty() {
        pod["spec"]["priorityClassName"] = class.at("metadata").text("name").into();
    }
    pod["spec"]["priority"] = class.int("value").into();
    if pod.at("spec").text("preemptionPolicy").is_empty() {
        let policy = class.text("preemptionPolicy");
        let policy = if policy.is_empty() { "PreemptLowerPriority" } else { policy };
        pod["spec"]["preemptionPolicy"] = policy.into();
    }
    Ok(())
}

/// The class that is the default, if one is; of several, the one with the lowest priority.
async fn default_class(context: &Context) -> Result<Option<Value>, Status> {
    let range = windlass_store::Range::prefix("/registry/priorityclasses/");
    let snapshot = context.api.store.range(range, None, 0).await.map_err(Status::internal)?;
    let classes = snapshot.entries.iter().filter_map(|entry| crate::registry::stored::decode(&entry.value).ok());
    Ok(classes.filter(|class| class.flag("globalDefault")).min_by_key(|class| class.int("value")))
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
