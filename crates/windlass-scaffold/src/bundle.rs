//! A bundle for the Operator Lifecycle Manager (format `registry+v1`).
//!
//! The ClusterServiceVersion says what OLM creates itself: the Deployment, the ServiceAccount with its roles, and the
//! webhooks with their Service and certificates. All other objects of an installation are manifests of the bundle.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::kustomize::to_yaml;
use crate::manifests::{is_definition, is_webhook};
use crate::tree::Tree;

/// Where OLM mounts the certificate of webhooks.
const CERTIFICATES: &str = "/tmp/k8s-webhook-server/serving-certs";
const LABELS: &str = "operators.operatorframework.io";

/// What a bundle is made of.
#[derive(Debug)]
pub struct Input<'a> {
    /// The name of the project.
    pub name: &'a str,
    /// The version of the operator.
    pub version: &'a str,
    /// The channel that the bundle is in.
    pub channel: &'a str,
    /// The objects of `config/default`.
    pub objects: &'a [Value],
    /// The objects of `config/samples`.
    pub samples: &'a [Value],
    /// Whether the operator watches its own namespace only.
    pub namespaced: bool,
}

/// The files of a bundle, by their paths in the project.
pub fn bundle(input: &Input<'_>) -> Tree {
    let mut tree = Tree::default();
    let manifest = |file: &str| format!("bundle/manifests/{file}");
    for object in input.objects {
        if let Some(file) = own_file(object) {
            tree.add(manifest(&file), to_yaml(&[without_namespace(object)]));
        }
    }
    let csv = cluster_service_version(input);
    tree.add(manifest(&format!("{}.clusterserviceversion.yaml", input.name)), to_yaml(&[csv]));
    tree.add("bundle/metadata/annotations.yaml", annotations(input));
    tree.add("bundle/tests/scorecard/config.yaml", to_yaml(&[scorecard()]));
    tree.add("bundle.Dockerfile", dockerfile(input));
    // The project's own .dockerignore keeps everything from the builder that the operator's image does not need.
    tree.add("bundle.Dockerfile.dockerignore", "*\n!bundle\n".to_owned());
    tree
}

/// The file of an object that is a manifest of the bundle; none for what the ClusterServiceVersion says.
fn own_file(object: &Value) -> Option<String> {
    let name = object["metadata"]["name"].as_str()?;
    if is_definition(object) {
        let (plural, group) = name.split_once('.')?;
        return Some(format!("{group}_{plural}.yaml"));
    }
    let kind = object["kind"].as_str()?;
    // Roles of the operator and their bindings are permissions; roles for people are bound by people.
    let of_manager = name.ends_with("manager-role");
    let own = match kind {
        "Namespace" | "Deployment" | "ServiceAccount" | "RoleBinding" | "ClusterRoleBinding" => false,
        "Role" | "ClusterRole" => !of_manager,
        "Service" => !name.ends_with("webhook-service"),
        _ => !is_webhook(object),
    };
    let api = object["apiVersion"].as_str()?.replace('/', "_");
    own.then(|| format!("{name}_{api}_{}.yaml", kind.to_lowercase()))
}

/// OLM chooses the namespace, and writes whom to trust.
fn without_namespace(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    if is_definition(&object)
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.remove("conversion");
    }
    object
}

fn cluster_service_version(input: &Input<'_>) -> Value {
    let title = title(input.name);
    let examples = serde_json::to_string_pretty(input.samples).unwrap_or_default();
    let mode = |kind: &str, supported: bool| json!({"type": kind, "supported": supported});
    let mut spec = json!({
        "displayName": title,
        "description": format!("{title} is an operator that is written in Rust with windlass.\n\nSay here what it does and how it is used."),
        "version": input.version,
        "maturity": "alpha",
        "minKubeVersion": "1.28.0",
        "keywords": [input.name],
        "links": [{"name": title, "url": format!("https://{}.domain", input.name)}],
        "maintainers": [{"name": "Maintainer Name", "email": "your@email.com"}],
        "provider": {"name": "Provider Name", "url": "https://your.domain"},
        "icon": [{"base64data": ICON, "mediatype": "image/svg+xml"}],
        "installModes": [
            mode("OwnNamespace", input.namespaced), mode("SingleNamespace", input.namespaced),
            mode("MultiNamespace", input.namespaced), mode("AllNamespaces", !input.namespaced),
        ],
        "customresourcedefinitions": {"owned": owned(input.objects)},
        "install": {"strategy": "deployment", "spec": install(input)},
    });
    let webhooks = webhooks(input.objects);
    if !webhooks.is_empty() {
        spec["webhookdefinitions"] = webhooks.into();
    }
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("{}.v{}", input.name, input.version),
            // Every object of a bundle is put into the namespace of the installation.
            "namespace": "placeholder",
            "labels": {"operatorframework.io/arch.amd64": "supported", "operatorframework.io/os.linux": "supported"},
            "annotations": {
                "alm-examples": examples,
                "capabilities": "Basic Install",
                "categories": "Developer Tools",
                "containerImage": crate::package::image(input.objects).unwrap_or_default(),
                "description": format!("The {title} operator."),
                format!("{LABELS}/builder"): format!("windlass-{}", env!("CARGO_PKG_VERSION")),
            },
        },
        "spec": spec,
    })
}

/// A dot, to be replaced: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><circle cx="4" cy="4" r="4"/></svg>`.
const ICON: &str = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCA4IDgiPjxjaXJjbGUgY3g9IjQiIGN5PSI0IiByPSI0Ii8+PC9zdmc+";

/// `my-shop` as a title: `My Shop`.
fn title(name: &str) -> String {
    let words = name.split('-').filter(|word| !word.is_empty()).map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Deployment and permissions.
fn install(input: &Input<'_>) -> Value {
    let of = |kind: &'static str| input.objects.iter().filter(move |object| object["kind"] == kind);
    let deployments: Vec<Value> = of("Deployment")
        .map(|object| {
            let mut spec = object["spec"].clone();
            use_mounted_certificates(&mut spec, input);
            json!({"name": object["metadata"]["name"], "label": object["metadata"]["labels"], "spec": spec})
        })
        .collect();
    let permissions = |binding: &'static str| -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        for binding in of(binding) {
            let role = input.objects.iter().find(|object| {
                object["kind"] == binding["roleRef"]["kind"] && object["metadata"]["name"] == binding["roleRef"]["name"]
            });
            let subjects = binding["subjects"].as_array().into_iter().flatten();
            let account =
                subjects.filter(|subject| subject["kind"] == "ServiceAccount").find_map(|one| one["name"].as_str());
            let (Some(role), Some(account)) = (role, account) else { continue };
            let mut rules = role["rules"].as_array().cloned().unwrap_or_default();
            rules.retain(|rule| !is_for_certificates(rule, input.objects));
            match all.iter_mut().find(|other| other["serviceAccountName"] == account) {
                Some(known) => known["rules"].as_array_mut().into_iter().for_each(|known| known.extend(rules.clone())),
                None => all.push(json!({"serviceAccountName": account, "rules": rules})),
            }
        }
        all
    };
    let mut spec = Map::from_iter([("deployments".to_owned(), deployments.into())]);
    for (field, binding) in [("permissions", "RoleBinding"), ("clusterPermissions", "ClusterRoleBinding")] {
        let permissions = permissions(binding);
        if !permissions.is_empty() {
            spec.insert(field.to_owned(), permissions.into());
        }
    }
    spec.into()
}

/// Whether a rule only lets the operator keep certificates of its own, and have them trusted, which OLM does here.
fn is_for_certificates(rule: &Value, objects: &[Value]) -> bool {
    let trusting = |name: &Value| {
        let mut named = objects.iter().filter(|object| object["metadata"]["name"] == *name);
        name == "webhook-server-cert" || named.any(|object| is_webhook(object) || is_definition(object))
    };
    let names = rule["resourceNames"].as_array();
    names.is_some_and(|names| !names.is_empty() && names.iter().all(trusting)) && !webhooks(objects).is_empty()
}

/// OLM makes the certificates, and says which namespace to watch.
fn use_mounted_certificates(spec: &mut Value, input: &Input<'_>) {
    let containers = spec.pointer_mut("/template/spec/containers").and_then(Value::as_array_mut).into_iter().flatten();
    for container in containers.filter(|container| container["name"] == "manager") {
        let serves = !webhooks(input.objects).is_empty();
        if let Some(arguments) = container["args"].as_array_mut().filter(|_| serves) {
            let path = "--webhook-cert-path";
            arguments.retain(|argument| !argument.as_str().is_some_and(|argument| argument.starts_with(path)));
            arguments.push(format!("{path}={CERTIFICATES}").into());
        }
        let variables = container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten();
        for variable in variables.filter(|variable| variable["name"] == "WATCH_NAMESPACE") {
            variable["valueFrom"]["fieldRef"]["fieldPath"] = "metadata.annotations['olm.targetNamespaces']".into();
        }
    }
}

/// The kinds that the operator brings: one entry for each version, with descriptions from the schema.
fn owned(objects: &[Value]) -> Vec<Value> {
    let mut owned = Vec::new();
    for definition in objects.iter().filter(|object| is_definition(object)) {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default();
        for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
            let schema = &version["schema"]["openAPIV3Schema"];
            let description = schema["description"].as_str().filter(|text| !text.is_empty());
            let mut entry = json!({
                "name": definition["metadata"]["name"],
                "version": version["name"],
                "kind": kind,
                "displayName": words(kind),
                "description": description.map_or_else(|| format!("{} of this operator.", words(kind)), str::to_owned),
            });
            for (part, field) in [("spec", "specDescriptors"), ("status", "statusDescriptors")] {
                let descriptors = descriptors(&schema["properties"][part]["properties"]);
                if !descriptors.is_empty() {
                    entry[field] = descriptors.into();
                }
            }
            owned.push(entry);
        }
    }
    owned
}

fn descriptors(properties: &Value) -> Vec<Value> {
    let properties = properties.as_object().into_iter().flatten();
    let descriptor = |(name, schema): (&String, &Value)| {
        let description = schema["description"].as_str().unwrap_or_default();
        json!({"path": name, "displayName": words(name), "description": description})
    };
    properties.map(descriptor).collect()
}

/// `IPPool` and `maxSurge` as words: `IP Pool`, `Max Surge`.
fn words(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    let mut words = String::new();
    for (at, character) in characters.iter().enumerate() {
        let after_small = at > 0 && characters[at - 1].is_lowercase();
        let before_small = at > 0 && characters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if character.is_uppercase() && (after_small || (before_small && characters[at - 1].is_uppercase())) {
            words.push(' ');
        }
        if at == 0 { words.extend(character.to_uppercase()) } else { words.push(*character) }
    }
    words
}

/// The webhooks of all configurations, and conversions.
fn webhooks(objects: &[Value]) -> Vec<Value> {
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let deployment = deployment.map(|object| object["metadata"]["name"].clone()).unwrap_or_default();
    let mut definitions = Vec::new();
    for object in objects.iter().filter(|object| is_webhook(object)) {
        let phase = if object["kind"] == "MutatingWebhookConfiguration" { "Mutating" } else { "Validating" };
        for webhook in object["webhooks"].as_array().into_iter().flatten() {
            let mut definition = json!({
                "type": format!("{phase}AdmissionWebhook"),
                "generateName": webhook["name"],
                "webhookPath": webhook["clientConfig"]["service"]["path"],
                "deploymentName": deployment, "containerPort": 443, "targetPort": 9443,
            });
            for field in [
                "admissionReviewVersions",
                "sideEffects",
                "failurePolicy",
                "matchPolicy",
                "objectSelector",
                "rules",
                "timeoutSeconds",
                "reinvocationPolicy",
            ] {
                if let Some(value) = webhook.get(field) {
                    definition[field] = value.clone();
                }
            }
            definitions.push(definition);
        }
    }
    let converts = |object: &&Value| object["spec"]["conversion"]["strategy"] == "Webhook";
    for definition in objects.iter().filter(|object| is_definition(object)).filter(converts) {
        let webhook = &definition["spec"]["conversion"]["webhook"];
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        definitions.push(json!({
            "type": "ConversionWebhook",
            "generateName": format!("c{name}"),
            "webhookPath": webhook["clientConfig"]["service"]["path"],
            "admissionReviewVersions": webhook["conversionReviewVersions"],
            "sideEffects": "None",
            "conversionCRDs": [name],
            "deploymentName": deployment, "containerPort": 443, "targetPort": 9443,
        }));
    }
    definitions
}

/// What the bundle's metadata and its image say alike.
fn labels(input: &Input<'_>) -> Vec<(String, String)> {
    let bundle = |name: &str, value: &str| (format!("{LABELS}.bundle.{name}"), value.to_owned());
    vec![
        bundle("mediatype.v1", "registry+v1"),
        bundle("manifests.v1", "manifests/"),
        bundle("metadata.v1", "metadata/"),
        bundle("package.v1", input.name),
        bundle("channels.v1", input.channel),
        bundle("channel.default.v1", input.channel),
        (format!("{LABELS}.test.mediatype.v1"), "scorecard+v1".to_owned()),
        (format!("{LABELS}.test.config.v1"), "tests/scorecard/".to_owned()),
    ]
}

fn annotations(input: &Input<'_>) -> String {
    let mut text = String::from("annotations:\n");
    for (name, value) in labels(input) {
        let _ = writeln!(text, "  {name}: {value}");
    }
    text
}

fn dockerfile(input: &Input<'_>) -> String {
    let mut text = String::from("FROM scratch\n\n");
    for (name, value) in labels(input) {
        let _ = writeln!(text, "LABEL {name}={value}");
    }
    text.push_str("\nCOPY bundle/manifests /manifests/\nCOPY bundle/metadata /metadata/\nCOPY bundle/tests/scorecard /tests/scorecard/\n");
    text
}

fn scorecard() -> Value {
    let test = |suite: &str, name: &str| {
        json!({
            "image": "quay.io/operator-framework/scorecard-test:v1.42.0",
            "entrypoint": ["scorecard-test", name],
            "labels": {"suite": suite, "test": format!("{name}-test")},
            "storage": {"spec": {"mountPath": {}}},
        })
    };
    let olm = [
        "olm-bundle-validation",
        "olm-crds-have-validation",
        "olm-crds-have-resources",
        "olm-spec-descriptors",
        "olm-status-descriptors",
    ];
    let mut tests = vec![test("basic", "basic-check-spec")];
    tests.extend(olm.map(|name| test("olm", name)));
    json!({
        "apiVersion": "scorecard.operatorframework.io/v1alpha3",
        "kind": "Configuration",
        "metadata": {"name": "config"},
        "stages": [{"parallel": true, "tests": tests}],
        "storage": {"spec": {"mountPath": {}}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_words() {
        assert_eq!([words("IPPool"), words("maxSurge"), words("foo")], ["IP Pool", "Max Surge", "Foo"]);
        assert_eq!(title("my-shop"), "My Shop");
    }
}
