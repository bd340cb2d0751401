//! Watching a collection: the state first if asked for, then changes, bookmarks in between.
//!
//! A [`Watcher`] is a cursor into the resource's [`Channel`]. It turns changes of objects into changes of
//! the *selected set*: an object that starts to match is ADDED, one that stops matching is DELETED.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_store::{Entry, Range, Revision};

use super::get::wait_for;
use super::list::prefix;
use super::matcher::Matcher;
use super::{Answer, Context, Stored};
use crate::answer::Event;
use crate::api::Api;
use crate::catalog::Served;
use crate::codec::peek;
use crate::effort;
use crate::field::quote;
use crate::options::{ListOptions, parse_revision};
use crate::state::render_cache::{ByAddress, Form, Shape};
use crate::status::Status;
use crate::watch::{Change, Channel, Hub, WatchEvent};

/// A watch without a timeout ends after a random time between this and twice this.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1800);
/// How often a watcher that understands bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How many bytes of objects are told of at once.
const CHUNK: usize = 64 * 1024;
/// How many events are read at once.
const BATCH: usize = 256;
/// How many objects are looked at before other tasks have their turn.
const LOOKS: usize = 256;

/// Answers a watch.
pub(super) async fn watch(context: &Context) -> Result<Answer, Status> {
    let mut options = ListOptions::parse(&context.query, true)?;
    if let Some(name) = &context.path.name {
        let selected = options.fields.requires("metadata.name");
        if !options.fields.is_empty() && selected != Some(name) {
            return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        let selector = format!("metadata.name={name}");
        options.fields = crate::selector::FieldSelector::parse(&selector).map_err(Status::bad_request)?;
    }
    let matcher = Matcher::new(&context.served, options.labels.clone(), options.fields.clone())?;
    let watcher = Watcher::open(context, &options, matcher).await?;
    let events = stream::unfold(watcher, |mut watcher| async move {
        let events = watcher.next().await?;
        Some((events, watcher))
    });
    Ok(Answer::Watch { events: events.boxed(), warnings: context.warnings.clone() })
}

struct Watcher {
    api: Arc<Api>,
    channel: Arc<Channel>,
    newest: Receiver<Revision>,
    hub: Arc<Hub>,
    matcher: Arc<Matcher>,
    served: Arc<Served>,
    prefix: String,
    /// Everything up to this revision has been told.
    after: Revision,
    initial: std::vec::IntoIter<Entry>,
    /// Whether the end of the initial state is still to be announced.
    announce: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    stop: CancellationToken,
    /// Once the watch is to end, the revision up to which it still tells what happened.
    until: Option<Revision>,
    since: Revision,
    ended: bool,
}

impl Watcher {
    async fn open(context: &Context, options: &ListOptions, matcher: Matcher) -> Result<Self, Status> {
        let revision = match options.resource_version.as_deref() {
            Some(text) => parse_revision(text).map_err(|why| {
                Status::unclassified(format!("resourceVersion: Invalid value: {}: {why}", quote(text)))
            })?,
            None => 0,
        };
        let hub = Arc::clone(&context.api.hub);
        let channel = hub.channel(&context.served.prefix).await.map_err(Status::internal)?;
        let newest = channel.subscribe();
        let with_state = options.send_initial_events.unwrap_or(revision == 0);
        let prefix = prefix(context);
        let (after, initial) = if with_state {
            wait_for(context, revision).await?;
            let snapshot = context.api.store.range(Range::prefix(prefix.clone()), None, 0).await;
            let snapshot = snapshot.map_err(Status::internal)?;
            (snapshot.revision, snapshot.entries)
        } else if revision == 0 {
            (*context.api.store.revision().borrow(), Vec::new())
        } else {
            (revision, Vec::new())
        };
        let timeout = match options.timeout_seconds {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds.min(24 * 3600)),
            _ => LEAST_TIMEOUT + LEAST_TIMEOUT.mul_f64(fastrand::f64()),
        };
        let now = Instant::now();
        Ok(Self {
            api: Arc::clone(&context.api),
            channel,
            newest,
            hub,
            matcher: Arc::new(matcher),
            served: Arc::clone(&context.served),
            prefix,
            after,
            initial: initial.into_iter(),
            announce: options.send_initial_events == Some(true) && options.bookmarks,
            bookmarks: options.bookmarks,
            next_bookmark: now + BOOKMARK_EVERY,
            deadline: now + timeout,
            stop: context.served.ended.clone(),
            until: None,
            since: context.served.since,
            ended: false,
        })
    }

    /// The next events; `None` at the end of the watch.
    async fn next(&mut self) -> Option<Vec<Event>> {
        if self.ended {
            return None;
        }
        let initial = self.initial_state().await;
        if !initial.is_empty() {
            return Some(initial);
        }
        let mut looks = 0;
        loop {
            // Read before the ring is, so that a bookmark never promises more than was sent.
            let progress = *self.hub.progress().borrow();
            if self.until.is_none() && self.stop.is_cancelled() {
                // What came before the end is sent before it: when a CRD goes, the deletion of its objects.
                self.until = Some(progress);
            }
            if self.until.is_some_and(|until| self.after >= until) {
                return None;
            }
            match self.channel.read_some(self.after, BATCH, CHUNK).and_then(|events| self.since(events)) {
                Err(oldest) => {
                    self.ended = true;
                    let message = format!("too old resource version: {} ({oldest})", self.after);
                    return Some(vec![Event::Failed(Box::new(Status::expired(message)))]);
                }
                Ok(events) if events.is_empty() => {
                    self.after = self.after.max(progress);
                    if self.until.is_some() {
                        continue;
                    }
                }
                Ok(events) => {
                    let told = self.changes(&events).await;
                    self.after = events.last().map_or(self.after, |last| last.event.revision);
                    if !told.is_empty() {
                        return Some(told);
                    }
                    looks += events.len();
                    if looks >= LOOKS {
                        looks = 0;
                        tokio::task::yield_now().await;
                    }
                    continue;
                }
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                changed = self.newest.changed() => changed.ok()?,
                () = tokio::time::sleep_until(self.deadline) => {
                    self.ended = true;
                    return self.bookmarks.then(|| vec![self.bookmark(false)]);
                }
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    return Some(vec![self.bookmark(false)]);
                }
            }
        }
    }

    /// A resource has no history from before its CRD was created, even if its name was in use before.
    fn since(&self, events: Vec<Arc<WatchEvent>>) -> Result<Vec<Arc<WatchEvent>>, Revision> {
        if self.after < self.since { Err(self.since) } else { Ok(events) }
    }

    /// Everything so far has been told.
    fn bookmark(&self, ends_initial_state: bool) -> Event {
        Event::Bookmark { revision: self.after, ends_initial_state }
    }

    /// What is left of the initial state, up to objects of about [`CHUNK`] together.
    async fn initial_state(&mut self) -> Vec<Event> {
        let (mut told, mut bytes, mut looks) = (Vec::new(), 0, 0);
        while let Some(entry) = self.initial.next() {
            match self.matches(&entry.value, entry.modified).await {
                Ok(false) => {}
                Ok(true) => {
                    bytes += entry.value.len();
                    told.push(Event::Shown { change: Change::Added, object: entry.into() });
                    if bytes >= CHUNK {
                        return told;
                    }
                }
                Err(status) => {
                    told.push(self.fail(status));
                    return told;
                }
            }
            looks += 1;
            if looks % LOOKS == 0 {
                tokio::task::yield_now().await;
            }
        }
        if std::mem::take(&mut self.announce) {
            told.push(self.bookmark(true));
        }
        told
    }

    /// The changes of the selected set that `events` amount to.
    async fn changes(&mut self, events: &[Arc<WatchEvent>]) -> Vec<Event> {
        let mut told = Vec::new();
        for event in events {
            match self.change(event).await {
                Ok(None) => {}
                Ok(Some((change, None))) => told.push(Event::Stored { change, event: Arc::clone(event) }),
                Ok(Some((change, Some(bytes)))) => {
                    let object = Stored { bytes, revision: event.event.revision };
                    told.push(Event::Shown { change, object });
                }
                Err(status) => {
                    told.push(self.fail(status));
                    break;
                }
            }
        }
        told
    }

    /// Ends the watch with an error.
    fn fail(&mut self, status: Status) -> Event {
        self.ended = true;
        Event::Failed(Box::new(status))
    }

    /// What an event means for the selected set, and the object to show where it is not the stored one.
    async fn change(&self, event: &WatchEvent) -> Result<Option<(Change, Option<Bytes>)>, Status> {
        let event = &event.event;
        if !event.key.starts_with(self.prefix.as_bytes()) {
            return Ok(None);
        }
        let before = match &event.previous {
            Some(old) if self.matches(&old.value, old.modified).await? => Some(old),
            _ => None,
        };
        let after = !event.deleted && self.matches(&event.entry.value, event.revision).await?;
        Ok(match (before, after) {
            (None, true) => Some((Change::Added, None)),
            (Some(_), true) => Some((Change::Modified, None)),
            (Some(_), false) if event.deleted => Some((Change::Deleted, None)),
            (Some(previous), false) => Some((Change::Deleted, Some(self.left(previous, event.revision).await?))),
            (None, false) => None,
        })
    }

    /// Whether an object is selected. Watchers with the same selector look at a large object once for all, away from
    /// the threads that serve requests.
    async fn matches(&self, object: &Bytes, written: Revision) -> Result<bool, Status> {
        if self.matcher.is_empty() {
            return Ok(true);
        }
        if !effort::is_large_read(object.len()) {
            return self.matcher.matches(&self.api, object, written).await;
        }
        let (api, matcher, looked_at) = (Arc::clone(&self.api), Arc::clone(&self.matcher), object.clone());
        let look = async move {
            let matches = matcher.matches(&api, &looked_at, written).await?;
            Ok(Bytes::from_static(if matches { b"1" } else { b"" }))
        };
        let shape = Shape::Match(self.matcher.text());
        Ok(!self.shared(object, written, shape, look).await?.is_empty())
    }

    /// How an object looks that was selected until a change at `revision`.
    async fn left(&self, previous: &Entry, revision: Revision) -> Result<Bytes, Status> {
        if !effort::is_large_read(previous.value.len()) {
            return Ok(at_revision(&previous.value, revision));
        }
        let object = previous.value.clone();
        let shape = Shape::AtRevision(revision);
        self.shared(&previous.value, previous.modified, shape, async move { Ok(at_revision(&object, revision)) }).await
    }

    /// What is made of a large object, once for all watchers and away from the threads that serve requests.
    async fn shared(
        &self,
        object: &Bytes,
        written: Revision,
        shape: Shape,
        make: impl Future<Output = Result<Bytes, Status>> + Send + 'static,
    ) -> Result<Bytes, Status> {
        let form = Form { served: ByAddress(Arc::clone(&self.served)), revision: written, shape };
        let qualified = self.served.qualified();
        let make = self.api.offload.run_future(qualified, Box::pin(make), || Err(Status::timed_out()));
        // Boxed: most watches never come here, and all would be as large as one that does.
        Box::pin(self.api.render_cache.get(object, form, Duration::MAX, make)).await
    }
}

/// An object with another resourceVersion: how an object looks that stopped matching.
fn at_revision(object: &Bytes, revision: Revision) -> Bytes {
    let version = peek::metadata(object).and_then(|metadata| metadata.field("resourceVersion"));
    let Some(range) = version.map(|version| version.range()) else { return object.clone() };
    let mut out = Vec::with_capacity(object.len() + 8);
    out.extend_from_slice(&object[..range.start]);
    out.extend_from_slice(json!(revision.to_string()).to_string().as_bytes());
    out.extend_from_slice(&object[range.end..]);
    out.into()
}
