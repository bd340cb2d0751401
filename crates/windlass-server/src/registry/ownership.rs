//! The managers that own the fields of objects, in the terms of [`apply`](crate::apply).

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use serde_json::Value;

use super::Context;
use crate::apply::{self, Converted, Manager, Reset, Unconvertible, Versions};
use crate::catalog::Served;
use crate::context::{Conversions, Wanted};
use crate::object::{self, metadata_mut};
use crate::registry::strategy::conversion;
use crate::schema::Schema;
use crate::status::Status;
use crate::versions;
use windlass_kinds::crd::{Conversion, CustomKind, CustomVersion};

/// Notes who owns the fields that `object` changes. Both objects are in the form strategies handle.
pub(super) async fn track(context: &Context, live: Option<&Value>, object: &mut Value, manager: &str) {
    let served = &context.served;
    if !served.custom {
        note(context, live, object, manager);
        return;
    }
    // All that is changed is the list of owners, so that this is where a second attempt starts from.
    let owners = object::metadata(object).get("managedFields").cloned();
    with_conversions(context, |context| {
        set_owners(object, owners.as_ref());
        note(context, live, object, manager);
    })
    .await;
}

fn note(context: &Context, live: Option<&Value>, object: &mut Value, manager: &str) {
    let served = &context.served;
    if versions::is_stored(served) || served.custom {
        with_manager(context, manager, |who| apply::update(&served.schema(), live, object, who, context.now));
        return;
    }
    // Ownership is tracked in the version the client speaks.
    let live = live.map(|live| versions::handled_to_served(served, live));
    let mut view = versions::handled_to_served(served, object).into_owned();
    with_manager(context, manager, |who| {
        apply::update(&served.schema(), live.as_deref(), &mut view, who, context.now);
    });
    set_owners(object, object::metadata(&view).get("managedFields"));
}

fn set_owners(object: &mut Value, owners: Option<&Value>) {
    if object::metadata(object).get("managedFields") == owners {
        return;
    }
    match owners {
        Some(fields) => metadata_mut(object).insert("managedFields".into(), fields.clone()),
        None => metadata_mut(object).remove("managedFields"),
    };
}

/// Merges an applied configuration. Objects are in the served version.
pub(super) fn apply(
    context: &Context,
    live: Option<&Value>,
    applied: &Value,
    manager: &str,
    force: bool,
) -> Result<Value, Status> {
    with_manager(context, manager, |who| apply::apply(&context.served.schema(), live, applied, who, force, context.now))
}

fn with_manager<T>(context: &Context, name: &str, act: impl FnOnce(&Manager<'_>) -> T) -> T {
    let served = &*context.served;
    let subresource = context.subresource();
    let reset = match served.custom() {
        Some(kind) => {
            let version = kind.version(&served.version).unwrap_or_else(|| kind.storage_version());
            Reset::of_custom(version.status, subresource)
        }
        None => Reset::of_builtin(&served.group, &served.kind, subresource),
    };
    let api_version = served.api_version();
    let versions = OtherVersions { served, conversions: &context.conversions, schemas: OtherVersions::unread(served) };
    act(&Manager { name, api_version: &api_version, kind: &served.kind, subresource, reset, versions: &versions })
}

/// Makes an attempt with the conversions that are known. Where it asks for one that is not, it converts that object and
/// makes the attempt again.
pub(super) async fn with_conversions<T>(context: &Context, mut attempt: impl FnMut(&Context) -> T) -> T {
    loop {
        let outcome = attempt(context);
        let wanted = context.conversions.take_wanted();
        let (Some(wanted), Some(kind)) = (wanted, context.served.custom()) else { return outcome };
        let Wanted { object, version } = wanted;
        let outcome = versions::as_converted(&context.api, kind, object.clone(), &version).await.map_err(Box::new);
        if let Err(status) = &outcome {
            tracing::warn!(%version, reason = %status.message, "owners of an object cannot be read in their version");
        }
        context.conversions.learn(object, version, outcome);
    }
}

/// The other versions of a kind, which entries of `managedFields` may be in terms of.
struct OtherVersions<'s> {
    served: &'s Served,
    conversions: &'s Conversions,
    /// Those of a custom kind's versions that were needed so far.
    schemas: Vec<OnceCell<Arc<Schema>>>,
}

impl Versions for OtherVersions<'_> {
    fn convert<'v, 'o>(&'v self, object: &'o Value, api_version: &str) -> Converted<'o, 'v> {
        let served = self.served;
        if let Some(kind) = served.custom() {
            return self.convert_custom(kind, object, api_version);
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let id = crate::schema::builtin::by_kind(group, version, &served.kind).ok_or(Unconvertible::NoSuchVersion)?;
        let mut object = object.clone();
        conversion::to_storage(&served.group, &served.version, &served.kind, &mut object);
        conversion::from_storage(group, version, &served.kind, &mut object);
        Ok((Cow::Owned(object), crate::schema::builtin::definition(id)))
    }
}

impl OtherVersions<'_> {
    fn unread(served: &Served) -> Vec<OnceCell<Arc<Schema>>> {
        served.custom().map(|kind| kind.versions.iter().map(|_| OnceCell::new()).collect()).unwrap_or_default()
    }

    /// Upstream's way is through the version of the request (`versionconverter.go`). Nothing is left out on it:
    /// an object with fields that the other version does not know cannot be read in it.
    fn convert_custom<'v, 'o>(&'v self, kind: &CustomKind, object: &'o Value, api_version: &str) -> Converted<'o, 'v> {
        let of_version = |version: &CustomVersion| &*version.api_version == api_version;
        let Some(index) = kind.versions.iter().position(of_version) else {
            let why = format!("request to convert CR to an invalid group/version: {api_version}");
            return Err(Unconvertible::Failed(Box::new(Status::unclassified(why))));
        };
        let schema = self.schemas[index].get_or_init(|| kind.versions[index].schema());
        let own = self.served.api_version();
        let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        if from == api_version {
            return Ok((Cow::Borrowed(object), schema));
        }
        let mut object = object.clone();
        metadata_mut(&mut object).remove("managedFields");
        if from.is_empty() {
            // Nothing yet: what a create is compared with.
            object["apiVersion"] = own.as_str().into();
            object["kind"] = (*kind.kind).into();
        }
        for target in [&*own, api_version] {
            let Some(version) = kind.versions.iter().find(|version| *version.api_version == *target) else { continue };
            if object.get("apiVersion").and_then(Value::as_str) == Some(target) {
                continue;
            }
            match &kind.conversion {
                Conversion::None => object["apiVersion"] = (*version.api_version).into(),
                Conversion::Webhook(_) => object = self.conversions.get(object, &version.name)?,
            }
        }
        if !kind.preserve_unknown {
            let unfit = |why| Unconvertible::Failed(Box::new(Status::unclassified(why)));
            apply::check_typed(schema, &object).map_err(unfit)?;
        }
        Ok((Cow::Owned(object), schema))
    }
}
