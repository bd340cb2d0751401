//! Cluster IPs and node ports of Services.
//!
//! What a Service holds is claimed by keys of its own that are written in the same transaction as the
//! Service: two Services can never hold the same address or port, not even over a crash. A cluster IP is
//! claimed by an `IPAddress` object, as upstream does; a node port by a key below `/registry/ranges/`.

use std::net::Ipv4Addr;

use bytes::Bytes;
use serde_json::{Value, json};
use windlass_store::{Expect, Write};

use super::{Context, stored};
use crate::field::{FieldError, FieldErrors, Path};
use crate::object;
use crate::registry::strategy::service;
use crate::status::Status;
use crate::validation::access::Access as _;

/// The cluster's service network: 10.96.0.0/16, of which the first and last address are not given out.
const NETWORK: [u8; 2] = [10, 96];
/// The ports that nodes open for Services.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
/// How often another address or port is tried before the range counts as full.
const TRIES: usize = 256;

/// Something a Service holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Claim {
    Address(String),
    Port { port: i64, index: Option<usize> },
}

/// What a write of a Service claims and gives back.
#[derive(Default)]
pub(super) struct Claims {
    /// Claims to make, and whether the server picked the value itself.
    new: Vec<(Claim, bool)>,
    released: Vec<Claim>,
    tries: usize,
}

impl Claims {
    /// Fills in the addresses and ports that the Service needs and does not have yet. `old` is the
    /// stored Service. Other kinds claim nothing.
    pub(super) async fn of(context: &Context, object: &mut Value, old: Option<&Value>) -> Result<Self, Status> {
        if !is_service(context) {
            return Ok(Self::default());
        }
        let held = old.map(held).unwrap_or_default();
        let given = wanted(object);
        fill(object);
        let wanted = wanted(object);
        check_range(context, object, &wanted, &held).await?;
        let new = wanted
            .iter()
            .filter(|claim| !contains(&held, claim))
            .map(|claim| (claim.clone(), !contains(&given, claim)))
            .collect();
        let released = held.into_iter().filter(|claim| !contains(&wanted, claim)).collect();
        Ok(Self { new, released, tries: 0 })
    }

    /// The writes that go with the Service's own, in order.
    pub(super) fn writes(&self, context: &Context, object: &Value) -> Vec<Write> {
        let claims = self.new.iter().map(|(claim, _)| claim.put(context, object));
        claims.chain(self.released.iter().map(Claim::delete)).collect()
    }

    /// Deals with a claim that somebody else holds: picks another value if the first was the server's
    /// own choice, else says which field is to blame.
    pub(super) fn taken(&mut self, context: &Context, object: &mut Value, index: usize) -> Result<(), Status> {
        self.tries += 1;
        let Some((claim, chosen)) = self.new.get_mut(index) else { return Ok(()) };
        if !*chosen {
            return Err(invalid(context, object, taken(claim, object)));
        }
        if self.tries > TRIES {
            let range = if matches!(claim, Claim::Address(_)) { "service IPs" } else { "node ports" };
            return Err(Status::internal(format!("failed to allocate: the range of {range} is full")));
        }
        match claim {
            Claim::Address(address) => {
                *address = random_address();
                set_address(object, address);
            }
            Claim::Port { port, index } => {
                *port = random_port();
                match index {
                    Some(index) => object["spec"]["ports"][*index]["nodePort"] = (*port).into(),
                    None => object["spec"]["healthCheckNodePort"] = (*port).into(),
                }
            }
        }
        Ok(())
    }
}

/// The writes that give back everything a Service holds.
pub(super) fn releases(context: &Context, object: &Value) -> Vec<Write> {
    if is_service(context) { held(object).iter().map(Claim::delete).collect() } else { Vec::new() }
}

fn is_service(context: &Context) -> bool {
    &*context.served.kind == "Service" && context.served.group.is_empty()
}

fn contains(claims: &[Claim], claim: &Claim) -> bool {
    claims.iter().any(|other| match (other, claim) {
        (Claim::Address(a), Claim::Address(b)) => a == b,
        (Claim::Port { port: a, .. }, Claim::Port { port: b, .. }) => a == b,
        _ => false,
    })
}

/// What a stored Service holds.
fn held(object: &Value) -> Vec<Claim> {
    wanted(object)
}

fn wanted(object: &Value) -> Vec<Claim> {
    let spec = object.at("spec");
    let mut claims = Vec::new();
    if service::needs_cluster_ip(spec) && !service::is_headless(spec) {
        let mut addresses = spec.texts("clusterIPs");
        if addresses.is_empty() && !spec.text("clusterIP").is_empty() {
            addresses.push(spec.text("clusterIP"));
        }
        claims.extend(addresses.into_iter().map(|address| Claim::Address(address.to_owned())));
    }
    for (index, port) in spec.list("ports").iter().enumerate() {
        let claim = Claim::Port { port: port.int("nodePort"), index: Some(index) };
        // Two protocols may share a node port.
        if port.int("nodePort") != 0 && !contains(&claims, &claim) {
            claims.push(claim);
        }
    }
    if spec.int("healthCheckNodePort") != 0 {
        claims.push(Claim::Port { port: spec.int("healthCheckNodePort"), index: None });
    }
    claims
}

/// Picks values for what is missing.
fn fill(object: &mut Value) {
    let spec = object.at("spec");
    let headless = service::is_headless(spec);
    if service::needs_cluster_ip(spec) && headless {
        object["spec"]["clusterIPs"] = json!(["None"]);
    } else if service::needs_cluster_ip(spec) {
        let address = match spec.text("clusterIP") {
            "" => random_address(),
            address => address.to_owned(),
        };
        if spec.texts("clusterIPs").is_empty() || spec.text("clusterIP").is_empty() {
            set_address(object, &address);
        }
    }
    if service::needs_node_ports(object.at("spec")) {
        let ports = object["spec"].get_mut("ports").and_then(Value::as_array_mut);
        let mut shared: Vec<(i64, String, i64)> = Vec::new();
        for port in ports.into_iter().flatten().filter(|port| port.int("nodePort") == 0) {
            let (number, protocol) = (port.int("port"), port.text("protocol").to_owned());
            // The same port over another protocol gets the same node port.
            let twin = shared.iter().find(|(other, spoken, _)| *other == number && *spoken != protocol);
            let picked = twin.map_or_else(random_port, |(_, _, picked)| *picked);
            shared.push((number, protocol, picked));
            port["nodePort"] = picked.into();
        }
    }
    if service::needs_health_check_port(object.at("spec")) && object.at("spec").int("healthCheckNodePort") == 0 {
        object["spec"]["healthCheckNodePort"] = random_port().into();
    }
}

fn set_address(object: &mut Value, address: &str) {
    object["spec"]["clusterIP"] = address.into();
    object["spec"]["clusterIPs"] = json!([address]);
}

fn random_address() -> String {
    let [a, b] = NETWORK;
    let host = fastrand::u16(10..u16::MAX).to_be_bytes();
    Ipv4Addr::new(a, b, host[0], host[1]).to_string()
}

fn random_port() -> i64 {
    fastrand::u16(NODE_PORTS).into()
}

async fn check_range(context: &Context, object: &Value, wanted: &[Claim], held: &[Claim]) -> Result<(), Status> {
    for claim in wanted.iter().filter(|claim| !contains(held, claim)) {
        let problem = match claim {
            Claim::Address(address) => {
                let inside = address.parse::<Ipv4Addr>().is_ok_and(|ip| ip.octets()[..2] == NETWORK);
                // Boxed: few Services name an address of another range, and all would be as large as one that does.
                if inside || Box::pin(is_in_range(context, address)).await? {
                    None
                } else {
                    let why = "the provided network does not match the current range";
                    Some(address_error(object, &format!("failed to allocate IP {address}: {why}")))
                }
            }
            Claim::Port { port, .. } => (!NODE_PORTS.contains(&u16::try_from(*port).unwrap_or(0))).then(|| {
                let range = format!("{}-{}", NODE_PORTS.start(), NODE_PORTS.end());
                port_error(
                    claim,
                    &format!("provided port is not in the valid range. The range of valid ports is {range}"),
                )
            }),
        };
        if let Some(error) = problem {
            return Err(invalid(context, object, error));
        }
    }
    Ok(())
}

/// Whether a ServiceCIDR that is ready and stays contains an address.
async fn is_in_range(context: &Context, address: &str) -> Result<bool, Status> {
    let Ok(address) = address.parse::<Ipv4Addr>() else { return Ok(false) };
    let ranges = windlass_store::Range::prefix("/registry/servicecidrs/");
    let ranges = context.api.store.range(ranges, None, 0).await.map_err(Status::internal)?;
    for entry in &ranges.entries {
        let range = stored::decode(&entry.value)?;
        let mut conditions = range.at("status").list("conditions").iter();
        let is_ready = conditions.any(|one| (one.text("type"), one.text("status")) == ("Ready", "True"));
        let contains = range.at("spec").texts("cidrs").into_iter().any(|cidr| contains_address(cidr, address));
        if is_ready && contains && !object::is_deleting(&range) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a range contains an address. The first and the last one are not given out.
fn contains_address(cidr: &str, address: Ipv4Addr) -> bool {
    let Some((first, length)) = cidr.split_once('/') else { return false };
    let (Ok(first), Ok(length)) = (first.parse::<Ipv4Addr>(), length.parse::<u32>()) else { return false };
    let size = 1_u64 << 32_u32.saturating_sub(length);
    let (first, address) = (u64::from(u32::from(first)), u64::from(u32::from(address)));
    let is_inside = (first..first + size).contains(&address);
    is_inside && (size <= 2 || (address != first && address != first + size - 1))
}

fn taken(claim: &Claim, object: &Value) -> FieldError {
    match claim {
        Claim::Address(address) => {
            address_error(object, &format!("failed to allocate IP {address}: provided IP is already allocated"))
        }
        Claim::Port { .. } => port_error(claim, "provided port is already allocated"),
    }
}

fn address_error(object: &Value, detail: &str) -> FieldError {
    let spec = Path::new("spec");
    FieldError::invalid(&spec.child("clusterIPs"), object.at("spec").at("clusterIPs").clone(), detail)
}

fn port_error(claim: &Claim, detail: &str) -> FieldError {
    let spec = Path::new("spec");
    let Claim::Port { port, index } = claim else { return FieldError::invalid(&spec, "", detail) };
    match index {
        Some(index) => {
            let ports = spec.child("ports");
            FieldError::invalid(&ports.index(*index).child("nodePort"), *port, detail)
        }
        None => FieldError::invalid(&spec.child("healthCheckNodePort"), *port, detail),
    }
}

fn invalid(context: &Context, object: &Value, error: FieldError) -> Status {
    let errors = FieldErrors(vec![error]);
    Status::invalid(context.served.qualified_kind(), object::name(object), &errors)
}

/// The object by which a Service holds an address.
pub(crate) fn ip_address(address: &str, namespace: &str, service: &str) -> Value {
    json!({
        "kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": address, "labels": {
            "ipaddress.kubernetes.io/ip-family": "IPv4",
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        }},
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": service}},
    })
}

impl Claim {
    fn key(&self) -> Bytes {
        match self {
            Self::Address(address) => format!("/registry/ipaddresses/{address}"),
            Self::Port { port, .. } => format!("/registry/ranges/servicenodeports/{port}"),
        }
        .into()
    }

    fn put(&self, context: &Context, object: &Value) -> Write {
        let (namespace, name) = (context.namespace(), object::name(object));
        let value = match self {
            Self::Address(address) => {
                let mut claim = ip_address(address, namespace, name);
                let metadata = object::metadata_mut(&mut claim);
                metadata.insert("uid".into(), object::new_uid().into());
                metadata.insert("creationTimestamp".into(), object::time(context.now).into());
                stored::encode(&claim)
            }
            Self::Port { .. } => windlass_store::Value::plain(format!("{namespace}/{name}")),
        };
        Write::Put { key: self.key(), expect: Expect::Absent, value }
    }

    fn delete(&self) -> Write {
        Write::Delete { key: self.key(), expect: Expect::Any, last: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_all_but_their_first_and_last_address() {
        let check = |cidr: &str, address: &str, expected: bool| {
            assert_eq!(contains_address(cidr, address.parse().expect("valid")), expected, "{cidr} {address}");
        };
        check("198.51.100.0/24", "198.51.100.10", true);
        check("198.51.100.0/24", "198.51.100.0", false);
        check("198.51.100.0/24", "198.51.100.255", false);
        check("198.51.100.0/24", "198.51.101.1", false);
        check("198.51.100.8/32", "198.51.100.8", true);
        check("2001:db8::/64", "198.51.100.8", false);
        check("garbage", "198.51.100.8", false);
    }
}
