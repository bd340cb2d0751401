//! Environment variables and where their values come from; downward-API selectors.

use serde_json::Value;

use crate::field::{FieldError, FieldErrors, Path};
use crate::strategy::NameRule;
use crate::validation::access::Access;
use crate::validation::quantity::Quantity;
use crate::validation::{names, values};

/// Fields an environment variable may show, as upstream lists them.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields a file of a downward-API volume may show.
pub(super) const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SIZES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Checks `env` and `envFrom` of a container.
pub(super) fn environment(container: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let env_path = path.child("env");
    for (i, variable) in container.list("env").iter().enumerate() {
        let path = env_path.index(i);
        values::required_text(variable, "name", names::env_var, &path, errors);
        value_from(variable, &path.child("valueFrom"), errors);
    }
    let from_path = path.child("envFrom");
    for (i, source) in container.list("envFrom").iter().enumerate() {
        let path = from_path.index(i);
        values::optional_text(source, "prefix", names::env_var, &path, errors);
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            if source.has(kind) {
                sources += 1;
                reference_name(source.at(kind), &path.child(kind), errors);
            }
        }
        match sources {
            0 => errors.push(FieldError::invalid(&from_path, "", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => {
                let detail = "may not have more than one field specified at a time";
                errors.push(FieldError::invalid(&from_path, "", detail));
            }
        }
    }
}

fn reference_name(reference: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let name = reference.text("name");
    let path = path.child("name");
    if name.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else {
        values::invalid_for_each(&path, name, names::object_name(NameRule::Subdomain, name, true), errors);
    }
}

fn value_from(variable: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let from = variable.at("valueFrom");
    if from.is_null() {
        return;
    }
    let mut sources = 0;
    for kind in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let source = from.at(kind);
        if source.is_null() {
            continue;
        }
        sources += 1;
        let path = path.child(kind);
        match kind {
            "fieldRef" => field_selector(source, ENV_FIELDS, &path, errors),
            "resourceFieldRef" => resource_selector(source, false, &path, errors),
            "fileKeyRef" => file_key(source, &path, errors),
            _ => key_selector(source, &path, errors),
        }
    }
    let detail = match (sources, variable.text("value").is_empty()) {
        (0, _) => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        (_, false) => "may not be specified when `value` is not empty",
        (1, true) => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(path, "", detail));
}

fn key_selector(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let name = source.text("name");
    values::invalid_for_each(&path.child("name"), name, names::subdomain(name), errors);
    values::required_text(source, "key", names::config_key, path, errors);
}

fn file_key(source: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    values::required_text(source, "key", names::env_var, path, errors);
    values::required_text(source, "volumeName", names::label, path, errors);
    if values::required(source, "path", path, errors) {
        no_backsteps(source.text("path"), &path.child("path"), errors);
    }
}

/// Checks a `fieldRef`: a field of the pod that `allowed` lists.
pub(super) fn field_selector(selector: &Value, allowed: &[&str], path: &Path<'_>, errors: &mut FieldErrors) {
    let version = selector.text("apiVersion");
    let field = selector.text("fieldPath");
    if version.is_empty() {
        errors.push(FieldError::required(&path.child("apiVersion"), ""));
        return;
    }
    let field_path = path.child("fieldPath");
    if field.is_empty() {
        errors.push(FieldError::required(&field_path, ""));
        return;
    }
    let mut unknown = |why: String| {
        errors.push(FieldError::invalid(&field_path, field, format!("error converting fieldPath: {why}")));
    };
    if version != "v1" {
        unknown(format!("unsupported pod version: {version}"));
        return;
    }
    if let Some((owner, key)) = subscript(field) {
        match owner {
            "metadata.annotations" => {
                values::invalid_for_each(path, &key.to_lowercase(), names::qualified_name(&key.to_lowercase()), errors);
            }
            "metadata.labels" => values::invalid_for_each(path, key, names::qualified_name(key), errors),
            _ => unknown(format!("field label does not support subscript: {field}")),
        }
        return;
    }
    let converted = if field == "spec.host" { "spec.nodeName" } else { field };
    if !KNOWN_FIELDS.contains(&converted) {
        unknown(format!("field label not supported: {field}"));
    } else if !allowed.contains(&converted) {
        errors.push(FieldError::not_supported(&field_path, converted, allowed));
    }
}

/// `metadata.labels['key']` as its parts.
fn subscript(field: &str) -> Option<(&str, &str)> {
    let rest = field.strip_suffix("']")?;
    let (owner, key) = rest.split_once("['")?;
    (!owner.is_empty()).then_some((owner, key))
}

/// Checks a `resourceFieldRef`; a volume must name the container.
pub(super) fn resource_selector(selector: &Value, volume: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    let resource = selector.text("resource");
    let huge_pages = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if volume && selector.text("containerName").is_empty() {
        errors.push(FieldError::required(&path.child("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(&path.child("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !huge_pages {
        errors.push(FieldError::not_supported(&path.child("resource"), resource, RESOURCES));
    }
    let divisor = Quantity::from_value(selector.at("divisor")).unwrap_or(Quantity::ZERO);
    if divisor.sign() == 0 {
        return;
    }
    let text = divisor.to_string();
    let kind = match resource.split_once('.').map_or("", |(_, name)| name) {
        "cpu" if !["1m", "1"].contains(&text.as_str()) => {
            let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
            errors.push(FieldError::invalid(&path.child("divisor"), resource, detail));
            return;
        }
        "memory" => "memory",
        "ephemeral-storage" => "local ephemeral storage",
        _ if huge_pages => "hugepages",
        _ => return,
    };
    if !SIZES.contains(&text.as_str()) {
        let detail = format!("only divisor's values {} are supported with the {kind} resource", SIZES.join(", "));
        errors.push(FieldError::invalid(&path.child("divisor"), resource, detail));
    }
}

/// A path that must not climb with `..`.
pub(super) fn no_backsteps(text: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if text.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, text, "must not contain '..'"));
    }
}

/// A relative path that does not climb.
pub(super) fn local_path(text: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if text.starts_with('/') {
        errors.push(FieldError::invalid(path, text, "must be a relative path"));
    }
    no_backsteps(text, path, errors);
}

/// A relative path that neither climbs nor starts with `..`.
pub(super) fn local_unreserved_path(text: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    local_path(text, path, errors);
    if text.starts_with("..") && !text.starts_with("../") {
        errors.push(FieldError::invalid(path, text, "must not start with '..'"));
    }
}
