//! The name of the machine or pod that this process runs on.

/// The host's name; empty if the system does not tell. In a pod it is the pod's name.
pub(crate) fn name() -> String {
    let named = |text: String| Some(text.trim().to_owned()).filter(|name| !name.is_empty());
    let file = |path| std::fs::read_to_string(path).ok().and_then(named);
    // Shells set the variable without exporting it, so that it is usually there in containers only.
    let variable = |name| std::env::var(name).ok().and_then(named);
    variable("HOSTNAME")
        .or_else(|| file("/proc/sys/kernel/hostname"))
        .or_else(|| file("/etc/hostname"))
        .or_else(|| variable("COMPUTERNAME"))
        .or_else(|| {
            let asked = std::process::Command::new("hostname").output().ok()?;
            named(String::from_utf8_lossy(&asked.stdout).into_owned())
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn the_host_has_a_name_whatever_the_environment_says() {
        let name = super::name();
        assert!(!name.is_empty() && !name.contains(char::is_whitespace), "{name:?}");
    }
}
