//! Certificate signing requests: approves what kubelets ask for themselves, signs what is approved, and deletes old
//! requests.
//!
//! Mirrors upstream's `pkg/controller/certificates`: approver, signer and cleaner.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::PostParams;
use windlass::client::options::DeleteOptions;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};
use windlass_server::pki::{Authority, SigningRequest};

use super::FIELD_MANAGER;

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const LEGACY: &str = "kubernetes.io/legacy-unknown";
/// How long certificates are good for unless the request says less: a year.
const LONGEST: i64 = 365 * 24 * 3600;
/// And at least this long.
const SHORTEST: i64 = 600;

/// How long requests are kept after they were signed, denied or refused by the signer.
const DECIDED_TTL: SignedDuration = SignedDuration::from_hours(1);
/// How long requests are kept that are not decided, or not signed.
const PENDING_TTL: SignedDuration = SignedDuration::from_hours(24);

pub(super) fn add_approver(manager: &mut Manager) -> Result<(), ManagerError> {
    let controller = Controller::<CertificateSigningRequest>::new("csrapproving");
    manager.add(controller.complete(Approver))
}

pub(super) fn add_signer(manager: &mut Manager, authority: Arc<Authority>) -> Result<(), ManagerError> {
    let controller = Controller::<CertificateSigningRequest>::new("csrsigning");
    manager.add(controller.complete(Signer { authority }))
}

pub(super) fn add_cleaner(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(Controller::<CertificateSigningRequest>::new("csrcleaner").complete(Cleaner))
}

struct Approver;

impl Reconcile<CertificateSigningRequest> for Approver {
    async fn reconcile(&self, csr: Arc<CertificateSigningRequest>, ctx: Context) -> windlass::Result {
        if certificate(&csr).is_some() || has(&csr, "Approved") || has(&csr, "Denied") {
            return Ok(Outcome::Done);
        }
        let Ok(request) = SigningRequest::parse(&csr.spec.request.0) else { return Ok(Outcome::Done) };
        if csr.spec.signer_name != KUBELET_CLIENT || check_kubelet_client(&request, usages(&csr.spec)).is_err() {
            return Ok(Outcome::Done);
        }
        let is_own = csr.spec.username.as_deref() == request.common_name.as_deref();
        let recognizers = [
            (is_own, "selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
            (true, "nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
        ];
        for (applies, subresource, message) in recognizers {
            if applies && may(&ctx, &csr.spec, subresource).await? {
                return approve(&ctx, &csr, message).await;
            }
        }
        Ok(Outcome::Done)
    }
}

/// Whether the requester may have such requests approved.
async fn may(ctx: &Context, spec: &CertificateSigningRequestSpec, subresource: &str) -> windlass::Result<bool> {
    let attributes = ResourceAttributes {
        group: Some("certificates.k8s.io".into()),
        resource: Some("certificatesigningrequests".into()),
        verb: Some("create".into()),
        subresource: Some(subresource.into()),
        version: Some("*".into()),
        ..ResourceAttributes::default()
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: spec.username.clone(),
            uid: spec.uid.clone(),
            groups: spec.groups.clone(),
            extra: spec.extra.clone(),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(ctx.client().kube().clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

async fn approve(ctx: &Context, csr: &CertificateSigningRequest, message: &str) -> windlass::Result {
    let mut approved = csr.clone();
    push(&mut approved, "Approved", "AutoApproved", message);
    let requests: Api<CertificateSigningRequest> = Api::all(ctx.client().kube().clone());
    let name = csr.metadata.name.as_deref().unwrap_or_default();
    let how = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    match requests.replace_subresource("approval", name, &how, &approved).await {
        // It was changed or deleted meanwhile, and its event is on its way.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Outcome::Done),
        outcome => outcome.map(|_| Outcome::Done).map_err(Into::into),
    }
}

struct Signer {
    authority: Arc<Authority>,
}

impl Reconcile<CertificateSigningRequest> for Signer {
    async fn reconcile(&self, csr: Arc<CertificateSigningRequest>, ctx: Context) -> windlass::Result {
        let is_due = has(&csr, "Approved") && !has(&csr, "Denied") && !has(&csr, "Failed");
        if !is_due || certificate(&csr).is_some() {
            return Ok(Outcome::Done);
        }
        let usages = usages(&csr.spec);
        let request = match SigningRequest::parse(&csr.spec.request.0) {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!(name = csr.metadata.name.as_deref(), %error, "a signing request cannot be read");
                return Ok(Outcome::Done);
            }
        };
        let checked = match csr.spec.signer_name.as_str() {
            CLIENT => check_client(&usages),
            KUBELET_CLIENT => check_kubelet_client(&request, usages.clone()),
            KUBELET_SERVING => check_kubelet_serving(&request, usages.clone()),
            LEGACY => Ok(()),
            _ => return Ok(Outcome::Done),
        };
        let mut signed = CertificateSigningRequest::clone(&csr);
        if let Err(why) = checked {
            push(&mut signed, "Failed", "SignerValidationFailure", &why);
        } else {
            let seconds = csr.spec.expiration_seconds.map_or(LONGEST, |s| i64::from(s).clamp(SHORTEST, LONGEST));
            let pem = self.authority.sign_request(&request, &usages, seconds)?;
            signed.status.get_or_insert_default().certificate = Some(ByteString(pem.into_bytes()));
        }
        match ctx.client().update_status(&signed).await {
            Err(error) if !(error.is_conflict() || error.is_not_found()) => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }
}

struct Cleaner;

impl Reconcile<CertificateSigningRequest> for Cleaner {
    async fn reconcile(&self, csr: Arc<CertificateSigningRequest>, ctx: Context) -> windlass::Result {
        let now = ctx.now();
        let Some(end) = end_of(&csr) else { return Ok(Outcome::Done) };
        if now < end {
            let rest = Duration::try_from(end.duration_since(now)).unwrap_or_default();
            return Ok(Outcome::RequeueAfter(rest));
        }
        let mut options = DeleteOptions::new();
        if let Some(uid) = &csr.metadata.uid {
            options = options.uid(uid);
        }
        match ctx.client().delete_with::<CertificateSigningRequest>(&ObjectKey::of(&*csr), options).await {
            Err(error) if !(error.is_conflict() || error.is_not_found()) => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }
}

/// When a request is not of interest any more: some time after it was signed, denied or has failed, a longer time after
/// it was approved or created if nothing else happened, and when its certificate has expired.
fn end_of(csr: &CertificateSigningRequest) -> Option<Timestamp> {
    let conditions: Vec<_> = csr.status.iter().flat_map(|status| status.conditions.iter().flatten()).collect();
    if conditions.is_empty() {
        return csr.metadata.creation_timestamp.as_ref().map(|created| created.0 + PENDING_TTL);
    }
    let life = csr.spec.expiration_seconds.map_or(LONGEST, |seconds| i64::from(seconds).clamp(SHORTEST, LONGEST));
    let ends = conditions.into_iter().filter_map(|condition| {
        let ttl = match condition.type_.as_str() {
            "Approved" if certificate(csr).is_some() => DECIDED_TTL.min(SignedDuration::from_secs(life)),
            "Approved" => PENDING_TTL,
            "Denied" | "Failed" => DECIDED_TTL,
            _ => return None,
        };
        Some(condition.last_update_time.as_ref()?.0 + ttl)
    });
    ends.min()
}

fn certificate(csr: &CertificateSigningRequest) -> Option<&ByteString> {
    csr.status.as_ref()?.certificate.as_ref().filter(|certificate| !certificate.0.is_empty())
}

fn has(csr: &CertificateSigningRequest, kind: &str) -> bool {
    csr.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(|condition| condition.type_ == kind)
}

fn push(csr: &mut CertificateSigningRequest, kind: &str, reason: &str, message: &str) {
    let condition = CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(Time(Timestamp::now())),
        last_transition_time: None,
    };
    csr.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
}

fn usages(spec: &CertificateSigningRequestSpec) -> Vec<String> {
    spec.usages.clone().unwrap_or_default()
}

fn check_client(usages: &[String]) -> Result<(), String> {
    let known = ["digital signature", "key encipherment", "client auth"];
    if let Some(usage) = usages.iter().find(|usage| !known.contains(&usage.as_str())) {
        return Err(format!("invalid usage for client certificate: {usage}"));
    }
    if usages.iter().any(|usage| usage == "client auth") {
        return Ok(());
    }
    Err("missing required usage for client certificate: client auth".to_owned())
}

fn check_kubelet_client(request: &SigningRequest, usages: Vec<String>) -> Result<(), String> {
    check_organization(request)?;
    let counts = [
        (request.dns_names.len(), "DNS"),
        (request.emails.len(), "Email"),
        (request.addresses.len(), "IP"),
        (request.uris.len(), "URI"),
    ];
    if let Some((_, kind)) = counts.iter().find(|(count, _)| *count > 0) {
        return Err(format!("{kind} subjectAltNames are not allowed"));
    }
    check_common_name(request)?;
    check_usages(usages, "client auth")
}

fn check_kubelet_serving(request: &SigningRequest, usages: Vec<String>) -> Result<(), String> {
    check_organization(request)?;
    if request.dns_names.is_empty() && request.addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    for (names, kind) in [(&request.emails, "Email"), (&request.uris, "URI")] {
        if !names.is_empty() {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    check_usages(usages, "server auth")?;
    check_common_name(request)
}

fn check_organization(request: &SigningRequest) -> Result<(), String> {
    let is_nodes = request.organizations == ["system:nodes"];
    is_nodes.then_some(()).ok_or_else(|| "subject organization is not system:nodes".to_owned())
}

fn check_common_name(request: &SigningRequest) -> Result<(), String> {
    let is_node = request.common_name.as_deref().is_some_and(|name| name.starts_with("system:node:"));
    is_node.then_some(()).ok_or_else(|| "subject common name does not begin with system:node:".to_owned())
}

/// Exactly what a kubelet's certificate is for.
fn check_usages(mut usages: Vec<String>, purpose: &str) -> Result<(), String> {
    usages.sort();
    usages.dedup();
    let mut all = vec!["digital signature", "key encipherment", purpose];
    all.sort_unstable();
    let few: Vec<&str> = all.iter().copied().filter(|usage| *usage != "key encipherment").collect();
    if usages == all || usages == few {
        return Ok(());
    }
    Err(format!("usages did not match [{}]", all.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(common_name: &str, organization: &str) -> SigningRequest {
        let mut request = SigningRequest::default();
        request.common_name = Some(common_name.to_owned());
        request.organizations = vec![organization.to_owned()];
        request
    }

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn client_certificates_are_for_clients() {
        let check = |usages: &[&str], expected: &str| {
            assert_eq!(check_client(&texts(usages)).err().unwrap_or_default(), expected);
        };
        check(&["client auth", "digital signature"], "");
        check(&["server auth"], "invalid usage for client certificate: server auth");
        check(&["digital signature"], "missing required usage for client certificate: client auth");
    }

    #[test]
    fn kubelets_ask_for_their_own_certificates() {
        let client = |request: &SigningRequest, usages: &[&str]| check_kubelet_client(request, texts(usages)).err();
        let right = request("system:node:n", "system:nodes");
        assert_eq!(client(&right, &["client auth", "digital signature"]), None);
        let wrong = "usages did not match [client auth digital signature key encipherment]";
        assert_eq!(client(&right, &["client auth"]).as_deref(), Some(wrong));
        let mut named = right.clone();
        named.dns_names.push("n".to_owned());
        let usages = ["client auth", "digital signature"];
        assert_eq!(client(&named, &usages).as_deref(), Some("DNS subjectAltNames are not allowed"));
        let organization = "subject organization is not system:nodes";
        assert_eq!(client(&request("system:node:n", "dev"), &usages).as_deref(), Some(organization));
        let name = "subject common name does not begin with system:node:";
        assert_eq!(client(&request("n", "system:nodes"), &usages).as_deref(), Some(name));

        let serving =
            |request: &SigningRequest| check_kubelet_serving(request, texts(&["server auth", "digital signature"]));
        assert_eq!(serving(&named), Ok(()));
        assert_eq!(serving(&right).err().as_deref(), Some("DNS or IP subjectAltName is required"));
    }

    #[test]
    fn requests_are_kept_for_some_time() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("valid");
        let mut csr = CertificateSigningRequest::default();
        csr.metadata.creation_timestamp = Some(Time(start));
        assert_eq!(end_of(&csr), Some(start + PENDING_TTL));
        push(&mut csr, "Approved", "Test", "");
        let approved = csr.status.as_mut().expect("valid").conditions.as_mut().expect("valid");
        approved[0].last_update_time = Some(Time(start + SignedDuration::from_mins(5)));
        assert_eq!(end_of(&csr), Some(start + SignedDuration::from_mins(5) + PENDING_TTL));
        csr.status.as_mut().expect("valid").certificate = Some(ByteString(b"pem".to_vec()));
        assert_eq!(end_of(&csr), Some(start + SignedDuration::from_mins(65)));
        csr.spec.expiration_seconds = Some(600);
        assert_eq!(end_of(&csr), Some(start + SignedDuration::from_mins(15)));
    }
}
