//! Names of objects in the fields of others, which follow when an object's name changes.
//!
//! A field refers to the object of the right kind that was once called what the field says; of several, to the one
//! whose name was given the same prefixes and suffixes as that of the referring object.

use serde::Deserialize;
use serde_json::Value;

use super::fields::{FieldSpec, visit};
use super::resource::{Id, Kind, Resource};

/// The fields that hold names of objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference {
    #[serde(flatten)]
    pub target: Kind,
    #[serde(default)]
    pub field_specs: Vec<FieldSpec>,
}

/// The kinds with a template of pods, and where that is.
const PODS: [(&str, &str); 8] = [
    ("Pod", "spec"),
    ("PodTemplate", "template/spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicaSet", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
];
const CONFIG_MAPS: [&str; 6] = [
    "volumes/configMap/name",
    "containers/env/valueFrom/configMapKeyRef/name",
    "initContainers/env/valueFrom/configMapKeyRef/name",
    "containers/envFrom/configMapRef/name",
    "initContainers/envFrom/configMapRef/name",
    "volumes/projected/sources/configMap/name",
];
const SECRETS: [&str; 7] = [
    "volumes/secret/secretName",
    "containers/env/valueFrom/secretKeyRef/name",
    "initContainers/env/valueFrom/secretKeyRef/name",
    "containers/envFrom/secretRef/name",
    "initContainers/envFrom/secretRef/name",
    "imagePullSecrets/name",
    "volumes/projected/sources/secret/name",
];
const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// The references that kustomize knows without being told.
pub(super) fn defaults() -> Vec<Reference> {
    let pods = |fields: &[&str]| -> Vec<FieldSpec> {
        let of = |(kind, spec): &(&str, &str)| {
            fields.iter().map(|field| FieldSpec::new(kind, "", &format!("{spec}/{field}"))).collect::<Vec<_>>()
        };
        PODS.iter().flat_map(of).collect()
    };
    let fields = |fields: &[(&str, &str, &str)]| -> Vec<FieldSpec> {
        fields.iter().map(|(kind, group, path)| FieldSpec::new(kind, group, path)).collect()
    };
    let reference = |group: &str, version: &str, kind: &str, field_specs: Vec<FieldSpec>| Reference {
        target: Kind::new(group, version, kind),
        field_specs,
    };
    let resource_names = fields(&[("Role", "", "rules/resourceNames"), ("ClusterRole", "", "rules/resourceNames")]);
    let scaled = ["Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"]
        .map(|kind| reference("", "", kind, fields(&[("HorizontalPodAutoscaler", "", "spec/scaleTargetRef/name")])));
    let mut all = Vec::from(scaled);
    let mut maps = pods(&CONFIG_MAPS);
    maps.extend(resource_names.clone());
    maps.extend(fields(&[
        ("Node", "", "spec/configSource/configMap"),
        ("Ingress", "", "metadata/annotations/nginx.ingress.kubernetes.io\\/fastcgi-params-configmap"),
    ]));
    all.push(reference("", "v1", "ConfigMap", maps));
    let mut secrets = pods(&SECRETS);
    secrets.extend(resource_names);
    secrets.extend(fields(&[
        ("Ingress", "", "spec/tls/secretName"),
        ("Ingress", "", "metadata/annotations/ingress.kubernetes.io\\/auth-secret"),
        ("Ingress", "", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-secret"),
        ("Ingress", "", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-tls-secret"),
        ("ServiceAccount", "", "imagePullSecrets/name"),
        ("StorageClass", "", "parameters/secretName"),
        ("StorageClass", "", "parameters/adminSecretName"),
        ("StorageClass", "", "parameters/userSecretName"),
        ("StorageClass", "", "parameters/secretRef"),
        ("Service", "serving.knative.dev", "spec/template/spec/containers/env/valueFrom/secretKeyRef/name"),
        ("PersistentVolume", "", "spec/azureFile/secretName"),
    ]));
    all.push(reference("", "v1", "Secret", secrets));
    let services = fields(&[
        ("StatefulSet", "apps", "spec/serviceName"),
        ("Ingress", "", "spec/rules/http/paths/backend/serviceName"),
        ("Ingress", "", "spec/backend/serviceName"),
        ("Ingress", "", "spec/rules/http/paths/backend/service/name"),
        ("Ingress", "", "spec/defaultBackend/service/name"),
        ("APIService", "apiregistration.k8s.io", "spec/service/name"),
        ("ValidatingWebhookConfiguration", ADMISSION, "webhooks/clientConfig/service"),
        ("MutatingWebhookConfiguration", ADMISSION, "webhooks/clientConfig/service"),
    ]);
    all.push(reference("", "v1", "Service", services));
    all.push(reference(RBAC, "", "Role", fields(&[("RoleBinding", RBAC, "roleRef/name")])));
    let bound = fields(&[("RoleBinding", RBAC, "roleRef/name"), ("ClusterRoleBinding", RBAC, "roleRef/name")]);
    all.push(reference(RBAC, "", "ClusterRole", bound));
    let mut accounts = fields(&[("RoleBinding", RBAC, "subjects"), ("ClusterRoleBinding", RBAC, "subjects")]);
    accounts.extend(workloads("serviceAccountName"));
    all.push(reference("", "v1", "ServiceAccount", accounts));
    all.push(reference("", "v1", "PersistentVolumeClaim", workloads("volumes/persistentVolumeClaim/claimName")));
    let volumes =
        fields(&[("PersistentVolumeClaim", "", "spec/volumeName"), ("ClusterRole", "", "rules/resourceNames")]);
    all.push(reference("", "v1", "PersistentVolume", volumes));
    let storage = fields(&[
        ("PersistentVolume", "", "spec/storageClassName"),
        ("PersistentVolumeClaim", "", "spec/storageClassName"),
        ("StatefulSet", "", "spec/volumeClaimTemplates/spec/storageClassName"),
    ]);
    all.push(reference("storage.k8s.io", "v1", "StorageClass", storage));
    all.push(reference("scheduling.k8s.io", "v1", "PriorityClass", workloads("priorityClassName")));
    let policies = fields(&[("ValidatingAdmissionPolicyBinding", ADMISSION, "spec/policyName")]);
    all.push(reference(ADMISSION, "", "ValidatingAdmissionPolicy", policies));
    all
}

/// A field of pods, in the kinds where kustomize changes more than volumes and variables.
fn workloads(field: &str) -> Vec<FieldSpec> {
    let pods = PODS.iter().filter(|(kind, _)| !matches!(*kind, "PodTemplate" | "ReplicaSet"));
    let all = pods.chain(&[("ReplicationController", "spec/template/spec")]);
    all.map(|(kind, spec)| FieldSpec::new(kind, "", &format!("{spec}/{field}"))).collect()
}

/// What the choice of a referenced object needs to know about each.
struct Candidate {
    id: Id,
    original: Id,
    previous: Vec<Id>,
    prefixes: Vec<String>,
    suffixes: Vec<String>,
}

/// Changes all references to the names that objects have now.
pub(super) fn follow(resources: &mut [Resource], references: &[Reference]) -> Result<(), String> {
    let candidates: Vec<Candidate> = resources
        .iter()
        .map(|resource| Candidate {
            id: resource.id(),
            original: resource.original(),
            previous: resource.previous.clone(),
            prefixes: resource.prefixes.clone(),
            suffixes: resource.suffixes.clone(),
        })
        .collect();
    for (at, resource) in resources.iter_mut().enumerate() {
        let referrer = Referrer::new(&candidates, at, &resource.object);
        for reference in references {
            for field in reference.field_specs.iter().filter(|field| field.kind.selects(&candidates[at].original.kind))
            {
                let mut failure = None;
                visit(&mut resource.object, &field.path, false, &mut |value| {
                    if let Err(error) = referrer.update(value, reference, field) {
                        failure.get_or_insert(error);
                    }
                });
                if let Some(error) = failure {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// An object whose fields refer to others.
struct Referrer<'a> {
    own: &'a Candidate,
    /// The objects that it may refer to: those of no namespace, of its own, and accounts that a binding names.
    reachable: Vec<&'a Candidate>,
    /// The kind that a binding says its role has.
    role: Kind,
}

impl<'a> Referrer<'a> {
    fn new(candidates: &'a [Candidate], at: usize, object: &Value) -> Self {
        let own = &candidates[at];
        let anywhere = own.id.kind.is_cluster_scoped();
        let subjects = object["subjects"].as_array().filter(|_| own.id.kind.kind == "RoleBinding");
        let accounts = subjects.into_iter().flatten().filter(|subject| subject["kind"] == "ServiceAccount");
        let namespaces: Vec<&str> = accounts.filter_map(|subject| subject["namespace"].as_str()).collect();
        let reaches = |other: &&Candidate| {
            anywhere
                || other.id.kind.is_cluster_scoped()
                || other.id.effective_namespace() == own.id.effective_namespace()
                || namespaces.contains(&other.id.namespace.as_str())
        };
        let role = |field: &str| object["roleRef"][field].as_str().unwrap_or_default();
        Self {
            own,
            reachable: candidates.iter().filter(reaches).collect(),
            role: Kind::new(role("apiGroup"), "", role("kind")),
        }
    }

    fn update(&self, value: &mut Value, reference: &Reference, field: &FieldSpec) -> Result<(), String> {
        match value {
            Value::String(name) => {
                let candidates = self.reachable.clone();
                if let Some(found) = self.select(name, candidates, reference, field, false)? {
                    name.clone_from(&found.id.name);
                }
                Ok(())
            }
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.update(item, reference, field)),
            Value::Object(fields) => {
                let Some(name) = fields.get("name").and_then(Value::as_str) else { return Ok(()) };
                let candidates = self.in_namespace(fields.get("namespace").and_then(Value::as_str));
                if let Some(found) = self.select(name, candidates, reference, field, true)? {
                    fields.insert("name".into(), found.id.name.as_str().into());
                    if !found.id.namespace.is_empty() {
                        fields.insert("namespace".into(), found.id.namespace.as_str().into());
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The objects that were in a namespace at first, or are now.
    fn in_namespace(&self, namespace: Option<&str>) -> Vec<&'a Candidate> {
        let Some(namespace) = namespace else { return self.reachable.clone() };
        let having = |of: &dyn Fn(&Candidate) -> bool| -> Vec<&'a Candidate> {
            self.reachable.iter().copied().filter(|candidate| of(candidate)).collect()
        };
        let original = having(&|candidate| candidate.original.effective_namespace() == namespace);
        if original.is_empty() {
            having(&|candidate| candidate.id.effective_namespace() == namespace)
        } else {
            original
        }
    }

    fn select(
        &self,
        name: &str,
        mut found: Vec<&'a Candidate>,
        reference: &Reference,
        field: &FieldSpec,
        with_namespace: bool,
    ) -> Result<Option<&'a Candidate>, String> {
        let was = |candidate: &Candidate, fits: &dyn Fn(&Id) -> bool| candidate.previous.iter().any(fits);
        found.retain(|candidate| was(candidate, &|id| id.name == name));
        found.retain(|candidate| was(candidate, &|id| reference.target.selects(&id.kind)));
        if field.path.ends_with("roleRef/name") {
            found.retain(|candidate| was(candidate, &|id| self.role.selects(&id.kind)));
        }
        if !self.own.id.kind.is_cluster_scoped() {
            found.retain(|candidate| {
                candidate.id.kind.is_cluster_scoped()
                    || candidate.id.kind.kind == "ServiceAccount"
                    || candidate.id.effective_namespace() == self.own.id.effective_namespace()
            });
        }
        if found.len() > 1 {
            found.retain(|candidate| self.same_layer(candidate, true));
        }
        if found.len() > 1 {
            found.retain(|candidate| self.same_layer(candidate, false));
        }
        let Some(first) = found.first().copied() else { return Ok(None) };
        let alike = |other: &&Candidate| {
            other.id.name == first.id.name && (!with_namespace || other.id.namespace == first.id.namespace)
        };
        if found.iter().all(alike) {
            return Ok(Some(first));
        }
        Err(format!("{} of {} is {name}, which several resources were called", field.path, self.own.id))
    }

    /// Whether two objects were given the same prefixes and suffixes; with `open`, also if one was given none.
    fn same_layer(&self, other: &Candidate, open: bool) -> bool {
        let same = |one: &[String], other: &[String]| {
            let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
            (open && short.is_empty()) || (short.is_empty() == long.is_empty() && long.ends_with(short))
        };
        same(&self.own.prefixes, &other.prefixes) && same(&self.own.suffixes, &other.suffixes)
    }
}
