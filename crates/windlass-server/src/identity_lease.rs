//! The Lease by which others know this server: `kube-system/apiserver-...`.
//!
//! It is there while the server listens: made at the start, renewed three times in the hour for which it counts, deleted at
//! the stop. (Upstream renews it every ten seconds; here a server that is not used does nothing.) Leases of servers that are
//! gone are deleted when their hour is over. Mirrors `pkg/controlplane/apiserver/server.go` and
//! `pkg/controlplane/controller/apiserverleasegc`.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::loopback::{Failed, get, send};
use crate::object;
use crate::validation::access::{Access as _, AccessMut as _};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// Says whose identity a Lease is.
const COMPONENT: &str = "apiserver.kubernetes.io/identity";
const NAME: &str = "kube-apiserver";
/// How long a Lease counts after it was renewed.
const DURATION_SECONDS: i64 = 3600;
const RENEW_EVERY: Duration = Duration::from_secs(20 * 60);
/// When a renewal that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// After so many renewals, Leases of others are looked at: every hour.
const RENEWALS_PER_COLLECTION: u32 = 3;
/// How long a stop waits for the Lease to go.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);

/// Keeps the Lease until `stop`.
pub(crate) async fn keep(api: Arc<Api>, stop: CancellationToken) {
    let host = host_name();
    let (name, holder) = (name_of(&host), format!("{}_{}", name_of(&host), object::new_uid()));
    let path = format!("{LEASES}/{name}");
    let mut renewals = 0_u32;
    loop {
        let kept = async {
            if renewals == 0 {
                // That of the last run says nothing about this one.
                send(&api, Method::DELETE, &path, &Value::Null).await?;
            }
            if renewals.is_multiple_of(RENEWALS_PER_COLLECTION) {
                collect(&api).await?;
            }
            renew(&api, &name, &host, &holder).await
        };
        // A webhook may keep a write waiting, but not the server from stopping.
        let result = tokio::select! {
            () = stop.cancelled() => break,
            result = kept => result,
        };
        let next = match result {
            Ok(()) => {
                renewals = renewals.wrapping_add(1).max(1);
                RENEW_EVERY
            }
            Err(Failed { method, path, message }) => {
                tracing::warn!(%method, %path, %message, "the server's identity lease cannot be renewed");
                RETRY_AFTER
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(next) => {}
        }
    }
    // Who stops does not wait for a webhook: a Lease that stays is replaced at the next start.
    let _ = tokio::time::timeout(RELEASE_TIMEOUT, send(&api, Method::DELETE, &path, &Value::Null)).await;
}

async fn renew(api: &Arc<Api>, name: &str, host: &str, holder: &str) -> Result<(), Failed> {
    let path = format!("{LEASES}/{name}");
    let found = get(api, &path).await?;
    let is_there = found.is_some();
    let lease = renewed(found, name, host, holder, api.now());
    if is_there { send(api, Method::PUT, &path, &lease).await } else { send(api, Method::POST, LEASES, &lease).await }
}

/// The Lease as it is to be; the holder of one that is there stays.
fn renewed(found: Option<Value>, name: &str, host: &str, holder: &str, now: Timestamp) -> Value {
    let mut lease = found.unwrap_or_else(|| {
        json!({
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": name},
            "spec": {"holderIdentity": holder},
        })
    });
    let labels = lease.struct_mut("metadata").struct_mut("labels");
    labels.put(COMPONENT, NAME);
    labels.put("kubernetes.io/hostname", host);
    let spec = lease.struct_mut("spec");
    spec.put("leaseDurationSeconds", DURATION_SECONDS);
    spec.put("renewTime", format!("{now:.6}"));
    lease
}

/// Deletes the Leases of servers that are gone.
async fn collect(api: &Arc<Api>) -> Result<(), Failed> {
    let listed = get(api, &format!("{LEASES}?labelSelector={COMPONENT}%3D{NAME}")).await?.unwrap_or_default();
    for lease in listed.list("items").iter().filter(|lease| is_over(lease, api.now())) {
        let path = format!("{LEASES}/{}", object::name(lease));
        send(api, Method::DELETE, &path, &Value::Null).await?;
    }
    Ok(())
}

/// Whether a Lease has no holder any more.
fn is_over(lease: &Value, now: Timestamp) -> bool {
    let spec = lease.at("spec");
    let (Some(seconds), Ok(renewed)) =
        (spec.int_opt("leaseDurationSeconds"), spec.text("renewTime").parse::<Timestamp>())
    else {
        return true;
    };
    renewed.checked_add(SignedDuration::from_secs(seconds)).is_ok_and(|end| end < now)
}

/// The name of this machine.
fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = read.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// The name of the Lease of the server on a host: the first half of a hash of both, in base 32.
fn name_of(host: &str) -> String {
    let mut hash = Sha256::new();
    for part in [host, NAME] {
        hash.update(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        hash.update(part);
    }
    format!("apiserver-{}", base32(&hash.finalize()[..16]))
}

/// Base 32 in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let (mut text, mut bits, mut count) = (String::new(), 0u32, 0u32);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            text.push(char::from(DIGITS[(bits >> count) as usize & 31]));
        }
    }
    if count > 0 {
        text.push(char::from(DIGITS[(bits << (5 - count)) as usize & 31]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_base_32() {
        for (bytes, expected) in [("", ""), ("f", "my"), ("fo", "mzxq"), ("foo", "mzxw6"), ("foobar", "mzxw6ytboi")] {
            assert_eq!(base32(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn a_host_has_one_name() {
        let name = name_of("box");
        assert_eq!((name.len(), name_of("box")), ("apiserver-".len() + 26, name.clone()));
        assert_ne!(name, name_of("other"));
    }

    #[test]
    fn a_lease_is_renewed_and_ends_after_an_hour() {
        let now: Timestamp = "2026-01-02T03:04:05.678901Z".parse().expect("a time");
        let lease = renewed(None, "apiserver-x", "box", "apiserver-x_1", now);
        assert_eq!(
            lease["spec"],
            json!({"holderIdentity": "apiserver-x_1", "leaseDurationSeconds": 3600,
            "renewTime": "2026-01-02T03:04:05.678901Z"})
        );
        assert_eq!(lease["metadata"]["labels"], json!({COMPONENT: NAME, "kubernetes.io/hostname": "box"}));
        let again = renewed(Some(lease), "apiserver-x", "box", "other", now + SignedDuration::from_secs(10));
        assert_eq!(again["spec"]["holderIdentity"], "apiserver-x_1");
        assert!(!is_over(&again, now + SignedDuration::from_secs(3610)));
        assert!(is_over(&again, now + SignedDuration::from_secs(3611)));
        assert!(is_over(&json!({"spec": {}}), now));
    }
}
