//! `windlass version`: which windlass this is, and which Kubernetes its clusters are.

use std::process::ExitCode;

use serde_json::json;

use crate::args::{Version, VersionFormat};
use crate::output;

/// Set by builds that know it, such as those of releases.
const COMMIT: Option<&str> = option_env!("WINDLASS_COMMIT");

pub(crate) fn run(args: &Version) -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    let kubernetes = windlass_server::version::GIT_VERSION;
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let document = json!({
        "version": version, "commit": COMMIT, "kubernetesVersion": kubernetes, "platform": platform,
        "rustVersion": env!("CARGO_PKG_RUST_VERSION"),
    });
    match args.output {
        VersionFormat::Json => output::json(&document),
        VersionFormat::Yaml => output::yaml(&document),
        VersionFormat::Text => {
            let commit = COMMIT.map(|commit| format!(" ({commit})")).unwrap_or_default();
            output::line(format_args!("windlass {version}{commit}, Kubernetes {kubernetes}, {platform}"));
        }
    }
    ExitCode::SUCCESS
}
