//! Request options: query parameters (and the body of a delete) checked as upstream checks them.

use serde_json::Value;

use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::request::Query;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{Qualified, Status};

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Which labels objects must have.
    pub labels: LabelSelector,
    /// Which fields objects must have.
    pub fields: FieldSelector,
    /// Whether this is a watch.
    pub watch: bool,
    /// Whether the watcher understands bookmarks.
    pub bookmarks: bool,
    /// The revision asked for, as sent.
    pub resource_version: Option<String>,
    /// How the revision is meant.
    pub version_match: Option<VersionMatch>,
    /// When a watch ends.
    pub timeout_seconds: Option<u64>,
    /// The page size; 0 is everything.
    pub limit: usize,
    /// Where the next page starts.
    pub continue_token: Option<String>,
    /// Whether a watch begins with the state.
    pub send_initial_events: Option<bool>,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// State at exactly that revision.
    Exact,
    /// State at that revision or a newer one.
    NotOlderThan,
}

impl ListOptions {
    /// Reads the query of a list or watch.
    pub fn parse(query: &Query, watch: bool) -> Result<Self, Status> {
        let number = |name| -> Result<Option<i64>, Status> {
            query.get(name).map(parse_int).transpose().map_err(Status::bad_request)
        };
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default());
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default());
        let options = Self {
            watch,
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            resource_version: query.get("resourceVersion").map(str::to_owned),
            version_match: None,
            timeout_seconds: number("timeoutSeconds")?.and_then(|n| u64::try_from(n).ok()),
            limit: number("limit")?.and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
            continue_token: query.get("continue").map(str::to_owned),
            send_initial_events: query.flag("sendInitialEvents"),
            labels: labels.map_err(Status::bad_request)?,
            fields: fields.map_err(Status::bad_request)?,
        };
        options.with_version_match(query.get("resourceVersionMatch"))
    }

    fn with_version_match(mut self, text: Option<&str>) -> Result<Self, Status> {
        self.version_match = match text {
            Some("Exact") => Some(VersionMatch::Exact),
            Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
            _ => None,
        };
        let mut errors = FieldErrors::default();
        let path = Path::new("resourceVersionMatch");
        let mut forbid = |detail: &str| errors.push(FieldError::forbidden(&path, detail));
        if self.watch {
            if self.send_initial_events.is_some() && self.version_match != Some(VersionMatch::NotOlderThan) {
                forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
            }
            if let Some(text) = text {
                if self.send_initial_events.is_none() {
                    forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
                }
                if self.version_match != Some(VersionMatch::NotOlderThan) {
                    errors.push(FieldError::not_supported(&path, text, &["NotOlderThan"]));
                }
                if self.continue_token.is_some() {
                    let detail = "resourceVersionMatch is forbidden when continue is provided";
                    errors.push(FieldError::forbidden(&path, detail));
                }
            }
        } else {
            if let Some(text) = text {
                if self.resource_version.is_none() {
                    forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
                }
                if self.continue_token.is_some() {
                    forbid("resourceVersionMatch is forbidden when continue is provided");
                }
                if self.version_match.is_none() {
                    errors.push(FieldError::not_supported(&path, text, &["Exact", "NotOlderThan", ""]));
                }
                if self.version_match == Some(VersionMatch::Exact) && self.resource_version.as_deref() == Some("0") {
                    let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                    errors.push(FieldError::forbidden(&path, detail));
                }
            }
            if self.send_initial_events.is_some() {
                let detail = "sendInitialEvents is forbidden for list";
                errors.push(FieldError::forbidden(&Path::new("sendInitialEvents"), detail));
            }
        }
        if errors.is_empty() { Ok(self) } else { Err(invalid_options("ListOptions", &errors)) }
    }
}

/// How strictly unknown and duplicate fields are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped and the client is warned.
    #[default]
    Warn,
    /// They are refused.
    Strict,
}

/// Options of create, update and patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Go through all the motions but store nothing.
    pub dry_run: bool,
    /// Who the written fields belong to.
    pub field_manager: Option<String>,
    /// How unknown fields are treated.
    pub field_validation: FieldValidation,
    /// Whether apply takes fields away from other managers.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Reads the query of a write; `kind` names the options in errors, e.g. `CreateOptions`.
    pub fn parse(query: &Query, kind: &'static str, apply: bool) -> Result<Self, Status> {
        let mut errors = FieldErrors::default();
        let dry_run: Vec<&str> = query.all("dryRun").filter(|v| !v.is_empty()).collect();
        check_dry_run(&dry_run, &mut errors);
        let manager = query.get("fieldManager");
        let path = Path::new("fieldManager");
        if let Some(manager) = manager {
            if manager.len() > 128 {
                errors.push(FieldError::too_long(&path, 128));
            }
            if let Some((i, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
                let detail = format!("invalid character {} (at position {i})", rune(c));
                errors.push(FieldError::invalid(&path, manager, detail));
            }
        }
        let force = query.flag("force");
        if kind == "PatchOptions" {
            if apply && manager.is_none() {
                let detail = "is required for apply patch";
                errors.push(FieldError::required(&path, detail));
            }
            if !apply && force.is_some() {
                errors.push(FieldError::forbidden(&Path::new("force"), "may not be specified for non-apply patch"));
            }
        }
        let field_validation = match query.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported(&Path::new("fieldValidation"), other, &supported));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(invalid_options(kind, &errors));
        }
        Ok(Self { dry_run: !dry_run.is_empty(), field_manager: manager.map(str::to_owned), field_validation, force })
    }
}

/// What happens to an object's dependents when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They go later; the object goes at once.
    Background,
    /// They go first.
    Foreground,
    /// They stay.
    Orphan,
}

/// Options of delete and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Go through all the motions but delete nothing.
    pub dry_run: bool,
    /// How long the object may take to stop.
    pub grace_seconds: Option<i64>,
    /// What happens to dependents.
    pub propagation: Option<Propagation>,
    /// Whether the legacy `orphanDependents: false` was sent, which answers 202.
    pub legacy_no_orphans: bool,
    /// The uid the object must have.
    pub uid: Option<String>,
    /// The resourceVersion the object must have.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads the body where there is one, else the query.
    pub fn parse(query: &Query, body: Option<&Value>) -> Result<Self, Status> {
        match body {
            Some(body) => Self::from_body(body),
            None => Self::from_query(query),
        }
    }

    fn from_query(query: &Query) -> Result<Self, Status> {
        let grace = query.get("gracePeriodSeconds").map(parse_int).transpose().map_err(Status::bad_request)?;
        let dry_run: Vec<&str> = query.all("dryRun").filter(|v| !v.is_empty()).collect();
        Self::checked(&dry_run, grace, query.get("propagationPolicy"), query.flag("orphanDependents"), None)
    }

    fn from_body(body: &Value) -> Result<Self, Status> {
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let dry_run: Vec<&str> =
            body.get("dryRun").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let grace = body.get("gracePeriodSeconds").and_then(Value::as_i64);
        let orphan = body.get("orphanDependents").and_then(Value::as_bool);
        Self::checked(&dry_run, grace, text("propagationPolicy"), orphan, body.get("preconditions"))
    }

    fn checked(
        dry_run: &[&str],
        grace_seconds: Option<i64>,
        policy: Option<&str>,
        orphan: Option<bool>,
        preconditions: Option<&Value>,
    ) -> Result<Self, Status> {
        let mut errors = FieldErrors::default();
        let path = Path::new("propagationPolicy");
        if let (Some(policy), Some(_)) = (policy, orphan) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&path, policy, detail));
        }
        let propagation = match (policy, orphan) {
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (None, None) => None,
            (Some(other), _) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(&path, other, &supported));
                None
            }
        };
        check_dry_run(dry_run, &mut errors);
        if !errors.is_empty() {
            return Err(invalid_options("DeleteOptions", &errors));
        }
        let precondition =
            |name: &str| preconditions.and_then(|p| p.get(name)).and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            grace_seconds,
            propagation,
            legacy_no_orphans: orphan == Some(false),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
        })
    }
}

fn check_dry_run(values: &[&str], errors: &mut FieldErrors) {
    if values.iter().any(|value| *value != "All") {
        let shown = Value::from(values.to_vec()).to_string();
        let detail = "supported values: \"All\"";
        errors.push(FieldError::shown(ErrorKind::NotSupported, &Path::new("dryRun"), shown, detail));
    }
}

fn invalid_options(kind: &str, errors: &FieldErrors) -> Status {
    Status::invalid(Qualified { group: "meta.k8s.io", name: kind }, "", errors)
}

/// A whole number, with Go's words when it is not one.
pub(crate) fn parse_int(text: &str) -> Result<i64, String> {
    // Go takes no sign.
    let digits = if text.starts_with('+') { "" } else { text };
    digits.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.ParseInt: parsing {}: {why}", crate::field::quote(text))
    })
}

/// A revision, with Go's words when it is not one.
pub(crate) fn parse_revision(text: &str) -> Result<u64, String> {
    // Go takes no sign.
    let digits = if text.starts_with('+') { "" } else { text };
    digits.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            std::num::IntErrorKind::PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.ParseUint: parsing {}: {why}", crate::field::quote(text))
    })
}

fn rune(c: char) -> String {
    format!("U+{:04X}", c as u32)
}
