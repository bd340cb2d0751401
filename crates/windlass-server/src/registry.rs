//! The registry: what happens to an object between its decoding and its storage.
//!
//! ```text
//! create: decode ▸ default ▸ own fields ▸ mutate ▸ prepare ▸ validate ▸ store
//! update: { read ▸ change ▸ default ▸ own fields ▸ mutate ▸ prepare ▸ validate ▸ store } again on conflict
//! ```
//!
//! One file per verb. Everything is the same for built-in kinds and custom resources; what differs
//! comes from the kind's schema and its [`Strategy`](strategy::Strategy).

mod allocation;
mod context;
mod create;
mod decode;
mod delete;
mod get;
mod list;
mod matcher;
mod ownership;
mod patch;
mod scale;
pub mod stored;
pub mod strategy;
mod subresource;
mod update;
mod watch;

pub use context::{Answer, Context};
pub use delete::delete_all;
pub use stored::Stored;

use crate::request::Verb;
use crate::status::Status;

/// Carries out a request for a resource.
pub async fn serve(mut context: Context) -> Result<Answer, Status> {
    let answer = answer(&mut context).await;
    if context.verb.is_write() && &*context.served.group == "admissionregistration.k8s.io" && answer.is_ok() {
        crate::admission::take_effect(&context.api).await?;
    }
    answer.map_err(|mut status| {
        status.warnings.append(&mut context.warnings);
        status
    })
}

async fn answer(context: &mut Context) -> Result<Answer, Status> {
    if context.path.subresource.is_some() {
        return subresource::serve(context).await;
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
