//! POST: a new object, in [the order of a write](super#the-order-of-a-write).

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use windlass_store::{Expect, TxnResult, Write};

use super::allocation::Claims;
use super::{Answer, Context, Stored, decode, ownership};
use crate::admission::quota::{self, Charge};
use crate::admission::{self, Act};
use crate::admission_config;
use crate::codec::typed::normalize;
use crate::field::{FieldError, FieldErrors, Path};
use crate::object::{self, metadata_mut};
use crate::options::{WriteOptions, parse_revision};
use crate::registry::strategy::{Flag, Strategy, certificate};
use crate::state::contention::Attempts;
use crate::status::Status;
use crate::validation::metadata::Rules;
use crate::versions;

/// How often a generated name is made anew when it is taken.
const NAME_TRIES: usize = 8;

/// Creates the object in the body.
pub(super) async fn create(context: &mut Context) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&context.query, "CreateOptions", false)?;
    let object = decode::object(context, options.field_validation)?;
    if context.served.custom().is_some_and(|kind| kind.terminating) {
        return Err(terminating(context, &object));
    }
    let stored = create_object(context, object, &options).await?;
    Ok(context.answer(StatusCode::CREATED, stored))
}

/// Why an object was not created.
pub(super) enum Uncreated {
    /// There is one of its name.
    Taken(Status),
    /// A plugin, or something about it, is against it.
    Refused(Status),
}

impl From<Status> for Uncreated {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl From<Uncreated> for Status {
    fn from(why: Uncreated) -> Self {
        match why {
            Uncreated::Taken(status) | Uncreated::Refused(status) => status,
        }
    }
}

/// Creates a decoded object: also what PUT and apply do when there is nothing yet.
pub(super) async fn create_object(
    context: &mut Context,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Stored, Uncreated> {
    place(context, &mut object)?;
    object = versions::into_handled(&context.served, object);
    context.served.strategy().default(&mut object);
    let manager = context.manager(options.field_manager.as_deref());
    ownership::track(context, None, &mut object, &manager).await;
    store_new(context, object, options).await
}

/// The second half of a create: admission, preparation, validation and the store.
pub(super) async fn store_new(
    context: &mut Context,
    mut object: Value,
    options: &WriteOptions,
) -> Result<Stored, Uncreated> {
    admission::mutate_create(context, &mut object, options).await?;
    // What changed the object may have moved it, too.
    place(context, &mut object)?;
    let generated = name(&mut object);
    crate::authz::check_escalation(context, &object, None)?;
    prepare(context, &mut object);
    validate(context, &mut object).await?;
    context.served.strategy().canonicalize(&mut object);
    let mut claims = Claims::of(context, &mut object, None).await?;
    let warnings = context.served.strategy().warnings(&object, None);
    context.warnings.extend(warnings);
    crate::authz::check_create(context).await?;
    let act = Act::Create(options);
    // Begin with the first conflict: the queue of a namespace with quotas may be long.
    let mut charges: Option<Attempts> = None;
    let (mut attempt, mut admitted) = (0, false);
    loop {
        if !std::mem::replace(&mut admitted, true) {
            admission::validate(context, act, Some(&object), None).await?;
        }
        // Converting may take its time, and others wait for their turn to be charged.
        let value = if options.dry_run {
            None
        } else {
            unversioned(&object)?;
            Some(context.encode_within(&object, 0).await?)
        };
        let charge = quota::charge(context, act, &object, None).await?;
        let attempted = match value {
            Some(value) => put(context, &object, value, &claims, &charge).await?,
            None => try_put(context, &object).await?,
        };
        match attempted {
            Put::Stored(stored) => return Ok(stored),
            Put::QuotaChanged if charges.get_or_insert_with(Attempts::begin).again() => {}
            Put::QuotaChanged => return Err(quota::contended(context).into()),
            Put::ClaimTaken(index) => {
                claims.taken(context, &mut object, index).await?;
                admitted = false;
            }
            Put::NameTaken(current) => match &generated {
                Some(prefix) if attempt + 1 < NAME_TRIES => {
                    attempt += 1;
                    metadata_mut(&mut object).insert("name".into(), object::generate_name(prefix).into());
                    // Some kinds repeat their name in labels.
                    context.served.strategy().default(&mut object);
                    context.served.strategy().prepare_create(&mut object);
                    context.served.strategy().canonicalize(&mut object);
                    admitted = false;
                }
                Some(_) => return Err(name_exhausted(context, &object).into()),
                None => return Err(Uncreated::Taken(exists(context, &object, &current))),
            },
        }
    }
}

/// What is not stored yet has no version. Upstream's store says so, and is not asked in a dry run; what is no number it
/// does not look at.
fn unversioned(object: &Value) -> Result<(), Status> {
    if parse_revision(object::text(object, "resourceVersion")).unwrap_or_default() == 0 {
        return Ok(());
    }
    Err(Status::unclassified("resourceVersion should not be set on objects to be created"))
}

/// Fills in the namespace of the path, which the body may repeat but not contradict. What has no namespace loses the one
/// that the body names: `EnsureObjectNamespaceMatchesRequestNamespace` of upstream.
pub(crate) fn place(context: &Context, object: &mut Value) -> Result<(), Status> {
    let namespace = object::text(object, "namespace");
    if !context.served.namespaced {
        if !namespace.is_empty() {
            metadata_mut(object).remove("namespace");
        }
        return Ok(());
    }
    if namespace.is_empty() {
        let namespace = context.namespace().to_owned();
        metadata_mut(object).insert("namespace".into(), namespace.into());
    } else if namespace != context.namespace() {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Makes a name from `generateName` if there is none; returns the prefix if it did.
fn name(object: &mut Value) -> Option<String> {
    if !object::name(object).is_empty() {
        return None;
    }
    let prefix = object::text(object, "generateName").to_owned();
    if prefix.is_empty() {
        return None;
    }
    metadata_mut(object).insert("name".into(), object::generate_name(&prefix).into());
    Some(prefix)
}

/// Sets what only the server may set.
fn prepare(context: &Context, object: &mut Value) {
    let strategy = context.served.strategy();
    let metadata = metadata_mut(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), object::new_uid().into());
    metadata.insert("creationTimestamp".into(), object::time(context.now).into());
    strategy.prepare_create(object);
    if certificate::is_request(&context.served) {
        let extra: Vec<(String, Vec<String>)> = context.user.extra.clone().into_iter().collect();
        certificate::set_requester(object, &context.user.name, &context.user.uid, &context.user.groups, &extra);
    }
    restore_status(context, object);
    if context.served.has(Flag::Generation) {
        metadata_mut(object).insert("generation".into(), 1.into());
    }
}

/// A status that is always there in Go is there even when it says nothing: `{"loadBalancer": {}}`.
fn restore_status(context: &Context, object: &mut Value) {
    if object.get("status").is_some() || context.served.custom {
        return;
    }
    let schema = context.served.schema();
    let Some(schema) = schema.properties.get("status") else { return };
    let Some(default) = schema.default_value() else { return };
    if let (Ok(status), Value::Object(map)) = (normalize(default.clone(), schema), object) {
        map.insert("status".into(), status);
    }
}

async fn validate(context: &Context, object: &mut Value) -> Result<(), Status> {
    let (served, metadata_rules) = (Arc::clone(&context.served), context.metadata_rules());
    let long = served.strategy().is_long(object, None);
    let checked = std::mem::take(object);
    let work = move || {
        let errors = find_errors(served.strategy(), metadata_rules, &checked);
        (checked, errors)
    };
    let (checked, mut errors) = context.api.offload.run(context.qualified(), long, work).await?;
    *object = checked;
    crate::authz::check_fields(context, object, None, &mut errors).await?;
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(context.qualified_kind_of(object), object::name(object), &errors))
}

fn find_errors(strategy: &dyn Strategy, metadata_rules: Rules, object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    if object::name(object).is_empty() {
        let metadata = Path::new("metadata");
        errors.push(FieldError::required(&metadata.child("name"), "name or generateName is required"));
    } else {
        crate::validation::metadata::validate(object, metadata_rules, &mut errors);
    }
    strategy.validate(object, &mut errors);
    compile_expressions(strategy, object, None, &mut errors);
    errors
}

/// Refuses expressions that do not compile. Those of `old` are there already.
pub(super) fn compile_expressions(
    strategy: &dyn Strategy,
    object: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
) {
    let expressions = strategy.expressions(object);
    if expressions.is_empty() {
        return;
    }
    let known = old.map(|old| strategy.expressions(old)).unwrap_or_default();
    let problems = admission_config::problems(&expressions);
    for (expression, problem) in expressions.iter().zip(problems) {
        if let Some(why) = problem.filter(|_| known.iter().all(|known| known.text != expression.text)) {
            let field = Path::new(&expression.field);
            errors.push(FieldError::invalid(&field, expression.text.trim(), why));
        }
    }
}

/// What became of an attempt to store a new object.
enum Put {
    Stored(Stored),
    /// There is such an object, and this is it.
    NameTaken(Bytes),
    /// Another object holds what the object claims; the number of the claim.
    ClaimTaken(usize),
    /// Another request used something of a quota in the meantime.
    QuotaChanged,
}

/// What would become of an attempt.
async fn try_put(context: &Context, object: &Value) -> Result<Put, Status> {
    let key = context.served.key(context.namespace(), object::name(object));
    match context.api.store.get(key.as_bytes()).await.map_err(Status::internal)? {
        Some(entry) => Ok(Put::NameTaken(entry.value)),
        None => Ok(Put::Stored(context.unsaved(object).await?)),
    }
}

async fn put(
    context: &Context,
    object: &Value,
    value: windlass_store::Value,
    claims: &Claims,
    charge: &Charge,
) -> Result<Put, Status> {
    let key = Bytes::from(context.served.key(context.namespace(), object::name(object)));
    let mut writes = vec![Write::Put { key, expect: Expect::Absent, value }];
    writes.extend(claims.writes(context, object));
    let claimed = writes.len();
    writes.extend(charge.writes());
    let _open = match &context.served.gate {
        Some(gate) => Some(gate.enter().await.ok_or_else(|| terminating(context, object))?),
        None => None,
    };
    match context.api.store.txn(writes).await.map_err(Status::internal)? {
        TxnResult::Committed { entries, .. } => {
            let entry = entries.into_iter().next().flatten().expect("invariant: a put yields its entry");
            Ok(Put::Stored(entry.into()))
        }
        TxnResult::Conflict { index: 0, current } => {
            Ok(Put::NameTaken(current.map(|entry| entry.value).unwrap_or_default()))
        }
        TxnResult::Conflict { index, .. } if index < claimed => Ok(Put::ClaimTaken(index - 1)),
        TxnResult::Conflict { .. } => Ok(Put::QuotaChanged),
    }
}

fn terminating(context: &Context, object: &Value) -> Status {
    let why = "create not allowed while custom resource definition is terminating";
    Status::forbidden(context.qualified(), object::name(object), why)
}

fn exists(context: &Context, object: &Value, current: &[u8]) -> Status {
    let mut status = Status::already_exists(context.qualified(), object::name(object));
    let metadata = crate::codec::peek::metadata(current);
    if metadata.and_then(|metadata| metadata.field("deletionTimestamp")).is_some() {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

fn name_exhausted(context: &Context, object: &Value) -> Status {
    let mut status = Status::already_exists(context.qualified(), object::name(object));
    status.message.push_str(", the server was not able to generate a unique name for the object");
    status.retry_after = Some(1);
    status
}
