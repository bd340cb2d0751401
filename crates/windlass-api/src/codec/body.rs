//! A request body becomes an object of the expected kind, or a 400 in upstream's words.
//!
//! Mirrors the decoder chain behind upstream's create and update handlers: read `kind` and `apiVersion`
//! (absent ones default to what the endpoint serves), find the type, decode, convert. Custom resources have
//! no defaults for `kind` and are compared by version alone; their kind is checked by validation.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::negotiate::Format;
use super::{json, protobuf, yaml};
use crate::field::quote;
use crate::resource::Resource;
use crate::schema::builtin;
use crate::status::Status;

/// What an endpoint takes.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The API version.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// Whether it is a custom resource.
    pub custom: bool,
}

impl<'a> From<&'a Resource> for Expected<'a> {
    fn from(resource: &'a Resource) -> Self {
        Self { group: &resource.group, version: &resource.version, kind: &resource.kind, custom: resource.custom }
    }
}

/// An untyped object from a request body. `kind` and `apiVersion` are set.
#[derive(Clone, Debug)]
pub struct Decoded<'a> {
    /// The object.
    pub value: Value,
    /// Duplicate keys, as upstream words them; a strict request is refused for them, others warned.
    pub duplicates: Vec<StrictError>,
    /// The JSON text it came from, which knows the order of fields. `None` for other formats.
    pub source: Option<&'a [u8]>,
}

/// A field that a strict decoder refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrictError {
    /// Upstream's words, e.g. `duplicate field "spec.replicas"`.
    pub message: String,
    /// Where it is in the document.
    pub offset: usize,
}

impl std::fmt::Display for StrictError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// Decodes a request body.
pub fn decode_body<'a>(body: &'a [u8], format: Format, expected: Expected<'_>) -> Result<Decoded<'a>, Status> {
    let unrecognized = |why: &str| {
        let message = format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            expected.kind,
            summary(body)
        );
        Status::bad_request(message)
    };
    if format == Format::Protobuf && !expected.custom {
        let envelope = protobuf::open(body).map_err(|why| unrecognized(&why))?;
        return decode_protobuf(body, &envelope, expected);
    }
    let (value, duplicates) = read(body, format).map_err(|why| unrecognized(&in_search_of_kind(format, &why)))?;
    let source = (format == Format::Json).then_some(body);
    let mut map = match value {
        Value::Object(map) => map,
        // Go decodes null into an empty object.
        Value::Null => Map::new(),
        other => return Err(unrecognized(&not_an_object(&other))),
    };
    let kind = type_field(&map, "kind").map_err(|why| unrecognized(&why))?;
    let api_version = type_field(&map, "apiVersion").map_err(|why| unrecognized(&why))?;
    let (group, version) = parse_group_version(&api_version).map_err(|why| unrecognized(&why))?;

    let found = if expected.custom {
        if kind.is_empty() {
            return Err(unrecognized(&format!("Object 'Kind' is missing in '{}'", json::lossy(body))));
        }
        Found { group: group.to_owned(), version: version.to_owned(), kind }
    } else {
        let found = Found::with_defaults(group, version, &kind, expected);
        found.check_type(body, expected).map_err(|why| cannot_be_handled(&found, expected, &why))?;
        found
    };
    found.check_version(expected)?;
    found.write_to(&mut map);
    Ok(Decoded { value: Value::Object(map), duplicates, source })
}

fn decode_protobuf<'a>(
    body: &[u8],
    envelope: &protobuf::Envelope<'_>,
    expected: Expected<'_>,
) -> Result<Decoded<'a>, Status> {
    let (group, version) = parse_group_version(&envelope.api_version).unwrap_or_default();
    let found = Found::with_defaults(group, version, &envelope.kind, expected);
    let fail = |why: &str| cannot_be_handled(&found, expected, why);
    found.check_type(body, expected).map_err(|why| fail(&why))?;
    let value = match protobuf::decode(envelope.raw, &found.group, &found.version, &found.kind) {
        Some(value) => value.map_err(|why| fail(&why))?,
        None => return Err(fail(&not_registered(&found.kind, &found.api_version(), scheme_of(expected.group)))),
    };
    found.check_version(expected)?;
    let Value::Object(mut map) = value else { return Err(fail("empty body")) };
    found.write_to(&mut map);
    Ok(Decoded { value: Value::Object(map), duplicates: Vec::new(), source: None })
}

/// 400 for a body of the right kind whose content does not decode: `why` is the decoder's complaint.
pub fn undecodable(expected: Expected<'_>, why: &str) -> Status {
    let found = Found {
        group: expected.group.to_owned(),
        version: expected.version.to_owned(),
        kind: expected.kind.to_owned(),
    };
    cannot_be_handled(&found, expected, why)
}

/// Strict errors as one text, without the prefix that says whose they are.
pub fn strict_message(errors: &[StrictError]) -> String {
    let mut out = "strict decoding error: ".to_owned();
    for (i, error) in errors.iter().enumerate() {
        let _ = write!(out, "{}{error}", if i > 0 { ", " } else { "" });
    }
    out
}

/// Decodes the options that may come with a DELETE. Any API version will do, and nothing is reported about
/// unknown fields.
pub fn decode_delete_options(body: &[u8], format: Format) -> Result<Value, Status> {
    const SCHEME: &str = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
    let refused = |why: &str| Status::bad_request(why);
    let (value, _) = if format == Format::Protobuf {
        let envelope = protobuf::open(body).map_err(|why| refused(&why))?;
        if !matches!(&*envelope.kind, "" | "DeleteOptions") {
            return Err(refused(&not_registered(&envelope.kind, &envelope.api_version, SCHEME)));
        }
        let decoded = protobuf::decode(envelope.raw, "", "v1", "DeleteOptions");
        (decoded.unwrap_or(Ok(Value::Null)).map_err(|why| refused(&why))?, Vec::new())
    } else {
        read(body, format).map_err(|why| refused(&in_search_of_kind(format, &why)))?
    };
    let map = match value {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        other => return Err(refused(&not_an_object(&other))),
    };
    let kind = type_field(&map, "kind").map_err(|why| refused(&why))?;
    let api_version = type_field(&map, "apiVersion").map_err(|why| refused(&why))?;
    if !matches!(kind.as_str(), "" | "DeleteOptions") {
        let api_version = if api_version.is_empty() { "v1" } else { &api_version };
        return Err(refused(&not_registered(&kind, api_version, SCHEME)));
    }
    let id =
        builtin::by_kind("", "v1", "DeleteOptions").ok_or_else(|| Status::internal("DeleteOptions has no schema"))?;
    let decoded = Decoded { value: Value::Object(map), duplicates: Vec::new(), source: None };
    let typed = super::typed::decode_typed(decoded, builtin::definition(id)).map_err(|why| refused(&why))?;
    Ok(typed.value)
}

/// What a reader's complaint becomes while upstream is looking for the kind in a JSON body.
fn in_search_of_kind(format: Format, why: &str) -> String {
    match format {
        Format::Json => format!("couldn't get version/kind; json parse error: {why}"),
        Format::Yaml | Format::Protobuf => why.to_owned(),
    }
}

/// Parses a body without looking at its kind: what the format's decoder reads or says, and duplicate keys.
pub fn read(body: &[u8], format: Format) -> Result<(Value, Vec<StrictError>), String> {
    match format {
        Format::Json => {
            let parsed = json::parse(body).map_err(|error| error.message)?;
            let duplicates = parsed.duplicates.into_iter();
            let duplicates = duplicates
                .map(|d| StrictError { message: format!("duplicate field {}", quote(&d.path)), offset: d.offset });
            Ok((parsed.value, duplicates.collect()))
        }
        Format::Yaml => {
            let parsed = yaml::parse(body)?;
            let duplicates = parsed.duplicates.into_iter().map(|message| StrictError { message, offset: 0 });
            Ok((parsed.value, duplicates.collect()))
        }
        Format::Protobuf => {
            let envelope = protobuf::open(body)?;
            let (group, version) = parse_group_version(&envelope.api_version)?;
            let decoded = protobuf::decode(envelope.raw, group, version, &envelope.kind).ok_or_else(|| {
                not_registered(&envelope.kind, &envelope.api_version, "pkg/api/legacyscheme/scheme.go:30")
            })?;
            Ok((decoded?, Vec::new()))
        }
    }
}

struct Found {
    group: String,
    version: String,
    kind: String,
}

impl Found {
    fn with_defaults(group: &str, version: &str, kind: &str, expected: Expected<'_>) -> Self {
        let mut found = Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() };
        if kind.is_empty() {
            expected.kind.clone_into(&mut found.kind);
        }
        if group.is_empty() && version.is_empty() {
            expected.group.clone_into(&mut found.group);
        }
        if version.is_empty() && found.group == expected.group {
            expected.version.clone_into(&mut found.version);
        }
        found
    }

    /// Whether the type named exists and is another version of the expected kind.
    fn check_type(&self, body: &[u8], expected: Expected<'_>) -> Result<(), String> {
        if self.version.is_empty() {
            return Err(format!("Object 'apiVersion' is missing in '{}'", json::lossy(body)));
        }
        if (self.group.as_str(), self.version.as_str(), self.kind.as_str())
            == (expected.group, expected.version, expected.kind)
        {
            return Ok(());
        }
        if builtin::by_kind(&self.group, &self.version, &self.kind).is_none() {
            return Err(not_registered(&self.kind, &self.api_version(), scheme_of(expected.group)));
        }
        if self.kind == expected.kind
            && internal_package(&self.group, &self.kind) == internal_package(expected.group, expected.kind)
        {
            return Ok(());
        }
        Err(format!(
            "converting ({}.{}) to ({}.{}): unknown conversion",
            self.version,
            self.kind,
            internal_package(expected.group, expected.kind),
            expected.kind
        ))
    }

    /// Whether the body is in the version of the endpoint.
    fn check_version(&self, expected: Expected<'_>) -> Result<(), Status> {
        if (self.group.as_str(), self.version.as_str()) == (expected.group, expected.version) {
            return Ok(());
        }
        Err(Status::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            self.api_version(),
            join_group_version(expected.group, expected.version),
        )))
    }

    fn write_to(self, map: &mut Map<String, Value>) {
        map.insert("apiVersion".to_owned(), self.api_version().into());
        map.insert("kind".to_owned(), self.kind.into());
    }

    fn api_version(&self) -> String {
        join_group_version(&self.group, &self.version)
    }
}

fn cannot_be_handled(found: &Found, expected: Expected<'_>, why: &str) -> Status {
    let Found { version, kind, .. } = found;
    Status::bad_request(format!("{kind} in version {} cannot be handled as a {}: {why}", quote(version), expected.kind))
}

/// The text for a kind that a scheme does not know.
pub fn not_registered(kind: &str, api_version: &str, scheme: &str) -> String {
    format!("no kind {} is registered for version {} in scheme {}", quote(kind), quote(api_version), quote(scheme))
}

/// Where upstream makes the scheme a group is registered in; its errors name the place.
pub fn scheme_of(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:56",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// The Go package of a kind's internal type, which conversion errors name.
fn internal_package<'a>(group: &'a str, kind: &str) -> &'a str {
    match (group, kind) {
        ("", _) | ("events.k8s.io", "Event" | "EventList") => "core",
        ("internal.apiserver.k8s.io", _) => "apiserverinternal",
        _ => group.split('.').next().unwrap_or_default(),
    }
}

fn join_group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits an `apiVersion` into group and version.
pub fn parse_group_version(api_version: &str) -> Result<(&str, &str), String> {
    if api_version.is_empty() || api_version == "/" {
        return Ok(("", ""));
    }
    match api_version.split_once('/') {
        None => Ok(("", api_version)),
        Some((group, version)) if !version.contains('/') => Ok((group, version)),
        Some(_) => Err(format!("unexpected GroupVersion string: {api_version}")),
    }
}

/// `kind` or `apiVersion`, as upstream looks for them before anything else.
pub fn type_field(map: &Map<String, Value>, key: &str) -> Result<String, String> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{key} of type string",
            json::go_type_of(other)
        )),
    }
}

fn not_an_object(value: &Value) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {}",
        json::go_type_of(value),
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#
    )
}

/// The start of a body that made no sense: as it is if it looks like JSON, otherwise in hexadecimal.
fn summary(body: &[u8]) -> String {
    const MAX: usize = 30;
    let shown = &body[..body.len().min(MAX)];
    let mut out = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => json::lossy(shown).into_owned(),
        Some(_) => shown.iter().fold(String::new(), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        }),
    };
    if body.len() > MAX {
        out.push_str(" ...");
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CONFIG_MAP: Expected<'_> = Expected { group: "", version: "v1", kind: "ConfigMap", custom: false };
    const GEAR: Expected<'_> = Expected { group: "example.com", version: "v1", kind: "Gear", custom: true };

    fn refused(body: &str, expected: Expected<'_>) -> String {
        decode_body(body.as_bytes(), Format::Json, expected).expect_err(body).message
    }

    #[test]
    fn kind_and_version_default_to_what_is_expected() {
        for body in ["{}", "null", r#"{"kind":"ConfigMap"}"#, r#"{"apiVersion":"v1"}"#, r#"{"apiVersion":"/"}"#] {
            let decoded = decode_body(body.as_bytes(), Format::Json, CONFIG_MAP).expect(body);
            assert_eq!(decoded.value, json!({"apiVersion": "v1", "kind": "ConfigMap"}));
        }
    }

    #[test]
    fn bodies_that_are_no_objects_are_shown() {
        for (body, expected) in [
            (
                r#"{"apiVersion":"v1","#,
                r#"the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({"apiVersion":"v1",)"#,
            ),
            (
                "",
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
            ),
            (
                "[1, 2]",
                r#"the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" } (5b312c20325d)"#,
            ),
            (
                r#"{"kind":1,"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":2}"#,
                r#"the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({"kind":1,"aaaaaaaaaaaaaaaaaaa ...)"#,
            ),
        ] {
            assert_eq!(refused(body, CONFIG_MAP), expected);
        }
    }

    #[test]
    fn other_kinds_and_versions_are_refused() {
        for (body, expected) in [
            (
                r#"{"apiVersion":"v1","kind":"Secret"}"#,
                r#"Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion"#,
            ),
            (
                r#"{"apiVersion":"apps/v1","kind":"ConfigMap"}"#,
                r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "apps/v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#,
            ),
            (
                r#"{"apiVersion":"a/b/c"}"#,
                r#"the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: a/b/c ({"apiVersion":"a/b/c"})"#,
            ),
        ] {
            assert_eq!(refused(body, CONFIG_MAP), expected);
        }
        let scale = Expected { group: "autoscaling", version: "v1", kind: "Scale", custom: false };
        assert_eq!(
            refused(r#"{"apiVersion":"apps/v1","kind":"Deployment"}"#, scale),
            r#"Deployment in version "v1" cannot be handled as a Scale: converting (v1.Deployment) to (autoscaling.Scale): unknown conversion"#
        );
        let autoscaler =
            Expected { group: "autoscaling", version: "v2", kind: "HorizontalPodAutoscaler", custom: false };
        assert_eq!(
            refused(r#"{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler"}"#, autoscaler),
            "the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)"
        );
    }

    #[test]
    fn custom_resources_say_what_they_are() {
        assert_eq!(
            refused(r#"{"apiVersion":"example.com/v2","kind":"Gear"}"#, GEAR),
            "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)"
        );
        assert_eq!(
            refused("{}", GEAR),
            "the object provided is unrecognized (must be of type Gear): Object 'Kind' is missing in '{}' ({})"
        );
        let other = decode_body(br#"{"apiVersion":"example.com/v1","kind":"Other"}"#, Format::Json, GEAR);
        assert_eq!(other.expect("the kind is validation's business").value["kind"], "Other");
    }

    #[test]
    fn delete_options_come_in_any_version_and_format() {
        let options = |body: &[u8], format| decode_delete_options(body, format).map_err(|status| status.message);
        let json = br#"{"kind":"DeleteOptions","apiVersion":"apps/v1","gracePeriodSeconds":0,"oops":1}"#;
        let yaml = b"gracePeriodSeconds: 0\n";
        let protobuf = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x02\x08\0";
        for (body, format) in [(&json[..], Format::Json), (yaml, Format::Yaml), (protobuf, Format::Protobuf)] {
            assert_eq!(options(body, format).expect("decodes")["gracePeriodSeconds"], 0);
        }
        assert_eq!(
            options(br#"{"apiVersion":"v1","kind":"ConfigMap"}"#, Format::Json),
            Err(r#"no kind "ConfigMap" is registered for version "v1" in scheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27""#.to_owned())
        );
        assert_eq!(
            options(br#"{"gracePeriodSeconds":"x"}"#, Format::Json),
            Err("json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
                .to_owned())
        );
        assert_eq!(
            options(b"{", Format::Json),
            Err("couldn't get version/kind; json parse error: unexpected end of JSON input".to_owned())
        );
    }

    #[test]
    fn duplicates_are_worded() {
        let body = br#"{"data":{"a":"1","a":"2"},"data":{"a":"3"}}"#;
        let decoded = decode_body(body, Format::Json, CONFIG_MAP).expect("decodes");
        assert_eq!(
            strict_message(&decoded.duplicates),
            r#"strict decoding error: duplicate field "data.a", duplicate field "data""#
        );
    }
}
