//! The documents of an image as the OCI specifies them, and the tar file that holds them all.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::layer::{Layer, gzip};
use super::tar::Tar;
use super::{Reference, Settings};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Bytes under the name that their content gives them.
pub(crate) struct Blob {
    pub digest: String,
    pub bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        Self { digest: digest(&bytes), bytes }
    }

    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": self.digest, "size": self.bytes.len()})
    }
}

fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An image of one layer.
pub(crate) struct Image {
    layer: Blob,
    config: Blob,
    manifest: Blob,
}

impl Image {
    pub(super) fn new(files: Layer, entrypoint: &str, settings: &Settings) -> Result<Self> {
        let tar = files.tar()?;
        let diff = digest(&tar);
        let architecture = files.architecture;
        drop(files);
        let layer = Blob::new(gzip(&tar)?);
        let labels: serde_json::Map<String, Value> =
            settings.labels.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let config = json!({
            "created": "1970-01-01T00:00:00Z",
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": settings.user,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Entrypoint": [entrypoint],
                "WorkingDir": "/",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [diff]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "windlass image build"}],
        });
        let config = Blob::new(config.to_string().into_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(CONFIG),
            "layers": [layer.descriptor(LAYER)],
        });
        Ok(Self { manifest: Blob::new(manifest.to_string().into_bytes()), layer, config })
    }

    /// What the image is known by, whatever its name.
    pub(crate) fn digest(&self) -> &str {
        &self.manifest.digest
    }

    /// How many bytes a registry stores.
    pub(crate) fn size(&self) -> usize {
        [&self.layer, &self.config, &self.manifest].iter().map(|blob| blob.bytes.len()).sum()
    }

    /// What the manifest names, in the order in which a registry needs it.
    pub(crate) fn blobs(&self) -> [&Blob; 2] {
        [&self.layer, &self.config]
    }

    /// The manifest and its type.
    pub(crate) fn manifest(&self) -> (&Blob, &'static str) {
        (&self.manifest, MANIFEST)
    }

    /// Writes the layout. `manifest.json` is for versions of `docker load` that know nothing of the rest.
    pub(super) fn write(&self, reference: &Reference, out: impl Write) -> Result<()> {
        let mut named = self.manifest.descriptor(MANIFEST);
        named["annotations"] = json!({
            "io.containerd.image.name": reference.to_string(),
            "org.opencontainers.image.ref.name": reference.tag,
        });
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]});
        let docker = json!([{
            "Config": self.config.path(), "RepoTags": [reference.to_string()], "Layers": [self.layer.path()],
        }]);
        let mut blobs = [&self.layer, &self.config, &self.manifest];
        blobs.sort_by_key(|blob| &blob.digest);
        let mut tar = Tar::new(out);
        tar.directory("blobs")?;
        tar.directory("blobs/sha256")?;
        for blob in blobs {
            tar.file(&blob.path(), 0o644, &blob.bytes)?;
        }
        tar.file("index.json", 0o644, index.to_string().as_bytes())?;
        tar.file("manifest.json", 0o644, docker.to_string().as_bytes())?;
        tar.file("oci-layout", 0o644, json!({"imageLayoutVersion": "1.0.0"}).to_string().as_bytes())?;
        tar.finish()?.flush()?;
        Ok(())
    }
}
