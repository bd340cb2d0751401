//! A Tiltfile, for people who use Tilt: the same loop, with windlass commands as its resources.

use std::path::Path;

use anyhow::{Context as _, Result};

const TILTFILE: &str = "\
# For Tilt (https://tilt.dev): `tilt up`. `windlass dev` does the same without it.

local_resource('crds', cmd='windlass install', deps=['api'], labels=['cluster'])
local_resource('build', cmd='cargo build', deps=['src', 'api', 'Cargo.toml'], labels=['operator'])
local_resource(
    'operator',
    serve_cmd='windlass run --skip-install',
    deps=['src', 'api', 'Cargo.toml'],
    resource_deps=['crds', 'build'],
    readiness_probe=probe(http_get=http_get_action(port=8081, path='/readyz'), period_secs=1),
    labels=['operator'],
)
local_resource(
    'samples',
    cmd='windlass apply -f config/samples',
    deps=['config/samples'],
    resource_deps=['operator'],
    labels=['cluster'],
)
";

/// Writes it, unless it is there. One with other content is an error.
pub(super) fn write(root: &Path) -> Result<bool> {
    let path = root.join("Tiltfile");
    if std::fs::read_to_string(&path).is_ok_and(|text| text == TILTFILE) {
        return Ok(false);
    }
    let mut options = std::fs::OpenOptions::new();
    let written = options.write(true).create_new(true).open(&path).and_then(|mut file| {
        use std::io::Write as _;
        file.write_all(TILTFILE.as_bytes())
    });
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}
