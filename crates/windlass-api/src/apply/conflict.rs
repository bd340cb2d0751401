//! Conflicts: paths an applier wants to change that belong to another manager.

use http::StatusCode;

use super::compare::{self, Change};
use super::fields::{Trie, print_path};
use super::managers::Entry;
use crate::field::quote;
use crate::status::Status;

/// One path that belongs to another manager.
pub(super) struct Conflict {
    /// The owner as messages name it.
    owner: String,
    pub(super) path: Vec<String>,
}

/// Adds the conflicts of `changes` with one entry.
pub(super) fn collect(entry: &Entry, set: &Trie, changes: &[Change<'_>], out: &mut Vec<Conflict>) {
    let mut paths = Vec::new();
    compare::conflicts(set, changes, &mut Vec::new(), &mut paths);
    if paths.is_empty() {
        return;
    }
    let mut owner = quote(entry.manager());
    if !entry.subresource().is_empty() {
        owner = format!("{owner} with subresource {}", quote(entry.subresource()));
    }
    if !entry.is_apply() {
        owner = format!("{owner} using {}", entry.api_version());
    }
    out.extend(paths.into_iter().map(|path| Conflict { owner: owner.clone(), path }));
}

/// The 409 that lists every conflict. They come grouped by owner.
pub(super) fn status(conflicts: &[Conflict]) -> Status {
    let message = if let [only] = conflicts {
        format!("Apply failed with 1 conflict: conflict with {}: {}", only.owner, print_path(&only.path))
    } else {
        let mut ordered: Vec<&Conflict> = conflicts.iter().collect();
        ordered.sort_by(|left, right| left.owner.cmp(&right.owner));
        let mut lines: Vec<String> = Vec::with_capacity(conflicts.len() + 4);
        for group in ordered.chunk_by(|left, right| left.owner == right.owner) {
            lines.extend(group.first().map(|first| format!("conflicts with {}:", first.owner)));
            lines.extend(group.iter().map(|conflict| format!("- {}", print_path(&conflict.path))));
        }
        format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
    };
    conflicts.iter().fold(Status::new(StatusCode::CONFLICT, "Conflict", message), |status, conflict| {
        let message = format!("conflict with {}", conflict.owner);
        status.with_cause("FieldManagerConflict", message, &print_path(&conflict.path))
    })
}
