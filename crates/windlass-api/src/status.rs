//! The `Status` object: every failure a client sees, and how each is worded.
//!
//! One constructor per kind of failure, with upstream's code, reason, message and details. A
//! [`Status`] is also the server's error type: handlers return `Result<_, Status>` and the HTTP
//! layer writes it out.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::field::FieldErrors;

/// A failure (or, for deletes, a success) as clients see it.
#[derive(Clone, Debug)]
pub struct Status {
    /// The HTTP status code, repeated in the body.
    pub code: StatusCode,
    /// The machine-readable reason; empty where upstream sends none.
    pub reason: Cow<'static, str>,
    /// What a person reads.
    pub message: String,
    /// `details`, where there are any. Boxed: the failure path should not widen every result.
    pub details: Option<Box<Details>>,
    /// The `Retry-After` header and `details.retryAfterSeconds`.
    pub retry_after: Option<u32>,
    /// `metadata.continue`, which an expired list carries so that the client can go on.
    pub continue_token: Option<String>,
    /// What the client is warned of besides.
    pub warnings: Vec<String>,
}

/// `Status.details`.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// The object's name.
    pub name: String,
    /// Its API group.
    pub group: String,
    /// The plural resource, or the kind for [`Status::invalid`].
    pub kind: String,
    /// Its uid.
    pub uid: String,
    /// The single violations.
    pub causes: Vec<Cause>,
}

/// One of `Status.details.causes`.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The machine-readable reason; may be empty.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The field it is about; may be empty.
    pub field: String,
}

/// A group and a plural resource (or a kind) as messages name them: `deployments.apps`, `pods`.
#[derive(Clone, Copy, Debug)]
pub struct Qualified<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural resource or kind.
    pub name: &'a str,
}

impl std::fmt::Display for Qualified<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

impl Qualified<'_> {
    fn details(&self, name: &str) -> Details {
        Details {
            name: name.to_owned(),
            group: self.group.to_owned(),
            kind: self.name.to_owned(),
            ..Details::default()
        }
    }
}

impl Status {
    /// 504: the request has had all the time that it may take.
    pub fn request_timed_out() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self { message: message.to_owned(), ..Self::timed_out() }
    }

    /// 504: there is no time left.
    pub fn timed_out() -> Self {
        let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
        let mut status = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        status.details = Some(Box::default());
        status
    }

    /// A failure with no details.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            retry_after: None,
            continue_token: None,
            warnings: Vec::new(),
        }
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 404 for an object.
    pub fn not_found(resource: Qualified<'_>, name: &str) -> Self {
        let mut status =
            Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{resource} {} not found", crate::field::quote(name)));
        status.details = Some(Box::new(resource.details(name)));
        status
    }

    /// 404 for a path inside a known group that serves nothing.
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        let mut status = Self::new(StatusCode::NOT_FOUND, "NotFound", message);
        status.details = Some(Box::default());
        status
    }

    /// 405 for a verb the resource does not have.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        status.details = Some(Box::default());
        status
    }

    /// 409 for a create of something that is there.
    pub fn already_exists(resource: Qualified<'_>, name: &str) -> Self {
        let message = format!("{resource} {} already exists", crate::field::quote(name));
        let mut status = Self::new(StatusCode::CONFLICT, "AlreadyExists", message);
        status.details = Some(Box::new(resource.details(name)));
        status
    }

    /// 409 for a write that lost a race or a precondition.
    pub fn conflict(resource: Qualified<'_>, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", crate::field::quote(name));
        let mut status = Self::new(StatusCode::CONFLICT, "Conflict", message);
        status.details = Some(Box::new(resource.details(name)));
        status
    }

    /// 403.
    pub fn forbidden(resource: Qualified<'_>, name: &str, why: impl std::fmt::Display) -> Self {
        let message = match (resource.name.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} {} is forbidden: {why}", crate::field::quote(name)),
        };
        let mut status = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        status.details = Some(Box::new(resource.details(name)));
        status
    }

    /// 410 for a revision that is no longer there.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 413.
    pub fn too_large(message: impl std::fmt::Display) -> Self {
        let message = format!("Request entity too large: {message}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 429: the client is to come back after some seconds.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        let mut status = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        status.details = Some(Box::default());
        status.retry_after = Some(retry_after);
        status
    }

    /// 422 with every violation as a cause. `kind` names the kind, not the resource.
    pub fn invalid(kind: Qualified<'_>, name: &str, errors: &FieldErrors) -> Self {
        let name_quoted = crate::field::quote(name);
        let message = if errors.is_empty() {
            format!("{kind} {name_quoted} is invalid")
        } else {
            format!("{kind} {name_quoted} is invalid: {errors}")
        };
        let mut status = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        let mut details = kind.details(name);
        details.causes = errors
            .0
            .iter()
            .map(|e| Cause { reason: e.kind.reason().to_owned(), message: e.body(), field: e.field.clone() })
            .collect();
        status.details = Some(Box::new(details));
        status
    }

    /// 500 whose cause is repeated in the details, as upstream's `NewInternalError` does.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {why}");
        let mut status = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message);
        let cause = Cause { reason: String::new(), message: why.to_string(), field: String::new() };
        status.details = Some(Box::new(Details { causes: vec![cause], ..Details::default() }));
        status
    }

    /// 500 with a bare message and no reason: what upstream answers for errors it does not classify.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// Adds a cause.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        let cause = Cause { reason: reason.to_owned(), message: message.into(), field: field.to_owned() };
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// The object a client reads.
    pub fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.as_str().into());
        }
        let mut out = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata,
            "status": if self.code.is_success() { "Success" } else { "Failure" },
        });
        let Value::Object(map) = &mut out else { return out };
        if !self.message.is_empty() {
            map.insert("message".into(), self.message.as_str().into());
        }
        if !self.reason.is_empty() {
            map.insert("reason".into(), self.reason.as_ref().into());
        }
        if self.details.is_some() || self.retry_after.is_some() {
            map.insert("details".into(), self.details_value());
        }
        if self.code != StatusCode::OK {
            map.insert("code".into(), self.code.as_u16().into());
        }
        out
    }

    fn details_value(&self) -> Value {
        let mut map = Map::new();
        if let Some(details) = &self.details {
            for (key, text) in
                [("name", &details.name), ("group", &details.group), ("kind", &details.kind), ("uid", &details.uid)]
            {
                if !text.is_empty() {
                    map.insert(key.into(), text.as_str().into());
                }
            }
            if !details.causes.is_empty() {
                map.insert("causes".into(), details.causes.iter().map(Cause::to_value).collect());
            }
        }
        if let Some(seconds) = self.retry_after {
            map.insert("retryAfterSeconds".into(), seconds.into());
        }
        Value::Object(map)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                map.insert(key.into(), text.as_str().into());
            }
        }
        Value::Object(map)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}
