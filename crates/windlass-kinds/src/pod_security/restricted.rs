//! The checks that the level `restricted` adds, in the order in which upstream names them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::baseline::{forbidden_seccomp, names_of, proc_mount, seccomp_violation};
use super::evaluate::{Pod, Revisions, Violation, containers, plural, quoted, setters};
use crate::validation::access::Access as _;

/// Sorted by name, as upstream sorts them.
pub(super) const CHECKS: &[Revisions] = &[
    Revisions {
        id: "allowPrivilegeEscalation",
        checks: &[(8, escalation), (25, |pod| if pod.is_windows() { None } else { escalation(pod) })],
        overrides: None,
    },
    Revisions {
        id: "capabilities_restricted",
        checks: &[(22, capabilities), (25, |pod| if pod.is_windows() { None } else { capabilities(pod) })],
        overrides: Some("capabilities_baseline"),
    },
    Revisions { id: "procMount_restricted", checks: &[(35, proc_mount)], overrides: Some("procMount") },
    Revisions { id: "restrictedVolumes", checks: &[(0, volumes)], overrides: Some("hostPathVolumes") },
    Revisions {
        id: "runAsNonRoot",
        checks: &[(0, run_as_non_root), (35, |pod| if pod.has_own_users() { None } else { run_as_non_root(pod) })],
        overrides: None,
    },
    Revisions {
        id: "runAsUser",
        checks: &[(23, run_as_user), (35, |pod| if pod.has_own_users() { None } else { run_as_user(pod) })],
        overrides: None,
    },
    Revisions {
        id: "seccompProfile_restricted",
        checks: &[(19, seccomp), (25, |pod| if pod.is_windows() { None } else { seccomp(pod) })],
        overrides: Some("seccompProfile_baseline"),
    },
];

/// Where a volume may come from.
const ALLOWED_SOURCES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Where else a volume can come from, in the order in which upstream looks.
const OTHER_SOURCES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn escalation(pod: Pod<'_>) -> Option<Violation> {
    let is_bad =
        |container: &Value| container.at("securityContext").flag_opt("allowPrivilegeEscalation") != Some(false);
    let names = names_of(pod, is_bad);
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names));
    (!names.is_empty()).then_some(Violation { reason: "allowPrivilegeEscalation != false", detail })
}

fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let of = |container: &'_ Value, list: &str| -> Vec<String> {
        let names = container.at("securityContext").at("capabilities").texts(list);
        names.into_iter().map(str::to_owned).collect()
    };
    let keeping = names_of(pod, |container| !of(container, "drop").iter().any(|name| name == "ALL"));
    let mut forbidden = BTreeSet::new();
    let adding = names_of(pod, |container| {
        let mut added = of(container, "add");
        added.retain(|name| name != "NET_BIND_SERVICE");
        let is_bad = !added.is_empty();
        forbidden.extend(added);
        is_bad
    });
    let mut problems = Vec::new();
    if !keeping.is_empty() {
        problems.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    }
    if !adding.is_empty() {
        problems.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&adding),
            quoted(forbidden)
        ));
    }
    (!problems.is_empty()).then(|| Violation { reason: "unrestricted capabilities", detail: problems.join("; ") })
}

fn volumes(pod: Pod<'_>) -> Option<Violation> {
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in pod.spec.list("volumes") {
        if ALLOWED_SOURCES.iter().any(|source| volume.has(source)) {
            continue;
        }
        names.push(volume.text("name"));
        kinds.insert(OTHER_SOURCES.into_iter().find(|source| volume.has(source)).unwrap_or("unknown"));
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        quoted(kinds)
    );
    (!names.is_empty()).then_some(Violation { reason: "restricted volume types", detail })
}

fn run_as_non_root(pod: Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let of = |holder: &Value| holder.at("securityContext").flag_opt("runAsNonRoot");
    let of_pod = of(pod.spec);
    let explicit = names_of(pod, |container| of(container) == Some(false));
    if let Some(set_by) = setters(of_pod == Some(false), &explicit) {
        let detail = format!("{set_by} must not set securityContext.runAsNonRoot=false");
        return Some(Violation { reason: REASON, detail });
    }
    let silent = names_of(pod, |container| of(container).is_none() && of_pod != Some(true));
    let detail = format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&silent));
    (!silent.is_empty()).then_some(Violation { reason: REASON, detail })
}

fn run_as_user(pod: Pod<'_>) -> Option<Violation> {
    let is_bad = |holder: &Value| holder.at("securityContext").int_opt("runAsUser") == Some(0);
    let set_by = setters(is_bad(pod.spec), &names_of(pod, is_bad))?;
    Some(Violation { reason: "runAsUser=0", detail: format!("{set_by} must not set runAsUser=0") })
}

fn seccomp(pod: Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let mut is_bad = |holder: &Value| {
        let kind = forbidden_seccomp(holder);
        kinds.extend(kind.map(str::to_owned));
        kind.is_some()
    };
    let pod_is_bad = is_bad(pod.spec);
    let explicit = names_of(pod, &mut is_bad);
    if let Some(violation) = seccomp_violation(pod_is_bad, &explicit, kinds) {
        return Some(violation);
    }
    let has_profile = |holder: &Value| holder.at("securityContext").has("seccompProfile");
    let of_pod = has_profile(pod.spec);
    let silent = names_of(pod, |container| !has_profile(container) && !of_pod);
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&silent)
    );
    (!silent.is_empty()).then_some(Violation { reason: "seccompProfile", detail })
}
