//! Keeps flow control in step with what is stored, and tells FlowSchemas whether their level exists.

use serde_json::{Value, json};
use std::time::Duration;
use windlass_store::{Entry, Expect, Range, StoreError, Write};

use super::level_spec::LevelSpec;
use super::schema::FlowSchema;
use super::{Kind, defaults};
use crate::field::quote;
use crate::object;
use crate::stored;
use crate::validation::access::{Access as _, AccessMut as _};

/// How often levels lend each other seats.
const BORROWING_PERIOD: Duration = Duration::from_secs(10);
/// How often default objects are looked after.
const DEFAULTS_PERIOD: Duration = Duration::from_secs(60);

impl super::FlowControl {
    /// Creates default objects and starts from what is stored.
    pub(crate) async fn open(&self) -> Result<(), StoreError> {
        defaults::ensure(&self.objects).await?;
        self.reload().await
    }

    /// Takes in what is stored.
    async fn reload(&self) -> Result<(), StoreError> {
        let mut objects = [Vec::new(), Vec::new()];
        for kind in Kind::ALL {
            let snapshot = self.objects.store.range(Range::prefix(kind.prefix()), None, 0).await?;
            objects[kind as usize] = snapshot.entries.iter().filter_map(read).collect();
        }
        let [levels, schemas] = &objects;
        let specs: Vec<LevelSpec> = levels.iter().filter_map(|(_, object)| LevelSpec::new(object)).collect();
        let exists = |schema: &FlowSchema| specs.iter().any(|spec| spec.name == schema.level);
        let mut good = Vec::with_capacity(schemas.len());
        let mut writes = Vec::new();
        for (entry, object) in schemas {
            let schema = FlowSchema::new(object);
            let exists = exists(&schema);
            writes.extend(status(entry, object, &schema.level, exists, &object::time(self.objects.now())));
            if exists {
                good.push(schema);
            }
        }
        self.configure(specs, good);
        for write in writes {
            // After a conflict the next change is on its way.
            self.objects.store.txn(vec![write]).await?;
        }
        Ok(())
    }

    /// Looks after levels whose seats become free by themselves.
    async fn tick(&self) {
        self.ticker.tick(self.started).await;
        let levels: Vec<_> = self.levels.lock().by_name.values().cloned().collect();
        let now = self.now();
        for level in levels {
            let mut state = level.state.lock();
            state.set.advance(now);
            level.pump(&mut state, now);
        }
    }

    /// Follows changes until the hub is gone.
    pub(crate) async fn run(&self) {
        let ticks = async {
            loop {
                self.tick().await;
            }
        };
        tokio::select! {
            () = self.follow() => {}
            () = ticks => {}
        }
    }

    async fn follow(&self) {
        let hub = &self.objects.hub;
        let (Ok(levels), Ok(schemas)) =
            (hub.channel(Kind::PriorityLevel.prefix()).await, hub.channel(Kind::FlowSchema.prefix()).await)
        else {
            return;
        };
        let (mut levels, mut schemas) = (levels.subscribe(), schemas.subscribe());
        let mut borrowing = tokio::time::interval(BORROWING_PERIOD);
        let mut ensuring = tokio::time::interval(DEFAULTS_PERIOD);
        for interval in [&mut borrowing, &mut ensuring] {
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            interval.reset();
        }
        let mut is_changed = true;
        loop {
            if is_changed && let Err(error) = self.reload().await {
                tracing::error!(%error, "flow control keeps its configuration: the store cannot be used");
            }
            // Each wait is cancel-safe: a receiver remembers what it has not shown.
            is_changed = tokio::select! {
                changed = levels.changed() => match changed {
                    Ok(()) => true,
                    Err(_) => return,
                },
                changed = schemas.changed() => match changed {
                    Ok(()) => true,
                    Err(_) => return,
                },
                _ = borrowing.tick() => {
                    self.borrow();
                    false
                }
                _ = ensuring.tick() => {
                    if let Err(error) = defaults::ensure(&self.objects).await {
                        tracing::warn!(%error, "default flow control objects cannot be checked");
                    }
                    false
                }
            };
        }
    }
}

fn read(entry: &Entry) -> Option<(Entry, Value)> {
    match stored::decode(&entry.value) {
        Ok(object) => Some((entry.clone(), object)),
        Err(error) => {
            let key = String::from_utf8_lossy(&entry.key);
            tracing::error!(%key, error = %error.message, "a stored flow control object cannot be read");
            None
        }
    }
}

/// The condition that says whether a schema's level exists.
pub(super) fn dangling(level: &str, exists: bool, now: &str) -> Value {
    let (status, reason, end) =
        if exists { ("False", "Found", "and it exists") } else { ("True", "NotFound", "but there is no such object") };
    let level = quote(level);
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level} {end}");
    json!({"type": "Dangling", "status": status, "lastTransitionTime": now, "reason": reason, "message": message})
}

/// What has to be written for a schema to say whether its level exists.
fn status(entry: &Entry, object: &Value, level: &str, exists: bool, now: &str) -> Option<Write> {
    let wanted = dangling(level, exists, now);
    let conditions = object.at("status").list("conditions");
    let there = conditions.iter().position(|condition| condition.text("type") == "Dangling");
    let same = |field: &&str| there.is_some_and(|at| conditions[at].at(field) == wanted.at(field));
    if ["status", "reason", "message"].iter().all(same) {
        return None;
    }
    let mut conditions = conditions.to_vec();
    match there {
        Some(at) => conditions[at] = wanted,
        None => conditions.push(wanted),
    }
    let mut object = object.clone();
    object.struct_mut("status").put("conditions", conditions);
    let expect = Expect::At(entry.modified);
    Some(Write::Put { key: entry.key.clone(), expect, value: stored::encode(&object) })
}
