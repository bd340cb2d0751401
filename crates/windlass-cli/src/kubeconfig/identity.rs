//! A kubeconfig for another user than the administrator: a component, a node, a person.
//!
//! The cluster signs the user's certificate through the API, as it does for any client: a CertificateSigningRequest is
//! created, approved by the administrator, signed by the cluster, and deleted again. The key never leaves this process.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_server::pki::SigningRequest;

use crate::against::POLL;
use crate::home::Home;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// How long the cluster may take to sign.
const SIGNING_TIMEOUT: Duration = Duration::from_secs(10);

/// The administrator's kubeconfig with the credentials of `user`, who is in `groups`.
pub(super) async fn of(home: &Home, admin: Value, user: &str, groups: &[String]) -> Result<Value> {
    let groups = groups_of(user, groups);
    let file = Kubeconfig::read_from(home.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let client = windlass::config::connect(config)?;
    let request = SigningRequest::generate(user, &groups)?;
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let made = create(&requests, &request.request).await?;
    let name = made.name_any();
    let signed = sign(&requests, &name).await;
    // Whatever came of it, nothing is left behind.
    let deleted = requests.delete(&name, &DeleteParams::default()).await;
    let certificate = signed?;
    deleted.context("the certificate signing request cannot be deleted")?;
    Ok(with_user(admin, user, &certificate, &request.key))
}

/// The groups that a user is in who is known by name, and those that are asked for.
fn groups_of(user: &str, groups: &[String]) -> Vec<String> {
    let nodes = "system:nodes".to_owned();
    let is_node = user.starts_with("system:node:") && !groups.contains(&nodes);
    groups.iter().cloned().chain(is_node.then_some(nodes)).collect()
}

async fn create(requests: &Api<CertificateSigningRequest>, pem: &str) -> Result<CertificateSigningRequest> {
    let request: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"generateName": "windlass-kubeconfig-"},
        "spec": {"request": STANDARD.encode(pem), "signerName": SIGNER, "usages": ["digital signature", "client auth"]},
    }))?;
    match requests.create(&PostParams::default(), &request).await {
        Ok(made) => Ok(made),
        Err(kube::Error::Api(status)) => bail!("the cluster refuses to sign: {}", status.message),
        Err(error) => Err(error).context("the cluster does not answer"),
    }
}

/// Approves a request and waits for its certificate.
async fn sign(requests: &Api<CertificateSigningRequest>, name: &str) -> Result<ByteString> {
    let condition = json!({
        "type": "Approved", "status": "True", "reason": "WindlassKubeconfig",
        "message": "Requested by `windlass kubeconfig --user`",
    });
    let approval = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    requests.patch_approval(name, &PatchParams::default(), &approval).await?;
    let signed = async {
        loop {
            let request = requests.get(name).await?;
            if let Some(certificate) = request.status.and_then(|status| status.certificate) {
                return Ok(certificate);
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let signed = tokio::time::timeout(SIGNING_TIMEOUT, signed).await;
    signed.context("the cluster did not sign the certificate; does it run the controller that signs?")?
}

/// The kubeconfig with another user, and a context of that user.
fn with_user(mut config: Value, user: &str, certificate: &ByteString, key: &str) -> Value {
    let cluster = config["clusters"][0]["name"].clone();
    let name = format!("{}@{}", user, cluster.as_str().unwrap_or_default());
    config["users"] = json!([{"name": name, "user": {
        "client-certificate-data": STANDARD.encode(&certificate.0), "client-key-data": STANDARD.encode(key),
    }}]);
    config["contexts"] = json!([{"name": name, "context": {"cluster": cluster, "user": name}}]);
    config["current-context"] = name.into();
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_in_the_group_of_nodes() {
        let check = |user: &str, groups: &[&str], expected: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            assert_eq!(groups_of(user, &groups), expected);
        };
        check("system:kube-scheduler", &[], &[]);
        check("system:node:a", &[], &["system:nodes"]);
        check("system:node:a", &["system:nodes"], &["system:nodes"]);
        check("jane", &["dev", "ops"], &["dev", "ops"]);
    }

    #[test]
    fn the_context_names_user_and_cluster() {
        let admin = json!({"clusters": [{"name": "windlass"}], "users": [{"name": "windlass"}], "contexts": []});
        let config = with_user(admin, "system:node:a", &ByteString(b"c".to_vec()), "k");
        assert_eq!(config["current-context"], "system:node:a@windlass");
        assert_eq!(config["contexts"][0]["context"], json!({"cluster": "windlass", "user": "system:node:a@windlass"}));
        assert_eq!(config["users"].as_array().map(Vec::len), Some(1));
        assert_eq!(config["users"][0]["user"], json!({"client-certificate-data": "Yw==", "client-key-data": "aw=="}));
    }
}
