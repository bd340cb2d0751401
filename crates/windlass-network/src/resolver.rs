//! What a pod's `/etc/resolv.conf` says. Mirrors upstream's `pkg/kubelet/network/dns/dns.go`, with two differences: the
//! machine's name servers are only asked by the cluster's, because pods do not reach them, and its search domains are only
//! those of pods with the policy `Default`.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::PodDNSConfig;

/// Programs look at so many name servers.
const MOST_SERVERS: usize = 3;
/// Upstream's limits of search domains.
const MOST_SEARCHES: usize = 32;
const LONGEST_SEARCHES: usize = 2048;

/// What a pod says about names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodDns {
    /// `spec.dnsPolicy`; empty for the default.
    pub policy: String,
    /// `spec.dnsConfig`.
    pub config: Option<PodDNSConfig>,
    /// `spec.hostNetwork`.
    pub host_network: bool,
}

#[derive(Debug, Default)]
struct Resolver {
    servers: Vec<String>,
    searches: Vec<String>,
    options: Vec<(String, Option<String>)>,
}

/// The content of a pod's `/etc/resolv.conf`, given that of the machine.
pub fn resolv_conf(pod: &PodDns, namespace: &str, domain: &str, dns: Ipv4Addr, machine: &str) -> String {
    let of_cluster = match pod.policy.as_str() {
        "None" | "Default" => false,
        "ClusterFirstWithHostNet" => true,
        _ => !pod.host_network,
    };
    let mut resolver = if of_cluster {
        Resolver {
            servers: vec![dns.to_string()],
            searches: vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()],
            options: vec![("ndots".to_owned(), Some("5".to_owned()))],
        }
    } else if pod.policy == "None" {
        Resolver::default()
    } else {
        Resolver { servers: vec![dns.to_string()], ..Resolver::read(machine) }
    };
    if let Some(config) = &pod.config {
        resolver.extend(config);
    }
    resolver.print()
}

impl Resolver {
    /// The search domains and options of a file.
    fn read(text: &str) -> Self {
        let mut read = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                // The last line counts.
                Some("search" | "domain") => read.searches = words.map(str::to_owned).collect(),
                Some("options") => read.options = words.map(option).collect(),
                _ => {}
            }
        }
        read
    }

    fn extend(&mut self, config: &PodDNSConfig) {
        let add = |all: &mut Vec<String>, more: &Option<Vec<String>>| {
            for one in more.iter().flatten().filter(|one| !one.is_empty()) {
                if !all.contains(one) {
                    all.push(one.clone());
                }
            }
        };
        add(&mut self.servers, &config.nameservers);
        add(&mut self.searches, &config.searches);
        for one in config.options.iter().flatten() {
            let Some(name) = one.name.clone() else { continue };
            self.options.retain(|(known, _)| *known != name);
            self.options.push((name, one.value.clone()));
        }
    }

    fn print(mut self) -> String {
        self.servers.truncate(MOST_SERVERS);
        self.searches.truncate(MOST_SEARCHES);
        while self.searches.join(" ").len() > LONGEST_SEARCHES {
            self.searches.pop();
        }
        let mut lines = Vec::new();
        if !self.searches.is_empty() {
            lines.push(format!("search {}\n", self.searches.join(" ")));
        }
        lines.extend(self.servers.iter().map(|server| format!("nameserver {server}\n")));
        if !self.options.is_empty() {
            let options = self.options.iter().map(|(name, value)| match value {
                Some(value) => format!("{name}:{value}"),
                None => name.clone(),
            });
            lines.push(format!("options {}\n", options.collect::<Vec<_>>().join(" ")));
        }
        lines.concat()
    }
}

fn option(word: &str) -> (String, Option<String>) {
    match word.split_once(':') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (word.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
    const MACHINE: &str = "# made by a program\nnameserver 192.0.2.1\nsearch lan example.com\noptions edns0 trust-ad\n";

    fn check(policy: &str, host_network: bool, config: Value, expected: &str) {
        let config = serde_json::from_value(config).expect("a configuration");
        let pod = PodDns { policy: policy.into(), config, host_network };
        assert_eq!(resolv_conf(&pod, "shop", "cluster.local", DNS, MACHINE), expected, "{policy}");
    }

    #[test]
    fn policies_choose_the_names() {
        let cluster = "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\n\
                       options ndots:5\n";
        let machine = "search lan example.com\nnameserver 10.96.0.10\noptions edns0 trust-ad\n";
        check("", false, Value::Null, cluster);
        check("ClusterFirst", false, Value::Null, cluster);
        check("ClusterFirst", true, Value::Null, machine);
        check("ClusterFirstWithHostNet", true, Value::Null, cluster);
        check("Default", false, Value::Null, machine);
        check("None", false, Value::Null, "");
    }

    #[test]
    fn a_pods_own_configuration_is_added() {
        let config = json!({
            "nameservers": ["1.2.3.4"], "searches": ["a.example", "lan"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
        });
        let own = "search a.example lan\nnameserver 1.2.3.4\noptions ndots:2 edns0\n";
        check("None", false, config.clone(), own);
        let both = "search shop.svc.cluster.local svc.cluster.local cluster.local a.example lan\n\
                    nameserver 10.96.0.10\nnameserver 1.2.3.4\noptions ndots:2 edns0\n";
        check("ClusterFirst", false, config, both);
        let many: Vec<String> = (0..9).map(|number| format!("192.0.2.{number}")).collect();
        let first = "nameserver 192.0.2.0\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n";
        check("None", false, json!({"nameservers": many}), first);
    }
}
