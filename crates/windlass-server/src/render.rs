//! Answers in the form the client asked for.
//!
//! The common case, JSON in the storage version, serves stored bytes as they are: an object is one
//! buffer, a list is a stream of its items' buffers. Everything else (Tables, metadata only, YAML,
//! protobuf, another version) decodes each object and encodes it anew.

use bytes::Bytes;
use futures::stream;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use windlass_store::Entry;

use crate::body::Body;
use crate::codec::negotiate::{Accepted, Format, Transform};
use crate::codec::{protobuf, write, yaml};
use crate::registry::{Answer, Context};
use crate::status::Status;
use crate::{table, versions};

/// Lists up to this size are sent in one piece.
const WHOLE: usize = 64 * 1024;

/// A list's own metadata.
#[derive(Clone, Debug, Default)]
pub struct ListMeta {
    /// The revision the list is true at.
    pub revision: u64,
    /// Where the next page starts.
    pub continue_token: Option<String>,
    /// How many objects follow this page, where that is known.
    pub remaining: Option<usize>,
}

impl ListMeta {
    /// The metadata as clients read it.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("resourceVersion".into(), self.revision.to_string().into());
        if let Some(token) = &self.continue_token {
            map.insert("continue".into(), token.as_str().into());
        }
        if let Some(remaining) = self.remaining {
            map.insert("remainingItemCount".into(), remaining.into());
        }
        Value::Object(map)
    }
}

/// A list in the form the client asked for.
pub fn list(context: &Context, entries: Vec<Entry>, meta: &ListMeta) -> Result<Answer, Status> {
    let plain = context.accepted.target.is_none()
        && context.accepted.format == Format::Json
        && !context.accepted.pretty
        && versions::is_stored(&context.served);
    let body = if plain { plain_list(context, entries, meta) } else { built_list(context, &entries, meta)?.into() };
    Ok(Answer::Raw {
        code: StatusCode::OK,
        content_type: context.accepted.format.media_type(),
        body,
        warnings: context.warnings.clone(),
    })
}

/// A list of stored bytes. Items of built-in kinds come without `kind` and `apiVersion`, which every
/// stored object begins with.
fn plain_list(context: &Context, entries: Vec<Entry>, meta: &ListMeta) -> Body {
    let served = &context.served;
    let mut head = Vec::with_capacity(256);
    head.extend_from_slice(b"{\"kind\":");
    write::write_string(&served.list_kind, &mut head);
    head.extend_from_slice(b",\"apiVersion\":");
    write::write_string(&served.api_version(), &mut head);
    head.extend_from_slice(b",\"metadata\":");
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
        return head.into();
    }
    let state = Some((head, next));
    Body::stream(stream::unfold(state, |state| {
        let step = state.map(|(mut out, mut next)| {
            out.reserve(WHOLE + 4096);
            let more = next(&mut out);
            (Bytes::from(out), more.then(|| (Vec::new(), next)))
        });
        std::future::ready(step)
    }))
}

/// A list whose items are decoded and encoded anew.
fn built_list(context: &Context, entries: &[Entry], meta: &ListMeta) -> Result<Bytes, Status> {
    let objects: Result<Vec<Value>, Status> =
        entries.iter().map(|entry| versions::to_served(&context.served, &entry.value)).collect();
    let objects = objects?;
    let value = match context.accepted.transform() {
        Some((Transform::Table, version)) => table::table(
            &context.served,
            objects.iter(),
            &meta.to_value(),
            table::Include::parse(&context.query)?,
            context.now,
            version,
        ),
        Some((Transform::PartialObjectMetadataList | Transform::PartialObjectMetadata, version)) => {
            table::partial_list(objects, &meta.to_value(), version)
        }
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
pub fn encode(value: &Value, accepted: &Accepted) -> Result<Bytes, Status> {
    match accepted.format {
        Format::Json => {
            let mut out = write::to_object_vec(value);
            if accepted.pretty {
                let compact = std::mem::take(&mut out);
                write::indent(&compact, &mut out);
            }
            out.push(b'\n');
            Ok(out.into())
        }
        Format::Yaml => Ok(yaml::write(value).into()),
        Format::Protobuf => protobuf::encode(value).map(Bytes::from).map_err(Status::internal),
    }
}
