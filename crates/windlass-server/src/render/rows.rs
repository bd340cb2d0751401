//! Tables and other lists of many objects, made piece by piece as they are sent.
//!
//! An object is decoded for its row or item and let go of before the next piece, so that a list of large objects takes no more
//! memory than one of them. Pieces that take long are made away from the threads that serve requests.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use windlass_store::Entry;

use super::{RenderContext, not_marshalable, table_meta, write_head};
use crate::answer::ListMeta;
use crate::api::Api;
use crate::body::Body;
use crate::catalog::Served;
use crate::codec::negotiate::{Format, Transform};
use crate::codec::write;
use crate::status::Status;
use crate::table::{self, Rows};
use crate::{effort, versions};
use windlass_kinds::crd::Conversion;
use windlass_kinds::list;

/// The rows of so many bytes of objects are one piece.
const PIECE: usize = 256 * 1024;

/// What is made of each object.
pub(super) enum Form {
    /// The row of a table.
    Rows(table::Options),
    /// The item of a list.
    Items(list::Form),
}

/// How the list is made that a request asks for, if it can be made piece by piece: without a webhook that wants to see
/// all objects at once, and a table in JSON and in the order of the objects.
pub(super) fn streams(context: &RenderContext, meta: &ListMeta) -> Result<Option<Form>, Status> {
    let served = &context.served;
    let asks = served.custom().is_some_and(|kind| matches!(kind.conversion, Conversion::Webhook(_)));
    if asks {
        return Ok(None);
    }
    let Some((Transform::Table, _)) = context.accepted.transform() else {
        let is_whole = context.accepted.transform().is_none();
        let meta = if is_whole { meta.to_value() } else { table_meta(meta).to_value() };
        let form = list::Form::of(&context.accepted, served, meta).map_err(not_marshalable)?;
        return Ok(form.map(Form::Items));
    };
    let plain = context.accepted.format == Format::Json && !context.accepted.pretty;
    if !plain || !table::keeps_order(served) {
        return Ok(None);
    }
    Ok(Some(Form::Rows(context.table)))
}

/// A list of stored objects.
pub(super) async fn list(
    context: &RenderContext,
    entries: Vec<Entry>,
    meta: &ListMeta,
    form: Form,
) -> Result<Body, Status> {
    let served = &context.served;
    let head = match &form {
        Form::Rows(options) => {
            let mut head = table_head(served, meta, options)?;
            if entries.is_empty() {
                write::write_value(&table::no_rows(served), &mut head);
                head.extend_from_slice(b"}\n");
                return Ok(head.into());
            }
            head.push(b'[');
            head
        }
        Form::Items(_) if entries.is_empty() => return Ok(super::built_list(context, &entries, meta).await?.into()),
        Form::Items(form) => form.head(),
    };
    let view = View { api: Arc::clone(&context.api), served: Arc::clone(served), form };
    let mut pieces = Pieces { view: Arc::new(view), entries: entries.into_iter() };
    let mut batch = pieces.batch();
    batch.is_first = true;
    context.api.offload.rest_of_request(served.qualified(), batch.is_long).await;
    let head = Arc::clone(&pieces.view).write(batch, head).await?;
    if let Form::Items(form) = &pieces.view.form
        && form.needs_length()
    {
        return pieces.enclosed(head).await;
    }
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

/// What comes before the rows of a table.
fn table_head(served: &Served, meta: &ListMeta, options: &table::Options) -> Result<Vec<u8>, Status> {
    let mut head = Vec::with_capacity(4096);
    write_head("Table", options.version.api_version(), &mut head);
    write::write_value(&table_meta(meta).to_value(), &mut head);
    head.extend_from_slice(b",\"columnDefinitions\":");
    write::write_value(&Rows::new(served, options)?.definitions(), &mut head);
    head.extend_from_slice(b",\"rows\":");
    Ok(head)
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
    form: Form,
}

/// The objects of one piece.
struct Batch {
    entries: Vec<Entry>,
    is_first: bool,
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
        Batch { entries, is_first: false, is_last: self.entries.as_slice().is_empty(), is_long }
    }

    /// The whole list in an envelope that has its length, of which `first` is the beginning. What is made is kept until it
    /// is sent, and may leave nothing more to be made.
    async fn enclosed(mut self, first: Bytes) -> Result<Body, Status> {
        let mut length = first.len();
        let mut made = vec![Bytes::new(), first];
        while !self.entries.as_slice().is_empty() {
            let batch = self.batch();
            let piece = Arc::clone(&self.view).write(batch, Vec::new()).await?;
            length += piece.len();
            made.push(piece);
        }
        if let Form::Items(form) = &self.view.form {
            let (head, end) = form.envelope(length);
            made[0] = head.into();
            made.push(end.into());
        }
        if length <= PIECE {
            return Ok(made.concat().into());
        }
        Ok(Body::stream(stream::iter(made)))
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
        match &self.form {
            Form::Rows(options) => {
                let rows = Rows::new(&self.served, options)?;
                for object in objects {
                    write::write_value(&rows.row(&object), &mut out);
                    out.push(b',');
                }
                if batch.is_last {
                    out.pop();
                    out.extend_from_slice(b"]}\n");
                }
            }
            Form::Items(form) => {
                form.items(&self.served, objects, batch.is_first, &mut out);
                if batch.is_last {
                    form.end(&mut out);
                }
            }
        }
        if matches!(&self.form, Form::Items(form) if form.needs_length()) {
            // It is kept for a while.
            out.shrink_to_fit();
        }
        Ok(out.into())
    }
}
