//! CertificateSigningRequest. The requester is recorded by the server with [`set_requester`].
//! Approvers write through `/approval`, signers through `/status`.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Strategy;
use crate::field::{FieldError, FieldErrors, Path, quote};
use crate::object;
use crate::resource::Resource;
use crate::validation::access::{Access, AccessMut};
use crate::validation::{difference, names, values};

mod pem;

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The strategy of CertificateSigningRequests.
pub(crate) struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    /// The server records the requester afterwards.
    fn prepare_create(&self, object: &mut Value) {
        object.drop_field("status");
    }

    /// Everything but the metadata stays.
    fn prepare_update(&self, object: &mut Value, old: &Value) {
        object.copy_field("spec", old);
        object.copy_field("status", old);
    }

    /// The signer may set the certificate and any condition but approval and denial, which stay as they are. The
    /// server dates conditions afterwards.
    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        object.copy_field("spec", old);
        for kind in ["Approved", "Denied"] {
            keep_conditions(object, old, kind);
        }
    }

    /// The approver may only set conditions, which the server dates afterwards.
    fn prepare_subresource(&self, _subresource: &str, object: &mut Value, old: &Value) {
        let conditions = object.at("status").clone();
        object.copy_field("spec", old);
        object.copy_field("status", old);
        object.struct_mut("status").copy_field("conditions", &conditions);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        request_and_status(object, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        request_and_status(object, Some(old), errors);
        kept_conditions(object, old, false, errors);
        certificate(object, old, false, errors);
    }

    fn validate_status_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        request_and_status(object, Some(old), errors);
        kept_conditions(object, old, false, errors);
        certificate(object, old, true, errors);
    }

    fn validate_subresource(&self, _subresource: &str, object: &Value, old: &Value, errors: &mut FieldErrors) {
        request_and_status(object, Some(old), errors);
        kept_conditions(object, old, true, errors);
        certificate(object, old, false, errors);
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }
}

/// Records the requester of the certificate, over whatever the request's body claims. Called on create.
pub fn set_requester(
    object: &mut Value,
    username: &str,
    uid: &str,
    groups: &[String],
    extra: &[(String, Vec<String>)],
) {
    let spec = object.struct_mut("spec");
    for field in ["username", "uid", "groups", "extra"] {
        spec.drop_field(field);
    }
    for (field, text) in [("username", username), ("uid", uid)] {
        if !text.is_empty() {
            spec.put(field, text);
        }
    }
    if !groups.is_empty() {
        spec.put("groups", groups.to_vec());
    }
    if !extra.is_empty() {
        let extra: serde_json::Map<String, Value> =
            extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        spec.put("extra", extra);
    }
}

/// Checks what is asked for and what became of it. `old` is what is replaced.
fn request_and_status(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let path = Path::new("spec");
    let spec = object.at("spec");
    if let Err(why) = pem_request(spec.text("request")) {
        errors.push(FieldError::invalid(&path.child("request"), spec.text("request"), why));
    }
    let usages_path = path.child("usages");
    let usages = spec.texts("usages");
    if usages.is_empty() {
        errors.push(FieldError::required(&usages_path, ""));
    }
    let mut seen = HashSet::new();
    for (i, usage) in usages.iter().enumerate() {
        if !USAGES.contains(usage) {
            errors.push(FieldError::not_supported(&usages_path.index(i), *usage, USAGES));
        }
        if !seen.insert(usage) {
            errors.push(FieldError::duplicate(&usages_path.index(i), *usage));
        }
    }
    signer_name(spec.text("signerName"), &path.child("signerName"), errors);
    if let Some(seconds) = spec.int_opt("expirationSeconds")
        && seconds < 600
    {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(&path.child("expirationSeconds"), seconds, detail));
    }
    conditions(object, errors);
    let text = object.at("status").text("certificate");
    // A certificate that stays, or that replaces one that was no better, may be anything.
    let tolerated = old.map(|old| old.at("status").text("certificate"));
    let tolerated = tolerated.is_some_and(|before| before == text || pem_certificates(before).is_err());
    if let Err(why) = pem_certificates(text)
        && !tolerated
    {
        let path = Path::new("status");
        errors.push(FieldError::invalid(&path.child("certificate"), "<certificate data>", why));
    }
}

/// A request must at least be a PEM block of the right type.
fn pem_request(base64: &str) -> Result<(), String> {
    let bytes = STANDARD.decode(base64).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    if text.contains("-----BEGIN CERTIFICATE REQUEST-----") && text.contains("-----END CERTIFICATE REQUEST-----") {
        Ok(())
    } else {
        Err("PEM block type must be CERTIFICATE REQUEST".to_owned())
    }
}

/// What is signed must be certificates, at least one, and nothing else.
fn pem_certificates(base64: &str) -> Result<(), String> {
    if base64.is_empty() {
        return Ok(());
    }
    let bytes = STANDARD.decode(base64).unwrap_or_default();
    let mut found = false;
    for block in pem::blocks(&bytes) {
        if block.label != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {}", quote(&block.label)));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        der_certificates(&block.contents)?;
        found = true;
    }
    if found { Ok(()) } else { Err("must contain at least one CERTIFICATE PEM block".to_owned()) }
}

/// One certificate after the other, and nothing after the last.
fn der_certificates(mut contents: &[u8]) -> Result<(), String> {
    if contents.is_empty() {
        return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
    }
    while !contents.is_empty() {
        let parsed = x509_parser::parse_x509_certificate(contents);
        (contents, _) = parsed.map_err(|_| "x509: malformed certificate".to_owned())?;
    }
    Ok(())
}

/// Conditions of a type stay as they are. If there are more or fewer than before, that is refused later.
fn keep_conditions(object: &mut Value, old: &Value, kind: &str) {
    let of_kind = |condition: &&Value| condition.text("type") == kind;
    let before: Vec<Value> = old.at("status").list("conditions").iter().filter(of_kind).cloned().collect();
    let Some(conditions) = object.struct_mut("status").get_mut("conditions").and_then(Value::as_array_mut) else {
        return;
    };
    let now = conditions.iter_mut().filter(|condition| condition.text("type") == kind);
    let now: Vec<&mut Value> = now.collect();
    if now.len() == before.len() {
        now.into_iter().zip(before).for_each(|(now, before)| *now = before);
    }
}

/// Whether a kind is this one, not one of the same name in another group.
pub fn is_request(resource: &Resource) -> bool {
    (&*resource.group, &*resource.kind) == ("certificates.k8s.io", "CertificateSigningRequest")
}

/// Conditions say when they were set and when they last changed, unless their writer has set that.
pub fn date_conditions(object: &mut Value, old: &Value, now: Timestamp) {
    let now = object::time(now);
    let Some(conditions) = object.struct_mut("status").get_mut("conditions").and_then(Value::as_array_mut) else {
        return;
    };
    for condition in conditions {
        if condition.text("lastUpdateTime").is_empty() {
            condition.put("lastUpdateTime", now.as_str());
        }
        if condition.text("lastTransitionTime").is_empty() {
            let same = |before: &&Value| {
                before.text("type") == condition.text("type") && before.text("status") == condition.text("status")
            };
            let mut before = old.at("status").list("conditions").iter().filter(same);
            let since =
                before.find_map(|before| Some(before.text("lastTransitionTime")).filter(|time| !time.is_empty()));
            let since = since.unwrap_or(&now).to_owned();
            condition.put("lastTransitionTime", since);
        }
    }
}

fn signer_name(name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let parts: Vec<&str> = name.split('/').collect();
    let [domain, rest] = parts.as_slice() else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid(path, name, detail));
        return;
    };
    values::invalid_for_each(path, domain, names::subdomain(domain), errors);
    if !names::has_dots(domain, 2) {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, *domain, detail));
    }
    values::invalid_for_each(path, rest, names::subdomain(rest), errors);
}

fn conditions(object: &Value, errors: &mut FieldErrors) {
    let status = Path::new("status");
    let path = status.child("conditions");
    let mut seen = HashSet::new();
    for (i, condition) in object.at("status").list("conditions").iter().enumerate() {
        let item = path.index(i);
        let kind = condition.text("type");
        values::required(condition, "type", &item, errors);
        let statuses: &[&str] =
            if ["Approved", "Denied", "Failed"].contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        values::required_one_of(condition, "status", statuses, &item, errors);
        let other = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && seen.contains(other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(&path, kind, detail));
        }
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(&item.child("type"), kind));
        }
    }
}

fn kept_conditions(object: &Value, old: &Value, approving: bool, errors: &mut FieldErrors) {
    let status = Path::new("status");
    let path = status.child("conditions");
    let of = |object: &Value, kind: &str| -> Value {
        object.at("status").list("conditions").iter().filter(|item| item.text("type") == kind).cloned().collect()
    };
    let count = |value: &Value| value.as_array().map_or(0, Vec::len);
    for kind in ["Approved", "Denied", "Failed"] {
        let (new, before) = (of(object, kind), of(old, kind));
        let kind_text = quote(kind);
        let detail = if count(&new) < count(&before) {
            format!("updates may not remove a condition of type {kind_text}")
        } else if approving || kind == "Failed" || new == before {
            continue;
        } else if count(&new) > count(&before) {
            format!("updates may not add a condition of type {kind_text}")
        } else {
            let changes = difference::lines(&before, &new);
            format!("updates may not modify a condition of type {kind_text}\n{changes}")
        };
        errors.push(FieldError::forbidden(&path, detail));
    }
}

fn certificate(object: &Value, old: &Value, signing: bool, errors: &mut FieldErrors) {
    let status = Path::new("status");
    let (new, before) = (object.at("status").text("certificate"), old.at("status").text("certificate"));
    let detail = match (new == before, signing, before.is_empty()) {
        (true, ..) | (false, true, true) => return,
        (false, false, _) => "updates may not set certificate content",
        (false, true, false) => "updates may not modify existing certificate content",
    };
    errors.push(FieldError::forbidden(&status.child("certificate"), detail));
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, created};
    use super::*;

    fn request() -> Value {
        let pem = "-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----\n";
        json!({"spec": {"request": STANDARD.encode(pem), "signerName": "example.com/x", "usages": ["client auth"]}})
    }

    #[test]
    fn requests() {
        assert_eq!(create_errors(&CertificateSigningRequest, &request()), "[]");
        let mut bad = request();
        bad["spec"]["signerName"] = "x".into();
        bad["spec"]["usages"] = json!([]);
        assert_eq!(
            create_errors(&CertificateSigningRequest, &bad),
            "[spec.usages: Required value, spec.signerName: Invalid value: \"x\": must be a fully qualified domain and \
             path of the form 'example.com/signer-name']"
        );
    }

    #[test]
    fn only_approval_approves() {
        let old = created(&CertificateSigningRequest, &request());
        let mut approved = old.clone();
        approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}]});
        let check = |approving: bool| {
            let mut errors = FieldErrors::default();
            kept_conditions(&approved, &old, approving, &mut errors);
            errors.to_string()
        };
        assert_eq!(check(true), "[]");
        assert_eq!(check(false), "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"");
        let mut signing = approved.clone();
        CertificateSigningRequest.prepare_status_update(&mut signing, &old);
        let mut errors = FieldErrors::default();
        kept_conditions(&signing, &old, false, &mut errors);
        assert_eq!(
            errors.to_string(),
            "status.conditions: Forbidden: updates may not add a condition of type \"Approved\""
        );
    }

    #[test]
    fn conditions_say_since_when() {
        let old = created(&CertificateSigningRequest, &request());
        let mut approved = old.clone();
        approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}]});
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        CertificateSigningRequest.prepare_subresource("approval", &mut approved, &old);
        date_conditions(&mut approved, &old, now);
        let condition = &approved["status"]["conditions"][0];
        assert_eq!(condition["lastUpdateTime"], condition["lastTransitionTime"]);
        assert_eq!(condition["lastUpdateTime"], "2026-01-02T03:04:05Z");
        // The signer cannot touch it, and what stays keeps its time.
        let mut old = approved.clone();
        old["status"]["conditions"][0]["lastTransitionTime"] = "2020-01-01T00:00:00Z".into();
        let mut signed = old.clone();
        signed["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "mine"}]);
        CertificateSigningRequest.prepare_status_update(&mut signed, &old);
        date_conditions(&mut signed, &old, now);
        assert_eq!(signed["status"]["conditions"], old["status"]["conditions"]);
        let mut again = old.clone();
        again["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
        CertificateSigningRequest.prepare_subresource("approval", &mut again, &old);
        date_conditions(&mut again, &old, now);
        assert_eq!(again["status"]["conditions"][0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
    }

    #[test]
    fn only_certificates_are_signed() {
        let check = |text: &str| pem_certificates(&STANDARD.encode(text)).err().unwrap_or_default();
        assert_eq!(check("abc"), "must contain at least one CERTIFICATE PEM block");
        let key = "-----BEGIN KEY-----\nAA==\n-----END KEY-----\n";
        assert_eq!(check(key), "only CERTIFICATE PEM blocks are allowed, found \"KEY\"");
        let empty = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        assert_eq!(check(empty), "x509: malformed certificate");
        let made = rcgen::generate_simple_self_signed(["example.com".to_owned()]).expect("a certificate");
        let good = &made.cert.pem();
        assert_eq!(check(good), "");
        assert_eq!(check(&format!("{good}{good}")), "");
        // What cannot be read hides nothing that follows it.
        let broken = "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n";
        assert_eq!(check(&format!("{good}{broken}")), "");
        assert_eq!(check(&format!("{good}{broken}{key}")), "only CERTIFICATE PEM blocks are allowed, found \"KEY\"");
        let first = "-----BEGIN CERTIFICATE-----\n";
        let headed = good.replacen(first, &format!("{first}Proc-Type: 4\n\n"), 1);
        assert_eq!(check(&headed), "no PEM block headers are permitted");
        assert_eq!(
            check("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
            "found CERTIFICATE PEM block containing 0 certificates"
        );
        let der = pem::blocks(good.as_bytes()).next().expect("a block").contents;
        let block = |der: &[u8]| format!("{first}{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der));
        assert_eq!(check(&block(&[&*der, &*der].concat())), "");
        assert_eq!(check(&block(&[&*der, &[0]].concat())), "x509: malformed certificate");
    }

    #[test]
    fn a_certificate_is_not_checked_again() {
        let mut old = created(&CertificateSigningRequest, &request());
        old["status"] = json!({"certificate": STANDARD.encode("x")});
        let check = |old: &Value, new: &Value| {
            let mut errors = FieldErrors::default();
            CertificateSigningRequest.validate_update(new, old, &mut errors);
            errors.to_string()
        };
        let mut new = old.clone();
        new["metadata"] = json!({"labels": {"a": "b"}});
        assert_eq!(check(&old, &new), "[]");
        new["status"]["certificate"] = STANDARD.encode("y").into();
        let refused = "status.certificate: Forbidden: updates may not set certificate content";
        assert_eq!(check(&old, &new), refused);
        old["status"] = json!({});
        assert_eq!(
            check(&old, &new),
            format!(
                "[status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE \
                 PEM block, {refused}]"
            )
        );
    }

    #[test]
    fn the_requester_cannot_be_forged() {
        let mut object = request();
        object["spec"]["username"] = "root".into();
        set_requester(&mut object, "me", "", &["g".to_owned()], &[]);
        assert_eq!(object["spec"]["username"], "me");
        assert_eq!(object["spec"]["groups"], json!(["g"]));
    }
}
