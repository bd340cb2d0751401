//! Saying no: a status with code, reason and the fields that are to blame.

use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails, StatusSummary};
use serde::Serialize;

use super::Warnings;
use crate::client::ClientError;
use crate::object::TypedObject;
use crate::report::kube_error;

/// Why a request is refused. The user who made it reads this.
///
/// Every error converts into it with `?` or `into()`: a text or an error of one's own becomes
/// `403 Forbidden`, as in controller-runtime; what an API server answered is passed on as it is.
///
/// ```
/// use windlass::webhook::Denied;
///
/// fn check(tricks: usize) -> Result<(), Denied> {
///     if tricks > 9 {
///         return Err(Denied::new("nine tricks are enough"));
///     }
///     Ok(())
/// }
/// let denied = check(10).unwrap_err();
/// assert_eq!(denied.status().code, 403);
/// assert_eq!(denied.status().message, "nine tricks are enough");
/// ```
// Not an `std::error::Error` itself, so that every error can convert into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Denied {
    status: Box<Status>,
    warnings: Warnings,
}

impl Denied {
    /// Refused with `403 Forbidden`.
    pub fn new(message: impl Into<String>) -> Self {
        Self::with_code(403, "Forbidden", message)
    }

    /// Refused with an HTTP status code and a reason, as `(409, "Conflict")`.
    pub fn with_code(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let mut status = Status::failure(&message.into(), &reason.into());
        status.code = code;
        Self::from_status(status)
    }

    /// Refused with a whole status.
    pub fn from_status(mut status: Status) -> Self {
        status.status = Some(StatusSummary::Failure);
        if status.code == 0 {
            status.code = 403;
        }
        Self { status: status.boxed(), warnings: Warnings::default() }
    }

    /// Tells the user something besides.
    #[must_use]
    pub fn warn(mut self, warnings: Warnings) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// What the user will read.
    pub fn status(&self) -> &Status {
        &self.status
    }

    pub(super) fn into_parts(self) -> (Status, Warnings) {
        (*self.status, self.warnings)
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Denied {
    fn from(error: E) -> Self {
        let error = error.into();
        match answered(&*error) {
            Some(status) => Self::from_status(status),
            None => Self::new(error.to_string()),
        }
    }
}

/// What an API server said, if this error comes from one.
fn answered(error: &(dyn std::error::Error + 'static)) -> Option<Status> {
    let mut error = Some(error);
    while let Some(current) = error {
        if let Some(client) = current.downcast_ref::<ClientError>() {
            return client.status().cloned();
        }
        if let Some(kube::Error::Api(status)) = kube_error(current) {
            return Some((**status).clone());
        }
        error = current.source();
    }
    None
}

/// What is wrong with the fields of an object, in the words Kubernetes uses for its own kinds.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::webhook::FieldErrors;
///
/// let mut errors = FieldErrors::default();
/// errors.required("data.name", "every pet has one");
/// errors.invalid("data.legs", "many", "must be a number");
/// let denied = errors.into_result::<ConfigMap>("thor").unwrap_err();
/// assert_eq!(denied.status().code, 422);
/// assert_eq!(
///     denied.status().message,
///     "ConfigMap \"thor\" is invalid: [data.name: Required value: every pet has one, \
///      data.legs: Invalid value: \"many\": must be a number]"
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors {
    causes: Vec<(String, &'static str, String)>,
}

impl FieldErrors {
    /// A value that is not allowed.
    pub fn invalid(&mut self, field: impl Into<String>, value: impl Serialize, detail: &str) {
        self.push(field, "FieldValueInvalid", &valued("Invalid value", &value), detail);
    }

    /// A value that is missing.
    pub fn required(&mut self, field: impl Into<String>, detail: &str) {
        self.push(field, "FieldValueRequired", "Required value", detail);
    }

    /// A field that must not be set, or not be changed.
    pub fn forbidden(&mut self, field: impl Into<String>, detail: &str) {
        self.push(field, "FieldValueForbidden", "Forbidden", detail);
    }

    /// A value that must be unique and is not.
    pub fn duplicate(&mut self, field: impl Into<String>, value: impl Serialize) {
        self.push(field, "FieldValueDuplicate", &valued("Duplicate value", &value), "");
    }

    /// A value that refers to something that does not exist.
    pub fn not_found(&mut self, field: impl Into<String>, value: impl Serialize) {
        self.push(field, "FieldValueNotFound", &valued("Not found", &value), "");
    }

    /// A value that is none of those there are.
    pub fn not_supported(&mut self, field: impl Into<String>, value: impl Serialize, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = match supported.as_slice() {
            [] => String::new(),
            values => format!("supported values: {}", values.join(", ")),
        };
        self.push(field, "FieldValueNotSupported", &valued("Unsupported value", &value), &detail);
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.causes.is_empty()
    }

    /// Admits the object without a warning if nothing is wrong, else denies it as `422 Invalid`.
    pub fn into_result<K: TypedObject>(self, name: &str) -> Result<Warnings, Denied> {
        if self.is_empty() {
            return Ok(Warnings::default());
        }
        let dynamic = K::DynamicType::default();
        let (group, kind) = (K::group(&dynamic), K::kind(&dynamic));
        let qualified = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
        let mut messages: Vec<String> = Vec::new();
        for (field, _, body) in &self.causes {
            let message = format!("{field}: {body}");
            if !messages.contains(&message) {
                messages.push(message);
            }
        }
        let list = match messages.as_slice() {
            [single] => single.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let causes = self.causes.into_iter();
        let causes = causes.map(|(field, reason, message)| StatusCause { reason: reason.into(), message, field });
        let mut status = Status::failure(&format!("{qualified} {name:?} is invalid: {list}"), "Invalid");
        status.code = 422;
        status.details = Some(StatusDetails {
            name: name.to_owned(),
            group: group.into_owned(),
            kind: kind.into_owned(),
            uid: String::new(),
            causes: causes.collect(),
            retry_after_seconds: 0,
        });
        Err(Denied::from_status(status))
    }

    fn push(&mut self, field: impl Into<String>, reason: &'static str, what: &str, detail: &str) {
        let body = if detail.is_empty() { what.to_owned() } else { format!("{what}: {detail}") };
        self.causes.push((field.into(), reason, body));
    }
}

fn valued(what: &str, value: &impl Serialize) -> String {
    match serde_json::to_string(value) {
        Ok(value) => format!("{what}: {value}"),
        Err(_) => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;

    use super::*;

    #[test]
    fn fields_are_named_as_kubernetes_names_them() {
        let mut errors = FieldErrors::default();
        errors.not_supported("spec.strategy.type", "Slow", &["Recreate", "RollingUpdate"]);
        let denied = errors.into_result::<Deployment>("web").expect_err("denied");
        let (status, _) = denied.into_parts();
        assert_eq!(
            status.message,
            "Deployment.apps \"web\" is invalid: spec.strategy.type: Unsupported value: \"Slow\": supported values: \
             \"Recreate\", \"RollingUpdate\""
        );
        let details = status.details.expect("details");
        assert_eq!((details.group.as_str(), details.kind.as_str()), ("apps", "Deployment"));
        assert_eq!(details.causes[0].reason, "FieldValueNotSupported");
        assert_eq!(details.causes[0].field, "spec.strategy.type");
        assert!(details.causes[0].message.starts_with("Unsupported value: \"Slow\""));
    }

    #[test]
    fn what_a_server_said_is_passed_on() {
        let mut status = Status::failure("no such thing", "NotFound");
        status.code = 404;
        let denied = Denied::from(kube::Error::Api(status.boxed()));
        assert_eq!((denied.status().code, denied.status().reason.as_str()), (404, "NotFound"));
        let denied: Denied = "no".into();
        assert_eq!((denied.status().code, denied.status().reason.as_str()), (403, "Forbidden"));
    }
}
