//! Every check as of the versions in which it changes, with upstream's words.

use serde_json::{Value, json};

use super::evaluate::{Pod, details, evaluate};
use super::*;

/// What is wrong with a pod whose one container `c`, merged with `container`, and whose spec is `spec`.
fn found(level: PodSecurityLevel, minor: Option<u32>, pod: &Value) -> String {
    let version = minor.map_or(PodSecurityVersion::Latest, PodSecurityVersion::Minor);
    details(&evaluate(PodSecurityStandard { level, version }, Pod::new(pod)))
}

fn pod(spec: &Value, container: &Value) -> Value {
    let mut containers = json!([{"name": "c"}]);
    merge(&mut containers[0], container);
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
    merge(&mut pod["spec"], spec);
    pod
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().expect("an object") {
        into[key] = value.clone();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a table of literals reads better")]
fn baseline(minor: Option<u32>, spec: Value, container: Value, expected: &str) {
    assert_eq!(found(PodSecurityLevel::Baseline, minor, &pod(&spec, &container)), expected, "{spec} {container}");
}

/// A pod that every version of `restricted` allows, but for what is merged into it.
#[expect(clippy::needless_pass_by_value, reason = "a table of literals reads better")]
fn restricted(minor: Option<u32>, spec: Value, security: Value, expected: &str) {
    let mut context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"}});
    merge(&mut context, &security);
    let pod = pod(&spec, &json!({"securityContext": context}));
    assert_eq!(found(PodSecurityLevel::Restricted, minor, &pod), expected, "{spec} {security}");
}

#[test]
fn privileged_allows_everything() {
    let pod = pod(&json!({"hostNetwork": true}), &json!({"securityContext": {"privileged": true}}));
    assert_eq!(found(PodSecurityLevel::Privileged, None, &pod), "");
}

#[test]
fn namespaces_paths_and_ports_of_the_host_are_not_baseline() {
    let latest = None;
    baseline(latest, json!({}), json!({}), "");
    baseline(
        latest,
        json!({"hostNetwork": true, "hostIPC": true}),
        json!({}),
        "host namespaces (hostNetwork=true, hostIPC=true)",
    );
    let path = |name: &str| json!({"name": name, "hostPath": {"path": "/"}});
    baseline(latest, json!({"volumes": [path("a")]}), json!({}), "hostPath volumes (volume \"a\")");
    baseline(
        Some(0),
        json!({"volumes": [path("a"), {"name": "e", "emptyDir": {}}, path("b")]}),
        json!({}),
        "hostPath volumes (volumes \"a\", \"b\")",
    );
    baseline(latest, json!({}), json!({"ports": [{"hostPort": 80}]}), "hostPort (container \"c\" uses hostPort 80)");
    baseline(
        latest,
        json!({"initContainers": [{"name": "i", "ports": [{"hostPort": 9}]}]}),
        json!({"ports": [{"hostPort": 80}, {"hostPort": 8080}, {"containerPort": 1, "hostPort": 0}]}),
        "hostPort (containers \"i\", \"c\" use hostPorts 80, 8080, 9)",
    );
}

#[test]
fn probes_of_other_hosts_are_not_baseline_since_1_34() {
    let container = json!({
        "livenessProbe": {"httpGet": {"host": "b", "port": 1}},
        "lifecycle": {"preStop": {"tcpSocket": {"host": "a", "port": 1}}},
    });
    let message = "probe or lifecycle host (container \"c\" uses probe or lifecycle hosts \"a\", \"b\")";
    baseline(None, json!({}), container.clone(), message);
    baseline(Some(34), json!({}), container.clone(), message);
    baseline(Some(33), json!({}), container, "");
    baseline(None, json!({}), json!({"readinessProbe": {"httpGet": {"host": "", "port": 1}}}), "");
    baseline(
        None,
        json!({"initContainers": [{"name": "i", "startupProbe": {"tcpSocket": {"host": "h"}}}]}),
        json!({"startupProbe": {"tcpSocket": {"host": "h"}}}),
        "probe or lifecycle host (containers \"c\", \"i\" use probe or lifecycle host \"h\")",
    );
}

#[test]
fn privileges_and_capabilities_are_not_baseline() {
    let security = |value: Value| json!({ "securityContext": value });
    baseline(
        None,
        json!({"ephemeralContainers": [{"name": "e", "securityContext": {"privileged": true}}]}),
        security(json!({"privileged": true})),
        "privileged (containers \"c\", \"e\" must not set securityContext.privileged=true)",
    );
    baseline(
        None,
        json!({}),
        security(json!({"capabilities": {"add": ["SYS_TIME", "CHOWN", "ALL"]}})),
        "non-default capabilities (container \"c\" must not include \"ALL\", \"SYS_TIME\" in \
         securityContext.capabilities.add)",
    );
    baseline(None, json!({}), security(json!({"capabilities": {"add": ["NET_BIND_SERVICE"]}})), "");
}

#[test]
fn unmasked_proc_is_baseline_with_own_users_since_1_35() {
    let unmasked = json!({"securityContext": {"procMount": "Unmasked"}});
    let message = "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")";
    baseline(None, json!({}), unmasked.clone(), message);
    baseline(None, json!({"hostUsers": false}), unmasked.clone(), "");
    baseline(Some(35), json!({"hostUsers": true}), unmasked.clone(), message);
    baseline(Some(34), json!({"hostUsers": false}), unmasked, message);
    restricted(None, json!({"hostUsers": false}), json!({"procMount": "Unmasked"}), message);
    restricted(Some(34), json!({"hostUsers": false}), json!({"procMount": "Unmasked"}), message);
    restricted(None, json!({}), json!({"procMount": "Default"}), "");
}

#[test]
fn profiles_may_not_be_taken_off() {
    let unconfined = json!({"type": "Unconfined"});
    baseline(
        None,
        json!({"securityContext": {"appArmorProfile": unconfined}}),
        json!({"securityContext": {"appArmorProfile": unconfined}}),
        "forbidden AppArmor profile (pod and container \"c\" must not set AppArmor profile type to \"Unconfined\")",
    );
    baseline(
        Some(19),
        json!({"securityContext": {"seccompProfile": unconfined}}),
        json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
        "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
    );
    baseline(Some(18), json!({"securityContext": {"seccompProfile": unconfined}}), json!({}), "");
    let mut pod = pod(&json!({}), &json!({}));
    pod["metadata"]["annotations"] = json!({
        "container.apparmor.security.beta.kubernetes.io/c": "unconfined",
        "container.apparmor.security.beta.kubernetes.io/d": "localhost/x",
        "container.seccomp.security.alpha.kubernetes.io/c": "unconfined",
        "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
    });
    let armor = "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
                 \"container.apparmor.security.beta.kubernetes.io/c=\"unconfined\"\")";
    assert_eq!(found(PodSecurityLevel::Baseline, None, &pod), armor);
    let seccomp = "seccompProfile (forbidden annotations container.seccomp.security.alpha.kubernetes.io/c=\"unconfined\", \
                   seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")";
    assert_eq!(found(PodSecurityLevel::Baseline, Some(18), &pod), format!("{armor}, {seccomp}"));
    // No baseline check is overridden before the restricted one exists.
    let restricted = found(PodSecurityLevel::Restricted, Some(18), &pod);
    assert!(restricted.contains(seccomp), "{restricted}");
}

#[test]
fn se_linux_options_are_limited() {
    let options = |value: Value| json!({"securityContext": {"seLinuxOptions": value}});
    baseline(
        None,
        options(json!({"type": "x", "user": "u", "role": "r"})),
        options(json!({"type": "a"})),
        "seLinuxOptions (pod and container \"c\" set forbidden securityContext.seLinuxOptions: types \"a\", \"x\"; \
         user may not be set; role may not be set)",
    );
    baseline(None, options(json!({"type": "container_engine_t", "level": "s0"})), json!({}), "");
    baseline(
        Some(30),
        options(json!({"type": "container_engine_t"})),
        json!({}),
        "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"container_engine_t\")",
    );
}

#[test]
fn sysctls_become_safe_with_versions() {
    let set =
        |name: &str| json!({"securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced"}, {"name": name}]}});
    for (since, name) in
        [(27, "net.ipv4.ip_local_reserved_ports"), (29, "net.ipv4.tcp_fin_timeout"), (32, "net.ipv4.tcp_wmem")]
    {
        baseline(None, set(name), json!({}), "");
        baseline(Some(since), set(name), json!({}), "");
        baseline(Some(since - 1), set(name), json!({}), &format!("forbidden sysctls ({name})"));
    }
    baseline(None, set("kernel.msgmax"), json!({}), "forbidden sysctls (kernel.msgmax)");
}

#[test]
fn windows_host_processes_are_not_baseline() {
    let host = json!({"securityContext": {"windowsOptions": {"hostProcess": true}}});
    baseline(
        None,
        host.clone(),
        host,
        "hostProcess (pod and container \"c\" must not set securityContext.windowsOptions.hostProcess=true)",
    );
}

#[test]
fn restricted_asks_for_what_is_unset_by_version() {
    let plain = pod(&json!({}), &json!({}));
    let non_root = "runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)";
    let escalation = "allowPrivilegeEscalation != false (container \"c\" must set \
                      securityContext.allowPrivilegeEscalation=false)";
    let capabilities =
        "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"])";
    let seccomp = "seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \
                   \"RuntimeDefault\" or \"Localhost\")";
    let check = |minor: Option<u32>, expected: &[&str]| {
        assert_eq!(found(PodSecurityLevel::Restricted, minor, &plain), expected.join(", "), "{minor:?}");
    };
    check(Some(0), &[non_root]);
    check(Some(8), &[escalation, non_root]);
    check(Some(18), &[escalation, non_root]);
    check(Some(19), &[escalation, non_root, seccomp]);
    check(Some(22), &[escalation, capabilities, non_root, seccomp]);
    for version in [Some(25), Some(36), Some(99), None] {
        check(version, &[escalation, capabilities, non_root, seccomp]);
    }
}

#[test]
fn windows_pods_need_no_linux_settings_since_1_25() {
    let windows = pod(&json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}}), &json!({}));
    assert_eq!(found(PodSecurityLevel::Restricted, Some(25), &windows), "");
    assert!(found(PodSecurityLevel::Restricted, Some(24), &windows).starts_with("allowPrivilegeEscalation != false"));
}

#[test]
fn root_is_allowed_with_own_users_since_1_35() {
    restricted(None, json!({}), json!({}), "");
    restricted(
        None,
        json!({"securityContext": {"runAsNonRoot": false}}),
        json!({"runAsNonRoot": false}),
        "runAsNonRoot != true (pod and container \"c\" must not set securityContext.runAsNonRoot=false)",
    );
    restricted(None, json!({"hostUsers": false}), json!({"runAsNonRoot": false, "runAsUser": 0}), "");
    restricted(
        Some(34),
        json!({"hostUsers": false, "securityContext": {"runAsUser": 0}}),
        json!({"runAsUser": 0}),
        "runAsUser=0 (pod and container \"c\" must not set runAsUser=0)",
    );
    restricted(Some(22), json!({}), json!({"runAsUser": 0}), "");
    restricted(None, json!({}), json!({"runAsUser": 1000}), "");
}

#[test]
fn settings_of_the_pod_count_for_its_containers() {
    let pod = pod(
        &json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "Localhost"}}}),
        &json!({"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}),
    );
    assert_eq!(found(PodSecurityLevel::Restricted, None, &pod), "");
}

#[test]
fn restricted_limits_volumes_and_added_capabilities() {
    restricted(
        None,
        json!({"volumes": [{"name": "a", "nfs": {}}, {"name": "b", "hostPath": {}}, {"name": "c", "secret": {}},
            {"name": "d", "image": {}}, {"name": "e", "new": {}}]}),
        json!({}),
        "restricted volume types (volumes \"a\", \"b\", \"e\" use restricted volume types \"hostPath\", \"nfs\", \"unknown\")",
    );
    restricted(None, json!({}), json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}), "");
    restricted(
        None,
        json!({}),
        json!({"capabilities": {"drop": ["KILL"], "add": ["CHOWN", "NET_BIND_SERVICE"]}}),
        "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]; container \"c\" \
         must not include \"CHOWN\" in securityContext.capabilities.add)",
    );
    restricted(
        Some(21),
        json!({}),
        json!({"capabilities": {"add": ["SYS_TIME"]}}),
        "non-default capabilities (container \"c\" must not include \"SYS_TIME\" in securityContext.capabilities.add)",
    );
}

#[test]
fn a_refused_pod_is_not_warned_of() {
    let host = pod(&json!({"hostNetwork": true}), &json!({}));
    let at = |level| PodSecurityStandard { level, version: PodSecurityVersion::Latest };
    let policy = PodSecurityPolicy {
        enforce: at(PodSecurityLevel::Baseline),
        audit: at(PodSecurityLevel::Baseline),
        warn: at(PodSecurityLevel::Restricted),
    };
    let verdict = Verdict::of(&policy, Pod::new(&host), true);
    assert!(verdict.enforced.is_some() && verdict.audited == verdict.enforced && verdict.warned.is_none());
    let verdict = Verdict::of(&policy, Pod::new(&host), false);
    assert!(verdict.enforced.is_none() && verdict.audited.is_some() && verdict.warned.is_some());
}

#[test]
fn only_images_and_new_containers_are_judged_again() {
    let old = json!({"spec": {"containers": [{"name": "c", "image": "a"}], "ephemeralContainers": [{"name": "e", "image": "a"}]}});
    let check = |change: fn(&mut Value), expected: bool| {
        let mut new = old.clone();
        change(&mut new["spec"]);
        assert_eq!(is_significant(&new, &old), expected, "{new}");
    };
    check(|spec| spec["activeDeadlineSeconds"] = 1.into(), false);
    check(|spec| spec["containers"][0]["image"] = "b".into(), true);
    check(|spec| spec["ephemeralContainers"][0]["image"] = "b".into(), true);
    check(|spec| spec["ephemeralContainers"] = json!([{"name": "e", "image": "a"}, {"name": "f", "image": "a"}]), true);
    check(|spec| spec["ephemeralContainers"] = json!([]), false);
}

#[test]
fn a_new_standard_is_stricter_by_level_or_version() {
    use PodSecurityLevel::{Baseline, Privileged, Restricted};
    let check = |new: (PodSecurityLevel, u32), old: (PodSecurityLevel, u32), expected: bool| {
        let standard = |(level, minor)| PodSecurityStandard { level, version: PodSecurityVersion::Minor(minor) };
        assert_eq!(is_stricter(standard(new), standard(old)), expected, "{new:?} {old:?}");
    };
    check((Baseline, 1), (Privileged, 1), true);
    check((Baseline, 1), (Baseline, 1), false);
    check((Baseline, 1), (Restricted, 1), false);
    check((Baseline, 2), (Restricted, 1), true);
    check((Privileged, 2), (Restricted, 1), false);
}

#[test]
fn labels_of_exempt_namespaces_are_said_to_be_ignored() {
    let configuration = PodSecurity::default();
    let check = |labels: Value, expected: Option<&str>| {
        let (policy, _) = PodSecurityPolicy::of(|key| labels.text_opt(key), configuration.defaults);
        assert_eq!(ignored(&configuration, "n", &policy, &labels).as_deref(), expected);
    };
    check(json!({}), None);
    check(json!({"pod-security.kubernetes.io/enforce": "privileged"}), None);
    check(
        json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/audit": "restricted"}),
        Some(
            "namespace \"n\" is exempt from Pod Security, and the policy (enforce=baseline:latest, \
              audit=restricted:latest) will be ignored",
        ),
    );
}
