//! What handlers are told.

use std::sync::Arc;

use super::erased::{AnyObject, Shared, typed};
use crate::object::Object;

/// A change of one object, as a reflector's handlers see it.
///
/// ```
/// use windlass::informer::Change;
///
/// fn log<K: windlass::Object>(change: &Change<K>) {
///     match change {
///         Change::Added { object, initial } => println!("{:?} {initial}", object.meta().name),
///         Change::Updated { old, new } => println!("{:?} -> {:?}", old.meta().generation, new.meta().generation),
///         Change::Resync { object } | Change::Deleted { object } => println!("{:?}", object.meta().name),
///     }
/// }
/// ```
#[derive(Debug)]
pub enum Change<K: ?Sized> {
    /// An object appeared; `initial` when it was there before the reflector looked.
    Added {
        /// The object.
        object: Arc<K>,
        /// Whether it is part of the initial state rather than news.
        initial: bool,
    },
    /// An object changed.
    Updated {
        /// What it was.
        old: Arc<K>,
        /// What it is.
        new: Arc<K>,
    },
    /// Nothing changed; a reminder that the object exists.
    Resync {
        /// The object.
        object: Arc<K>,
    },
    /// An object is gone.
    Deleted {
        /// Its last known state.
        object: Arc<K>,
    },
}

impl<K: ?Sized> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added { object: Arc::clone(object), initial: *initial },
            Self::Updated { old, new } => Self::Updated { old: Arc::clone(old), new: Arc::clone(new) },
            Self::Resync { object } => Self::Resync { object: Arc::clone(object) },
            Self::Deleted { object } => Self::Deleted { object: Arc::clone(object) },
        }
    }
}

impl<K: ?Sized> Change<K> {
    /// The object after the change; for a deletion its last known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added { object, .. } | Self::Resync { object } | Self::Deleted { object } => object,
            Self::Updated { new, .. } => new,
        }
    }
}

impl Change<dyn AnyObject> {
    /// The change of an object that is known to be of a type.
    pub(crate) fn typed<K: Object>(&self) -> Change<K> {
        let typed = |object: &Shared| typed(Arc::clone(object));
        match self {
            Self::Added { object, initial } => Change::Added { object: typed(object), initial: *initial },
            Self::Updated { old, new } => Change::Updated { old: typed(old), new: typed(new) },
            Self::Resync { object } => Change::Resync { object: typed(object) },
            Self::Deleted { object } => Change::Deleted { object: typed(object) },
        }
    }
}
