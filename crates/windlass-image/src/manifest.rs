//! What an image's manifest and configuration say, as far as it is of interest here.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::digest;

/// How many bytes the blobs of an image may have together.
pub(crate) const LARGEST: u64 = 4 << 30;
/// How many bytes a manifest or a configuration may have, as registries limit them.
pub(crate) const DOCUMENT: u64 = 4 << 20;
/// How many layers an image may have.
const MOST_LAYERS: usize = 1_000;
/// How deeply an index may lead to other indexes.
pub(crate) const NESTED: usize = 4;

/// A document that is not what it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It is not JSON, or not of the expected shape.
    #[error("a document of the image cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// A digest is not one.
    #[error(transparent)]
    Digest(#[from] digest::DigestError),
    /// There is not exactly one image for the platform.
    #[error("it has {found} images for linux/{architecture}; exactly one is needed")]
    Platform {
        /// How many there are.
        found: usize,
        /// For which architecture.
        architecture: String,
    },
    /// Something is missing or out of bounds.
    #[error("{0}")]
    Invalid(&'static str),
    /// It is for another machine.
    #[error("it is for {found}, and this machine is linux/{wanted}")]
    Architecture {
        /// What it is for.
        found: String,
        /// What is needed.
        wanted: String,
    },
}

/// Names a blob.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    #[serde(default)]
    pub media_type: String,
    /// The digest of its content.
    pub digest: String,
    /// How many bytes it has.
    pub size: u64,
}

/// The manifest of one image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// The configuration.
    pub config: Descriptor,
    /// The layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

impl Manifest {
    /// Reads a manifest, and checks what it names.
    pub fn read(bytes: &[u8]) -> Result<Self, ManifestError> {
        let manifest: Self = serde_json::from_slice(bytes)?;
        if manifest.layers.len() > MOST_LAYERS {
            return Err(ManifestError::Invalid("it has too many layers"));
        }
        for one in manifest.blobs() {
            digest::check(&one.digest)?;
        }
        if manifest.size() > LARGEST {
            return Err(ManifestError::Invalid("it is larger than 4 GiB"));
        }
        Ok(manifest)
    }

    /// Everything that it names.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.config).chain(&self.layers)
    }

    /// How many bytes that has.
    pub fn size(&self) -> u64 {
        self.blobs().fold(0, |sum, one| sum.saturating_add(one.size))
    }
}

/// The one image of an index that is for an architecture.
pub fn choose<'a>(index: &'a Value, architecture: &str) -> Result<&'a Value, ManifestError> {
    let all = index["manifests"].as_array().ok_or(ManifestError::Invalid("its index names no images"))?;
    let fits = |descriptor: &&Value| match &descriptor["platform"] {
        Value::Null => true,
        platform => platform["os"] == "linux" && platform["architecture"] == architecture,
    };
    let fitting: Vec<&Value> = all.iter().filter(fits).collect();
    match fitting[..] {
        [descriptor] => Ok(descriptor),
        // Variants of an architecture, such as those of arm: the first is the most general.
        [first, ..] if fitting.iter().all(|one| one["platform"].is_object()) => Ok(first),
        _ => Err(ManifestError::Platform { found: fitting.len(), architecture: architecture.to_owned() }),
    }
}

/// The configuration of an image: what is started, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Config {
    /// The architecture in the words of images.
    #[serde(default)]
    pub architecture: String,
    /// The operating system.
    #[serde(default)]
    pub os: String,
    /// How it is run.
    #[serde(default)]
    pub config: Execution,
    /// Its layers.
    pub rootfs: RootFs,
}

/// The layers of an image, uncompressed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct RootFs {
    /// Their digests, the lowest first.
    pub diff_ids: Vec<String>,
}

/// What an image says about its process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Execution {
    /// `user`, `uid`, `user:group` or `uid:gid`; empty for root.
    #[serde(deserialize_with = "nullable")]
    pub user: String,
    /// `NAME=VALUE`.
    #[serde(deserialize_with = "nullable")]
    pub env: Vec<String>,
    /// The program and its first arguments.
    #[serde(deserialize_with = "nullable")]
    pub entrypoint: Vec<String>,
    /// More arguments, or the program if there is no entrypoint.
    #[serde(deserialize_with = "nullable")]
    pub cmd: Vec<String>,
    /// Where it starts.
    #[serde(deserialize_with = "nullable")]
    pub working_dir: String,
    /// The signal that asks it to end.
    #[serde(deserialize_with = "nullable")]
    pub stop_signal: String,
    /// Labels.
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
}

/// Go writes `null` for what is empty.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Config {
    /// Reads a configuration.
    pub fn read(bytes: &[u8]) -> Result<Self, ManifestError> {
        let config: Self = serde_json::from_slice(bytes)?;
        for diff in &config.rootfs.diff_ids {
            digest::check(diff)?;
        }
        Ok(config)
    }
}

/// The architecture of this machine, in the words of images.
pub fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
