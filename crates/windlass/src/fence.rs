//! The fence: no write leaves this process once its lease may be another's.
//!
//! A write is looked at until it is answered, not only when it begins. It may wait long before it
//! leaves: for a connection that is being made, for a server that asked for a pause. The fence is
//! asked before every step of it, so also right before a connection that has just been made is
//! used, and a write that is under way when the fence closes is dropped where it is. What was
//! handed to the operating system by then cannot be called back: it is on the network, as it is
//! when a process dies. That is what the time between `renew_deadline` and `lease_duration` is for.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use http::Request;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::BoxError;

use crate::retry::is_read;

/// A write was stopped: this replica does not hold the lease (any more). Almost always it was not
/// sent. One that was sent and not answered when the lease was lost may have been carried out, as
/// with any connection that breaks.
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
#[error("not the leader: the write was stopped")]
pub struct FenceClosed;

/// How long the lease is good for, by two clocks. The monotonic clock stands still while some
/// machines sleep, the wall clock may be set; whichever says that time is up is believed.
#[derive(Debug, Clone, Copy)]
struct Validity {
    until: Instant,
    wall_until: SystemTime,
    /// Counts how often the lease was taken: what began with one is not to go on with the next.
    term: u64,
}

impl Validity {
    fn holds(&self) -> bool {
        Instant::now() < self.until && SystemTime::now() < self.wall_until
    }
}

/// When a renewal was sent, by both clocks: its answer may be found after the machine has slept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    at: Instant,
    wall: SystemTime,
}

impl Sent {
    /// To be called right before something is sent.
    pub(crate) fn now() -> Self {
        Self { at: Instant::now(), wall: SystemTime::now() }
    }

    pub(crate) fn at(&self) -> std::time::Instant {
        self.at.into_std()
    }
}

/// How often a fence that is open is looked at. Nothing wakes up when the wall clock is set.
const LOOK: Duration = Duration::from_secs(1);

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
    state: Arc<watch::Sender<State>>,
    /// The only term in which writes pass, if it is bound to one.
    bound: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    validity: Option<Validity>,
    terms: u64,
}

impl State {
    fn held(&self) -> Option<Validity> {
        self.validity.filter(Validity::holds)
    }
}

impl Fence {
    /// A fence that lets no write pass.
    pub fn closed() -> Self {
        Self { state: Arc::default(), bound: None }
    }

    /// The same for one [term](Self::term): what was let pass in it is not in the next, whatever has
    /// happened in between.
    pub(crate) fn bound(&self, term: u64) -> Self {
        Self { state: Arc::clone(&self.state), bound: Some(term) }
    }

    /// Lets writes pass until a moment.
    pub fn open_until(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        self.extend(until, SystemTime::now() + left);
    }

    /// Lets writes pass for some time after something was sent. True if a term begins: the fence was
    /// closed until now, for whatever reason, so that work has been dropped.
    pub(crate) fn renew(&self, sent: Sent, time: Duration) -> bool {
        self.extend(sent.at + time, sent.wall + time)
    }

    fn extend(&self, until: Instant, wall_until: SystemTime) -> bool {
        let mut begins = false;
        self.state.send_modify(|state| {
            begins = state.held().is_none();
            state.terms += u64::from(begins);
            state.validity = Some(Validity { until, wall_until, term: state.terms });
        });
        begins
    }

    /// The same within a term only. False if it is over: the fence stays closed.
    pub(crate) fn prolong(&self, sent: Sent, time: Duration) -> bool {
        self.state.send_if_modified(|state| {
            let Some(now) = state.held() else {
                return false;
            };
            state.validity = Some(Validity { until: sent.at + time, wall_until: sent.wall + time, ..now });
            true
        })
    }

    /// Lets no write pass from now on, and drops those that are under way.
    pub fn close(&self) {
        self.state.send_modify(|state| state.validity = None);
    }

    /// Whether writes pass now.
    pub fn is_open(&self) -> bool {
        self.held().is_some()
    }

    /// Which time it is that the lease is held, if it is. The first is 1.
    pub(crate) fn term(&self) -> Option<u64> {
        self.held().map(|validity| validity.term)
    }

    /// Once the time was found to be up, the term is over, even if a clock is set back.
    fn held(&self) -> Option<Validity> {
        let over = |state: &State| state.validity.is_some() && state.held().is_none();
        if over(&self.state.borrow()) {
            self.state.send_if_modified(|state| {
                let over = over(state);
                if over {
                    state.validity = None;
                }
                over
            });
        }
        let held = self.state.borrow().held();
        held.filter(|validity| self.bound.is_none_or(|term| term == validity.term))
    }

    /// A client whose writes pass this fence: for as long as it is open. A write that still waits
    /// when it closes, for a connection, for its turn, for its answer, fails with [`FenceClosed`].
    /// That is so for every client, whatever it waits for and however often it sends again.
    pub fn guard(&self, client: kube::Client) -> kube::Client {
        let fence = self.clone();
        let namespace = client.default_namespace().to_owned();
        let valid_until = *client.valid_until();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (fence, client) = (fence.clone(), client.clone());
            async move {
                if is_read(&request) {
                    return client.send(request).await.map_err(BoxError::from);
                }
                fence.while_open(client.send(request)).await?.map_err(BoxError::from)
            }
        });
        kube::Client::new(service, namespace).with_valid_until(valid_until)
    }

    /// Goes on with something only while the fence is open, and drops it when it closes.
    async fn while_open<F: Future>(&self, work: F) -> Result<F::Output, FenceClosed> {
        self.during(self.term().ok_or(FenceClosed)?, work).await
    }

    /// Goes on with something until the end of a term, and drops it then. The clocks are read before
    /// every step: after a pause of the whole process, what was waited for may be there before a
    /// timer has fired.
    pub(crate) async fn during<F: Future>(&self, term: u64, work: F) -> Result<F::Output, FenceClosed> {
        let (mut work, mut closed) = (pin!(work), pin!(self.until_closed()));
        poll_fn(|context| {
            if self.term() != Some(term) || closed.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(FenceClosed));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    async fn until_closed(&self) {
        let mut state = self.state.subscribe();
        loop {
            state.mark_unchanged();
            let Some(now) = self.held() else {
                return;
            };
            // Cancel-safe: nothing is taken by either.
            tokio::select! {
                () = tokio::time::sleep_until(now.until.min(Instant::now() + LOOK)) => {}
                _ = state.changed() => {}
            }
        }
    }

    /// As if the wall clock had been set to long after, which wakes no task.
    #[cfg(test)]
    pub(crate) fn jump(&self) {
        self.state.send_if_modified(|state| {
            if let Some(validity) = &mut state.validity {
                validity.wall_until = SystemTime::UNIX_EPOCH;
            }
            false
        });
    }

    fn pass(&self) -> Result<(), FenceClosed> {
        if self.is_open() { Ok(()) } else { Err(FenceClosed) }
    }
}

/// Several fences to be passed one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fences(Vec<Fence>);

impl PartialEq for Fences {
    /// Whether they are the same fences, open or not.
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other): (&Fence, &Fence)| Arc::ptr_eq(&one.state, &other.state) && one.bound == other.bound;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, PostParams};
    use tokio::sync::{Notify, oneshot};

    use super::*;

    #[tokio::test]
    async fn requests_for_streams_do_not_pass_as_reads() {
        let (client, connected, arrivals) = far();
        connected.notify_one();
        let fenced = Fence::closed().guard(client);
        let exec = Request::get("/api/v1/namespaces/default/pods/p/exec?command=rm").header("upgrade", "websocket");
        let error = fenced.send(exec.body(Body::empty()).unwrap()).await.unwrap_err();
        assert!(error.to_string().contains(&FenceClosed.to_string()), "{error}");
        assert_eq!(*arrivals.borrow(), 0);
    }

    /// A server to which the connection takes until it is told to be there; and what arrived.
    fn far() -> (kube::Client, Arc<Notify>, watch::Receiver<u32>) {
        let (connected, (arrived, arrivals)) = (Arc::new(Notify::new()), watch::channel(0));
        let (gate, arrived) = (Arc::clone(&connected), Arc::new(arrived));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (gate, arrived) = (Arc::clone(&gate), Arc::clone(&arrived));
            async move {
                gate.notified().await;
                arrived.send_modify(|count| *count += 1);
                Ok::<_, Infallible>(http::Response::new(request.into_body()))
            }
        });
        (kube::Client::new(service, "default"), connected, arrivals)
    }

    fn write(client: kube::Client) -> oneshot::Receiver<Result<ConfigMap, kube::Error>> {
        let (done, told) = oneshot::channel();
        tokio::spawn(async move {
            let maps: Api<ConfigMap> = Api::default_namespaced(client);
            let _ = done.send(maps.create(&PostParams::default(), &ConfigMap::default()).await);
        });
        told
    }

    async fn step() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waits_is_dropped_when_the_fence_closes() {
        let closes: [fn(&Fence); 2] =
            [Fence::close, |fence| fence.open_until(Instant::now() + Duration::from_millis(500))];
        for close in closes {
            let (client, connected, arrivals) = far();
            let fence = Fence::closed();
            fence.open_until(Instant::now() + Duration::from_secs(10));
            let written = write(fence.guard(client));
            step().await;
            close(&fence);
            let error = written.await.unwrap().unwrap_err();
            assert!(error.to_string().contains(&FenceClosed.to_string()), "{error}");
            connected.notify_one();
            step().await;
            assert_eq!(*arrivals.borrow(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_goes_on_while_the_lease_is_renewed() {
        let (client, connected, arrivals) = far();
        let fence = Fence::closed();
        fence.open_until(Instant::now() + Duration::from_secs(10));
        let written = write(fence.guard(client));
        for _ in 0..5 {
            step().await;
            tokio::time::advance(Duration::from_secs(8)).await;
            fence.open_until(Instant::now() + Duration::from_secs(10));
        }
        connected.notify_one();
        written.await.unwrap().unwrap();
        assert_eq!(*arrivals.borrow(), 1);
    }

    /// As after SIGSTOP: the connection is there, and no timer has had its turn.
    #[tokio::test(start_paused = true)]
    async fn connections_from_before_a_suspend_are_not_used() {
        let (connected, gate) = oneshot::channel::<()>();
        let fence = Fence::closed();
        fence.open_until(Instant::now() + Duration::from_secs(10));
        let mut sent = false;
        let sending = async {
            let _ = gate.await;
            sent = true;
        };
        let mut work = Box::pin(fence.while_open(sending));
        assert!(futures::poll!(&mut work).is_pending());
        connected.send(()).unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(work.await, Err(FenceClosed));
        assert!(!sent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_of_the_wall_clock_ends_the_term() {
        let (fence, start) = (Fence::closed(), Instant::now());
        assert!(fence.renew(Sent::now(), Duration::from_secs(600)), "a term begins");
        assert!(!fence.renew(Sent::now(), Duration::from_secs(600)), "the same");
        let mut work = Box::pin(fence.while_open(std::future::pending::<()>()));
        assert!(futures::poll!(&mut work).is_pending());
        fence.jump();
        assert_eq!(work.await, Err(FenceClosed));
        assert!(start.elapsed() <= LOOK, "{:?}", start.elapsed());
        assert!(fence.renew(Sent::now(), Duration::from_secs(600)), "another");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_found_after_the_machine_slept_opens_nothing() {
        let fence = Fence::closed();
        let sent = Sent { wall: SystemTime::now() - Duration::from_secs(3600), ..Sent::now() };
        fence.renew(sent, Duration::from_secs(10));
        assert!(!fence.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn work_of_one_term_ends_with_it() {
        let fence = Fence::closed();
        let reopen = || fence.open_until(Instant::now() + Duration::from_secs(10));
        reopen();
        let mut first = Box::pin(fence.while_open(std::future::pending::<()>()));
        assert!(futures::poll!(&mut first).is_pending());
        fence.close();
        reopen();
        assert_eq!(first.await, Err(FenceClosed));
        let mut second = Box::pin(fence.while_open(std::future::pending::<()>()));
        assert!(futures::poll!(&mut second).is_pending());
        tokio::time::advance(Duration::from_secs(11)).await;
        reopen();
        assert_eq!(second.await, Err(FenceClosed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_of_one_term_stays_closed_in_the_next() {
        let fence = Fence::closed();
        let reopen = || fence.open_until(Instant::now() + Duration::from_secs(10));
        reopen();
        let first = fence.bound(fence.term().unwrap());
        assert!(first.is_open());
        reopen();
        assert!(first.is_open(), "prolonged");
        fence.close();
        reopen();
        assert!(fence.is_open() && !first.is_open());
        let (client, connected, arrivals) = far();
        connected.notify_one();
        write(first.guard(client.clone())).await.unwrap().unwrap_err();
        write(fence.guard(client)).await.unwrap().unwrap();
        assert_eq!(*arrivals.borrow(), 1);
        let fences = |fence: &Fence| Fences::default().and(fence);
        assert!(fences(&first) == fences(&first.clone()) && fences(&first) != fences(&fence));
    }
}
