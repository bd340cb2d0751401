//! Answers in the form the client asked for.
//!
//! The common case, JSON in the storage version, serves stored bytes as they are: an object is one
//! buffer, a list is a stream of its items' buffers, metadata alone is a slice of them. Everything else
//! (Tables, YAML, protobuf, another version) decodes each object and encodes it anew.

mod events;
mod rows;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::{Value, json};
use windlass_store::Entry;

use crate::answer::{Answer, ListMeta};
use crate::api::Api;
use crate::body::Body;
use crate::catalog::Served;
use crate::codec::negotiate::{Accepted, Format, Transform};
use crate::codec::protobuf::NotMarshalable;
use crate::codec::{self, peek, write};
use crate::context::Context;
use crate::resource::internal_package;
use crate::status::Status;
use crate::stored::Stored;
use crate::table::{self, IncludeObject, MetaVersion};
use crate::{effort, versions};

/// Lists up to this size are sent in one piece.
const WHOLE: usize = 64 * 1024;
/// What cutting the metadata out of an object takes, in bytes of objects that are decoded.
const SLICED: usize = 64;
/// Characters of all warnings together, above which each of them is cut to [`WARNING`].
const WARNINGS: usize = 4 * 1024;
const WARNING: usize = 256;

/// The metadata of a list that is shown as a table.
fn table_meta(meta: &ListMeta) -> table::ListMeta<'_> {
    table::ListMeta {
        resource_version: meta.revision.to_string().into(),
        continue_token: meta.continue_token.as_deref().map(Into::into),
        remaining_item_count: meta.remaining.map(|count| count as i64),
    }
}

/// A list in the form the client asked for.
async fn list(context: &RenderContext, entries: Vec<Entry>, meta: &ListMeta) -> Result<Body, Status> {
    if let Some((Transform::Metadata, _)) = context.accepted.transform() {
        let found = go_type(&context.served, true);
        return Err(not_acceptable(format!(
            "you requested PartialObjectMetadata, but the requested object is a list ({found})"
        )));
    }
    let plain =
        context.accepted.target.is_none() && context.accepted.format == Format::Json && !context.accepted.pretty;
    if plain {
        return plain_list(context, entries, meta).await;
    }
    if let Some(body) = metadata_list(context, &entries, meta).await {
        return Ok(body.into());
    }
    match rows::streams(context, meta)? {
        Some(form) => rows::list(context, entries, meta, form).await,
        None => Ok(built_list(context, &entries, meta).await?.into()),
    }
}

/// A list of stored bytes. Items of built-in kinds come without `kind` and `apiVersion`, which every
/// stored object begins with.
async fn plain_list(context: &RenderContext, mut entries: Vec<Entry>, meta: &ListMeta) -> Result<Body, Status> {
    let served = &context.served;
    let mut others: Vec<&mut Entry> =
        entries.iter_mut().filter(|entry| !versions::as_is(served, entry.modified)).collect();
    if !others.is_empty() {
        let stored = others.iter().map(|entry| &entry.value[..]);
        let objects = versions::all_to_served(&context.api, served, stored).await?;
        for (entry, object) in others.iter_mut().zip(objects) {
            entry.value = write::to_vec(&object).into();
        }
    }
    let mut head = Vec::with_capacity(256);
    write_head(&served.list_kind, &served.api_version(), &mut head);
    write::write_value(&meta.to_value(), &mut head);
    head.extend_from_slice(b",\"items\":[");
    let skip = if served.custom { None } else { Some(served.head.clone()) };
    let total: usize = entries.iter().map(|entry| entry.value.len() + 1).sum();
    let mut items = entries.into_iter().enumerate();
    let mut next = move |out: &mut Vec<u8>| {
        for (i, entry) in items.by_ref() {
            if i > 0 {
                out.push(b',');
            }
            match &skip {
                Some(skip) if entry.value.starts_with(skip.as_bytes()) => {
                    out.push(b'{');
                    out.extend_from_slice(&entry.value[skip.len()..]);
                }
                _ => out.extend_from_slice(&entry.value),
            }
            if out.len() >= WHOLE {
                return true;
            }
        }
        out.extend_from_slice(b"]}\n");
        false
    };
    if total + head.len() <= WHOLE {
        head.reserve(total + 3);
        next(&mut head);
        return Ok(head.into());
    }
    let state = Some((head, next));
    Ok(Body::stream(stream::unfold(state, |state| {
        let step = state.map(|(mut out, mut next)| {
            out.reserve(WHOLE + 4096);
            let more = next(&mut out);
            (Bytes::from(out), more.then(|| (Vec::new(), next)))
        });
        std::future::ready(step)
    })))
}

/// The metadata of stored objects, where it can be cut out of them.
async fn metadata_list(context: &RenderContext, entries: &[Entry], meta: &ListMeta) -> Option<Bytes> {
    let api_version = sliced_metadata(&context.accepted)?.api_version();
    let is_long = effort::is_large_read(entries.len() * SLICED);
    context.api.offload.rest_of_request(context.served.qualified(), is_long).await;
    let mut out = Vec::with_capacity(256 + entries.len() * 512);
    write_head("PartialObjectMetadataList", api_version, &mut out);
    write::write_value(&meta.to_value(), &mut out);
    out.extend_from_slice(b",\"items\":[");
    for (i, entry) in entries.iter().enumerate() {
        if !versions::as_is(&context.served, entry.modified) {
            return None;
        }
        if i > 0 {
            out.push(b',');
        }
        write_metadata(&entry.value, api_version, &mut out)?;
    }
    out.extend_from_slice(b"]}\n");
    Some(out.into())
}

/// The version of the metadata that is asked for, if it is and in the format it is stored in.
fn sliced_metadata(accepted: &Accepted) -> Option<MetaVersion> {
    match accepted.transform()? {
        (Transform::Table, _) => None,
        (_, version) => (accepted.format == Format::Json && !accepted.pretty).then(|| MetaVersion::of(version)),
    }
}

/// Writes a stored object's metadata as `kind: PartialObjectMetadata`, without decoding either.
fn write_metadata(stored: &[u8], api_version: &str, out: &mut Vec<u8>) -> Option<()> {
    let metadata = peek::metadata(stored)?;
    write_head("PartialObjectMetadata", api_version, out);
    out.extend_from_slice(metadata.bytes());
    out.push(b'}');
    Some(())
}

/// Writes what comes before the metadata of an object or list.
fn write_head(kind: &str, api_version: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"kind\":");
    write::write_string(kind, out);
    out.extend_from_slice(b",\"apiVersion\":");
    write::write_string(api_version, out);
    out.extend_from_slice(b",\"metadata\":");
}

/// A list whose items are decoded and encoded anew.
async fn built_list(context: &RenderContext, entries: &[Entry], meta: &ListMeta) -> Result<Bytes, Status> {
    let stored = entries.iter().map(|entry| &entry.value[..]);
    let objects = versions::all_to_served(&context.api, &context.served, stored).await?;
    let value = match context.accepted.transform() {
        Some((Transform::Table, _)) => table::table(&context.served, &objects, &table_meta(meta), &context.table)?,
        Some((_, version)) => table::partial_list(&objects, &table_meta(meta), MetaVersion::of(version)),
        None => {
            let items = objects.into_iter().map(|mut object| {
                if let (false, Value::Object(map)) = (context.served.custom, &mut object) {
                    map.remove("kind");
                    map.remove("apiVersion");
                }
                object
            });
            json!({
                "kind": &*context.served.list_kind, "apiVersion": context.served.api_version(),
                "metadata": meta.to_value(), "items": items.collect::<Vec<Value>>(),
            })
        }
    };
    encode(&value, &context.accepted)
}

/// Encodes a value in the format the client asked for.
pub(crate) fn encode(value: &Value, accepted: &Accepted) -> Result<Bytes, Status> {
    match accepted.format {
        Format::Json => {
            let mut out = write::to_vec(value);
            if accepted.pretty {
                let compact = std::mem::take(&mut out);
                write::indent(&compact, 0, &mut out);
            }
            out.push(b'\n');
            Ok(out.into())
        }
        Format::Yaml => Ok(codec::yaml::write(value).into()),
        Format::Protobuf => codec::protobuf::encode(value).map(Bytes::from).map_err(not_marshalable),
    }
}

fn not_marshalable(why: NotMarshalable) -> Status {
    not_acceptable(why.to_string())
}

fn not_acceptable(message: String) -> Status {
    Status::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

/// A Scale in the form the client asked for.
fn scale(context: &RenderContext, scale: &Value) -> Result<Bytes, Status> {
    match context.accepted.transform() {
        Some((Transform::Table, _)) => encode(&table::scale(scale, &context.table), &context.accepted),
        Some((_, version)) => encode(&table::partial(scale, MetaVersion::of(version)), &context.accepted),
        None => encode(scale, &context.accepted),
    }
}

/// The Go type of what was found.
fn go_type(served: &Served, list: bool) -> String {
    let suffix = if list { "List" } else { "" };
    if served.custom {
        return format!("*unstructured.Unstructured{suffix}");
    }
    format!("*{}.{}{suffix}", internal_package(&served.group), served.kind)
}

/// The answer that is one object. Unlike an event of a watch it is not shown as a list of metadata.
async fn single(context: &RenderContext, stored: &Stored) -> Result<Bytes, Status> {
    if let Some((Transform::MetadataList, _)) = context.accepted.transform() {
        let found = go_type(&context.served, false);
        return Err(not_acceptable(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({found})"
        )));
    }
    object(&context.api, &context.served, &context.accepted, stored, &context.table).await
}

/// One object in the form the client asked for.
async fn object(
    api: &Api,
    served: &Served,
    accepted: &Accepted,
    stored: &Stored,
    table: &table::Options,
) -> Result<Bytes, Status> {
    if accepted.target.is_none() && accepted.format == Format::Json && !accepted.pretty {
        return versions::bytes(api, served, &stored.bytes, stored.revision).await;
    }
    if let Some(version) = sliced_metadata(accepted).filter(|_| versions::as_is(served, stored.revision)) {
        let mut out = Vec::with_capacity(stored.bytes.len().min(1024));
        if write_metadata(&stored.bytes, version.api_version(), &mut out).is_some() {
            out.push(b'\n');
            return Ok(out.into());
        }
    }
    let object = versions::to_served(api, served, &stored.bytes).await?;
    let value = match accepted.transform() {
        Some((Transform::Table, _)) => table::table(served, [&object], &table::ListMeta::of_object(&object), table)?,
        Some((_, version)) => table::partial(&object, MetaVersion::of(version)),
        None => object,
    };
    encode(&value, accepted)
}

/// The answer of the registry as an HTTP response.
pub(crate) async fn answer(context: &RenderContext, answer: Answer) -> Response<Body> {
    let (made, warnings) = match answer {
        Answer::Raw { code, content_type, body, warnings } => (Ok(raw(code, content_type, body)), warnings),
        Answer::Response(response) => (Ok(*response), Vec::new()),
        Answer::Status { status: failure, warnings } => (Err(*failure), warnings),
        Answer::Object { code, object, warnings } => (whole(context, code, single(context, &object).await), warnings),
        Answer::Scale { scale: value, warnings } => (whole(context, StatusCode::OK, scale(context, &value)), warnings),
        // Boxed: most requests never come here, and all would be as large as one that does.
        Answer::List { entries, meta, warnings } => {
            (whole(context, StatusCode::OK, Box::pin(list(context, entries, &meta)).await), warnings)
        }
        Answer::Watch { events, warnings } => {
            (Ok(raw(StatusCode::OK, events::media_type(&context.accepted), events::body(context, events))), warnings)
        }
    };
    let mut response = made.unwrap_or_else(|failure| status(&failure, &context.accepted));
    warn(&mut response, &warnings);
    response
}

/// An answer in the format that the client asked for.
fn whole(
    context: &RenderContext,
    code: StatusCode,
    body: Result<impl Into<Body>, Status>,
) -> Result<Response<Body>, Status> {
    Ok(raw(code, context.accepted.format.media_type(), body?.into()))
}

/// Adds warnings as headers. Many or long ones are cut, so that no client has to refuse the answer for them.
fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let said = |warning: &&String| !warning.is_empty() && !warning.contains(char::is_control);
    let mut said: Vec<&str> = warnings.iter().filter(said).map(String::as_str).collect();
    let mut seen = std::collections::HashSet::new();
    said.retain(|warning| seen.insert(*warning));
    let total: usize = said.iter().map(|warning| warning.chars().count()).sum();
    let most = if total > WARNINGS { WARNING } else { WARNINGS };
    let mut written = 0;
    for warning in said {
        let cut: String = warning.chars().take(most).collect();
        written += cut.chars().count();
        if written > WARNINGS {
            break;
        }
        if let Ok(value) = HeaderValue::from_str(&warning_text(&cut)) {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
}

/// What rendering needs to know after the registry has used up the request.
pub(crate) struct RenderContext {
    api: Arc<Api>,
    served: Arc<Served>,
    accepted: Accepted,
    table: table::Options,
}

impl RenderContext {
    /// Fails if the query asks for a table that cannot be made.
    pub(crate) fn new(context: &Context) -> Result<Self, Status> {
        let version = context.accepted.transform().map_or("v1", |(_, version)| version);
        let include = IncludeObject::parse(context.query.get("includeObject").unwrap_or_default())?;
        let table = table::Options { include, version: MetaVersion::of(version), ..table::Options::new(context.now) };
        let (api, served) = (Arc::clone(&context.api), Arc::clone(&context.served));
        Ok(Self { api, served, accepted: context.accepted.clone(), table })
    }
}

/// A warning as a header value: `299 - "text"`.
fn warning_text(text: &str) -> String {
    format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A Status as an HTTP response, in the format the client asked for.
pub(crate) fn status(status: &Status, accepted: &Accepted) -> Response<Body> {
    let value = status.to_value();
    let plain = Accepted { target: None, ..accepted.clone() };
    let (body, format) = match encode(&value, &plain) {
        Ok(body) => (body, accepted.format),
        Err(_) => (write::to_vec(&value).into(), Format::Json),
    };
    let mut response = raw(status.code, format.media_type(), body.into());
    if let Some(seconds) = status.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    warn(&mut response, &status.warnings);
    response
}

/// A response with the headers that every answer has. An answer without content is of no type.
pub(crate) fn raw(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    if !content_type.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
