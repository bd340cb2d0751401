//! Conversion webhooks: ConversionReview, and what a converted object may look like
//! (`apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`).

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::api::Api;
use crate::codec::body::not_registered;
use crate::codec::write;
use crate::effort;
use crate::field::{FieldErrors, Path, quote};
use crate::object;
use crate::patch::go_type;
use crate::status::Status;
use crate::validation::access::Access;
use crate::validation::metadata;
use crate::webhook::REVIEW_SCHEME;
use windlass_kinds::crd::{ConversionWebhook, CustomVersion};

/// A conversion may take this long.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How large the objects of one call may be together; one that is larger goes alone.
const BATCH: usize = 2 << 20;
/// An answer may be this large: several times what was sent, and more than any object that can be stored.
const ANSWER_LIMIT: usize = 16 << 20;

/// Converts objects of other versions to `to`. Keeps their order. Upstream makes one call for all, however large that
/// is; here those that are large together go one after the other.
pub(super) async fn convert(
    api: &Api,
    webhook: &ConversionWebhook,
    objects: Vec<Value>,
    to: &CustomVersion,
) -> Result<Vec<Value>, Status> {
    let single = objects.len() == 1;
    let mut out = Vec::with_capacity(objects.len());
    let mut rest = objects.into_iter().peekable();
    while rest.peek().is_some() {
        let mut room = BATCH;
        let mut batch = Vec::new();
        while let Some(object) = rest.next_if(|object| batch.is_empty() || effort::size(object) <= room) {
            room = room.saturating_sub(effort::size(&object));
            batch.push(object);
        }
        let before = Before { objects: out.len(), single };
        out.extend(convert_batch(api, webhook, batch, to, before).await?);
    }
    Ok(out)
}

/// What messages about a batch have to know of the others.
#[derive(Clone, Copy)]
struct Before {
    objects: usize,
    single: bool,
}

async fn convert_batch(
    api: &Api,
    webhook: &ConversionWebhook,
    objects: Vec<Value>,
    to: &CustomVersion,
    before: Before,
) -> Result<Vec<Value>, Status> {
    let Some(first) = objects.first() else { return Ok(objects) };
    let from = format!("{}, Kind={}", first.text("apiVersion"), first.text("kind"));
    let failed = |why: String| Status::unclassified(format!("conversion webhook for {from} {why}"));
    let version = webhook.review_versions.iter().find(|version| matches!(&***version, "v1" | "v1beta1"));
    let Some(version) = version else { return Err(Status::unclassified("no supported conversion review versions")) };
    let uid = object::new_uid();
    let body = review(version, &uid, &objects, &to.api_version);
    let client = api.webhook_clients.get(&webhook.client_config).map_err(Status::unclassified)?;
    let answer =
        client.call(body, TIMEOUT, TIMEOUT, ANSWER_LIMIT).await.map_err(|why| failed(format!("failed: {why}")))?;
    let converted = response(version, &uid, &answer).map_err(|why| failed(format!("failed: {why}")))?;
    if converted.len() != objects.len() {
        return Err(failed(format!("returned {} objects, expected {}", converted.len(), objects.len())));
    }
    let mut out = Vec::with_capacity(objects.len());
    for (index, (original, converted)) in objects.iter().zip(converted).enumerate() {
        let mut converted = converted.clone();
        check(original, &mut converted, to)
            .map_err(|problem| failed(problem.shown(before.objects + index, before.single)))?;
        out.push(converted);
    }
    Ok(out)
}

fn review(version: &str, uid: &str, objects: &[Value], api_version: &str) -> Bytes {
    let mut out = Vec::with_capacity(1024 * objects.len());
    out.extend_from_slice(b"{\"kind\":\"ConversionReview\",\"apiVersion\":");
    write::write_string(&format!("apiextensions.k8s.io/{version}"), &mut out);
    out.extend_from_slice(b",\"request\":{\"uid\":");
    write::write_string(uid, &mut out);
    out.extend_from_slice(b",\"desiredAPIVersion\":");
    write::write_string(api_version, &mut out);
    out.extend_from_slice(b",\"objects\":[");
    for (i, object) in objects.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write::write_value(object, &mut out);
    }
    out.extend_from_slice(b"]},\"response\":{\"uid\":\"\",\"convertedObjects\":null,\"result\":{\"metadata\":{}}}}");
    out.into()
}

/// The converted objects, or why the answer is of no use.
fn response<'a>(version: &str, uid: &str, answer: &'a Value) -> Result<&'a [Value], String> {
    let (kind, api_version) = (answer.text("kind"), answer.text("apiVersion"));
    let found = api_version.strip_prefix("apiextensions.k8s.io/").unwrap_or(api_version);
    match (kind, api_version) {
        ("ConversionReview" | "", "apiextensions.k8s.io/v1" | "apiextensions.k8s.io/v1beta1" | "") => {}
        ("Status", "v1") => {
            return Err(format!("converting (v1.Status) to ({version}.ConversionReview): unknown conversion"));
        }
        _ => {
            let kind = if kind.is_empty() { "ConversionReview" } else { kind };
            return Err(not_registered(kind, api_version, REVIEW_SCHEME));
        }
    }
    if !api_version.is_empty() && found != version {
        return Err(format!(
            "converting ({found}.ConversionReview) to ({version}.ConversionReview): unknown conversion"
        ));
    }
    if version == "v1" && (kind.is_empty() || api_version.is_empty()) {
        let wanted = "apiextensions.k8s.io/v1, Kind=ConversionReview";
        let found = if api_version.is_empty() { "/" } else { api_version };
        return Err(format!("expected webhook response of {wanted}, got {found}, Kind={kind}"));
    }
    let response = answer.at("response");
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    if version == "v1" && response.text("uid") != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(response.text("uid"))));
    }
    let result = response.at("result");
    if result.text("status") != "Success" {
        return Err(match result.text("message") {
            "" => format!("response.result.status was '{}', not 'Success'", result.text("status")),
            message => message.to_owned(),
        });
    }
    Ok(response.list("convertedObjects"))
}

/// What is wrong with a converted object.
enum Problem {
    /// It is not what was asked for.
    Object(String),
    /// It differs from the original where it must not.
    Changed(String),
    /// Its labels or annotations are not acceptable.
    Metadata(String),
}

impl Problem {
    /// Worded for one object, or for one of several.
    fn shown(&self, index: usize, single: bool) -> String {
        match (self, single) {
            (Self::Object(why), true) => format!("returned invalid object at index 0: {why}"),
            (Self::Changed(why), true) => format!("returned invalid object: {why}"),
            (Self::Metadata(why), true) => format!("returned invalid metadata: {why}"),
            (Self::Object(why) | Self::Changed(why), false) => {
                format!("returned invalid converted object at index {index}: {why}")
            }
            (Self::Metadata(why), false) => format!("returned invalid metadata in object at index {index}: {why}"),
        }
    }
}

/// Checks a converted object, and gives it the metadata of the original: only labels and annotations may
/// change.
fn check(original: &Value, converted: &mut Value, to: &CustomVersion) -> Result<(), Problem> {
    let api_version = converted.text("apiVersion");
    if api_version != &*to.api_version {
        let expected = &to.api_version;
        let why = format!("invalid groupVersion (expected {expected}, received {api_version})");
        return Err(Problem::Object(why));
    }
    let (expected, kind) = (original.text("kind"), converted.text("kind"));
    if expected != kind {
        return Err(Problem::Object(format!("invalid kind (expected {expected}, received {kind})")));
    }
    for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (object::text(original, field), object::text(converted, field));
        if before != after {
            return Err(Problem::Changed(format!("must have the same {shown}: {before} != {after}")));
        }
    }
    let answered = match converted.get("metadata") {
        None => return Err(Problem::Metadata("missing metadata in converted object".to_owned())),
        Some(metadata) if !metadata.is_object() => {
            let found = go_type(metadata);
            return Err(Problem::Metadata(format!("invalid metadata of type {found} in converted object")));
        }
        Some(metadata) => metadata.clone(),
    };
    let mut metadata = original.get("metadata").cloned().unwrap_or_else(|| json!({}));
    for field in ["labels", "annotations"] {
        restore(&mut metadata, &answered, field).map_err(Problem::Metadata)?;
    }
    converted["metadata"] = metadata;
    Ok(())
}

/// Takes over what the webhook answered for `field` of the metadata.
fn restore(metadata: &mut Value, answered: &Value, field: &str) -> Result<(), String> {
    let Value::Object(map) = metadata else { return Ok(()) };
    let answer = match answered.get(field) {
        None | Some(Value::Null) => {
            map.remove(field);
            return Ok(());
        }
        Some(answer) => answer,
    };
    let Value::Object(entries) = answer else {
        return Err(format!("invalid metadata.{field} of type {} in converted object", go_type(answer)));
    };
    if let Some((key, value)) = entries.iter().find(|(_, value)| !value.is_string()) {
        let found = go_type(value);
        return Err(format!("metadata.{field}[{key}] must be a string, but is {found} in converted object"));
    }
    if map.get(field) != Some(answer) {
        let mut errors = FieldErrors::default();
        let path = Path::new("metadata");
        if field == "labels" {
            metadata::labels(answered, "labels", &path, &mut errors);
        } else {
            metadata::annotations(answered, &path, &mut errors);
        }
        if !errors.is_empty() {
            return Err(errors.to_string());
        }
    }
    map.insert(field.to_owned(), answer.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_kinds::crd::CustomKind;

    fn kind() -> CustomKind {
        let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
        CustomKind::new(&json!({
            "metadata": {"name": "hosts.example.com"},
            "spec": {"group": "example.com", "names": {"plural": "hosts", "kind": "Host"}, "scope": "Namespaced",
                     "versions": [version("v1", true), version("v2", false)]},
        }))
        .expect("a kind")
    }

    #[test]
    fn only_labels_and_annotations_may_change() {
        let kind = kind();
        let to = kind.version("v2").expect("a version");
        let original = json!({"kind": "Host", "apiVersion": "example.com/v1",
            "metadata": {"name": "a", "uid": "u", "generation": 3, "labels": {"a": "b"}}});
        let answer = |metadata: Value| json!({"kind": "Host", "apiVersion": "example.com/v2", "metadata": metadata});
        let problem = |mut answer: Value| match check(&original, &mut answer, to) {
            Ok(()) => answer.to_string(),
            Err(problem) => problem.shown(0, true),
        };
        let mut good = answer(json!({"name": "a", "uid": "u", "generation": 9, "labels": {"c": "d"}}));
        assert!(check(&original, &mut good, to).is_ok());
        assert_eq!(good["metadata"], json!({"name": "a", "uid": "u", "generation": 3, "labels": {"c": "d"}}));
        assert_eq!(
            problem(answer(json!({"name": "b", "uid": "u"}))),
            "returned invalid object: must have the same name: a != b"
        );
        assert_eq!(
            problem(json!({"kind": "Host", "apiVersion": "example.com/v1"})),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)"
        );
        assert_eq!(
            problem(json!({"kind": "Guest", "apiVersion": "example.com/v2"})),
            "returned invalid object at index 0: invalid kind (expected Host, received Guest)"
        );
        assert_eq!(
            problem(answer(json!({"name": "a", "uid": "u", "labels": {"a": 1}}))),
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object"
        );
    }

    #[test]
    fn answers_are_checked() {
        let check = |answer: Value, expected: &str| assert_eq!(response("v1", "u", &answer), Err(expected.to_owned()));
        let review = |response: Value| json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response});
        check(review(json!(null)), "no response provided");
        check(json!({}), "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=");
        check(
            json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1beta1"}),
            "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
        );
        check(review(json!({"uid": "x"})), "expected response.uid=\"u\", got \"x\"");
        check(review(json!({"uid": "u"})), "response.result.status was '', not 'Success'");
        check(review(json!({"uid": "u", "result": {"status": "Failed", "message": "no"}})), "no");
        let success = review(json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{}]}));
        assert_eq!(response("v1", "u", &success).expect("is fine").len(), 1);
    }
}
