//! The changes that a handler has not received yet: bounded, however slow the handler is.
//!
//! Up to a limit every change is kept by itself. The changes on top of that are merged, object by object: what is kept
//! of an object is what its handler was told last, if it changed, and whether the object still exists. Its current
//! state is read from the store when the handler is told. So there is at most one merged entry for each object that
//! exists or that the handler has been told of, and objects that come and go meanwhile leave nothing behind.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::key::ObjectKey;
use crate::reflector::{Change, Shared, Told};

/// Changes that are kept by themselves.
pub(super) const LIMIT: usize = 1024;

/// Several changes of one object in a row.
enum Merged {
    /// The handler does not know the object.
    Added { initial: bool },
    /// The handler was told this state last; the current one if there is none here.
    Updated { old: Option<Shared> },
    /// The object that the handler knows is gone.
    Deleted { last: Shared },
    /// The object that the handler knows is gone, and there is another of that name.
    Replaced { last: Shared, initial: bool },
}

impl Merged {
    /// `None` when there is nothing left to tell.
    fn and(before: Option<Self>, change: Told) -> Option<Self> {
        Some(match (before, change) {
            (None, Change::Added { initial, .. }) => Self::Added { initial },
            (None | Some(Self::Updated { old: None }), Change::Updated { old, .. }) => Self::Updated { old: Some(old) },
            (None, Change::Resync { .. }) => Self::Updated { old: None },
            (None | Some(Self::Updated { .. }), Change::Deleted { object }) => Self::Deleted { last: object },
            (Some(Self::Added { .. }), Change::Deleted { .. }) => return None,
            (Some(Self::Deleted { last }), Change::Added { initial, .. }) => Self::Replaced { last, initial },
            (Some(Self::Replaced { last, .. }), Change::Deleted { .. }) => Self::Deleted { last },
            (Some(before), _) => before,
        })
    }

    /// What the handler is told. `now` is the object if it exists.
    fn resolve(self, now: impl FnOnce() -> Option<Shared>) -> [Option<Told>; 2] {
        let added = |initial| move |object| Change::Added { object, initial };
        match self {
            Self::Added { initial } => [now().map(added(initial)), None],
            Self::Updated { old } => {
                let updated = |new: Shared| match old {
                    Some(old) => Change::Updated { old, new },
                    None => Change::Resync { object: new },
                };
                [now().map(updated), None]
            }
            Self::Deleted { last } => [Some(Change::Deleted { object: last }), None],
            Self::Replaced { last, initial } => [Some(Change::Deleted { object: last }), now().map(added(initial))],
        }
    }
}

/// See the [module documentation](self).
pub(super) struct Pending {
    limit: usize,
    /// Told first.
    single: VecDeque<Told>,
    /// By the number that says when the first of the changes came.
    merged: HashMap<ObjectKey, (u64, Merged)>,
    order: BTreeMap<u64, ObjectKey>,
    next: u64,
}

/// What a handler is told next.
pub(super) enum Next {
    Change(Told),
    /// The merged changes of an object: see [`Pending::take`].
    Merged(ObjectKey),
}

impl Pending {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, single: VecDeque::new(), merged: HashMap::new(), order: BTreeMap::new(), next: 0 }
    }

    /// Whether the next change will be kept by itself.
    pub(super) fn has_room(&self) -> bool {
        self.merged.is_empty() && self.single.len() < self.limit
    }

    pub(super) fn push(&mut self, change: Told) {
        if self.has_room() {
            self.single.push_back(change);
            return;
        }
        let key = change.object().key();
        let (number, before) = match self.merged.remove(&key) {
            Some((number, before)) => (Some(number), Some(before)),
            None => (None, None),
        };
        match Merged::and(before, change) {
            Some(merged) => self.put(key, number, merged),
            None => {
                number.map(|number| self.order.remove(&number));
            }
        }
    }

    /// An object that exists when the handler is added.
    pub(super) fn push_known(&mut self, key: ObjectKey) {
        self.put(key, None, Merged::Added { initial: true });
    }

    fn put(&mut self, key: ObjectKey, number: Option<u64>, merged: Merged) {
        let number = number.unwrap_or_else(|| {
            self.next += 1;
            self.order.insert(self.next, key.clone());
            self.next
        });
        self.merged.insert(key, (number, merged));
    }

    pub(super) fn next(&mut self) -> Option<Next> {
        match self.single.pop_front() {
            Some(change) => Some(Next::Change(change)),
            None => self.order.first_key_value().map(|(_, key)| Next::Merged(key.clone())),
        }
    }

    /// The merged changes of an object, if there still are any. `now` is the object if it exists; no change may come
    /// between that and this call.
    pub(super) fn take(&mut self, key: &ObjectKey, now: impl FnOnce() -> Option<Shared>) -> [Option<Told>; 2] {
        let Some((number, merged)) = self.merged.remove(key) else {
            return [None, None];
        };
        self.order.remove(&number);
        merged.resolve(now)
    }

    /// How many entries there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        assert_eq!(self.merged.len(), self.order.len());
        self.single.len() + self.merged.len()
    }
}

#[cfg(test)]
mod tests;
