//! The files of volumes that the API has the content of, and the tokens among them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use windlass_node::tokens::{TokenFor, Tokens};
use windlass_node::volumes::{Content, File, Mounted, Volume};

use crate::spec::FileContent;

/// After this part of its life a token is renewed, as kubelets do.
const RENEWED: f64 = 0.8;
/// And after this time at the latest.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How long to wait after a token could not be renewed.
const RETRY: i64 = 10;

/// The tokens of a pod: where they are, and when they are renewed. Without the tokens themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokenFiles(Vec<TokenFile>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TokenFile {
    volume: String,
    path: String,
    mode: u32,
    gid: Option<u32>,
    audience: String,
    expiration_seconds: i64,
    /// In seconds since 1970.
    renew: i64,
}

impl TokenFiles {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How long the next renewal is away.
    pub(super) fn next_renewal(&self) -> Duration {
        let next = self.0.iter().map(|file| file.renew).min();
        let left = next.map(|next| u64::try_from(next - Timestamp::now().as_second()).unwrap_or(0));
        left.map_or(LONGEST, Duration::from_secs).max(Duration::from_secs(1))
    }

    /// Renews what is due. Returns the new files by volume.
    pub(super) async fn renew(
        &mut self,
        pod: &Pod,
        node: &Arc<str>,
        tokens: &dyn Tokens,
    ) -> BTreeMap<String, Vec<FileContent>> {
        let mut renewed: BTreeMap<String, Vec<FileContent>> = BTreeMap::new();
        let now = Timestamp::now().as_second();
        for file in &mut self.0 {
            if file.renew > now {
                continue;
            }
            match file.issue(pod, node, tokens).await {
                Ok(content) => renewed.entry(file.volume.clone()).or_default().push(content),
                Err(error) => {
                    tracing::warn!(%error, "a pod's token cannot be renewed");
                    file.renew = now + RETRY;
                }
            }
        }
        renewed
    }
}

impl TokenFile {
    async fn issue(&mut self, pod: &Pod, node: &Arc<str>, tokens: &dyn Tokens) -> Result<FileContent, String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let wanted = TokenFor {
            node: Arc::clone(node),
            namespace: text(&pod.metadata.namespace),
            service_account: account.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned()),
            pod: text(&pod.metadata.name),
            uid: text(&pod.metadata.uid),
            audience: self.audience.clone(),
            expiration_seconds: self.expiration_seconds,
        };
        let token = tokens.token(&wanted).await?;
        let now = Timestamp::now().as_second();
        let left = u64::try_from(token.expires.as_second() - now).unwrap_or(0);
        let wait = Duration::from_secs(left).mul_f64(RENEWED).min(LONGEST);
        self.renew = now + wait.as_secs().cast_signed();
        Ok(FileContent { path: self.path.clone(), mode: self.mode, bytes: token.token.into_bytes(), gid: self.gid })
    }
}

/// The group that a pod's files have.
fn group(spec: &PodSpec) -> Option<u32> {
    let group = spec.security_context.as_ref().and_then(|context| context.fs_group);
    group.and_then(|group| u32::try_from(group).ok())
}

fn mode(file: &File) -> u32 {
    u32::try_from(file.mode).unwrap_or(0o644) & 0o777
}

fn plain(file: &File, bytes: &[u8], gid: Option<u32>) -> FileContent {
    // With a group for the pod's files, the group may read them.
    let mode = if gid.is_some() { mode(file) | 0o040 } else { mode(file) };
    FileContent { path: file.path.clone(), mode, bytes: bytes.to_vec(), gid }
}

/// The files of a volume but for tokens, and where its tokens are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PlainFiles {
    pub(super) files: Vec<FileContent>,
    pub(super) tokens: Vec<String>,
}

/// The content of all volumes that are files, without tokens.
pub(super) fn without_tokens(spec: &PodSpec, volumes: &Mounted) -> BTreeMap<String, PlainFiles> {
    let gid = group(spec);
    let mut found = BTreeMap::new();
    for (name, volume) in &volumes.volumes {
        let Volume::Files(files) = volume else { continue };
        let mut all = PlainFiles::default();
        for file in files {
            match &file.content {
                Content::Bytes(bytes) => all.files.push(plain(file, bytes, gid)),
                Content::Token { .. } => all.tokens.push(file.path.clone()),
            }
        }
        found.insert(name.clone(), all);
    }
    found
}

/// The content of all volumes that are files.
pub(super) async fn resolve(
    pod: &Pod,
    spec: &PodSpec,
    node: &Arc<str>,
    volumes: &Mounted,
    tokens: &dyn Tokens,
) -> Result<(BTreeMap<String, Vec<FileContent>>, TokenFiles), String> {
    let gid = group(spec);
    let mut content: BTreeMap<String, Vec<FileContent>> = BTreeMap::new();
    let mut files_with_tokens = TokenFiles::default();
    for (name, volume) in &volumes.volumes {
        let Volume::Files(files) = volume else { continue };
        let mut all = Vec::new();
        for file in files {
            match &file.content {
                Content::Bytes(bytes) => all.push(plain(file, bytes, gid)),
                Content::Token { audience, expiration_seconds } => {
                    // As kubelets do: only the group may read a token, if the pod's files have one.
                    let mode = if gid.is_some() { 0o640 } else { mode(file) };
                    let mut token = TokenFile {
                        volume: name.clone(),
                        path: file.path.clone(),
                        mode,
                        gid,
                        audience: audience.clone(),
                        expiration_seconds: *expiration_seconds,
                        renew: 0,
                    };
                    let issued = token.issue(pod, node, tokens).await;
                    let issued = issued.map_err(|error| {
                        format!("MountVolume.SetUp failed for volume \"{name}\" : failed to fetch token: {error}")
                    })?;
                    all.push(issued);
                    files_with_tokens.0.push(token);
                }
            }
        }
        content.insert(name.clone(), all);
    }
    Ok((content, files_with_tokens))
}
