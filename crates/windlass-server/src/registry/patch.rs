//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

mod document;

use http::StatusCode;
use serde_json::Value;

use super::create::Uncreated;
use super::update::{Admitted, Change, update, update_within};
use super::{Answer, Context, create};
use crate::codec::negotiate::PatchType;
use crate::object::{self, metadata_mut};
use crate::options::WriteOptions;
use crate::state::contention::Attempts;
use crate::status::Status;
use crate::versions;

pub(super) use document::{Document, Patch, PatchRequest, patch_type};

/// Changes the object that the path names as the body says.
pub(super) async fn patch(context: &mut Context) -> Result<Answer, Status> {
    let kind = patch_type(context)?;
    let options = WriteOptions::parse(&context.query, "PatchOptions", kind == PatchType::Apply)?;
    let document = Document::read(context, kind)?;
    let request = PatchRequest::new(context, kind, &document, &options)?;
    match request.patch {
        Patch::Apply { .. } => server_side_apply(context, &request, &options).await,
        Patch::Json(_) | Patch::Merge(_) | Patch::Strategic(_) => change(context, &request, &options).await,
    }
}

async fn change(context: &mut Context, request: &PatchRequest<'_>, options: &WriteOptions) -> Result<Answer, Status> {
    let mut tolerated = Vec::new();
    let change = Change {
        transform: |context: &Context, live: &Value| {
            let (object, complaints) = request.object(context, Some(live))?;
            tolerated = complaints;
            Ok(object)
        },
        manager: Some(&request.manager),
        options,
        uid_is_precondition: false,
        admitted: Admitted::Object,
    };
    let updated = update(context, change).await?;
    request.warn(context, tolerated);
    Ok(context.answer(StatusCode::OK, updated.object))
}

async fn server_side_apply(
    context: &mut Context,
    request: &PatchRequest<'_>,
    options: &WriteOptions,
) -> Result<Answer, Status> {
    let (mut warned, mut attempts) = (false, Attempts::begin());
    loop {
        let transform = |context: &Context, live: &Value| Ok(request.object(context, Some(live))?.0);
        let admitted = Admitted::Object;
        let change = Change { transform, manager: None, options, uid_is_precondition: false, admitted };
        let updated = update_within(context, change, &mut attempts).await;
        if !std::mem::replace(&mut warned, true) {
            request.warn_of_duplicates(context);
        }
        match updated {
            Err(status) if status.code == StatusCode::NOT_FOUND && context.subresource().is_empty() => {}
            updated => return Ok(context.answer(StatusCode::OK, updated?.object)),
        }
        let (mut object, _) = request.object(context, None)?;
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
                if !attempts.after_conflict(&context.api.contention, &context.key(), !options.dry_run).await {
                    return Err(status);
                }
            }
            stored => return Ok(context.answer(StatusCode::CREATED, stored?)),
        }
    }
}
