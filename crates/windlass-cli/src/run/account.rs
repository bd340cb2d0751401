//! A ServiceAccount with the operator's roles and no other permissions, and a kubeconfig that uses it.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::against::target::Target;
use crate::against::{apply, report, request};
use crate::args::ListFormat;

/// How long a token is valid: longer than a day of work.
const TOKEN_SECONDS: u32 = 24 * 3600;

/// Creates the account with these roles, and returns a token for it.
pub(super) async fn create(
    target: &Target,
    namespace: &str,
    account: &str,
    roles: Vec<Value>,
    options: &apply::Options,
) -> Result<String> {
    let mut objects = Vec::new();
    if apply::get(&target.client, &format!("/api/v1/namespaces/{namespace}")).await?.is_none() {
        objects.push(apply::namespace(namespace));
    }
    objects.push(json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace},
    }));
    objects.extend(roles.iter().map(|role| binding(role, namespace, account)));
    objects.extend(roles);
    apply::apply_all(&target.client, objects, options, report::line(ListFormat::Table, false)).await?;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    });
    let body = Some(("application/json", body.to_string().into_bytes()));
    let answer: Value = target.client.request(request("POST", &path, body)?).await?;
    let token = answer["status"]["token"].as_str().context("the server gave no token for the ServiceAccount")?;
    Ok(token.to_owned())
}

fn binding(role: &Value, namespace: &str, account: &str) -> Value {
    let kind = role["kind"].as_str().unwrap_or_default();
    let name = &role["metadata"]["name"];
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{kind}Binding"),
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    });
    if let Some(namespace) = role["metadata"].get("namespace") {
        binding["metadata"]["namespace"] = namespace.clone();
    }
    binding
}

/// Puts a token in the place of the user's credentials.
pub(super) fn use_token(config: &mut Value, target: &Target, namespace: &str, token: &str) -> Result<()> {
    const USER: &str = "windlass-run";
    config["users"] = json!([{"name": USER, "user": {"token": token}}]);
    of_context(config, target)?["user"] = USER.into();
    use_namespace(config, target, namespace)
}

/// Makes a namespace that of the context.
pub(crate) fn use_namespace(config: &mut Value, target: &Target, namespace: &str) -> Result<()> {
    of_context(config, target)?["namespace"] = namespace.into();
    Ok(())
}

fn of_context<'a>(config: &'a mut Value, target: &Target) -> Result<&'a mut Value> {
    let contexts = config["contexts"].as_array_mut().into_iter().flatten();
    let mut named = contexts.filter(|context| context["name"] == target.context.as_str());
    named.next().map(|context| &mut context["context"]).context("the context is gone from the kubeconfig")
}
