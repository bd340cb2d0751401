//! The registry: what happens to an object between its decoding and its storage.
//!
//! # The order of a write
//!
//! | | create | update, patch |
//! |---|---|---|
//! | decode | the body | the stored object is read; the body replaces it, or the patch is applied to it |
//! | default | [`default`] | `default` |
//! | own | changed fields belong to the request's manager | the same |
//! | mutate | mutating admission, and `default` after each change | the same |
//! | check | a name from `generateName`; escalation of privileges | preconditions; escalation of privileges |
//! | prepare | uid and creation time, [`prepare_create`], generation 1 | [`prepare_update`], generation + 1 if [`desired_state_changed`] |
//! | validate | metadata, [`validate`], expressions | metadata, [`check_update`], expressions |
//! | canonicalize | [`canonicalize`] | `canonicalize` |
//! | claim | addresses, node ports | the same |
//! | warn, authorise | [`warnings`]; a PUT or apply that creates needs the right to create (`check_create` of `authz.rs`) | |
//! | admit | validating admission | the same |
//! | charge | quotas | the same |
//! | warn | | `warnings` |
//! | store | the transaction | the same, unless nothing has changed |
//!
//! A server-side apply owns first: merging a configuration is what decides about owners. Where there is no such object yet, a
//! PUT and an apply continue as a create. A subresource that is written has [`prepare_status_update`] or
//! [`prepare_subresource`] in the place of `prepare_update`, and `/status` has no `warnings`.
//!
//! When the transaction of an update conflicts with another write, the order starts over with the object that is stored by
//! then; see `state/contention.rs`. A create repeats what depends on what was taken meanwhile: after a change of a quota, the
//! charge; after a claimed address or port was taken, the claim and validating admission; after its generated name was taken,
//! `default`, `prepare_create`, `canonicalize` and validating admission with another name.
//!
//! The code is in `create.rs` (`create_object`, `store_new`) and `update.rs` (`update_within`).
//!
//! [`default`]: strategy::Strategy::default
//! [`prepare_create`]: strategy::Strategy::prepare_create
//! [`prepare_update`]: strategy::Strategy::prepare_update
//! [`prepare_status_update`]: strategy::Strategy::prepare_status_update
//! [`prepare_subresource`]: strategy::Strategy::prepare_subresource
//! [`desired_state_changed`]: strategy::Strategy::desired_state_changed
//! [`validate`]: strategy::Strategy::validate
//! [`check_update`]: strategy::Strategy::check_update
//! [`canonicalize`]: strategy::Strategy::canonicalize
//! [`warnings`]: strategy::Strategy::warnings
//!
//! One file per verb. Everything is the same for built-in kinds and custom resources; what differs
//! comes from the kind's schema and its [`Strategy`](strategy::Strategy).

pub(crate) mod allocation;
mod binding;
pub(crate) mod computed;
mod connect;
mod continue_token;
mod create;
mod decode;
mod delete;
mod eviction;
mod get;
mod list;
mod matcher;
mod ownership;
mod patch;
mod purge;
mod reviews;
mod scale;
mod subresource;
#[cfg(test)]
mod tests;
mod update;
mod watch;

pub(crate) use crate::context::Connection;
pub use crate::context::{Answer, Context, Conversions};
use crate::stored;
pub use crate::stored::Stored;
pub(crate) use binding::bind_named;
pub(crate) use create::place;
pub(crate) use decode::{object as decode_object, view as decode_view};
pub(crate) use matcher::Matcher;
pub use purge::{Remaining, delete_all};
pub(crate) use update::own_status;
pub(crate) use windlass_kinds::strategy;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;
use windlass_kinds::crd::CustomVersion;
use windlass_store::Revision;

use crate::api::Api;
use crate::effort;
use crate::rbac;
use crate::request::Verb;
use crate::status::Status;
use crate::versions;

/// How long the answer to a write of a CRD waits for the CRD to take effect.
const DEFINITION_TIMEOUT: Duration = Duration::from_secs(5);

/// Carries out a request for a resource.
pub async fn serve(mut context: Context) -> Result<Answer, Status> {
    make_schemas(&context).await;
    let answer = answer(&mut context).await;
    if context.verb.is_write() && answer.is_ok() {
        let revision = match &answer {
            Ok(Answer::Object { object, .. }) => Some(object.revision),
            _ => None,
        };
        take_effect(&context, revision).await?;
    }
    answer.map_err(|mut status| {
        status.warnings.append(&mut context.warnings);
        status
    })
}

/// Creates a namespace in the course of a request for something in it.
pub(crate) fn create_namespace(api: Arc<Api>, name: String) -> BoxFuture<'static, Result<(), Status>> {
    Box::pin(async move {
        let served =
            api.catalog.snapshot().find("", "v1", "namespaces").cloned().ok_or_else(Status::no_such_resource)?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        serve(Context::own_create(&api, &served, &namespace)).await.map(drop)
    })
}

/// Makes the schemas that the request goes by, if they have been dropped: elsewhere, where that may take long.
async fn make_schemas(context: &Context) {
    let Some(kind) = context.served.custom() else { return };
    if !context.verb.is_write() && versions::as_is(&context.served, Revision::MAX) {
        return;
    }
    let unmade = |version: &CustomVersion| version.unmade().unwrap_or_default();
    let own = kind.version(&context.served.version);
    if effort::is_large_write(own.map_or(0, unmade) + unmade(kind.storage_version())) {
        let (kind, own) = (Arc::clone(kind), context.served.version.clone());
        let made = effort::at_once(move || {
            kind.version(&own).map(CustomVersion::schema);
            kind.storage_version().schema();
        });
        // Boxed: few requests wait here, and all would be as large as one that does.
        Box::pin(made).await;
    }
}

/// Waits until a write that configures the server itself is in effect: namespaces with restrictions, roles, admission and
/// definitions. `revision` is that of the object that was written, where there is one.
async fn take_effect(context: &Context, revision: Option<Revision>) -> Result<(), Status> {
    match (&*context.served.group, revision.filter(|revision| *revision != Revision::MAX)) {
        ("", Some(written)) => {
            context.api.restrictions.written(&context.served.plural, context.namespace(), written);
            Ok(())
        }
        (rbac::GROUP, _) => {
            context.api.rbac.catch_up().await;
            Ok(())
        }
        ("admissionregistration.k8s.io", _) => crate::admission::take_effect(&context.api).await,
        ("apiextensions.k8s.io", Some(written)) => {
            let in_time = tokio::time::timeout(DEFINITION_TIMEOUT, context.api.crds.reaches(written)).await.is_ok();
            if !in_time {
                // It is stored all the same: the answer stands.
                tracing::warn!(name = context.name(), "a custom resource definition takes long to take effect");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

async fn answer(context: &mut Context) -> Result<Answer, Status> {
    if context.path.subresource.is_some() {
        return subresource::serve(context).await;
    }
    if reviews::serves(context) {
        return reviews::serve(context).await;
    }
    if let Some(answer) = computed::serve(context).await {
        return answer;
    }
    match context.verb {
        Verb::Get => get::get(context).await,
        Verb::List => list::list(context).await,
        Verb::Watch => watch::watch(context).await,
        Verb::Create => create::create(context).await,
        Verb::Update => update::replace(context).await,
        Verb::Patch => patch::patch(context).await,
        Verb::Delete => delete::delete(context).await,
        Verb::DeleteCollection => delete::delete_collection(context).await,
    }
}
