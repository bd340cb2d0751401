//! Subresources: views of an object, or actions on it.

use http::StatusCode;

use super::{Answer, Context, binding, connect, eviction, get, patch, scale, update};
use crate::request::Verb;
use crate::status::Status;

/// Carries out a request for a subresource.
pub(super) async fn serve(context: &mut Context) -> Result<Answer, Status> {
    match context.subresource() {
        "scale" => scale::serve(context).await,
        "binding" => binding::bind(context).await,
        "eviction" => eviction::evict(context).await,
        "token" => super::reviews::request_token(context).await,
        "log" => connect::log(context).await,
        "exec" | "attach" | "portforward" | "proxy" => connect::connect(context).await,
        _ => match context.verb {
            Verb::Get | Verb::List => get::get(context).await,
            Verb::Update => update::replace(context).await,
            Verb::Patch => patch::patch(context).await,
            _ => Err(Status::method_not_allowed()),
        },
    }
}

/// What a successful action is answered with.
pub(super) fn created(context: &mut Context) -> Answer {
    let status = Status::new(StatusCode::CREATED, "", "");
    Answer::Status { status: Box::new(status), warnings: std::mem::take(&mut context.warnings) }
}
