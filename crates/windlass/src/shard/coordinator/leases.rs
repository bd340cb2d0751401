//! The leases of one controller: how they are told apart, read and written.
//!
//! Every write carries the version that was read, so of two replicas that write one lease one fails.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};

use crate::key::ObjectKey;
use crate::shard::{Team, shard_of};

/// Says of which controller a lease is part.
const CONTROLLER_LABEL: &str = "windlass.dev/sharded-controller";
/// Says of which manager that controller is: others may have one of the same name.
const MANAGER_LABEL: &str = "windlass.dev/sharded-manager";
/// Says what a lease is: `shard`, `member` or `number`.
const ROLE_LABEL: &str = "windlass.dev/shard-role";
/// Says into how many shards the writer of a lease divides the keys.
const COUNT_LABEL: &str = "windlass.dev/shards";

/// Keys that a replica had not done with when it gave the shard back, and that are in no cache.
const LEFT_ANNOTATION: &str = "windlass.dev/left-keys";
/// How long that may be. All annotations of an object together may have 256 KiB.
const LONGEST_LEFT: usize = 200 * 1024;

/// A lease as it was written.
pub(super) type Written = Result<LeaseSpec, kube::Error>;

/// The leases of a controller, by name.
pub(super) type ByName = BTreeMap<String, Lease>;

/// Where the leases of a controller are.
pub(super) struct Leases {
    api: Api<Lease>,
    team: Team,
    shards: u32,
}

impl Leases {
    pub(super) fn new(api: Api<Lease>, team: Team, shards: u32) -> Self {
        Self { api, team, shards }
    }

    pub(super) fn team(&self) -> &Team {
        &self.team
    }

    pub(super) async fn list(&self) -> Result<ByName, kube::Error> {
        let Team { manager, controller } = &self.team;
        let params =
            ListParams::default().labels(&format!("{CONTROLLER_LABEL}={controller},{MANAGER_LABEL}={manager}"));
        let list = self.api.list(&params).await?;
        Ok(list.items.into_iter().filter_map(|lease| Some((lease.metadata.name.clone()?, lease))).collect())
    }

    /// Writes the lease of a shard.
    pub(super) fn write_shard(
        &self,
        shard: u32,
        current: Option<Lease>,
        spec: LeaseSpec,
    ) -> BoxFuture<'static, Written> {
        self.write(self.team.shard(shard), "shard", current, spec)
    }

    /// Writes the lease of a shard in order to take it, and looks then whether the number of shards is
    /// still in force as it was seen. If not, the shard is given back: that is `None`.
    pub(super) fn take_shard(
        &self,
        shard: u32,
        current: Option<Lease>,
        spec: LeaseSpec,
        in_force: Option<&str>,
    ) -> BoxFuture<'static, Result<Option<LeaseSpec>, kube::Error>> {
        let name = self.team.shard(shard);
        let taking = self.write_lease(name.clone(), "shard", current, spec);
        let (api, number, seen) = (self.api.clone(), self.team.number(), in_force.map(str::to_owned));
        async move {
            let mut lease = taking.await?;
            let number = api.get_opt(&number).await?;
            if seen.is_some() && number.and_then(|number| number.metadata.resource_version) == seen {
                return Ok(Some(lease.spec.unwrap_or_default()));
            }
            lease.spec.get_or_insert_default().holder_identity = Some(String::new());
            api.replace(&name, &PostParams::default(), &lease).await?;
            Ok(None)
        }
        .boxed()
    }

    /// Writes the lease that says how many shards there are.
    pub(super) fn write_number(&self, current: Option<Lease>) -> BoxFuture<'static, Result<(), kube::Error>> {
        let write = self.write_lease(self.team.number(), "number", current, LeaseSpec::default());
        write.map(|written| written.map(drop)).boxed()
    }

    /// Writes the lease of a replica.
    pub(super) fn write_member(
        &self,
        identity: &str,
        current: Option<Lease>,
        spec: LeaseSpec,
    ) -> BoxFuture<'static, Written> {
        self.write(self.team.member(identity), "member", current, spec)
    }

    /// Writes a lease, provided that it is as it was read (or not there).
    fn write(&self, name: String, role: &str, current: Option<Lease>, spec: LeaseSpec) -> BoxFuture<'static, Written> {
        let write = self.write_lease(name, role, current, spec);
        write.map(|written| written.map(|lease| lease.spec.unwrap_or_default())).boxed()
    }

    fn write_lease(
        &self,
        name: String,
        role: &str,
        current: Option<Lease>,
        spec: LeaseSpec,
    ) -> BoxFuture<'static, Result<Lease, kube::Error>> {
        let mut lease = current.unwrap_or_default();
        let exists = lease.metadata.resource_version.is_some();
        lease.metadata.name = Some(name.clone());
        lease.metadata.labels.get_or_insert_default().extend([
            (CONTROLLER_LABEL.to_owned(), self.team.controller.clone()),
            (MANAGER_LABEL.to_owned(), self.team.manager.clone()),
            (ROLE_LABEL.to_owned(), role.to_owned()),
            (COUNT_LABEL.to_owned(), self.shards.to_string()),
        ]);
        lease.spec = Some(spec);
        let api = self.api.clone();
        async move {
            let params = PostParams::default();
            if exists { api.replace(&name, &params, &lease).await } else { api.create(&params, &lease).await }
        }
        .boxed()
    }

    /// Writes a lease of any replica as it was read, but for the keys that are left in it.
    pub(super) fn rewrite(&self, lease: Lease) -> BoxFuture<'static, Result<(), kube::Error>> {
        let (api, name) = (self.api.clone(), lease.metadata.name.clone().unwrap_or_default());
        async move { api.replace(&name, &PostParams::default(), &lease).await.map(drop) }.boxed()
    }

    /// The keys that the last holder of a shard left.
    pub(super) fn left_at_home(&self, lease: &Lease) -> Vec<ObjectKey> {
        left_in(lease).filter(|key| self.is_home(lease, key)).collect()
    }

    /// Keys that were left in a lease when there was another number of shards, and are of another
    /// shard by now.
    pub(super) fn strays(&self, lease: &Lease) -> Vec<ObjectKey> {
        left_in(lease).filter(|key| !self.is_home(lease, key)).collect()
    }

    /// Leaves keys to the next holder, instead of those that were left before. Strays are not the
    /// holder's business, and stay.
    pub(super) fn with_left(&self, lease: Lease, keys: &[ObjectKey]) -> Lease {
        let strays = self.strays(&lease);
        with_left(lease, &[keys, &strays].concat())
    }

    fn is_home(&self, lease: &Lease, key: &ObjectKey) -> bool {
        lease.metadata.name.as_ref() == Some(&self.team.shard(shard_of(key, self.shards)))
    }

    /// Deletes a lease, as it was seen if a version is given. Another replica may be faster.
    pub(super) fn clear(&self, name: String, resource_version: Option<String>) -> BoxFuture<'static, ()> {
        let api = self.api.clone();
        async move {
            let preconditions =
                resource_version.map(|version| Preconditions { resource_version: Some(version), uid: None });
            let _ = api.delete(&name, &DeleteParams { preconditions, ..DeleteParams::default() }).await;
        }
        .boxed()
    }
}

/// Whether a lease is that of a replica, and not that of a shard.
pub(super) fn is_member(lease: &Lease) -> bool {
    label(lease, ROLE_LABEL) == Some("member")
}

/// Whether the writer of a lease divides the keys into another number of shards.
pub(super) fn is_rival(lease: &Lease, shards: u32) -> bool {
    label(lease, COUNT_LABEL).is_some_and(|count| count != shards.to_string())
}

/// The holder of a lease.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// The keys that are left in a lease.
pub(super) fn left_in(lease: &Lease) -> impl Iterator<Item = ObjectKey> + use<> {
    let left = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(LEFT_ANNOTATION));
    let names: Vec<String> = left.and_then(|left| serde_json::from_str(left).ok()).unwrap_or_default();
    names.into_iter().map(|name| match name.split_once('/') {
        Some((namespace, name)) => ObjectKey::new(namespace, name),
        None => ObjectKey::cluster(name),
    })
}

/// Replaces the keys that are left in a lease.
pub(super) fn with_left(mut lease: Lease, keys: &[ObjectKey]) -> Lease {
    let mut length = 0;
    let fitting = keys.iter().map(ToString::to_string).take_while(|name| {
        length += name.len() + "\"\",".len();
        length < LONGEST_LEFT
    });
    let names: Vec<String> = fitting.collect();
    if names.len() < keys.len() {
        tracing::error!(keys = keys.len(), left = names.len(), "too many deleted keys to leave to the next replica");
    }
    let annotations = lease.metadata.annotations.get_or_insert_default();
    match serde_json::to_string(&names) {
        Ok(left) if !names.is_empty() => annotations.insert(LEFT_ANNOTATION.to_owned(), left),
        _ => annotations.remove(LEFT_ANNOTATION),
    };
    lease
}

fn label<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    lease.metadata.labels.as_ref()?.get(name).map(String::as_str)
}
