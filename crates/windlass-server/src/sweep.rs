//! What was made of definitions for clients, and nothing has used for a while, is dropped: it can be made again.

use std::sync::Arc;
use std::time::Duration;

use crate::api::Api;

/// What is not used for one interval is dropped by the end of the next.
const INTERVAL: Duration = Duration::from_secs(60);

/// Drops compiled schemas and documents until the server stops.
pub(crate) async fn run(api: Arc<Api>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        api.schemas.sweep();
        api.catalog.snapshot().documents().sweep();
    }
}
