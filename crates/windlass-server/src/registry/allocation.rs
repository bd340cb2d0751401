//! Cluster IPs and node ports of Services.
//!
//! What a Service holds is claimed by keys of its own that are written in the same transaction as the
//! Service: two Services can never hold the same address or port, not even over a crash. A cluster IP is
//! claimed by an `IPAddress` object, as upstream does; a node port by a key below `/registry/ranges/`.

mod pick;
pub(crate) mod repair;

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
use pick::{contains_address, random_address, random_port};

/// The cluster's service network: 10.96.0.0/16, of which the first and last address are not given out.
const NETWORK: [u8; 2] = [10, 96];
/// The ports that nodes open for Services.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
/// How often another address or port is picked blindly before what is free is looked up.
const BLIND_TRIES: usize = 8;
/// How often is tried altogether, while others take what was found to be free.
const TRIES: usize = 64;

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

    /// Deals with a claim that another object holds: picks another value if the first was the server's
    /// own choice, else says which field is to blame.
    pub(super) async fn taken(&mut self, context: &Context, object: &mut Value, index: usize) -> Result<(), Status> {
        self.tries += 1;
        let Some((claim, chosen)) = self.new.get_mut(index) else { return Ok(()) };
        if !*chosen {
            return Err(invalid(context, object, taken(claim, object)));
        }
        let (name, is_blind) = (object::name(object).to_owned(), self.tries <= BLIND_TRIES);
        let full = self.tries > TRIES;
        match claim {
            Claim::Address(address) => {
                let free = if is_blind { Some(random_address()) } else { pick::free_address(&context.api).await? };
                let name = crate::field::quote(&name);
                let why =
                    || Status::internal(format!("failed to allocate a serviceIP for Service {name}: range is full"));
                *address = free.filter(|_| !full).ok_or_else(why)?;
                set_address(object, address);
            }
            Claim::Port { port, index } => {
                let free = if is_blind { Some(random_port()) } else { pick::free_port(&context.api).await? };
                let why = || Status::internal("failed to allocate a nodePort: range is full");
                *port = free.filter(|_| !full).ok_or_else(why)?;
                match index {
                    Some(index) => set_port(object, *index, *port),
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

/// Gives a port another node port, and with it those that share its number over other protocols.
fn set_port(object: &mut Value, index: usize, node_port: i64) {
    let before = object.at("spec").list("ports").get(index).map_or(0, |port| port.int("nodePort"));
    let ports = object["spec"].get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter(|port| port.int("nodePort") == before) {
        port["nodePort"] = node_port.into();
    }
}

async fn check_range(context: &Context, object: &Value, wanted: &[Claim], held: &[Claim]) -> Result<(), Status> {
    for claim in wanted.iter().filter(|claim| !contains(held, claim)) {
        let problem = match claim {
            Claim::Address(address) => {
                let [a, b] = NETWORK;
                let own = format!("{a}.{b}.0.0/16");
                let inside = address.parse().is_ok_and(|address| contains_address(&own, address));
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
    let ranges = pick::ready_ranges(&context.api).await?;
    Ok(ranges.iter().any(|cidr| contains_address(cidr, address)))
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
            Self::Address(address) => format!("{}{address}", pick::ADDRESSES),
            Self::Port { port, .. } => format!("{}{port}", pick::PORTS),
        }
        .into()
    }

    fn put(&self, context: &Context, object: &Value) -> Write {
        let value = self.value(context.namespace(), object::name(object), &object::time(context.now));
        Write::Put { key: self.key(), expect: Expect::Absent, value }
    }

    /// What is stored for a Service that holds this.
    fn value(&self, namespace: &str, name: &str, now: &str) -> windlass_store::Value {
        match self {
            Self::Address(address) => {
                let mut claim = ip_address(address, namespace, name);
                let metadata = object::metadata_mut(&mut claim);
                metadata.insert("uid".into(), object::new_uid().into());
                metadata.insert("creationTimestamp".into(), now.into());
                stored::encode(&claim)
            }
            Self::Port { .. } => windlass_store::Value::plain(format!("{namespace}/{name}")),
        }
    }

    fn delete(&self) -> Write {
        Write::Delete { key: self.key(), expect: Expect::Any, last: None }
    }
}
