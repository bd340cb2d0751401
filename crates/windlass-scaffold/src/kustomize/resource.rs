//! An object on its way through the layers of a kustomization, with the names that it had before.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Group, version and kind. As a selector, what is empty fits everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_field_names, reason = "the fields have kustomize's names")]
pub(super) struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl Kind {
    pub(super) fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    pub(super) fn of(object: &Value) -> Self {
        let (group, version) = group_version(text(object, "apiVersion"));
        Self::new(group, version, text(object, "kind"))
    }

    /// Whether this selector fits a kind.
    pub(super) fn selects(&self, kind: &Self) -> bool {
        let fits = |own: &str, other: &str| own.is_empty() || own == other;
        fits(&self.group, &kind.group) && fits(&self.version, &kind.version) && fits(&self.kind, &kind.kind)
    }

    /// Whether objects are in no namespace. Kinds that Kubernetes does not have itself are taken to be in one.
    pub(super) fn is_cluster_scoped(&self) -> bool {
        CLUSTER_SCOPED.contains(&(self.group.as_str(), self.kind.as_str()))
    }
}

const CLUSTER_SCOPED: [(&str, &str); 31] = [
    ("", "ComponentStatus"),
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("certificates.k8s.io", "ClusterTrustBundle"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("node.k8s.io", "RuntimeClass"),
    ("policy", "PodSecurityPolicy"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "ResourceSlice"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storage.k8s.io", "VolumeAttributesClass"),
];

/// What an object is called at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Id {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

impl Id {
    pub(super) fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        Self {
            kind: Kind::of(object),
            namespace: text(metadata, "namespace").to_owned(),
            name: text(metadata, "name").to_owned(),
        }
    }

    /// The namespace, with the one that is meant if none is said. An object that is in none has a name for that which
    /// no namespace can have.
    pub(super) fn effective_namespace(&self) -> &str {
        if self.kind.is_cluster_scoped() {
            "_non_namespaceable_"
        } else if self.namespace.is_empty() {
            "default"
        } else {
            &self.namespace
        }
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.name == other.name && self.effective_namespace() == other.effective_namespace()
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.name)?;
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " in namespace {}", self.namespace) }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Resource {
    pub object: Value,
    /// What it was called before, the oldest first.
    pub previous: Vec<Id>,
    /// The prefixes and suffixes that its name was given, the innermost first.
    pub prefixes: Vec<String>,
    pub suffixes: Vec<String>,
    /// Whether the name ends in a hash of the content.
    pub hashed: bool,
}

impl Resource {
    pub(super) fn new(object: Value) -> Self {
        Self { object, previous: Vec::new(), prefixes: Vec::new(), suffixes: Vec::new(), hashed: false }
    }

    pub(super) fn id(&self) -> Id {
        Id::of(&self.object)
    }

    pub(super) fn original(&self) -> Id {
        self.previous.first().cloned().unwrap_or_else(|| self.id())
    }

    /// What it was called before and what it is called now.
    pub(super) fn ids(&self) -> Vec<Id> {
        self.previous.iter().cloned().chain([self.id()]).collect()
    }

    /// Remembers the current name, before it is changed.
    pub(super) fn remember(&mut self) {
        self.previous.push(self.id());
    }

    pub(super) fn kind(&self) -> Kind {
        Kind::of(&self.object)
    }

    pub(super) fn name(&self) -> &str {
        text(&self.object["metadata"], "name")
    }

    pub(super) fn namespace(&self) -> &str {
        text(&self.object["metadata"], "namespace")
    }

    /// Sets a field of `metadata`; nothing is set to an empty text.
    pub(super) fn set_metadata(&mut self, field: &str, value: &str) {
        if let Value::Object(object) = &mut self.object
            && let Value::Object(metadata) = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()))
        {
            if value.is_empty() {
                metadata.remove(field);
            } else {
                metadata.insert(field.to_owned(), value.into());
            }
        }
    }

    pub(super) fn entries(&self, field: &str) -> Option<&Map<String, Value>> {
        self.object["metadata"][field].as_object()
    }
}

/// A text in a map; empty if it is not there.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
