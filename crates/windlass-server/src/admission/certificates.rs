//! Who may ask for, approve and sign certificates: upstream's plugins CertificateSubjectRestriction,
//! CertificateApproval and CertificateSigning.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

use super::Act;
use crate::admission_config::AdmissionPlugin;
use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::authz;
use crate::context::Context;
use crate::field::quote;
use crate::object;
use crate::rbac::Decision;
use crate::status::Status;
use crate::validation::access::Access as _;

const GROUP: &str = "certificates.k8s.io";
/// Signs what the API server takes for a client.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Its members may do everything, so it cannot be asked for.
const MASTERS: &str = "system:masters";

/// Checks a write of a CertificateSigningRequest; any other passes.
pub(super) fn validate(context: &Context, act: Act<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    if *context.served.group != *GROUP || &*context.served.plural != "certificatesigningrequests" {
        return Ok(());
    }
    let refused = |why: String| Err(Status::forbidden(context.qualified(), object::name(object), why));
    match (act, context.subresource(), old) {
        (Act::Create(_), "", _)
            if object.at("spec").text("signerName") == CLIENT_SIGNER
                && context.runs(AdmissionPlugin::CertificateSubjectRestriction) =>
        {
            match organizations(object.at("spec").text("request")) {
                None => refused("failed to parse CSR: asn1: syntax error".to_owned()),
                Some(groups) if groups.iter().any(|group| group == MASTERS) => {
                    refused(format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"))
                }
                Some(_) => Ok(()),
            }
        }
        (Act::Update(_), "approval", Some(old)) if context.runs(AdmissionPlugin::CertificateApproval) => {
            let signer = old.at("spec").text("signerName");
            if may(context, "approve", signer) {
                return Ok(());
            }
            refused(format!("user not permitted to approve requests with signerName {}", quote(signer)))
        }
        (Act::Update(_), "status", Some(old)) if context.runs(AdmissionPlugin::CertificateSigning) => {
            let signer = old.at("spec").text("signerName");
            let same = |field: &str| old.at("status").at(field) == object.at("status").at(field);
            if (same("certificate") && same("conditions")) || may(context, "sign", signer) {
                return Ok(());
            }
            refused(format!("user not permitted to sign requests with signerName {}", quote(signer)))
        }
        _ => Ok(()),
    }
}

/// Whether the user may do this as one signer, or as all of its domain.
fn may(context: &Context, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer, &format!("{domain}/*")].into_iter().any(|name| {
        let target = ResourceTarget { group: GROUP, resource: "signers", name, ..ResourceTarget::default() };
        let attributes = Attributes { user: &context.user, verb, target: Target::Resource(target) };
        matches!(authz::decide(&context.api, &attributes), Decision::Allowed(_))
    })
}

/// The common name that a request asks for; empty if it names none, `None` if it cannot be read. Of several, Go takes the last.
pub(super) fn common_name(request: &str) -> Option<String> {
    let bytes = STANDARD.decode(request).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&bytes).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let names = request.certification_request_info.subject.iter_common_name().map(|name| text(name.attr_value()));
    names.last().unwrap_or_else(|| Some(String::new()))
}

/// The organizations that a request names, which become groups. `None` if it cannot be read, or one of them cannot:
/// its signer might read more.
fn organizations(request: &str) -> Option<Vec<String>> {
    let bytes = STANDARD.decode(request).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&bytes).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let subject = &request.certification_request_info.subject;
    subject.iter_organization().map(|name| text(name.attr_value())).collect()
}

/// The text of a name, of the kinds of strings that Go reads (`encoding/asn1`).
fn text(value: &Any<'_>) -> Option<String> {
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString => {
            str::from_utf8(value.data).ok().map(str::to_owned)
        }
        Tag::TeletexString => Some(value.data.iter().copied().map(char::from).collect()),
        Tag::BmpString => {
            let (units, rest) = value.data.as_chunks::<2>();
            let units: Vec<u16> = units.iter().copied().map(u16::from_be_bytes).collect();
            // Some end in a zero, which is no part of them.
            let units = units.strip_suffix(&[0]).unwrap_or(&units);
            rest.is_empty().then(|| String::from_utf16(units).ok()).flatten()
        }
        _ => None,
    }
}
