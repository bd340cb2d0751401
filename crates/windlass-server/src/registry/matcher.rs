//! Which objects of a collection a request is about: namespace, label selector, field selector.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::stored;
use crate::catalog::Served;
use crate::codec::peek::Raw;
use crate::field::quote;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::Status;

/// Selects objects by looking at their stored bytes.
pub(super) struct Matcher {
    served: Arc<Served>,
    labels: LabelSelector,
    fields: FieldSelector,
    /// Whether a field beyond the metadata is asked for, so that the object must be decoded.
    decodes: bool,
}

impl Matcher {
    /// Fails if a field cannot be selected by.
    pub(super) fn new(served: &Arc<Served>, labels: LabelSelector, fields: FieldSelector) -> Result<Self, Status> {
        let custom = served.custom().and_then(|kind| kind.version(&served.version));
        let known = |field: &str| {
            matches!(field, "metadata.name" | "metadata.namespace")
                || served.strategy().selectable_fields().contains(&field)
                || custom.is_some_and(|version| version.selectable_fields.iter().any(|known| &**known == field))
        };
        if let Some(term) = fields.terms().iter().find(|term| !known(&term.field)) {
            return Err(Status::bad_request(unknown_field(served, &term.field)));
        }
        let decodes = fields.terms().iter().any(|term| !term.field.starts_with("metadata."));
        Ok(Self { served: Arc::clone(served), labels, fields, decodes })
    }

    /// Whether everything matches.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one name that can match, if the selector names one.
    pub(super) fn only_name(&self) -> Option<&str> {
        self.fields.requires("metadata.name")
    }

    /// Whether a stored object matches.
    pub(super) fn matches(&self, object: &[u8]) -> bool {
        if self.is_empty() {
            return true;
        }
        let metadata = Raw::new(object).field("metadata");
        if !self.labels.is_empty() {
            let labels = metadata.and_then(|metadata| metadata.field("labels"));
            let get = |key: &str| -> Option<Cow<'_, str>> { labels?.field(key)?.as_str() };
            if !self.labels.matches(get) {
                return false;
            }
        }
        if self.fields.is_empty() {
            return true;
        }
        let decoded = if self.decodes { stored::decode(object).unwrap_or(Value::Null) } else { Value::Null };
        self.fields.matches(|field| match field.strip_prefix("metadata.") {
            Some(name @ ("name" | "namespace")) => {
                metadata.and_then(|m| m.field(name)?.as_str()).unwrap_or_default().into_owned()
            }
            _ => self.served.strategy().field_value(&decoded, field),
        })
    }
}

/// Kinds that have selectable fields of their own word the refusal differently from those without.
fn unknown_field(served: &Served, field: &str) -> String {
    if served.custom || !served.strategy().selectable_fields().is_empty() {
        format!("field label not supported: {field}")
    } else {
        let field = quote(field);
        format!("{field} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    }
}
