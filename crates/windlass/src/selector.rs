//! Which objects a list is of: labels and fields, parsed once and matched against what is cached.
//!
//! What is parsed here selects the same objects as it does on the server: the grammar is that of
//! `apimachinery/pkg/labels/selector.go` and `apimachinery/pkg/fields/selector.go`. A server knows only some fields of
//! each kind; here every field with a single value can be selected by.

mod fields;
mod labels;
mod scalar;

pub(crate) use fields::FieldSelector;
pub use labels::Labels;
