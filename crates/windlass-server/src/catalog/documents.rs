//! Documents about a snapshot: made when they are first asked for, and dropped when they are not asked for any more.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

/// Documents may have so many bytes together, but for the one that was asked for last: that of OpenAPI version 2 about
/// hundreds of CRDs is larger by itself.
const KEPT_BYTES: usize = 16 * 1024 * 1024;

/// Documents about a snapshot.
#[derive(Default)]
pub struct Documents(Mutex<Made>);

#[derive(Default)]
struct Made {
    documents: HashMap<String, Document>,
    /// Counts requests: the time that uses are dated with.
    now: u64,
    /// When the last sweep was.
    swept: u64,
}

#[derive(Default)]
struct Document {
    bytes: Arc<OnceLock<Bytes>>,
    used: u64,
}

impl Document {
    fn size(&self) -> usize {
        self.bytes.get().map_or(0, Bytes::len)
    }
}

impl Documents {
    /// The document called `name`, made by `make` if it is not there.
    pub fn get(&self, name: &str, make: impl FnOnce() -> Bytes) -> Bytes {
        let cell = {
            let mut made = self.0.lock();
            made.now += 1;
            let used = made.now;
            let document = made.documents.entry(name.to_owned()).or_default();
            document.used = used;
            Arc::clone(&document.bytes)
        };
        if let Some(bytes) = cell.get() {
            return bytes.clone();
        }
        let bytes = cell.get_or_init(make).clone();
        self.0.lock().make_room(name);
        bytes
    }

    /// Drops the documents that were not asked for since the last sweep.
    pub fn sweep(&self) {
        let mut made = self.0.lock();
        made.now += 1;
        let now = made.now;
        let before = std::mem::replace(&mut made.swept, now);
        made.documents.retain(|_, document| document.used >= before);
        made.documents.shrink_to_fit();
    }
}

impl Made {
    /// Drops the documents that were not asked for for the longest time, where all are too many. `name` stays.
    fn make_room(&mut self, name: &str) {
        let mut size: usize = self.documents.values().map(Document::size).sum();
        if size <= KEPT_BYTES {
            return;
        }
        let others = self.documents.iter().filter(|(other, _)| *other != name);
        let mut others: Vec<(u64, String)> = others.map(|(other, document)| (document.used, other.clone())).collect();
        others.sort_unstable();
        for (_, other) in others {
            if size <= KEPT_BYTES {
                return;
            }
            size -= self.documents.remove(&other).map_or(0, |document| document.size());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(documents: &Documents, name: &str, size: usize) -> bool {
        let mut made = false;
        documents.get(name, || {
            made = true;
            vec![0; size].into()
        });
        made
    }

    #[test]
    fn large_documents_make_room_for_one_another() {
        let documents = Documents::default();
        let half = KEPT_BYTES / 2;
        assert!(get(&documents, "a", half) && get(&documents, "b", half));
        assert!(!get(&documents, "a", half), "it is kept");
        assert!(get(&documents, "c", half));
        assert!(get(&documents, "b", half), "it was asked for least recently");
        assert!(get(&documents, "huge", 3 * KEPT_BYTES) && !get(&documents, "huge", 0));
        assert!(get(&documents, "c", half), "the huge one leaves no room");
    }

    #[test]
    fn unused_documents_are_swept() {
        let documents = Documents::default();
        assert!(get(&documents, "a", 1) && get(&documents, "b", 1));
        documents.sweep();
        assert!(!get(&documents, "a", 1));
        documents.sweep();
        assert!(!get(&documents, "a", 1) && get(&documents, "b", 1));
    }
}
