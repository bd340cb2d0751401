//! PUT, and the loop that every change of a stored object goes through.

use http::StatusCode;
use serde_json::Value;
use windlass_store::{Entry, Expect, TxnResult, Write};

use super::create::{create_object, place};
use super::{Answer, Context, Stored, decode, ownership};
use crate::field::{FieldError, FieldErrors, Path};
use crate::object::{self, metadata_mut};
use crate::options::{WriteOptions, parse_revision};
use crate::status::Status;
use crate::{apply, versions};

/// How often a change is tried again when somebody else was quicker.
const TRIES: usize = 100;

/// What a changed object became.
pub(super) struct Updated {
    /// The object as stored.
    pub object: Stored,
    /// Whether it was created rather than changed.
    pub created: bool,
}

/// How a change comes about.
pub(super) struct Change<'a, F> {
    /// Makes the new object from the stored one, in the served version. Called again after a lost race.
    pub transform: F,
    /// Who the changed fields belong to; `None` if `transform` has dealt with that (apply).
    pub manager: Option<&'a str>,
    /// Dry run and the rest.
    pub options: &'a WriteOptions,
    /// Whether a wrong uid in the new object is a failed precondition (PUT) or a validation error.
    pub uid_is_precondition: bool,
}

/// Replaces the object that the path names by the body.
pub(super) async fn replace(context: &mut Context) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&context.query, "UpdateOptions", false)?;
    let mut object = decode::object(context, options.field_validation)?;
    place(context, &mut object)?;
    check_name(context, &mut object)?;
    let manager = context.manager(options.field_manager.as_deref());
    let change = Change {
        transform: |_: &Context, _: &Value| Ok(object.clone()),
        manager: Some(&manager),
        options: &options,
        uid_is_precondition: true,
    };
    let updated = match update(context, change).await {
        Err(status) if status.code == StatusCode::NOT_FOUND && creates(context) => {
            Updated { object: create_object(context, object, &options).await?, created: true }
        }
        other => other?,
    };
    let code = if updated.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(context.answer(code, updated.object))
}

fn creates(context: &Context) -> bool {
    context.subresource().is_empty() && context.served.strategy().create_on_update()
}

/// The name in the body may be left out, but not differ from the path's.
fn check_name(context: &Context, object: &mut Value) -> Result<(), Status> {
    let name = object::name(object);
    if name.is_empty() {
        let name = context.name().to_owned();
        metadata_mut(object).insert("name".into(), name.into());
    } else if name != context.name() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            context.name()
        )));
    }
    Ok(())
}

/// Changes the object that the path names, as often as it takes.
pub(super) async fn update<F>(context: &mut Context, mut change: Change<'_, F>) -> Result<Updated, Status>
where
    F: FnMut(&Context, &Value) -> Result<Value, Status>,
{
    let key = context.key();
    for _ in 0..TRIES {
        let Some(entry) = context.api.store.get(&key).await.map_err(Status::internal)? else {
            return Err(context.not_found());
        };
        let live = versions::to_served(&context.served, &entry.value)?;
        let object = (change.transform)(context, &live)?;
        let mut object = versions::to_handled(&context.served, &object).into_owned();
        let live = versions::to_handled(&context.served, &live).into_owned();
        context.served.strategy().default(&mut object);
        check_preconditions(context, &live, &mut object, change.uid_is_precondition)?;
        keep_system_fields(&live, &mut object);
        if let Some(manager) = change.manager {
            ownership::track(context, Some(&live), &mut object, manager);
        }
        prepare(context, &live, &mut object);
        let mut warnings = validate(context, &live, &object)?;
        context.served.strategy().canonicalize(&mut object);
        apply::keep_times_if_unchanged(&live, &mut object);
        if object == live {
            return Ok(Updated { object: entry.into(), created: false });
        }
        warnings.extend(context.served.strategy().warnings(&object, Some(&live)));
        if change.options.dry_run {
            context.warnings.extend(warnings);
            let object = context.unsaved(&object)?;
            return Ok(Updated { object, created: false });
        }
        if let Some(object) = put(context, &entry, &object).await? {
            context.warnings.extend(warnings);
            return Ok(Updated { object, created: false });
        }
    }
    Err(Status::conflict(context.qualified(), context.name(), MODIFIED))
}

/// What a lost race is called.
pub(super) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Stores the changed object; `None` if somebody else was quicker. An object that was only waiting for
/// its last finalizer to go is removed instead.
async fn put(context: &Context, entry: &Entry, object: &Value) -> Result<Option<Stored>, Status> {
    let expect = Expect::At(entry.modified);
    let key = entry.key.clone();
    let value = context.encode(object)?;
    let finished = object::is_deleting(object) && super::delete::is_finished(context, object);
    let write =
        if finished { Write::Delete { key, expect, last: Some(value) } } else { Write::Put { key, expect, value } };
    match context.api.store.txn(vec![write]).await.map_err(Status::internal)? {
        TxnResult::Committed { mut entries, .. } => {
            let stored = entries.pop().flatten().map(Stored::from);
            Ok(Some(stored.unwrap_or_else(|| Stored::unsaved(object))))
        }
        TxnResult::Conflict { .. } => Ok(None),
    }
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
        let key = context.served.key(context.namespace(), context.name());
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {uid}, UID in object meta: {live_uid}"
        );
        return Err(Status::conflict(context.qualified(), context.name(), why));
    }
    let revision = match object::text(object, "resourceVersion") {
        "" => 0,
        text => parse_revision(text).map_err(Status::unclassified)?,
    };
    if revision == 0 {
        if !context.served.strategy().unconditional_update() && uid_is_precondition {
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
    match context.subresource() {
        "" => strategy.prepare_update(object, live),
        "status" => {
            strategy.prepare_status_update(object, live);
            return;
        }
        other => strategy.prepare_subresource(other, object, live),
    }
    if strategy.has_generation() && strategy.desired_state_changed(object, live) {
        let generation = object::metadata(live).get("generation").and_then(Value::as_i64).unwrap_or(0);
        metadata_mut(object).insert("generation".into(), (generation + 1).into());
    }
}

/// Checks the changed object. Returns what is tolerated.
fn validate(context: &Context, live: &Value, object: &Value) -> Result<Vec<String>, Status> {
    let strategy = context.served.strategy();
    let (mut errors, mut warnings) = (FieldErrors::default(), Vec::new());
    crate::validation::metadata::validate_update(object, live, context.metadata_rules(), &mut errors);
    strategy.check_update(context.subresource(), object, live, &mut errors, &mut warnings);
    if errors.is_empty() {
        return Ok(warnings);
    }
    Err(Status::invalid(context.served.qualified_kind(), object::name(live), &errors))
}
