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
pub(crate) use create::place;
pub(crate) use decode::{object as decode_object, view as decode_view};
pub use delete::delete_all;
pub use stored::Stored;
pub(crate) use subresource::bind_named;

use crate::request::Verb;
use crate::status::Status;

/// Carries out a request for a resource.
pub async fn serve(mut context: Context) -> Result<Answer, Status> {
    if context.path.subresource.is_some() {
        return subresource::serve(context).await;
    }
    if crate::reviews::serves(&context) {
        return crate::reviews::serve(context).await;
    }
    match context.verb {
        Verb::Get => get::get(&context).await,
        Verb::List => list::list(&context).await,
        Verb::Watch => watch::watch(&context).await,
        Verb::Create => create::create(&mut context).await,
        Verb::Update => update::replace(&mut context).await,
        Verb::Patch => patch::patch(&mut context).await,
        Verb::Delete => delete::delete(&mut context).await,
        Verb::DeleteCollection => delete::delete_collection(&mut context).await,
    }
}
