//! `/scale`: a view of how many replicas an object wants and has.
//!
//! ```text
//! stored object ──> its Scale, with the owners of the replicas ──> patch, apply or PUT ──> new Scale
//!                   ──> the replicas and their owners back into the object ──> update
//! ```
//!
//! A Scale is decoded as what it is, an `autoscaling/v1` Scale, whatever kind it is of. Of a new one, only the
//! replicas, their owners and the preconditions count. Mirrors `scaleUpdatedObjectInfo` of upstream's
//! `registry/apps/*/storage/storage.go` and `apiextensions-apiserver/pkg/registry/customresource/etcd.go`.

use std::sync::Arc;

use serde_json::Value;

use super::patch::{Document, Patch, PatchRequest, patch_type};
use super::update::{Admitted, Change, Updated, View, check_identity, update};
use super::{Answer, Context, decode, get};
use crate::apply::{self, Manager, OneVersion, ReplicasPaths, Reset};
use crate::catalog::Served;
use crate::codec::negotiate::PatchType;
use crate::codec::{Decoded, Expected};
use crate::field::FieldErrors;
use crate::object::metadata_mut;
use crate::options::WriteOptions;
use crate::registry::strategy::scale as builtin;
use crate::request::Verb;
use crate::schema::{Schema, builtin as definitions};
use crate::status::{Qualified, Status};
use crate::{object, versions};
use windlass_kinds::crd::scale::ScalePaths;

const EXPECTED: Expected<'static> = Expected { group: "autoscaling", version: "v1", kind: "Scale", custom: false };

/// What a change sees where an object does not say how many replicas it wants; it has to change it.
const UNSET: i32 = i32::MIN;

/// Carries out a request for a scale.
pub(super) async fn serve(context: &mut Context) -> Result<Answer, Status> {
    let scale = match context.verb {
        Verb::Get | Verb::List => {
            let stored = get::read(context).await?;
            let live = versions::to_served(&context.api, &context.served, &stored.bytes).await?;
            read(context, &live)?
        }
        Verb::Update => replace(context).await?,
        Verb::Patch => patch(context).await?,
        _ => return Err(Status::method_not_allowed()),
    };
    Ok(Answer::Scale { scale, warnings: std::mem::take(&mut context.warnings) })
}

async fn replace(context: &mut Context) -> Result<Value, Status> {
    let options = WriteOptions::parse(&context.query, "UpdateOptions", false)?;
    let mut scale = decode::view(context, EXPECTED, options.field_validation)?;
    check_identity(context, &mut scale)?;
    let schema = schema()?;
    let manager = context.manager(options.field_manager.as_deref());
    let change = |context: &Context, old: &Value| Ok(tracked(context, schema, old, scale.clone(), &manager));
    write(context, &options, change).await
}

async fn patch(context: &mut Context) -> Result<Value, Status> {
    let kind = patch_type(context)?;
    let options = WriteOptions::parse(&context.query, "PatchOptions", kind == PatchType::Apply)?;
    let schema = schema()?;
    let document = Document::read(context, kind)?;
    let request = PatchRequest::new(context, kind, &document, &options)?;
    if let Patch::Apply { configuration, force } = request.patch {
        let change = |context: &Context, old: &Value| applied(context, schema, &request, configuration, force, old);
        let scale = write(context, &options, change).await;
        request.warn_of_duplicates(context);
        return scale;
    }
    let mut tolerated = Vec::new();
    let change = |context: &Context, old: &Value| {
        let (scale, complaints) = request.view(context, EXPECTED, schema, old)?;
        tolerated = complaints;
        Ok(tracked(context, schema, old, scale, &request.manager))
    };
    let scale = write(context, &options, change).await?;
    request.warn(context, tolerated);
    Ok(scale)
}

/// The Scale that a server-side apply makes of `old`.
fn applied(
    context: &Context,
    schema: &Schema,
    request: &PatchRequest<'_>,
    configuration: &Value,
    force: bool,
    old: &Value,
) -> Result<Value, Status> {
    let merged = apply::apply(schema, Some(old), configuration, &manager(&request.manager), force, context.now)?;
    let mut scale = of_applied(context, schema, old, merged).map_err(|why| {
        let (namespace, name) = (object::text(configuration, "namespace"), object::name(configuration));
        let what = format!("{namespace}/{name}; autoscaling/v1, Kind=Scale");
        Status::unclassified(format!("failed to convert new object ({what}) to proper version: {why}"))
    })?;
    request.check_strictly_applied()?;
    check_identity(context, &mut scale)?;
    Ok(scale)
}

/// The Scale that an apply made. As upstream, that of a custom resource can be applied only as it is: all
/// that may change is who owns it.
fn of_applied(context: &Context, schema: &Schema, old: &Value, merged: Value) -> Result<Value, String> {
    if context.served.custom {
        if without_owners(old) == without_owners(&merged) {
            return Ok(merged);
        }
        return Err("request to convert CR to an invalid group/version: autoscaling/v1".to_owned());
    }
    let decoded = Decoded { value: merged, duplicates: Vec::new(), source: None };
    match decode::converted(decoded, EXPECTED, schema) {
        Ok((scale, _)) => Ok(scale),
        Err(why) => Err(format!("unable to convert unstructured object to autoscaling/v1, Kind=Scale: {why}")),
    }
}

fn without_owners(scale: &Value) -> Value {
    let mut scale = scale.clone();
    metadata_mut(&mut scale).remove("managedFields");
    scale
}

/// A Scale that replaces `old`, with owners.
fn tracked(context: &Context, schema: &Schema, old: &Value, mut scale: Value, name: &str) -> Value {
    // As in Go's encoding, zero replicas are left out; no manager owns them then.
    if let Some(Value::Object(spec)) = scale.get_mut("spec") {
        spec.retain(|field, value| field != "replicas" || value.as_i64() != Some(0));
    }
    apply::update(schema, Some(old), &mut scale, &manager(name), context.now);
    scale
}

fn manager(name: &str) -> Manager<'_> {
    Manager {
        name,
        api_version: "autoscaling/v1",
        kind: "Scale",
        subresource: "scale",
        reset: Reset::Nothing,
        versions: &OneVersion,
    }
}

fn schema() -> Result<&'static Schema, Status> {
    let id =
        definitions::by_kind("autoscaling", "v1", "Scale").ok_or_else(|| Status::internal("Scale has no schema"))?;
    Ok(definitions::definition(id))
}

/// The replicas that a decoded Scale asks for.
fn replicas(scale: &Value) -> Result<i32, Status> {
    match scale.pointer("/spec/replicas") {
        None | Some(Value::Null) => Ok(0),
        Some(number) => number
            .as_i64()
            .and_then(|number| i32::try_from(number).ok())
            .ok_or_else(|| Status::internal(format!("{number} is no number of replicas"))),
    }
}

/// Checks the Scale of an object of a built-in kind. That of a custom resource is checked as part of it.
fn validate(scale: &Value, name: &str) -> Result<(), Status> {
    let mut errors = FieldErrors::default();
    builtin::validate(scale, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(Qualified { group: "autoscaling", name: "Scale" }, name, &errors))
}

/// Where a version of a custom resource keeps what its Scale shows; `None` with built-in kinds.
fn custom_paths(served: &Served) -> Result<Option<&ScalePaths>, Status> {
    let Some(kind) = served.custom() else { return Ok(None) };
    let paths = kind.version(&served.version).and_then(|version| version.scale.as_ref());
    paths.map(Some).ok_or_else(Status::no_such_resource)
}

/// Where all versions of a kind keep the replicas.
fn replicas_paths(served: &Served) -> ReplicasPaths {
    if let Some(kind) = served.custom() {
        return ReplicasPaths::new(kind.versions.iter().map(|version| {
            let path = version.scale.as_ref().map(ScalePaths::replicas_path).unwrap_or_default();
            (&*version.api_version, path)
        }));
    }
    let versions = builtin::versions(&served.kind);
    ReplicasPaths::new(versions.iter().map(|version| (*version, vec!["spec", "replicas"])))
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
        let replicas = replicas(view)?.into();
        if let Some(paths) = custom_paths(self.served)? {
            return paths.set(object, replicas).map_err(Status::unclassified);
        }
        validate(view, object::name(object))?;
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
    let Some(paths) = custom_paths(served)? else { return Ok((builtin::get(live), None)) };
    let scale = paths.get(live).map_err(Status::unclassified)?;
    Ok((scale.object, (!scale.found).then(|| paths.missing())))
}

/// Changes the scale of an object; returns the new one. `change` makes a new scale, with owners, from the old.
async fn write(
    context: &mut Context,
    options: &WriteOptions,
    mut change: impl FnMut(&Context, &Value) -> Result<Value, Status>,
) -> Result<Value, Status> {
    let served = Arc::clone(&context.served);
    let paths = replicas_paths(&served);
    let is_put = context.verb == Verb::Update;
    let transform = |context: &Context, live: &Value| {
        let (mut old, missing) = scale_of(&served, live)?;
        if missing.is_some() {
            old["spec"]["replicas"] = UNSET.into();
        }
        paths.to_scale(live, &mut old);
        let scale = change(context, &old)?;
        let mut object = live.clone();
        put_back(context, &scale, &mut object, is_put)?;
        paths.to_parent(&served.api_version(), &scale, &mut object);
        Ok(object)
    };
    let view = ScaleView { served: &served };
    let admitted = Admitted::View(&view);
    // Owners have been dealt with, in terms of the scale.
    let change = Change { transform, manager: None, options, uid_is_precondition: is_put, admitted };
    // The change goes through the object's own rules; only the ownership says that it came through here.
    let Updated { object, .. } = update(context, change).await?;
    let live = versions::to_served(&context.api, &context.served, &object.bytes).await?;
    read(context, &live)
}

/// Makes an object what its new scale says.
fn put_back(context: &Context, scale: &Value, object: &mut Value, is_put: bool) -> Result<(), Status> {
    let served = &context.served;
    let replicas = replicas(scale)?;
    let uid = object::text(scale, "uid").to_owned();
    let revision = object::text(scale, "resourceVersion").to_owned();
    if let Some(paths) = custom_paths(served)? {
        if replicas == UNSET {
            return Err(Status::bad_request(paths.cannot_be_empty()));
        }
        paths.set(object, replicas.into()).map_err(Status::unclassified)?;
        if !revision.is_empty() {
            metadata_mut(object).insert("resourceVersion".into(), revision.into());
        }
    } else {
        validate(scale, context.name())?;
        let live = object::text(object, "uid");
        if !is_put && !uid.is_empty() && uid != live {
            let resource = format!("{}/scale", served.plural);
            let resource = Qualified { group: &served.group, name: &resource };
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {live}");
            return Err(Status::conflict(resource, context.name(), why));
        }
        builtin::set(object, replicas.into());
        metadata_mut(object).insert("resourceVersion".into(), revision.into());
    }
    if is_put && !uid.is_empty() {
        metadata_mut(object).insert("uid".into(), uid.into());
    }
    Ok(())
}
