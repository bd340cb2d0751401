//! GET one object.

use std::time::Duration;

use http::StatusCode;

use super::{Answer, Context, Stored};
use crate::options::parse_revision;
use crate::status::Status;

/// How long a read waits for a revision that is not there yet.
const REVISION_TIMEOUT: Duration = Duration::from_secs(3);

/// Reads the object that the path names.
pub(super) async fn get(context: &Context) -> Result<Answer, Status> {
    if let Some(text) = context.query.get("resourceVersion") {
        let revision = parse_revision(text).map_err(|why| {
            let value = crate::field::quote(text);
            Status::unclassified(format!("resourceVersion: Invalid value: {value}: {why}"))
        })?;
        wait_for(context, revision).await?;
    }
    let object = read(context).await?;
    Ok(Answer::Object { code: StatusCode::OK, object, warnings: context.warnings.clone() })
}

/// The object that the path names, as stored.
pub(super) async fn read(context: &Context) -> Result<Stored, Status> {
    match context.api.store.get(&context.key()).await {
        Ok(Some(entry)) => Ok(entry.into()),
        Ok(None) => Err(context.not_found()),
        Err(error) => Err(Status::internal(error)),
    }
}

/// Waits until the store has reached `revision`, for a moment.
pub(super) async fn wait_for(context: &Context, revision: u64) -> Result<(), Status> {
    let mut newest = context.api.store.revision();
    if *newest.borrow() >= revision {
        return Ok(());
    }
    // Waiting fails only when the store is gone, and then the read that follows says so.
    if tokio::time::timeout(REVISION_TIMEOUT, newest.wait_for(|newest| *newest >= revision)).await.is_ok() {
        return Ok(());
    }
    let message = format!("Timeout: Too large resource version: {revision}, current: {}", *newest.borrow());
    let mut status = Status::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with_cause(
        "ResourceVersionTooLarge",
        "Too large resource version",
        "",
    );
    status.retry_after = Some(1);
    Err(status)
}
