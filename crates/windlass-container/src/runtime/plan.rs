//! What a container is, from its pod, its image and its volumes. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume as ApiVolume};
use windlass::quantity::Amount;
use windlass_image::manifest::Execution;
use windlass_node::volumes::{Mounted, Volume};

use crate::cgroup::Limits;
use crate::spec::{MountConfig, PodDir, ProcessConfig, User};

/// The capabilities that containers have unless they drop them, as container engines have it.
const CAPABILITIES: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// All of them.
const EVERY_CAPABILITY: [&str; 41] = [
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The process of a container.
pub(super) fn process(
    spec: &PodSpec,
    container: &Container,
    image: &Execution,
    environment: &[(String, String)],
    extra: &[(String, String)],
    hostname: &str,
) -> Result<ProcessConfig, String> {
    let environment = environment_of(image, environment, extra, hostname, container.tty == Some(true));
    let given = |list: &Option<Vec<String>>| list.clone().filter(|list| !list.is_empty());
    let (command, arguments) = (given(&container.command), given(&container.args));
    let expanded = |list: Vec<String>| list.iter().map(|text| expand(text, &environment)).collect::<Vec<_>>();
    let arguments = match (command, arguments) {
        (Some(command), arguments) => expanded([command, arguments.unwrap_or_default()].concat()),
        (None, Some(arguments)) => [image.entrypoint.clone(), expanded(arguments)].concat(),
        (None, None) => [image.entrypoint.clone(), image.cmd.clone()].concat(),
    };
    if arguments.is_empty() {
        return Err("no command specified".to_owned());
    }
    let of_pod = spec.security_context.as_ref();
    let own = container.security_context.as_ref();
    let number = |id: Option<i64>| id.and_then(|id| u32::try_from(id).ok());
    let mut groups: Vec<u32> = of_pod
        .into_iter()
        .flat_map(|all| all.supplemental_groups.iter().flatten())
        .filter_map(|id| number(Some(*id)))
        .collect();
    groups.extend(number(of_pod.and_then(|context| context.fs_group)));
    let user = User {
        image: image.user.clone(),
        uid: number(own.and_then(|own| own.run_as_user).or(of_pod.and_then(|pod| pod.run_as_user))),
        gid: number(own.and_then(|own| own.run_as_group).or(of_pod.and_then(|pod| pod.run_as_group))),
        groups,
        only_groups: of_pod.and_then(|pod| pod.supplemental_groups_policy.as_deref()) == Some("Strict"),
        non_root: own.and_then(|own| own.run_as_non_root).or(of_pod.and_then(|pod| pod.run_as_non_root)) == Some(true),
    };
    let privileged = is_privileged(container);
    let no_new_privileges = own.and_then(|own| own.allow_privilege_escalation) == Some(false);
    let profile =
        own.and_then(|own| own.seccomp_profile.as_ref()).or(of_pod.and_then(|pod| pod.seccomp_profile.as_ref()));
    let seccomp = match profile.map(|profile| profile.type_.as_str()) {
        Some("RuntimeDefault") => true,
        Some("Unconfined") => false,
        Some(other) => return Err(format!("seccomp profiles of the type {other} are not supported")),
        None => no_new_privileges,
    };
    Ok(ProcessConfig {
        arguments,
        environment,
        working_dir: container.working_dir.clone().filter(|dir| !dir.is_empty()).unwrap_or(image.working_dir.clone()),
        user,
        capabilities: capabilities(container, privileged),
        no_new_privileges,
        seccomp: seccomp && !privileged,
        terminal: container.tty == Some(true),
        cgroups: Vec::new(),
    })
}

pub(super) fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|own| own.privileged) == Some(true)
}

fn capabilities(container: &Container, privileged: bool) -> Vec<String> {
    if privileged {
        return EVERY_CAPABILITY.iter().map(|name| (*name).to_owned()).collect();
    }
    let changes = container.security_context.as_ref().and_then(|own| own.capabilities.as_ref());
    let list = |list: Option<&Vec<String>>| -> Vec<String> {
        list.into_iter().flatten().map(|name| name.to_uppercase().trim_start_matches("CAP_").to_owned()).collect()
    };
    let add = list(changes.and_then(|changes| changes.add.as_ref()));
    let drop = list(changes.and_then(|changes| changes.drop.as_ref()));
    let all = |list: &[String]| list.iter().any(|name| name == "ALL");
    let base: &[&str] = if all(&add) { &EVERY_CAPABILITY } else { &CAPABILITIES };
    let mut found: Vec<String> =
        if all(&drop) { Vec::new() } else { base.iter().map(|name| (*name).to_owned()).collect() };
    found.retain(|name| !drop.contains(name));
    found.extend(add.into_iter().filter(|name| name != "ALL"));
    found.sort();
    found.dedup();
    found
}

/// The environment: the image's, what the cluster gives every container, and the container's own, which refers to what comes
/// before it.
fn environment_of(
    image: &Execution,
    own: &[(String, String)],
    extra: &[(String, String)],
    hostname: &str,
    terminal: bool,
) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        vec![("PATH".into(), DEFAULT_PATH.into()), ("HOSTNAME".into(), hostname.into())];
    if terminal {
        all.push(("TERM".into(), "xterm".into()));
    }
    let set = |all: &mut Vec<(String, String)>, name: &str, value: String| {
        all.retain(|(known, _)| known != name);
        all.push((name.to_owned(), value));
    };
    for variable in &image.env {
        if let Some((name, value)) = variable.split_once('=') {
            set(&mut all, name, value.to_owned());
        }
    }
    for (name, value) in extra {
        set(&mut all, name, value.clone());
    }
    let mut known: Vec<(String, String)> = extra.to_vec();
    for (name, value) in own {
        let value = expand(value, &known);
        known.retain(|(known, _)| known != name);
        known.push((name.clone(), value.clone()));
        set(&mut all, name, value);
    }
    all
}

/// Replaces `$(NAME)` by the variable's value, and `$$` by `$`. What is not known stays as it is.
fn expand(text: &str, environment: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match environment.iter().rev().find(|(known, _)| known == name) {
                Some((_, value)) => out.push_str(value),
                None => out.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// What a container may use.
pub(super) fn limits(container: &Container) -> Limits {
    let resources = container.resources.as_ref();
    let read = |quantities: Option<&BTreeMap<String, _>>, name: &str| {
        quantities.and_then(|all| all.get(name)).and_then(|quantity| Amount::try_from(quantity).ok())
    };
    let limit = |name| read(resources.and_then(|all| all.limits.as_ref()), name);
    let request = |name| read(resources.and_then(|all| all.requests.as_ref()), name);
    let milli = |amount: Amount| u64::try_from(amount.milli_value()).ok();
    Limits {
        memory: limit("memory").and_then(|amount| u64::try_from(amount.value()).ok()).filter(|bytes| *bytes > 0),
        cpu: limit("cpu").and_then(milli).filter(|cpu| *cpu > 0),
        cpu_request: request("cpu").or_else(|| limit("cpu")).and_then(milli),
    }
}

/// The files and directories that a container sees besides its image's.
pub(super) fn mounts(
    dir: &PodDir,
    spec: &PodSpec,
    volumes: &Mounted,
    container: &Container,
    attempt: i32,
    environment: &[(String, String)],
) -> Result<Vec<MountConfig>, String> {
    let mut mounts = Vec::new();
    let mut file = |name: &str, target: &str| {
        let mount = MountConfig { source: dir.etc(name), sub_path: None, target: target.to_owned(), read_only: false };
        mounts.push(mount);
    };
    file("hosts", "/etc/hosts");
    file("hostname", "/etc/hostname");
    file("resolv.conf", "/etc/resolv.conf");
    let message = container.termination_message_path.clone().filter(|path| !path.is_empty());
    mounts.push(MountConfig {
        source: dir.termination_log(&container.name, attempt),
        sub_path: None,
        target: message.unwrap_or_else(|| "/dev/termination-log".to_owned()),
        read_only: false,
    });
    let mut own = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let declared = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
        let Some(declared) = declared else { return Err(format!("volume {:?} not found", mount.name)) };
        let (source, read_only) = source(dir, declared, volumes)?;
        let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
            (Some(path), _) if !path.is_empty() => Some(path.clone()),
            (_, Some(path)) if !path.is_empty() => Some(expand(path, environment)),
            _ => None,
        };
        if sub_path.as_ref().is_some_and(|path| path.starts_with('/') || path.split('/').any(|part| part == "..")) {
            return Err(format!("the subPath of volume {:?} leads out of it", mount.name));
        }
        own.push(MountConfig {
            source,
            sub_path,
            target: mount.mount_path.clone(),
            read_only: read_only || mount.read_only == Some(true),
        });
    }
    // What is mounted below another volume comes after it.
    own.sort_by_key(|mount| Path::new(&mount.target).components().count());
    mounts.retain(|mount| own.iter().all(|own| own.target != mount.target));
    mounts.extend(own);
    Ok(mounts)
}

fn source(dir: &PodDir, declared: &ApiVolume, volumes: &Mounted) -> Result<(PathBuf, bool), String> {
    let name = &declared.name;
    if let Some(Volume::HostPath { path, kind, read_only }) = volumes.volumes.get(name) {
        claimed_path(path, kind)?;
        return Ok((path.into(), *read_only));
    }
    if let Some(empty) = &declared.empty_dir {
        let in_memory = empty.medium.as_deref() == Some("Memory");
        return Ok((if in_memory { dir.memory_volume(name) } else { dir.volume(name) }, false));
    }
    let has_files = declared.config_map.is_some() || declared.secret.is_some();
    if has_files || declared.projected.is_some() || declared.downward_api.is_some() {
        return Ok((dir.memory_volume(name), true));
    }
    if let Some(host) = &declared.host_path {
        host_path(&host.path, host.type_.as_deref().unwrap_or_default())?;
        return Ok((host.path.clone().into(), false));
    }
    Err(format!("the volume {name:?} is of a kind that is not supported"))
}

/// Why the volumes of a pod cannot be mounted here, in the words of an event.
pub(super) fn unmountable(spec: &PodSpec, volumes: &Mounted) -> Option<String> {
    let refused = |name: &str, what: &str| {
        Some(format!("MountVolume.SetUp failed for volume \"{name}\" : {what} cannot be mounted on this node"))
    };
    spec.volumes.iter().flatten().find_map(|volume| {
        let is_known = volumes.volumes.contains_key(&volume.name) || volume.host_path.is_some();
        if is_known { None } else { refused(&volume.name, "volumes of this kind") }
    })
}

/// The container whose processes an ephemeral container sees.
pub(super) fn target(spec: &PodSpec, name: &str) -> Option<String> {
    let mut added = spec.ephemeral_containers.iter().flatten();
    added.find(|container| container.name == name)?.target_container_name.clone().filter(|target| !target.is_empty())
}

/// The parameters of the kernel that a pod has its own of. Others are the machine's, and refused.
pub(super) fn sysctls(spec: &PodSpec) -> Result<Vec<(String, String)>, String> {
    let wanted = spec.security_context.as_ref().and_then(|context| context.sysctls.as_ref());
    let mut found = Vec::new();
    for sysctl in wanted.into_iter().flatten() {
        let name = sysctl.name.replace('/', ".");
        let of_network = name.starts_with("net.") && spec.host_network != Some(true);
        let of_ipc = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."].iter().any(|own| name.starts_with(own));
        let is_plain = name.split('.').all(|part| !part.is_empty() && !part.contains(['/', '\0']));
        if !is_plain || !(of_network || (of_ipc && spec.host_ipc != Some(true))) {
            return Err(format!("forbidden sysctl: {:?} not allowlisted", sysctl.name));
        }
        found.push((name, sysctl.value.clone()));
    }
    Ok(found)
}

/// Checks the path that a claim leads to. A directory that is made for it is for any user, as kind's provisioner makes it.
fn claimed_path(path: &str, kind: &str) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    let is_new = !Path::new(path).exists();
    host_path(path, kind)?;
    if is_new && kind == "DirectoryOrCreate" {
        let opened = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777));
        opened.map_err(|error| format!("cannot open {path} to everybody: {error}"))?;
    }
    Ok(())
}

/// Checks a path of the host, and makes it if its type says so.
fn host_path(path: &str, kind: &str) -> Result<(), String> {
    let found = Path::new(path);
    let failed = |what: &str| Err(format!("hostPath type check failed: {path} is not {what}"));
    match kind {
        "DirectoryOrCreate" => std::fs::create_dir_all(found).map_err(|error| format!("cannot create {path}: {error}")),
        "FileOrCreate" => {
            let file = std::fs::File::options().create(true).append(true).open(found);
            file.map(drop).map_err(|error| format!("cannot create {path}: {error}"))
        }
        "Directory" if !found.is_dir() => failed("a directory"),
        "File" if !found.is_file() => failed("a file"),
        _ => Ok(()),
    }
}

/// `/etc/hosts` of a pod.
pub(super) fn hosts(spec: &PodSpec, hostname: &str, ip: Option<std::net::IpAddr>) -> String {
    use std::fmt::Write as _;
    let mut text =
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
            .to_owned();
    if let Some(ip) = ip {
        let domain = spec.subdomain.as_deref().map(|domain| format!("{hostname}.{domain}\t")).unwrap_or_default();
        let _ = writeln!(text, "{ip}\t{domain}{hostname}");
    }
    for alias in spec.host_aliases.iter().flatten() {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        let _ = writeln!(text, "{}\t{names}", alias.ip);
    }
    text
}

/// The host name of a pod.
pub(super) fn hostname(pod: &Pod) -> String {
    let own = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    let name = own.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    // Linux has at most 64 letters.
    name.chars().take(63).collect::<String>().trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn image() -> Execution {
        serde_json::from_value(json!({
            "Entrypoint": ["/app"], "Cmd": ["serve"], "Env": ["A=image", "PATH=/x"], "User": "33", "WorkingDir": "/w",
        }))
        .unwrap()
    }

    fn planned(spec: &Value, container: &Value, environment: &[(&str, &str)]) -> Result<ProcessConfig, String> {
        let spec: PodSpec = serde_json::from_value(spec.clone()).unwrap();
        let container: Container = serde_json::from_value(container.clone()).unwrap();
        let environment: Vec<_> = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        process(&spec, &container, &image(), &environment, &[("K".into(), "1".into())], "host")
    }

    #[test]
    fn commands_and_arguments_replace_the_images() {
        let check = |container: Value, expected: &[&str]| {
            let found = planned(&json!({"containers": []}), &container, &[("N", "v")]).unwrap();
            assert_eq!(found.arguments, expected);
        };
        check(json!({"name": "c"}), &["/app", "serve"]);
        check(json!({"name": "c", "args": ["$(N)", "$$(N)", "$(M)", "$"]}), &["/app", "v", "$(N)", "$(M)", "$"]);
        check(json!({"name": "c", "command": ["sh"]}), &["sh"]);
        check(json!({"name": "c", "command": ["sh"], "args": ["-c", "$(K)$(A)"]}), &["sh", "-c", "1image"]);
    }

    #[test]
    fn environments_refer_to_what_comes_before() {
        let found = planned(
            &json!({"containers": []}),
            &json!({"name": "c"}),
            &[("A", "own"), ("B", "$(A)-$(K)-$(C)"), ("C", "c"), ("K", "2")],
        );
        let found = found.unwrap().environment;
        let value = |name: &str| found.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!((value("A"), value("B"), value("K")), (Some("own"), Some("own-1-$(C)"), Some("2")));
        assert_eq!((value("PATH"), value("HOSTNAME")), (Some("/x"), Some("host")));
    }

    #[test]
    fn security_contexts_are_merged() {
        let pod = json!({"containers": [], "securityContext": {
            "runAsUser": 5, "runAsGroup": 6, "fsGroup": 7, "supplementalGroups": [8], "runAsNonRoot": true,
        }});
        let found = planned(&pod, &json!({"name": "c"}), &[]).unwrap();
        assert_eq!((found.user.uid, found.user.gid, found.user.groups.as_slice()), (Some(5), Some(6), &[8, 7][..]));
        assert!(found.user.non_root && !found.no_new_privileges && !found.seccomp);
        assert!(
            found.capabilities.contains(&"CHOWN".to_owned()) && !found.capabilities.contains(&"SYS_ADMIN".to_owned())
        );
        let own = json!({"name": "c", "securityContext": {
            "runAsUser": 9, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["cap_net_raw"]},
        }});
        let found = planned(&pod, &own, &[]).unwrap();
        assert_eq!((found.user.uid, found.capabilities.as_slice()), (Some(9), &["NET_RAW".to_owned()][..]));
        assert!(found.no_new_privileges && found.seccomp);
        let local = json!({"name": "c", "securityContext": {"seccompProfile": {"type": "Localhost"}}});
        assert!(planned(&pod, &local, &[]).unwrap_err().contains("Localhost"));
    }

    #[test]
    fn hosts_have_aliases() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [], "subdomain": "web", "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b"]}],
        }))
        .unwrap();
        let text = hosts(&spec, "web-0", Some([10, 1, 2, 3].into()));
        assert!(text.contains("10.1.2.3\tweb-0.web\tweb-0\n10.0.0.1\ta\tb\n"), "{text}");
    }

    #[test]
    fn only_sysctls_of_the_pod_are_set() {
        let check = |extra: Value, name: &str, expected: bool| {
            let mut spec = json!({"containers": [], "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
            spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            assert_eq!(sysctls(&serde_json::from_value(spec).unwrap()).is_ok(), expected, "{name}");
        };
        check(json!({}), "net.ipv4.ip_unprivileged_port_start", true);
        check(json!({}), "kernel.shm_rmid_forced", true);
        check(json!({"hostNetwork": true}), "net.core.somaxconn", false);
        check(json!({"hostIPC": true}), "kernel.shm_rmid_forced", false);
        check(json!({}), "kernel.hostname", false);
        check(json!({}), "net..ipv4", false);
    }

    #[test]
    fn claims_are_directories_for_every_user() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v/pvc-1").display().to_string();
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [], "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}],
        }))
        .unwrap();
        let volume = Volume::HostPath { path: path.clone(), kind: "DirectoryOrCreate".to_owned(), read_only: true };
        let mounted = Mounted { volumes: [("d".to_owned(), volume)].into() };
        assert!(unmountable(&spec, &Mounted::default()).is_some() && unmountable(&spec, &mounted).is_none());
        let container =
            serde_json::from_value(json!({"name": "c", "volumeMounts": [{"name": "d", "mountPath": "/d"}]})).unwrap();
        let found = mounts(&PodDir("/pods/u".into()), &spec, &mounted, &container, 0, &[]).unwrap();
        let found = found.iter().find(|mount| mount.target == "/d").unwrap();
        assert!(found.read_only && found.source == Path::new(&path));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
    }

    #[test]
    fn volumes_are_found_and_ordered() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [],
            "volumes": [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {}}, {"name": "h", "hostPath": {"path": "/h"}}],
        }))
        .unwrap();
        let container = |mounts: Value| serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).unwrap();
        let dir = PodDir("/pods/u".into());
        let find = |mounts_: Value| mounts(&dir, &spec, &Mounted::default(), &container(mounts_), 0, &[]);
        let found = find(json!([
            {"name": "s", "mountPath": "/a/b"}, {"name": "e", "mountPath": "/a", "subPath": "x"}, {"name": "h", "mountPath": "/etc/hosts"},
        ]))
        .unwrap();
        let targets: Vec<_> = found.iter().map(|mount| (mount.target.as_str(), mount.read_only)).collect();
        let expected = [
            ("/etc/hostname", false),
            ("/etc/resolv.conf", false),
            ("/dev/termination-log", false),
            ("/a", false),
            ("/a/b", true),
            ("/etc/hosts", false),
        ];
        assert_eq!(targets.len(), expected.len());
        assert!(expected.iter().all(|one| targets.contains(one)), "{targets:?}");
        let position = |wanted: &str| targets.iter().position(|(target, _)| *target == wanted);
        assert!(position("/a") < position("/a/b"));
        assert!(find(json!([{"name": "e", "mountPath": "/a", "subPath": "../x"}])).is_err());
        assert!(find(json!([{"name": "no", "mountPath": "/a"}])).is_err());
    }
}
