//! Delivers changes to one handler: in order, one call at a time, on threads that may block.
//!
//! Reflectors file changes as [pending](super::pending) and go on. While there are any, one task on the blocking pool
//! tells them to the handler.
//!
//! Locks are taken in this order: a reflector's handlers, its store, `state`.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::pending::{LIMIT, Next, Pending};
use crate::cache::Spawner;
use crate::key::ObjectKey;
use crate::reflector::{Change, Reflector, Subscription, Told};

/// Calls the user's handler.
type Tell = Box<dyn FnMut(&Told) + Send>;

pub(super) struct Delivery {
    /// Their handlers lead here, so that they are not kept alive from here.
    reflectors: Vec<Weak<Reflector>>,
    handler: Mutex<Tell>,
    state: Mutex<State>,
    cancelled: AtomicBool,
    spawner: Spawner,
}

struct State {
    pending: Pending,
    /// Whether a task tells the handler.
    telling: bool,
}

/// Has a handler called for everything that is known and then for every change.
pub(super) fn deliver(reflectors: &[Arc<Reflector>], handler: Tell, spawner: Spawner) -> Subscription {
    let delivery = Arc::new(Delivery {
        reflectors: reflectors.iter().map(Arc::downgrade).collect(),
        handler: Mutex::new(handler),
        state: Mutex::new(State { pending: Pending::new(LIMIT), telling: false }),
        cancelled: AtomicBool::new(false),
        spawner,
    });
    let mut subscriptions = vec![Subscription::new({
        let delivery = Arc::downgrade(&delivery);
        move || {
            if let Some(delivery) = delivery.upgrade() {
                delivery.cancelled.store(true, Ordering::Release);
            }
        }
    })];
    subscriptions.extend(reflectors.iter().map(|reflector| {
        let begin = |keys| delivery.begin(reflector, keys);
        let told = Arc::clone(&delivery);
        let handler = move |change: &Told| told.file(|pending| pending.push(change.clone()));
        reflector.follow(begin, Arc::new(handler))
    }));
    Subscription::joined(subscriptions)
}

impl Delivery {
    /// Files what exists. Only as much of it is decoded as is told soon.
    fn begin(self: &Arc<Self>, reflector: &Reflector, keys: Vec<ObjectKey>) {
        for key in keys {
            let has_room = self.state.lock().pending.has_room();
            let object = has_room.then(|| reflector.read(|store| store.observed(&key))).flatten();
            self.file(|pending| match object {
                Some(object) => pending.push(Change::Added { object, initial: true }),
                None => pending.push_known(key),
            });
        }
    }

    fn file(self: &Arc<Self>, file: impl FnOnce(&mut Pending)) {
        let mut state = self.state.lock();
        file(&mut state.pending);
        if !state.telling {
            let delivery = Arc::clone(self);
            state.telling = self.spawner.spawn_blocking(move || delivery.tell());
        }
    }

    /// Tells the handler everything that is pending.
    fn tell(&self) {
        let mut handler = self.handler.lock();
        while let Some(changes) = self.next() {
            for change in changes.into_iter().flatten() {
                if self.is_over() {
                    self.state.lock().pending = Pending::new(LIMIT);
                    return;
                }
                let key = change.object().key();
                if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| handler(&change)))
                    && let Some(reflector) = self.reflector(&key)
                {
                    reflector.handler_panicked(&key, &*panic);
                }
            }
        }
    }

    /// The next changes; `None`, and the task is over, when there are none.
    fn next(&self) -> Option<[Option<Told>; 2]> {
        let next = {
            let mut state = self.state.lock();
            let next = state.pending.next();
            state.telling = next.is_some();
            next?
        };
        let key = match next {
            Next::Change(change) => return Some([Some(change), None]),
            Next::Merged(key) => key,
        };
        Some(match self.reflector(&key) {
            Some(reflector) => reflector.settled(|store| self.state.lock().pending.take(&key, || store.observed(&key))),
            None => self.state.lock().pending.take(&key, || None),
        })
    }

    /// Whether no call may begin any more.
    fn is_over(&self) -> bool {
        self.cancelled.load(Ordering::Acquire) || self.spawner.is_stopping()
    }

    fn reflector(&self, key: &ObjectKey) -> Option<Arc<Reflector>> {
        self.reflectors.iter().filter_map(Weak::upgrade).find(|reflector| reflector.covers(key.namespace()))
    }
}
