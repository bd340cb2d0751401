//! AdmissionReview: what a webhook is sent, and what its answer must look like.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::matching::Invocation;
use super::request::{GroupVersionKind, Request};
use crate::catalog::Served;
use crate::codec::body::not_registered;
use crate::codec::json::go_type_of;
use crate::codec::write::{write_string, write_value};
use crate::field::quote;
use crate::status::{Cause, Details, Status};
use crate::validation::access::Access;
use crate::webhook::REVIEW_SCHEME;

/// The version of AdmissionReview a webhook is spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V1Beta1,
}

impl Version {
    /// The first version of the webhook's list that is known here.
    pub(super) fn pick(understood: &[String]) -> Option<Self> {
        understood.iter().find_map(|version| match version.as_str() {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }

    const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The objects of a review, encoded.
#[derive(Clone, Default)]
pub(super) struct Encoded {
    pub(super) object: Bytes,
    pub(super) old: Bytes,
}

impl Encoded {
    /// Encodes the objects; absent ones are null.
    pub(super) fn new(object: Option<&Value>, old: Option<&Value>) -> Self {
        let encode = |object: Option<&Value>| match object {
            Some(object) => crate::codec::write::to_vec(object).into(),
            None => Bytes::from_static(b"null"),
        };
        Self { object: encode(object), old: encode(old) }
    }
}

/// The AdmissionReview to send.
pub(super) fn encode(
    request: &Request,
    invocation: &Invocation,
    version: Version,
    uid: &str,
    objects: &Encoded,
) -> Bytes {
    let mut out = Vec::with_capacity(objects.object.len() + objects.old.len() + 1024);
    out.extend_from_slice(b"{\"kind\":\"AdmissionReview\",\"apiVersion\":");
    write_string(version.api_version(), &mut out);
    out.extend_from_slice(b",\"request\":{\"uid\":");
    write_string(uid, &mut out);
    for (field, value) in attributes(request, &invocation.served, &invocation.kind) {
        out.push(b',');
        write_string(field, &mut out);
        out.push(b':');
        write_value(&value, &mut out);
    }
    out.extend_from_slice(b",\"object\":");
    out.extend_from_slice(&objects.object);
    out.extend_from_slice(b",\"oldObject\":");
    out.extend_from_slice(&objects.old);
    out.extend_from_slice(b",\"dryRun\":");
    write_value(&request.dry_run.into(), &mut out);
    out.extend_from_slice(b",\"options\":");
    write_value(&request.options, &mut out);
    out.extend_from_slice(b"}}");
    out.into()
}

/// The request as expressions see it: without its uid and its objects.
pub(super) fn variable(request: &Request, invocation: &Invocation) -> Value {
    request_variable(request, &invocation.served, &invocation.kind)
}

/// The same for a request that is looked at as one for `served` and `kind`.
pub(super) fn request_variable(request: &Request, served: &Served, kind: &GroupVersionKind) -> Value {
    let mut map: Map<String, Value> =
        attributes(request, served, kind).into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
    map.insert("dryRun".into(), request.dry_run.into());
    map.insert("options".into(), request.options.clone());
    map.into()
}

/// The fields of an AdmissionRequest that come before its objects.
fn attributes(request: &Request, served: &Served, kind: &GroupVersionKind) -> Vec<(&'static str, Value)> {
    let resource =
        |served: &Served| json!({"group": &*served.group, "version": &*served.version, "resource": &*served.plural});
    let mut out = vec![("kind", kind.to_value()), ("resource", resource(served))];
    let text = |field: &'static str, value: &str, out: &mut Vec<(&'static str, Value)>| {
        if !value.is_empty() {
            out.push((field, value.into()));
        }
    };
    text("subResource", &request.subresource, &mut out);
    out.push(("requestKind", request.kind.to_value()));
    out.push(("requestResource", resource(&request.served)));
    text("requestSubResource", &request.subresource, &mut out);
    text("name", &request.name, &mut out);
    text("namespace", &request.namespace, &mut out);
    out.push(("operation", request.operation.into()));
    out.push(("userInfo", user(&request.user)));
    out
}

fn user(user: &crate::user::User) -> Value {
    let mut out = json!({"username": user.name});
    if !user.uid.is_empty() {
        out["uid"] = user.uid.as_str().into();
    }
    if !user.groups.is_empty() {
        out["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        out["extra"] = json!(user.extra);
    }
    out
}

/// What a webhook answered.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) allowed: bool,
    /// A JSON patch, still text; empty if there is none.
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    /// `status`: why not.
    pub(super) result: Value,
    pub(super) warnings: Vec<String>,
    /// What the webhook adds to the event of the request.
    pub(super) annotations: Vec<(String, String)>,
}

/// Reads the answer as an AdmissionReview; the error says why it is none.
pub(super) fn decode(version: Version, answer: &Value) -> Result<Option<Response>, String> {
    // What is left out is what was asked for.
    let given = |field: &str, otherwise: &'static str| match answer.text(field) {
        "" => otherwise.to_owned(),
        text => text.to_owned(),
    };
    let (kind, api_version) = (given("kind", "AdmissionReview"), given("apiVersion", version.api_version()));
    if (kind.as_str(), api_version.as_str()) == ("Status", "v1") {
        return Err(format!("converting (v1.Status) to ({}.AdmissionReview): unknown conversion", version.name()));
    }
    let known = [Version::V1, Version::V1Beta1].into_iter().find(|known| known.api_version() == api_version);
    match known {
        Some(_) if kind != "AdmissionReview" => return Err(not_registered(&kind, &api_version, REVIEW_SCHEME)),
        None => return Err(not_registered(&kind, &api_version, REVIEW_SCHEME)),
        Some(found) if found != version => {
            let (found, wanted) = (found.name(), version.name());
            return Err(format!(
                "converting ({found}.AdmissionReview) to ({wanted}.AdmissionReview): unknown conversion"
            ));
        }
        Some(_) => {}
    }
    let response = answer.at("response");
    if response.is_null() {
        return Ok(None);
    }
    if !response.is_object() {
        return Err(mistyped(response, "response", "admission", "AdmissionResponse"));
    }
    let check = |field: &str, fits: fn(&Value) -> bool, wanted: &str| match response.get(field) {
        Some(value) if !value.is_null() && !fits(value) => {
            Err(mistyped(value, &format!("response.{field}"), "AdmissionResponse", wanted))
        }
        _ => Ok(()),
    };
    check("uid", Value::is_string, "types.UID")?;
    check("allowed", Value::is_boolean, "bool")?;
    check("status", Value::is_object, "v1.Status")?;
    check("patch", Value::is_string, "[]uint8")?;
    check("patchType", Value::is_string, "v1.PatchType")?;
    check("warnings", Value::is_array, "[]string")?;
    check("auditAnnotations", Value::is_object, "map[string]string")?;
    for value in response.at("auditAnnotations").as_object().into_iter().flat_map(Map::values) {
        if !value.is_string() && !value.is_null() {
            return Err(mistyped(value, "response.auditAnnotations", "AdmissionResponse", "string"));
        }
    }
    let patch = crate::codec::base64::decode(response.text("patch"))?;
    let annotations = response.text_entries("auditAnnotations").into_iter();
    Ok(Some(Response {
        allowed: response.flag("allowed"),
        patch,
        patch_type: response.text("patchType").to_owned(),
        result: response.at("status").clone(),
        warnings: response.texts("warnings").into_iter().map(str::to_owned).collect(),
        annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    }))
}

fn mistyped(value: &Value, field: &str, owner: &str, wanted: &str) -> String {
    let found = go_type_of(value);
    format!("json: cannot unmarshal {found} into Go struct field {owner}.{field} of type {wanted}")
}

/// Checks an answer; the error is what upstream says about it.
pub(super) fn verify(
    version: Version,
    uid: &str,
    mutating: bool,
    answer: &Value,
    response: Option<Response>,
) -> Result<Response, String> {
    let Some(mut response) = response else { return Err("webhook response was absent".to_owned()) };
    if version == Version::V1Beta1 {
        // Neither the uid nor the patch type were looked at in those days.
        response.patch_type = if response.patch.is_empty() { String::new() } else { "JSONPatch".to_owned() };
        if !mutating {
            response.patch.clear();
        }
        return Ok(response);
    }
    let found = answer.at("response").text("uid");
    if found != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(found)));
    }
    let (kind, api_version) = (answer.text("kind"), answer.text("apiVersion"));
    if (kind, api_version) != ("AdmissionReview", version.api_version()) {
        let found = if api_version.is_empty() { "/" } else { api_version };
        let wanted = version.api_version();
        return Err(format!("expected webhook response of {wanted}, Kind=AdmissionReview, got {found}, Kind={kind}"));
    }
    let typed = answer.at("response").get("patchType").is_some_and(|patch_type| !patch_type.is_null());
    match (mutating, !response.patch.is_empty(), typed) {
        (true, true, false) => Err("webhook returned response.patch but not response.patchType".to_owned()),
        (true, false, true) => Err("webhook returned response.patchType but not response.patch".to_owned()),
        (true, true, true) if response.patch_type.is_empty() => {
            Err("webhook returned invalid response.patchType of \"\"".to_owned())
        }
        (false, true, _) => Err("validating webhook may not return response.patch".to_owned()),
        (false, false, true) => Err("validating webhook may not return response.patchType".to_owned()),
        _ => Ok(response),
    }
}

/// The failure a client sees when a webhook said no.
pub(super) fn denied(webhook: &str, result: &Value) -> Status {
    let code = u16::try_from(result.int("code")).ok().filter(|code| *code >= 400);
    let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::BAD_REQUEST);
    let (message, reason) = (result.text("message"), result.text("reason"));
    let denied = format!("admission webhook {} denied the request", quote(webhook));
    let message = match (message, reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let mut status = Status::new(code, "", message);
    status.reason = reason.to_owned().into();
    if let Some(details) = result.get("details").filter(|details| details.is_object()) {
        let cause = |cause: &Value| Cause {
            reason: cause.text("reason").to_owned(),
            message: cause.text("message").to_owned(),
            field: cause.text("field").to_owned(),
        };
        status.details = Some(Box::new(Details {
            name: details.text("name").to_owned(),
            group: details.text("group").to_owned(),
            kind: details.text("kind").to_owned(),
            uid: details.text("uid").to_owned(),
            causes: details.list("causes").iter().map(cause).collect(),
        }));
        status.retry_after = u32::try_from(details.int("retryAfterSeconds")).ok().filter(|seconds| *seconds > 0);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mutating: bool, answer: &Value, expected: &str) {
        let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": answer});
        let response = decode(Version::V1, &answer).expect("decodes");
        let failure = verify(Version::V1, "u", mutating, &answer, response).expect_err("is refused");
        assert_eq!(failure, expected);
    }

    #[test]
    fn answers_are_checked() {
        check(true, &json!(null), "webhook response was absent");
        check(true, &json!({"uid": "x"}), "expected response.uid=\"u\", got \"x\"");
        let patch = "W10=";
        let both = json!({"uid": "u", "patch": patch, "patchType": "JSONPatch"});
        check(true, &json!({"uid": "u", "patch": patch}), "webhook returned response.patch but not response.patchType");
        let only_type = json!({"uid": "u", "patchType": "JSONPatch"});
        check(true, &only_type, "webhook returned response.patchType but not response.patch");
        check(false, &both, "validating webhook may not return response.patch");
        check(false, &only_type, "validating webhook may not return response.patchType");
        check(
            true,
            &json!({"uid": "u", "patch": patch, "patchType": ""}),
            "webhook returned invalid response.patchType of \"\"",
        );
    }

    #[test]
    fn what_is_no_review_is_refused() {
        let check = |answer: Value, expected: &str| {
            assert_eq!(decode(Version::V1, &answer).expect_err("is refused"), expected);
        };
        check(
            json!({"kind": "Pod", "apiVersion": "v1"}),
            "no kind \"Pod\" is registered for version \"v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:74\"",
        );
        check(
            json!({"kind": "Status", "apiVersion": "v1"}),
            "converting (v1.Status) to (v1.AdmissionReview): unknown conversion",
        );
        check(
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}),
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        );
        check(
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"allowed": "yes"}}),
            "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
        );
    }

    #[test]
    fn reviews_without_a_verdict_are_refused() {
        let failure = |answer: Value| {
            let response = decode(Version::V1, &answer).expect("decodes");
            verify(Version::V1, "u", false, &answer, response).expect_err("is refused")
        };
        assert_eq!(failure(json!({})), "webhook response was absent");
        assert_eq!(failure(json!({"response": {"uid": "x"}})), "expected response.uid=\"u\", got \"x\"");
        assert_eq!(
            failure(json!({"response": {"uid": "u", "allowed": true}})),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
        );
    }

    #[test]
    fn denials_say_who_and_why() {
        let status = denied("a.b.c", &json!({"reason": "Teapot", "code": 418, "message": "short"}));
        assert_eq!(status.code.as_u16(), 418);
        assert_eq!(status.message, "admission webhook \"a.b.c\" denied the request: short");
        assert_eq!(status.to_value()["reason"], "Teapot");
        let status = denied("a.b.c", &json!({"code": 200}));
        assert_eq!(status.code.as_u16(), 400);
        assert_eq!(status.message, "admission webhook \"a.b.c\" denied the request without explanation");
    }
}
