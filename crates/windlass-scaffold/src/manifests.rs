//! The manifests that come from an operator's code, as files of `config/`.
//!
//! An operator says what it needs as objects: the definitions of its kinds, its roles, and the configurations of its
//! webhooks. Here they get the names and the namespace that kustomize replaces with those of the installation.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kustomize;
use crate::project::Project;

/// Stands for the namespace that the operator runs in, in what the code says.
pub const HOME: &str = "windlass-operator-namespace";
/// The namespace that kustomize replaces with that of the installation.
const SYSTEM: &str = "system";
/// The Service of the webhooks, without the prefix that kustomize adds.
const WEBHOOK_SERVICE: &str = "webhook-service";
const HEADER: &str = "# Written by `windlass manifests --write`, from the code.\n";
/// How files begin that can be put behind each other, as those of controller-gen.
const START: &str = "---\n";
const WEBHOOKS: &str = "config/webhook/manifests.yaml";
const BASES: &str = "config/crd/bases";

/// What an operator gave cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the operator gave a definition without a group or plural")]
pub struct Unnamed;

/// The files of `config/` for what the code of a project says, by their paths.
///
/// # Errors
/// If a definition does not say what it defines.
pub fn config(project: &Project, manifests: &[Value]) -> Result<BTreeMap<String, String>, Unnamed> {
    let mut files = BTreeMap::new();
    for definition in manifests.iter().filter(|manifest| is_definition(manifest)) {
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let (group, plural) = group.as_str().zip(plural.as_str()).ok_or(Unnamed)?;
        files.insert(format!("{BASES}/{group}_{plural}.yaml"), documents(std::slice::from_ref(definition)));
    }
    let roles: Vec<Value> = manifests.iter().filter(|manifest| is_role(manifest)).map(role).collect();
    let bindings: Vec<Value> = roles.iter().map(binding).collect();
    files.insert("config/rbac/role.yaml".into(), documents(&roles));
    files.insert("config/rbac/role_binding.yaml".into(), documents(&bindings));
    let webhooks = webhook_configurations(manifests);
    if !webhooks.is_empty() || project.has_admission() {
        files.insert(WEBHOOKS.into(), documents(&webhooks));
    }
    Ok(files)
}

/// Whether a file of `config/` was written from the code, so that it goes when the code does not say it any more.
pub fn is_from_code(path: &str, text: &str) -> bool {
    let text = text.strip_prefix(START).unwrap_or(text);
    (path.starts_with(BASES) || path == WEBHOOKS) && text.starts_with(HEADER)
}

/// The directories where such files are.
pub const FROM_CODE: [&str; 2] = [BASES, "config/webhook"];

/// Whether an object defines a kind.
pub fn is_definition(manifest: &Value) -> bool {
    manifest["kind"] == "CustomResourceDefinition"
}

/// Whether an object is a role.
pub fn is_role(manifest: &Value) -> bool {
    matches!(manifest["kind"].as_str(), Some("Role" | "ClusterRole"))
}

/// Whether an object has API servers call webhooks.
pub fn is_webhook(manifest: &Value) -> bool {
    matches!(manifest["kind"].as_str(), Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration"))
}

/// A role under the name that the bindings use.
fn role(role: &Value) -> Value {
    let mut role = role.clone();
    role["metadata"]["name"] = "manager-role".into();
    if role["metadata"]["namespace"] == HOME {
        role["metadata"]["namespace"] = SYSTEM.into();
    }
    role
}

fn binding(role: &Value) -> Value {
    let kind = role["kind"].as_str().unwrap_or_default();
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{kind}Binding"),
        "metadata": {"name": "manager-rolebinding"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "manager-role"},
        "subjects": [{"kind": "ServiceAccount", "name": "controller-manager", "namespace": SYSTEM}],
    });
    if let Some(namespace) = role["metadata"].get("namespace") {
        binding["metadata"]["namespace"] = namespace.clone();
    }
    binding
}

/// One configuration of each kind with all webhooks, under the name that the operator gives it too.
fn webhook_configurations(manifests: &[Value]) -> Vec<Value> {
    let mut configurations = Vec::new();
    for (kind, name) in [
        ("MutatingWebhookConfiguration", "mutating-webhook-configuration"),
        ("ValidatingWebhookConfiguration", "validating-webhook-configuration"),
    ] {
        let ours = manifests.iter().filter(|manifest| manifest["kind"] == kind);
        let mut webhooks: Vec<Value> = ours.filter_map(|one| one["webhooks"].as_array()).flatten().cloned().collect();
        for webhook in &mut webhooks {
            if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
                service["namespace"] = SYSTEM.into();
                service["name"] = WEBHOOK_SERVICE.into();
            }
        }
        if !webhooks.is_empty() {
            configurations.push(json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": name}, "webhooks": webhooks,
            }));
        }
    }
    configurations
}

fn documents(manifests: &[Value]) -> String {
    // Without a document there is none to begin.
    let start = if manifests.is_empty() { "" } else { START };
    format!("{start}{HEADER}{}", kustomize::to_yaml(manifests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_begin_with_a_document() {
        let text = documents(&[json!({"kind": "A"}), json!({"kind": "B"})]);
        assert_eq!(text, format!("---\n{HEADER}kind: A\n---\nkind: B\n"));
        assert_eq!(documents(&[]), HEADER);
        let path = "config/crd/bases/example.com_pets.yaml";
        // Also those that earlier releases wrote.
        assert!(is_from_code(path, &text) && is_from_code(path, HEADER));
        assert!(!is_from_code(path, "---\nkind: A\n") && !is_from_code("config/x.yaml", &text));
    }
}
