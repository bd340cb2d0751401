//! Annotations that mean something on pods and pod templates.

use serde_json::Value;

use super::containers::each_container;
use super::env::local_path;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;

pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(super) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(super) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(super) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Checks the annotations of a pod or template; `path` is that of the annotations.
pub(super) fn validate(meta: &Value, spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let annotations = meta.text_entries("annotations");
    for (key, value) in annotations {
        match key {
            MIRROR if spec.text("nodeName").is_empty() => {
                let detail = "must set spec.nodeName if mirror pod annotation is set";
                errors.push(FieldError::invalid(&path.key(key), value, detail));
            }
            DELETION_COST if !is_deletion_cost(value) => {
                errors.push(FieldError::invalid(&path.key(key), value, "must be a 32bit integer"));
            }
            _ if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) => {
                seccomp(value, &path.child(key), errors);
            }
            _ => {
                if let Some(container) = key.strip_prefix(APP_ARMOR) {
                    app_armor(container, value, spec, &path.key(key), errors);
                }
            }
        }
    }
}

/// An integer without a sign prefix `+` or leading zeros.
fn is_deletion_cost(value: &str) -> bool {
    value.parse::<i32>().is_ok_and(|number| number.to_string() == value)
}

fn seccomp(profile: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if ["runtime/default", "docker/default", "unconfined"].contains(&profile) {
        return;
    }
    match profile.strip_prefix("localhost/") {
        Some(file) => local_path(file, path, errors),
        None => errors.push(FieldError::invalid(path, profile, "must be a valid seccomp profile")),
    }
}

fn app_armor(container: &str, profile: &str, spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let mut known = false;
    each_container(spec, &Path::root(), |candidate, _| known |= candidate.text("name") == container);
    if !known {
        errors.push(FieldError::invalid(path, container, "container not found"));
    }
    if !profile.is_empty()
        && !["runtime/default", "unconfined"].contains(&profile)
        && !profile.starts_with("localhost/")
    {
        let detail = format!("invalid AppArmor profile name: {}", crate::field::quote(profile));
        errors.push(FieldError::invalid(path, profile, detail));
    }
}

/// Checks that annotations and fields about the same profile agree; `path` is that of the spec.
pub(super) fn profiles_match(meta: &Value, spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let annotations = meta.at("annotations");
    let pod_context = spec.at("securityContext");
    if let Some(annotation) = annotations.text_opt(SECCOMP_POD) {
        let context = path.child("securityContext");
        profile_matches(
            annotation,
            pod_context.at("seccompProfile"),
            "seccomp",
            &context.child("seccompProfile"),
            errors,
        );
    }
    let windows = spec.at("os").text("name") == "windows";
    each_container(spec, path, |container, path| {
        let context = container.at("securityContext");
        let context_path = path.child("securityContext");
        let name = container.text("name");
        if let Some(annotation) = annotations.text_opt(&format!("{SECCOMP_CONTAINER}{name}")) {
            let path = context_path.child("seccompProfile");
            profile_matches(annotation, context.at("seccompProfile"), "seccomp", &path, errors);
        }
        if let (false, Some(annotation)) = (windows, annotations.text_opt(&format!("{APP_ARMOR}{name}"))) {
            let own = context.at("appArmorProfile");
            let profile = if own.is_null() { pod_context.at("appArmorProfile") } else { own };
            profile_matches(annotation, profile, "apparmor", &context_path.child("appArmorProfile"), errors);
        }
    });
}

fn profile_matches(annotation: &str, profile: &Value, what: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let matches = match profile.text("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default"),
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(file) if profile.text_opt("localhostProfile") != Some(file) => {
                let detail = format!("{what} profile in annotation and field must match");
                errors.push(FieldError::forbidden(&path.child("localhostProfile"), detail));
                return;
            }
            found => found.is_some(),
        },
        _ => true,
    };
    if !matches {
        let detail = format!("{what} type in annotation and field must match");
        errors.push(FieldError::forbidden(&path.child("type"), detail));
    }
}

/// Checks which annotations of a pod may change.
pub(super) fn validate_update(meta: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let (new, old) = (meta.at("annotations"), old.at("annotations"));
    let watched = |key: &str| {
        if key == MIRROR {
            Some("mirror pod annotation")
        } else if key.starts_with(APP_ARMOR) {
            Some("AppArmor annotations")
        } else {
            None
        }
    };
    for (key, value) in meta.text_entries("annotations").into_iter().filter(|(key, _)| old.has(key)) {
        if old.text(key) != value
            && let Some(what) = watched(key)
        {
            errors.push(FieldError::forbidden(&path.key(key), format!("may not remove or update {what}")));
        }
    }
    for (key, _) in old.as_object().into_iter().flatten().filter(|(key, _)| !new.has(key)) {
        if let Some(what) = watched(key) {
            errors.push(FieldError::forbidden(&path.key(key), format!("may not remove or update {what}")));
        }
    }
    for (key, _) in meta.text_entries("annotations").into_iter().filter(|(key, _)| !old.has(key)) {
        if let Some(what) = watched(key) {
            errors.push(FieldError::forbidden(&path.key(key), format!("may not add {what}")));
        }
    }
}
