//! Who writes through this request, in the terms of [`apply`](crate::apply).

use std::borrow::Cow;

use serde_json::Value;

use super::Context;
use crate::apply::{self, Manager, Reset, Versions};
use crate::catalog::Served;
use crate::object::{self, metadata_mut};
use crate::registry::strategy::conversion;
use crate::schema::Schema;
use crate::status::Status;
use crate::versions;

/// Notes who owns the fields that `object` changes. Both objects are in the form strategies handle.
pub(super) fn track(context: &Context, live: Option<&Value>, object: &mut Value, manager: &str) {
    let served = &context.served;
    if versions::is_stored(served) || served.custom {
        with_manager(context, manager, |who| apply::update(served.schema(), live, object, who, context.now));
        return;
    }
    // Ownership is tracked in the version the client speaks.
    let live = live.map(|live| versions::handled_to_served(served, live));
    let mut view = versions::handled_to_served(served, object).into_owned();
    with_manager(context, manager, |who| {
        apply::update(served.schema(), live.as_deref(), &mut view, who, context.now);
    });
    match object::metadata(&view).get("managedFields") {
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
    with_manager(context, manager, |who| apply::apply(context.served.schema(), live, applied, who, force, context.now))
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
    let versions = OtherVersions { served };
    act(&Manager { name, api_version: &api_version, kind: &served.kind, subresource, reset, versions: &versions })
}

/// The other versions of a kind, which entries of `managedFields` may be in terms of.
struct OtherVersions<'s> {
    served: &'s Served,
}

impl Versions for OtherVersions<'_> {
    fn convert<'a>(&'a self, object: &'a Value, api_version: &str) -> Option<(Cow<'a, Value>, &'a Schema)> {
        let served = self.served;
        if let Some(kind) = served.custom() {
            let version = kind.versions.iter().find(|version| &*version.api_version == api_version)?;
            return Some((Cow::Borrowed(object), &version.schema));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let id = crate::schema::builtin::by_kind(group, version, &served.kind)?;
        let mut object = object.clone();
        conversion::to_storage(&served.group, &served.version, &served.kind, &mut object);
        conversion::from_storage(group, version, &served.kind, &mut object);
        Some((Cow::Owned(object), crate::schema::builtin::definition(id)))
    }
}
