//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

use http::StatusCode;
use serde_json::{Map, Value};

use super::create::Uncreated;
use super::update::{Admitted, Change, check_identity, update, update_within};
use super::{Answer, Context, create, decode, ownership};
use crate::codec::body::StrictError;
use crate::codec::negotiate::{self, PatchType};
use crate::object::{self, metadata_mut};
use crate::options::{FieldValidation, WriteOptions};
use crate::patch::{json::JsonPatch, merge, strategic};
use crate::state::contention::Race;
use crate::status::Status;
use crate::versions;

/// Changes the object that the path names as the body says.
pub(super) async fn patch(context: &mut Context) -> Result<Answer, Status> {
    let content_type = context.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let patch_type = negotiate::patch_type(content_type, context.served.custom)?;
    let options = WriteOptions::parse(&context.query, "PatchOptions", patch_type == PatchType::Apply)?;
    match patch_type {
        PatchType::Apply => server_side_apply(context, &options).await,
        PatchType::Json => json_patch(context, &options).await,
        PatchType::Merge | PatchType::Strategic => merge_patch(context, patch_type, &options).await,
    }
}

async fn json_patch(context: &mut Context, options: &WriteOptions) -> Result<Answer, Status> {
    let (document, duplicates) = decode::patch_document(context)?;
    let lenient = options.field_validation == FieldValidation::Ignore;
    let patch = JsonPatch::decode(&document, lenient)?;
    decode::report(context, options.field_validation, patch.strict_errors.clone())?;
    let transform = |mut object: Value| {
        patch.apply(&mut object)?;
        Ok(object)
    };
    change(context, transform, &duplicates, None, options).await
}

async fn merge_patch(context: &mut Context, kind: PatchType, options: &WriteOptions) -> Result<Answer, Status> {
    let (document, duplicates) = decode::patch_document(context)?;
    let served = std::sync::Arc::clone(&context.served);
    let transform = |mut object: Value| {
        match kind {
            PatchType::Strategic => strategic::apply(&served.schema(), &mut object, document.clone())?,
            _ => merge::apply(&mut object, document.clone())?,
        }
        Ok(object)
    };
    let strategic = (kind == PatchType::Strategic).then_some(&document);
    // Of other patches, errors show the whole object.
    if strategic.is_some() && context.subresource() == "status" && is_about_status(&document) {
        return change_status(context, transform, &duplicates, strategic, options).await;
    }
    change(context, transform, &duplicates, strategic, options).await
}

/// The fields of an object that a patch of its status may change.
const ABOUT_STATUS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

fn is_about_status(patch: &Value) -> bool {
    patch.as_object().is_some_and(|fields| fields.keys().all(|field| ABOUT_STATUS.contains(&field.as_str())))
}

/// A change of what [`ABOUT_STATUS`] names. The rest, which is most of a pod, is neither patched nor decoded again.
async fn change_status(
    context: &mut Context,
    transform: impl Fn(Value) -> Result<Value, Status>,
    duplicates: &[StrictError],
    strategic: Option<&Value>,
    options: &WriteOptions,
) -> Result<Answer, Status> {
    let part = |live: &Value| {
        let copy = |field: &str| match (field, live.get(field)?) {
            ("metadata", Value::Object(metadata)) => Some(Value::Object(without_owners(metadata))),
            (_, value) => Some(value.clone()),
        };
        let fields = ABOUT_STATUS.iter().filter_map(|field| Some(((*field).to_owned(), copy(field)?)));
        Value::Object(fields.collect())
    };
    let rest = |live: &Value, object: &mut Value| {
        if let (Value::Object(live), Value::Object(object)) = (live, object) {
            for (field, value) in live.iter().filter(|(field, _)| !ABOUT_STATUS.contains(&field.as_str())) {
                object.insert(field.clone(), value.clone());
            }
        }
    };
    change_with(context, |live| transform(part(live)), rest, duplicates, strategic, options).await
}

/// Metadata without the owners of fields, which no subresource can change: they are those of the stored object, whatever the
/// patch says, and are often the larger part of an object.
fn without_owners(metadata: &Map<String, Value>) -> Map<String, Value> {
    let others = metadata.iter().filter(|(field, _)| *field != "managedFields");
    others.map(|(field, value)| (field.clone(), value.clone())).collect()
}

async fn change(
    context: &mut Context,
    transform: impl Fn(Value) -> Result<Value, Status>,
    duplicates: &[StrictError],
    strategic: Option<&Value>,
    options: &WriteOptions,
) -> Result<Answer, Status> {
    change_with(context, |live| transform(live.clone()), |_, _| {}, duplicates, strategic, options).await
}

/// The same with something that completes the patched object from the stored one.
async fn change_with(
    context: &mut Context,
    transform: impl Fn(&Value) -> Result<Value, Status>,
    complete: impl Fn(&Value, &mut Value),
    duplicates: &[StrictError],
    strategic: Option<&Value>,
    options: &WriteOptions,
) -> Result<Answer, Status> {
    let manager = context.manager(options.field_manager.as_deref());
    let validation = options.field_validation;
    let mut reported: Vec<String> = Vec::new();
    let change = Change {
        transform: |context: &Context, live: &Value| {
            let patch = decode::Patch { apply: || transform(live), duplicates, strategic };
            let (mut object, strict) = decode::patched(context, &patch, validation)?;
            reported = strict;
            complete(live, &mut object);
            check_identity(context, &mut object)?;
            Ok(object)
        },
        manager: Some(&manager),
        options,
        uid_is_precondition: false,
        admitted: Admitted::Object,
    };
    let updated = update(context, change).await?;
    decode::warn(context, validation, reported);
    Ok(context.answer(StatusCode::OK, updated.object))
}

async fn server_side_apply(context: &mut Context, options: &WriteOptions) -> Result<Answer, Status> {
    let (applied, complaints) = decode::applied(context)?;
    let validation = options.field_validation;
    let manager = context.manager(options.field_manager.as_deref());
    let force = options.force.unwrap_or(false);
    let merge = |context: &Context, live: Option<&Value>| {
        let apply = || ownership::apply(context, live, &applied, &manager, force);
        let patch = decode::Patch { apply, duplicates: &[], strategic: None };
        let (mut object, _) = decode::patched(context, &patch, FieldValidation::Ignore)?;
        decode::strictly_applied(&complaints, validation)?;
        check_identity(context, &mut object)?;
        Ok(object)
    };
    let (mut warned, mut race) = (false, Race::begin());
    loop {
        let transform = |context: &Context, live: &Value| merge(context, Some(live));
        let admitted = Admitted::Object;
        let change = Change { transform, manager: None, options, uid_is_precondition: false, admitted };
        let updated = update_within(context, change, &mut race).await;
        if !std::mem::replace(&mut warned, true) {
            decode::warn(context, validation, complaints.clone());
        }
        match updated {
            Err(status) if status.code == StatusCode::NOT_FOUND && context.subresource().is_empty() => {}
            updated => return Ok(context.answer(StatusCode::OK, updated?.object)),
        }
        let mut object = merge(context, None)?;
        metadata_mut(&mut object).remove("resourceVersion");
        if !object::text(&object, "uid").is_empty() {
            let why = "uid mismatch: the provided object specified uid ";
            let why = format!("{why}{}, and no existing object was found", object::text(&object, "uid"));
            return Err(Status::conflict(context.qualified(), context.name(), why));
        }
        let mut object = versions::into_handled(&context.served, object);
        context.served.strategy().default(&mut object);
        match create::store_new(context, object, options).await {
            // Another has created it in between: it is to be changed, then.
            Err(Uncreated::Taken(status)) => {
                if !race.lost(&context.api.contention, &context.key(), !options.dry_run).await {
                    return Err(status);
                }
            }
            stored => return Ok(context.answer(StatusCode::CREATED, stored?)),
        }
    }
}
