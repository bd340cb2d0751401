//! Continue tokens: where the next page of a list starts, and the revision that every page is read at.
//!
//! Mirrors `storage/continue.go` of upstream's `apiserver`: base64 of JSON, and what is wrong with a token is told in the
//! words of Go's decoders.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Value, json};

use crate::codec::json::{self, go_type_of};
use crate::status::Status;

const VERSION: &str = "meta.k8s.io/v1";

/// A decoded token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The revision to read at; the newest if there is none, as in the token that replaces an expired one.
    pub(super) revision: Option<u64>,
    /// Where to start, below the prefix of the list.
    pub(super) start: String,
}

fn tokens() -> GeneralPurpose {
    let config = GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&URL_SAFE, config)
}

/// A token to continue after the key `last` of a list of `prefix`.
pub(super) fn encode(revision: u64, last: &[u8], prefix: &str) -> String {
    let start = String::from_utf8_lossy(&last[prefix.len().min(last.len())..]);
    encode_start(&json!(revision), &format!("{start}\0"))
}

/// A token to continue from `start` at whatever revision is the newest then.
pub(super) fn encode_inconsistent(start: &str) -> String {
    encode_start(&json!(-1), start)
}

fn encode_start(revision: &Value, start: &str) -> String {
    tokens().encode(json!({"v": VERSION, "rv": revision, "start": start}).to_string())
}

/// What a token says, or what is wrong with it.
pub(super) fn decode(token: &str) -> Result<Token, Status> {
    read(token).map_err(|why| Status::bad_request(format!("invalid continue token: continue key is not valid{why}")))
}

fn read(token: &str) -> Result<Token, String> {
    let generic = |why: &dyn std::fmt::Display| format!(": {why}");
    if let Some(at) = illegal_at(token) {
        return Err(generic(&format_args!("illegal base64 data at input byte {at}")));
    }
    let text: String = token.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes = tokens().decode(text).map_err(|error| generic(&error))?;
    let value = json::parse(&bytes).map_err(|error| generic(&error))?.value;
    let Value::Object(fields) = &value else {
        if value.is_null() {
            return Err(": server does not recognize this encoded version ".to_owned());
        }
        let kind = go_type_of(&value);
        return Err(generic(&format_args!(
            "json: cannot unmarshal {kind} into Go value of type storage.continueToken"
        )));
    };
    let wrong = |field: &str, value: &Value, wanted: &str| {
        let kind = go_type_of(value);
        let kind = match value {
            Value::Number(number) if wanted == "int64" => format!("{kind} {number}"),
            _ => kind.to_owned(),
        };
        generic(&format_args!(
            "json: cannot unmarshal {kind} into Go struct field continueToken.{field} of type {wanted}"
        ))
    };
    let text = |field: &str| match fields.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => Err(wrong(field, other, "string")),
    };
    let (version, start) = (text("v")?, text("start")?);
    let revision = match fields.get("rv") {
        None | Some(Value::Null) => 0,
        Some(value) => value.as_i64().ok_or_else(|| wrong("rv", value, "int64"))?,
    };
    if version != VERSION {
        return Err(format!(": server does not recognize this encoded version {version}"));
    }
    if revision == 0 {
        return Err(format!(": incorrect encoded start resourceVersion (version {VERSION})"));
    }
    if start.is_empty() {
        return Err(format!(": encoded start key empty (version {VERSION})"));
    }
    let key = start.strip_prefix('/').unwrap_or(start);
    if !key.is_empty() && key.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(generic(&start));
    }
    Ok(Token { revision: u64::try_from(revision).ok(), start: key.to_owned() })
}

/// Where Go's decoder finds that a text is no base64.
fn illegal_at(token: &str) -> Option<usize> {
    let is_space = |byte: u8| matches!(byte, b'\n' | b'\r');
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let illegal = token.bytes().position(|byte| !is_space(byte) && !is_known(byte));
    let count = token.bytes().filter(|byte| !is_space(*byte)).count();
    illegal.or_else(|| (count % 4 == 1).then(|| token.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(token: &str, expected: &str) {
        let said = decode(token).map_or_else(|status| status.message, |token| format!("{token:?}"));
        assert_eq!(said.strip_prefix("invalid continue token: continue key is not valid").unwrap_or(&said), expected);
    }

    #[test]
    fn a_token_is_what_was_encoded() {
        let token = encode(7, b"/registry/pods/ns/a", "/registry/pods/");
        assert_eq!(decode(&token).expect("decodes"), Token { revision: Some(7), start: "ns/a\0".to_owned() });
        let token = encode_inconsistent("ns/a");
        assert_eq!(decode(&token).expect("decodes"), Token { revision: None, start: "ns/a".to_owned() });
    }

    #[test]
    fn problems_of_tokens_are_in_upstreams_words() {
        let of = |text: &str| tokens().encode(text);
        check("%%%", ": illegal base64 data at input byte 0");
        check("abc=", ": illegal base64 data at input byte 3");
        check("abcde", ": illegal base64 data at input byte 4");
        check(&of("[]"), ": json: cannot unmarshal array into Go value of type storage.continueToken");
        check(&of("{}"), ": server does not recognize this encoded version ");
        check(&of(r#"{"v":"v2","rv":1,"start":"a"}"#), ": server does not recognize this encoded version v2");
        check(&of(r#"{"v":1}"#), ": json: cannot unmarshal number into Go struct field continueToken.v of type string");
        check(
            &of(r#"{"v":"meta.k8s.io/v1","rv":"1","start":"a"}"#),
            ": json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
        );
        let with = |rv: i64, start: &str| of(&json!({"v": VERSION, "rv": rv, "start": start}).to_string());
        check(&with(0, "a"), ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)");
        check(&with(1, ""), ": encoded start key empty (version meta.k8s.io/v1)");
        check(&with(1, "../secrets/a"), ": ../secrets/a");
        check(&with(1, "a//b"), ": a//b");
        check(&with(1, "a/"), ": a/");
    }
}
