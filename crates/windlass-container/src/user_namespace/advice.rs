//! What a user who is not root can do about a machine that does not let them run containers.

/// Settings of the kernel that forbid user namespaces: the value that does, and one that does not.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("user.max_user_namespaces", "0", "15000"),
];

/// What to do where containers cannot run: the settings to change, or another way.
pub fn advice() -> String {
    if !super::UserNamespace::is_needed() {
        return "give this process the capabilities of root, if it runs in a container".to_owned();
    }
    without_root(|name| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
    })
}

fn without_root(setting: impl Fn(&str) -> String) -> String {
    let wrong = SETTINGS.iter().filter(|(name, bad, _)| setting(name) == *bad);
    let commands: Vec<String> = wrong.map(|(name, _, good)| format!("sudo sysctl {name}={good}")).collect();
    if commands.is_empty() {
        return "run windlass as root; in a container, allow user namespaces and an unmasked /proc".to_owned();
    }
    format!("{}, or run windlass as root", commands.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_that_forbid_are_named() {
        let check = |settings: &[(&str, &str)], expected: &str| {
            let value = |name: &str| settings.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
            assert_eq!(without_root(|name| value(name).to_owned()), expected);
        };
        let restricted = ("kernel.apparmor_restrict_unprivileged_userns", "1");
        let allowed = [("kernel.unprivileged_userns_clone", "1"), ("user.max_user_namespaces", "7000"), restricted];
        check(&allowed, "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or run windlass as root");
        check(
            &[("kernel.unprivileged_userns_clone", "0"), ("user.max_user_namespaces", "0")],
            "sudo sysctl kernel.unprivileged_userns_clone=1; sudo sysctl user.max_user_namespaces=15000, or run windlass as root",
        );
        check(&allowed[..2], "run windlass as root; in a container, allow user namespaces and an unmasked /proc");
    }
}
