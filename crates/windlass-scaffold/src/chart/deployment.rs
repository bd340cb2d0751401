//! The operator's Deployment: what users choose is taken out of it and put into the values.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::Part;
use super::text::{Template, yaml};

/// The values of a chart that come from the Deployment.
#[derive(Default)]
pub(super) struct Values {
    manager: Map<String, Value>,
}

/// Fields of the pod that are values, with what they are if the Deployment does not say.
const POD: [(&str, &str, Empty); 7] = [
    ("imagePullSecrets", "imagePullSecrets", Empty::List),
    ("affinity", "affinity", Empty::Map),
    ("nodeSelector", "nodeSelector", Empty::Map),
    ("tolerations", "tolerations", Empty::List),
    ("topologySpreadConstraints", "topologySpreadConstraints", Empty::List),
    ("priorityClassName", "priorityClassName", Empty::Text),
    ("securityContext", "podSecurityContext", Empty::Map),
];
const CONTAINER: [(&str, &str, Empty); 2] =
    [("resources", "resources", Empty::Map), ("securityContext", "securityContext", Empty::Map)];

#[derive(Clone, Copy)]
enum Empty {
    List,
    Map,
    Text,
}

impl Empty {
    fn value(self) -> Value {
        match self {
            Self::List => json!([]),
            Self::Map => json!({}),
            Self::Text => json!(""),
        }
    }
}

/// Replaces what is a value by expressions, and returns the values.
pub(super) fn extract(object: &mut Value, template: &mut Template<'_>, image: &str, webhooks: bool) -> Values {
    let mut manager = Map::new();
    let replicas = object["spec"].get("replicas").cloned().unwrap_or_else(|| 1.into());
    manager.insert("replicas".into(), replicas);
    object["spec"]["replicas"] = template.scalar("{{ .Values.manager.replicas }}");
    let pod = &mut object["spec"]["template"]["spec"];
    let (repository, tag) = split_image(image);
    let containers = pod["containers"].as_array_mut();
    let container = containers.and_then(|all| all.iter_mut().find(|container| container["name"] == "manager"));
    if let Some(container) = container {
        let policy = container.get("imagePullPolicy").cloned().unwrap_or_else(|| "".into());
        manager.insert("image".into(), json!({"repository": repository, "tag": tag, "pullPolicy": policy}));
        // YAML reads a tag such as 20260101 as a number, which `toString` might write with an exponent.
        container["image"] = template.scalar(
            "\"{{ .Values.manager.image.repository }}{{ if hasPrefix `sha256:` (toString \
             .Values.manager.image.tag) }}@{{ else }}:{{ end }}{{ .Values.manager.image.tag | default .Chart.AppVersion | \
             toJson | trimAll `\"` }}\"",
        );
        container["imagePullPolicy"] =
            template.lines("{{- with .Values.manager.image.pullPolicy }}\nimagePullPolicy: {{ . }}\n{{- end }}");
        arguments(container, template);
        environment(container, template, &mut manager, webhooks);
        take(container, template, &mut manager, &CONTAINER);
        if webhooks {
            webhook_port(container, template);
        }
    }
    take(pod, template, &mut manager, &POD);
    Values { manager }
}

fn split_image(image: &str) -> (&str, &str) {
    if let Some((repository, digest)) = image.split_once('@') {
        return (repository, digest);
    }
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (image, "latest"),
    }
}

/// The argument for the metrics is only there if they are; users may add others.
fn arguments(container: &mut Value, template: &mut Template<'_>) {
    let given = container["args"].as_array().cloned().unwrap_or_default();
    let mut lines = String::from("args:\n");
    for argument in given {
        let text = super::text::escape(yaml(&argument).trim_end());
        if argument.as_str().is_some_and(|argument| argument.starts_with("--metrics-bind-address")) {
            let _ = writeln!(lines, "{{{{- if .Values.metrics.enable }}}}\n  - {text}\n{{{{- end }}}}");
        } else {
            let _ = writeln!(lines, "  - {text}");
        }
    }
    lines.push_str("{{- range .Values.manager.args }}\n  - {{ . | quote }}\n{{- end }}");
    container["args"] = template.lines(&lines);
}

fn environment(container: &mut Value, template: &mut Template<'_>, manager: &mut Map<String, Value>, webhooks: bool) {
    manager.insert("args".into(), json!([]));
    manager.insert("env".into(), container.get("env").cloned().unwrap_or_else(|| json!([])));
    let given = "{{- with .Values.manager.env }}\n  {{- toYaml . | nindent INDENT }}\n{{- end }}";
    container["env"] = template.lines(&if webhooks {
        format!(
            "{{{{- if or .Values.manager.env (not .Values.webhook.enable) }}}}\nenv:\n{{{{- if not .Values.webhook.enable \
             }}}}\n  - name: ENABLE_WEBHOOKS\n    value: \"false\"\n{{{{- end }}}}\n{given}\n{{{{- end }}}}"
        )
    } else {
        format!("{{{{- if .Values.manager.env }}}}\nenv:\n{given}\n{{{{- end }}}}")
    });
}

fn webhook_port(container: &mut Value, template: &mut Template<'_>) {
    let Some(ports) = container.get_mut("ports").and_then(Value::as_array_mut) else { return };
    for port in ports.iter_mut().filter(|port| port["name"] == "webhook-server") {
        let lines = format!("{{{{- if .Values.webhook.enable }}}}\n{}{{{{- end }}}}", yaml(port));
        *port = template.lines(&lines);
    }
}

fn take(
    from: &mut Value,
    template: &mut Template<'_>,
    manager: &mut Map<String, Value>,
    fields: &[(&str, &str, Empty)],
) {
    let Some(from) = from.as_object_mut() else { return };
    for (field, value, empty) in fields {
        let given = from.get(*field).cloned().unwrap_or_else(|| empty.value());
        manager.insert((*value).to_owned(), given);
        let lines = match empty {
            Empty::Text => format!("{{{{- with .Values.manager.{value} }}}}\n{field}: {{{{ . }}}}\n{{{{- end }}}}"),
            _ => format!(
                "{{{{- with .Values.manager.{value} }}}}\n{field}:\n  {{{{- toYaml . | nindent INDENT }}}}\n{{{{- end }}}}"
            ),
        };
        from.insert((*field).to_owned(), template.lines(&lines));
    }
}

impl Values {
    /// `values.yaml`.
    pub(super) fn to_text(&self, parts: &[Part], enabled: &dyn Fn(Part) -> bool) -> String {
        let manager = yaml(&json!({"manager": self.manager}));
        let has = |part: Part| parts.contains(&part);
        let mut text = format!("# The operator.\n{manager}");
        let mut section = |comment: &str, name: &str, lines: &[String]| {
            let _ = writeln!(text, "\n# {comment}\n{name}:");
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        };
        let enable = |part: Part| format!("enable: {}", enabled(part));
        if has(Part::Crd) {
            let keep = "# Leave them, with all objects of their kinds, when the release is uninstalled.".to_owned();
            section("The definitions of the kinds.", "crd", &[enable(Part::Crd), keep, "keep: true".to_owned()]);
        }
        if has(Part::Webhook) {
            section("Webhooks, whose certificates the operator makes itself.", "webhook", &[enable(Part::Webhook)]);
        }
        section("Metrics, for clients that the API server authorises.", "metrics", &[enable(Part::Metrics)]);
        for (part, name, comment) in [
            (Part::PodDisruptionBudget, "podDisruptionBudget", "How many replicas may be missing."),
            (
                Part::NetworkPolicy,
                "networkPolicy",
                "Let only namespaces with the labels `metrics: enabled` and `webhook: enabled` reach these.",
            ),
            (Part::Prometheus, "prometheus", "For clusters with the Prometheus operator."),
        ] {
            if has(part) {
                section(comment, name, &[enable(part)]);
            }
        }
        if has(Part::Roles) {
            section(
                "Roles for people: admin, editor and viewer of each kind.",
                "rbac",
                &[format!("helpers: {}", enabled(Part::Roles))],
            );
        }
        text
    }
}
