//! Tables of many objects, made piece by piece as they are sent.
//!
//! An object is decoded for its row and let go of before the next piece, so that a list of large objects takes no more
//! memory than one of them. Pieces that take long are made away from the threads that serve requests.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use windlass_store::Entry;

use super::{ListMeta, table_options, write_head};
use crate::api::Api;
use crate::body::Body;
use crate::catalog::Served;
use crate::codec::negotiate::{Format, Transform};
use crate::codec::write;
use crate::registry::Context;
use crate::status::Status;
use crate::table::{self, Rows};
use crate::{effort, versions};
use windlass_kinds::crd::Conversion;

/// The rows of so many bytes of objects are one piece.
const PIECE: usize = 256 * 1024;

/// How the table is made that a request asks for, if it can be made piece by piece: in JSON, in the order of the
/// objects, and without a webhook that wants to see all objects at once.
pub(super) fn streams(context: &Context) -> Result<Option<table::Options>, Status> {
    let Some((Transform::Table, version)) = context.accepted.transform() else { return Ok(None) };
    let served = &context.served;
    let asks = served.custom().is_some_and(|kind| matches!(kind.conversion, Conversion::Webhook(_)));
    let plain = context.accepted.format == Format::Json && !context.accepted.pretty;
    if asks || !plain || !table::keeps_order(served) {
        return Ok(None);
    }
    table_options(context, version).map(Some)
}

/// A Table of stored objects.
pub(super) async fn list(
    context: &Context,
    entries: Vec<Entry>,
    meta: &ListMeta,
    options: table::Options,
) -> Result<Body, Status> {
    let served = &context.served;
    let mut head = Vec::with_capacity(4096);
    write_head("Table", options.version.api_version(), &mut head);
    write::write_value(&meta.for_table().to_value(), &mut head);
    head.extend_from_slice(b",\"columnDefinitions\":");
    write::write_value(&Rows::new(served, &options)?.definitions(), &mut head);
    head.extend_from_slice(b",\"rows\":");
    if entries.is_empty() {
        write::write_value(&table::no_rows(served), &mut head);
        head.extend_from_slice(b"}\n");
        return Ok(head.into());
    }
    head.push(b'[');
    let view = View { api: Arc::clone(&context.api), served: Arc::clone(served), options };
    let mut pieces = Pieces { view: Arc::new(view), entries: entries.into_iter() };
    let batch = pieces.batch();
    context.api.offload.rest_of_request(served.qualified(), batch.is_long).await;
    let head = Arc::clone(&pieces.view).write(batch, head).await?;
    if pieces.entries.as_slice().is_empty() {
        return Ok(head.into());
    }
    let first = stream::once(std::future::ready(head));
    let rest = stream::unfold(pieces, |mut pieces| async {
        let piece = pieces.next().await?;
        Some((piece, pieces))
    });
    Ok(Body::stream(stream::StreamExt::chain(first, rest)))
}

/// What is left of a list.
struct Pieces {
    view: Arc<View>,
    entries: std::vec::IntoIter<Entry>,
}

/// What every row is made with.
struct View {
    api: Arc<Api>,
    served: Arc<Served>,
    options: table::Options,
}

/// The objects of one piece.
struct Batch {
    entries: Vec<Entry>,
    is_last: bool,
    is_long: bool,
}

impl Pieces {
    fn batch(&mut self) -> Batch {
        let mut bytes = 0;
        let more = self.entries.as_slice().iter().take_while(|entry| {
            let fits = bytes < PIECE;
            bytes += entry.value.len();
            fits
        });
        let count = more.count();
        let entries: Vec<Entry> = self.entries.by_ref().take(count).collect();
        let is_long = effort::is_large_read(entries.iter().map(|entry| entry.value.len()).sum());
        Batch { entries, is_last: self.entries.as_slice().is_empty(), is_long }
    }

    /// The next piece. An object that cannot be read leaves the list without its end, as its head has been sent.
    async fn next(&mut self) -> Option<Bytes> {
        if self.entries.as_slice().is_empty() {
            return None;
        }
        let batch = self.batch();
        let is_long = batch.is_long;
        let qualified = self.view.served.qualified();
        let piece = Arc::clone(&self.view).write(batch, Vec::new());
        let piece = if is_long {
            self.view.api.offload.run_future(qualified, Box::pin(piece), || Err(Status::timed_out())).await
        } else {
            piece.await
        };
        match piece {
            Ok(piece) => Some(piece),
            Err(status) => {
                tracing::warn!(resource = %qualified, error = %status.message, "a list was cut off");
                self.entries = Vec::new().into_iter();
                None
            }
        }
    }
}

impl View {
    /// Writes the rows of some objects, and the end after the last.
    async fn write(self: Arc<Self>, batch: Batch, mut out: Vec<u8>) -> Result<Bytes, Status> {
        let stored = batch.entries.iter().map(|entry| &*entry.value);
        let objects = versions::all_to_served(&self.api, &self.served, stored).await?;
        let rows = Rows::new(&self.served, &self.options)?;
        for object in objects {
            write::write_value(&rows.row(&object), &mut out);
            out.push(b',');
        }
        if batch.is_last {
            out.pop();
            out.extend_from_slice(b"]}\n");
        }
        Ok(out.into())
    }
}
