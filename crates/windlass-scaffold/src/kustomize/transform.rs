//! The transformers that set namespaces, names, labels and counts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::fields::{FieldSpec, add_entries, visit};
use super::kustomization::{Kustomization, Labels};
use super::references::Reference;
use super::resource::{Kind, Resource};

/// What a file of `configurations` says.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Configuration {
    pub name_reference: Vec<Reference>,
    name_prefix: Vec<FieldSpec>,
    name_suffix: Vec<FieldSpec>,
    pub namespace: Vec<FieldSpec>,
    common_labels: Vec<FieldSpec>,
    template_labels: Vec<FieldSpec>,
    labels: Vec<FieldSpec>,
    pub common_annotations: Vec<FieldSpec>,
    /// Only means something to `vars`, which are an error.
    var_reference: Vec<Value>,
}

impl Configuration {
    pub(super) fn add(&mut self, other: Self) {
        self.name_reference.extend(other.name_reference);
        for (own, other) in [
            (&mut self.name_prefix, other.name_prefix),
            (&mut self.name_suffix, other.name_suffix),
            (&mut self.namespace, other.namespace),
            (&mut self.common_labels, other.common_labels),
            (&mut self.template_labels, other.template_labels),
            (&mut self.labels, other.labels),
            (&mut self.common_annotations, other.common_annotations),
        ] {
            own.extend(other);
        }
    }
}

pub(super) fn set_namespace(resources: &mut [Resource], namespace: &str, more: &[FieldSpec]) -> Result<(), String> {
    let mut fields = vec![
        FieldSpec::new("APIService", "apiregistration.k8s.io", "spec/service/namespace").created(),
        FieldSpec::new(
            "CustomResourceDefinition",
            "apiextensions.k8s.io",
            "spec/conversion/webhook/clientConfig/service/namespace",
        ),
    ];
    fields.extend(more.iter().filter(|field| !is_own_name(&field.path)).cloned());
    for resource in resources.iter_mut() {
        resource.remember();
        let kind = resource.kind();
        if !kind.is_cluster_scoped() {
            resource.set_metadata("namespace", namespace);
        } else if kind.kind == "Namespace" && kind.group.is_empty() {
            resource.set_metadata("name", namespace);
        }
        if kind.kind.ends_with("RoleBinding") {
            set_default_subjects(&mut resource.object, namespace);
        }
        for field in fields.iter().filter(|field| field.kind.selects(&kind)) {
            visit(&mut resource.object, &field.path, field.create, &mut |value| *value = namespace.into());
        }
    }
    let ids: Vec<_> = resources.iter().map(Resource::id).collect();
    for (at, id) in ids.iter().enumerate() {
        if ids[..at].iter().any(|other| other.same(id)) {
            return Err(format!("in one namespace there are several {id}"));
        }
    }
    Ok(())
}

fn is_own_name(path: &str) -> bool {
    matches!(path, "metadata/name" | "metadata/namespace" | "subjects/namespace" | "subjects")
}

/// The account that pods have unless they say otherwise is in the namespace of the pods.
fn set_default_subjects(object: &mut Value, namespace: &str) {
    let subjects = object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten();
    for subject in subjects.filter(|subject| subject["name"] == "default") {
        subject["namespace"] = namespace.into();
    }
}

pub(super) fn rename(resources: &mut [Resource], kustomization: &Kustomization, configuration: &Configuration) {
    let (prefix, suffix) = (&kustomization.name_prefix, &kustomization.name_suffix);
    for resource in resources {
        let original = resource.original().kind;
        let keeps = matches!(original.kind.as_str(), "CustomResourceDefinition" | "Namespace")
            || (original.kind == "APIService" && original.group == "apiregistration.k8s.io");
        if keeps {
            continue;
        }
        for (added, is_prefix, more) in
            [(prefix, true, &configuration.name_prefix), (suffix, false, &configuration.name_suffix)]
        {
            if added.is_empty() {
                continue;
            }
            resource.remember();
            let named = |name: &str| if is_prefix { format!("{added}{name}") } else { format!("{name}{added}") };
            let name = named(resource.name());
            resource.set_metadata("name", &name);
            if is_prefix { &mut resource.prefixes } else { &mut resource.suffixes }.push(added.clone());
            for field in more.iter().filter(|field| field.kind.selects(&original) && !is_own_name(&field.path)) {
                visit(&mut resource.object, &field.path, field.create, &mut |value| {
                    if let Value::String(text) = value {
                        *text = named(text);
                    }
                });
            }
        }
    }
}

pub(super) fn set_labels(resources: &mut [Resource], kustomization: &Kustomization, configuration: &Configuration) {
    let with_selectors = || {
        let mut fields = selector_fields();
        fields.extend(template_fields("labels"));
        fields.push(FieldSpec::new("StatefulSet", "apps", "spec/volumeClaimTemplates[]/metadata/labels").created());
        fields.extend(configuration.common_labels.clone());
        fields
    };
    for Labels { pairs, include_selectors, include_templates, fields } in &kustomization.labels {
        let mut all = fields.clone();
        all.extend(configuration.labels.clone());
        if *include_selectors {
            all.extend(with_selectors());
        } else {
            all.push(FieldSpec::new("", "", "metadata/labels").created());
            if *include_templates {
                all.extend(template_fields("labels"));
                all.extend(configuration.template_labels.clone());
            }
        }
        add_everywhere(resources, &all, pairs);
    }
    if !kustomization.common_labels.is_empty() {
        add_everywhere(resources, &with_selectors(), &kustomization.common_labels);
    }
}

pub(super) fn add_everywhere(resources: &mut [Resource], fields: &[FieldSpec], entries: &BTreeMap<String, String>) {
    for resource in resources {
        let kind = resource.kind();
        for field in fields.iter().filter(|field| field.kind.selects(&kind)) {
            visit(&mut resource.object, &field.path, field.create, &mut |value| add_entries(value, entries));
        }
    }
}

/// Where labels or annotations of objects and of the pods that they make are.
pub(super) fn template_fields(entries: &str) -> Vec<FieldSpec> {
    let field =
        |kind: &str, group: &str, path: &str| FieldSpec::new(kind, group, &format!("{path}/{entries}")).created();
    // Annotations are added to StatefulSets of any group.
    let stateful = if entries == "labels" { "apps" } else { "" };
    vec![
        field("", "", "metadata"),
        field("ReplicationController", "", "spec/template/metadata"),
        field("Deployment", "", "spec/template/metadata"),
        field("ReplicaSet", "", "spec/template/metadata"),
        field("DaemonSet", "", "spec/template/metadata"),
        field("StatefulSet", stateful, "spec/template/metadata"),
        field("Job", "batch", "spec/template/metadata"),
        field("CronJob", "batch", "spec/jobTemplate/metadata"),
        field("CronJob", "batch", "spec/jobTemplate/spec/template/metadata"),
    ]
}

/// Where labels of pods are selected.
fn selector_fields() -> Vec<FieldSpec> {
    let created = |kind: &str, group: &str, path: &str| FieldSpec::new(kind, group, path).created();
    let core =
        |kind: &str| FieldSpec { kind: Kind::new("", "v1", kind), path: "spec/selector".to_owned(), create: true };
    let mut fields = vec![
        core("Service"),
        core("ReplicationController"),
        created("Deployment", "", "spec/selector/matchLabels"),
        created("ReplicaSet", "", "spec/selector/matchLabels"),
        created("DaemonSet", "", "spec/selector/matchLabels"),
        created("StatefulSet", "apps", "spec/selector/matchLabels"),
        FieldSpec::new("Job", "batch", "spec/selector/matchLabels"),
        FieldSpec::new("CronJob", "batch", "spec/jobTemplate/spec/selector/matchLabels"),
        FieldSpec::new("PodDisruptionBudget", "policy", "spec/selector/matchLabels"),
        FieldSpec::new("NetworkPolicy", "networking.k8s.io", "spec/podSelector/matchLabels"),
        FieldSpec::new("NetworkPolicy", "networking.k8s.io", "spec/ingress/from/podSelector/matchLabels"),
        FieldSpec::new("NetworkPolicy", "networking.k8s.io", "spec/egress/to/podSelector/matchLabels"),
    ];
    for kind in ["Deployment", "StatefulSet"] {
        for affinity in ["podAffinity", "podAntiAffinity"] {
            for term in [
                "preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm",
                "requiredDuringSchedulingIgnoredDuringExecution",
            ] {
                let path = format!("spec/template/spec/affinity/{affinity}/{term}/labelSelector/matchLabels");
                fields.push(FieldSpec::new(kind, "apps", &path));
            }
        }
        let path = "spec/template/spec/topologySpreadConstraints/labelSelector/matchLabels";
        fields.push(FieldSpec::new(kind, "apps", path));
    }
    fields
}

pub(super) fn set_replicas(resources: &mut [Resource], name: &str, count: i64) -> Result<(), String> {
    let mut found = false;
    for resource in resources {
        let scalable =
            |kind: &str| matches!(kind, "Deployment" | "ReplicationController" | "ReplicaSet" | "StatefulSet");
        if resource.ids().iter().any(|id| id.name == name && scalable(&id.kind.kind)) {
            found = true;
            visit(&mut resource.object, "spec/replicas", true, &mut |value| *value = count.into());
        }
    }
    if found { Ok(()) } else { Err(format!("`replicas` names {name}, which is not there")) }
}
