//! The manifests in `config/` that do not come from the code: kustomize bases in kubebuilder's layout.

use minijinja::{Value, context};

use super::has_conversion;
use crate::project::{Project, Resource};
use crate::template;
use crate::tree::Tree;

/// Who may do what with the objects of a kind: name, verbs, and what the role is for.
const ROLES: [(&str, &[&str], &str); 3] = [
    ("admin", &["\"*\""], "All of it, for those who look after the operator."),
    ("editor", &["create", "delete", "get", "list", "patch", "update", "watch"], "To use the kind."),
    ("viewer", &["get", "list", "watch"], "To look."),
];

pub(super) fn render(project: &Project, common: &Value, tree: &mut Tree) {
    let mut add =
        |path: &str, name: &str, values: Value| tree.add_once(format!("config/{path}"), template::render(name, values));
    for (path, name) in [
        ("default/kustomization.yaml", "config/default.yaml"),
        ("default/metrics_service.yaml", "config/metrics_service.yaml"),
        ("default/manager_metrics_patch.yaml", "config/manager_metrics_patch.yaml"),
        ("manager/kustomization.yaml", "config/manager_kustomization.yaml"),
        ("manager/manager.yaml", "config/manager.yaml"),
        ("manager/pod_disruption_budget.yaml", "config/pod_disruption_budget.yaml"),
        ("rbac/service_account.yaml", "config/service_account.yaml"),
        ("rbac/metrics_reader_role.yaml", "config/metrics_reader_role.yaml"),
        ("network-policy/kustomization.yaml", "config/network_policy_kustomization.yaml"),
        ("prometheus/kustomization.yaml", "config/monitor_kustomization.yaml"),
        ("prometheus/monitor.yaml", "config/monitor.yaml"),
    ] {
        add(path, name, common.clone());
    }
    let traffic = |port_name: &str, port: u16, what: &str| context! { port_name, port, what, ..common.clone() };
    add("network-policy/allow-metrics-traffic.yaml", "config/allow_traffic.yaml", traffic("metrics", 8443, "metrics"));
    if project.has_webhooks() {
        add(
            "network-policy/allow-webhook-traffic.yaml",
            "config/allow_traffic.yaml",
            traffic("webhook", 9443, "webhooks"),
        );
        add("webhook/kustomization.yaml", "config/webhook_kustomization.yaml", common.clone());
        add("webhook/service.yaml", "config/webhook_service.yaml", common.clone());
        conversions(project, common, &mut add);
        certificates(project, common, &mut add);
    }

    let declared: Vec<&Resource> = project.resources.iter().filter(|resource| resource.api.is_some()).collect();
    let mut kinds: Vec<&Resource> = Vec::new();
    for resource in &declared {
        if !kinds.iter().any(|other| other.same_kind(resource)) {
            kinds.push(resource);
        }
    }
    let roles: Vec<String> = kinds.iter().map(|resource| file_name(project, resource)).collect();
    add("rbac/kustomization.yaml", "config/rbac_kustomization.yaml", context! { roles, ..common.clone() });
    for resource in &kinds {
        for (level, verbs, what) in ROLES {
            let file = file_name(project, resource);
            let values = context! {
                level, verbs, what,
                role_name => file.replace('_', "-"),
                group => resource.qualified_group(),
                plural => resource.plural().as_str(),
                ..common.clone()
            };
            add(&format!("rbac/{file}_{level}_role.yaml"), "config/person_role.yaml", values);
        }
    }
    if declared.is_empty() {
        return;
    }
    let bases: Vec<String> =
        kinds.iter().map(|resource| format!("{}_{}", resource.qualified_group(), resource.plural())).collect();
    add("crd/kustomization.yaml", "config/crd_kustomization.yaml", context! { bases, ..common.clone() });
    let mut samples = Vec::new();
    for resource in &declared {
        let group = resource.group.as_ref().map_or_else(String::new, |group| format!("{group}_"));
        let file = format!("{group}{}_{}", resource.version, resource.kind.lower());
        let values = context! {
            group => resource.qualified_group(),
            version => resource.version.as_str(),
            kind => resource.kind.as_str(),
            lower => resource.kind.lower(),
            ..common.clone()
        };
        add(&format!("samples/{file}.yaml"), "config/sample.yaml", values);
        samples.push(file);
    }
    add("samples/kustomization.yaml", "config/samples_kustomization.yaml", context! { samples, ..common.clone() });
}

type Add<'a> = &'a mut dyn FnMut(&str, &str, Value);

/// What has the API server ask the operator to convert objects.
fn conversions(project: &Project, common: &Value, add: Add<'_>) {
    let hubs: Vec<&Resource> = project.resources.iter().filter(|resource| has_conversion(resource)).collect();
    if hubs.is_empty() {
        return;
    }
    let converted: Vec<String> = hubs.iter().map(|hub| file_name(project, hub)).collect();
    let values = context! { converted, ..common.clone() };
    add("crd/patches/kustomization.yaml", "config/crd_patches_kustomization.yaml", values);
    add("crd/patches/kustomizeconfig.yaml", "config/crd_kustomizeconfig.yaml", common.clone());
    for (hub, file) in hubs.iter().zip(converted) {
        let values = context! { group => hub.qualified_group(), plural => hub.plural().as_str(), ..common.clone() };
        add(&format!("crd/patches/webhook_in_{file}.yaml"), "config/crd_patch.yaml", values);
    }
}

/// Certificates from cert-manager, for those who want them.
fn certificates(project: &Project, common: &Value, add: Add<'_>) {
    let sets = || project.resources.iter().filter_map(|resource| resource.webhooks.as_ref());
    let admission = "admissionregistration.k8s.io/v1";
    // Kind, name and version of what trusts the certificate.
    let mut injected: Vec<(&str, String, &str)> = Vec::new();
    for (any, kind) in [
        (sets().any(|set| set.defaulting), "MutatingWebhookConfiguration"),
        (sets().any(|set| set.validation), "ValidatingWebhookConfiguration"),
    ] {
        if any {
            injected.push((kind, String::new(), admission));
        }
    }
    for hub in project.resources.iter().filter(|resource| has_conversion(resource)) {
        let name = format!("{}.{}", hub.plural(), hub.qualified_group());
        injected.push(("CustomResourceDefinition", name, "apiextensions.k8s.io/v1"));
    }
    let values = context! { injected, ..common.clone() };
    add("certmanager/kustomization.yaml", "config/certmanager_kustomization.yaml", values);
    for (path, name) in [
        ("certmanager/kustomizeconfig.yaml", "config/certmanager_config.yaml"),
        ("certmanager/issuer.yaml", "config/certmanager_issuer.yaml"),
        ("certmanager/certificate.yaml", "config/certmanager_certificate.yaml"),
        ("certmanager/manager_certificate_patch.yaml", "config/certmanager_patch.yaml"),
    ] {
        add(path, name, common.clone());
    }
}

/// The beginning of the names of a kind's files: `guestbook`, or with the group if the project has several.
fn file_name(project: &Project, resource: &Resource) -> String {
    match resource.group.as_ref().filter(|_| project.multigroup) {
        Some(group) => format!("{}_{}", group.module(), resource.kind.lower()),
        None => resource.kind.lower(),
    }
}
