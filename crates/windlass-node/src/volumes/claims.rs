//! What a claim leads to: the directory or file of a node that its volume is.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, PodSpec};

use super::Volume;

/// The claim behind a volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimName {
    /// The volume's name in the pod.
    pub(crate) volume: String,
    /// The claim's name.
    pub(crate) claim: String,
    read_only: bool,
    /// Whether the claim was made for the pod, and must be its own.
    is_owned: bool,
}

/// The claims of a pod, those that were made for it among them.
pub(crate) fn names(pod: &Pod, spec: &PodSpec) -> Vec<ClaimName> {
    let pod = pod.metadata.name.as_deref().unwrap_or_default();
    let of = |volume: &k8s_openapi::api::core::v1::Volume| {
        let name = volume.name.clone();
        if let Some(source) = &volume.persistent_volume_claim {
            let read_only = source.read_only == Some(true);
            return Some(ClaimName { volume: name, claim: source.claim_name.clone(), read_only, is_owned: false });
        }
        volume.ephemeral.as_ref()?;
        let claim = format!("{pod}-{name}");
        Some(ClaimName { volume: name, claim, read_only: false, is_owned: true })
    };
    spec.volumes.iter().flatten().filter_map(of).collect()
}

/// The name of the volume that a claim is bound to; why it cannot be used otherwise, in the kubelet's words.
pub(crate) fn volume_name(
    name: &ClaimName,
    pod: &Pod,
    claim: Option<&PersistentVolumeClaim>,
) -> Result<String, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let failed = |why: &str| Err(format!("error processing PVC {namespace}/{}: {why}", name.claim));
    let Some(claim) = claim else {
        return failed(&format!(
            "failed to fetch PVC from API server: persistentvolumeclaims {:?} not found",
            name.claim
        ));
    };
    let mut owners = claim.metadata.owner_references.iter().flatten();
    let is_own = owners.any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref());
    if name.is_owned && !is_own {
        return failed("PVC was not created for the pod");
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return failed("PVC is being deleted");
    }
    let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|_| is_bound);
    volume.map_or_else(|| failed("PVC is not bound"), Ok)
}

/// What a volume is on its node.
pub(crate) fn volume(name: &ClaimName, volume: Option<&PersistentVolume>) -> Result<Volume, String> {
    let spec = volume.and_then(|volume| volume.spec.as_ref());
    let Some(spec) = spec else {
        return Err(format!("failed to fetch PV of claim {:?} from API server: not found", name.claim));
    };
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err("block volumes are not supported on this node".to_owned());
    }
    let read_only = name.read_only || spec.access_modes.as_deref() == Some(&["ReadOnlyMany".to_owned()][..]);
    if let Some(host) = &spec.host_path {
        let kind = host.type_.clone().unwrap_or_default();
        return Ok(Volume::HostPath { path: host.path.clone(), kind, read_only });
    }
    if let Some(local) = &spec.local {
        return Ok(Volume::HostPath { path: local.path.clone(), kind: "Directory".to_owned(), read_only });
    }
    Err("only volumes of the kinds hostPath and local can be mounted on this node".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Pod {
        let volumes = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "e", "emptyDir": {}},
        ]);
        let pod = json!({"metadata": {"name": "web", "namespace": "n", "uid": "u"}, "spec": {"containers": [], "volumes": volumes}});
        serde_json::from_value(pod).expect("a pod")
    }

    fn claim(value: &Value) -> PersistentVolumeClaim {
        serde_json::from_value(value.clone()).expect("a claim")
    }

    #[test]
    fn claims_lead_to_volumes() {
        let pod = pod();
        let found = names(&pod, pod.spec.as_ref().expect("a spec"));
        let claims: Vec<&str> = found.iter().map(|name| name.claim.as_str()).collect();
        assert_eq!(claims, ["c", "web-own"]);
        let bound = json!({"metadata": {}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
        assert_eq!(volume_name(&found[0], &pod, Some(&claim(&bound))), Ok("v".to_owned()));
        let error = |name: &ClaimName, value: Option<Value>| {
            volume_name(name, &pod, value.as_ref().map(claim).as_ref()).expect_err("it cannot be used")
        };
        assert!(error(&found[0], None).ends_with("persistentvolumeclaims \"c\" not found"));
        assert!(error(&found[0], Some(json!({"metadata": {}}))).ends_with("PVC is not bound"));
        assert!(error(&found[1], Some(bound.clone())).ends_with("PVC was not created for the pod"));
        let mut own = bound;
        own["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u", "controller": true}]);
        assert_eq!(volume_name(&found[1], &pod, Some(&claim(&own))), Ok("v".to_owned()));
    }

    #[test]
    fn volumes_are_directories_of_the_node() {
        let name = ClaimName { volume: "d".into(), claim: "c".into(), read_only: false, is_owned: false };
        let of = |spec: Value| {
            let found: PersistentVolume = serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("one");
            volume(&name, Some(&found))
        };
        let host = |read_only| Volume::HostPath { path: "/v".into(), kind: "DirectoryOrCreate".into(), read_only };
        let path = json!({"path": "/v", "type": "DirectoryOrCreate"});
        assert_eq!(of(json!({"hostPath": path, "accessModes": ["ReadWriteOnce"]})), Ok(host(false)));
        assert_eq!(of(json!({"hostPath": path, "accessModes": ["ReadOnlyMany"]})), Ok(host(true)));
        assert!(of(json!({"hostPath": path, "volumeMode": "Block"})).is_err());
        assert!(of(json!({"nfs": {"server": "s", "path": "/"}})).is_err());
    }
}
