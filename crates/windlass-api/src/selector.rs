//! Label and field selectors: parsed once a request, matched against many objects.
//!
//! The grammar and the wording of errors follow `apimachinery/pkg/labels/selector.go` and
//! `apimachinery/pkg/fields/selector.go`.

pub mod field;
pub mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;
