//! What is filled into pods and pod templates.
//!
//! [`spec`] applies to every pod spec, wherever it is embedded; [`pod`] adds what upstream only does
//! for pods themselves.

use serde_json::{Map, Value, json};

use crate::validation::access::{Access, AccessMut};
use crate::validation::quantity::Quantity;

const FILE_MODE: i64 = 0o644;
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Fills in a pod template: an object with `metadata` and `spec`.
pub(crate) fn template(template: &mut Value) {
    spec(template.struct_mut("spec"));
}

/// Fills in a pod spec.
pub(crate) fn spec(spec: &mut Value) {
    if spec.text("serviceAccountName").is_empty() && !spec.text("serviceAccount").is_empty() {
        let account = spec.text("serviceAccount").to_owned();
        spec.put("serviceAccountName", account);
    }
    if !spec.text("serviceAccountName").is_empty() {
        let account = spec.text("serviceAccountName").to_owned();
        spec.put("serviceAccount", account);
    }
    spec.fill_text("dnsPolicy", "ClusterFirst");
    spec.fill_text("restartPolicy", "Always");
    spec.fill("securityContext", json!({}));
    spec.fill("terminationGracePeriodSeconds", 30);
    spec.fill_text("schedulerName", "default-scheduler");
    for volume in spec.items_mut("volumes") {
        default_volume(volume);
    }
    for list in CONTAINER_LISTS {
        for container in spec.items_mut(list) {
            default_container(container);
        }
    }
    round_list(spec, "overhead");
    if let Some(resources) = spec.child_mut("resources") {
        default_resources(resources);
    }
}

/// Fills in what only pods get, after [`spec`].
pub(crate) fn pod(pod: &mut Value) {
    let spec_value = pod.struct_mut("spec");
    spec(spec_value);
    if spec_value.int("terminationGracePeriodSeconds") < 0 {
        spec_value.put("terminationGracePeriodSeconds", 1);
    }
    let host_network = spec_value.flag("hostNetwork");
    for list in ["containers", "initContainers"] {
        for container in spec_value.items_mut(list) {
            if let Some(resources) = container.child_mut("resources") {
                requests_from_limits(resources);
            }
            if host_network {
                for port in container.items_mut("ports") {
                    let number = port.int("containerPort");
                    port.fill_int("hostPort", number);
                }
            }
        }
    }
    default_pod_resources(spec_value);
    spec_value.fill("enableServiceLinks", true);
    if let Some(status) = pod.child_mut("status") {
        default_status(status);
    }
}

fn default_status(status: &mut Value) {
    let ip = status.text("podIP").to_owned();
    let first = status.list("podIPs").first().map(|item| item.text("ip").to_owned());
    match (ip.is_empty(), first) {
        (true, Some(first)) => status.put("podIP", first),
        (false, first) if first.as_deref() != Some(&ip) => status.put("podIPs", json!([{ "ip": ip }])),
        _ => {}
    }
}

fn default_container(container: &mut Value) {
    if container.text("imagePullPolicy").is_empty() {
        let policy = pull_policy(container.text("image"));
        container.put("imagePullPolicy", policy);
    }
    container.fill_text("terminationMessagePath", "/dev/termination-log");
    container.fill_text("terminationMessagePolicy", "File");
    for port in container.items_mut("ports") {
        port.fill_text("protocol", "TCP");
    }
    for variable in container.items_mut("env") {
        if let Some(source) = variable.child_mut("valueFrom") {
            default_field_ref(source);
            if let Some(file) = source.child_mut("fileKeyRef") {
                file.fill("optional", false);
            }
        }
    }
    if let Some(resources) = container.child_mut("resources") {
        default_resources(resources);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.child_mut(probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = container.child_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.child_mut(hook) {
                default_http_get(hook);
            }
        }
    }
}

/// `Always` for images that float: no tag and no digest, or the tag `latest`.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, ""), |(name, digest)| (name, digest));
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    let tag = name[start..].split_once(':').map_or("", |(_, tag)| tag);
    let floats = tag == "latest" || (tag.is_empty() && digest.is_empty());
    if floats && is_repository(name) { "Always" } else { "IfNotPresent" }
}

/// Whether a name is a repository as image references spell it; others never float.
fn is_repository(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" || first != first.to_lowercase() => {
            rest
        }
        _ => name,
    };
    let slash = path.rfind('/').map_or(0, |slash| slash + 1);
    let path = path[slash..].find(':').map_or(path, |colon| &path[..slash + colon]);
    let part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'))
            && !part.starts_with(['.', '_', '-'])
            && !part.ends_with(['.', '_', '-'])
    };
    path.split('/').all(part)
}

fn default_probe(probe: &mut Value) {
    default_http_get(probe);
    if let Some(grpc) = probe.child_mut("grpc") {
        grpc.fill("service", "");
    }
    probe.fill_int("timeoutSeconds", 1);
    probe.fill_int("periodSeconds", 10);
    probe.fill_int("successThreshold", 1);
    probe.fill_int("failureThreshold", 3);
}

fn default_http_get(handler: &mut Value) {
    if let Some(http) = handler.child_mut("httpGet") {
        http.fill_text("path", "/");
        http.fill_text("scheme", "HTTP");
    }
}

fn default_field_ref(owner: &mut Value) {
    if let Some(field) = owner.child_mut("fieldRef") {
        field.fill_text("apiVersion", "v1");
    }
}

fn default_volume(volume: &mut Value) {
    if let Value::Object(map) = volume
        && map.iter().all(|(key, value)| key == "name" || value.is_null())
    {
        map.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(image) = volume.child_mut("image")
        && image.text("pullPolicy").is_empty()
    {
        let policy = pull_policy(image.text("reference"));
        image.put("pullPolicy", policy);
    }
    if let Some(host_path) = volume.child_mut("hostPath") {
        host_path.fill("type", "");
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.child_mut(source) {
            source.fill("defaultMode", FILE_MODE);
        }
    }
    if let Some(downward) = volume.child_mut("downwardAPI") {
        default_downward_items(downward);
    }
    if let Some(projected) = volume.child_mut("projected") {
        for source in projected.items_mut("sources") {
            if let Some(downward) = source.child_mut("downwardAPI") {
                default_downward_items(downward);
            }
            if let Some(token) = source.child_mut("serviceAccountToken") {
                token.fill("expirationSeconds", 3600);
            }
        }
    }
    if let Some(template) =
        volume.child_mut("ephemeral").and_then(|ephemeral| ephemeral.child_mut("volumeClaimTemplate"))
    {
        crate::strategy::persistent_volume_claim::default_spec(template.struct_mut("spec"));
    }
    default_legacy_volume(volume);
}

fn default_downward_items(source: &mut Value) {
    for item in source.items_mut("items") {
        default_field_ref(item);
    }
}

/// Volume types that no longer have a driver in the tree, but still their defaults. Shared with
/// PersistentVolume.
pub(crate) fn default_legacy_volume(volume: &mut Value) {
    if let Some(iscsi) = volume.child_mut("iscsi") {
        iscsi.fill_text("iscsiInterface", "default");
    }
    if let Some(rbd) = volume.child_mut("rbd") {
        rbd.fill_text("pool", "rbd");
        rbd.fill_text("user", "admin");
        rbd.fill_text("keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = volume.child_mut("azureDisk") {
        disk.fill("cachingMode", "ReadWrite");
        disk.fill("kind", "Shared");
        disk.fill("fsType", "ext4");
        disk.fill("readOnly", false);
    }
    if let Some(scale_io) = volume.child_mut("scaleIO") {
        scale_io.fill_text("storageMode", "ThinProvisioned");
        scale_io.fill_text("fsType", "xfs");
    }
}

/// Rounds the quantities of `limits` and `requests` up to thousandths and writes them canonically.
pub(crate) fn default_resources(resources: &mut Value) {
    round_list(resources, "limits");
    round_list(resources, "requests");
}

/// Rounds the quantities of a resource list up to thousandths and writes them canonically.
pub(crate) fn round_list(owner: &mut Value, field: &str) {
    let Some(Value::Object(list)) = owner.get_mut(field) else { return };
    for value in list.values_mut() {
        if let Some(quantity) = Quantity::from_value(value) {
            *value = quantity.rounded_up_to_milli().to_string().into();
        }
    }
}

fn requests_from_limits(resources: &mut Value) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let requests = resources.struct_mut("requests");
    for (name, value) in limits {
        requests.fill(&name, value);
    }
}

/// Pod-level requests default to what the containers ask for, or else to the pod-level limits.
fn default_pod_resources(spec: &mut Value) {
    let Some(resources) = spec.get("resources").filter(|resources| resources.is_object()) else { return };
    if resources.entries("limits").is_empty() && resources.entries("requests").is_empty() {
        return;
    }
    let total = super::resources::container_requests(spec);
    let mut requests: Map<String, Value> = resources.at("requests").as_object().cloned().unwrap_or_default();
    for (name, quantity) in &total {
        if super::resources::is_pod_level(name) && !requests.contains_key(name) {
            requests.insert(name.clone(), quantity.to_string().into());
        }
    }
    for (name, limit) in resources.entries("limits") {
        if super::resources::is_pod_level(name) && !requests.contains_key(name) {
            requests.insert(name.to_owned(), limit.clone());
        }
    }
    if !requests.is_empty() {
        spec.struct_mut("resources").put("requests", requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policy_follows_the_tag() {
        for (image, expected) in [
            ("x", "Always"),
            ("x:latest", "Always"),
            ("x:1", "IfNotPresent"),
            ("reg:5000/x", "Always"),
            ("reg:5000/x:1", "IfNotPresent"),
            ("x@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "IfNotPresent"),
            ("repo/img", "Always"),
            ("", "IfNotPresent"),
            ("Bad Name", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), expected, "{image}");
        }
    }

    #[test]
    fn requests_come_from_limits_in_pods_only() {
        let limits = json!({"cpu": "500m", "memory": "1Gi"});
        let mut object = json!({"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"limits": limits, "requests": {"cpu": "250m"}}}]}});
        let mut template_object = object.clone();
        pod(&mut object);
        assert_eq!(object["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "250m", "memory": "1Gi"}));
        template(&mut template_object);
        assert_eq!(template_object["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "250m"}));
    }
}
