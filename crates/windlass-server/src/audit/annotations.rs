//! What the parts of the server that a request passes add to its event: upstream's `audit.AddAuditAnnotation`.
//!
//! The handle is cloned along with the request. It does nothing for a request that is not recorded, and values are not
//! even computed then. The first value of a key stays.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::Level;
use crate::field::go_json;
use crate::validation::names;

/// Annotations by key.
pub(super) type All = BTreeMap<Cow<'static, str>, String>;

/// The annotations of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Annotations(Option<Arc<Noted>>);

#[derive(Debug)]
struct Noted {
    /// How much is recorded of the request.
    level: Level,
    all: Mutex<All>,
}

impl Annotations {
    pub(super) fn new(level: Level) -> Self {
        Self(Some(Arc::new(Noted { level, all: Mutex::default() })))
    }

    /// Adds an annotation of the server's own.
    pub(crate) fn add(&self, key: impl Into<Cow<'static, str>>, value: impl FnOnce() -> String) {
        self.add_from(Level::Metadata, key, value);
    }

    /// Adds one that is only for events of a level or a higher one.
    pub(crate) fn add_from(&self, level: Level, key: impl Into<Cow<'static, str>>, value: impl FnOnce() -> String) {
        if let Some(noted) = self.0.as_ref().filter(|noted| noted.level >= level) {
            let mut all = noted.all.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(key.into()).or_insert_with(value);
        }
    }

    /// Adds one whose name a user has chosen. One that is not a name is left out, as upstream does.
    pub(crate) fn add_named(&self, owner: &str, name: &str, value: &str) {
        if self.0.is_none() {
            return;
        }
        let key = format!("{owner}/{name}");
        if name.contains('/') || !names::qualified_name(&key).is_empty() {
            tracing::warn!(key, "an audit annotation was left out: its key is not a qualified name");
            return;
        }
        self.add(key, || value.to_owned());
    }

    /// What was added so far.
    pub(super) fn all(&self) -> All {
        let noted = self.0.as_ref();
        noted.map(|noted| noted.all.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }
}

/// A value that is an object, as Go writes a struct: its fields in this order.
pub(crate) fn object(fields: &[(&str, Value)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{}", go_json(value))).collect();
    format!("{{{}}}", fields.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_stays_and_levels_count() {
        let annotations = Annotations::new(Level::Metadata);
        annotations.add("a", || "1".to_owned());
        annotations.add("a", || "2".to_owned());
        annotations.add_from(Level::Request, "b", || unreachable!("nobody is to read it"));
        annotations.add_named("hook.example.com", "c", "3");
        annotations.add_named("hook.example.com", "c/d", "4");
        annotations.add_named("hook.example.com", "no name", "5");
        let expected = [("a", "1"), ("hook.example.com/c", "3")];
        assert_eq!(annotations.all(), expected.map(|(key, value)| (key.into(), value.to_owned())).into());
        Annotations::default().add("a", || unreachable!("nothing is recorded"));
    }

    #[test]
    fn objects_are_written_as_go_writes_them() {
        let text = object(&[("webhook", "a<b".into()), ("mutated", true.into())]);
        assert_eq!(text, r#"{"webhook":"a\u003cb","mutated":true}"#);
    }
}
