//! What the cluster's domain says: a pure function from a question and the directory of Services to an answer.
//!
//! The names are those of the [specification](https://github.com/kubernetes/dns/blob/master/docs/specification.md), version
//! 1.1.0, below the cluster's domain:
//!
//! | name | answer |
//! |---|---|
//! | `SERVICE.NAMESPACE.svc` | the Service's addresses; those of its ready endpoints if it is headless; an alias for `ExternalName` |
//! | `ENDPOINT.SERVICE.NAMESPACE.svc` | an endpoint of a Service, such as `web-0.web.default.svc` for a pod of a StatefulSet |
//! | `_PORT._PROTOCOL.SERVICE.NAMESPACE.svc` | SRV records of a port |
//! | `10-244-0-5.NAMESPACE.pod` | that address |
//! | `5.0.244.10.in-addr.arpa` | the name of a Service or an endpoint |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::message::{Code, Data, Name, Query, Record, Response, Type};
use crate::services::{Directory, Endpoint, Kind, Service, ServiceName};

/// For how many seconds clients may keep an answer, also one that says that there is nothing.
const TTL: u32 = 5;
/// The version of the specification.
const VERSION: &str = "1.1.0";
/// How many aliases are followed within the cluster.
const MOST_ALIASES: usize = 8;

/// The cluster's domain.
#[derive(Debug, Clone)]
pub struct Zone {
    domain: Name,
}

/// What to do with a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is answered.
    Known(Response),
    /// It is not about the cluster.
    Elsewhere,
    /// The name is an alias of one that is not about the cluster: what is known, and the name to ask for.
    Alias(Response, Name),
}

impl Zone {
    /// A domain such as `cluster.local`; `None` if it is not a name.
    pub fn new(domain: &str) -> Option<Self> {
        Some(Self { domain: Name::parse(domain)? })
    }

    /// Answers a question.
    pub fn answer(&self, directory: &Directory, query: &Query) -> Answer {
        if let Some(address) = reverse(&query.name) {
            return self.reverse(directory, query, address);
        }
        let Some(below) = self.below(&query.name) else { return Answer::Elsewhere };
        let mut response = Response::empty(Code::NoError);
        response.authoritative = true;
        let (mut name, mut labels) = (query.name.clone(), below);
        for _ in 0..MOST_ALIASES {
            match self.look_up(directory, &name, &labels) {
                Found::Nothing => response.code = Code::NameError,
                Found::Records { records, additional } => {
                    let wanted = |record: &Record| query.kind == Type::ANY || record.data.kind() == query.kind;
                    response.answers.extend(records.into_iter().filter(wanted));
                    if query.kind == Type::SRV {
                        response.additional = additional;
                    }
                }
                Found::Alias(target) => {
                    let data = Data::Cname(target.clone());
                    response.answers.push(Record { name, ttl: TTL, data });
                    if query.kind == Type::CNAME {
                        return Answer::Known(response);
                    }
                    match self.below(&target) {
                        Some(below) => (name, labels) = (target, below),
                        None => return Answer::Alias(response, target),
                    }
                    continue;
                }
            }
            break;
        }
        if response.answers.is_empty() {
            response.authority.push(self.start());
        }
        Answer::Known(response)
    }

    /// The labels of a name below the domain, if it is there.
    fn below(&self, name: &Name) -> Option<Vec<String>> {
        let labels: Vec<&str> = name.labels().collect();
        let domain: Vec<&str> = self.domain.labels().collect();
        let below = labels.strip_suffix(&domain[..])?;
        Some(below.iter().map(|label| (*label).to_owned()).collect())
    }

    fn name(&self, below: &str) -> Name {
        Name::parse(&format!("{below}.{}", self.domain)).unwrap_or_else(|| self.domain.clone())
    }

    /// The record that says for how long there is nothing.
    fn start(&self) -> Record {
        let data = Data::Soa { server: self.name("ns.dns"), mailbox: self.name("hostmaster"), serial: 1, minimum: TTL };
        Record { name: self.domain.clone(), ttl: TTL, data }
    }

    fn look_up(&self, directory: &Directory, name: &Name, labels: &[String]) -> Found {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let exists = |exists: bool| if exists { Found::empty() } else { Found::Nothing };
        match labels[..] {
            [] => Found::records(vec![self.start()]),
            ["svc" | "pod"] => Found::empty(),
            ["dns-version"] => Found::records(vec![record(name, Data::Txt(VERSION.to_owned()))]),
            [namespace, "svc"] => exists(directory.has_namespace(namespace)),
            [address, _, "pod"] => match undashed(address) {
                Some(address) => Found::records(vec![record(name, address_data(address))]),
                None => Found::Nothing,
            },
            [service, namespace, "svc"] => self.service(directory, name, service, namespace, None),
            [endpoint, service, namespace, "svc"] => {
                let Some(found) = directory.get(namespace, service) else { return Found::Nothing };
                if let Some(protocol) = endpoint.strip_prefix('_') {
                    return exists(found.ports.iter().any(|port| port.protocol.as_str() == protocol));
                }
                let all = found.endpoints.iter().filter(|one| one.ready && one.label() == endpoint);
                let records: Vec<Record> = all.map(|one| record(name, address_data(one.address))).collect();
                if records.is_empty() { Found::Nothing } else { Found::records(records) }
            }
            [port, protocol, service, namespace, "svc"] => match (port.strip_prefix('_'), protocol.strip_prefix('_')) {
                (Some(port), Some(protocol)) => {
                    self.service(directory, name, service, namespace, Some((port, protocol)))
                }
                _ => Found::Nothing,
            },
            _ => Found::Nothing,
        }
    }

    /// A Service, or one of its ports.
    fn service(
        &self,
        directory: &Directory,
        name: &Name,
        service: &str,
        namespace: &str,
        port: Option<(&str, &str)>,
    ) -> Found {
        let Some(found) = directory.get(namespace, service) else { return Found::Nothing };
        let is_asked = |name: &str, protocol: &str| {
            port.is_none_or(|(wanted, of)| (wanted == "*" || wanted == name) && (of == "*" || of == protocol))
        };
        let own = self.name(&format!("{service}.{namespace}.svc"));
        let (mut records, mut additional, mut services) = (Vec::new(), Vec::new(), Vec::new());
        match &found.kind {
            Kind::ExternalName(target) => {
                return match Name::parse(target) {
                    Some(target) if port.is_none() && !target.to_string().eq(".") => Found::Alias(target),
                    _ => Found::Nothing,
                };
            }
            Kind::Cluster(addresses) => {
                let ports = found.ports.iter().filter(|port| is_asked(&port.name, port.protocol.as_str()));
                services.extend(ports.map(|port| (port.port, own.clone())));
                if port.is_none() || !services.is_empty() {
                    records.extend(addresses.iter().map(|address| record(name, address_data(*address))));
                }
                additional.extend(addresses.iter().map(|address| record(&own, address_data(*address))));
            }
            Kind::Headless => self.headless(found, service, namespace, &mut |endpoint, target| {
                let ports = endpoint.ports.iter().filter(|(name, protocol, _)| is_asked(name, protocol.as_str()));
                let before = services.len();
                services.extend(ports.map(|(_, _, port)| (*port, target.clone())));
                if port.is_none() || services.len() > before {
                    records.push(record(name, address_data(endpoint.address)));
                }
                additional.push(record(&target, address_data(endpoint.address)));
            }),
        }
        if port.is_some() && services.is_empty() {
            return Found::Nothing;
        }
        let weight = (100 / services.len().max(1)).max(1) as u16;
        for (port, target) in services {
            records.push(record(name, Data::Srv { priority: 0, weight, port, target }));
        }
        records.dedup();
        Found::Records { records, additional }
    }

    /// Calls a function for each ready endpoint, with its name.
    fn headless(&self, service: &Service, name: &str, namespace: &str, tell: &mut dyn FnMut(&Endpoint, Name)) {
        for endpoint in service.endpoints.iter().filter(|endpoint| endpoint.ready) {
            tell(endpoint, self.name(&format!("{}.{name}.{namespace}.svc", endpoint.label())));
        }
    }

    fn reverse(&self, directory: &Directory, query: &Query, address: IpAddr) -> Answer {
        let mut names: Vec<Name> = Vec::new();
        let below = |name: &ServiceName| format!("{}.{}.svc", name.name, name.namespace);
        if let Some(name) = directory.at(address) {
            names.push(self.name(&below(name)));
        } else {
            for (name, service) in directory.with_endpoint(address) {
                let endpoints = service.endpoints.iter().filter(|endpoint| endpoint.address == address);
                names.extend(endpoints.map(|endpoint| self.name(&format!("{}.{}", endpoint.label(), below(name)))));
            }
            names.dedup();
        }
        if names.is_empty() {
            return Answer::Elsewhere;
        }
        let mut response = Response::empty(Code::NoError);
        response.authoritative = true;
        if query.kind == Type::PTR || query.kind == Type::ANY {
            response.answers = names.into_iter().map(|name| record(&query.name, Data::Ptr(name))).collect();
        }
        Answer::Known(response)
    }
}

/// What there is under a name.
enum Found {
    Nothing,
    Records { records: Vec<Record>, additional: Vec<Record> },
    Alias(Name),
}

impl Found {
    fn records(records: Vec<Record>) -> Self {
        Self::Records { records, additional: Vec::new() }
    }

    /// A name that exists, with no records of its own.
    fn empty() -> Self {
        Self::records(Vec::new())
    }
}

fn record(name: &Name, data: Data) -> Record {
    Record { name: name.clone(), ttl: TTL, data }
}

fn address_data(address: IpAddr) -> Data {
    match address {
        IpAddr::V4(address) => Data::A(address),
        IpAddr::V6(address) => Data::Aaaa(address),
    }
}

/// The address that the label of a pod stands for.
fn undashed(label: &str) -> Option<IpAddr> {
    label.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::from).ok().or_else(|| {
        let six = label.replace('-', ":").parse::<Ipv6Addr>();
        six.map(IpAddr::from).ok()
    })
}

/// The address that a name below `in-addr.arpa` or `ip6.arpa` stands for.
fn reverse(name: &Name) -> Option<IpAddr> {
    let labels: Vec<&str> = name.labels().rev().collect();
    match labels[..] {
        ["arpa", "in-addr", a, b, c, d] => format!("{a}.{b}.{c}.{d}").parse::<Ipv4Addr>().ok().map(IpAddr::from),
        ["arpa", "ip6", ref digits @ ..] if digits.len() == 32 => {
            let mut bits = 0_u128;
            for digit in digits {
                bits = bits << 4 | u128::from(u8::from_str_radix(digit, 16).ok().filter(|digit| *digit < 16)?);
            }
            Some(Ipv6Addr::from(bits).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::message::question;
    use super::*;

    fn set(directory: &mut Directory, name: &str, spec: &Value, endpoints: &Value) {
        let ports = json!([{"name": "http", "port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": ports});
        let slice = serde_json::from_value(slice).expect("a slice");
        let service = serde_json::from_value(json!({"spec": spec})).expect("a service");
        directory.set(&ServiceName::new("default", name), Some(Service::new(&service, [&slice])));
    }

    fn directory() -> Directory {
        let mut directory = Directory::default();
        let ports = json!([{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let web = json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00::7"], "ports": ports});
        set(&mut directory, "web", &web, &json!([{"addresses": ["10.244.0.5"]}]));
        let pods = json!([
            {"addresses": ["10.244.0.5"], "hostname": "db-0"},
            {"addresses": ["10.244.0.6"], "hostname": "db-1"},
            {"addresses": ["10.244.0.7"], "hostname": "db-2", "conditions": {"ready": false}},
            {"addresses": ["10.244.0.8"]},
        ]);
        set(&mut directory, "db", &json!({"clusterIP": "None", "ports": ports}), &pods);
        let alias = |target: &str| json!({"type": "ExternalName", "externalName": target});
        set(&mut directory, "inner", &alias("web.default.svc.cluster.local"), &json!([]));
        set(&mut directory, "outer", &alias("example.com"), &json!([]));
        set(&mut directory, "loop", &alias("loop.default.svc.cluster.local"), &json!([]));
        directory
    }

    /// The answer in one line: the code if it is not 0, and the data of the records.
    fn ask(name: &str, kind: Type) -> String {
        let query = Query::parse(&question(1, &Name::parse(name).expect("a name"), kind)).expect("a question");
        let zone = Zone::new("cluster.local").expect("a name");
        let show = |response: &Response| {
            let code = if response.code == Code::NoError { String::new() } else { format!("{:?}", response.code) };
            let data = response.answers.iter().map(|record| match &record.data {
                Data::A(address) => address.to_string(),
                Data::Aaaa(address) => address.to_string(),
                Data::Cname(name) | Data::Ptr(name) => name.to_string(),
                Data::Srv { port, target, weight, .. } => format!("{weight}:{port}:{target}"),
                Data::Txt(text) => text.clone(),
                Data::Soa { .. } => "soa".to_owned(),
            });
            std::iter::once(code).filter(|code| !code.is_empty()).chain(data).collect::<Vec<_>>().join(" ")
        };
        match zone.answer(&directory(), &query) {
            Answer::Known(response) => show(&response),
            Answer::Elsewhere => "elsewhere".to_owned(),
            Answer::Alias(response, target) => format!("{} then {target}", show(&response)),
        }
    }

    #[test]
    fn names_have_the_records_of_the_specification() {
        for (name, kind, expected) in [
            ("web.default.svc.cluster.local", Type::A, "10.96.0.7"),
            ("WEB.Default.svc.cluster.local", Type::A, "10.96.0.7"),
            ("web.default.svc.cluster.local", Type::AAAA, "fd00::7"),
            ("web.default.svc.cluster.local", Type::TXT, ""),
            ("web.other.svc.cluster.local", Type::A, "NameError"),
            ("db.default.svc.cluster.local", Type::A, "10.244.0.5 10.244.0.6 10.244.0.8"),
            ("db.default.svc.cluster.local", Type::AAAA, ""),
            ("db-1.db.default.svc.cluster.local", Type::A, "10.244.0.6"),
            ("db-2.db.default.svc.cluster.local", Type::A, "NameError"),
            ("10-244-0-8.db.default.svc.cluster.local", Type::A, "10.244.0.8"),
            ("_http._tcp.web.default.svc.cluster.local", Type::SRV, "100:80:web.default.svc.cluster.local."),
            ("_http._udp.web.default.svc.cluster.local", Type::SRV, "NameError"),
            ("_tcp.web.default.svc.cluster.local", Type::SRV, ""),
            (
                "_dns._udp.db.default.svc.cluster.local",
                Type::SRV,
                "33:53:db-0.db.default.svc.cluster.local. 33:53:db-1.db.default.svc.cluster.local. \
                 33:53:10-244-0-8.db.default.svc.cluster.local.",
            ),
            ("10-244-0-9.default.pod.cluster.local", Type::A, "10.244.0.9"),
            ("web.default.pod.cluster.local", Type::A, "NameError"),
            ("inner.default.svc.cluster.local", Type::A, "web.default.svc.cluster.local. 10.96.0.7"),
            ("outer.default.svc.cluster.local", Type::A, "example.com. then example.com."),
            ("outer.default.svc.cluster.local", Type::CNAME, "example.com."),
            ("7.0.96.10.in-addr.arpa", Type::PTR, "web.default.svc.cluster.local."),
            ("6.0.244.10.in-addr.arpa", Type::PTR, "db-1.db.default.svc.cluster.local."),
            ("9.9.9.9.in-addr.arpa", Type::PTR, "elsewhere"),
            ("dns-version.cluster.local", Type::TXT, "1.1.0"),
            ("default.svc.cluster.local", Type::A, ""),
            ("other.svc.cluster.local", Type::A, "NameError"),
            ("cluster.local", Type::SOA, "soa"),
            ("example.com", Type::A, "elsewhere"),
        ] {
            assert_eq!(ask(name, kind), expected, "{name} {kind:?}");
        }
        let six = "7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa";
        assert_eq!(ask(six, Type::PTR), "web.default.svc.cluster.local.");
    }

    #[test]
    fn an_alias_of_itself_ends() {
        assert!(ask("loop.default.svc.cluster.local", Type::A).starts_with("loop.default"));
    }

    #[test]
    fn nothing_comes_with_the_time_to_remember_it() {
        let query = Query::parse(&question(1, &Name::parse("x.cluster.local").expect("a name"), Type::A));
        let zone = Zone::new("cluster.local").expect("a name");
        let Answer::Known(response) = zone.answer(&directory(), &query.expect("a question")) else {
            panic!("elsewhere")
        };
        assert!(matches!(response.authority[..], [Record { ttl: 5, data: Data::Soa { minimum: 5, .. }, .. }]));
    }
}
