//! How far CustomResourceDefinitions have taken effect.

use std::collections::BTreeSet;

use tokio::sync::watch;
use windlass_store::Revision;

/// How far CRDs have taken effect.
#[derive(Debug)]
pub struct Progress {
    /// What was written up to here was looked at.
    seen: watch::Sender<Revision>,
    /// What was written here awaits admission.
    asked: watch::Sender<BTreeSet<Revision>>,
}

impl Progress {
    /// Nothing has taken effect yet.
    pub(crate) fn new() -> Self {
        Self { seen: watch::channel(0).0, asked: watch::Sender::default() }
    }

    /// Follows the revision up to which CRDs were looked at. It is told again when admission has had its say.
    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.seen.subscribe()
    }

    /// Waits until what was written at a revision has had its effect.
    pub async fn reaches(&self, written: Revision) {
        // Neither fails, as the senders are here.
        let _ = self.seen.subscribe().wait_for(|seen| *seen >= written).await;
        let _ = self.asked.subscribe().wait_for(|asked| !asked.contains(&written)).await;
    }

    /// CRDs were looked at up to `seen`, and what was written at `asked` awaits admission.
    pub(crate) fn publish(&self, seen: Revision, asked: BTreeSet<Revision>) {
        // `asked` first: `reaches` waits for `seen`, and reads `asked` after that.
        self.asked.send_replace(asked);
        self.seen.send_replace(seen);
    }
}
