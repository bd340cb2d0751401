//! The volumes of the API as files: `configMap`, `secret`, `projected`, `downwardAPI` and `emptyDir`; and what the
//! environments of containers refer to. Pure: the objects that are referred to are read before.
//!
//! Claims are resolved for runtimes that run containers. Everything else (host paths, images, ...) is between the pod's
//! specification and its runtime.

pub(crate) mod claims;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, DownwardAPIVolumeFile, KeyToPath, Pod, PodSpec, ResourceFieldSelector, Secret,
    Volume as ApiVolume, VolumeProjection,
};
use windlass::quantity::Amount;

use crate::containers::containers;
use crate::resources::{Resources, amounts};

/// The volumes of a pod, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Mounted {
    /// The volumes that the agent resolves. Those that are missing here are the runtime's own.
    pub volumes: BTreeMap<String, Volume>,
}

/// A volume that the agent resolves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Volume {
    /// Files that the API has the content of.
    Files(Vec<File>),
    /// An empty directory, in memory if the medium is `Memory`.
    EmptyDir {
        /// `Memory`, or empty for the disk.
        medium: String,
        /// How much it may hold, in bytes.
        limit: Option<i64>,
    },
    /// What a claim leads to: a directory or a file of the node.
    HostPath {
        /// Where it is.
        path: String,
        /// What it must be, or becomes, as `hostPath.type` has it.
        kind: String,
        /// Whether nothing may be written to it.
        read_only: bool,
    },
}

/// A file of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct File {
    /// Where it is in the volume.
    pub path: String,
    /// Its mode.
    pub mode: i32,
    /// What it holds.
    pub content: Content,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A token of the pod's ServiceAccount, renewed before it expires.
    Token {
        /// What it is for; the API server if empty.
        audience: String,
        /// How long it is valid.
        expiration_seconds: i64,
    },
}

/// An object that a pod refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reference {
    ConfigMap(String),
    Secret(String),
}

/// The objects that a pod refers to, as far as they exist.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    pub(crate) maps: BTreeMap<String, Arc<ConfigMap>>,
    pub(crate) secrets: BTreeMap<String, Arc<Secret>>,
    /// What claims lead to, by the name of the volume; why they lead nowhere.
    pub(crate) claims: BTreeMap<String, Result<Volume, String>>,
}

/// What the downward API shows besides the pod as the API has it. Its addresses are in the pod's status only after its
/// containers have started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    /// The pod's address.
    pub(crate) pod_ip: Option<IpAddr>,
    /// The node's address.
    pub(crate) host_ip: Option<IpAddr>,
    /// What the node has for pods.
    pub(crate) allocatable: Arc<Resources>,
}

/// A volume that cannot be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountFailure {
    pub(crate) volume: String,
    pub(crate) cause: String,
}

impl MountFailure {
    /// In the kubelet's words.
    pub(crate) fn message(&self) -> String {
        format!("MountVolume.SetUp failed for volume \"{}\" : {}", self.volume, self.cause)
    }
}

/// Every ConfigMap and Secret that a pod's volumes refer to.
pub(crate) fn references(spec: &PodSpec) -> BTreeSet<Reference> {
    let volumes = || spec.volumes.iter().flatten();
    let projections =
        || volumes().flat_map(|volume| volume.projected.iter().flat_map(|all| all.sources.iter().flatten()));
    let maps = volumes().filter_map(|volume| Some(&volume.config_map.as_ref()?.name));
    let maps = maps.chain(projections().filter_map(|source| Some(&source.config_map.as_ref()?.name)));
    let secrets = volumes().filter_map(|volume| volume.secret.as_ref()?.secret_name.as_ref());
    let secrets = secrets.chain(projections().filter_map(|source| Some(&source.secret.as_ref()?.name)));
    maps.cloned().map(Reference::ConfigMap).chain(secrets.cloned().map(Reference::Secret)).collect()
}

/// Every ConfigMap and Secret that a container's environment refers to.
pub(crate) fn container_references(container: &Container) -> BTreeSet<Reference> {
    let values = || container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let whole = || container.env_from.iter().flatten();
    let maps = values().filter_map(|value| Some(&value.config_map_key_ref.as_ref()?.name));
    let maps = maps.chain(whole().filter_map(|source| Some(&source.config_map_ref.as_ref()?.name)));
    let secrets = values().filter_map(|value| Some(&value.secret_key_ref.as_ref()?.name));
    let secrets = secrets.chain(whole().filter_map(|source| Some(&source.secret_ref.as_ref()?.name)));
    maps.cloned().map(Reference::ConfigMap).chain(secrets.cloned().map(Reference::Secret)).collect()
}

/// The volumes of a pod; the first that cannot be mounted otherwise.
pub(crate) fn volumes(
    pod: &Pod,
    spec: &PodSpec,
    found: &Found,
    around: &Surroundings,
) -> Result<BTreeMap<String, Volume>, MountFailure> {
    let mut mounted = BTreeMap::new();
    for volume in spec.volumes.iter().flatten() {
        match resolve(pod, spec, volume, found, around) {
            Ok(Some(resolved)) => _ = mounted.insert(volume.name.clone(), resolved),
            Ok(None) => {}
            Err(cause) => return Err(MountFailure { volume: volume.name.clone(), cause }),
        }
    }
    Ok(mounted)
}

fn resolve(
    pod: &Pod,
    spec: &PodSpec,
    volume: &ApiVolume,
    found: &Found,
    around: &Surroundings,
) -> Result<Option<Volume>, String> {
    if let Some(empty) = &volume.empty_dir {
        let limit = empty.size_limit.as_ref().and_then(|limit| Amount::try_from(limit).ok()).map(Amount::value);
        return Ok(Some(Volume::EmptyDir { medium: empty.medium.clone().unwrap_or_default(), limit }));
    }
    if let Some(claimed) = found.claims.get(&volume.name) {
        return claimed.clone().map(Some);
    }
    let files = if let Some(source) = &volume.config_map {
        let optional = source.optional.unwrap_or(false);
        map_files(found, &source.name, source.items.as_deref(), source.default_mode.unwrap_or(0o644), optional)?
    } else if let Some(source) = &volume.secret {
        let (name, optional) = (source.secret_name.as_deref().unwrap_or_default(), source.optional.unwrap_or(false));
        secret_files(found, name, source.items.as_deref(), source.default_mode.unwrap_or(0o644), optional)?
    } else if let Some(source) = &volume.downward_api {
        let (items, mode) = (source.items.as_deref().unwrap_or_default(), source.default_mode.unwrap_or(0o644));
        downward_files(pod, spec, items, mode, around)?
    } else if let Some(source) = &volume.projected {
        let mode = source.default_mode.unwrap_or(0o644);
        let mut files = Vec::new();
        for projection in source.sources.iter().flatten() {
            files.extend(projected_files(pod, spec, projection, mode, found, around)?);
        }
        files
    } else {
        return Ok(None);
    };
    Ok(Some(Volume::Files(files)))
}

fn projected_files(
    pod: &Pod,
    spec: &PodSpec,
    source: &VolumeProjection,
    mode: i32,
    found: &Found,
    around: &Surroundings,
) -> Result<Vec<File>, String> {
    if let Some(map) = &source.config_map {
        return map_files(found, &map.name, map.items.as_deref(), mode, map.optional.unwrap_or(false));
    }
    if let Some(secret) = &source.secret {
        return secret_files(found, &secret.name, secret.items.as_deref(), mode, secret.optional.unwrap_or(false));
    }
    if let Some(downward) = &source.downward_api {
        return downward_files(pod, spec, downward.items.as_deref().unwrap_or_default(), mode, around);
    }
    let Some(token) = &source.service_account_token else { return Ok(Vec::new()) };
    let content = Content::Token {
        audience: token.audience.clone().unwrap_or_default(),
        expiration_seconds: token.expiration_seconds.unwrap_or(3600),
    };
    Ok(vec![File { path: token.path.clone(), mode, content }])
}

fn map_files(
    found: &Found,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: bool,
) -> Result<Vec<File>, String> {
    let Some(map) = found.maps.get(name) else {
        return if optional { Ok(Vec::new()) } else { Err(format!("configmap \"{name}\" not found")) };
    };
    let text = map.data.iter().flatten().map(|(key, value)| (key, value.as_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, ByteString(value))| (key, &**value));
    let missing = |key: &str| format!("configmap references non-existent config key: {key}");
    payload(text.chain(binary).collect(), items, mode, optional, missing)
}

fn secret_files(
    found: &Found,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: bool,
) -> Result<Vec<File>, String> {
    let Some(secret) = found.secrets.get(name) else {
        return if optional { Ok(Vec::new()) } else { Err(format!("secret \"{name}\" not found")) };
    };
    let data = secret.data.iter().flatten().map(|(key, ByteString(value))| (key, &**value));
    payload(data.collect(), items, mode, optional, |key| format!("references non-existent secret key: {key}"))
}

fn payload(
    data: BTreeMap<&String, &[u8]>,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: bool,
    missing: impl Fn(&str) -> String,
) -> Result<Vec<File>, String> {
    let file =
        |path: &str, mode, bytes: &[u8]| File { path: path.to_owned(), mode, content: Content::Bytes(bytes.to_vec()) };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data.into_iter().map(|(key, bytes)| file(key, mode, bytes)).collect());
    };
    let mut files = Vec::new();
    for item in items {
        match data.get(&item.key) {
            Some(bytes) => files.push(file(&item.path, item.mode.unwrap_or(mode), bytes)),
            None if optional => {}
            None => return Err(missing(&item.key)),
        }
    }
    Ok(files)
}

fn downward_files(
    pod: &Pod,
    spec: &PodSpec,
    items: &[DownwardAPIVolumeFile],
    mode: i32,
    around: &Surroundings,
) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    for item in items {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => pod_field(pod, spec, &field.field_path, around)?,
            (None, Some(resource)) => {
                let container = container_named(spec, resource.container_name.as_deref().unwrap_or_default())?;
                resource_field(&container, resource, &around.allocatable)
            }
            (None, None) => String::new(),
        };
        let content = Content::Bytes(text.into_bytes());
        files.push(File { path: item.path.clone(), mode: item.mode.unwrap_or(mode), content });
    }
    Ok(files)
}

fn container_named<'a>(spec: &'a PodSpec, name: &str) -> Result<Cow<'a, Container>, String> {
    let mut all = containers(spec).map(|(_, container)| container);
    all.find(|container| container.name == name).ok_or_else(|| format!("container {name} not found"))
}

/// A field of a pod as text.
fn pod_field(pod: &Pod, spec: &PodSpec, path: &str, around: &Surroundings) -> Result<String, String> {
    let meta = &pod.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let all = |map: &Option<BTreeMap<String, String>>| {
        let lines: Vec<String> = map.iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
        lines.join("\n")
    };
    let one = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default()
    };
    let quoted = |prefix: &str| path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']");
    if let Some(key) = quoted("metadata.labels") {
        return Ok(one(&meta.labels, key));
    }
    if let Some(key) = quoted("metadata.annotations") {
        return Ok(one(&meta.annotations, key));
    }
    let address = |address: Option<IpAddr>| address.map(|address| address.to_string()).unwrap_or_default();
    Ok(match path {
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "metadata.labels" => all(&meta.labels),
        "metadata.annotations" => all(&meta.annotations),
        "spec.nodeName" => text(&spec.node_name),
        "spec.serviceAccountName" => text(&spec.service_account_name),
        // There is one address of each kind; several would be separated by commas.
        "status.hostIP" | "status.hostIPs" => address(around.host_ip),
        "status.podIP" | "status.podIPs" => address(around.pod_ip),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

/// A resource of a container in multiples of a divisor, rounded up. A container without a limit may use what there is at
/// most. Mirrors `MergeContainerResourceLimits` in `pkg/api/v1/resource/helpers.go`.
fn resource_field(container: &Container, field: &ResourceFieldSelector, most: &Resources) -> String {
    let (kind, name) = field.resource.split_once('.').unwrap_or(("", &field.resource));
    let resources = container.resources.as_ref();
    let is_limit = kind == "limits";
    let quantities = if is_limit {
        resources.and_then(|all| all.limits.as_ref())
    } else {
        resources.and_then(|all| all.requests.as_ref())
    };
    // All amounts exactly, in thousandths, which is the finest that resources have.
    let thousandths = |quantity| i128::from(Amount::try_from(quantity).unwrap_or(Amount::ZERO).milli_value());
    let mut amount = quantities.and_then(|all| all.get(name)).map_or(0, thousandths);
    if amount == 0 && is_limit && BOUNDED.contains(&name) {
        let scale = if name == "cpu" { 1 } else { 1000 };
        amount = i128::from(most.get(name).copied().unwrap_or(0)) * scale;
    }
    let divisor = field.divisor.as_ref().map_or(0, thousandths);
    let divisor = if divisor == 0 { 1000 } else { divisor };
    ((amount + divisor - 1) / divisor).to_string()
}

/// The resources of which a container without a limit may use what its node has.
const BOUNDED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// What a container of a pod may use if it has no limit of its own: the pod's limit, else what the node has. Files show the
/// latter only. Mirrors `defaultPodLimitsForDownwardAPI` in `pkg/kubelet/kubelet_resources.go`.
fn most_of_pod(spec: &PodSpec, around: &Surroundings) -> Arc<Resources> {
    let Some(own) = spec.resources.as_ref().and_then(|own| own.limits.as_ref()) else {
        return Arc::clone(&around.allocatable);
    };
    let mut most = Resources::clone(&around.allocatable);
    let own = amounts(Some(own)).into_iter().filter(|(name, value)| *value != 0 && name != "ephemeral-storage");
    most.extend(own);
    Arc::new(most)
}

/// The environment of a container; what it lacks otherwise, in the kubelet's words.
pub(crate) fn environment(
    pod: &Pod,
    spec: &PodSpec,
    container: &Container,
    found: &Found,
    around: &Surroundings,
) -> Result<Vec<(String, String)>, String> {
    let mut variables = Vec::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            match found.maps.get(&reference.name) {
                Some(map) => variables
                    .extend(map.data.iter().flatten().map(|(key, value)| (format!("{prefix}{key}"), value.clone()))),
                None if reference.optional == Some(true) => {}
                None => return Err(format!("configmap \"{}\" not found", reference.name)),
            }
        }
        if let Some(reference) = &source.secret_ref {
            match found.secrets.get(&reference.name) {
                Some(secret) => {
                    let data = secret.data.iter().flatten();
                    variables.extend(data.map(|(key, ByteString(value))| (format!("{prefix}{key}"), text(value))));
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("secret \"{}\" not found", reference.name)),
            }
        }
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    for variable in container.env.iter().flatten() {
        let Some(source) = &variable.value_from else {
            variables.push((variable.name.clone(), variable.value.clone().unwrap_or_default()));
            continue;
        };
        let value = if let Some(key) = &source.config_map_key_ref {
            let (name, key, optional) = (&key.name, &key.key, key.optional == Some(true));
            let map = found.maps.get(name);
            let value = map.and_then(|map| map.data.as_ref()?.get(key).cloned());
            match (map, value) {
                (_, Some(value)) => Some(value),
                _ if optional => None,
                (None, _) => return Err(format!("configmap \"{name}\" not found")),
                _ => return Err(format!("couldn't find key {key} in ConfigMap {namespace}/{name}")),
            }
        } else if let Some(key) = &source.secret_key_ref {
            let (name, key, optional) = (&key.name, &key.key, key.optional == Some(true));
            let secret = found.secrets.get(name);
            let value = secret.and_then(|secret| secret.data.as_ref()?.get(key).map(|ByteString(value)| text(value)));
            match (secret, value) {
                (_, Some(value)) => Some(value),
                _ if optional => None,
                (None, _) => return Err(format!("secret \"{name}\" not found")),
                _ => return Err(format!("couldn't find key {key} in Secret {namespace}/{name}")),
            }
        } else if let Some(field) = &source.field_ref {
            Some(pod_field(pod, spec, &field.field_path, around)?)
        } else if let Some(field) = &source.resource_field_ref {
            let named = field.container_name.as_deref().filter(|name| !name.is_empty());
            let of = named.map_or(Ok(Cow::Borrowed(container)), |name| container_named(spec, name))?;
            Some(resource_field(&of, field, &most_of_pod(spec, around)))
        } else {
            None
        };
        variables.extend(value.map(|value| (variable.name.clone(), value)));
    }
    Ok(variables)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of values read better without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found() -> Found {
        let map: ConfigMap = serde_json::from_value(json!({ "data": { "a": "1", "b": "2" } })).expect("a map");
        Found { maps: [("m".to_owned(), Arc::new(map))].into(), secrets: BTreeMap::new(), claims: BTreeMap::new() }
    }

    fn around() -> Surroundings {
        let allocatable = [("cpu", 8000), ("memory", 1 << 30), ("ephemeral-storage", 1 << 40)];
        let allocatable = allocatable.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Surroundings {
            pod_ip: "10.244.0.7".parse().ok(),
            host_ip: "172.18.0.2".parse().ok(),
            allocatable: Arc::new(allocatable),
        }
    }

    fn pod(volume: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "n", "labels": { "app": "web" } },
            "spec": {
                "containers": [{ "name": "c", "resources": { "limits": { "cpu": "1500m" } } }],
                "volumes": [volume],
            },
        }))
        .expect("a pod")
    }

    fn files(volume: Value) -> Result<Vec<(String, String)>, String> {
        let pod = pod(volume);
        let spec = pod.spec.clone().expect("a spec");
        let mounted = volumes(&pod, &spec, &found(), &around()).map_err(|failure| failure.message())?;
        let Some(Volume::Files(files)) = mounted.get("v") else { return Ok(Vec::new()) };
        let text = |content: &Content| match content {
            Content::Bytes(bytes) => text(bytes),
            Content::Token { audience, .. } => format!("token for {audience:?}"),
        };
        Ok(files.iter().map(|file| (file.path.clone(), text(&file.content))).collect())
    }

    #[test]
    fn files_come_from_what_the_api_has() {
        let own =
            |pairs: &[(&str, &str)]| Ok(pairs.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect());
        assert_eq!(files(json!({ "name": "v", "configMap": { "name": "m" } })), own(&[("a", "1"), ("b", "2")]));
        let items = json!([{ "key": "b", "path": "sub/x" }]);
        assert_eq!(files(json!({ "name": "v", "configMap": { "name": "m", "items": items } })), own(&[("sub/x", "2")]));
        let downward = json!([
            { "path": "l", "fieldRef": { "fieldPath": "metadata.labels" } },
            { "path": "c", "resourceFieldRef": { "containerName": "c", "resource": "limits.cpu" } },
            { "path": "m", "resourceFieldRef": { "containerName": "c", "resource": "limits.memory", "divisor": "1Mi" } },
        ]);
        let expected = own(&[("l", "app=\"web\""), ("c", "2"), ("m", "1024")]);
        assert_eq!(files(json!({ "name": "v", "downwardAPI": { "items": downward } })), expected);
        let sources = json!([{ "serviceAccountToken": { "path": "token" } }, { "configMap": { "name": "no", "optional": true } }]);
        assert_eq!(
            files(json!({ "name": "v", "projected": { "sources": sources } })),
            own(&[("token", "token for \"\"")])
        );
    }

    #[test]
    fn what_is_missing_is_told_in_the_kubelets_words() {
        let start = "MountVolume.SetUp failed for volume \"v\" : ";
        let map = files(json!({ "name": "v", "configMap": { "name": "no" } }));
        assert_eq!(map, Err(format!("{start}configmap \"no\" not found")));
        let secret = files(json!({ "name": "v", "secret": { "secretName": "no" } }));
        assert_eq!(secret, Err(format!("{start}secret \"no\" not found")));
        let key = files(json!({ "name": "v", "configMap": { "name": "m", "items": [{ "key": "z", "path": "z" }] } }));
        assert_eq!(key, Err(format!("{start}configmap references non-existent config key: z")));
    }

    #[test]
    fn environments_refer_to_what_exists() {
        let pod = pod(json!({ "name": "v", "emptyDir": {} }));
        let spec = pod.spec.clone().expect("a spec");
        let check = |env: Value, expected: Result<&[(&str, &str)], &str>| {
            let container: Container = serde_json::from_value(json!({ "name": "c", "env": env })).expect("a container");
            let variables = environment(&pod, &spec, &container, &found(), &around());
            let expected =
                expected.map(|all| all.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect());
            assert_eq!(variables, expected.map_err(Into::into));
        };
        let key = |name: &str, key: &str| json!([{ "name": "X", "valueFrom": { "configMapKeyRef": { "name": name, "key": key } } }]);
        check(key("m", "a"), Ok(&[("X", "1")]));
        check(key("m", "z"), Err("couldn't find key z in ConfigMap n/m"));
        check(key("no", "z"), Err("configmap \"no\" not found"));
        check(
            json!([{ "name": "N", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }]),
            Ok(&[("N", "p")]),
        );
    }
    #[test]
    fn the_environment_shows_what_the_status_does_not_have_yet() {
        let pod = pod(json!({ "name": "v", "emptyDir": {} }));
        assert!(pod.status.is_none());
        let spec = pod.spec.clone().expect("a spec");
        let field = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
        let resource = |container: &str, resource: &str, divisor: &str| json!({ "resourceFieldRef": { "containerName": container, "resource": resource, "divisor": divisor } });
        let check = |spec: &PodSpec, source: Value, expected: Result<&str, &str>| {
            let env = json!([{ "name": "X", "valueFrom": source }]);
            let container = json!({ "name": "own", "resources": { "requests": { "memory": "1Ki" } }, "env": env });
            let container: Container = serde_json::from_value(container).expect("a container");
            let variables = environment(&pod, spec, &container, &found(), &around());
            let expected = expected.map(|value| vec![("X".to_owned(), value.to_owned())]).map_err(str::to_owned);
            assert_eq!(variables, expected);
        };
        check(&spec, field("status.podIP"), Ok("10.244.0.7"));
        check(&spec, field("status.podIPs"), Ok("10.244.0.7"));
        check(&spec, field("status.hostIP"), Ok("172.18.0.2"));
        check(&spec, field("status.hostIPs"), Ok("172.18.0.2"));
        check(&spec, field("status.phase"), Err("unsupported fieldPath: status.phase"));
        // Without a limit a container may use what the node has; requests have no default.
        check(&spec, resource("", "limits.cpu", "0"), Ok("8"));
        check(&spec, resource("", "limits.cpu", "1m"), Ok("8000"));
        check(&spec, resource("", "limits.memory", "1Mi"), Ok("1024"));
        check(&spec, resource("", "limits.ephemeral-storage", "1Gi"), Ok("1024"));
        check(&spec, resource("", "requests.cpu", "0"), Ok("0"));
        check(&spec, resource("", "requests.memory", "0"), Ok("1024"));
        check(&spec, resource("c", "limits.cpu", "1m"), Ok("1500"));
        check(&spec, resource("c", "limits.memory", "1Gi"), Ok("1"));
        check(&spec, resource("no", "limits.cpu", "0"), Err("container no not found"));
        let limits = json!({ "limits": { "cpu": "3", "memory": "0" } });
        let limited = PodSpec { resources: serde_json::from_value(limits).expect("resources"), ..spec.clone() };
        check(&limited, resource("", "limits.cpu", "0"), Ok("3"));
        check(&limited, resource("", "limits.memory", "1Gi"), Ok("1"));
    }
}
