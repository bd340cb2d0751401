//! Asks admission about the status that CRDs are to have, each in a task of its own: a webhook that never answers about
//! one keeps no other waiting. There is one task for a CRD at most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::task::{AbortHandle, Id, JoinSet};
use windlass_store::Revision;

use super::controller;
use crate::api::Api;
use crate::status::Status;
use crate::validation::access::Access as _;
use windlass_kinds::crd::lifecycle::{self, AcceptedNames};

/// A status that a CRD is to have.
pub(super) struct Proposal {
    /// Where the CRD is stored.
    pub(super) key: Bytes,
    /// The revision of the CRD that this is about.
    pub(super) modified: Revision,
    /// The CRD as it is stored.
    pub(super) before: Arc<Value>,
    /// The CRD with its new status.
    pub(super) after: Arc<Value>,
    /// When this was proposed.
    pub(super) now: String,
}

impl Proposal {
    /// Whether the names are still to be had, or still not: others were served while this was asked about.
    pub(super) fn holds(&self, taken: &AcceptedNames) -> bool {
        let mut again = Value::clone(&self.before);
        // Schemas take their time, and they depend on nothing else.
        lifecycle::update_status(&mut again, taken, &self.now, false);
        let (now, then) = (again.at("status"), self.after.at("status"));
        now.at("acceptedNames") == then.at("acceptedNames") && conditions(now).eq(conditions(then))
    }
}

/// What a status says, but for schemas.
fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    let conditions = status.list("conditions").iter();
    conditions.filter(|condition| condition.text("type") != lifecycle::NON_STRUCTURAL_SCHEMA)
}

/// What admission said.
pub(super) struct Verdict {
    /// What it was asked about.
    pub(super) proposal: Proposal,
    /// The CRD as it may be stored.
    pub(super) admitted: Result<Arc<Value>, Status>,
}

/// The CRDs that admission is being asked about, by key. Dropping this ends it.
#[derive(Default)]
pub(super) struct Inquiries {
    tasks: JoinSet<Verdict>,
    open: BTreeMap<Bytes, (Revision, AbortHandle)>,
}

impl Inquiries {
    /// Asks about a status, and no longer about an earlier one of the same CRD.
    pub(super) fn begin(&mut self, api: &Arc<Api>, proposal: Proposal) {
        self.end(&proposal.key);
        let (key, modified, api) = (proposal.key.clone(), proposal.modified, Arc::clone(api));
        let task = self.tasks.spawn(async move {
            let mut crd = Arc::clone(&proposal.after);
            let admitted = controller::admit(&api, &proposal.before, &mut crd).await.map(|()| crd);
            Verdict { proposal, admitted }
        });
        self.open.insert(key, (modified, task));
    }

    /// Asks no longer about a CRD.
    pub(super) fn end(&mut self, key: &Bytes) {
        if let Some((_, task)) = self.open.remove(key) {
            task.abort();
        }
    }

    /// Whether a CRD is being asked about.
    pub(super) fn concern(&self, key: &Bytes) -> bool {
        self.open.contains_key(key)
    }

    /// The revisions of the CRDs that are being asked about.
    pub(super) fn revisions(&self) -> BTreeSet<Revision> {
        self.open.values().map(|(modified, _)| *modified).collect()
    }

    /// The next answer; there is none while nothing is asked. Cancel-safe.
    pub(super) async fn next(&mut self) -> Verdict {
        loop {
            match self.tasks.join_next_with_id().await {
                Some(Ok((id, verdict))) => {
                    if self.close(id) {
                        return verdict;
                    }
                }
                Some(Err(error)) => {
                    if self.close(error.id()) {
                        tracing::error!(%error, "admission of a custom resource definition's status broke off");
                    }
                }
                None => std::future::pending().await,
            }
        }
    }

    /// Whether what a task was about is still asked.
    fn close(&mut self, id: Id) -> bool {
        let count = self.open.len();
        self.open.retain(|_, (_, task)| task.id() != id);
        self.open.len() < count
    }
}
