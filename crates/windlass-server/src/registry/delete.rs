//! DELETE: finalizers, grace periods, propagation, preconditions, collections.

use http::StatusCode;
use serde_json::{Value, json};
use windlass_store::{Entry, Expect, TxnResult, Write};

use super::list::select;
use super::{Answer, Context, Stored, decode};
use crate::catalog::Served;
use crate::object::{self, metadata_mut};
use crate::options::{DeleteOptions, ListOptions, Propagation};
use crate::registry::strategy::Flag;
use crate::state::contention::Attempts;
use crate::status::{Details, Qualified, Status};
use crate::{admission, effort, versions};

/// What deleting an object takes besides what its size says, in bytes.
const DELETE_COST: usize = 1024;

/// How many objects of a collection are deleted at the same time, and how many bytes of them.
const PIECE: usize = 64;
const PIECE_BYTES: usize = 256 * 1024;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What a delete did.
enum Deleted {
    /// The object is gone; this is what it was.
    Gone(Value),
    /// The object waits for its finalizers or its grace period.
    Waiting(Stored),
}

/// Deletes the object that the path names.
pub(super) async fn delete(context: &mut Context) -> Result<Answer, Status> {
    let options = options(context)?;
    let deleted = delete_one(context, &options, true).await?;
    match deleted {
        Deleted::Waiting(object) => {
            let code = if options.legacy_no_orphans { StatusCode::ACCEPTED } else { StatusCode::OK };
            Ok(context.answer(code, object))
        }
        Deleted::Gone(object) if returns_deleted(&context.served) => {
            let object = context.unsaved(&object).await?;
            Ok(context.answer(StatusCode::OK, object))
        }
        Deleted::Gone(object) => {
            let mut status = Status::new(StatusCode::OK, "", "");
            status.details = Some(Box::new(Details {
                name: context.name().to_owned(),
                group: context.served.group.to_string(),
                kind: context.served.plural.to_string(),
                uid: object::text(&object, "uid").to_owned(),
                causes: Vec::new(),
            }));
            Ok(Answer::Status { status: Box::new(status), warnings: std::mem::take(&mut context.warnings) })
        }
    }
}

/// Deletes every object that the query selects, and answers with them as they were.
///
/// As many small objects take as long as a few large ones, all of them together decide whether this is done on the
/// threads that serve requests. Elsewhere it is done in pieces: a store in memory never waits, so without a pause other
/// large requests would wait for the whole collection. The objects of a piece are deleted at the same time, so that a
/// store on disk writes them together.
pub(super) async fn delete_collection(context: &mut Context) -> Result<Answer, Status> {
    let delete_options = options(context)?;
    let page = select(context, ListOptions::parse(&context.query, false)?).await?;
    let cost = |entry: &Entry| entry.value.len() + DELETE_COST;
    let total = page.entries.iter().map(cost).sum();
    context.api.offload.rest_of_request(context.qualified(), effort::is_large_write(total)).await;
    // Webhooks and policies are asked about one object after the other: nothing is deleted after the first refusal.
    let at_once = if admission::has_a_say(&context.api) { 1 } else { PIECE };
    let mut rest = &page.entries[..];
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            bytes += cost(entry);
            bytes <= PIECE_BYTES
        };
        let (piece, behind) = rest.split_at(rest.iter().take(at_once).take_while(fits).count().max(1));
        rest = behind;
        let mut each: Vec<Context> = piece.iter().map(|entry| about(context, entry)).collect();
        let deleting = each.iter_mut().map(|one| delete_one(one, &delete_options, true));
        let deleted = futures::future::join_all(deleting).await;
        context.warnings.extend(each.into_iter().flat_map(|one| one.warnings));
        for result in deleted {
            match result {
                Err(status) if status.code != StatusCode::NOT_FOUND => return Err(status),
                _ => {}
            }
        }
        tokio::task::yield_now().await;
    }
    Ok(page.answer(context))
}

/// The same request, about one object of the collection.
fn about(context: &Context, entry: &Entry) -> Context {
    let metadata = crate::codec::peek::metadata(&entry.value);
    let text = |field: &str| metadata.and_then(|m| m.field(field)?.as_str()).map(std::borrow::Cow::into_owned);
    let mut one = context.fork();
    one.path.name = text("name");
    if context.served.namespaced {
        one.path.namespace = text("namespace");
    }
    one
}

fn options(context: &mut Context) -> Result<DeleteOptions, Status> {
    let body = decode::delete_options(context)?;
    let options = DeleteOptions::parse(&context.query, body.as_ref())?;
    if options.propagation.is_none() {
        context.warnings.extend(context.served.strategy().orphaning_warning().map(str::to_owned));
    }
    Ok(options)
}

/// Deletes the object that the path names. `admits` is whether admission has a say in it.
async fn delete_one(context: &mut Context, options: &DeleteOptions, admits: bool) -> Result<Deleted, Status> {
    let key = context.key();
    let mut attempts = Attempts::begin();
    loop {
        let Some(entry) = context.api.store.get(&key).await.map_err(Status::internal)? else {
            return Err(context.not_found());
        };
        context.api.offload.rest_of_request(context.qualified(), effort::is_large_write(entry.value.len())).await;
        let live = versions::to_served(&context.api, &context.served, &entry.value).await?;
        let live = versions::into_handled(&context.served, live);
        check_preconditions(context, options, &live)?;
        if admits {
            admission::delete(context, &live, options).await?;
        }
        let grace = grace_seconds(context, options, &live);
        // An object that was deleted before changes in nothing else.
        let before = object::is_deleting(&live).then(|| deletion(&live));
        let mut object = live;
        set_finalizers(context, options, &mut object);
        if before.is_none() {
            context.served.strategy().prepare_delete(&mut object, &object::time(context.now));
        }
        let waits = grace > 0 || !may_go(context, &object);
        if waits {
            mark(context, &mut object, grace);
        }
        if options.dry_run {
            return Ok(if waits { Deleted::Waiting(context.unsaved(&object).await?) } else { Deleted::Gone(object) });
        }
        attempts.yield_to_holder(&context.api.contention, &key).await;
        let done = if waits {
            let is_same = before.is_some_and(|before| before == deletion(&object));
            wait(context, &entry, &object, is_same).await?.map(Deleted::Waiting)
        } else {
            if is_pod(context) {
                mark(context, &mut object, 0);
            }
            remove(context, &entry, &object).await?.then_some(Deleted::Gone(object))
        };
        if let Some(done) = done {
            return Ok(done);
        }
        if !attempts.after_conflict(&context.api.contention, &key, options.resource_version.is_none()).await {
            return Err(Status::conflict(context.qualified(), context.name(), super::update::MODIFIED));
        }
    }
}

/// What the deletion of an object that is being deleted may change.
fn deletion(object: &Value) -> [Option<Value>; 4] {
    let metadata = object::metadata(object);
    ["deletionTimestamp", "deletionGracePeriodSeconds", "finalizers", "generation"]
        .map(|field| metadata.get(field).cloned())
}

/// Kinds whose delete answers with the object instead of a Status: upstream's `ReturnDeletedObject`.
fn returns_deleted(served: &Served) -> bool {
    match &*served.group {
        "" => matches!(
            &*served.plural,
            "namespaces"
                | "persistentvolumeclaims"
                | "persistentvolumes"
                | "pods"
                | "podtemplates"
                | "resourcequotas"
                | "serviceaccounts"
                | "services"
        ),
        "resource.k8s.io" => true,
        "storage.k8s.io" => &*served.plural != "csistoragecapacities",
        _ => false,
    }
}

/// Pods stop gracefully; one that goes at once says so.
fn is_pod(context: &Context) -> bool {
    context.served.group.is_empty() && &*context.served.plural == "pods"
}

/// Whether a deleting object has nothing left to wait for.
pub(super) fn is_finished(context: &Context, object: &Value) -> bool {
    let grace = object::metadata(object).get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    grace == 0 && may_go(context, object)
}

/// Whether nothing holds the object.
fn may_go(context: &Context, object: &Value) -> bool {
    object::finalizers(object).is_empty() && !context.served.strategy().holds_deletion(object)
}

pub(super) fn check_preconditions(context: &Context, options: &DeleteOptions, live: &Value) -> Result<(), Status> {
    let kind = Qualified { group: &context.served.group, name: &context.served.kind };
    let (uid, revision) = (object::text(live, "uid"), object::text(live, "resourceVersion"));
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). \
             The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(kind, context.name(), why));
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != revision) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({revision}). The object might have been modified"
        );
        return Err(Status::conflict(kind, context.name(), why));
    }
    Ok(())
}

/// How long the object may take to stop: only kinds that stop gracefully take any time, and a second
/// delete can only shorten it.
fn grace_seconds(context: &Context, options: &DeleteOptions, live: &Value) -> i64 {
    let wanted = context.served.strategy().grace_period(live, options.grace_seconds).unwrap_or(0);
    match object::metadata(live).get("deletionGracePeriodSeconds").and_then(Value::as_i64) {
        Some(running) if object::is_deleting(live) => wanted.min(running),
        _ => wanted,
    }
}

/// Adds or removes the finalizers through which the garbage collector acts on the propagation policy.
fn set_finalizers(context: &Context, options: &DeleteOptions, object: &mut Value) {
    // Without a policy, what an earlier deletion asked for stays.
    let is_decided = object::finalizers(object).iter().any(|finalizer| [FOREGROUND, ORPHAN].contains(finalizer));
    let orphans = !is_decided && context.served.has(Flag::OrphansDependents);
    let Some(propagation) = options.propagation.or(orphans.then_some(Propagation::Orphan)) else { return };
    let mut finalizers: Vec<String> = object::finalizers(object)
        .into_iter()
        .filter(|f| *f != FOREGROUND && *f != ORPHAN)
        .map(str::to_owned)
        .collect();
    match propagation {
        Propagation::Foreground => finalizers.push(FOREGROUND.into()),
        Propagation::Orphan => finalizers.push(ORPHAN.into()),
        Propagation::Background => {}
    }
    let metadata = metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), json!(finalizers));
    }
}

/// Marks the object as being deleted.
fn mark(context: &Context, object: &mut Value, grace: i64) {
    let first = !object::is_deleting(object);
    let running = object::metadata(object).get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    if first || running != Some(grace) {
        let when = context.now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(context.now);
        let metadata = metadata_mut(object);
        metadata.insert("deletionTimestamp".into(), object::time(when).into());
        // A CRD's deletion is upstream's own code, which does not record a grace period.
        if &*context.served.kind != "CustomResourceDefinition" {
            metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        }
    }
    if first && context.served.has(Flag::Generation) {
        let generation = object::metadata(object).get("generation").and_then(Value::as_i64).unwrap_or(0);
        metadata_mut(object).insert("generation".into(), (generation + 1).into());
    }
}

async fn wait(context: &Context, entry: &Entry, object: &Value, is_same: bool) -> Result<Option<Stored>, Status> {
    if is_same {
        return Ok(Some(entry.clone().into()));
    }
    let value = context.encode(object).await?;
    let write = Write::Put { key: entry.key.clone(), expect: Expect::At(entry.modified), value };
    match context.api.store.txn(vec![write]).await.map_err(Status::internal)? {
        TxnResult::Committed { mut entries, .. } => Ok(entries.pop().flatten().map(Stored::from)),
        TxnResult::Conflict { .. } => Ok(None),
    }
}

/// Removes an object; false if it has changed meanwhile.
async fn remove(context: &Context, entry: &Entry, object: &Value) -> Result<bool, Status> {
    let last = context.encode(object).await?;
    let mut writes =
        vec![Write::Delete { key: entry.key.clone(), expect: Expect::At(entry.modified), last: Some(last) }];
    writes.extend(super::allocation::releases(context, object));
    match context.api.store.txn(writes).await.map_err(Status::internal)? {
        TxnResult::Committed { .. } => Ok(true),
        TxnResult::Conflict { .. } => Ok(false),
    }
}

/// Deletes the object that the path names without asking admission.
pub(super) async fn unasked(context: &mut Context, options: &DeleteOptions) -> Result<(), Status> {
    delete_one(context, options, false).await.map(drop)
}
