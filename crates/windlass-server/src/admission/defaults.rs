//! Built-in admission that fills in what a cluster decides: upstream's plugins TaintNodesByCondition,
//! Priority, DefaultTolerationSeconds, DefaultStorageClass, StorageObjectInUseProtection, RuntimeClass,
//! DefaultIngressClass and PodTopologyLabels.

use serde_json::{Value, json};

use super::{bound_pods, classes, optional, priority, runtime_class};
use crate::admission_config::AdmissionPlugin;
use crate::context::Context;
use crate::object::metadata_mut;
use crate::status::Status;
use crate::validation::access::Access as _;

/// How long a pod tolerates an unreachable node when it does not say.
const TOLERATION_SECONDS: i64 = 300;

/// Fills in a new object.
pub(crate) async fn create(context: &Context, object: &mut Value) -> Result<(), Status> {
    match (&*context.served.group, &*context.served.kind) {
        ("", "Pod") => pod(context, object).await?,
        ("", "Node") if context.runs(AdmissionPlugin::TaintNodesByCondition) => taint_until_ready(object),
        ("", "PersistentVolumeClaim") => {
            if context.runs(AdmissionPlugin::DefaultStorageClass) {
                classes::storage(context, object).await?;
            }
            if context.runs(AdmissionPlugin::StorageObjectInUseProtection) {
                protect(object, "kubernetes.io/pvc-protection");
            }
        }
        ("", "PersistentVolume") if context.runs(AdmissionPlugin::StorageObjectInUseProtection) => {
            protect(object, "kubernetes.io/pv-protection");
        }
        ("networking.k8s.io", "Ingress") if context.runs(AdmissionPlugin::DefaultIngressClass) => {
            classes::ingress(context, object).await?;
        }
        _ => {}
    }
    Ok(())
}

/// Fills in a new pod.
async fn pod(context: &Context, pod: &mut Value) -> Result<(), Status> {
    if context.api.plugins.has_optional() {
        Box::pin(optional::create(context, pod)).await?;
    }
    if context.runs(AdmissionPlugin::Priority) {
        priority::create(context, pod).await?;
    }
    if context.runs(AdmissionPlugin::DefaultTolerationSeconds) {
        tolerate_failing_nodes(pod);
    }
    optional::tolerate_resources(context, pod);
    if context.runs(AdmissionPlugin::RuntimeClass) {
        runtime_class::create(context, pod).await?;
    }
    if context.runs(AdmissionPlugin::PodTopologyLabels) {
        bound_pods::label_pod(context, pod).await?;
    }
    Ok(())
}

/// Fills in a changed object.
pub(crate) fn update(context: &Context, object: &mut Value, live: &Value) {
    if (&*context.served.group, &*context.served.kind, context.subresource()) != ("", "Pod", "") {
        return;
    }
    optional::update(context, object, live);
    if context.runs(AdmissionPlugin::Priority) {
        priority::update(object, live);
    }
    if context.runs(AdmissionPlugin::DefaultTolerationSeconds) {
        tolerate_failing_nodes(object);
    }
    optional::tolerate_resources(context, object);
}

/// No pod is to be scheduled to a new node before its controller has seen that it is ready.
fn taint_until_ready(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    const EFFECT: &str = "NoSchedule";
    let known = node.at("spec").list("taints");
    if known.iter().any(|taint| taint.text("key") == KEY && taint.text("effect") == EFFECT) {
        return;
    }
    let taint = json!({"key": KEY, "effect": EFFECT});
    match node["spec"].get_mut("taints").and_then(Value::as_array_mut) {
        Some(taints) => taints.push(taint),
        None => node["spec"]["taints"] = json!([taint]),
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
