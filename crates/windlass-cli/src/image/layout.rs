//! The documents of an image as the OCI specifies them, and the tar file that holds them all.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};
use windlass_image::digest::{self, blob_path};
use windlass_image::registry;
use windlass_image::tar::Tar;
use windlass_image::{Origin, Reference, Store, Stored};

use super::Settings;
use super::base::Base;
use super::layer::{Layer, gzip};
use crate::output;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// The types of layers: compressed, and as they are.
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(super) const PLAIN_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Bytes under the name that their content gives them.
pub(crate) struct Blob {
    pub digest: String,
    pub bytes: Vec<u8>,
    pub(super) media_type: &'static str,
}

impl Blob {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { digest: digest::of(&bytes), bytes, media_type: LAYER }
    }

    fn path(&self) -> String {
        blob_path(&self.digest)
    }

    fn to_push(&self) -> registry::Blob<'_> {
        registry::Blob { digest: &self.digest, bytes: &self.bytes }
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": self.digest, "size": self.bytes.len()})
    }
}

/// An image: its files are a layer of their own, above those of the image that it is built on.
pub(crate) struct Image {
    layers: Vec<Blob>,
    config: Blob,
    manifest: Blob,
}

impl Image {
    pub(super) fn new(files: Layer, base: Option<Base>, entrypoint: &str, settings: &Settings) -> Result<Self> {
        let tar = files.tar()?;
        let diff = digest::of(&tar);
        let architecture = files.architecture;
        drop(files);
        let (below, mut layers) = base.map_or((Value::Null, Vec::new()), |base| (base.config, base.layers));
        layers.push(Blob::new(gzip(&tar)?));
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut labels = below["config"]["Labels"].as_object().cloned().unwrap_or_default();
        labels.extend(settings.labels.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
        let mut environment = list(&below["config"]["Env"]);
        if environment.is_empty() {
            environment.push("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
        }
        let mut diffs = list(&below["rootfs"]["diff_ids"]);
        diffs.push(diff.into());
        let mut history = list(&below["history"]);
        history.push(json!({"created": "1970-01-01T00:00:00Z", "created_by": "windlass image build"}));
        let config = json!({
            "created": "1970-01-01T00:00:00Z",
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": settings.user,
                "Env": environment,
                "Entrypoint": [entrypoint],
                "WorkingDir": below["config"]["WorkingDir"].as_str().filter(|path| !path.is_empty()).unwrap_or("/"),
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": diffs},
            "history": history,
        });
        let config = Blob::new(config.to_string().into_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(CONFIG),
            "layers": layers.iter().map(|layer| layer.descriptor(layer.media_type)).collect::<Vec<_>>(),
        });
        Ok(Self { manifest: Blob::new(manifest.to_string().into_bytes()), layers, config })
    }

    /// What the image is known by, whatever its name.
    pub(crate) fn digest(&self) -> &str {
        &self.manifest.digest
    }

    /// How many bytes a registry stores.
    pub(crate) fn size(&self) -> usize {
        self.layers.iter().chain([&self.config, &self.manifest]).map(|blob| blob.bytes.len()).sum()
    }

    /// Puts the image into the store of this machine.
    pub(super) fn keep(&self, store: &Store, reference: &Reference) -> Result<Stored> {
        let adding = store.adding()?;
        for blob in self.layers.iter().chain([&self.config, &self.manifest]) {
            if !store.has(&blob.digest) {
                store.add(&adding, &blob.bytes)?;
            }
        }
        Ok(store.name(&adding, &reference.clone().into(), self.digest(), Origin::Local)?)
    }

    /// Pushes the image to its registry.
    pub(super) async fn push(&self, reference: &Reference) -> Result<()> {
        let blobs: Vec<registry::Blob<'_>> = self.layers.iter().chain([&self.config]).map(Blob::to_push).collect();
        let progress = |digest: &str, size: u64| output::note(format_args!("pushing {digest} ({} KiB)", size / 1024));
        registry::push(reference, &blobs, self.manifest.to_push(), MANIFEST, &progress).await?;
        Ok(())
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
            "Config": self.config.path(), "RepoTags": [reference.to_string()], "Layers": self.layers.iter().map(Blob::path).collect::<Vec<_>>(),
        }]);
        let mut blobs: Vec<&Blob> = self.layers.iter().chain([&self.config, &self.manifest]).collect();
        blobs.sort_by_key(|blob| &blob.digest);
        blobs.dedup_by_key(|blob| &blob.digest);
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
