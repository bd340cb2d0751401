//! PUT, and the loop that every change of a stored object goes through, in
//! [the order of a write](super#the-order-of-a-write).

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;
use windlass_store::{Entry, Expect, TxnResult, Write};

use super::allocation::{Claims, releases};
use super::create::{Uncreated, compile_expressions, create_object, place};
use super::{Answer, Context, Stored, decode, ownership};
use crate::admission::quota::{self, Charge};
use crate::admission::{self, Act};
use crate::api::Api;
use crate::catalog::Served;
use crate::field::{FieldError, FieldErrors, Path};
use crate::object::{self, metadata_mut};
use crate::options::{WriteOptions, parse_revision};
use crate::registry::strategy::{Flag, certificate, persistent_volume};
use crate::state::contention::Attempts;
use crate::status::Status;
use crate::{apply, effort, versions};

/// What a changed object became.
pub(super) struct Updated {
    /// The object as stored.
    pub object: Stored,
    /// Whether it was created rather than changed.
    pub created: bool,
}

/// How a change comes about.
pub(super) struct Change<'a, F> {
    /// Makes the new object from the stored one, in the served version. Called again after a conflict.
    pub transform: F,
    /// Who the changed fields belong to; `None` if `transform` has dealt with that (apply).
    pub manager: Option<&'a str>,
    /// Dry run and the rest.
    pub options: &'a WriteOptions,
    /// Whether a wrong uid in the new object is a failed precondition (PUT) or a validation error.
    pub uid_is_precondition: bool,
    /// What admission is asked about.
    pub admitted: Admitted<'a>,
}

/// What admission is asked about when an object changes.
#[derive(Clone, Copy)]
pub(super) enum Admitted<'a> {
    /// The object.
    Object,
    /// What a subresource shows of it.
    View(&'a dyn View),
    /// Nothing: it has been asked already.
    Already,
}

/// What a subresource shows of an object.
pub(super) trait View: Sync {
    /// The view of an object.
    fn read(&self, object: &Value) -> Result<Value, Status>;
    /// Makes an object what its view says.
    fn write(&self, object: &mut Value, view: &Value) -> Result<(), Status>;
}

/// Replaces the object that the path names by the body.
pub(super) async fn replace(context: &mut Context) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&context.query, "UpdateOptions", false)?;
    let mut object = decode::object(context, options.field_validation)?;
    check_identity(context, &mut object)?;
    let manager = context.manager(options.field_manager.as_deref());
    let mut attempts = Attempts::begin();
    let updated = loop {
        let change = Change {
            transform: |_: &Context, _: &Value| Ok(object.clone()),
            manager: Some(&manager),
            options: &options,
            uid_is_precondition: true,
            admitted: Admitted::Object,
        };
        match update_within(context, change, &mut attempts).await {
            Err(status) if status.code == StatusCode::NOT_FOUND && creates(context) => {}
            other => break other?,
        }
        match create_object(context, object.clone(), &options).await {
            // Another has created it in between: it is to be changed, then.
            Err(Uncreated::Taken(status)) => {
                if !attempts.after_conflict(&context.api.contention, &context.key(), !options.dry_run).await {
                    return Err(status);
                }
            }
            created => break Updated { object: created?, created: true },
        }
    };
    let code = if updated.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(context.answer(code, updated.object))
}

fn creates(context: &Context) -> bool {
    context.subresource().is_empty() && context.served.has(Flag::CreateOnUpdate)
}

/// A change says which object it makes, and neither renames nor moves it.
pub(super) fn check_identity(context: &Context, object: &mut Value) -> Result<(), Status> {
    place(context, object)?;
    let (name, expected) = (object::name(object), context.name());
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != expected {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({expected})"
        )));
    }
    Ok(())
}

/// Changes the object that the path names, as often as it takes.
pub(super) async fn update<F>(context: &mut Context, change: Change<'_, F>) -> Result<Updated, Status>
where
    F: FnMut(&Context, &Value) -> Result<Value, Status>,
{
    update_within(context, change, &mut Attempts::begin()).await
}

/// The same with the attempts of a caller that retries, too: the holder of the lock must not wait for it again.
pub(super) async fn update_within<F>(
    context: &mut Context,
    mut change: Change<'_, F>,
    attempts: &mut Attempts,
) -> Result<Updated, Status>
where
    F: FnMut(&Context, &Value) -> Result<Value, Status>,
{
    let key = context.key();
    loop {
        let Some(entry) = context.api.store.get(&key).await.map_err(Status::internal)? else {
            return Err(context.not_found());
        };
        context.api.offload.rest_of_request(context.qualified(), effort::is_large_write(entry.value.len())).await;
        let live = versions::to_served(&context.api, &context.served, &entry.value).await?;
        let object = ownership::with_conversions(context, |context| (change.transform)(context, &live)).await?;
        let mut object = versions::into_handled(&context.served, object);
        let mut live = versions::into_handled(&context.served, live);
        context.served.strategy().default(&mut object);
        if let Some(manager) = change.manager {
            ownership::track(context, Some(&live), &mut object, manager).await;
        }
        // A PUT of a revision that is gone is refused the next time.
        let named = change.uid_is_precondition && !object::text(&object, "resourceVersion").is_empty();
        mutate(context, &change, &mut object, &live).await?;
        check_preconditions(context, &live, &mut object, change.uid_is_precondition)?;
        keep_system_fields(&live, &mut object);
        crate::authz::check_escalation(context, &object, Some(&live))?;
        prepare(context, &live, &mut object);
        let mut warnings = validate(context, &mut live, &mut object).await?;
        context.served.strategy().canonicalize(&mut object);
        let mut claims = Claims::of(context, &mut object, Some(&live)).await?;
        apply::keep_times_if_unchanged(&live, &mut object);
        admit(context, &change, &object, &live).await?;
        let is_changed = object != live;
        if !change.options.dry_run && is_changed {
            // Before anything is charged, which others of the namespace wait for.
            attempts.yield_to_holder(&context.api.contention, &key).await;
        }
        let charge = charge(context, &change, &object, &live).await?;
        if !is_changed && !is_outdated(context, &entry, &object).await? {
            return Ok(Updated { object: entry.into(), created: false });
        }
        if context.subresource() != "status" {
            warnings.extend(context.served.strategy().warnings(&object, Some(&live)));
        }
        if change.options.dry_run {
            context.warnings.extend(warnings);
            let object = context.unsaved(&object).await?;
            return Ok(Updated { object, created: false });
        }
        loop {
            match put(context, &entry, &object, &claims, &charge).await? {
                Put::Stored(object) => {
                    context.warnings.extend(warnings);
                    return Ok(Updated { object, created: false });
                }
                Put::ClaimTaken(index) => claims.taken(context, &mut object, index).await?,
                Put::Changed => break,
            }
        }
        // Others of the namespace wait for what is charged.
        drop(charge);
        if !attempts.after_conflict(&context.api.contention, &key, !named).await {
            return Err(Status::conflict(context.qualified(), context.name(), MODIFIED));
        }
    }
}

/// Lets admission have its say about the status that the server itself gives an object without a namespace. What comes
/// of it has to be as valid as what a client writes.
pub(crate) async fn own_status(
    api: &Arc<Api>,
    served: &Arc<Served>,
    object: &mut Value,
    live: &Value,
) -> Result<(), Status> {
    let mut context = Context::own_status_update(api, served, object::name(live));
    let options = WriteOptions::default();
    let mut live = live.clone();
    admission::mutate_update(&mut context, object, &live, &options).await?;
    check_preconditions(&context, &live, object, true)?;
    keep_system_fields(&live, object);
    prepare(&context, &live, object);
    validate(&context, &mut live, object).await?;
    admission::validate(&mut context, Act::Update(&options), Some(object), Some(&live)).await
}

/// Whether an object that did not change is to be written all the same, because it would now be stored
/// otherwise: that is how objects move to a new storage version, and how a status that was only shown stays.
async fn is_outdated(context: &Context, entry: &Entry, object: &Value) -> Result<bool, Status> {
    let served = &context.served;
    if !served.custom || (entry.modified > served.current_since && !versions::shows_status(served)) {
        return Ok(false);
    }
    let stored = super::stored::decode(&entry.value)?;
    Ok(stored != *versions::to_stored(&context.api, served, object).await?)
}

/// Lets admission change the new object.
async fn mutate<F>(
    context: &mut Context,
    change: &Change<'_, F>,
    object: &mut Value,
    live: &Value,
) -> Result<(), Status> {
    match change.admitted {
        Admitted::Object => admission::mutate_update(context, object, live, change.options).await,
        Admitted::View(view) => {
            let (mut new, old) = (view.read(object)?, view.read(live)?);
            let shown = new.clone();
            admission::mutate_view(context, Act::Update(change.options), &mut new, Some(&old)).await?;
            if new == shown { Ok(()) } else { view.write(object, &new) }
        }
        Admitted::Already => Ok(()),
    }
}

/// Lets admission refuse the change.
async fn admit<F>(context: &mut Context, change: &Change<'_, F>, object: &Value, live: &Value) -> Result<(), Status> {
    let act = Act::Update(change.options);
    match change.admitted {
        Admitted::Object => admission::validate(context, act, Some(object), Some(live)).await,
        Admitted::View(view) => {
            let (new, old) = (view.read(object)?, view.read(live)?);
            admission::validate(context, act, Some(&new), Some(&old)).await
        }
        Admitted::Already => Ok(()),
    }
}

/// What the change takes from quotas.
async fn charge<F>(context: &Context, change: &Change<'_, F>, object: &Value, live: &Value) -> Result<Charge, Status> {
    match change.admitted {
        Admitted::Object => quota::charge(context, Act::Update(change.options), object, Some(live)).await,
        Admitted::View(_) | Admitted::Already => Ok(Charge::default()),
    }
}

/// The message of a conflict.
pub(super) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// What became of an attempt to store a changed object.
enum Put {
    Stored(Stored),
    /// Another write was quicker, or used something of a quota.
    Changed,
    /// Another object holds what the object claims; the number of the claim.
    ClaimTaken(usize),
}

/// Stores the changed object. One that was only waiting for its last finalizer to go is removed instead.
async fn put(
    context: &Context,
    entry: &Entry,
    object: &Value,
    claims: &Claims,
    charge: &Charge,
) -> Result<Put, Status> {
    let expect = Expect::At(entry.modified);
    let key = entry.key.clone();
    let finished = object::is_deleting(object) && super::delete::is_finished(context, object);
    let value = if finished { last_state(entry)? } else { context.encode_within(object, entry.value.len()).await? };
    let mut writes = Vec::with_capacity(1);
    if finished {
        writes.push(Write::Delete { key, expect, last: Some(value) });
        writes.extend(releases(context, object));
    } else {
        writes.push(Write::Put { key, expect, value });
        writes.extend(claims.writes(context, object));
    }
    let claimed = writes.len();
    if !finished {
        writes.extend(charge.writes());
    }
    match context.api.store.txn(writes).await.map_err(Status::internal)? {
        TxnResult::Committed { entries, .. } => {
            let stored = entries.into_iter().next().flatten().map(Stored::from);
            Ok(Put::Stored(match stored {
                Some(stored) => stored,
                None => context.unsaved(object).await?,
            }))
        }
        TxnResult::Conflict { index: 0, .. } => Ok(Put::Changed),
        TxnResult::Conflict { index, .. } if index < claimed => Ok(Put::ClaimTaken(index - 1)),
        TxnResult::Conflict { .. } => Ok(Put::Changed),
    }
}

/// What watchers are told about an object that its last finalizer leaves: upstream deletes what is stored, so the
/// finalizer is still there.
fn last_state(entry: &Entry) -> Result<windlass_store::Value, Status> {
    Ok(super::stored::encode(&super::stored::decode(&entry.value)?))
}

/// The revision and uid that the new object names must be the stored ones.
fn check_preconditions(
    context: &Context,
    live: &Value,
    object: &mut Value,
    uid_is_precondition: bool,
) -> Result<(), Status> {
    let (uid, live_uid) = (object::text(object, "uid"), object::text(live, "uid"));
    if uid_is_precondition && !uid.is_empty() && uid != live_uid {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {live_uid}");
        return Err(failed_precondition(context, &why));
    }
    let revision = match object::text(object, "resourceVersion") {
        "" => 0,
        text => parse_revision(text).map_err(Status::unclassified)?,
    };
    if revision == 0 {
        if context.served.has(Flag::VersionedUpdate) && uid_is_precondition {
            let metadata = Path::new("metadata");
            let path = metadata.child("resourceVersion");
            let errors = FieldErrors(vec![FieldError::invalid(&path, 0, "must be specified for an update")]);
            let kind = if context.served.custom { context.qualified() } else { context.served.qualified_kind() };
            return Err(Status::invalid(kind, context.name(), &errors));
        }
    } else if object::text(live, "resourceVersion") != revision.to_string() {
        return Err(Status::conflict(context.qualified(), context.name(), MODIFIED));
    }
    Ok(())
}

/// A precondition that the store found not to hold.
pub(super) fn failed_precondition(context: &Context, why: &str) -> Status {
    let key = context.served.key(context.namespace(), context.name());
    let why =
        format!("StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}");
    Status::conflict(context.qualified(), context.name(), why)
}

/// Carries over what a client may leave out and may not take away.
fn keep_system_fields(live: &Value, object: &mut Value) {
    let old = object::metadata(live);
    let metadata = metadata_mut(object);
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if let (Some(value), true) = (old.get(field), metadata.get(field).is_none_or(Value::is_null)) {
            metadata.insert(field.into(), value.clone());
        }
    }
    metadata.remove("selfLink");
    for field in ["resourceVersion", "generation"] {
        match old.get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
}

fn prepare(context: &Context, live: &Value, object: &mut Value) {
    let strategy = context.served.strategy();
    let is_request = certificate::is_request(&context.served);
    match context.subresource() {
        "" => strategy.prepare_update(object, live),
        "status" => {
            strategy.prepare_status_update(object, live);
            if (&*context.served.group, &*context.served.kind) == ("", "PersistentVolume") {
                persistent_volume::date_phase(object, live, &object::time(context.now));
            }
            if is_request {
                certificate::date_conditions(object, live, context.now);
            }
            return;
        }
        // Being assigned to a node is not what a pod's author asked for.
        "binding" => return,
        other => {
            strategy.prepare_subresource(other, object, live);
            if is_request {
                certificate::date_conditions(object, live, context.now);
            }
        }
    }
    if context.served.has(Flag::Generation) && strategy.desired_state_changed(object, live) {
        let generation = object::metadata(live).get("generation").and_then(Value::as_i64).unwrap_or(0);
        metadata_mut(object).insert("generation".into(), (generation + 1).into());
    }
}

/// Checks the changed object. Returns what is tolerated.
async fn validate(context: &Context, live: &mut Value, object: &mut Value) -> Result<Vec<String>, Status> {
    let served = Arc::clone(&context.served);
    let (metadata_rules, subresource) = (context.metadata_rules(), context.subresource().to_owned());
    let long = served.strategy().is_long(object, Some(live));
    let (old, new) = (std::mem::take(live), std::mem::take(object));
    let work = move || {
        let strategy = served.strategy();
        let (mut errors, mut warnings) = (FieldErrors::default(), Vec::new());
        crate::validation::metadata::validate_update(&new, &old, metadata_rules, &mut errors);
        strategy.check_update(&subresource, &new, &old, &mut errors, &mut warnings);
        compile_expressions(strategy, &new, Some(&old), &mut errors);
        (old, new, errors, warnings)
    };
    let (old, new, mut errors, warnings) = context.api.offload.run(context.qualified(), long, work).await?;
    (*live, *object) = (old, new);
    crate::authz::check_fields(context, object, Some(live), &mut errors).await?;
    if errors.is_empty() {
        return Ok(warnings);
    }
    Err(Status::invalid(context.qualified_kind_of(object), object::name(live), &errors))
}
