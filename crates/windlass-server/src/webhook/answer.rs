//! What a webhook's answer means, read as client-go reads it: a review, or why it is none.

use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::response::Parts;
use serde_json::Value;

use crate::codec::{json, yaml};
use crate::field::quote;
use crate::validation::access::Access;

/// What Go calls the type that a kind is read into.
const KIND_TYPE: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// The review that an answer is, or why it is a failure. A review may leave out what kind it is.
pub(super) fn decode(parts: &Parts, body: &[u8]) -> Result<Value, String> {
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let code = parts.status;
    if !(200..=206).contains(&code.as_u16()) {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        return Err(failure(code, media_type, body));
    }
    if body.is_empty() {
        let content_type = if content_type.is_empty() { "application/json" } else { content_type };
        return Err(format!("0-length response with status code: {} and content type: {content_type}", code.as_u16()));
    }
    review(body)
}

fn review(body: &[u8]) -> Result<Value, String> {
    let unreadable = |why: &str| format!("couldn't get version/kind; json parse error: {why}");
    // What does not look like a JSON object is YAML, whatever it is called.
    let value = if body.trim_ascii_start().starts_with(b"{") {
        json::parse(body).map_err(|error| unreadable(&error.to_string()))?.value
    } else {
        yaml::parse(body)?.value
    };
    if value.is_null() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    if !value.is_object() {
        let found = json::go_type_of(&value);
        return Err(unreadable(&format!("json: cannot unmarshal {found} into Go value of type {KIND_TYPE}")));
    }
    for field in ["apiVersion", "kind"] {
        if let Some(other) = value.get(field).filter(|value| !value.is_string() && !value.is_null()) {
            let found = json::go_type_of(other);
            return Err(unreadable(&format!(
                "json: cannot unmarshal {found} into Go struct field .{field} of type string"
            )));
        }
    }
    if value.text("apiVersion").matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {}", value.text("apiVersion")));
    }
    Ok(value)
}

/// What client-go makes of an answer that is not a success: the Status in it, or a text by its code.
fn failure(code: StatusCode, media_type: &str, body: &[u8]) -> String {
    const LONGEST: usize = 2048;
    if let Ok(parsed) = json::parse(body) {
        let status = parsed.value;
        if status.text("kind") == "Status" && status.text("status") == "Failure" {
            return status.text("message").to_owned();
        }
    }
    let said = if media_type.is_empty() || media_type.starts_with("text/") {
        String::from_utf8_lossy(&body[..body.len().min(LONGEST)]).trim().to_owned()
    } else {
        "unknown".to_owned()
    };
    match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        404 => "the server could not find the requested resource".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        406 if said.is_empty() || said == "unknown" => {
            "the server was unable to respond with a content type that the client supports".into()
        }
        403 | 406 | 415 => said,
        409 => "the server reported a conflict".into(),
        422 => "the server rejected our request due to an error in our request".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the \
                request"
            .into(),
        500.. => format!("an error on the server ({}) has prevented the request from succeeding", quote(&said)),
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_client_go_reads_them() {
        let check = |code: u16, kind: &str, body: &str, expected: &str| {
            let code = StatusCode::from_u16(code).expect("a code");
            let response =
                http::Response::builder().status(code).header(CONTENT_TYPE, kind).body(()).expect("an answer");
            assert_eq!(decode(&response.into_parts().0, body.as_bytes()).expect_err(body), expected);
        };
        check(
            200,
            "application/json",
            "",
            "0-length response with status code: 200 and content type: application/json",
        );
        check(
            200,
            "",
            "[1]",
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        );
        check(
            200,
            "text/html",
            "{\"kind\":",
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        );
        check(
            200,
            "",
            r#"{"kind": 1}"#,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        );
        check(
            500,
            "application/json",
            "x",
            "an error on the server (\"unknown\") has prevented the request from succeeding",
        );
        check(500, "text/plain", " x\n", "an error on the server (\"x\") has prevented the request from succeeding");
        check(404, "", "", "the server could not find the requested resource");
        check(302, "", "", "the server responded with the status code 302 but did not return more information");
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"go away"}"#;
        check(403, "application/json", status, "go away");
        for good in ["{}", "null", "kind: A", r#"{"kind":"A","apiVersion":"v1"}"#] {
            assert!(review(good.as_bytes()).is_ok(), "{good}");
        }
    }
}
