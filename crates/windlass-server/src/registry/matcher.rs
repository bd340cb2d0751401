//! Which objects of a collection a request is about: namespace, label selector, field selector.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;
use windlass_store::{Entry, Revision};

use super::stored;
use crate::api::Api;
use crate::catalog::Served;
use crate::codec::peek::Raw;
use crate::effort;
use crate::field::quote;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::Status;
use crate::versions;
use windlass_kinds::crd::Conversion;

/// What looking at an object's metadata takes, in bytes of objects that are decoded.
const PEEKED: usize = 16;

/// Selects objects by looking at their stored bytes; at the object in the served version where that says
/// something else.
pub(crate) struct Matcher {
    served: Arc<Served>,
    labels: LabelSelector,
    fields: FieldSelector,
    /// See [`Matcher::text`].
    text: OnceLock<Arc<str>>,
    /// Whether a field beyond the metadata is asked for, so that the object must be decoded.
    decodes: bool,
    /// Whether stored objects may have to be converted before they are looked at.
    converts: bool,
}

impl Matcher {
    /// Fails if a field cannot be selected by.
    pub(crate) fn new(served: &Arc<Served>, labels: LabelSelector, fields: FieldSelector) -> Result<Self, Status> {
        let custom = served.custom().and_then(|kind| kind.version(&served.version));
        let known = |field: &str| {
            field == "metadata.name"
                || (field == "metadata.namespace" && (served.namespaced || served.custom || !has_own_fields(served)))
                || served.strategy().selectable_fields().contains(&field)
                || custom.is_some_and(|version| version.selectable_fields.iter().any(|known| &**known == field))
        };
        if let Some(term) = fields.terms().iter().find(|term| !known(&term.field)) {
            return Err(Status::bad_request(unknown_field(served, &term.field)));
        }
        let decodes = fields.terms().iter().any(|term| !term.field.starts_with("metadata."));
        // Of the metadata, a conversion can change the labels.
        let converts = served
            .custom()
            .is_some_and(|kind| decodes || (matches!(kind.conversion, Conversion::Webhook(_)) && !labels.is_empty()));
        Ok(Self { served: Arc::clone(served), labels, fields, text: OnceLock::new(), decodes, converts })
    }

    /// The selector, written out: the same for those that select the same in the same way.
    pub(super) fn text(&self) -> Arc<str> {
        let write = || format!("{:?} {:?}", self.labels, self.fields).into();
        Arc::clone(self.text.get_or_init(write))
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
    pub(super) async fn matches(&self, api: &Api, object: &Bytes, written: Revision) -> Result<bool, Status> {
        if self.is_empty() {
            return Ok(true);
        }
        if !self.converts || versions::as_is(&self.served, written) {
            return Ok(self.matches_as_is(object));
        }
        // Boxed: few selectors need this, and all would be as large as one that does.
        let value = Box::pin(versions::to_served(api, &self.served, object)).await?;
        Ok(self.matches_value(&value))
    }

    /// Which stored objects match. Those that must be converted are, all at once.
    pub(crate) async fn select(&self, api: &Api, entries: &[Entry]) -> Result<Vec<bool>, Status> {
        let looked_at = |entry: &Entry| if self.decodes || self.converts { entry.value.len() } else { PEEKED };
        api.offload
            .rest_of_request(self.served.qualified(), effort::is_large_read(entries.iter().map(looked_at).sum()))
            .await;
        let as_is = |entry: &Entry| !self.converts || versions::as_is(&self.served, entry.modified);
        let others: Vec<&Entry> = entries.iter().filter(|entry| !as_is(entry)).collect();
        let converted = if others.is_empty() {
            Vec::new()
        } else {
            let stored = others.iter().map(|entry| &*entry.value);
            Box::pin(versions::all_to_served(api, &self.served, stored)).await?
        };
        let mut converted = converted.iter();
        let matches = entries.iter().map(|entry| {
            if as_is(entry) {
                return self.matches_as_is(&entry.value);
            }
            converted.next().is_some_and(|value| self.matches_value(value))
        });
        Ok(matches.collect())
    }

    fn matches_as_is(&self, object: &[u8]) -> bool {
        if self.is_empty() {
            return true;
        }
        let metadata = Raw::new(object).field("metadata");
        let labels = metadata.and_then(|metadata| metadata.field("labels"));
        if !self.labels.is_empty() && !self.labels.matches(|key| labels?.field(key)?.as_str()) {
            return false;
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

    /// Whether an object in the served version matches.
    fn matches_value(&self, object: &Value) -> bool {
        let metadata = object.get("metadata");
        let labels = metadata.and_then(|metadata| metadata.get("labels"));
        let label = |key: &str| labels?.get(key)?.as_str().map(Cow::Borrowed);
        self.labels.matches(label)
            && self.fields.matches(|field| match field.strip_prefix("metadata.") {
                Some(name @ ("name" | "namespace")) => {
                    metadata.and_then(|m| m.get(name)?.as_str()).unwrap_or_default().to_owned()
                }
                _ => self.served.strategy().field_value(object, field),
            })
    }
}

/// Whether a kind has selectable fields beyond those that all have.
fn has_own_fields(served: &Served) -> bool {
    !served.strategy().selectable_fields().is_empty()
}

/// Kinds that have selectable fields of their own word the refusal differently from those without.
fn unknown_field(served: &Served, field: &str) -> String {
    if (&*served.group, &*served.kind) == ("resource.k8s.io", "ResourceSlice") {
        format!("field label not supported for {}, Kind=ResourceSlice: {field}", served.api_version())
    } else if served.custom || has_own_fields(served) {
        format!("field label not supported: {field}")
    } else {
        let field = quote(field);
        format!("{field} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    }
}
