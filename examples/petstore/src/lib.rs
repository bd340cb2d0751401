//! Pet store.
