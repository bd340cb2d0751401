//! The checks of the level `baseline`, in the order in which upstream names them. What each forbids is in upstream's
//! `pod-security-admission/policy/check_*.go`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::evaluate::{Pod, Revisions, Violation, containers, plural, quoted, setters};
use crate::field::quote;
use crate::validation::access::Access as _;

/// Sorted by name, as upstream sorts them.
pub(super) const CHECKS: &[Revisions] = &[
    Revisions { id: "appArmorProfile", checks: &[(0, app_armor)], overrides: None },
    Revisions { id: "capabilities_baseline", checks: &[(0, capabilities)], overrides: None },
    Revisions { id: "hostNamespaces", checks: &[(0, host_namespaces)], overrides: None },
    Revisions { id: "hostPathVolumes", checks: &[(0, host_path_volumes)], overrides: None },
    Revisions { id: "hostPorts", checks: &[(0, host_ports)], overrides: None },
    Revisions { id: "hostProbesAndHostLifecycle", checks: &[(34, probe_hosts)], overrides: None },
    Revisions { id: "privileged", checks: &[(0, privileged)], overrides: None },
    Revisions { id: "procMount", checks: &[(0, proc_mount), (35, proc_mount_of_host_users)], overrides: None },
    Revisions { id: "seLinuxOptions", checks: &[(0, se_linux_1_0), (31, se_linux_1_31)], overrides: None },
    Revisions {
        id: "seccompProfile_baseline",
        checks: &[(0, seccomp_annotations), (19, seccomp_fields)],
        overrides: None,
    },
    Revisions {
        id: "sysctls",
        checks: &[(0, sysctls_1_0), (27, sysctls_1_27), (29, sysctls_1_29), (32, sysctls_1_32)],
        overrides: None,
    },
    Revisions { id: "windowsHostProcess", checks: &[(0, windows_host_process)], overrides: None },
];

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// What container runtimes give every container.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that concern the pod alone, each with the version since when that is known.
const SAFE_SYSCTLS: [(u32, &str); 12] = [
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
];

/// The names of containers for which something holds.
pub(super) fn names_of<'a>(pod: Pod<'a>, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
    pod.containers().filter(|container| is_bad(container)).map(|container| container.text("name")).collect()
}

fn app_armor(pod: Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |holder: &Value| {
        let profile = holder.at("securityContext").at("appArmorProfile");
        let is_bad = !profile.is_null() && !matches!(profile.text("type"), "RuntimeDefault" | "Localhost");
        if is_bad {
            values.insert(profile.text("type").to_owned());
        }
        is_bad
    };
    let pod_is_bad = is_bad(pod.spec);
    let names = names_of(pod, &mut is_bad);
    let mut annotations: Vec<String> = Vec::new();
    for (key, value) in pod.metadata.text_entries("annotations") {
        let is_allowed = value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
        if key.starts_with(APP_ARMOR) && !is_allowed {
            annotations.push(format!("{key}={}", quote(value)));
        }
    }
    annotations.sort_unstable();
    let annotated = (!annotations.is_empty()).then(|| plural("annotation", "annotations", annotations.len()));
    let set_by: Vec<String> = setters(pod_is_bad, &names).into_iter().chain(annotated.map(str::to_owned)).collect();
    if set_by.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    Some(Violation {
        reason: plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len()),
        detail: format!("{} must not set AppArmor profile type to {}", set_by.join(" and "), quoted(values)),
    })
}

fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let mut forbidden = BTreeSet::new();
    let names = names_of(pod, |container| {
        let mut added = container.at("securityContext").at("capabilities").texts("add");
        added.retain(|name| !DEFAULT_CAPABILITIES.contains(name));
        forbidden.extend(added.iter().copied());
        !added.is_empty()
    });
    let detail =
        format!("{} must not include {} in securityContext.capabilities.add", containers(&names), quoted(forbidden));
    (!names.is_empty()).then_some(Violation { reason: "non-default capabilities", detail })
}

fn host_namespaces(pod: Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec.flag(field));
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    (!shared.is_empty()).then(|| Violation { reason: "host namespaces", detail: shared.join(", ") })
}

fn host_path_volumes(pod: Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.list("volumes").iter().filter(|volume| volume.has("hostPath"));
    let names: Vec<&str> = volumes.map(|volume| volume.text("name")).collect();
    let detail = format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names));
    (!names.is_empty()).then_some(Violation { reason: "hostPath volumes", detail })
}

fn host_ports(pod: Pod<'_>) -> Option<Violation> {
    // Sorted as text, as upstream sorts them.
    let mut ports = BTreeSet::new();
    let names = names_of(pod, |container| {
        let used = container.list("ports").iter().map(|port| port.int("hostPort")).filter(|port| *port != 0);
        let used: Vec<String> = used.map(|port| port.to_string()).collect();
        let is_bad = !used.is_empty();
        ports.extend(used);
        is_bad
    });
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", ports.len()),
        ports.into_iter().collect::<Vec<_>>().join(", ")
    );
    (!names.is_empty()).then_some(Violation { reason: "hostPort", detail })
}

fn probe_hosts(pod: Pod<'_>) -> Option<Violation> {
    let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in pod.containers() {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|field| container.at(field));
        let handlers = ["postStart", "preStop"].map(|field| container.at("lifecycle").at(field));
        for handler in probes.into_iter().chain(handlers) {
            let used = ["httpGet", "tcpSocket"].map(|field| handler.at(field).text("host"));
            for host in used.into_iter().filter(|host| !host.is_empty()) {
                names.insert(container.text("name"));
                hosts.insert(host);
            }
        }
    }
    let names: Vec<&str> = names.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
        quoted(hosts)
    );
    (!names.is_empty()).then_some(Violation { reason: "probe or lifecycle host", detail })
}

fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let names = names_of(pod, |container| container.at("securityContext").flag("privileged"));
    let detail = format!("{} must not set securityContext.privileged=true", containers(&names));
    (!names.is_empty()).then_some(Violation { reason: "privileged", detail })
}

pub(super) fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let names = names_of(pod, |container| {
        let kind = container.at("securityContext").text_opt("procMount").filter(|kind| *kind != "Default");
        kinds.extend(kind);
        kind.is_some()
    });
    let detail = format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(kinds));
    (!names.is_empty()).then_some(Violation { reason: "procMount", detail })
}

fn proc_mount_of_host_users(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() { None } else { proc_mount(pod) }
}

fn se_linux_1_0(pod: Pod<'_>) -> Option<Violation> {
    se_linux(pod, &["", "container_t", "container_init_t", "container_kvm_t"])
}

fn se_linux_1_31(pod: Pod<'_>) -> Option<Violation> {
    se_linux(pod, &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"])
}

fn se_linux(pod: Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut kinds, mut sets_user, mut sets_role) = (BTreeSet::new(), false, false);
    let mut is_bad = |holder: &Value| {
        let options = holder.at("securityContext").at("seLinuxOptions");
        let kind = options.text("type");
        let is_bad_kind = !allowed.contains(&kind);
        if is_bad_kind {
            kinds.insert(kind.to_owned());
        }
        let (user, role) = (!options.text("user").is_empty(), !options.text("role").is_empty());
        sets_user |= user;
        sets_role |= role;
        is_bad_kind || user || role
    };
    let pod_is_bad = is_bad(pod.spec);
    let names = names_of(pod, &mut is_bad);
    let set_by = setters(pod_is_bad, &names)?;
    let mut values = Vec::new();
    if !kinds.is_empty() {
        values.push(format!("{} {}", plural("type", "types", kinds.len()), quoted(kinds)));
    }
    if sets_user {
        values.push("user may not be set".to_owned());
    }
    if sets_role {
        values.push("role may not be set".to_owned());
    }
    let detail = format!("{set_by} set forbidden securityContext.seLinuxOptions: {}", values.join("; "));
    Some(Violation { reason: "seLinuxOptions", detail })
}

/// Before there were fields, annotations named profiles.
fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    let annotations = pod.metadata.at("annotations");
    let of_containers = pod.containers().map(|container| format!("{SECCOMP_CONTAINER}{}", container.text("name")));
    let mut forbidden = BTreeSet::new();
    for key in std::iter::once(SECCOMP_POD.to_owned()).chain(of_containers) {
        let Some(value) = annotations.text_opt(&key) else { continue };
        if !matches!(value, "runtime/default" | "docker/default") && !value.starts_with("localhost/") {
            forbidden.insert(format!("{key}={}", quote(value)));
        }
    }
    let detail = format!(
        "forbidden {} {}",
        plural("annotation", "annotations", forbidden.len()),
        forbidden.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    );
    (!forbidden.is_empty()).then_some(Violation { reason: "seccompProfile", detail })
}

fn seccomp_fields(pod: Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let mut is_bad = |holder: &Value| {
        let kind = forbidden_seccomp(holder);
        kinds.extend(kind.map(str::to_owned));
        kind.is_some()
    };
    let pod_is_bad = is_bad(pod.spec);
    let names = names_of(pod, &mut is_bad);
    seccomp_violation(pod_is_bad, &names, kinds)
}

/// The type of the profile that a pod or a container sets and must not.
pub(super) fn forbidden_seccomp(holder: &Value) -> Option<&str> {
    let profile = holder.at("securityContext").at("seccompProfile");
    let kind = profile.text("type");
    (!profile.is_null() && !matches!(kind, "RuntimeDefault" | "Localhost")).then_some(kind)
}

/// What is wrong if a forbidden profile is set.
pub(super) fn seccomp_violation(pod: bool, names: &[&str], kinds: BTreeSet<String>) -> Option<Violation> {
    let set_by = setters(pod, names)?;
    let detail = format!("{set_by} must not set securityContext.seccompProfile.type to {}", quoted(kinds));
    Some(Violation { reason: "seccompProfile", detail })
}

fn sysctls_1_0(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 0)
}

fn sysctls_1_27(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 27)
}

fn sysctls_1_29(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 29)
}

fn sysctls_1_32(pod: Pod<'_>) -> Option<Violation> {
    sysctls(pod, 32)
}

fn sysctls(pod: Pod<'_>, minor: u32) -> Option<Violation> {
    let is_safe = |name: &str| SAFE_SYSCTLS.iter().any(|(since, safe)| *safe == name && *since <= minor);
    let set = pod.spec.at("securityContext").list("sysctls").iter().map(|sysctl| sysctl.text("name"));
    let forbidden: Vec<&str> = set.filter(|name| !is_safe(name)).collect();
    (!forbidden.is_empty()).then(|| Violation { reason: "forbidden sysctls", detail: forbidden.join(", ") })
}

fn windows_host_process(pod: Pod<'_>) -> Option<Violation> {
    let is_bad = |holder: &Value| holder.at("securityContext").at("windowsOptions").flag("hostProcess");
    let set_by = setters(is_bad(pod.spec), &names_of(pod, is_bad))?;
    let detail = format!("{set_by} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Violation { reason: "hostProcess", detail })
}
