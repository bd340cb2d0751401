//! The webhooks of a bundle: a Service and certificates for each Deployment that serves some, and the configurations
//! that lead there.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass_server::pki::Authority;

use super::text;

/// The name of a volume, where it is mounted, and the files that the keys of the Secret become there.
type Mount = (&'static str, &'static str, [(&'static str, &'static str); 2]);

/// Where operators look for their certificates: controller-runtime's directory, and that of OLM's API services.
const MOUNTS: [Mount; 2] = [
    ("webhook-cert", "/tmp/k8s-webhook-server/serving-certs", [("tls.crt", "tls.crt"), ("tls.key", "tls.key")]),
    (
        "apiservice-cert",
        "/apiserver.local.config/certificates",
        [("tls.crt", "apiserver.crt"), ("tls.key", "apiserver.key")],
    ),
];

/// The key of the authority in the Secret, as OLM calls it.
const AUTHORITY: &str = "olmCAKey";
/// How long certificates are kept from one run to the next: far less than the ten years for which they are valid.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(365 * 24);

/// The objects that the webhooks need. The Deployments are given their certificates, the CRDs their conversion.
pub(super) fn add(
    definitions: &[Value],
    namespace: &str,
    deployments: &mut [Value],
    objects: &mut [Value],
) -> Result<Vec<Value>> {
    let mut made = Vec::new();
    let names: BTreeSet<String> = definitions.iter().map(|one| text(&one["deploymentName"])).collect();
    for name in names {
        let ours: Vec<&Value> = definitions.iter().filter(|one| one["deploymentName"] == name.as_str()).collect();
        let deployment = deployments.iter_mut().find(|one| one["metadata"]["name"] == name.as_str());
        let deployment =
            deployment.with_context(|| format!("webhooks of the deployment {name:?}, which is not there"))?;
        let service = format!("{name}-service");
        let (secret, bundle) = certificates(namespace, &service)?;
        mount(deployment, &text(&secret["metadata"]["name"]));
        made.push(service_of(namespace, &service, deployment, &ours));
        made.push(secret);
        for definition in ours {
            let client = json!({
                "service": {
                    "namespace": namespace, "name": service, "port": port(definition),
                    "path": definition["webhookPath"].as_str().unwrap_or("/"),
                },
                "caBundle": bundle,
            });
            match definition["type"].as_str().unwrap_or_default() {
                "ConversionWebhook" => convert(definition, &client, objects)?,
                kind @ ("ValidatingAdmissionWebhook" | "MutatingAdmissionWebhook") => {
                    made.push(configuration(definition, kind, &client));
                }
                other => bail!("a webhook of the type {other:?}, which is not known"),
            }
        }
    }
    Ok(made)
}

fn port(definition: &Value) -> i64 {
    definition["containerPort"].as_i64().unwrap_or(443)
}

/// A certificate for the Service, and the authority to trust it by.
fn certificates(namespace: &str, service: &str) -> Result<(Value, String)> {
    let authority = Authority::generate()?;
    let short = format!("{service}.{namespace}");
    let names = [short.clone(), format!("{short}.svc"), format!("{short}.svc.cluster.local")];
    let identity = authority.server(&names)?;
    let bundle = BASE64_STANDARD.encode(authority.certificate());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": format!("{service}-cert"), "namespace": namespace},
        "data": {
            "tls.crt": BASE64_STANDARD.encode(identity.certificate),
            "tls.key": BASE64_STANDARD.encode(identity.key),
            AUTHORITY: bundle,
        },
    });
    Ok((secret, bundle))
}

/// Whether a Secret holds certificates that were made here.
pub(super) fn is_made_here(object: &Value) -> bool {
    object["kind"] == "Secret" && object["data"][AUTHORITY].is_string()
}

/// Takes the certificates of an earlier run in place of the new ones of `objects[secret]`. Pods see a change of a mounted
/// Secret only after a while, and until then API servers would trust the new authority alone.
pub(super) fn keep_certificates(objects: &mut [Value], secret: usize, earlier: &Value) {
    let (old, new) = (earlier["data"].clone(), objects[secret]["data"].clone());
    if !["tls.crt", "tls.key", AUTHORITY].iter().all(|key| old[key].is_string()) || !is_recent(earlier) {
        return;
    }
    objects[secret]["data"] = json!({"tls.crt": old["tls.crt"], "tls.key": old["tls.key"], AUTHORITY: old[AUTHORITY]});
    for object in objects {
        replace_authority(object, &new[AUTHORITY], &old[AUTHORITY]);
    }
}

fn is_recent(secret: &Value) -> bool {
    let created = secret["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    created.is_some_and(|created| Timestamp::now().duration_since(created) < KEPT_FOR)
}

/// Puts `old` wherever `new` is trusted.
fn replace_authority(value: &mut Value, new: &Value, old: &Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|inner| replace_authority(inner, new, old)),
        Value::Object(fields) => {
            for (name, inner) in fields {
                if name == "caBundle" && inner == new {
                    *inner = old.clone();
                } else {
                    replace_authority(inner, new, old);
                }
            }
        }
        _ => {}
    }
}

fn service_of(namespace: &str, name: &str, deployment: &Value, definitions: &[&Value]) -> Value {
    let ports: BTreeSet<(i64, String)> = definitions
        .iter()
        .map(|definition| {
            let target = &definition["targetPort"];
            let target = if target.is_null() { port(definition).into() } else { target.clone() };
            (port(definition), target.to_string())
        })
        .collect();
    let ports: Vec<Value> = ports
        .into_iter()
        .map(|(port, target)| {
            let target: Value = serde_json::from_str(&target).unwrap_or_default();
            json!({"name": port.to_string(), "port": port, "targetPort": target, "protocol": "TCP"})
        })
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": deployment["spec"]["selector"]["matchLabels"], "ports": ports},
    })
}

/// Gives the containers the certificates.
fn mount(deployment: &mut Value, secret: &str) {
    let spec = &mut deployment["spec"]["template"]["spec"];
    for (name, path, items) in MOUNTS {
        let items = items.map(|(key, path)| json!({"key": key, "path": path}));
        // The bundle may have a volume for them already.
        push(&mut spec["volumes"], name, json!({"name": name, "secret": {"secretName": secret, "items": items}}));
        for container in spec["containers"].as_array_mut().into_iter().flatten() {
            push(&mut container["volumeMounts"], name, json!({"name": name, "mountPath": path}));
        }
    }
}

/// Puts a named element into a list, in the place of one of the same name.
fn push(list: &mut Value, name: &str, element: Value) {
    if list.is_null() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.retain(|other| other["name"] != name);
        list.push(element);
    }
}

fn configuration(definition: &Value, kind: &str, client: &Value) -> Value {
    let phase = kind.trim_end_matches("AdmissionWebhook");
    let name = text(&definition["generateName"]);
    let mut webhook = json!({"name": name, "clientConfig": client});
    for field in [
        "admissionReviewVersions",
        "failurePolicy",
        "matchPolicy",
        "objectSelector",
        "reinvocationPolicy",
        "rules",
        "sideEffects",
        "timeoutSeconds",
    ] {
        let is_foreign = field == "reinvocationPolicy" && phase == "Validating";
        if !definition[field].is_null() && !is_foreign {
            webhook[field] = definition[field].clone();
        }
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{phase}WebhookConfiguration"),
        "metadata": {"name": name}, "webhooks": [webhook],
    })
}

/// Has definitions converted by the webhook.
fn convert(definition: &Value, client: &Value, objects: &mut [Value]) -> Result<()> {
    let names = definition["conversionCRDs"].as_array().into_iter().flatten();
    for name in names.filter_map(Value::as_str) {
        let found = objects
            .iter_mut()
            .find(|object| object["kind"] == "CustomResourceDefinition" && object["metadata"]["name"] == name);
        let found = found.with_context(|| format!("the bundle converts {name}, but has no CRD of that name"))?;
        found["spec"]["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": definition["admissionReviewVersions"], "clientConfig": client,
            },
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn webhooks_get_a_service_and_certificates() {
        let definitions = [
            json!({"type": "ValidatingAdmissionWebhook", "deploymentName": "pets", "containerPort": 443,
                "targetPort": 9443, "generateName": "vpet.example.com", "webhookPath": "/validate",
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": [], "failurePolicy": "Fail"}),
            json!({"type": "ConversionWebhook", "deploymentName": "pets", "containerPort": 443, "targetPort": 9443,
                "generateName": "cpet.example.com", "webhookPath": "/convert", "admissionReviewVersions": ["v1"],
                "conversionCRDs": ["pets.example.com"]}),
        ];
        let mut deployments = [json!({"metadata": {"name": "pets"}, "spec": {
            "selector": {"matchLabels": {"app": "pets"}},
            "template": {"spec": {"containers": [{"name": "manager"}]}},
        }})];
        let mut objects =
            [json!({"kind": "CustomResourceDefinition", "metadata": {"name": "pets.example.com"}, "spec": {}})];
        let made = add(&definitions, "ns", &mut deployments, &mut objects).unwrap();
        let kinds: Vec<String> = made.iter().map(|object| text(&object["kind"])).collect();
        assert_eq!(kinds, ["Service", "Secret", "ValidatingWebhookConfiguration"]);
        let ports = json!([{"name": "443", "port": 443, "targetPort": 9443, "protocol": "TCP"}]);
        assert_eq!(made[0]["spec"], json!({"selector": {"app": "pets"}, "ports": ports}));
        let client = &made[2]["webhooks"][0]["clientConfig"];
        assert_eq!(client["service"]["path"], "/validate");
        assert_eq!(&objects[0]["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"], &client["caBundle"]);
        let spec = &deployments[0]["spec"]["template"]["spec"];
        assert_eq!(spec["volumes"][0]["secret"]["secretName"], "pets-service-cert");
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["mountPath"], MOUNTS[0].1);
        add(&[json!({"deploymentName": "other"})], "ns", &mut deployments, &mut objects).unwrap_err();
    }
}
