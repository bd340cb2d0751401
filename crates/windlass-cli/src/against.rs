//! What the commands that work on a cluster share: which cluster, what is sent to it, and what came of it.

pub(crate) mod apply;
pub(crate) mod definitions;
pub(crate) mod documents;
pub(crate) mod kinds;
pub(crate) mod made;
pub(crate) mod order;
pub(crate) mod remove;
pub(crate) mod report;
pub(crate) mod rollout;
pub(crate) mod target;
pub(crate) mod webhooks;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::output;
use crate::signals::Signals;

/// The name under which fields are set on the server.
pub(crate) const FIELD_MANAGER: &str = "windlass";

/// How often the server is asked for something that is waited for.
pub(crate) const POLL: Duration = Duration::from_millis(100);

/// Runs a command that a signal may end at any moment.
pub(crate) fn block_on(command: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            result = command => result,
            code = signals.recv() => {
                output::note("interrupted");
                Ok(ExitCode::from(code))
            }
        }
    })
}

/// Whether the server said that there is no such thing.
pub(crate) fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// What the server, or the way to it, said.
pub(crate) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => output::answer(status),
        other => output::with_causes(&anyhow::anyhow!("{other}")),
    }
}

/// A request of the API, with a body if there is one.
pub(crate) fn request(method: &str, path: &str, body: Option<(&str, Vec<u8>)>) -> Result<http::Request<Vec<u8>>> {
    let mut request = http::Request::builder().method(method).uri(path).header("accept", "application/json");
    let bytes = match body {
        Some((content_type, bytes)) => {
            request = request.header("content-type", content_type);
            bytes
        }
        None => Vec::new(),
    };
    Ok(request.body(bytes)?)
}
