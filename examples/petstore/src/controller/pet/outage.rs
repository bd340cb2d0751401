// SPDX-License-Identifier: Apache-2.0

//! Notices that the store goes away or comes back, and wakes all Pets then.
//!
//! Waking is all that happens here: what a Pet says follows from what the store answers when that
//! Pet is reconciled, so a wrong guess does no harm.

use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use tracing::{info, warn};
use windlass::ObjectKey;
use windlass::cache::Lister;

use crate::service::client::StoreClient;
use petstore_api::v1beta1::Pet;

/// The keys of all Pets, each time the store has stopped or begun to answer. It is asked once per
/// `interval`.
pub(crate) fn affected(
    store: StoreClient,
    pets: Lister<Pet>,
    interval: Duration,
) -> impl Stream<Item = ObjectKey> + Send {
    // A store that is away from the start counts as gone: a Pet may have been reconciled before.
    stream::unfold((store, pets, true), move |(store, pets, answered)| async move {
        loop {
            tokio::time::sleep(interval).await;
            let answers = store.answers().await;
            if answers != answered {
                let keys = pets.keys();
                if answers {
                    info!(pets = keys.len(), "pet store answers again");
                } else {
                    warn!(pets = keys.len(), "pet store does not answer");
                }
                return Some((stream::iter(keys), (store, pets, answers)));
            }
        }
    })
    .flatten()
}
