//! The files of a pod's volumes that the API has the content of: written, renewed and updated.

use std::fs;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Weak};

use windlass_node::runtime::RuntimeError;
use windlass_node::volumes::Mounted;

use super::{PodHandle, sandbox};
use crate::runtime::Inner;
use crate::runtime::client::Client;
use crate::runtime::volumes::{self, TokenFiles};
use crate::spec::{FileContent, Keep, Request};
use crate::wire;

impl PodHandle {
    /// Writes the files of the API. Returns those that have to be renewed.
    pub(super) async fn write_volumes(
        &self,
        inner: &Inner,
        client: &Client,
        mounted: &Mounted,
    ) -> Result<TokenFiles, RuntimeError> {
        let spec = self.spec();
        let pod = self.pod.lock().clone();
        let resolved = volumes::resolve(&pod, &spec, &self.node, mounted, &*inner.options.tokens).await;
        let (content, tokens) = resolved.map_err(sandbox)?;
        for (volume, files) in content {
            send_files(client, &volume, &files, Keep::Nothing).await?;
        }
        let text = serde_json::to_vec(&tokens).map_err(sandbox)?;
        fs::write(self.dir.0.join("tokens.json"), text).map_err(sandbox)?;
        Ok(tokens)
    }

    /// Brings the files of a pod that runs up to date. Tokens stay: they are renewed by themselves.
    pub(in crate::runtime) async fn update_files(&self) -> Result<(), RuntimeError> {
        // One update at a time, each with the volumes as they are by then: what came last is what is there.
        let _turn = self.updating.lock().await;
        let Some(mounted) = self.volumes.lock().clone() else { return Ok(()) };
        let client = self.running().await?;
        for (volume, content) in volumes::without_tokens(&self.spec(), &mounted) {
            send_files(&client, &volume, &content.files, Keep::These(content.tokens)).await?;
        }
        Ok(())
    }

    /// Renews tokens before they expire.
    pub(super) fn renew(self: &Arc<Self>, inner: &Arc<Inner>, tokens: TokenFiles) {
        if tokens.is_empty() {
            return;
        }
        let (this, inner) = (Arc::downgrade(self), Arc::downgrade(inner));
        let task = tokio::spawn(renew_tokens(this, inner, tokens));
        if let Some(before) = self.tokens.lock().replace(task.abort_handle()) {
            before.abort();
        }
    }
}

async fn renew_tokens(pod: Weak<PodHandle>, inner: Weak<Inner>, mut tokens: TokenFiles) {
    loop {
        tokio::time::sleep(tokens.next_renewal()).await;
        let (Some(pod), Some(inner)) = (pod.upgrade(), inner.upgrade()) else { return };
        let Ok(client) = pod.running().await else { return };
        let current = pod.pod.lock().clone();
        let renewed = tokens.renew(&current, &pod.node, &*inner.options.tokens).await;
        for (volume, files) in renewed {
            if let Err(error) = send_files(&client, &volume, &files, Keep::Everything).await {
                tracing::warn!(pod = %pod.uid(), %error, "a token cannot be renewed");
            }
        }
    }
}

async fn send_files(client: &Client, volume: &str, files: &[FileContent], keep: Keep) -> Result<(), RuntimeError> {
    let content = wire::content(&files).map_err(sandbox)?;
    client.ask(Request::Files { volume: volume.to_owned(), keep }, &[content.as_fd()]).await.map(drop)
}
