//! The registry: what happens to an object between its decoding and its storage.
//!
//! ```text
//! create: decode ▸ default ▸ own fields ▸ mutate ▸ prepare ▸ validate ▸ store
//! update: { read ▸ change ▸ default ▸ own fields ▸ mutate ▸ prepare ▸ validate ▸ store } again on conflict
//! ```
//!
//! One file per verb. Everything is the same for built-in kinds and custom resources; what differs
//! comes from the kind's schema and its [`Strategy`](strategy::Strategy).

pub(crate) mod allocation;
mod binding;
mod connect;
mod context;
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
mod scale;
mod size;
pub mod stored;
pub(crate) use windlass_kinds::strategy;
mod subresource;
mod update;
mod watch;

pub(crate) use binding::bind_named;
pub(crate) use context::Connection;
pub use context::{Answer, Context};
pub(crate) use create::place;
pub(crate) use decode::{object as decode_object, view as decode_view};
pub(crate) use matcher::Matcher;
pub use ownership::Conversions;
pub use purge::{Remaining, delete_all};
pub use stored::Stored;
pub(crate) use update::own_status;

use std::sync::Arc;
use std::time::Duration;

use windlass_kinds::crd::CustomVersion;
use windlass_store::Revision;

use crate::effort;
use crate::request::Verb;
use crate::status::Status;
use crate::versions;

/// How long the answer to a write of a CRD waits for the CRD to take effect.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// What configures the server itself is in effect when the client hears of it. `revision` is that of the
/// object that was written, where there is one.
async fn take_effect(context: &Context, revision: Option<Revision>) -> Result<(), Status> {
    match (&*context.served.group, revision.filter(|revision| *revision != Revision::MAX)) {
        ("", Some(written)) => {
            context.api.restrictions.written(&context.served.plural, context.namespace(), written);
            Ok(())
        }
        ("admissionregistration.k8s.io", _) => crate::admission::take_effect(&context.api).await,
        ("apiextensions.k8s.io", Some(written)) => {
            let in_time = tokio::time::timeout(PATIENCE, context.api.crds.reaches(written)).await.is_ok();
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
    if crate::reviews::serves(context) {
        return crate::reviews::serve(context).await;
    }
    if let Some(answer) = crate::computed::serve(context).await {
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
