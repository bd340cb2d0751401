//! Priority and fairness: no client can starve another.
//!
//! ```text
//! request ──▶ FlowSchema ──▶ PriorityLevelConfiguration ──▶ queue of its flow ──▶ seats ──▶ authorisation ▸ registry
//!  (user, verb, target)       exempt: at once │ limited: seats, queues or 429
//! ```
//!
//! The first FlowSchema that matches a request names its priority level, and tells its flow by user or namespace. A level
//! has seats by its share of the server's, lends and borrows ([`allocation`]), and serves its flows fairly
//! ([`queue_set`]). A request that finds no seat waits in one of its flow's queues ([`hand`]); where these are full, or
//! after a quarter of the time it may take, it is answered with 429.
//!
//! The core is synchronous and is given the time; this file and [`follow`] are the shell around it. A request that need not
//! wait takes the lock of its level twice, for some ten nanoseconds, and allocates nothing. Mirrors
//! `apiserver/pkg/util/flowcontrol` and `server/filters/priority-and-fairness.go` of upstream.
//!
//! Unlike upstream, requests of the exempt level take one seat each, however large they are: they never wait.

mod allocation;
mod defaults;
mod demand;
mod dump;
mod follow;
mod hand;
mod level;
mod level_spec;
mod metrics;
mod passage;
mod queue_set;
mod retry_after;
mod schema;
#[cfg(test)]
mod tests;
mod watches;
mod work;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_store::Store;

use self::allocation::Bounds;
use self::level::{Level, Ticker};
use self::level_spec::LevelSpec;
use self::queue_set::Queuing;
use self::schema::FlowSchema;
use self::watches::Watches;
use crate::attributes::Attributes;
use crate::catalog::Catalog;
use crate::state::clock::Clock;
use crate::watch::Hub;

pub(crate) use dump::answer as answer_dump;
pub(crate) use passage::{Entrant, Passage};

/// The group of FlowSchemas and PriorityLevelConfigurations.
const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// So many watchers are told of a write per seat.
const WATCHES_PER_SEAT: u32 = 10;

/// Nanoseconds since the server started.
type Nanos = u64;

/// How many requests are served at once, and whether they are limited at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowControlOptions {
    /// Whether requests wait for seats. If not, they are neither classified nor limited.
    pub enabled: bool,
    /// How many seats all priority levels have together.
    pub seats: u32,
}

impl Default for FlowControlOptions {
    /// As upstream: 400 for `--max-requests-inflight` and 200 for `--max-mutating-requests-inflight`.
    fn default() -> Self {
        Self { enabled: true, seats: 600 }
    }
}

/// The kinds that configure flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PriorityLevel,
    FlowSchema,
}

impl Kind {
    const ALL: [Self; 2] = [Self::PriorityLevel, Self::FlowSchema];

    const fn name(self) -> &'static str {
        match self {
            Self::PriorityLevel => "PriorityLevelConfiguration",
            Self::FlowSchema => "FlowSchema",
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::PriorityLevel => "prioritylevelconfigurations",
            Self::FlowSchema => "flowschemas",
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::PriorityLevel => "/registry/prioritylevelconfigurations/",
            Self::FlowSchema => "/registry/flowschemas/",
        }
    }
}

/// What flow control reads and writes of the cluster: its own configuration, and the objects of lists whose size it estimates.
pub(crate) struct Objects {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Clock,
}

impl Objects {
    fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

/// See the module's introduction.
pub(crate) struct FlowControl {
    options: FlowControlOptions,
    objects: Objects,
    started: Instant,
    classes: ArcSwap<Vec<Class>>,
    levels: Mutex<Levels>,
    watches: Arc<Watches>,
    hasher: RandomState,
    ticker: Arc<Ticker>,
}

/// A FlowSchema and where its requests go.
struct Class {
    schema: FlowSchema,
    level: Arc<Level>,
    /// Which of the level's schemas it is.
    index: usize,
    queuing: Queuing,
    /// How many seats one request may be estimated to take at most; 0 if nothing says so.
    max_seats: u32,
    schema_uid: HeaderValue,
    level_uid: HeaderValue,
}

impl Class {
    /// `None` if the schema's level does not exist.
    fn new(levels: &Levels, schema: FlowSchema) -> Option<Self> {
        let level = Arc::clone(levels.by_name.get(&schema.level)?);
        let mut state = level.state.lock();
        let index = state.schema(&schema.name);
        let uid = |uid: &str| HeaderValue::from_str(uid).unwrap_or_else(|_| HeaderValue::from_static(""));
        let (queuing, level_uid) = (state.spec.queuing, uid(&state.spec.uid));
        drop(state);
        Some(Self { schema_uid: uid(&schema.uid), schema, level, index, queuing, max_seats: 0, level_uid })
    }
}

/// The class of a request. There is always one: `catch-all` is mandatory.
fn classify<'c>(classes: &'c [Class], request: &Attributes<'_>) -> Option<&'c Class> {
    let matching = classes.iter().find(|class| class.schema.matches(request));
    matching.or_else(|| classes.iter().find(|class| class.schema.name == "catch-all"))
}

/// Every priority level, and what they have together.
#[derive(Default)]
struct Levels {
    by_name: BTreeMap<String, Arc<Level>>,
    fair_fraction: f64,
}

impl FlowControl {
    pub(crate) fn new(options: FlowControlOptions, objects: Objects) -> Self {
        let control = Self {
            options,
            objects,
            started: Instant::now(),
            classes: ArcSwap::default(),
            levels: Mutex::default(),
            watches: Arc::default(),
            hasher: RandomState::new(),
            ticker: Arc::default(),
        };
        // From the first moment requests are classified, by what is mandatory.
        control.configure(Vec::new(), Vec::new());
        control
    }

    fn now(&self) -> Nanos {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Puts a configuration into effect. Mandatory objects that are missing are imagined.
    fn configure(&self, mut specs: Vec<LevelSpec>, mut schemas: Vec<FlowSchema>) {
        let now = self.now();
        for default in defaults::all().into_iter().filter(|default| default.mandatory) {
            let name = crate::object::name(&default.object);
            match default.kind {
                Kind::PriorityLevel if !specs.iter().any(|spec| spec.name == name) => {
                    specs.extend(LevelSpec::new(&default.object));
                }
                Kind::FlowSchema if !schemas.iter().any(|schema| schema.name == name) => {
                    schemas.push(FlowSchema::new(&default.object));
                }
                _ => {}
            }
        }
        schemas.sort_by(|a, b| a.order().cmp(&b.order()));
        let mut levels = self.levels.lock();
        let mut before = std::mem::take(&mut levels.by_name);
        for spec in specs {
            let level = before.remove(&spec.name).unwrap_or_else(|| Arc::new(Level::new(&spec, now, &self.ticker)));
            level.state.lock().set_spec(now, spec);
            levels.by_name.insert(level.name.clone(), level);
        }
        let classes = schemas.into_iter().filter_map(|schema| Class::new(&levels, schema)).collect();
        // Levels that are gone keep their seats until their requests have ended.
        for (name, level) in before {
            level.state.lock().is_quiescing = true;
            levels.by_name.insert(name, level);
        }
        self.divide(&mut levels, now);
        drop(levels);
        let mut classes: Vec<Class> = classes;
        for class in &mut classes {
            let state = class.level.state.lock();
            class.max_seats = state.spec.max_seats(state.bounds.nominal);
        }
        self.classes.store(Arc::new(classes));
    }

    /// Divides the seats among levels again, by their shares and by what they could have used since the last time.
    fn borrow(&self) {
        let mut levels = self.levels.lock();
        self.divide(&mut levels, self.now());
    }

    fn divide(&self, levels: &mut Levels, now: Nanos) {
        levels.by_name.retain(|_, level| {
            let state = level.state.lock();
            !(state.is_quiescing && state.set.is_idle())
        });
        let shares: Vec<_> = levels.by_name.values().map(|level| level.state.lock().spec.share).collect();
        let bounds: Vec<Bounds> = allocation::bounds(self.options.seats, &shares);
        let problem: Vec<allocation::Level> = levels
            .by_name
            .values()
            .zip(&bounds)
            .map(|(level, bounds)| level.state.lock().observe(now, *bounds))
            .collect();
        let adjusted = allocation::adjust(&problem);
        levels.fair_fraction = adjusted.fair_fraction;
        for ((level, seats), problem) in levels.by_name.values().zip(adjusted.seats).zip(&problem) {
            let mut state = level.state.lock();
            state.target = problem.target();
            state.set.set_limit(now, seats);
            level.pump(&mut state, now);
        }
    }

    /// A number that is the same for requests of one flow.
    fn flow(&self, class: &Class, request: &Attributes<'_>) -> u64 {
        if !matches!(class.queuing, Queuing::Queues { queues: 2.., .. }) {
            return 0;
        }
        let mut hasher = self.hasher.build_hasher();
        hasher.write(class.schema.name.as_bytes());
        hasher.write_u8(0);
        hasher.write(class.schema.distinguisher(request).as_bytes());
        hasher.finish()
    }
}
