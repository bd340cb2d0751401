//! The fence: no write leaves this process once its lease may be another's.

use std::sync::Arc;
use std::time::SystemTime;

use http::Request;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::BoxError;

use crate::retry::is_read;

/// A write was stopped: this replica does not hold the lease (any more).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = windlass_server::Server::builder().start().await?;
/// # let kube = kube::Client::new(server.service(), "default");
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::lease::{Fence, FenceClosed};
///
/// let fenced = Fence::closed().guard(kube);
/// let maps: kube::Api<ConfigMap> = kube::Api::default_namespaced(fenced);
/// let error = maps.delete("settings", &Default::default()).await.unwrap_err();
/// assert!(error.to_string().contains(&FenceClosed.to_string()));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the leader: the write was not sent")]
pub struct FenceClosed;

/// How long the lease is good for, by two clocks. The monotonic clock stands still while some
/// machines sleep, the wall clock may be set; whichever says that time is up is believed.
#[derive(Debug, Clone, Copy)]
struct Validity {
    until: Instant,
    wall_until: SystemTime,
}

/// Lets writes pass only while a lease is held. Clones share the state.
///
/// ```no_run
/// # fn example(client: kube::Client) {
/// use std::time::Duration;
/// use tokio::time::Instant;
/// use windlass::lease::Fence;
///
/// let fence = Fence::closed();
/// let fenced: kube::Client = fence.guard(client);   // reads pass, writes do not
/// fence.open_until(Instant::now() + Duration::from_secs(10));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Fence {
    validity: Arc<Mutex<Option<Validity>>>,
}

impl Fence {
    /// A fence that lets no write pass.
    pub fn closed() -> Self {
        Self { validity: Arc::default() }
    }

    /// Lets writes pass until a moment.
    pub fn open_until(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let wall_until = SystemTime::now() + left;
        *self.validity.lock() = Some(Validity { until, wall_until });
    }

    /// Lets no write pass from now on.
    pub fn close(&self) {
        *self.validity.lock() = None;
    }

    /// Whether writes pass now.
    pub fn is_open(&self) -> bool {
        self.validity
            .lock()
            .is_some_and(|validity| Instant::now() < validity.until && SystemTime::now() < validity.wall_until)
    }

    /// A client whose writes pass this fence. It is asked when a request is sent, after all
    /// waiting in queues.
    ///
    /// A client of [`config`](crate::config) asks again before it repeats a request.
    /// [`kube::Client::try_from`] and `try_default` make clients that repeat requests, writes too,
    /// for a long time without asking anybody: turn that off (`Config::default_retry`), or make
    /// the client with [`config::connect`](crate::config::connect).
    pub fn guard(&self, client: kube::Client) -> kube::Client {
        let fence = self.clone();
        let namespace = client.default_namespace().to_owned();
        let valid_until = *client.valid_until();
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let (fence, client) = (fence.clone(), client.clone());
            async move {
                if !is_read(request.method()) {
                    fence.pass()?;
                    request.extensions_mut().get_or_insert_default::<Fences>().0.push(fence);
                }
                client.send(request).await.map_err(BoxError::from)
            }
        });
        kube::Client::new(service, namespace).with_valid_until(valid_until)
    }

    fn pass(&self) -> Result<(), FenceClosed> {
        if self.is_open() { Ok(()) } else { Err(FenceClosed) }
    }
}

/// The fences a request came through, for whoever sends it again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fences(Vec<Fence>);

impl PartialEq for Fences {
    /// Whether they are the same fences, open or not.
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other): (&Fence, &Fence)| Arc::ptr_eq(&one.validity, &other.validity);
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}

impl Fences {
    /// These and one more.
    pub(crate) fn and(&self, fence: &Fence) -> Self {
        Self(self.0.iter().chain([fence]).cloned().collect())
    }

    /// A client whose writes pass all of them.
    pub(crate) fn guard(&self, client: kube::Client) -> kube::Client {
        self.0.iter().fold(client, |client, fence| fence.guard(client))
    }

    /// An error once one of them is closed.
    pub(crate) fn pass(&self) -> Result<(), FenceClosed> {
        self.0.iter().try_for_each(Fence::pass)
    }
}
