//! What a request for a resource is answered with, as data: `render` puts it into the form that the client asked for.

use std::sync::Arc;

use futures::stream::BoxStream;
use http::{Response, StatusCode};
use serde_json::{Map, Value};
use windlass_store::{Entry, Revision};

use crate::body::Body;
use crate::status::Status;
use crate::stored::Stored;
use crate::watch::{Change, WatchEvent};

/// What a request for a resource is answered with.
#[non_exhaustive]
pub enum Answer {
    /// One object, as stored.
    Object {
        /// The HTTP status.
        code: StatusCode,
        /// The object.
        object: Stored,
        /// What the client is warned of.
        warnings: Vec<String>,
    },
    /// Objects as stored, in the order of the list.
    List {
        /// The objects.
        entries: Vec<Entry>,
        /// The list's own metadata.
        meta: ListMeta,
        /// What the client is warned of.
        warnings: Vec<String>,
    },
    /// What happens to objects, until the watch ends.
    Watch {
        /// The events, as many at a time as there are.
        events: BoxStream<'static, Vec<Event>>,
        /// What the client is warned of.
        warnings: Vec<String>,
    },
    /// How many replicas an object has: a Scale, which is stored nowhere.
    Scale {
        /// The Scale.
        scale: Value,
        /// What the client is warned of.
        warnings: Vec<String>,
    },
    /// A Status that is not a failure.
    Status {
        /// The Status.
        status: Box<Status>,
        /// What the client is warned of.
        warnings: Vec<String>,
    },
    /// Something that has one form only, such as a log or a page of metrics.
    Raw {
        /// The HTTP status.
        code: StatusCode,
        /// The `Content-Type`.
        content_type: &'static str,
        /// The body.
        body: Body,
        /// What the client is warned of.
        warnings: Vec<String>,
    },
    /// A whole response: of a pod, or one that ends HTTP.
    Response(Box<Response<Body>>),
}

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
    pub(crate) fn to_value(&self) -> Value {
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

/// What a watch tells its client.
#[derive(Debug)]
pub enum Event {
    /// An object changed, and looks as it is stored now.
    Stored {
        /// What the change is for the selected set.
        change: Change,
        /// The change of the stored object, which all watchers of the resource share.
        event: Arc<WatchEvent>,
    },
    /// An object of the state at the beginning, or one that left the selected set and is shown as it was.
    Shown {
        /// What the change is for the selected set.
        change: Change,
        /// The object.
        object: Stored,
    },
    /// Everything up to a revision has been told.
    Bookmark {
        /// The revision.
        revision: Revision,
        /// Whether this ends the state at the beginning.
        ends_initial_state: bool,
    },
    /// The watch has failed, and ends.
    Failed(Box<Status>),
}
