//! The answer of `/version`: which Kubernetes this server is compatible with.
//!
//! Clients compare `major`, `minor` and `gitVersion`; kubectl warns when they are too far from its own.

use serde_json::{Value, json};

/// The Kubernetes release whose behaviour is served.
pub const GIT_VERSION: &str = "v1.36.4";

/// The `/version` object.
pub fn info() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION,
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.26.0",
        "compiler": "gc",
        "platform": platform(),
    })
}

/// `os/arch` with Go's names, which clients use to pick images and binaries.
fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    };
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    format!("{os}/{arch}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_required_field_is_a_text() {
        let info = info();
        for field in [
            "major",
            "minor",
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        ] {
            assert!(info[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
        }
        assert_eq!(info["major"], "1");
        assert_eq!(info["compiler"], "gc");
        assert!(GIT_VERSION.starts_with(&format!("v{}.{}.", "1", info["minor"].as_str().unwrap_or_default())));
    }
}
