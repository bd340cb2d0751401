//! Makes ServiceCIDRs ready, and keeps those that are being deleted until no Service has an address of theirs.
//!
//! Mirrors upstream's `pkg/controller/servicecidrs/servicecidrs_controller.go`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{PartialObjectMeta, Patch};
use serde_json::json;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// How long a range that nothing uses is kept after it was deleted, so that nothing is allocated from it meanwhile.
const DELETION_GRACE: SignedDuration = SignedDuration::from_secs(10);
const READY: &str = "Kubernetes Service CIDR is ready";
const IN_USE: &str =
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";

type Address = PartialObjectMeta<IPAddress>;

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    // What happens to an address or another range concerns the ranges that are being deleted.
    let waiting = |ctx: &windlass::controller::SourceContext| -> Vec<ObjectKey> {
        let ranges = ctx.lister::<ServiceCIDR>().list();
        ranges.iter().filter(|range| is_deleting(range)).map(|range| ObjectKey::of(&**range)).collect()
    };
    manager.add(
        Controller::<ServiceCIDR>::new("service-cidr-controller")
            .watches_metadata::<IPAddress, _, _>(move |_, ctx| waiting(ctx))
            .watches::<ServiceCIDR, _, _>(move |_, ctx| waiting(ctx))
            .complete(Ranges),
    )
}

struct Ranges;

impl Reconcile<ServiceCIDR> for Ranges {
    async fn reconcile(&self, range: Arc<ServiceCIDR>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&*range);
        let has_finalizer = range.metadata.finalizers.iter().flatten().any(|known| known == FINALIZER);
        let Some(deleted) = &range.metadata.deletion_timestamp else {
            if !has_finalizer {
                let known = range.metadata.finalizers.iter().flatten().map(String::as_str);
                let finalizers: Vec<&str> = known.chain([FINALIZER]).collect();
                set_finalizers(&ctx, &key, &range, &finalizers).await?;
            }
            return set_ready(&ctx, &range, "True", "", READY).await;
        };
        if !has_finalizer {
            return Ok(Outcome::Done);
        }
        let ranges = ctx.client().lister::<ServiceCIDR>().list();
        let addresses = ctx.client().lister::<Address>().list();
        if !may_go(&range, &ranges, &addresses) {
            return set_ready(&ctx, &range, "False", "Terminating", IN_USE).await;
        }
        let rest = DELETION_GRACE - ctx.now().duration_since(deleted.0);
        if let Ok(rest) = Duration::try_from(rest)
            && !rest.is_zero()
        {
            return Ok(Outcome::RequeueAfter(rest));
        }
        let known = range.metadata.finalizers.iter().flatten().map(String::as_str);
        let finalizers: Vec<&str> = known.filter(|known| *known != FINALIZER).collect();
        set_finalizers(&ctx, &key, &range, &finalizers).await?;
        Ok(Outcome::Done)
    }
}

fn is_deleting(range: &ServiceCIDR) -> bool {
    range.metadata.deletion_timestamp.is_some()
}

async fn set_finalizers(ctx: &Context, key: &ObjectKey, range: &ServiceCIDR, all: &[&str]) -> windlass::Result<()> {
    let version = &range.metadata.resource_version;
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": all}});
    match ctx.client().patch::<ServiceCIDR>(key, &Patch::Merge(patch)).await {
        // It has changed or gone, and its event is on its way.
        Err(error) if !(error.is_not_found() || error.is_conflict()) => Err(error.into()),
        _ => Ok(()),
    }
}

async fn set_ready(ctx: &Context, range: &ServiceCIDR, status: &str, reason: &str, message: &str) -> windlass::Result {
    let conditions = range.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_set = conditions.into_iter().any(|known| {
        (known.type_.as_str(), known.status.as_str(), known.reason.as_str(), known.message.as_str())
            == ("Ready", status, reason, message)
    });
    if is_set {
        return Ok(Outcome::Done);
    }
    let condition = Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(Timestamp::now()),
        observed_generation: None,
    };
    let patch = json!({"status": {"conditions": [condition]}});
    match ctx.client().patch_status::<ServiceCIDR>(&ObjectKey::of(range), &Patch::Merge(patch)).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(Outcome::Done),
    }
}

/// Whether no address would be left without a range: others contain the range, or each address that it contains.
fn may_go(range: &ServiceCIDR, ranges: &[Arc<ServiceCIDR>], addresses: &[Arc<Address>]) -> bool {
    let name = &range.metadata.name;
    let others: Vec<Prefix> = ranges
        .iter()
        .filter(|other| other.metadata.name != *name && !is_deleting(other))
        .flat_map(|other| prefixes(other))
        .collect();
    let own = prefixes(range);
    if own.iter().all(|prefix| others.iter().any(|other| other.contains_prefix(prefix))) {
        return true;
    }
    let allocated = addresses.iter().filter(|address| {
        address.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == ALLOCATOR)
    });
    let mut allocated = allocated.filter_map(|address| address.metadata.name.as_deref()?.parse::<IpAddr>().ok());
    !allocated.any(|ip| own.iter().any(|own| own.contains(ip)) && !others.iter().any(|other| other.contains(ip)))
}

fn prefixes(range: &ServiceCIDR) -> Vec<Prefix> {
    let cidrs = range.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    cidrs.filter_map(|cidr| Prefix::parse(cidr)).collect()
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    first: IpAddr,
    length: u32,
}

impl Prefix {
    fn parse(text: &str) -> Option<Self> {
        let (first, length) = text.split_once('/')?;
        Some(Self { first: first.parse().ok()?, length: length.parse().ok()? })
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| {
            let rest = width.saturating_sub(self.length);
            rest >= 128 || a >> rest == b >> rest
        };
        match (self.first, ip) {
            (IpAddr::V4(first), IpAddr::V4(ip)) => same(u32::from(first).into(), u32::from(ip).into(), 32),
            (IpAddr::V6(first), IpAddr::V6(ip)) => same(first.into(), ip.into(), 128),
            _ => false,
        }
    }

    fn contains_prefix(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.first)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::networking::v1::ServiceCIDRSpec;

    use super::*;

    fn range(name: &str, cidr: &str) -> ServiceCIDR {
        let mut range = ServiceCIDR::default();
        range.metadata.name = Some(name.to_owned());
        range.spec = Some(ServiceCIDRSpec { cidrs: Some(vec![cidr.to_owned()]) });
        range
    }

    fn address(ip: &str) -> Arc<Address> {
        let mut address = Address::default();
        address.metadata.name = Some(ip.to_owned());
        address.metadata.labels = Some([(MANAGED_BY.to_owned(), ALLOCATOR.to_owned())].into());
        Arc::new(address)
    }

    #[test]
    fn prefixes_contain_their_addresses() {
        let check = |prefix: &str, ip: &str, expected: bool| {
            let prefix = Prefix::parse(prefix).expect("valid");
            assert_eq!(prefix.contains(ip.parse().expect("valid")), expected, "{prefix:?} {ip}");
        };
        check("198.51.100.0/24", "198.51.100.255", true);
        check("198.51.100.0/24", "198.51.101.0", false);
        check("0.0.0.0/0", "198.51.101.0", true);
        check("2001:db8::/64", "2001:db8::1", true);
        check("2001:db8::/64", "2001:db8:1::1", false);
        check("198.51.100.0/24", "2001:db8::1", false);
    }

    #[test]
    fn a_range_waits_for_its_addresses() {
        let going = range("r", "198.51.100.0/24");
        let alone = [Arc::new(going.clone())];
        assert!(may_go(&going, &alone, &[]));
        assert!(may_go(&going, &alone, &[address("203.0.113.1")]));
        assert!(!may_go(&going, &alone, &[address("198.51.100.7")]));
        let covered = [Arc::new(going.clone()), Arc::new(range("s", "198.51.0.0/16"))];
        assert!(may_go(&going, &covered, &[address("198.51.100.7")]));
        let partly = [Arc::new(going.clone()), Arc::new(range("s", "198.51.100.0/28"))];
        assert!(may_go(&going, &partly, &[address("198.51.100.7")]));
        assert!(!may_go(&going, &partly, &[address("198.51.100.99")]));
    }
}
