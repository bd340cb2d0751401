//! Checks that many kinds share: names, labels, selectors, quantities, ports, object metadata.
//!
//! Every check takes the [`Path`](crate::field::Path) it reports at and appends to a
//! [`FieldErrors`](crate::field::FieldErrors); rules about single strings live in [`names`] and
//! return the reasons a string is refused, in upstream's words. Nothing here knows a particular kind.

pub mod access;
pub mod conditions;
pub mod cron;
pub mod difference;
pub mod metadata;
pub mod net;
pub mod selector;
pub mod values;

pub use windlass_cel::go::quantity;
pub use windlass_cel::names;
