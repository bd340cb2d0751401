//! The objects that a bundle stands for: those of its files, and those that its ClusterServiceVersion describes.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::text;
use super::webhooks;
use crate::against::apply;

pub(super) const RBAC: &str = "rbac.authorization.k8s.io";

/// What is to be applied.
pub(super) struct Plan {
    /// The name of the ClusterServiceVersion.
    pub name: String,
    /// The operator's namespace.
    pub namespace: String,
    pub objects: Vec<Value>,
}

impl Plan {
    pub(super) fn new(manifests: Vec<Value>, namespace: Option<&str>, watched: &[String]) -> Result<Self> {
        let (mut versions, mut objects): (Vec<Value>, Vec<Value>) =
            manifests.into_iter().partition(|manifest| manifest["kind"] == "ClusterServiceVersion");
        let version = match versions.len() {
            1 => versions.remove(0),
            0 => bail!("the bundle has no ClusterServiceVersion"),
            _ => bail!("the bundle has several ClusterServiceVersions"),
        };
        let name = text(&version["metadata"]["name"]);
        let suggested = version["metadata"]["annotations"]["operatorframework.io/suggested-namespace"].as_str();
        let namespace =
            namespace.or(suggested).map_or_else(|| format!("{}-system", super::package(&name)), str::to_owned);
        let targets = targets(&version, &namespace, watched)?;
        objects.push(apply::namespace(&namespace));
        objects.extend(targets.iter().filter(|target| **target != namespace).map(|target| apply::namespace(target)));
        let strategy = &version["spec"]["install"]["spec"];
        objects.extend(permissions(strategy, &name, &namespace, &targets)?);
        let mut deployments = deployments(strategy, &name, &namespace, &targets)?;
        let definitions = version["spec"]["webhookdefinitions"].as_array().cloned().unwrap_or_default();
        let made = webhooks::add(&definitions, &namespace, &mut deployments, &mut objects)?;
        objects.extend(made);
        objects.extend(deployments);
        Ok(Self { name, namespace, objects })
    }

    /// Whether another version of the bundle, or this one for other namespaces, has made a binding for its operator in
    /// the same namespace.
    pub(super) fn is_of_other_version(&self, kind: &str, binding: &Value) -> bool {
        let metadata = &binding["metadata"];
        let name = text(&metadata["name"]);
        let of_package = name.strip_prefix(super::package(&self.name)).is_some_and(|rest| rest.starts_with(".v"));
        // As `permissions` names them.
        let number = name.rsplit_once('-').and_then(|(_, end)| end.strip_prefix(['c', 'p']));
        let is_made = number.is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
            && binding["roleRef"]["name"] == metadata["name"]
            && binding["subjects"][0]["namespace"] == self.namespace.as_str();
        let is_planned = self.objects.iter().any(|object| {
            let other = &object["metadata"];
            object["kind"] == kind && other["name"] == metadata["name"] && other["namespace"] == metadata["namespace"]
        });
        of_package && is_made && !is_planned
    }
}

/// The namespaces to watch; empty for all.
fn targets(version: &Value, namespace: &str, watched: &[String]) -> Result<Vec<String>> {
    let modes = version["spec"]["installModes"].as_array().into_iter().flatten();
    let supported: Vec<String> =
        modes.filter(|mode| mode["supported"] == true).map(|mode| text(&mode["type"])).collect();
    let supports = |mode: &str| supported.iter().any(|one| one == mode);
    let (mode, targets) = match watched {
        [] if supports("AllNamespaces") => return Ok(Vec::new()),
        [] => ("OwnNamespace", vec![namespace.to_owned()]),
        [one] if one == namespace => ("OwnNamespace", watched.to_vec()),
        [_] => ("SingleNamespace", watched.to_vec()),
        _ => ("MultiNamespace", watched.to_vec()),
    };
    if !supports(mode) {
        bail!("the bundle does not support the install mode {mode}; it supports: {}", supported.join(", "));
    }
    Ok(targets)
}

/// ServiceAccounts with their roles. Permissions hold in the namespaces that are watched, cluster permissions everywhere.
fn permissions(strategy: &Value, name: &str, namespace: &str, targets: &[String]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for (field, everywhere) in [("permissions", targets.is_empty()), ("clusterPermissions", true)] {
        for (number, permission) in strategy[field].as_array().into_iter().flatten().enumerate() {
            let account = permission["serviceAccountName"].as_str();
            let account = account.with_context(|| format!("{field} without serviceAccountName"))?;
            objects.push(json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace},
            }));
            let role = format!("{name}-{account}-{}{number}", if field == "permissions" { "p" } else { "c" });
            let mut grant = |place: Option<&str>| {
                let kind = if place.is_some() { "Role" } else { "ClusterRole" };
                let mut metadata = json!({"name": role});
                if let Some(place) = place {
                    metadata["namespace"] = place.into();
                }
                objects.push(json!({
                    "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata,
                    "rules": permission["rules"],
                }));
                objects.push(json!({
                    "apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
                    "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
                    "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
                }));
            };
            if everywhere {
                grant(None);
            } else {
                grant(Some(namespace));
                targets.iter().filter(|target| *target != namespace).for_each(|target| grant(Some(target)));
            }
        }
    }
    // An account may have permissions of both sorts.
    let mut seen = Vec::new();
    objects.retain(|object| {
        let is_new = object["kind"] != "ServiceAccount" || !seen.contains(object);
        seen.push(object.clone());
        is_new
    });
    Ok(objects)
}

fn deployments(strategy: &Value, name: &str, namespace: &str, targets: &[String]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for deployment in strategy["deployments"].as_array().into_iter().flatten() {
        let mut spec = deployment["spec"].clone();
        let template = &mut spec["template"];
        if template["metadata"].is_null() {
            template["metadata"] = json!({});
        }
        if template["metadata"]["annotations"].is_null() {
            template["metadata"]["annotations"] = json!({});
        }
        // Operators read the namespaces to watch from it.
        template["metadata"]["annotations"]["olm.targetNamespaces"] = targets.join(",").into();
        template["metadata"]["annotations"]["olm.operatorNamespace"] = namespace.into();
        for container in template["spec"]["containers"].as_array_mut().into_iter().flatten() {
            if container["env"].is_null() {
                container["env"] = json!([]);
            }
            if let Some(env) = container["env"].as_array_mut() {
                env.push(json!({"name": "OPERATOR_CONDITION_NAME", "value": name}));
            }
        }
        let mut metadata = json!({"name": deployment["name"], "namespace": namespace});
        if deployment["label"].is_object() {
            metadata["labels"] = deployment["label"].clone();
        }
        objects.push(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}));
    }
    if objects.is_empty() {
        bail!("the ClusterServiceVersion has no deployments");
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn version(modes: &[&str]) -> Value {
        let modes: Vec<Value> = modes.iter().map(|mode| json!({"type": mode, "supported": true})).collect();
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "pets.v1.0.0"},
            "spec": {
                "installModes": modes,
                "install": {"strategy": "deployment", "spec": {
                    "clusterPermissions": [{"serviceAccountName": "pets", "rules": [{"verbs": ["get"]}]}],
                    "permissions": [{"serviceAccountName": "pets", "rules": [{"verbs": ["list"]}]}],
                    "deployments": [{"name": "pets", "spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}],
                }},
            },
        })
    }

    /// Kind, namespace and name of all objects.
    fn check(modes: &[&str], watched: &[&str], expected: &[&str]) {
        let watched: Vec<String> = watched.iter().map(ToString::to_string).collect();
        let plan = Plan::new(vec![version(modes)], None, &watched).unwrap();
        let name = |object: &Value| {
            let place = object["metadata"]["namespace"].as_str().map(|place| format!("{place}/")).unwrap_or_default();
            format!("{} {place}{}", text(&object["kind"]), text(&object["metadata"]["name"]))
        };
        assert_eq!(plan.objects.iter().map(name).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_operator_of_all_namespaces_has_cluster_roles() {
        check(
            &["OwnNamespace", "AllNamespaces"],
            &[],
            &[
                "Namespace pets-system",
                "ServiceAccount pets-system/pets",
                "ClusterRole pets.v1.0.0-pets-p0",
                "ClusterRoleBinding pets.v1.0.0-pets-p0",
                "ClusterRole pets.v1.0.0-pets-c0",
                "ClusterRoleBinding pets.v1.0.0-pets-c0",
                "Deployment pets-system/pets",
            ],
        );
    }

    #[test]
    fn an_operator_of_some_namespaces_has_roles_there() {
        check(
            &["MultiNamespace"],
            &["a", "b"],
            &[
                "Namespace pets-system",
                "Namespace a",
                "Namespace b",
                "ServiceAccount pets-system/pets",
                "Role pets-system/pets.v1.0.0-pets-p0",
                "RoleBinding pets-system/pets.v1.0.0-pets-p0",
                "Role a/pets.v1.0.0-pets-p0",
                "RoleBinding a/pets.v1.0.0-pets-p0",
                "Role b/pets.v1.0.0-pets-p0",
                "RoleBinding b/pets.v1.0.0-pets-p0",
                "ClusterRole pets.v1.0.0-pets-c0",
                "ClusterRoleBinding pets.v1.0.0-pets-c0",
                "Deployment pets-system/pets",
            ],
        );
    }

    #[test]
    fn modes_that_a_bundle_does_not_support_are_refused() {
        let error = Plan::new(vec![version(&["AllNamespaces"])], None, &["a".into()]).err().unwrap().to_string();
        assert!(error.contains("SingleNamespace") && error.contains("supports: AllNamespaces"), "{error}");
        assert!(Plan::new(Vec::new(), None, &[]).err().unwrap().to_string().contains("no ClusterServiceVersion"));
    }

    #[test]
    fn operators_are_told_what_to_watch() {
        let plan = Plan::new(vec![version(&["MultiNamespace"])], Some("ops"), &["a".into(), "b".into()]).unwrap();
        let deployment = plan.objects.last().unwrap();
        let template = &deployment["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"]["olm.targetNamespaces"], "a,b");
        assert_eq!(template["spec"]["containers"][0]["env"][0]["value"], "pets.v1.0.0");
        assert_eq!(deployment["metadata"]["namespace"], "ops");
    }
}
