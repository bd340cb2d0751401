//! What lists and watches say, and what is kept of the bytes.
//!
//! A page or event is cut into objects by [position](super::json), and each is decoded by itself:
//! one that does not fit its type is reported with its name and does not stop the rest.

use std::ops::Range;
use std::sync::OnceLock;

use kube::core::{Status, WatchEvent};
use serde::Deserialize;
use serde_json::Value;

use super::erased::{Kind, Shared};
use super::json;
use crate::decode::DecodeError;
use crate::key::ObjectKey;

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Decoded>,
    pub(crate) resource_version: String,
    pub(crate) continue_token: Option<String>,
}

/// One event of a watch.
#[derive(Debug)]
pub(crate) enum Event {
    Applied(Decoded),
    Deleted(Decoded),
    Bookmark { resource_version: String, initial_end: bool },
    Error(Box<Status>),
}

/// An object, or what could be found out about one that cannot be read.
#[derive(Debug)]
pub(crate) enum Decoded {
    Object(Fresh),
    Broken(Broken),
}

/// An object as it arrived.
pub(crate) struct Fresh {
    pub(crate) object: Shared,
    /// The bytes it was decoded from, without `managedFields` and what the type knows by itself.
    pub(crate) json: Option<Box<[u8]>>,
}

#[cfg(test)]
impl<K: crate::object::Object> From<K> for Fresh {
    fn from(object: K) -> Self {
        Self { object: std::sync::Arc::new(object), json: None }
    }
}

/// An object that does not fit its type.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    pub(crate) key: ObjectKey,
    /// Empty if it has none.
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) error: String,
}

impl std::fmt::Debug for Fresh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fresh").field("key", &self.object.key()).finish_non_exhaustive()
    }
}

impl Decoded {
    pub(crate) fn resource_version(&self) -> &str {
        match self {
            Self::Object(fresh) => fresh.object.metadata().resource_version.as_deref().unwrap_or_default(),
            Self::Broken(broken) => &broken.resource_version,
        }
    }

    fn from_json(kind: &Kind, json: Box<[u8]>) -> Self {
        match kind.decode_repaired(&json) {
            Ok((object, repaired)) => Self::Object(Fresh { object, json: Some(repaired.map_or(json, Into::into)) }),
            Err(error) => Self::broken(&json, &error),
        }
    }

    fn broken(json: &[u8], error: &DecodeError) -> Self {
        let value: Value = serde_json::from_slice(json).unwrap_or_default();
        let at = |pointer| value.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        Self::Broken(Broken {
            key: ObjectKey::new(at("/metadata/namespace"), at("/metadata/name")),
            uid: at("/metadata/uid").to_owned(),
            resource_version: at("/metadata/resourceVersion").to_owned(),
            error: error.to_string(),
        })
    }
}

/// Decodes objects of a kind, and says what is kept of their bytes.
pub(super) struct Keeping {
    pub(super) kind: Kind,
    /// Whether the type knows its kind and version by itself, so that objects need not say it. Known once
    /// there was an object.
    implied: OnceLock<bool>,
}

impl Keeping {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, implied: OnceLock::new() }
    }

    fn decode(&self, json: &[u8], within: Range<usize>) -> Decoded {
        if self.is_implied(json, within.clone()) {
            let short = json::without_managed_fields(json, within.clone(), false);
            if let Ok(object) = self.kind.decode(&short) {
                return Decoded::Object(Fresh { object, json: Some(short) });
            }
        }
        Decoded::from_json(&self.kind, json::without_managed_fields(json, within, true))
    }

    /// An object that is taken to be all of `within`; `None` if it is not, or cannot be read.
    fn decode_whole(&self, json: &[u8], within: Range<usize>) -> Option<Decoded> {
        let implied = *self.implied.get()?;
        let kept = json::without_managed_fields(json, within, !implied);
        let object = self.kind.decode(&kept).ok()?;
        Some(Decoded::Object(Fresh { object, json: Some(kept) }))
    }

    /// Tried with the first object that says its kind: it must be the same with and without.
    fn is_implied(&self, json: &[u8], within: Range<usize>) -> bool {
        if let Some(implied) = self.implied.get() {
            return *implied;
        }
        // Lists leave it out of the items of Kubernetes' own kinds: nothing can be learnt from those.
        if json::member(json, within.clone(), "kind").is_none() {
            return false;
        }
        let written = |types| {
            let object = self.kind.decode(&json::without_managed_fields(json, within.clone(), types)).ok()?;
            object.encode().ok()
        };
        let Some(whole) = written(true) else {
            return false;
        };
        *self.implied.get_or_init(|| written(false).is_some_and(|short| short == whole))
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

pub(super) fn decode_page(body: &[u8], opening: Option<&[u8]>, keeping: &Keeping) -> Result<Page, kube::Error> {
    let whole = 0..body.len();
    let meta: ListMeta = match json::member(body, whole.clone(), "metadata") {
        Some(span) => serde_json::from_slice(&body[span]).map_err(kube::Error::SerdeError)?,
        None => ListMeta::default(),
    };
    let items = json::member(body, whole.clone(), "items");
    let items = items.and_then(|span| json::elements(body, span));
    if items.is_none() {
        check_empty(body)?;
    }
    let decode = |span| match opening {
        Some(opening) => {
            Decoded::from_json(&keeping.kind, opened(opening, json::without_managed_fields(body, span, true)))
        }
        None => keeping.decode(body, span),
    };
    Ok(Page {
        items: items.unwrap_or_default().into_iter().map(decode).collect(),
        resource_version: meta.resource_version.unwrap_or_default(),
        continue_token: meta.continue_token.filter(|token| !token.is_empty()),
    })
}

/// An item that says its kind: lists leave that out of the items of Kubernetes' own kinds.
fn opened(opening: &[u8], item: Box<[u8]>) -> Box<[u8]> {
    match item.strip_prefix(b"{") {
        Some(rest) if item.len() > 2 && json::member(&item, 0..item.len(), "kind").is_none() => {
            [opening, rest].concat().into_boxed_slice()
        }
        _ => item,
    }
}

/// What a body without an array of items must be to count as an empty list. Anything else would
/// have all objects taken to be gone.
fn check_empty(body: &[u8]) -> Result<(), kube::Error> {
    #[derive(Deserialize)]
    struct Envelope {
        #[serde(default)]
        kind: String,
        #[serde(default, deserialize_with = "present")]
        items: Option<Value>,
    }
    fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
        Value::deserialize(deserializer).map(Some)
    }
    let envelope: Envelope = serde_json::from_slice(body).map_err(kube::Error::SerdeError)?;
    match envelope.items {
        Some(Value::Null) => Ok(()),
        None if envelope.kind.ends_with("List") => Ok(()),
        _ => Err(kube::Error::SerdeError(serde::de::Error::custom("the answer is not a list"))),
    }
}

pub(super) fn decode_event(line: &[u8], keeping: &Keeping) -> Result<Event, kube::Error> {
    // As API servers write events: the object's end need not be searched for.
    if let Some((is_deleted, within)) = plain_event(line)
        && let Some(object) = keeping.decode_whole(line, within)
    {
        return Ok(if is_deleted { Event::Deleted(object) } else { Event::Applied(object) });
    }
    let whole = 0..line.len();
    let kind = json::member(line, whole.clone(), "type").map(|span| &line[span]);
    let object = json::member(line, whole, "object");
    if let (Some(kind @ (b"\"ADDED\"" | b"\"MODIFIED\"" | b"\"DELETED\"")), Some(object)) = (kind, object) {
        let object = keeping.decode(line, object);
        return Ok(if kind == b"\"DELETED\"" { Event::Deleted(object) } else { Event::Applied(object) });
    }
    match serde_json::from_slice::<WatchEvent<Value>>(line) {
        Ok(WatchEvent::Bookmark(bookmark)) => Ok(Event::Bookmark {
            initial_end: bookmark
                .metadata
                .annotations
                .get("k8s.io/initial-events-end")
                .is_some_and(|value| value == "true"),
            resource_version: bookmark.metadata.resource_version,
        }),
        Ok(WatchEvent::Error(status)) => Ok(Event::Error(status)),
        Ok(WatchEvent::Added(value) | WatchEvent::Modified(value)) => {
            Ok(Event::Applied(decode_value(&keeping.kind, &value)))
        }
        Ok(WatchEvent::Deleted(value)) => Ok(Event::Deleted(decode_value(&keeping.kind, &value))),
        Err(error) => match serde_json::from_slice::<Status>(line) {
            Ok(status) if status.is_failure() => Err(kube::Error::Api(status.boxed())),
            _ => Err(kube::Error::SerdeError(error)),
        },
    }
}

/// Where the object of an event is that has nothing else, and whether it was deleted.
fn plain_event(line: &[u8]) -> Option<(bool, Range<usize>)> {
    const OPENINGS: [(&[u8], bool); 3] = [
        (br#"{"type":"MODIFIED","object":"#, false),
        (br#"{"type":"ADDED","object":"#, false),
        (br#"{"type":"DELETED","object":"#, true),
    ];
    let (opening, is_deleted) = OPENINGS.iter().find(|(opening, _)| line.starts_with(opening))?;
    let end = line.trim_ascii_end().strip_suffix(b"}")?.len();
    (opening.len() < end).then_some((*is_deleted, opening.len()..end))
}

/// The rare object whose place could not be found, as when member names are escaped.
fn decode_value(kind: &Kind, value: &Value) -> Decoded {
    Decoded::from_json(kind, value.to_string().into_bytes().into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};

    use super::*;

    fn maps() -> Keeping {
        Keeping::new(Kind::of::<ConfigMap>(&()))
    }

    fn meta(name: &str) -> Value {
        serde_json::json!({"namespace": "d", "name": name, "resourceVersion": "7", "managedFields": [{"manager": "m"}]})
    }

    #[test]
    fn one_unreadable_item_does_not_spoil_the_page() {
        let body = serde_json::json!({
            "metadata": {"resourceVersion": "9", "continue": ""},
            "items": [
                {"metadata": meta("a"), "data": {"k": "v"}},
                {"metadata": meta("b"), "data": "not a map"},
            ],
        });
        let page = decode_page(body.to_string().as_bytes(), None, &maps()).unwrap();
        assert_eq!((page.resource_version.as_str(), page.continue_token), ("9", None));
        assert!(matches!(&page.items[0], Decoded::Object(o) if o.object.metadata().name.as_deref() == Some("a")));
        let Decoded::Object(fresh) = &page.items[0] else {
            panic!("expected an object");
        };
        assert_eq!(fresh.object.metadata().managed_fields, None);
        let kept = String::from_utf8_lossy(fresh.json.as_ref().unwrap());
        assert!(kept.contains("\"k\":\"v\"") && !kept.contains("managedFields"), "{kept}");
        let Decoded::Broken(broken) = &page.items[1] else {
            panic!("expected a broken object");
        };
        assert_eq!(broken.key, ObjectKey::new("d", "b"));
        assert!(broken.error == "data: invalid type: string, expected a map", "{}", broken.error);
    }

    #[test]
    fn what_a_type_knows_by_itself_is_not_kept() {
        fn kept(keeping: &Keeping, kind: &str) -> String {
            let json = format!(r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"name":"a"}}}}"#);
            match keeping.decode(json.as_bytes(), 0..json.len()) {
                Decoded::Object(fresh) => String::from_utf8(fresh.json.unwrap().into()).unwrap(),
                Decoded::Broken(broken) => broken.error,
            }
        }
        let typed = maps();
        assert!(kept(&typed, "Other").contains("expected ConfigMap"), "decided with an object that can be read");
        assert_eq!(kept(&typed, "ConfigMap"), r#"{"metadata":{"name":"a"}}"#);
        let untyped = Keeping::new(Kind::of::<DynamicObject>(&ApiResource::erase::<ConfigMap>(&())));
        assert!(kept(&untyped, "ConfigMap").contains("kind"));
        let metadata = Keeping::new(Kind::of::<PartialObjectMeta<ConfigMap>>(&()));
        let item = br#"{"metadata":{"name":"a"}}"#;
        assert!(matches!(metadata.decode(item, 0..item.len()), Decoded::Object(_)), "an item of a list");
        assert!(kept(&metadata, "PartialObjectMetadata").contains("kind"));
    }

    #[test]
    fn events_are_read_however_they_are_written() {
        let keeping = maps();
        let object =
            format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{},"data":{{"k":"}}"}}}}"#, meta("a"));
        let kept = r#"{"metadata":{"name":"a","namespace":"d","resourceVersion":"7"},"data":{"k":"}"}}"#;
        // The first one teaches what the type knows by itself.
        for line in [
            format!(r#"{{"type":"ADDED","object":{object}}}"#),
            format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n"),
            format!(r#"{{"type":"MODIFIED","object":{object}}} "#),
            format!(r#"{{ "type":"ADDED", "object": {object} }}"#),
            format!(r#"{{"type":"ADDED","object":{object},"more":{{}}}}"#),
            format!(r#"{{"object":{object},"type":"ADDED"}}"#),
        ] {
            let Event::Applied(Decoded::Object(fresh)) = decode_event(line.as_bytes(), &keeping).unwrap() else {
                panic!("{line}");
            };
            assert_eq!(String::from_utf8_lossy(fresh.json.as_ref().unwrap()), kept, "{line}");
        }
        let gone = format!(r#"{{"type":"DELETED","object":{object}}}"#);
        assert!(matches!(decode_event(gone.as_bytes(), &keeping).unwrap(), Event::Deleted(Decoded::Object(_))));
        let broken = br#"{"type":"ADDED","object":{"metadata":{"name":"b"},"data":1}}"#;
        assert!(matches!(decode_event(broken, &keeping).unwrap(), Event::Applied(Decoded::Broken(_))));
        for cut in [
            r#"{"type":"ADDED","object":}"#,
            r#"{"type":"ADDED","object":{"metadata":{"managedFields":{}"#,
            r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","}"#,
        ] {
            assert!(decode_event(cut.as_bytes(), &keeping).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_list_without_items_is_empty() {
        let page = decode_page(br#"{"metadata":{"resourceVersion":"1"},"items":null}"#, None, &maps()).unwrap();
        assert!(page.items.is_empty());
        let page = decode_page(br#"{"kind":"ConfigMapList","apiVersion":"v1"}"#, None, &maps()).unwrap();
        assert!(page.items.is_empty());
    }

    #[test]
    fn what_is_not_a_list_is_not_an_empty_list() {
        for body in ["{}", "", "[]", "<html></html>", r#"{"kind":"Status"}"#, r#"{"items":{}}"#, r#"{"items":"#] {
            assert!(decode_page(body.as_bytes(), None, &maps()).is_err(), "{body}");
        }
    }
}
