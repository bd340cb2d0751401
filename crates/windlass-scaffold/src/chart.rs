//! A Helm chart of an installation.
//!
//! The chart is made of the objects that `config/default` gives: with the default values its templates give the same
//! objects again. What charts are expected to let users choose is taken out of the objects and put into `values.yaml`.
//! Three things belong to Helm: the namespace, which `helm install --create-namespace` creates; the label
//! `app.kubernetes.io/managed-by`; and the annotation that keeps CRDs when a release is uninstalled.
//!
//! CRDs are templates and not in Helm's directory `crds/`, whose files are never updated and cannot name the Service that
//! converts objects.

mod deployment;
mod text;

use serde_json::{Value, json};

use crate::manifests::is_definition;
use crate::tree::Tree;
use text::{Template, escape};

/// Where a chart is written.
pub const DIRECTORY: &str = "dist/chart";

/// What a chart is made of.
#[derive(Debug)]
pub struct Input<'a> {
    /// The name of the project.
    pub name: &'a str,
    /// The version of the chart and of the operator.
    pub version: &'a str,
    /// The objects of `config/default`.
    pub objects: &'a [Value],
    /// Objects that are only installed if a value says so, under the name of that value.
    pub optional: &'a [(Part, Vec<Value>)],
    /// The operator's image.
    pub image: &'a str,
    /// Whether the chart has the CRDs.
    pub definitions: bool,
}

/// A part of an installation that can be turned off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The definitions of the kinds.
    Crd,
    /// Webhooks and the Service that they are reached through.
    Webhook,
    /// The Service of the metrics.
    Metrics,
    /// Who may reach the metrics and the webhooks.
    NetworkPolicy,
    /// For the Prometheus operator.
    Prometheus,
    /// How many replicas may be missing.
    PodDisruptionBudget,
    /// Roles for people.
    Roles,
}

impl Part {
    /// The value that turns the part on.
    fn value(self) -> &'static str {
        match self {
            Self::Crd => "crd.enable",
            Self::Webhook => "webhook.enable",
            Self::Metrics => "metrics.enable",
            Self::NetworkPolicy => "networkPolicy.enable",
            Self::Prometheus => "prometheus.enable",
            Self::PodDisruptionBudget => "podDisruptionBudget.enable",
            Self::Roles => "rbac.helpers",
        }
    }

    /// The directory of its templates.
    fn directory(self) -> &'static str {
        match self {
            Self::Crd => "crd",
            Self::Webhook => "webhook",
            Self::Metrics => "metrics",
            Self::NetworkPolicy => "network-policy",
            Self::Prometheus => "prometheus",
            Self::PodDisruptionBudget => "manager",
            Self::Roles => "rbac",
        }
    }

    pub(crate) fn of(object: &Value) -> Option<Self> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let is_helper = ["-admin-role", "-editor-role", "-viewer-role"].iter().any(|end| name.ends_with(end));
        match object["kind"].as_str()? {
            "CustomResourceDefinition" => Some(Self::Crd),
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => Some(Self::Webhook),
            "Service" if name.ends_with("webhook-service") => Some(Self::Webhook),
            "Service" if name.ends_with("metrics-service") => Some(Self::Metrics),
            "ClusterRole" if name.ends_with("metrics-reader") => Some(Self::Metrics),
            "ClusterRole" if is_helper => Some(Self::Roles),
            "NetworkPolicy" => Some(Self::NetworkPolicy),
            "ServiceMonitor" => Some(Self::Prometheus),
            "PodDisruptionBudget" => Some(Self::PodDisruptionBudget),
            _ => None,
        }
    }
}

/// The files of a chart, by their paths in the project.
pub fn chart(input: &Input<'_>) -> Tree {
    let mut tree = Tree::default();
    let mut add = |path: &str, content: String| tree.add(format!("{DIRECTORY}/{path}"), content);
    let namespace = namespace(input.objects);
    let mut used = std::collections::BTreeSet::new();
    let mut values = deployment::Values::default();
    let webhooks = input.objects.iter().any(|object| Part::of(object) == Some(Part::Webhook));
    let mut parts: Vec<Part> = Vec::new();
    let given = input.objects.iter().map(|object| (Part::of(object), object));
    let optional = input.optional.iter().flat_map(|(part, objects)| objects.iter().map(|object| (Some(*part), object)));
    for (part, object) in given.chain(optional) {
        if object["kind"] == "Namespace" || (is_definition(object) && !input.definitions) {
            continue;
        }
        parts.extend(part.filter(|part| !parts.contains(part)));
        let mut template = Template::new(namespace.as_deref());
        let mut object = object.clone();
        if object["kind"] == "Deployment" && object["metadata"]["labels"]["control-plane"] == "controller-manager" {
            values = deployment::extract(&mut object, &mut template, input.image, webhooks);
        }
        let condition = part.map(|part| condition(part, &object));
        let text = template.render(condition.as_deref(), object);
        let mut path = format!("templates/{}/{}", directory(part, text.kind()), text.file_name());
        while !used.insert(path.clone()) {
            path = path.replace(".yaml", "-more.yaml");
        }
        add(&path, text.content);
    }
    let enabled = |part: Part| input.objects.iter().any(|object| Part::of(object) == Some(part));
    add("values.yaml", values.to_text(&parts, &enabled));
    add("Chart.yaml", description(input));
    add(".helmignore", ".git/\n.DS_Store\n*.swp\n*.bak\n*.tmp\n*.orig\n*~\n".to_owned());
    add("templates/NOTES.txt", notes(input));
    tree
}

/// What has to be true for an object to be there. What is for the metrics goes with them.
fn condition(part: Part, object: &Value) -> String {
    let of_metrics = match part {
        Part::Prometheus => true,
        Part::NetworkPolicy => object["metadata"]["name"].as_str().is_some_and(|name| name.contains("metrics")),
        _ => false,
    };
    let value = part.value();
    if of_metrics { format!("and .Values.{value} .Values.metrics.enable") } else { format!(".Values.{value}") }
}

fn directory(part: Option<Part>, kind: &str) -> &'static str {
    match (part, kind) {
        (Some(part), _) => part.directory(),
        (None, "Deployment") => "manager",
        (None, "ServiceAccount" | "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding") => "rbac",
        (None, _) => "extras",
    }
}

/// The namespace of the installation: that of the operator.
fn namespace(objects: &[Value]) -> Option<String> {
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    deployment.and_then(|object| object["metadata"]["namespace"].as_str()).map(str::to_owned)
}

fn description(input: &Input<'_>) -> String {
    let chart = json!({
        "apiVersion": "v2",
        "name": input.name,
        "description": format!("The {} operator", input.name),
        "type": "application",
        "version": input.version,
        "appVersion": input.version,
    });
    text::yaml(&chart)
}

fn notes(input: &Input<'_>) -> String {
    let name = escape(input.name);
    format!(
        "{name} is being installed as release {{{{ .Release.Name }}}}. To wait for it:\n\n  kubectl rollout status -n {{{{ \
         .Release.Namespace }}}} deployment/{name}-controller-manager\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_the_metrics_goes_with_them() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        let both = "and .Values.networkPolicy.enable .Values.metrics.enable";
        assert_eq!(condition(Part::NetworkPolicy, &named("shop-allow-metrics-traffic")), both);
        let webhooks = condition(Part::NetworkPolicy, &named("shop-allow-webhook-traffic"));
        assert_eq!(webhooks, ".Values.networkPolicy.enable");
        let monitor = condition(Part::Prometheus, &named("shop-controller-manager-metrics-monitor"));
        assert_eq!(monitor, "and .Values.prometheus.enable .Values.metrics.enable");
        assert_eq!(condition(Part::Crd, &named("pets")), ".Values.crd.enable");
    }
}
