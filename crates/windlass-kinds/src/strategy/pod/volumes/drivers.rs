//! Volumes that a driver of some storage provides: what a pod's volume and a PersistentVolume must say.
//!
//! Both have these sources, nearly alike: a PersistentVolume belongs to no namespace, so it names the one
//! of each secret.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::super::env::no_backsteps;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::{names, values};

const HOST_PORTS: &str = "must be a host:port pair or multiple pairs separated by commas";
const ISCSI_TOO_LONG: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                              iscsi.initiatorName is specified.";
const LONGEST_ISCSI: usize = 64;
const LONGEST_TENANT: usize = 64;

/// What has a source.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner<'a> {
    /// A volume of a pod.
    Pod,
    /// A PersistentVolume, with its name.
    PersistentVolume(&'a str),
}

impl Owner<'_> {
    const fn is_persistent(self) -> bool {
        matches!(self, Self::PersistentVolume(_))
    }
}

/// Checks the source `kind` of a volume; `path` is that of the volume.
pub(crate) fn driver(kind: &str, source: &Value, owner: Owner<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    // The one source upstream checks under another name.
    let path = path.child(if kind == "gcePersistentDisk" { "persistentDisk" } else { kind });
    if ["rbd", "cephfs"].contains(&kind) && source.list("monitors").is_empty() {
        errors.push(FieldError::required(&path.child("monitors"), ""));
    }
    for field in required(kind) {
        values::required(source, field, &path, errors);
    }
    match kind {
        "hostPath" => host_path(source, &path, errors),
        "nfs" => nfs(source, &path, errors),
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = source.int("partition");
            if !(0..=255).contains(&partition) {
                // The message is upstream's, though it takes 0.
                let detail = "must be between 1 and 255, inclusive";
                errors.push(FieldError::invalid(&path.child("partition"), partition, detail));
            }
        }
        "iscsi" => iscsi(source, owner, &path, errors),
        "glusterfs" if owner.is_persistent() => endpoints_namespace(source, &path, errors),
        "flocker" => flocker(source, &path, errors),
        "cinder" => secret_ref(source, owner, &path, errors),
        "quobyte" => quobyte(source, &path, errors),
        "fc" => fibre_channel(source, &path, errors),
        "flexVolume" => flex_options(source, &path, errors),
        "azureFile" if owner.is_persistent() && source.text_opt("secretNamespace") == Some("") => {
            errors.push(FieldError::required(&path.child("secretNamespace"), ""));
        }
        "azureDisk" => azure_disk(source, &path, errors),
        "storageos" => {
            values::required_text(source, "volumeName", names::label, &path, errors);
            values::optional_text(source, "volumeNamespace", names::label, &path, errors);
            secret_ref(source, owner, &path, errors);
        }
        _ => {}
    }
}

/// The strings a source must have, where nothing else is said about them.
fn required(kind: &str) -> &'static [&'static str] {
    match kind {
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => &["volumeID"],
        "glusterfs" => &["endpoints", "path"],
        "rbd" => &["image"],
        "flexVolume" => &["driver"],
        "azureFile" => &["secretName", "shareName"],
        "azureDisk" => &["diskName", "diskURI"],
        "vsphereVolume" => &["volumePath"],
        "photonPersistentDisk" => &["pdID"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        _ => &[],
    }
}

fn host_path(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    const TYPES: &[&str] =
        &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if directory(source, path, errors) {
        values::one_of(source, "type", TYPES, path, errors);
    }
}

/// A path on the node, which must be there. Whether it is.
pub(crate) fn directory(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) -> bool {
    let given = values::required(source, "path", path, errors);
    if given {
        no_backsteps(source.text("path"), &path.child("path"), errors);
    }
    given
}

fn nfs(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    values::required(source, "server", path, errors);
    values::required(source, "path", path, errors);
    let directory = source.text("path");
    if !directory.starts_with('/') {
        errors.push(FieldError::invalid(&path.child("path"), directory, "must be an absolute path"));
    }
}

fn iscsi(source: &Value, owner: Owner<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    values::required(source, "targetPortal", path, errors);
    if let Owner::PersistentVolume(name) = owner
        && let Some(portal) = long_portal(source, name)
    {
        errors.push(FieldError::invalid(&path.child("targetportal"), portal, ISCSI_TOO_LONG));
    }
    if values::required(source, "iqn", path, errors) {
        qualified_iscsi(source.text("iqn"), owner, &path.child("iqn"), errors);
    }
    let lun = source.int("lun");
    for reason in names::in_range(lun, 0, 255) {
        errors.push(FieldError::invalid(&path.child("lun"), lun, reason));
    }
    let authenticates = source.flag("chapAuthDiscovery") || source.flag("chapAuthSession");
    if authenticates && !source.has("secretRef") {
        errors.push(FieldError::required(&path.child("secretRef"), ""));
    }
    if owner.is_persistent() && source.has("secretRef") {
        values::required(source.at("secretRef"), "name", &path.child("secretRef"), errors);
    }
    if let Some(initiator) = source.text_opt("initiatorName") {
        qualified_iscsi(initiator, owner, &path.child("initiatorname"), errors);
    }
}

/// The volume `name` may not be an initiator's, together with the portal: upstream reports a pod's volume at
/// its name, even if another source comes first.
pub(super) fn iscsi_name(source: &Value, name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if long_portal(source, name).is_some() {
        errors.push(FieldError::invalid(&path.child("name"), name, ISCSI_TOO_LONG));
    }
}

/// The portal, if it and the volume's name are too long for an initiator.
fn long_portal<'a>(source: &'a Value, name: &str) -> Option<&'a str> {
    let portal = source.text("targetPortal");
    (source.has("initiatorName") && name.len() + 1 + portal.len() > LONGEST_ISCSI).then_some(portal)
}

fn qualified_iscsi(name: &str, owner: Owner<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    static FORMS: LazyLock<[(&str, Regex); 3]> = LazyLock::new(|| {
        [
            ("iqn", r"iqn\.[0-9]{4}-[0-9]{2}\.([[:alnum:].-]+)(:[^,;*&$|\t\n\x0C\r ]+)$"),
            ("eui", r"^eui.[[:alnum:]]{16}$"),
            ("naa", r"^naa.[[:alnum:]]{32}$"),
        ]
        .map(|(prefix, form)| (prefix, Regex::new(form).expect("invariant: the pattern is well-formed")))
    });
    match FORMS.iter().find(|(prefix, _)| name.starts_with(prefix)) {
        Some((_, form)) if form.is_match(name) => {}
        None if !owner.is_persistent() => {
            let detail = "must be valid format starting with iqn, eui, or naa";
            errors.push(FieldError::invalid(path, name, detail));
        }
        _ => errors.push(FieldError::invalid(path, name, "must be valid format")),
    }
}

fn endpoints_namespace(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some(namespace) = source.text_opt("endpointsNamespace") else { return };
    let path = path.child("endpointsNamespace");
    if namespace.is_empty() {
        let detail = "if the endpointnamespace is set, it must be a valid namespace name";
        errors.push(FieldError::invalid(&path, namespace, detail));
    } else {
        values::invalid_for_each(&path, namespace, names::label(namespace), errors);
    }
}

fn flocker(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let name = source.text("datasetName");
    match (name.is_empty(), source.text("datasetUUID").is_empty()) {
        (true, true) => errors.push(FieldError::required(path, "one of datasetName and datasetUUID is required")),
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.push(FieldError::invalid(path, "resource", detail));
        }
        _ => {}
    }
    if name.contains('/') {
        errors.push(FieldError::invalid(&path.child("datasetName"), name, "must not contain '/'"));
    }
}

fn quobyte(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let registry = source.text("registry");
    if registry.is_empty() {
        errors.push(FieldError::required(&path.child("registry"), HOST_PORTS));
    } else if source.text("tenant").len() > LONGEST_TENANT {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(FieldError::required(&path.child("tenant"), detail));
    } else if !registry.split(',').all(is_host_port) {
        // Upstream says the same of each bad pair, with the whole registry each time.
        errors.push(FieldError::invalid(&path.child("registry"), registry, HOST_PORTS));
    }
    values::required(source, "volume", path, errors);
}

/// Whether Go's `net.SplitHostPort` takes the text.
fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host = match host.strip_prefix('[') {
        Some(bracketed) => match bracketed.strip_suffix(']') {
            Some(address) => address,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !host.contains(['[', ']']) && !port.contains(['[', ']'])
}

fn fibre_channel(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let names_path = path.child("targetWWNs");
    let named = !source.list("targetWWNs").is_empty();
    match (named, !source.list("wwids").is_empty()) {
        (false, false) => {
            let detail = "must specify either targetWWNs or wwids, but not both";
            errors.push(FieldError::required(&names_path, detail));
        }
        (true, true) => {
            let shown = source.at("targetWWNs").clone();
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            errors.push(FieldError::invalid(&names_path, shown, detail));
        }
        _ => {}
    }
    if named {
        let path = path.child("lun");
        match source.int_opt("lun") {
            None => errors.push(FieldError::required(&path, "lun is required if targetWWNs is specified")),
            Some(lun) => {
                for reason in names::in_range(lun, 0, 255) {
                    errors.push(FieldError::invalid(&path, lun, reason));
                }
            }
        }
    }
}

fn flex_options(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("options");
    for (key, _) in source.entries("options") {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace).to_lowercase();
        let reserved =
            |domain: &str| namespace.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if reserved("kubernetes.io") || reserved("k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(FieldError::invalid(&path.key(key), key, detail));
        }
    }
}

fn azure_disk(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    if source.has("cachingMode") {
        values::one_of(source, "cachingMode", &["None", "ReadOnly", "ReadWrite"], path, errors);
    }
    let Some(kind) = source.text_opt("kind") else { return };
    values::one_of(source, "kind", &["Dedicated", "Managed", "Shared"], path, errors);
    let (prefix, form) = if kind == "Managed" { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    let uri = source.text("diskURI");
    if !uri.starts_with(prefix) {
        errors.push(FieldError::not_supported(&path.child("diskURI"), uri, &[form]));
    }
}

/// An optional reference to a secret, which must be named.
fn secret_ref(source: &Value, owner: Owner<'_>, path: &Path<'_>, errors: &mut FieldErrors) {
    let secret = source.at("secretRef");
    if secret.is_null() {
        return;
    }
    let path = path.child("secretRef");
    values::required(secret, "name", &path, errors);
    if owner.is_persistent() {
        values::required(secret, "namespace", &path, errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VOLUME: Owner<'_> = Owner::PersistentVolume("pv");

    fn check_for(owner: Owner<'_>, kind: &str, source: &Value, expected: &str) {
        let mut errors = FieldErrors::default();
        driver(kind, source, owner, &Path::new("v"), &mut errors);
        assert_eq!(errors.to_string(), expected, "{kind} of {owner:?}: {source}");
    }

    /// Both owners say the same.
    fn check(kind: &str, source: &Value, expected: &str) {
        check_for(Owner::Pod, kind, source, expected);
        check_for(VOLUME, kind, source, expected);
    }

    #[test]
    fn fibre_channels() {
        check("fc", &json!({"wwids": ["a"]}), "[]");
        check("fc", &json!({"targetWWNs": ["a"], "lun": 255}), "[]");
        check(
            "fc",
            &json!({}),
            "v.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both",
        );
        check(
            "fc",
            &json!({"targetWWNs": ["a"], "wwids": ["b"], "lun": 256}),
            "[v.fc.targetWWNs: Invalid value: [\"a\"]: targetWWNs and wwids can not be specified simultaneously, \
             v.fc.lun: Invalid value: 256: must be between 0 and 255, inclusive]",
        );
        check(
            "fc",
            &json!({"targetWWNs": ["a"]}),
            "v.fc.lun: Required value: lun is required if targetWWNs is specified",
        );
    }

    #[test]
    fn iscsi_targets() {
        let target = |iqn: &str| json!({"targetPortal": "1.2.3.4", "iqn": iqn, "lun": 0});
        check("iscsi", &target("iqn.2015-02.example.com:test"), "[]");
        check("iscsi", &target("eui.0123456789ABCDEF"), "[]");
        check("iscsi", &target("naa.60004567BA64678D0123456789ABCDEF"), "[]");
        check(
            "iscsi",
            &target("iqn.2015-02.com"),
            "v.iscsi.iqn: Invalid value: \"iqn.2015-02.com\": must be valid format",
        );
        check_for(
            Owner::Pod,
            "iscsi",
            &target("x"),
            "v.iscsi.iqn: Invalid value: \"x\": must be valid format starting with iqn, eui, or naa",
        );
        check_for(VOLUME, "iscsi", &target("x"), "v.iscsi.iqn: Invalid value: \"x\": must be valid format");
        check(
            "iscsi",
            &json!({"lun": -1, "chapAuthSession": true}),
            "[v.iscsi.targetPortal: Required value, v.iscsi.iqn: Required value, v.iscsi.lun: Invalid value: -1: must \
             be between 0 and 255, inclusive, v.iscsi.secretRef: Required value]",
        );
        let mut long = target("eui.0123456789ABCDEF");
        long["initiatorName"] = "eui.0123456789ABCDEF".into();
        check("iscsi", &long, "[]");
        long["targetPortal"] = "p".repeat(62).into();
        long["secretRef"] = json!({});
        check_for(Owner::Pod, "iscsi", &long, "[]");
        let portal = "p".repeat(62);
        check_for(
            VOLUME,
            "iscsi",
            &long,
            &format!(
                "[v.iscsi.targetportal: Invalid value: \"{portal}\": {ISCSI_TOO_LONG}, v.iscsi.secretRef.name: \
                 Required value]"
            ),
        );
    }

    #[test]
    fn disks() {
        check("awsElasticBlockStore", &json!({"volumeID": "a", "partition": 0}), "[]");
        check(
            "awsElasticBlockStore",
            &json!({"volumeID": "a", "partition": 256}),
            "v.awsElasticBlockStore.partition: Invalid value: 256: must be between 1 and 255, inclusive",
        );
        check(
            "gcePersistentDisk",
            &json!({"partition": -1}),
            "[v.persistentDisk.pdName: Required value, v.persistentDisk.partition: Invalid value: -1: must be between \
             1 and 255, inclusive]",
        );
        let disk =
            |kind: &str, uri: &str| json!({"diskName": "d", "diskURI": uri, "kind": kind, "cachingMode": "None"});
        check("azureDisk", &disk("Shared", "https://a"), "[]");
        check("azureDisk", &disk("Managed", "/subscriptions/a"), "[]");
        check(
            "azureDisk",
            &disk("Managed", "https://a"),
            "v.azureDisk.diskURI: Unsupported value: \"https://a\": supported values: \
             \"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}\"",
        );
        check(
            "azureDisk",
            &json!({"diskName": "d", "diskURI": "https://a", "kind": "x", "cachingMode": ""}),
            "[v.azureDisk.cachingMode: Unsupported value: \"\": supported values: \"None\", \"ReadOnly\", \
             \"ReadWrite\", v.azureDisk.kind: Unsupported value: \"x\": supported values: \"Dedicated\", \"Managed\", \
             \"Shared\"]",
        );
    }

    #[test]
    fn names_and_secrets() {
        check("storageos", &json!({"volumeName": "a", "volumeNamespace": "b"}), "[]");
        check("storageos", &json!({}), "v.storageos.volumeName: Required value");
        check_for(
            Owner::Pod,
            "storageos",
            &json!({"volumeName": "a", "secretRef": {}}),
            "v.storageos.secretRef.name: Required value",
        );
        check_for(
            VOLUME,
            "cinder",
            &json!({"volumeID": "a", "secretRef": {}}),
            "[v.cinder.secretRef.name: Required value, v.cinder.secretRef.namespace: Required value]",
        );
        check_for(
            VOLUME,
            "glusterfs",
            &json!({"endpoints": "a", "path": "b", "endpointsNamespace": ""}),
            "v.glusterfs.endpointsNamespace: Invalid value: \"\": if the endpointnamespace is set, it must be a valid \
             namespace name",
        );
        check("flocker", &json!({}), "v.flocker: Required value: one of datasetName and datasetUUID is required");
        check("flexVolume", &json!({"driver": "a", "options": {"x": "1", "notk8s.io/a": "1"}}), "[]");
        check(
            "flexVolume",
            &json!({"driver": "a", "options": {"a.K8s.io/b": "1", "kubernetes.io": "1"}}),
            "[v.flexVolume.options[a.K8s.io/b]: Invalid value: \"a.K8s.io/b\": kubernetes.io and k8s.io namespaces are \
             reserved, v.flexVolume.options[kubernetes.io]: Invalid value: \"kubernetes.io\": kubernetes.io and k8s.io \
             namespaces are reserved]",
        );
    }

    #[test]
    fn registries() {
        check("quobyte", &json!({"registry": "a:1,[::1]:2", "volume": "v"}), "[]");
        for registry in ["a", "a:1,b", "::1:2", "[::1"] {
            check(
                "quobyte",
                &json!({"registry": registry, "volume": "v"}),
                &format!("v.quobyte.registry: Invalid value: \"{registry}\": {HOST_PORTS}"),
            );
        }
    }
}
