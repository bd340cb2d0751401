//! Admission: what may still change or refuse a write after it was decoded and before it is stored.
//!
//! Runs inside the registry's retry loop, in upstream's order. Today that is the namespace life cycle;
//! policies and webhooks join here.

mod defaults;

use serde_json::Value;

use crate::codec::peek::{self, Raw};
use crate::registry::Context;
use crate::status::{Cause, Qualified, Status};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What may still change a new object before it is validated.
pub(crate) async fn mutate_create(context: &Context, object: &mut Value) -> Result<(), Status> {
    namespace_exists(context, object).await?;
    defaults::create(context, object).await
}

/// What may still change an object before its change is validated.
pub(crate) fn mutate_update(context: &Context, object: &mut Value) {
    defaults::update(context, object);
}

/// Before a create: the namespace must exist and not be going away.
async fn namespace_exists(context: &Context, object: &Value) -> Result<(), Status> {
    if !context.served.namespaced {
        return Ok(());
    }
    let namespace = context.namespace();
    let key = format!("/registry/namespaces/{namespace}");
    let Some(entry) = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)? else {
        return Err(Status::not_found(Qualified { group: "", name: "namespaces" }, namespace));
    };
    let deleting = peek::metadata(&entry.value).is_some_and(|metadata| metadata.field("deletionTimestamp").is_some());
    let phase = Raw::new(&entry.value).path(&["status", "phase"]);
    if deleting || phase.and_then(|phase| phase.as_str()).as_deref() == Some("Terminating") {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let name = crate::object::name(object);
        let mut status = Status::forbidden(context.qualified(), name, why);
        status.details.get_or_insert_default().causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        });
        return Err(status);
    }
    Ok(())
}

/// Before a delete: some namespaces stay.
pub(crate) fn may_delete(context: &Context) -> Result<(), Status> {
    if context.served.group.is_empty() && &*context.served.plural == "namespaces" && IMMORTAL.contains(&context.name())
    {
        let why = "this namespace may not be deleted";
        return Err(Status::forbidden(context.qualified(), context.name(), why));
    }
    Ok(())
}
