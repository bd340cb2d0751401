//! `spec.conversion`: none, or a webhook that can be reached and speaks a review version we know.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Options;
use crate::field::{FieldError, FieldErrors, Path};
use crate::strategy::webhook::{webhook_service, webhook_url};
use crate::validation::access::Access;
use crate::validation::{names, values};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

pub(super) fn validate(spec: &Value, options: Options, path: &Path<'_>, errors: &mut FieldErrors) {
    if !spec.has("conversion") {
        return;
    }
    let conversion = spec.at("conversion");
    let strategy = conversion.text("strategy");
    if strategy != "None" && spec.flag("preserveUnknownFields") {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid(&path.child("strategy"), strategy, detail));
    }
    values::required_one_of(conversion, "strategy", &["None", "Webhook"], path, errors);
    let webhook = conversion.at("webhook");
    let config_path = path.child("webhookClientConfig");
    let versions_path = path.child("conversionReviewVersions");
    let versions = webhook.texts("conversionReviewVersions");
    if strategy == "Webhook" {
        client_config(webhook, options, &config_path, errors);
        review_versions(&versions, options, &versions_path, errors);
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if webhook.has("clientConfig") {
        errors.push(FieldError::forbidden(&config_path, detail));
    }
    if !versions.is_empty() {
        errors.push(FieldError::forbidden(&versions_path, detail));
    }
}

fn client_config(webhook: &Value, options: Options, path: &Path<'_>, errors: &mut FieldErrors) {
    if !webhook.has("clientConfig") {
        errors.push(FieldError::required(path, "required when strategy is set to Webhook"));
        return;
    }
    let config = webhook.at("clientConfig");
    match (config.text_opt("url"), config.has("service")) {
        (Some(url), false) => webhook_url(url, &path.child("url"), errors),
        (None, true) => webhook_service(config.at("service"), &path.child("service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
    if !options.invalid_ca_bundle && has_invalid_ca_bundle(webhook) {
        let bundle = config.text("caBundle");
        let detail = "unable to load root certificates: unable to parse bytes as PEM block";
        errors.push(FieldError::invalid(&path.child("caBundle"), bundle, detail));
    }
}

/// Whether the webhook's CA bundle is there and holds no certificate.
pub(super) fn has_invalid_ca_bundle(webhook: &Value) -> bool {
    let bundle = webhook.at("clientConfig").text("caBundle");
    let pem = || STANDARD.decode(bundle).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    !bundle.is_empty() && !pem().is_some_and(|pem| pem.contains("-----BEGIN CERTIFICATE-----"))
}

fn review_versions(versions: &[&str], options: Options, path: &Path<'_>, errors: &mut FieldErrors) {
    if versions.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let at = path.index(index);
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(&at, *version, "duplicate version"));
        } else {
            values::invalid_for_each(&at, version, names::dns1035_label(version), errors);
        }
    }
    if options.recognized_review && !recognizes_or_empty(versions) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(path, versions.to_vec(), detail));
    }
}

pub(super) fn recognizes_or_empty(versions: &[&str]) -> bool {
    versions.is_empty() || versions.iter().any(|version| REVIEW_VERSIONS.contains(version))
}
