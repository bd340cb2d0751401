//! How large an object may be that is stored.
//!
//! Upstream's bound is etcd's: a request of more than 1.5 MiB is refused by the server (`--max-request-bytes`), and one
//! of more than 2 MiB by the client, which does not even send it. kube-apiserver passes both errors on as they are, with
//! code 500 and no reason. The same objects are refused here, in the same words, so the measure is what upstream would
//! store:
//!
//! | kinds | measure |
//! |---|---|
//! | custom resources, CustomResourceDefinitions, APIServices | JSON: the bytes that are stored |
//! | all others | protobuf, and JSON of no more than a request may have |
//!
//! Protobuf is measured only if the JSON is larger than the bound, which few objects are. It matters to texts full of
//! quotes and line ends, which JSON escapes: a ConfigMap may hold 1 MiB of them. The bound of their JSON is that of
//! requests, 3 MiB, because what is larger could not be written back.
//!
//! An object that is too large, as it was stored before there was a bound, can be read and deleted, and changed as long
//! as it does not grow. Deletes are not measured at all, nor what the server itself writes: its own additions are small.

use serde_json::Value;

use crate::catalog::Served;
use crate::codec::protobuf;
use crate::status::Status;

/// The default of etcd's `--max-request-bytes`.
const STORED_LIMIT: usize = 3 << 19;
/// What etcd's client sends at most.
const SENT_LIMIT: usize = 2 << 20;
/// What the body of a request may have.
const JSON_LIMIT: usize = 3 << 20;

/// Refuses an object that is too large. `json` is the size of its bytes, and `replaced` that of the object in its place.
pub(super) fn check(served: &Served, object: &Value, json: usize, replaced: usize) -> Result<(), Status> {
    if json <= STORED_LIMIT || json <= replaced {
        return Ok(());
    }
    let is_json = served.custom || matches!(&*served.group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
    let protobuf = || protobuf::encode(object).ok().map(|bytes| bytes.len());
    let size = if is_json || json > JSON_LIMIT { json } else { protobuf().unwrap_or(json) };
    if size <= STORED_LIMIT { Ok(()) } else { Err(refusal(size)) }
}

fn refusal(size: usize) -> Status {
    if size <= SENT_LIMIT {
        return Status::unclassified("etcdserver: request is too large");
    }
    Status::unclassified(format!(
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({size} vs. {SENT_LIMIT})"
    ))
}
