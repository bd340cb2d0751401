//! Reading the body of a request, within the [`BodyBudget`].
//!
//! A small body that has arrived already is taken as it is. For any other, room is made before it is waited for, and
//! once more for what it is decoded to.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http_body::Body as _;
use http_body_util::BodyExt as _;

use super::Payload;
use crate::authn::User;
use crate::state::body_budget::{Account, BodyBudget, NoRoom, Room};
use crate::status::Status;

/// Bodies may be this large.
const BODY_LIMIT: usize = 3 << 20;
/// Bodies of this size are not counted once they have arrived; one that is waited for counts as much at least.
const SMALL_BODY: usize = 16 << 10;
/// How long a body may take to arrive, also that of a long-running request.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Of bodies that are refused this much more is read, for no longer than this.
const DRAIN_LIMIT: usize = 16 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What a body takes room of.
#[derive(Clone, Copy)]
pub(super) struct Budgets<'b> {
    /// For bodies as they arrive.
    pub(super) arriving: &'b Arc<BodyBudget>,
    /// For what they are decoded to.
    pub(super) decoded: &'b Arc<BodyBudget>,
}

/// A body, and the room it takes until the request is answered.
#[derive(Default)]
pub(super) struct Read {
    pub(super) bytes: Bytes,
    pub(super) room: Option<[Room; 2]>,
}

/// Reads the body of a user's request. Of one that is refused a little more is read and thrown away: a client that is
/// still sending would not see the answer otherwise, only that the stream was reset.
pub(super) async fn read(budgets: Budgets<'_>, user: &User, mut body: Payload) -> Result<Read, Status> {
    let first = match piece(&mut body).now_or_never().transpose()? {
        // Most bodies have arrived with their head, and in one piece.
        Some(None) => return Ok(Read::default()),
        Some(Some(first)) if body.is_end_stream() && first.len() <= SMALL_BODY => {
            return Ok(Read { bytes: first, room: None });
        }
        Some(Some(first)) => first,
        None => Bytes::new(),
    };
    // Boxed: few requests come here, and all would be as large as one that does.
    let rest = Box::pin(rest(budgets, user, first, &mut body));
    match tokio::time::timeout(BODY_TIMEOUT, rest).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(Refused { status, drain: false })) => Err(status),
        Ok(Err(Refused { status, drain: true })) => {
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain(body)).await;
            Err(status)
        }
        Err(_) => Err(Status::request_timed_out()),
    }
}

/// Why a body is not read.
struct Refused {
    status: Status,
    /// Whether the client may still be sending.
    drain: bool,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self { status, drain: false }
    }
}

async fn rest(budgets: Budgets<'_>, user: &User, first: Bytes, body: &mut Payload) -> Result<Read, Refused> {
    let drained = |status| Refused { status, drain: true };
    // How much there will be, if the client says so.
    let rest = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let known = rest.map(|rest| first.len().saturating_add(rest));
    if first.len() > BODY_LIMIT || known.is_some_and(|size| size > BODY_LIMIT) {
        return Err(drained(too_large()));
    }
    let size = known.unwrap_or(BODY_LIMIT).max(SMALL_BODY);
    let account = Account { name: &user.name, is_master: user.is_master() };
    let room = budgets
        .arriving
        .room(&account, size)
        .await
        .map_err(|NoRoom { waited, status }| Refused { status, drain: waited })?;
    let mut bytes = Vec::new();
    // Most bodies come in one piece, which is taken as it is.
    let mut only = first;
    while let Some(data) = piece(body).await? {
        if only.len() + bytes.len() + data.len() > BODY_LIMIT {
            return Err(drained(too_large()));
        }
        if only.is_empty() && bytes.is_empty() {
            only = data;
            continue;
        }
        if !only.is_empty() {
            grow(&mut bytes, only.len() + data.len(), size);
            bytes.extend_from_slice(&std::mem::take(&mut only));
        }
        grow(&mut bytes, data.len(), size);
        bytes.extend_from_slice(&data);
    }
    let bytes = if bytes.is_empty() { only } else { bytes.into() };
    let decoded = budgets.decoded.room_decoded(&account, &bytes).await;
    let decoded = decoded.map_err(|NoRoom { status, .. }| Refused { status, drain: false })?;
    Ok(Read { bytes, room: Some([room, decoded]) })
}

/// Makes place for `more` bytes: for as many as there are already, but not beyond the size that is expected.
fn grow(bytes: &mut Vec<u8>, more: usize, size: usize) {
    if bytes.capacity() - bytes.len() < more {
        bytes.reserve_exact(bytes.len().min(size.saturating_sub(bytes.len())).max(more));
    }
}

fn too_large() -> Status {
    Status::too_large(format!("limit is {BODY_LIMIT}"))
}

/// The next piece of a body that holds data.
async fn piece(body: &mut Payload) -> Result<Option<Bytes>, Status> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(Status::bad_request(format!("the body could not be read: {error}"))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Throws away what a client still sends, up to a limit.
async fn drain(mut body: Payload) {
    let mut left = DRAIN_LIMIT;
    while let Ok(Some(data)) = piece(&mut body).await {
        match left.checked_sub(data.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
