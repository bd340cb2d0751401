//! How pods would run on this machine: what `windlass up --runtime auto` decides, with the reason, and what they would not get.

use super::Finding;

const PODS: &str = "pods";

#[cfg(not(target_os = "linux"))]
pub(super) fn check() -> Vec<Finding> {
    vec![Finding::ok(PODS, "are simulated: containers run on Linux only")]
}

#[cfg(target_os = "linux")]
pub(super) fn check() -> Vec<Finding> {
    use windlass_container::UserNamespace;
    use windlass_container::cgroup::Cgroups;
    use windlass_container::user_namespace::advice;

    const USERS: &str = "pod users";
    const LIMITS: &str = "pod limits";
    const FILES: &str = "pod files";
    const NETWORK: &str = "pod network";

    let tried = std::env::current_exe().map_err(|error| error.to_string());
    let missing = match tried.and_then(|program| windlass_container::probe(&program)) {
        Ok(missing) => missing,
        Err(why) => {
            let message =
                format!("are processes of this machine with `--runtime auto`, because containers cannot run: {why}");
            let network =
                "is that of the machine: there are no Services, cluster DNS and Ingresses for pods that are processes";
            return vec![
                Finding::warning(PODS, message, advice()),
                Finding::warning(NETWORK, network, "have pods run in containers, as above"),
            ];
        }
    };
    let needs_users = UserNamespace::is_needed();
    let how = if needs_users { "in containers without root" } else { "in containers" };
    let mut findings = vec![Finding::ok(PODS, format!("run {how}: `windlass up --runtime container`"))];
    if needs_users && UserNamespace::has_others() {
        findings.push(Finding::ok(USERS, "are those that /etc/subuid gives you"));
    } else if needs_users {
        let remedy = "install newuidmap (Debian: uidmap), and add yourself with `sudo usermod --add-subuids 100000-165535 \
                      --add-subgids 100000-165535 $USER`";
        let message = "are all you: programs that change owners or users fail in containers";
        findings.push(Finding::warning(USERS, message, remedy));
    }
    if let Some(why) = missing.overlays {
        let message = format!("are copied for each container: the kernel refuses overlays: {why}");
        let remedy = "load overlayfs with `sudo modprobe overlay`; users who are not root need Linux 5.11";
        findings.push(Finding::warning(FILES, message, remedy));
    }
    if let Some(why) = missing.nftables {
        let message = format!("reaches nothing but the pod itself: the kernel has no nftables: {why}");
        findings.push(Finding::warning(NETWORK, message, "load them with `sudo modprobe nf_tables`"));
    }
    if !Cgroups::are_allowed() {
        let message = "are not set: the control groups of this machine are not yours to change";
        let remedy =
            if needs_users { "run windlass as root, if limits matter" } else { "mount /sys/fs/cgroup writable" };
        findings.push(Finding::warning(LIMITS, message, remedy));
    }
    findings
}
