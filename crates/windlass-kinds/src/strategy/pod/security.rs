//! Security contexts of pods and containers.

use std::collections::HashSet;

use serde_json::Value;

use super::containers::each_container;
use super::env::local_path;
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::validation::access::{Access, in_order};
use crate::validation::{names, values};

const PROFILE_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
const WINDOWS: &str = "cannot be set for a windows pod";
const SYSCTL: &str = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?";

/// Checks the pod's own security context. `old` is the spec that is replaced, or null.
pub(super) fn pod_context(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let context = spec.at("securityContext");
    let path = path.child("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        unix_id(context, field, &path, errors);
    }
    let groups = path.child("supplementalGroups");
    for (i, group) in context.list("supplementalGroups").iter().enumerate() {
        let group = group.as_i64().unwrap_or_default();
        for reason in names::unix_id(group) {
            errors.push(FieldError::invalid(&groups.index(i), group, reason));
        }
    }
    sysctls(spec, context, &path, errors);
    if context.has("fsGroupChangePolicy") {
        values::one_of(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], &path, errors);
    }
    seccomp(context, &path, errors);
    windows_options(context, &path, errors);
    app_armor(context, &path, errors);
    if context.has("supplementalGroupsPolicy") {
        values::one_of(context, "supplementalGroupsPolicy", &["Merge", "Strict"], &path, errors);
    }
    if context.has("seLinuxChangePolicy") {
        // The other policy needs the gate SELinuxMount, which is off in v1.36, or a spec that had either of them.
        let had_one = old.at("securityContext").has("seLinuxChangePolicy");
        let policies: &[&str] = if had_one { &["MountOption", "Recursive"] } else { &["Recursive"] };
        values::one_of(context, "seLinuxChangePolicy", policies, &path, errors);
    }
}

/// Checks a container's security context.
pub(super) fn container_context(container: &Value, host_users: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    let context = container.at("securityContext");
    if context.is_null() {
        return;
    }
    let path = path.child("securityContext");
    unix_id(context, "runAsUser", &path, errors);
    unix_id(context, "runAsGroup", &path, errors);
    if let Some(mount) = context.text_opt("procMount") {
        values::one_of(context, "procMount", &["Default", "Unmasked"], &path, errors);
        if host_users && mount == "Unmasked" {
            let detail = "`hostUsers` must be false to use `Unmasked`";
            errors.push(FieldError::invalid(&path.child("procMount"), mount, detail));
        }
    }
    seccomp(context, &path, errors);
    if context.flag_opt("allowPrivilegeEscalation") == Some(false) {
        let mut refuse = |what: &str| {
            let detail = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
            errors.push(FieldError::shown(ErrorKind::Invalid, &path, go_context(context), detail));
        };
        if context.flag("privileged") {
            refuse("`privileged` to true");
        }
        if context.at("capabilities").texts("add").contains(&"CAP_SYS_ADMIN") {
            refuse("`capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    windows_options(context, &path, errors);
    app_armor(context, &path, errors);
}

/// A container's security context as upstream's internal type prints: Go's names and order, with
/// every field there.
fn go_context(context: &Value) -> String {
    const FIELDS: &[(&str, &str)] = &[
        ("Capabilities", "capabilities"),
        ("Privileged", "privileged"),
        ("SELinuxOptions", "seLinuxOptions"),
        ("WindowsOptions", "windowsOptions"),
        ("RunAsUser", "runAsUser"),
        ("RunAsGroup", "runAsGroup"),
        ("RunAsNonRoot", "runAsNonRoot"),
        ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
        ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
        ("ProcMount", "procMount"),
        ("SeccompProfile", "seccompProfile"),
        ("AppArmorProfile", "appArmorProfile"),
    ];
    let fields: Vec<String> = FIELDS
        .iter()
        .map(|(go, json)| match *json {
            "capabilities" if context.has(json) => {
                let capabilities = context.at(json);
                format!(r#""{go}":{{"Add":{},"Drop":{}}}"#, capabilities.at("add"), capabilities.at("drop"))
            }
            _ => format!(r#""{go}":{}"#, in_order(context.at(json), &[])),
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn unix_id(context: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if let Some(id) = context.int_opt(field) {
        for reason in names::unix_id(id) {
            errors.push(FieldError::invalid(&path.child(field), id, reason));
        }
    }
}

fn sysctls(spec: &Value, context: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("sysctls");
    let mut seen = HashSet::new();
    for (i, sysctl) in context.list("sysctls").iter().enumerate() {
        let path = path.index(i);
        let path = path.child("name");
        let name = sysctl.text("name");
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !is_sysctl(name) {
            let detail = format!("must have at most 253 characters and match regex ^{SYSCTL}$");
            errors.push(FieldError::invalid(&path, name, detail));
        } else if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path, name));
        }
        let dotted = name.replace('/', ".");
        let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| dotted.starts_with(prefix))
            || dotted == "kernel.sem";
        if spec.flag("hostNetwork") && dotted.starts_with("net.") {
            errors.push(FieldError::invalid(&path, name, "may not be specified when 'hostNetwork' is true"));
        } else if spec.flag("hostIPC") && ipc {
            errors.push(FieldError::invalid(&path, name, "may not be specified when 'hostIPC' is true"));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let segment = |part: &str| {
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(edge) && part.ends_with(edge) && part.chars().all(|c| edge(c) || c == '-' || c == '_')
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

fn seccomp(context: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let profile = context.at("seccompProfile");
    if profile.is_null() {
        return;
    }
    let path = path.child("seccompProfile");
    let kind = profile.text("type");
    if kind.is_empty() {
        errors.push(FieldError::required(&path.child("type"), "type is required when seccompProfile is set"));
    } else {
        values::one_of(profile, "type", PROFILE_TYPES, &path, errors);
    }
    let file_path = path.child("localhostProfile");
    match (kind == "Localhost", profile.text_opt("localhostProfile")) {
        (true, None) => errors.push(FieldError::required(&file_path, "must be set when seccomp type is Localhost")),
        (true, Some(file)) => local_path(file, &file_path, errors),
        (false, Some(file)) => {
            let shown = format!(r#"{{"Type":{},"LocalhostProfile":{}}}"#, Value::from(kind), Value::from(file));
            let detail = "can only be set when seccomp type is Localhost";
            errors.push(FieldError::shown(ErrorKind::Invalid, &file_path, shown, detail));
        }
        (false, None) => {}
    }
}

fn app_armor(context: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let profile = context.at("appArmorProfile");
    if profile.is_null() {
        return;
    }
    let path = path.child("appArmorProfile");
    let file_path = path.child("localhostProfile");
    let file = profile.text_opt("localhostProfile");
    match profile.text("type") {
        "Localhost" => {
            const REQUIRED: &str = "must be set when AppArmor type is Localhost";
            let text = file.unwrap_or_default();
            if text.trim() != text {
                errors.push(FieldError::invalid(&file_path, text, "must not be padded with whitespace"));
            } else if text.is_empty() {
                errors.push(FieldError::required(&file_path, REQUIRED));
            }
            if text.len() > 4095 {
                errors.push(FieldError::too_long(&file_path, 4095));
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if let Some(file) = file {
                let detail = "can only be set when AppArmor type is Localhost";
                errors.push(FieldError::invalid(&file_path, file, detail));
            }
        }
        "" => {
            let detail = "type is required when appArmorProfile is set";
            errors.push(FieldError::required(&path.child("type"), detail));
        }
        _ => values::one_of(profile, "type", PROFILE_TYPES, &path, errors),
    }
}

fn windows_options(context: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let options = context.at("windowsOptions");
    if options.is_null() {
        return;
    }
    let path = path.child("windowsOptions");
    if let Some(name) = options.text_opt("gmsaCredentialSpecName") {
        values::invalid_for_each(&path.child("gmsaCredentialSpecName"), name, names::subdomain(name), errors);
    }
    if options.text_opt("gmsaCredentialSpec") == Some("") {
        let detail = "gmsaCredentialSpec cannot be an empty string";
        errors.push(FieldError::invalid(&path.child("gmsaCredentialSpec"), "", detail));
    }
    if let Some(user) = options.text_opt("runAsUserName") {
        let user_path = path.child("runAsUserName");
        if user.is_empty() {
            errors.push(FieldError::invalid(&user_path, user, "runAsUserName cannot be an empty string"));
        } else if user.chars().any(char::is_control) {
            errors.push(FieldError::invalid(&user_path, user, "runAsUserName cannot contain control characters"));
        } else if user.matches('\\').count() > 1 {
            let detail = "runAsUserName cannot contain more than one backslash";
            errors.push(FieldError::invalid(&user_path, user, detail));
        }
    }
}

/// Fields that belong to the other operating system.
pub(super) fn operating_system(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let os = spec.at("os");
    if os.is_null() {
        return;
    }
    let os_path = path.child("os");
    match os.text("name") {
        "" => errors.push(FieldError::required(&os_path.child("name"), "")),
        "linux" => {
            const DETAIL: &str = "windows options cannot be set for a linux pod";
            let mut check = |owner: &Value, path: &Path<'_>| {
                if owner.at("securityContext").has("windowsOptions") {
                    errors.push(FieldError::forbidden(&path.child("securityContext").child("windowsOptions"), DETAIL));
                }
            };
            check(spec, path);
            each_container(spec, path, |container, path| check(container, path));
        }
        "windows" => windows(spec, path, errors),
        other => errors.push(FieldError::not_supported(&os_path, other, &["linux", "windows"])),
    }
}

fn windows(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    const POD: &[&str] = &[
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const CONTAINER: &[&str] = &[
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let mut refuse = |owner: &Value, fields: &[&str], path: &Path<'_>| {
        for field in fields.iter().filter(|field| owner.has(field)) {
            errors.push(FieldError::forbidden(&path.child(field), WINDOWS));
        }
    };
    refuse(spec.at("securityContext"), POD, &path.child("securityContext"));
    refuse(spec, &["hostUsers", "shareProcessNamespace"], path);
    for field in ["hostPID", "hostIPC"] {
        if spec.flag(field) {
            refuse(spec, &[field], path);
        }
    }
    each_container(spec, path, |container, path| {
        refuse(container.at("securityContext"), CONTAINER, &path.child("securityContext"));
    });
}
