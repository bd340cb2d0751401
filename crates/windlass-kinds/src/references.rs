//! The secrets, ConfigMaps and claims that a pod's spec names: upstream's `pkg/api/v1/pod/util.go`.

use serde_json::Value;

use crate::validation::access::Access as _;

/// Volume sources that name a secret of the pod's namespace, and the field that has the reference.
const DRIVERS: [(&str, &str); 8] = [
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
    ("csi", "nodePublishSecretRef"),
];

/// The secrets that a pod uses.
pub fn secrets(spec: &Value) -> impl Iterator<Item = &str> {
    let pulled = spec.list("imagePullSecrets").iter().map(|reference| reference.text("name"));
    let in_env = containers(spec).flat_map(|container| {
        let all = container.list("envFrom").iter().map(|from| from.at("secretRef").text("name"));
        let keys = container.list("env").iter().map(|env| env.at("valueFrom").at("secretKeyRef").text("name"));
        all.chain(keys)
    });
    let mounted = spec.list("volumes").iter().flat_map(|volume| {
        let own = [volume.at("secret").text("secretName"), volume.at("azureFile").text("secretName")];
        let drivers = DRIVERS.iter().map(|(driver, field)| volume.at(driver).at(field).text("name"));
        let projected = volume.at("projected").list("sources").iter().map(|source| source.at("secret").text("name"));
        own.into_iter().chain(drivers).chain(projected)
    });
    pulled.chain(in_env).chain(mounted).filter(|name| !name.is_empty())
}

/// The ConfigMaps that a pod uses.
pub fn config_maps(spec: &Value) -> impl Iterator<Item = &str> {
    let in_env = containers(spec).flat_map(|container| {
        let all = container.list("envFrom").iter().map(|from| from.at("configMapRef").text("name"));
        let keys = container.list("env").iter().map(|env| env.at("valueFrom").at("configMapKeyRef").text("name"));
        all.chain(keys)
    });
    let mounted = spec.list("volumes").iter().flat_map(|volume| {
        let own = volume.at("configMap").text("name");
        let projected = volume.at("projected").list("sources").iter().map(|source| source.at("configMap").text("name"));
        std::iter::once(own).chain(projected)
    });
    in_env.chain(mounted).filter(|name| !name.is_empty())
}

/// The claims that a pod names or has had made for it.
pub fn claims<'a>(pod: &'a str, spec: &'a Value) -> impl Iterator<Item = String> + use<'a> {
    spec.list("volumes").iter().filter_map(move |volume| match volume.at("persistentVolumeClaim").text("claimName") {
        "" if volume.has("ephemeral") => Some(format!("{pod}-{}", volume.text("name"))),
        "" => None,
        claim => Some(claim.to_owned()),
    })
}

/// Whether a node needs a secret to mount a volume: upstream's `VisitPVSecretNames`.
pub fn volume_needs_secret(volume: &Value, namespace: &str, name: &str) -> bool {
    let spec = volume.at("spec");
    let of_claim = spec.at("claimRef").text("namespace");
    let is_it = |given: &str, secret: &str| {
        let secret_namespace = if given.is_empty() { of_claim } else { given };
        !secret.is_empty() && secret == name && secret_namespace == namespace
    };
    let azure = spec.at("azureFile");
    let references = DRIVERS.iter().map(|(driver, field)| spec.at(driver).at(field));
    let csi = ["nodeStageSecretRef", "nodeExpandSecretRef"].map(|field| spec.at("csi").at(field));
    is_it(azure.text("secretNamespace"), azure.text("secretName"))
        || references.chain(csi).any(|reference| is_it(reference.text("namespace"), reference.text("name")))
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|field| spec.list(field))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_of_a_reference_is_found() {
        let spec = json!({
            "imagePullSecrets": [{"name": "pull"}, {}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "cm-from"}}]}],
            "containers": [{"env": [
                {"valueFrom": {"secretKeyRef": {"name": "key"}}}, {"valueFrom": {"configMapKeyRef": {"name": "cm-key"}}},
                {"name": "plain", "value": "v"},
            ]}],
            "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "debug"}}]}],
            "volumes": [
                {"secret": {"secretName": "mount"}}, {"azureFile": {"secretName": "azure"}},
                {"csi": {"nodePublishSecretRef": {"name": "csi"}}}, {"rbd": {"secretRef": {"name": "rbd"}}},
                {"projected": {"sources": [{"secret": {"name": "part"}}, {"configMap": {"name": "cm-part"}}]}},
                {"configMap": {"name": "cm-mount"}},
                {"persistentVolumeClaim": {"claimName": "claim"}}, {"name": "scratch", "ephemeral": {}},
            ],
        });
        let found: Vec<&str> = secrets(&spec).collect();
        assert_eq!(found, ["pull", "from", "key", "debug", "mount", "azure", "csi", "rbd", "part"]);
        assert_eq!(config_maps(&spec).collect::<Vec<_>>(), ["cm-from", "cm-key", "cm-part", "cm-mount"]);
        assert_eq!(claims("p", &spec).collect::<Vec<_>>(), ["claim", "p-scratch"]);
    }
    #[test]
    fn secrets_of_volumes_are_in_the_claims_namespace_unless_named() {
        let volume = json!({"spec": {
            "claimRef": {"namespace": "n", "name": "c"},
            "csi": {
                "nodeStageSecretRef": {"namespace": "other", "name": "stage"},
                "controllerPublishSecretRef": {"namespace": "n", "name": "controller"},
            },
            "azureFile": {"secretName": "azure"},
        }});
        assert!(volume_needs_secret(&volume, "other", "stage"));
        assert!(volume_needs_secret(&volume, "n", "azure"));
        assert!(!volume_needs_secret(&volume, "n", "stage"));
        assert!(!volume_needs_secret(&volume, "n", "controller"));
    }
}
