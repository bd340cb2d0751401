//! The manifests in `config/` that do not come from the code: kustomize bases in kubebuilder's layout.

use minijinja::{Value, context};

use crate::project::{Project, Resource};
use crate::template;
use crate::tree::Tree;

/// Who may do what with the objects of a kind: name, verbs, and what the role is for.
const ROLES: [(&str, &[&str], &str); 3] = [
    ("admin", &["*"], "All of it, for those who look after the operator."),
    ("editor", &["create", "delete", "get", "list", "patch", "update", "watch"], "To use the kind."),
    ("viewer", &["get", "list", "watch"], "To look."),
];

pub(super) fn render(project: &Project, common: &Value, tree: &mut Tree) {
    let mut add =
        |path: &str, name: &str, values: Value| tree.add(format!("config/{path}"), template::render(name, values));
    for (path, name) in [
        ("default/kustomization.yaml", "config/default.yaml"),
        ("default/metrics_service.yaml", "config/metrics_service.yaml"),
        ("default/manager_metrics_patch.yaml", "config/manager_metrics_patch.yaml"),
        ("manager/kustomization.yaml", "config/manager_kustomization.yaml"),
        ("manager/manager.yaml", "config/manager.yaml"),
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

/// The beginning of the names of a kind's files: `guestbook`, or with the group if the project has several.
fn file_name(project: &Project, resource: &Resource) -> String {
    match resource.group.as_ref().filter(|_| project.multigroup) {
        Some(group) => format!("{}_{}", group.module(), resource.kind.lower()),
        None => resource.kind.lower(),
    }
}
