//! The other replicas: who is there, who is gone, and who divides the keys otherwise.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::leases::{ByName, holder, is_member, is_rival, left_in};

/// When a replica joined, by the server's clock, and who it is: replicas agree on who was first.
pub(super) type Joined = (Option<Time>, String);

/// The other replicas, as a round finds them.
pub(super) struct Others {
    /// Those that count as this one does, and this one.
    pub(super) members: BTreeSet<String>,
    /// When the first of these joined; `None` if only this one did, just now.
    joined: Option<Joined>,
    /// Whether one of the others that count as this one does holds a shard.
    peer_holds: bool,
    /// When the first of those that count otherwise joined.
    rival_joined: Option<Joined>,
    /// Whether one that counts otherwise holds a shard.
    pub(super) rival_holds: bool,
    /// The leases of those that have not been heard of within the lease duration, as seen, once there
    /// are no keys in them.
    pub(super) gone: Vec<(String, Option<String>)>,
}

impl Others {
    /// Whether to leave everything to those who count otherwise. Those who work go on, and others
    /// may help them; while none works, the team of the first that joined begins.
    pub(super) fn must_wait(&self, holds: bool) -> bool {
        let rivals_first = self.rival_joined.as_ref().is_some_and(|rival| {
            // One that has just joined is younger than everybody it finds.
            self.joined.as_ref().is_none_or(|own| rival < own)
        });
        match (holds || self.peer_holds, self.rival_holds) {
            (true, false) => false,
            (false, true) => true,
            _ => rivals_first,
        }
    }
}

/// Leases as last seen, and since when they are so.
#[derive(Default)]
pub(super) struct Roster {
    seen: HashMap<String, Seen>,
}

struct Seen {
    version: Option<String>,
    since: Instant,
    duration: Duration,
    /// Whether it is a shard's that one holds who counts otherwise.
    rival_holds: bool,
    /// Whether it was deleted.
    missing: bool,
}

impl Seen {
    fn is_live(&self, now: Instant) -> bool {
        self.since + self.duration > now
    }
}

impl Roster {
    /// Looks at all leases but that of `me`, who joined then and divides the keys into so many
    /// shards.
    pub(super) fn look(
        &mut self,
        leases: &ByName,
        (me, shards): (&str, u32),
        joined: Option<Joined>,
        now: Instant,
    ) -> Others {
        let mut others = Others {
            members: BTreeSet::from([me.to_owned()]),
            joined,
            peer_holds: false,
            rival_joined: None,
            rival_holds: false,
            gone: Vec::new(),
        };
        // The lease of a shard is deleted by hand only: its holder works on, and makes it again.
        self.seen.retain(|name, seen| {
            let missing = !leases.contains_key(name);
            if missing && !std::mem::replace(&mut seen.missing, true) {
                seen.since = now;
            }
            !missing || seen.rival_holds && seen.is_live(now)
        });
        for (name, lease) in leases {
            let holder = holder(lease);
            let rival_holds = !is_member(lease) && holder.is_some() && is_rival(lease, shards);
            let changing = self.is_live(name, lease, rival_holds, now);
            let live = changing && (holder.is_some() || !is_member(lease));
            match (is_member(lease), live, is_rival(lease, shards)) {
                (true, false, _) if left_in(lease).next().is_some() => {}
                (true, false, _) => others.gone.push((name.clone(), lease.metadata.resource_version.clone())),
                (true, true, true) => first(&mut others.rival_joined, joined_at(lease)),
                (true, true, false) => {
                    first(&mut others.joined, joined_at(lease));
                    others.members.extend(holder.map(str::to_owned));
                }
                (false, _, true) => {}
                (false, live, false) => others.peer_holds |= live && holder.is_some_and(|holder| holder != me),
            }
        }
        others.rival_holds = self.seen.values().any(|seen| seen.rival_holds && seen.is_live(now));
        others
    }

    /// When a lease was first seen as it is.
    pub(super) fn changed(&self, name: &str) -> Option<Instant> {
        self.seen.get(name).map(|seen| seen.since)
    }

    /// The same of the lease of a shard that was changed longest ago by those who count otherwise.
    pub(super) fn rivals_changed(&self) -> Option<Instant> {
        self.seen.values().filter(|seen| seen.rival_holds).map(|seen| seen.since).min()
    }

    /// Whether a lease has changed within its duration.
    fn is_live(&mut self, name: &str, lease: &Lease, rival_holds: bool, now: Instant) -> bool {
        let version = lease.metadata.resource_version.clone();
        let since = match self.seen.get(name) {
            Some(seen) if seen.version == version => seen.since,
            _ => now,
        };
        let duration = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default().max(0);
        let seen = Seen { version, since, duration: Duration::from_secs(duration as u64), rival_holds, missing: false };
        let live = seen.is_live(now);
        self.seen.insert(name.to_owned(), seen);
        live
    }
}

/// When the replica of a lease joined.
pub(super) fn joined_at(lease: &Lease) -> Joined {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    (lease.metadata.creation_timestamp.clone(), holder.unwrap_or_default())
}

/// Keeps the earlier of two.
fn first(known: &mut Option<Joined>, other: Joined) {
    if known.as_ref().is_none_or(|known| other < *known) {
        *known = Some(other);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shards_stay_held_across_counts_without_a_lease() {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": "it.pet-shard-0", "resourceVersion": "7",
                "labels": {"windlass.dev/shard-role": "shard", "windlass.dev/shards": "8"}},
            "spec": {"holderIdentity": "b", "leaseDurationSeconds": 15},
        }))
        .expect("a lease");
        let leases = ByName::from([("it.pet-shard-0".to_owned(), lease)]);
        let (mut roster, start) = (Roster::default(), Instant::now());
        let mut held = |leases: &ByName, shards, second| {
            roster.look(leases, ("a", shards), None, start + Duration::from_secs(second)).rival_holds
        };
        assert!(held(&leases, 4, 0));
        assert!(held(&ByName::new(), 4, 16), "its holder makes it again");
        assert!(held(&ByName::new(), 4, 30));
        assert!(!held(&ByName::new(), 4, 31));
        assert!(!held(&leases, 8, 32), "one who counts as this one does");
        assert!(!held(&ByName::new(), 8, 33));
    }
}
