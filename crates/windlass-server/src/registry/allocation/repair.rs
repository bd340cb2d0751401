//! What Services hold is made what they say: at the start of the server, and whenever an IPAddress is deleted.
//!
//! A Service and its claims are written together, so there is nothing to repair unless a client deletes an IPAddress or
//! writes one by hand, or an older version wrote the data. Mirrors upstream's
//! `pkg/registry/core/service/ipallocator/controller/repairip.go` and `.../portallocator/controller/repair.go`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use windlass_store::{Entry, Expect, Range, Revision, StoreError, Write};

use super::pick::{ADDRESSES, PORTS};
use super::{Claim, held};
use crate::api::Api;
use crate::codec::peek::{self, Raw};
use crate::object;

const SERVICES: &str = "/registry/services/specs/";
/// How many events are looked at together.
const BATCH: usize = 1000;

/// Gives Services the claims that they lack, and takes away those that no Service has.
/// Returns the revision from which on changes are to be followed.
pub(crate) async fn at_start(api: &Api) -> Result<Revision, StoreError> {
    let found = api.store.range(Range::prefix(SERVICES), None, 0).await?;
    let (services, revision) = (found.entries, found.revision);
    let addresses = api.store.range(Range::prefix(ADDRESSES), None, 0).await?.entries;
    let ports = api.store.range(Range::prefix(PORTS), None, 0).await?.entries;
    for write in plan(api, &services, &addresses, &ports) {
        let (Write::Put { key, .. } | Write::Delete { key, .. }) = &write;
        tracing::warn!(key = %String::from_utf8_lossy(key), "the claim of a service is repaired");
        // One by one: a conflict means that this one was repaired already.
        api.store.txn(vec![write]).await?;
    }
    Ok(revision)
}

/// The writes that make claims what Services say. Of two Services that say the same, the first has it.
fn plan(api: &Api, services: &[Entry], addresses: &[Entry], ports: &[Entry]) -> Vec<Write> {
    let there: HashMap<&Bytes, &Entry> = addresses.iter().chain(ports).map(|entry| (&entry.key, entry)).collect();
    let mut wanted: HashSet<Bytes> = HashSet::new();
    let mut writes = Vec::new();
    for entry in services {
        let Some(service) = Holder::read(&entry.value) else { continue };
        for claim in held(&service.object) {
            let key = claim.key();
            if !wanted.insert(key.clone()) {
                continue;
            }
            match there.get(&key) {
                Some(entry) if service.has(&claim, &entry.value) => {}
                Some(entry) => writes.push(service.put(api, &claim, Expect::At(entry.modified))),
                None => writes.push(service.put(api, &claim, Expect::Absent)),
            }
        }
    }
    let is_leaked = |entry: &&Entry| !wanted.contains(&entry.key);
    let addresses = addresses.iter().filter(|entry| is_allocated(&entry.value));
    writes.extend(addresses.chain(ports).filter(is_leaked).map(|entry| {
        let expect = Expect::At(entry.modified);
        Write::Delete { key: entry.key.clone(), expect, last: None }
    }));
    writes
}

/// Whether an IPAddress is one of those that Services hold, rather than a user's.
fn is_allocated(address: &[u8]) -> bool {
    peek::label(address, "ipaddress.kubernetes.io/managed-by").as_deref() == Some("ipallocator.k8s.io")
}

/// A Service, as far as it matters here.
struct Holder {
    namespace: String,
    name: String,
    /// Its spec alone.
    object: Value,
}

impl Holder {
    fn read(service: &[u8]) -> Option<Self> {
        let (namespace, name) = (peek::namespace(service)?.into_owned(), peek::name(service)?.into_owned());
        let spec = Raw::new(service).field("spec")?.to_value()?;
        Some(Self { namespace, name, object: json!({ "spec": spec }) })
    }

    /// Whether a claim says that it is of this Service.
    fn has(&self, claim: &Claim, value: &[u8]) -> bool {
        match claim {
            Claim::Address(_) => {
                let parent = parent(value);
                is_allocated(value) && parent.as_ref() == Some(&(self.namespace.clone(), self.name.clone()))
            }
            Claim::Port { .. } => value == format!("{}/{}", self.namespace, self.name).as_bytes(),
        }
    }

    fn put(&self, api: &Api, claim: &Claim, expect: Expect) -> Write {
        let value = claim.value(&self.namespace, &self.name, &object::time(api.now()));
        Write::Put { key: claim.key(), expect, value }
    }
}

/// The namespace and the name of the Service that an IPAddress belongs to.
fn parent(address: &[u8]) -> Option<(String, String)> {
    let parent = Raw::new(address).path(&["spec", "parentRef"])?;
    let text = |field: &str| Some(parent.field(field)?.as_str()?.into_owned());
    (text("resource")? == "services").then_some((text("namespace")?, text("name")?))
}

/// Puts back what Services hold and a client deletes, until the store is gone.
pub(crate) async fn follow(api: Arc<Api>, since: Revision) {
    // Ends only when the store does.
    if let Err(error) = put_back(&api, since).await {
        tracing::error!(%error, "deleted addresses of services are no longer put back: the store cannot be used");
    }
}

async fn put_back(api: &Api, mut seen: Revision) -> Result<(), StoreError> {
    let channel = api.hub.channel(ADDRESSES).await?;
    let mut newest = channel.subscribe();
    while let Some(events) = channel.read_next(&mut newest, seen, BATCH).await {
        match events {
            Ok(events) => {
                for change in &events {
                    seen = change.event.revision;
                    if change.event.deleted {
                        restore(api, &change.event.key, &change.event.entry.value).await?;
                    }
                }
            }
            // Too much happened in the meantime.
            Err(_) => seen = at_start(api).await?,
        }
    }
    Ok(())
}

/// Puts a deleted claim back, if its Service still has the address.
async fn restore(api: &Api, key: &Bytes, deleted: &[u8]) -> Result<(), StoreError> {
    let Some((namespace, name)) = parent(deleted) else { return Ok(()) };
    let service = format!("{SERVICES}{namespace}/{name}");
    let Some(entry) = api.store.get(service.as_bytes()).await? else { return Ok(()) };
    let Some(service) = Holder::read(&entry.value) else { return Ok(()) };
    if let Some(claim) = held(&service.object).into_iter().find(|claim| claim.key() == *key) {
        tracing::warn!(namespace, name, "the address of a service was deleted and is put back");
        api.store.txn(vec![service.put(api, &claim, Expect::Absent)]).await?;
    }
    Ok(())
}
