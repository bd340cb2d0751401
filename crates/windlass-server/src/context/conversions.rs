//! Objects of a request in the other versions of their kind, as far as webhooks have been asked for them.

use parking_lot::Mutex;
use serde_json::Value;

use crate::apply::Unconvertible;
use crate::status::Status;

/// What conversion webhooks said about the objects of one request.
///
/// Ownership is computed without waiting. Where it needs an object in another version and only a webhook
/// can tell, it fails, having left here what it wants; then the webhook is asked and it starts over.
#[derive(Default)]
pub struct Conversions(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    known: Vec<Known>,
    wanted: Option<Wanted>,
}

struct Known {
    object: Value,
    version: Box<str>,
    outcome: Result<Value, Box<Status>>,
}

/// An object that is needed in another version.
pub(crate) struct Wanted {
    pub(crate) object: Value,
    pub(crate) version: Box<str>,
}

impl Conversions {
    /// An object in another version, where that is known by now.
    pub(crate) fn get(&self, object: Value, version: &str) -> Result<Value, Unconvertible> {
        let mut answers = self.0.lock();
        let known = answers.known.iter().find(|known| &*known.version == version && known.object == object);
        if let Some(known) = known {
            return known.outcome.clone().map_err(Unconvertible::Failed);
        }
        // Only the first counts: what follows may go by something that is not true.
        answers.wanted.get_or_insert(Wanted { object, version: version.into() });
        Err(Unconvertible::Failed(Box::new(Status::internal("the object has not been converted yet"))))
    }

    /// What has been asked for and is not known.
    pub(crate) fn take_wanted(&self) -> Option<Wanted> {
        self.0.lock().wanted.take()
    }

    /// Keeps what a webhook said.
    pub(crate) fn learn(&self, object: Value, version: Box<str>, outcome: Result<Value, Box<Status>>) {
        self.0.lock().known.push(Known { object, version, outcome });
    }
}
