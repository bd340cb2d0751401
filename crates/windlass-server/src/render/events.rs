//! Watch events in the form the client asked for.
//!
//! JSON in the stored version is sent as it is stored, large objects without a copy. Every other form is made once for
//! all watchers that ask for it (see [`RenderCache`](super::RenderCache)), and away from the threads that serve
//! requests if the object is large.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};

use super::{RenderContext, encode, object, sliced_metadata};
use crate::answer::Event;
use crate::api::Api;
use crate::body::Body;
use crate::catalog::Served;
use crate::codec::negotiate::{Accepted, Format, Transform};
use crate::codec::{self, write};
use crate::state::render_cache::{ByAddress, Form, Shape};
use crate::status::Status;
use crate::stored::Stored;
use crate::watch::{Change, LINE_END};
use crate::{effort, table, versions};

/// What is at least this large is sent as a piece of its own instead of being copied.
const LARGE: usize = 16 * 1024;
/// Ages are shown in seconds, so a row is shared for that long.
const TABLE_FRESH: Duration = Duration::from_secs(1);

/// What is to be sent to one watcher: small events gathered, large ones shared.
#[derive(Default)]
struct Pieces {
    ready: VecDeque<Bytes>,
    /// The only small event so far, which need not be copied.
    only: Option<Bytes>,
    gathered: Vec<u8>,
}

impl Pieces {
    /// Adds an event, or a part of one.
    fn push(&mut self, bytes: Bytes) {
        if bytes.len() >= LARGE {
            self.end_gathering();
            self.ready.push_back(bytes);
        } else if self.only.is_none() && self.gathered.is_empty() {
            self.only = Some(bytes);
        } else {
            self.extend(&bytes);
        }
    }

    /// Adds an object as it is stored.
    fn push_object(&mut self, change: Change, object: &Bytes) {
        if object.len() >= LARGE {
            self.push(Bytes::from_static(change.line_start().as_bytes()));
            self.push(object.clone());
            self.push(Bytes::from_static(LINE_END.as_bytes()));
        } else {
            self.extend(change.line_start().as_bytes());
            self.extend(object);
            self.extend(LINE_END.as_bytes());
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        if let Some(only) = self.only.take() {
            self.gathered.extend_from_slice(&only);
        }
        self.gathered.extend_from_slice(bytes);
    }

    fn end_gathering(&mut self) {
        self.ready.extend(self.only.take());
        if !self.gathered.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.gathered).into());
        }
    }

    /// The next piece, if anything is left.
    fn next(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.end_gathering();
        }
        self.ready.pop_front()
    }
}

/// The media type of a watch.
pub(super) fn media_type(accepted: &Accepted) -> &'static str {
    match accepted.format {
        Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    }
}

/// The events of a watch in the form the client asked for, each written when the client has read what came before.
pub(super) fn body(context: &RenderContext, events: BoxStream<'static, Vec<Event>>) -> Body {
    let sender = Sender { writer: EventWriter::new(context), events, pieces: Pieces::default(), ended: false };
    Body::stream(stream::unfold(sender, |mut sender| async move {
        let bytes = sender.next().await?;
        Some((bytes, sender))
    }))
}

/// Writes events, and keeps what is still to be sent.
struct Sender {
    writer: EventWriter,
    events: BoxStream<'static, Vec<Event>>,
    pieces: Pieces,
    ended: bool,
}

impl Sender {
    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.pieces.next() {
                return Some(piece);
            }
            if self.ended {
                return None;
            }
            for event in self.events.next().await? {
                if !self.writer.tell(event, &mut self.pieces).await {
                    self.ended = true;
                    break;
                }
            }
        }
    }
}

/// Writes watch events in the form the client asked for.
struct EventWriter {
    view: Arc<View>,
    /// Column definitions are sent once a watch.
    headers: bool,
}

/// What every event of a watch is written with.
struct View {
    api: Arc<Api>,
    served: Arc<Served>,
    accepted: Accepted,
    table: table::Options,
}

impl EventWriter {
    fn new(context: &RenderContext) -> Self {
        let (api, served) = (Arc::clone(&context.api), Arc::clone(&context.served));
        let accepted = Accepted { pretty: false, ..context.accepted.clone() };
        Self { view: Arc::new(View { api, served, accepted, table: context.table }), headers: true }
    }

    /// Writes one event. Returns whether the watch goes on.
    async fn tell(&mut self, event: Event, out: &mut Pieces) -> bool {
        match event {
            Event::Stored { change, event } => {
                let (bytes, revision) = (&event.event.entry.value, event.event.revision);
                if !effort::is_large_read(bytes.len()) && self.sends_as_is(revision) {
                    // The object as stored: one encoded line serves every watcher.
                    out.push(event.line(change));
                    return true;
                }
                let stored = Stored { bytes: bytes.clone(), revision };
                self.write(change, &stored, out).await
            }
            Event::Shown { change, object } => self.write(change, &object, out).await,
            Event::Bookmark { revision, ends_initial_state } => {
                out.push(self.bookmark(revision, ends_initial_state));
                true
            }
            Event::Failed(status) => {
                out.push(self.error(&status));
                false
            }
        }
    }

    /// Whether an object last written at `revision` is sent as it is stored.
    fn sends_as_is(&self, revision: u64) -> bool {
        self.view.accepted.target.is_none()
            && self.view.accepted.format == Format::Json
            && versions::as_is(&self.view.served, revision)
    }

    /// Writes an event about an object. Returns whether the watch goes on: an object that cannot be shown ends it with
    /// an error.
    async fn write(&mut self, change: Change, stored: &Stored, out: &mut Pieces) -> bool {
        if self.sends_as_is(stored.revision) {
            out.push_object(change, &stored.bytes);
            return true;
        }
        // Boxed: most watches never come here, and all would be as large as one that does.
        match Box::pin(self.event(change, stored)).await {
            Ok(event) => {
                out.push(event);
                self.headers = false;
                true
            }
            Err(status) => {
                out.push(self.error(&status));
                false
            }
        }
    }

    /// One event that is not as it is stored.
    async fn event(&self, change: Change, stored: &Stored) -> Result<Bytes, Status> {
        let View { api, served, accepted, table } = &*self.view;
        let is_large = effort::is_large_read(stored.bytes.len());
        let event = View::event(Arc::clone(&self.view), change, self.headers, stored.clone());
        let event = async {
            if is_large {
                api.offload.run_future(served.qualified(), Box::pin(event), || Err(Status::timed_out())).await
            } else {
                event.await
            }
        };
        if !is_large && sliced_metadata(accepted).is_some() && versions::as_is(served, stored.revision) {
            // To cut the metadata out takes no longer than to look it up.
            return event.await;
        }
        let transform = accepted.transform().map(|(transform, version)| (transform, table::MetaVersion::of(version)));
        let is_table = matches!(transform, Some((Transform::Table, _)));
        let shape = Shape::Event {
            change,
            format: accepted.format,
            transform,
            include: table.include,
            headers: is_table && self.headers,
        };
        let form = Form { served: ByAddress(Arc::clone(served)), revision: stored.revision, shape };
        let fresh = if is_table { TABLE_FRESH } else { Duration::MAX };
        api.render_cache.get(&stored.bytes, form, fresh, event).await
    }

    /// A bookmark: everything up to `revision` has been sent. The one that ends the initial state says so.
    fn bookmark(&self, revision: u64, ends_initial_state: bool) -> Bytes {
        let View { served, accepted, .. } = &*self.view;
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if ends_initial_state {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match accepted.transform() {
            Some((Transform::Table, _)) => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "columnDefinitions": null, "rows": [],
            }),
            Some(_) => json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}),
            None => json!({"kind": &*served.kind, "apiVersion": served.api_version(), "metadata": metadata}),
        };
        self.view.special("BOOKMARK", &object)
    }

    /// The event that ends a watch with a failure.
    fn error(&self, status: &Status) -> Bytes {
        self.view.special("ERROR", &status.to_value())
    }
}

impl View {
    async fn event(self: Arc<Self>, change: Change, headers: bool, stored: Stored) -> Result<Bytes, Status> {
        // Ages in a table are those at the moment of the event, not of the watch.
        let table = table::Options { now: self.api.now(), headers, ..self.table };
        let object = object(&self.api, &self.served, &self.accepted, &stored, &table).await?;
        Ok(self.frame(change.as_str(), &object))
    }

    /// An event that is about no object.
    fn special(&self, kind: &str, object: &Value) -> Bytes {
        let plain = Accepted { target: None, ..self.accepted.clone() };
        match encode(object, &plain) {
            Ok(object) => self.frame(kind, &object),
            Err(_) => self.frame(kind, &write::to_vec(object)),
        }
    }

    fn frame(&self, kind: &str, object: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(object.len() + 48);
        if self.accepted.format == Format::Protobuf {
            codec::protobuf::write_watch_frame(kind, object, &mut out);
            return out.into();
        }
        let object = object.strip_suffix(b"\n").unwrap_or(object);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        out.extend_from_slice(object);
        out.extend_from_slice(LINE_END.as_bytes());
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(pieces: &mut Pieces) -> Vec<Bytes> {
        std::iter::from_fn(|| pieces.next()).collect()
    }

    #[test]
    fn small_events_are_gathered_and_large_ones_shared() {
        let (line, large) = (Bytes::from("line\n"), Bytes::from(vec![b'x'; LARGE]));
        let mut pieces = Pieces::default();
        pieces.push(line.clone());
        let only = drain(&mut pieces);
        assert!(only.len() == 1 && only[0].as_ptr() == line.as_ptr());

        pieces.push(line.clone());
        pieces.push(line.clone());
        pieces.push_object(Change::Added, &large);
        pieces.push_object(Change::Deleted, &Bytes::from("{}"));
        let sent = drain(&mut pieces);
        assert_eq!(sent[0], "line\nline\n{\"type\":\"ADDED\",\"object\":");
        assert_eq!(sent[1].as_ptr(), large.as_ptr());
        assert_eq!(sent[2], "}\n{\"type\":\"DELETED\",\"object\":{}}\n");
        assert_eq!((sent.len(), pieces.next()), (3, None));
    }
}
