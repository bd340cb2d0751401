//! What a webhook answers, and how that travels.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use json_patch::Patch;
use kube::core::Status;
use serde_json::{Value, json};

use super::Denied;

/// What the user should know although the request is admitted. `kubectl` prints it.
///
/// Keep each under 120 characters; the API server cuts long ones off.
///
/// ```
/// use windlass::webhook::Warnings;
///
/// let warnings = Warnings::from("spec.colour is deprecated, use spec.color");
/// assert_eq!(warnings.iter().count(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings(Vec<String>);

impl Warnings {
    /// Nothing to say.
    pub fn none() -> Self {
        Self::default()
    }

    /// One more.
    pub fn push(&mut self, warning: impl Into<String>) {
        self.0.push(warning.into());
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl Extend<String> for Warnings {
    fn extend<I: IntoIterator<Item = String>>(&mut self, warnings: I) {
        self.0.extend(warnings);
    }
}

impl IntoIterator for Warnings {
    type Item = String;
    type IntoIter = std::vec::IntoIter<String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<String> for Warnings {
    fn from_iter<I: IntoIterator<Item = String>>(warnings: I) -> Self {
        Self(warnings.into_iter().collect())
    }
}

impl From<&str> for Warnings {
    fn from(warning: &str) -> Self {
        Self(vec![warning.to_owned()])
    }
}

impl From<String> for Warnings {
    fn from(warning: String) -> Self {
        Self(vec![warning])
    }
}

impl From<Vec<String>> for Warnings {
    fn from(warnings: Vec<String>) -> Self {
        Self(warnings)
    }
}

/// The answer of a [raw handler](super::Handle).
///
/// ```
/// use serde_json::json;
/// use windlass::webhook::{Denied, Response};
///
/// let admitted = Response::allowed().warn("careful").audit("team", "blue");
/// assert!(admitted.is_allowed());
/// let denied = Response::from(Denied::new("not on Sundays"));
/// assert!(!denied.is_allowed());
/// let changed = Response::changed(&json!({"data": {}}), &json!({"data": {"legs": "4"}}));
/// assert_eq!(changed.patch().map(|patch| patch.0.len()), Some(1));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    allowed: bool,
    status: Option<Status>,
    patch: Option<Patch>,
    audit: BTreeMap<String, String>,
    warnings: Warnings,
}

impl Response {
    /// Admits the request as it is.
    pub fn allowed() -> Self {
        Self { allowed: true, status: None, patch: None, audit: BTreeMap::new(), warnings: Warnings::none() }
    }

    /// Admits the request with what has changed between two states of its object.
    pub fn changed(before: &Value, after: &Value) -> Self {
        Self::allowed().with_patch(json_patch::diff(before, after))
    }

    /// Changes the object by a JSON patch.
    #[must_use]
    pub fn with_patch(mut self, patch: Patch) -> Self {
        self.patch = (!patch.0.is_empty()).then_some(patch);
        self
    }

    /// Tells the user something.
    #[must_use]
    pub fn warn(mut self, warnings: impl Into<Warnings>) -> Self {
        self.warnings.extend(warnings.into());
        self
    }

    /// Adds an annotation to the API server's audit log.
    #[must_use]
    pub fn audit(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit.insert(key.into(), value.into());
        self
    }

    /// Whether the request is admitted.
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// How the object is changed, if it is.
    pub fn patch(&self) -> Option<&Patch> {
        self.patch.as_ref()
    }

    /// Why the request is refused, if it is.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// The `response` of a review.
    pub(super) fn encode(&self, uid: &str) -> Result<Value, serde_json::Error> {
        let mut response = json!({"uid": uid, "allowed": self.allowed});
        response["status"] = match &self.status {
            Some(status) => serde_json::to_value(status)?,
            None => json!({"code": 200}),
        };
        // Never a patch for what is refused.
        if let Some(patch) = self.patch.as_ref().filter(|_| self.allowed) {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = BASE64_STANDARD.encode(serde_json::to_vec(patch)?).into();
        }
        if !self.audit.is_empty() {
            response["auditAnnotations"] = serde_json::to_value(&self.audit)?;
        }
        if !self.warnings.0.is_empty() {
            response["warnings"] = serde_json::to_value(&self.warnings.0)?;
        }
        Ok(response)
    }
}

impl From<Denied> for Response {
    fn from(denied: Denied) -> Self {
        let (status, warnings) = denied.into_parts();
        Self { allowed: false, status: Some(status), patch: None, audit: BTreeMap::new(), warnings }
    }
}

impl From<Result<Warnings, Denied>> for Response {
    fn from(verdict: Result<Warnings, Denied>) -> Self {
        match verdict {
            Ok(warnings) => Self::allowed().warn(warnings),
            Err(denied) => denied.into(),
        }
    }
}
