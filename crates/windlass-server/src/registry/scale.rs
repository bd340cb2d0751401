//! `/scale`: a view of how many replicas an object wants and has.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::update::{Admitted, Change, Updated, View, update};
use super::{Answer, Context, decode, get};
use crate::body::Body;
use crate::catalog::Served;
use crate::codec::Expected;
use crate::codec::negotiate::{self, PatchType};
use crate::options::WriteOptions;
use crate::patch::{json::JsonPatch, merge, strategic};
use crate::registry::strategy::scale as builtin;
use crate::request::Verb;
use crate::schema::{Schema, builtin as definitions};
use crate::status::{Qualified, Status};
use crate::{object, render, versions};

const EXPECTED: Expected<'static> = Expected { group: "autoscaling", version: "v1", kind: "Scale", custom: false };

/// What a patch sees where an object does not say how many replicas it wants; it has to change it.
const UNSET: i64 = i32::MIN as i64;

/// Carries out a request for a scale.
pub(super) async fn serve(context: &mut Context) -> Result<Answer, Status> {
    let scale = match context.verb {
        Verb::Get | Verb::List => {
            let stored = get::read(context).await?;
            let live = versions::to_served(&context.api, &context.served, &stored.bytes).await?;
            read(context, &live)?
        }
        Verb::Update => {
            let options = WriteOptions::parse(&context.query, "UpdateOptions", false)?;
            let scale = decode::view(context, EXPECTED, options.field_validation)?;
            if object::name(&scale) != context.name() && !object::name(&scale).is_empty() {
                return Err(Status::bad_request(format!(
                    "the name of the object ({}) does not match the name on the URL ({})",
                    object::name(&scale),
                    context.name()
                )));
            }
            write(context, &options, |_| Ok(scale.clone())).await?
        }
        Verb::Patch => patch(context).await?,
        _ => return Err(Status::method_not_allowed()),
    };
    let body: Body = render::encode(&scale, &context.accepted)?.into();
    let content_type = context.accepted.format.media_type();
    let warnings = std::mem::take(&mut context.warnings);
    Ok(Answer::Raw { code: StatusCode::OK, content_type, body, warnings })
}

async fn patch(context: &mut Context) -> Result<Value, Status> {
    let content_type = context.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = negotiate::patch_type(content_type, context.served.custom)?;
    let options = WriteOptions::parse(&context.query, "PatchOptions", kind == PatchType::Apply)?;
    let schema = schema()?;
    if kind == PatchType::Apply {
        let (applied, _) = decode::applied(context)?;
        if context.served.custom {
            // Upstream cannot do this either.
            return Err(Status::unclassified(format!(
                "failed to convert new object ({}/{}; autoscaling/v1, Kind=Scale) to proper version: request to \
                 convert CR to an invalid group/version: autoscaling/v1",
                object::text(&applied, "namespace"),
                object::name(&applied)
            )));
        }
        return write(context, &options, |scale| {
            let mut scale = scale.clone();
            merge::apply(&mut scale, applied.clone())?;
            Ok(scale)
        })
        .await;
    }
    let (document, _) = decode::patch_document(context)?;
    write(context, &options, |scale| {
        let mut scale = scale.clone();
        match kind {
            PatchType::Json => JsonPatch::decode(&document, true)?.apply(&mut scale)?,
            PatchType::Strategic => strategic::apply(schema, &mut scale, document.clone())?,
            _ => merge::apply(&mut scale, document.clone())?,
        }
        Ok(scale)
    })
    .await
}

fn schema() -> Result<&'static Schema, Status> {
    let id =
        definitions::by_kind("autoscaling", "v1", "Scale").ok_or_else(|| Status::internal("Scale has no schema"))?;
    Ok(definitions::definition(id))
}

/// What admission sees of a change of a scale.
struct ScaleView<'a> {
    served: &'a Served,
}

impl View for ScaleView<'_> {
    /// Admission sees no replicas where there are none yet.
    fn read(&self, object: &Value) -> Result<Value, Status> {
        Ok(scale_of(self.served, object)?.0)
    }

    fn write(&self, object: &mut Value, view: &Value) -> Result<(), Status> {
        let replicas = view.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        let version = self.served.custom().and_then(|kind| kind.version(&self.served.version));
        if let Some(paths) = version.and_then(|version| version.scale.as_ref()) {
            return paths.set(object, replicas).map_err(Status::internal);
        }
        builtin::set(object, replicas);
        Ok(())
    }
}

/// The scale of an object.
fn read(context: &Context, live: &Value) -> Result<Value, Status> {
    match scale_of(&context.served, live)? {
        (scale, None) => Ok(scale),
        (_, Some(missing)) => Err(Status::internal(missing)),
    }
}

/// The scale of an object, and what a read fails with if the object does not say how many replicas it wants.
fn scale_of(served: &Served, live: &Value) -> Result<(Value, Option<String>), Status> {
    let Some(kind) = served.custom() else { return Ok((builtin::get(live), None)) };
    let paths = kind.version(&served.version).and_then(|version| version.scale.as_ref());
    let paths = paths.ok_or_else(Status::no_such_resource)?;
    let scale = paths.get(live).map_err(Status::internal)?;
    Ok((scale.object, (!scale.found).then(|| paths.missing())))
}

/// Changes the scale of an object; returns the new one.
async fn write(
    context: &mut Context,
    options: &WriteOptions,
    change: impl Fn(&Value) -> Result<Value, Status>,
) -> Result<Value, Status> {
    let served = Arc::clone(&context.served);
    let custom = served.custom().and_then(|kind| kind.version(&served.version)).and_then(|v| v.scale.as_ref());
    let manager = context.manager(options.field_manager.as_deref());
    let transform = |context: &Context, live: &Value| {
        let old = match custom {
            Some(paths) => {
                let mut scale = paths.get(live).map_err(Status::internal)?;
                if !scale.found {
                    scale.object["spec"]["replicas"] = UNSET.into();
                }
                scale.object
            }
            None => builtin::get(live),
        };
        let scale = change(&old)?;
        if let (Some(paths), Some(UNSET)) = (custom, scale.pointer("/spec/replicas").and_then(Value::as_i64)) {
            return Err(Status::bad_request(paths.cannot_be_empty()));
        }
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        let mut object = live.clone();
        if let Some(paths) = custom {
            paths.set(&mut object, replicas).map_err(Status::internal)?;
        } else {
            let mut errors = crate::field::FieldErrors::default();
            builtin::validate(&scale, &mut errors);
            if !errors.is_empty() {
                let kind = Qualified { group: "autoscaling", name: "Scale" };
                return Err(Status::invalid(kind, context.name(), &errors));
            }
            builtin::set(&mut object, replicas);
        }
        let version = object::text(&scale, "resourceVersion").to_owned();
        object::metadata_mut(&mut object).insert("resourceVersion".into(), version.into());
        Ok(object)
    };
    let view = ScaleView { served: &served };
    let admitted = Admitted::View(&view);
    let change = Change { transform, manager: Some(&manager), options, uid_is_precondition: false, admitted };
    // The change goes through the object's own rules; only the ownership says that it came through here.
    let Updated { object, .. } = update(context, change).await?;
    let live = versions::to_served(&context.api, &context.served, &object.bytes).await?;
    read(context, &live)
}
