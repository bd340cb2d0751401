//! Every object of the cluster, of every kind, as metadata: one informer per kind that can be listed,
//! watched and deleted, following the kinds as custom resource definitions come and go.
//!
//! The [`Inventory`] itself knows nothing of what is done with the objects: controllers that look at
//! all kinds (namespaces, garbage collection) register handlers before it runs, and share one watch
//! per kind that way. Events are left out, as upstream's garbage collector leaves them out: they are
//! many, nothing depends on them, and nothing holds them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde::de::IgnoredAny;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use windlass::cache::{CacheOptions, Caches, Lister, Scope};
use windlass::informer::Change;

use super::discovery::{Discovered, Served, discover};
use super::metadata::Metadata;

/// How long a new kind may take to be listed before it is no longer waited for.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);
/// How many objects of a kind stay decoded: handlers look at what changes once.
const MOST_DECODED: usize = 64;
/// When discovery is tried again after it failed.
const RETRY: Duration = Duration::from_secs(1);

type ChangeHandler = Arc<dyn Fn(&Watched, &Change<Metadata>) + Send + Sync>;
type GoneHandler = Box<dyn Fn(&Watched, Ending) + Send + Sync>;

/// Tells the watches of a kind apart: later ones have greater numbers. No watch is number zero.
pub(crate) type WatchNumber = u64;

/// A kind that is watched. For a moment there may be two watches of one kind: when it is served in another version, or
/// was deleted and defined again.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) served: Arc<Served>,
    pub(crate) number: WatchNumber,
}

/// Why a kind is no longer watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its definition is deleted, and all its objects with it.
    Deleted,
    /// It is not served, or served differently. Its objects may exist.
    Unserved,
}

/// What is known about kinds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds {
    /// What the server serves.
    pub(crate) discovered: Arc<Discovered>,
    /// Whether the objects of all kinds have been seen.
    pub(crate) complete: bool,
}

/// See the [module documentation](self).
pub(crate) struct Inventory {
    client: kube::Client,
    kinds: watch::Sender<Kinds>,
    on_change: Vec<ChangeHandler>,
    on_gone: Vec<GoneHandler>,
}

impl Inventory {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client, kinds: watch::Sender::default(), on_change: Vec::new(), on_gone: Vec::new() }
    }

    /// Calls a handler for every object there is, and then for every change. It must not block.
    pub(crate) fn on_change(&mut self, handler: impl Fn(&Watched, &Change<Metadata>) + Send + Sync + 'static) {
        self.on_change.push(Arc::new(handler));
    }

    /// Calls a handler when a kind is no longer watched.
    pub(crate) fn on_gone(&mut self, handler: impl Fn(&Watched, Ending) + Send + Sync + 'static) {
        self.on_gone.push(Box::new(handler));
    }

    /// Whether anybody looks at it.
    pub(crate) fn is_needed(&self) -> bool {
        !self.on_change.is_empty()
    }

    /// Follows what is known about kinds.
    pub(crate) fn kinds(&self) -> watch::Receiver<Kinds> {
        self.kinds.subscribe()
    }

    /// Watches everything until the token is cancelled; `changed` tells when the served kinds may have.
    pub(crate) async fn run(
        self,
        mut changed: watch::Receiver<u64>,
        shutdown: CancellationToken,
    ) -> Result<(), Infallible> {
        let mut monitors = Monitors::default();
        while let Some(refreshed) = shutdown.run_until_cancelled(self.refresh(&mut monitors, &mut changed)).await {
            let retry = async {
                match refreshed {
                    Ok(()) => std::future::pending().await,
                    Err(error) => {
                        tracing::warn!(%error, "the served kinds cannot be discovered");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                Ok(()) = changed.changed() => {}
                () = retry => {}
            }
        }
        futures::future::join_all(monitors.present.values().chain(&monitors.stale).map(Monitor::stop)).await;
        Ok(())
    }

    async fn refresh(&self, monitors: &mut Monitors, changed: &mut watch::Receiver<u64>) -> Result<(), kube::Error> {
        // Marked as seen before looking: what changes meanwhile is looked at again.
        changed.borrow_and_update();
        let discovered = Arc::new(discover(&self.client).await?);
        let wanted: HashMap<String, &Arc<Served>> =
            discovered.preferred.iter().filter(|served| is_watched(served)).map(|s| (s.describe(), s)).collect();
        let Monitors { present, stale, last } = monitors;
        let is_stale = |key: &String, monitor: &mut Monitor| {
            wanted.get(key).is_none_or(|served| !served.has_same_objects(&monitor.watched.served))
        };
        stale.extend(present.extract_if(is_stale).map(|(_, monitor)| monitor));
        for (key, served) in wanted {
            present.entry(key).or_insert_with(|| {
                *last += 1;
                self.monitor(Watched { served: Arc::clone(served), number: *last })
            });
        }
        let fresh: Vec<_> = present.values().map(|monitor| &monitor.lister).filter(|l| !l.is_synced()).collect();
        self.kinds.send_modify(|kinds| {
            kinds.discovered = Arc::clone(&discovered);
            kinds.complete &= fresh.is_empty();
        });
        let listing = futures::future::join_all(fresh.into_iter().map(Lister::wait_synced));
        tokio::select! {
            listed = listing => for error in listed.into_iter().filter_map(Result::err) {
                tracing::warn!(%error, "a kind cannot be listed: controllers do not see its objects");
            },
            // A kind that is waited for may have gone: waiting for it would not end.
            Ok(()) = changed.changed() => {
                changed.mark_changed();
                return Ok(());
            }
        }
        // New versions of a kind are complete before its old ones go, so that no object seems to.
        for monitor in stale.drain(..) {
            monitor.stop().await;
            let ending = self.ending(&monitor.watched.served).await;
            for handler in &self.on_gone {
                handler(&monitor.watched, ending);
            }
        }
        self.kinds.send_modify(|kinds| kinds.complete = true);
        Ok(())
    }

    /// What became of a kind. If the definition of a custom kind is gone, so are its objects: the server deletes them
    /// first.
    async fn ending(&self, served: &Served) -> Ending {
        let name = format!("{}.{}", served.resource.plural, served.resource.group);
        // A list: upstream's role of the controller manager allows it for everything, and no get.
        let path =
            format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldSelector=metadata.name%3D{name}");
        let Ok(request) = http::Request::get(path).body(Vec::new()) else { return Ending::Unserved };
        match self.client.request::<Definitions>(request).await {
            Ok(found) if found.items.is_empty() => Ending::Deleted,
            _ => Ending::Unserved,
        }
    }

    fn monitor(&self, watched: Watched) -> Monitor {
        let options = CacheOptions::default().sync_timeout(SYNC_TIMEOUT).most_decoded(MOST_DECODED);
        let caches = Caches::new(self.client.clone(), options);
        // What is kept are the bytes of the fields that `Metadata` has, and not all that the server sends.
        caches.transform::<Metadata>(&watched.served.resource, |_| {});
        let lister = caches.lister_in::<Metadata>(&watched.served.resource, &Scope::default());
        for handler in &self.on_change {
            let (handler, watched) = (Arc::clone(handler), watched.clone());
            lister.subscribe(move |change| handler(&watched, change)).forever();
        }
        caches.start();
        Monitor { watched, caches, lister }
    }
}

#[derive(serde::Deserialize)]
struct Definitions {
    items: Vec<IgnoredAny>,
}

/// Whether a kind is one whose objects matter here.
pub(crate) fn is_watched(served: &Served) -> bool {
    let events = served.resource.plural == "events" && matches!(&*served.resource.group, "" | "events.k8s.io");
    !events && served.supports(&["delete", "list", "watch"])
}

/// The informers of all kinds.
#[derive(Default)]
struct Monitors {
    /// By kind.
    present: HashMap<String, Monitor>,
    /// Of kinds, or versions of them, that are no longer served.
    stale: Vec<Monitor>,
    /// The number of the last watch.
    last: WatchNumber,
}

/// The informer of one kind, with caches of its own so that it can be stopped alone.
struct Monitor {
    watched: Watched,
    caches: Caches,
    lister: Lister<Metadata>,
}

impl Monitor {
    async fn stop(&self) {
        self.caches.stop().await;
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // The first poll cancels the informer's task; nothing is left to wait for its end.
        let _ = self.stop().now_or_never();
    }
}
