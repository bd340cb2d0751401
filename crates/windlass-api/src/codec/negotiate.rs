//! Which representation a client sends and which it wants: `Content-Type` and `Accept`.
//!
//! Mirrors upstream's two stages for built-in resources: the router (go-restful) only looks at whether a
//! media type is known at all, the handler then picks the first acceptable clause with its parameters
//! (`endpoints/handlers/negotiation`). Custom resources only pass the second stage. Hence two wordings for
//! 406 and 415.

use http::StatusCode;

use crate::status::{Details, Status};

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

impl Format {
    const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    /// The media type, as answers carry it.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Whether watches can be sent in it.
    pub(crate) const fn streams(self) -> bool {
        !matches!(self, Self::Yaml)
    }
}

/// A group, version and kind the client asks the answer to be converted to (`as`, `g`, `v`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// `g`
    pub group: String,
    /// `v`
    pub version: String,
    /// `as`
    pub kind: String,
}

/// What the answer should look like instead of the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// `as=Table`
    Table,
    /// `as=PartialObjectMetadata`: one object without spec and status.
    Metadata,
    /// `as=PartialObjectMetadataList`: a list of those.
    MetadataList,
}

/// The outcome of looking at `Accept`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// How to write the answer.
    pub format: Format,
    /// Whether `pretty=1` is among the parameters. See also [`wants_pretty`].
    pub pretty: bool,
    /// Whether `stream=watch` is among the parameters.
    pub stream: bool,
    /// What to convert to, as asked for.
    pub target: Option<Target>,
    /// The discovery profile.
    pub profile: String,
}

impl Accepted {
    /// JSON as it is: what a client without `Accept` gets.
    pub const fn json() -> Self {
        Self { format: Format::Json, pretty: false, stream: false, target: None, profile: String::new() }
    }

    /// The conversion asked for and its version, `v1` or `v1beta1`.
    pub fn transform(&self) -> Option<(Transform, &str)> {
        let target = self.target.as_ref()?;
        Some((transform_kind(&target.kind)?, target.version.as_str()))
    }
}

/// What an endpoint can answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A custom resource: no protobuf, except for tables and metadata.
    pub custom: bool,
    /// Lists and watches share a route, so that its 406 also names the stream types.
    pub list: bool,
    /// Whether `as=Table` is served.
    pub table: bool,
}

/// Chooses the answer's representation, or says 406.
pub fn accept(header: Option<&str>, endpoint: Endpoint) -> Result<Accepted, Status> {
    let header = header.unwrap_or_default();
    if !endpoint.custom {
        check_routed(header, endpoint.list)?;
    }
    negotiate(header, |format, target| endpoint.allows(format, target)).ok_or_else(no_format_fits)
}

/// Says 406 as upstream's router does, which looks at the types that a route has before anything else.
pub fn check_route(header: &str) -> Result<(), Status> {
    check_routed(header, false)
}

fn check_routed(header: &str, streams: bool) -> Result<(), Status> {
    if header.is_empty() || known_to_router(header) {
        return Ok(());
    }
    let mut available: Vec<_> = Format::ALL.iter().map(|f| f.media_type().to_owned()).collect();
    if streams {
        available.extend(stream_types());
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
    Err(routing_failure(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message))
}

/// Chooses a watch's representation, or says 406: there is no YAML stream.
pub fn accept_stream(header: Option<&str>, endpoint: Endpoint) -> Result<Accepted, Status> {
    let accepted = accept(header, endpoint)?;
    if accepted.format.streams() { Ok(accepted) } else { Err(not_acceptable(&stream_types().join(", "))) }
}

/// Picks the first clause that `allows` lets through, in the client's order of preference. An empty header
/// means JSON. Discovery brings its own idea of which conversions exist.
pub fn negotiate(header: &str, allows: impl Fn(Format, Option<&Target>) -> bool) -> Option<Accepted> {
    if header.is_empty() {
        return Some(Accepted::json());
    }
    let clauses = parse_accept(header);
    clauses.iter().find_map(|clause| {
        let matching = Format::ALL.into_iter().filter(|format| clause.matches(*format));
        matching.into_iter().find_map(|format| clause.options(format, &allows))
    })
}

/// The first of `offered` media types that the client takes, in its order of preference. No header takes
/// everything.
pub fn choose<'o>(header: &str, offered: &[&'o str]) -> Option<&'o str> {
    let header = if header.is_empty() { "*/*" } else { header };
    let matches = |clause: &Clause<'_>, offer: &str| {
        let (main, sub) = offer.split_once('/').unwrap_or((offer, ""));
        (clause.main == main || clause.main == "*") && (clause.sub == sub || clause.sub == "*")
    };
    parse_accept(header).iter().find_map(|clause| offered.iter().copied().find(|offer| matches(clause, offer)))
}

/// Whether a header is there and names no media type at all, such as `;`.
pub fn names_none(header: &str) -> bool {
    !header.is_empty() && parse_accept(header).is_empty()
}

/// The format of a request body, or 415. A missing header means JSON.
pub fn body_format(content_type: Option<&str>, custom: bool) -> Result<Format, Status> {
    let text = content_type.unwrap_or_default();
    if text.is_empty() {
        return Ok(Format::Json);
    }
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // Upstream lists protobuf for custom resources too, but cannot decode it.
    let known = Format::ALL.into_iter().find(|f| f.media_type() == essence);
    known
        .filter(|format| !(custom && *format == Format::Protobuf))
        .ok_or_else(|| unsupported(&Format::ALL.map(Format::media_type)))
}

/// How the content type of a server-side apply begins.
pub const APPLY_TYPE: &[u8] = b"application/apply-patch+";

/// How a PATCH is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`; built-in kinds only.
    Strategic,
    /// `application/apply-patch+yaml`: server-side apply.
    Apply,
}

impl PatchType {
    const ALL: [Self; 4] = [Self::Json, Self::Merge, Self::Strategic, Self::Apply];

    /// The media type.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// The type of a PATCH, or 415.
pub fn patch_type(content_type: Option<&str>, custom: bool) -> Result<PatchType, Status> {
    let text = content_type.unwrap_or_default();
    let find = |essence: &str| PatchType::ALL.into_iter().find(|p| p.media_type() == essence);
    if !custom {
        // The router takes a comma-separated list and any of its members.
        let mut essences = text.split(',').map(|part| part.split(';').next().unwrap_or_default().trim_matches(' '));
        if !essences.any(|essence| essence == "*/*" || find(essence).is_some()) {
            let message = "415: Unsupported Media Type".to_owned();
            return Err(routing_failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message));
        }
    }
    let essence = text.split(';').next().unwrap_or_default();
    let serves = |patch: &PatchType| !(custom && *patch == PatchType::Strategic);
    find(essence).filter(serves).ok_or_else(|| {
        let types: Vec<_> = PatchType::ALL.into_iter().filter(serves).map(PatchType::media_type).collect();
        unsupported(&types)
    })
}

/// Whether the answer is laid out for people: the query parameter `pretty` decides, otherwise browsers
/// and command-line HTTP tools get it.
pub fn wants_pretty(query: Option<&str>, user_agent: Option<&str>) -> bool {
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        return matches!(query, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = user_agent.unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}

impl Endpoint {
    fn allows(self, format: Format, target: Option<&Target>) -> bool {
        let Some(target) = target else { return !(self.custom && format == Format::Protobuf) };
        if target.group != "meta.k8s.io" || !matches!(target.version.as_str(), "v1" | "v1beta1") {
            return false;
        }
        match transform_kind(&target.kind) {
            Some(Transform::Table) => self.table && format != Format::Protobuf,
            Some(Transform::Metadata | Transform::MetadataList) => true,
            None => false,
        }
    }
}

fn transform_kind(kind: &str) -> Option<Transform> {
    match kind {
        "Table" => Some(Transform::Table),
        "PartialObjectMetadata" => Some(Transform::Metadata),
        "PartialObjectMetadataList" => Some(Transform::MetadataList),
        _ => None,
    }
}

/// One member of an `Accept` header.
#[derive(Debug)]
struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Clause<'_> {
    fn matches(&self, format: Format) -> bool {
        let sub = format.media_type().trim_start_matches("application/");
        match (self.main, self.sub) {
            ("application" | "*", "*") => true,
            ("application", wanted) => wanted == sub,
            _ => false,
        }
    }

    fn options(&self, format: Format, allows: &impl Fn(Format, Option<&Target>) -> bool) -> Option<Accepted> {
        let mut accepted = Accepted { format, ..Accepted::json() };
        for &(key, value) in &self.parameters {
            match key {
                "as" => value.clone_into(&mut accepted.target.get_or_insert_default().kind),
                "g" => value.clone_into(&mut accepted.target.get_or_insert_default().group),
                "v" => value.clone_into(&mut accepted.target.get_or_insert_default().version),
                "stream" if value.is_empty() => {}
                "stream" if value == "watch" && format.streams() => accepted.stream = true,
                "stream" => return None,
                "sv" if !value.is_empty() && value != "v1" => return None,
                "pretty" => accepted.pretty = value == "1",
                "profile" => value.clone_into(&mut accepted.profile),
                _ => {}
            }
        }
        allows(format, accepted.target.as_ref()).then_some(accepted)
    }

    /// Whether this clause goes before `other`. Not a strict order (quality does not trump wildcards):
    /// that is goautoneg's, and the insertion sort around it is Go's for short lists.
    fn before(&self, other: &Self) -> bool {
        self.quality > other.quality || (self.main != "*" && other.main == "*") || (self.sub != "*" && other.sub == "*")
    }
}

fn parse_accept(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = header.split(',').filter_map(parse_clause).collect();
    for i in 1..clauses.len() {
        let mut at = i;
        while at > 0 && clauses[at].before(&clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

fn parse_clause(part: &str) -> Option<Clause<'_>> {
    let mut pieces = part.split(';');
    let range = pieces.next()?;
    let (main, sub) = match range.split_once('/') {
        Some((main, sub)) => (main.trim_matches(' '), sub.trim_matches(' ')),
        None => (range.trim_matches(' '), ""),
    };
    let sub = match (main, sub) {
        ("*", "") => "*",
        (_, "") => return None,
        (_, sub) if sub.contains('/') => return None,
        (_, sub) => sub,
    };
    let mut clause = Clause { main, sub, quality: 1.0, parameters: Vec::new() };
    for piece in pieces {
        let Some((key, value)) = piece.split_once('=') else { continue };
        if value.is_empty() || value.contains('=') {
            continue;
        }
        match key.trim_matches(' ') {
            "q" => clause.quality = value.parse().unwrap_or(0.0),
            key => clause.parameters.push((key, value.trim_matches(' '))),
        }
    }
    Some(clause)
}

/// Whether any member of the header is a media type the router knows.
fn known_to_router(header: &str) -> bool {
    header.split(',').any(|part| {
        let essence = part.split(';').next().unwrap_or_default().trim_matches(' ');
        essence == "*/*" || Format::ALL.iter().any(|f| f.media_type() == essence)
    })
}

fn stream_types() -> Vec<String> {
    let streaming = Format::ALL.iter().filter(|f| f.streams());
    streaming.map(|f| format!("{};stream=watch", f.media_type())).collect()
}

/// 406 that names every format.
pub fn no_format_fits() -> Status {
    not_acceptable(&Format::ALL.map(Format::media_type).join(", "))
}

fn not_acceptable(types: &str) -> Status {
    let message = format!("only the following media types are accepted: {types}");
    Status::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

fn unsupported(types: &[&str]) -> Status {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        types.join(", ")
    );
    Status::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
}

/// What the router's failures look like: `details` is there, but empty.
fn routing_failure(code: StatusCode, reason: &'static str, message: String) -> Status {
    let mut status = Status::new(code, reason, message);
    status.details = Some(Box::<Details>::default());
    status
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LIST: Endpoint = Endpoint { custom: false, list: true, table: true };
    const CUSTOM: Endpoint = Endpoint { custom: true, ..LIST };

    #[test]
    fn clients_ask_for_openapi_in_protobuf_by_either_name() {
        const OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        const NEW: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
        const JSON: &str = "application/json";
        for (header, chosen) in [
            (OLD, Some(OLD)),
            ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf, application/json", Some(NEW)),
            ("application/json, application/com.github.proto-openapi.spec.v2@v1.0+protobuf", Some(JSON)),
            ("*/*", Some(JSON)),
            ("application/*", Some(JSON)),
            ("", Some(JSON)),
            ("text/html", None),
        ] {
            assert_eq!(choose(header, &[JSON, OLD, NEW]), chosen, "{header}");
        }
    }

    fn format_of(header: &str, endpoint: Endpoint) -> Format {
        accept(Some(header), endpoint).expect(header).format
    }

    #[test]
    fn the_client_order_and_quality_decide() {
        for (header, format) in [
            ("", Format::Json),
            ("*/*", Format::Json),
            ("*", Format::Json),
            ("application/yaml", Format::Yaml),
            ("application/yaml, application/json", Format::Yaml),
            ("application/vnd.kubernetes.protobuf,application/json", Format::Protobuf),
            ("application/json;q=0.5,application/yaml;q=0.9", Format::Yaml),
            ("text/html;q=0.9,application/json;q=0.5", Format::Json),
            ("*/*,application/yaml", Format::Yaml),
            ("application/json;stream=watch", Format::Json),
            ("application/yaml;stream=watch,application/json", Format::Json),
        ] {
            // A bare `*` is only known to the second stage.
            let endpoint = if header == "*" { CUSTOM } else { LIST };
            assert_eq!(format_of(header, endpoint), format, "{header}");
        }
        assert_eq!(format_of("application/vnd.kubernetes.protobuf,application/json", CUSTOM), Format::Json);
    }

    #[test]
    fn tables_and_metadata_are_understood() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(accept(Some(kubectl), LIST).unwrap().transform(), Some((Transform::Table, "v1")));
        let untabled = Endpoint { table: false, ..LIST };
        assert_eq!(accept(Some(kubectl), untabled).unwrap().transform(), None);
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        for endpoint in [LIST, CUSTOM] {
            let accepted = accept(Some(metadata), endpoint).unwrap();
            assert_eq!(accepted.format, Format::Protobuf);
            assert_eq!(accepted.transform(), Some((Transform::MetadataList, "v1")));
        }
    }

    #[test]
    fn what_is_not_acceptable_is_said_in_two_ways() {
        let routed = accept(Some("text/html"), LIST).unwrap_err();
        assert_eq!(
            routed.message,
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        );
        assert!(routed.details.is_some());
        let all = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        for (header, endpoint) in [
            ("text/html", CUSTOM),
            ("application/json;as=Bogus;v=v1;g=meta.k8s.io", LIST),
            ("application/json;sv=v2", LIST),
        ] {
            let status = accept(Some(header), endpoint).unwrap_err();
            assert_eq!((status.code.as_u16(), status.message.as_str()), (406, all));
        }
        let status = accept_stream(Some("application/yaml"), LIST).unwrap_err();
        assert_eq!(
            status.message,
            "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        );
    }

    #[test]
    fn bodies_and_patches() {
        assert_eq!(body_format(None, false).unwrap(), Format::Json);
        assert_eq!(body_format(Some("Application/JSON; charset=utf-8"), true).unwrap(), Format::Json);
        let status = body_format(Some("text/plain"), false).unwrap_err();
        assert_eq!(
            status.message,
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
        );
        assert_eq!(patch_type(Some("application/merge-patch+json; charset=utf-8"), false).unwrap(), PatchType::Merge);
        for content_type in
            [None, Some("application/json"), Some("application/yaml"), Some("application/apply-patch+cbor")]
        {
            let status = patch_type(content_type, false).unwrap_err();
            assert_eq!((status.message.as_str(), status.details.is_some()), ("415: Unsupported Media Type", true));
        }
        let status = patch_type(Some("application/strategic-merge-patch+json"), true).unwrap_err();
        assert_eq!(
            status.message,
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        );
    }

    #[test]
    fn people_get_indented_answers() {
        assert!(wants_pretty(None, Some("curl/8.0")) && wants_pretty(Some("true"), None));
        assert!(!wants_pretty(Some("0"), Some("curl/8.0")) && !wants_pretty(None, Some("kubectl/v1.36")));
    }
}
