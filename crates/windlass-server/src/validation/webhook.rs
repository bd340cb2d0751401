//! How webhooks may be reached: a URL or a Service (`apiserver/pkg/util/webhook/validation.go`).

use serde_json::Value;

use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::names;

/// Checks `url` of a webhook's client configuration.
pub fn webhook_url(url: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        errors.push(FieldError::invalid(path, scheme, format!("'https' is the only allowed URL scheme{FORM}")));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() {
        errors.push(FieldError::invalid(path, host, format!("host must be specified{FORM}")));
    }
    if let Some(user) = user {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if !query.is_empty() {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
}

/// Checks `service` of a webhook's client configuration.
pub fn webhook_service(service: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    // Upstream's callers hand over name and namespace the wrong way round.
    for (field, reported) in [("namespace", "name"), ("name", "namespace")] {
        if service.text(field).is_empty() {
            errors.push(FieldError::required(&path.child(reported), ""));
        }
    }
    let port = service.int_opt("port").unwrap_or(443);
    let reasons = names::port_number(port);
    if !reasons.is_empty() {
        let detail = format!("port is not valid: {}", reasons.join(", "));
        errors.push(FieldError::invalid(&path.child("port"), port, detail));
    }
    let url_path = service.text("path");
    if matches!(url_path, "" | "/") {
        return;
    }
    let path = path.child("path");
    if url_path == "//" {
        errors.push(FieldError::invalid(&path, url_path, "segment[0] may not be empty"));
        return;
    }
    if !url_path.starts_with('/') {
        errors.push(FieldError::invalid(&path, url_path, "must start with a '/'"));
    }
    let mut rest = url_path.chars();
    rest.next();
    let rest = rest.as_str();
    for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if step.is_empty() {
            errors.push(FieldError::invalid(&path, url_path, format!("segment[{index}] may not be empty")));
        } else {
            for reason in names::subdomain(step) {
                errors.push(FieldError::invalid(&path, url_path, format!("segment[{index}]: {reason}")));
            }
        }
    }
}
