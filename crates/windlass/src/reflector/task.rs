//! The reflector's task: does what the [machine](super::machine) asks for and puts what arrives in
//! the [store](super::store).

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use super::decode::{Decoded, Event, Fresh};
use super::machine::{Failure, Machine, Phase, Signal, Step};
use super::source::{EventStream, ListWatch, Part};
use super::{Reflector, Store};
use crate::object::parse_version;
use crate::selector::Labels;

/// How much longer than the server's own limit a silent stream is believed to be alive.
const IDLE_MARGIN: Duration = Duration::from_secs(10);

/// How long a stream may bring nothing new of the initial state. The end of it comes within seconds; a
/// server that is older than streaming lists never tells it.
const STALLED: Duration = Duration::from_secs(30);

/// How long the server may take to say which version it is at, while a stream waits.
const VERSION: Duration = Duration::from_secs(5);

/// How long an object stays decoded after it was last used.
const SWEEP: Duration = Duration::from_secs(10);

/// A longer period counts as none: clocks cannot count to the end of every [`Duration`].
const LONGEST_RESYNC: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

/// Runs for ever; stopping is the caller's business (every await here may be dropped).
pub(super) async fn run(reflector: &Reflector, source: &dyn ListWatch) {
    if let Some(Err(reason)) = reflector.labels.as_ref().map(Labels::check) {
        reflector.cannot_list(reason);
        return std::future::pending().await;
    }
    let mut machine = Machine::new();
    let mut stream: Option<Open> = None;
    let mut resync = reflector.resync.map(Resync::new);
    let mut sweep = Instant::now() + SWEEP;
    loop {
        match machine.step() {
            Step::Wait(delay) => {
                stream = None;
                tokio::time::sleep(delay).await;
            }
            Step::List { continue_token } => {
                stream = None;
                let part = Part::Page { continue_token: continue_token.as_deref() };
                list(reflector, source, &mut machine, part).await;
            }
            Step::ListWhole => {
                stream = None;
                list(reflector, source, &mut machine, Part::Whole).await;
            }
            Step::StreamList => {
                reflector.store.write().begin_replace();
                stream = open(reflector, source, &mut machine, None).await;
            }
            Step::Verify => match source.version().await {
                Ok(current) => machine.verified(&current, reflector.since_list(), fastrand::f64()),
                Err(error) => fail(reflector, source, &mut machine, &error).await,
            },
            Step::Watch { resource_version } => {
                stream = open(reflector, source, &mut machine, Some(&resource_version)).await;
            }
            Step::Read => match &mut stream {
                Some(open) => {
                    let due = resync.as_ref().map_or(sweep, |resync| resync.due.min(sweep));
                    read(reflector, source, &mut machine, open, due).await;
                    // A stream that always has something must not keep others from their turn.
                    tokio::task::coop::consume_budget().await;
                    if Instant::now() >= sweep {
                        reflector.sweep();
                        sweep = Instant::now() + SWEEP;
                    }
                    if let Some(resync) = &mut resync
                        && resync.is_due()
                    {
                        reflector.resync_now();
                    }
                }
                // The machine and this loop agree on whether a stream is open.
                None => machine.ended(Duration::ZERO, fastrand::f64()),
            },
        }
    }
}

struct Open {
    events: EventStream,
    since: Instant,
    /// When it last said something.
    heard: Instant,
    idle: Duration,
    /// How much it has told of the initial state, and when it last told more.
    initial: (usize, Instant),
    /// A version that the server had after it was opened, if that was asked for: nothing of the initial state
    /// is newer. When to ask next otherwise.
    began: Result<u64, Instant>,
}

impl Open {
    fn new(events: EventStream, idle: Duration) -> Self {
        let now = Instant::now();
        Self { events, since: now, heard: now, idle, initial: (0, now), began: Err(now + STALLED) }
    }

    /// Whether an object may be part of the initial state: where objects are created all the time, a server
    /// that never tells its end would go on for ever.
    async fn is_initial(&mut self, source: &dyn ListWatch, version: Option<u64>) -> bool {
        if let Err(due) = self.began
            && Instant::now() >= due
        {
            // Nothing is read meanwhile.
            let asked = tokio::time::timeout(VERSION, source.version()).await;
            let current = asked.ok().and_then(Result::ok).and_then(|version| parse_version(&version));
            self.began = current.ok_or_else(|| Instant::now() + STALLED);
        }
        self.began.ok().zip(version).is_none_or(|(began, version)| version <= began)
    }
}

/// When handlers are next reminded of everything.
struct Resync {
    period: Duration,
    due: Instant,
}

impl Resync {
    fn new(period: Duration) -> Self {
        let mut resync = Self { period, due: Instant::now() };
        resync.schedule();
        resync
    }

    /// A tenth earlier or later, so that kinds and replicas do not resync together.
    fn schedule(&mut self) {
        let period = self.period.min(LONGEST_RESYNC);
        self.due = Instant::now() + period.mul_f64(0.9 + 0.2 * fastrand::f64());
    }

    fn is_due(&mut self) -> bool {
        let due = Instant::now() >= self.due;
        if due {
            self.schedule();
        }
        due
    }
}

async fn list(reflector: &Reflector, source: &dyn ListWatch, machine: &mut Machine, part: Part<'_>) {
    if matches!(part, Part::Whole | Part::Page { continue_token: None }) {
        reflector.store.write().begin_replace();
    }
    match source.list(part).await {
        Ok(page) => {
            reflector.found();
            for item in page.items {
                apply(reflector, item, true);
            }
            if machine.page(&page.resource_version, page.continue_token) {
                reflector.change(|store| store.finish_replace(&page.resource_version));
                reflector.completed();
            }
        }
        Err(error) => fail(reflector, source, machine, &error).await,
    }
}

async fn open(
    reflector: &Reflector,
    source: &dyn ListWatch,
    machine: &mut Machine,
    from: Option<&str>,
) -> Option<Open> {
    let timeout = fastrand::u32(240..=300);
    match source.watch(from, timeout).await {
        Ok(events) => {
            reflector.found();
            machine.opened();
            Some(Open::new(events, Duration::from_secs(timeout.into()) + IDLE_MARGIN))
        }
        Err(error) => {
            fail(reflector, source, machine, &error).await;
            None
        }
    }
}

async fn read(reflector: &Reflector, source: &dyn ListWatch, machine: &mut Machine, open: &mut Open, wake: Instant) {
    let initial = machine.is_initial();
    let idle = if initial { open.initial.1 + STALLED } else { open.heard + open.idle };
    let until = wake.min(idle);
    let event = match tokio::time::timeout_at(until, open.events.next()).await {
        Ok(Some(Ok(event))) => {
            open.heard = Instant::now();
            event
        }
        Ok(Some(Err(error))) => return fail(reflector, source, machine, &error).await,
        Ok(None) => return machine.ended(open.since.elapsed(), fastrand::f64()),
        Err(_) if until < idle => return,
        Err(_) if initial => return stalled(reflector, machine),
        Err(_) => {
            tracing::debug!(kind = %reflector.describe(), "watch idle for too long, reopening");
            return machine.ended(open.since.elapsed(), fastrand::f64());
        }
    };
    match event {
        Event::Applied(item) => {
            let phase = machine.signal(&Signal::Object { resource_version: item.resource_version() });
            let version = parse_version(item.resource_version());
            apply(reflector, item, phase == Phase::Initial);
            if phase == Phase::Initial {
                let told = reflector.read(Store::listed);
                // Changes of what was told before are no part of it.
                if told > open.initial.0 && open.is_initial(source, version).await {
                    open.initial = (told, Instant::now());
                } else if Instant::now() >= idle {
                    stalled(reflector, machine);
                }
            }
        }
        Event::Deleted(item) => {
            machine.signal(&Signal::Object { resource_version: item.resource_version() });
            delete(reflector, item);
        }
        Event::Bookmark { resource_version, initial_end } => {
            let phase = machine.signal(&Signal::Bookmark { resource_version: &resource_version, initial_end });
            match phase {
                Phase::Initial => {}
                Phase::Live => reflector.advance(&resource_version),
                Phase::Complete => {
                    reflector.change(|store| store.finish_replace(&resource_version));
                    reflector.completed();
                }
            }
        }
        Event::Error(status) => fail(reflector, source, machine, &kube::Error::Api(status)).await,
    }
}

fn stalled(reflector: &Reflector, machine: &mut Machine) {
    tracing::warn!(kind = %reflector.describe(), "watch does not tell the end of the initial state, listing");
    machine.stalled();
}

async fn fail(reflector: &Reflector, source: &dyn ListWatch, machine: &mut Machine, error: &kube::Error) {
    let failure = Failure::of(error);
    let expected = machine.expects(failure);
    machine.failed(failure, reflector.since_list(), fastrand::f64());
    if expected {
        return tracing::debug!(kind = %reflector.describe(), %error, "watch starts over");
    }
    reflector.report(error);
    if failure == Failure::NotFound && reflector.not_found() {
        match source.is_gone().await {
            Ok(gone) => reflector.gone(gone),
            Err(error) => tracing::warn!(kind = %reflector.describe(), %error, "not known whether the kind is gone"),
        }
    }
}

fn apply(reflector: &Reflector, item: Decoded, initial: bool) {
    match item {
        Decoded::Object(fresh) => {
            reflector.misfits.forget(&fresh.object.key());
            let fresh = transform(reflector, fresh);
            reflector.change(|store| store.upsert(fresh, initial).into_iter().flatten());
        }
        Decoded::Broken(broken) => {
            reflector.misfits.note(&reflector.kind.resource, &broken);
            reflector.store.write().keep(&broken.key);
        }
    }
}

/// What is kept of an object: in memory, too, so its bytes are written anew. Where they could not be
/// read again, the object itself is kept.
pub(super) fn transform(reflector: &Reflector, fresh: Fresh) -> Fresh {
    let Fresh { object, json } = fresh;
    let (object, changed) = reflector.transformed(object);
    if !changed {
        return Fresh { object, json };
    }
    let written = object.encode().and_then(|json| reflector.kind.decode(&json).map(|_| json));
    if written.is_err() && !reflector.unwritable.swap(true, Ordering::Relaxed) {
        let (kind, key) = (reflector.describe(), object.key());
        tracing::warn!(%kind, object = %key, "what the transform leaves cannot be read again, kept in memory as it is");
    }
    Fresh { object, json: written.ok().map(Into::into) }
}

fn delete(reflector: &Reflector, item: Decoded) {
    let version = item.resource_version().to_owned();
    let (key, last) = match item {
        Decoded::Object(fresh) => {
            let last = reflector.transformed(fresh.object).0;
            (last.key(), Some(last))
        }
        Decoded::Broken(broken) => {
            reflector.misfits.note(&reflector.kind.resource, &broken);
            (broken.key, None)
        }
    };
    reflector.misfits.forget(&key);
    reflector.change(|store| store.remove(&key, last, &version));
}
