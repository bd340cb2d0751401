//! All Services of a cluster, by name and by address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::{Service, ServiceName};

/// All Services of a cluster.
///
/// ```
/// use windlass_network::services::{Kind, Service};
/// use windlass_network::{Directory, ServiceName};
///
/// let spec = serde_json::json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]});
/// let service = serde_json::from_value(serde_json::json!({"spec": spec}))?;
/// let web = ServiceName::new("default", "web");
/// let mut directory = Directory::default();
/// assert!(directory.set(&web, Some(Service::new(&service, []))));
/// assert_eq!(directory.at("10.96.0.7".parse()?), Some(&web));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Directory {
    services: BTreeMap<ServiceName, Arc<Service>>,
    /// Services by an address of their own.
    addresses: HashMap<IpAddr, ServiceName>,
    /// Services by the addresses of their endpoints.
    endpoints: HashMap<IpAddr, BTreeSet<ServiceName>>,
}

impl Directory {
    /// Replaces what is known of a Service, or removes it. Whether that changes anything.
    pub fn set(&mut self, name: &ServiceName, service: Option<Service>) -> bool {
        if self.services.get(name).map(|known| &**known) == service.as_ref() {
            return false;
        }
        if let Some(old) = self.services.remove(name) {
            for address in old.cluster_ips() {
                if self.addresses.get(address) == Some(name) {
                    self.addresses.remove(address);
                }
            }
            for endpoint in &old.endpoints {
                if let Some(names) = self.endpoints.get_mut(&endpoint.address) {
                    names.remove(name);
                    if names.is_empty() {
                        self.endpoints.remove(&endpoint.address);
                    }
                }
            }
        }
        if let Some(service) = service {
            for address in service.cluster_ips() {
                self.addresses.insert(*address, name.clone());
            }
            for endpoint in &service.endpoints {
                self.endpoints.entry(endpoint.address).or_default().insert(name.clone());
            }
            self.services.insert(name.clone(), Arc::new(service));
        }
        true
    }

    /// A Service by its name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Service>> {
        self.services.get(&ServiceName::new(namespace, name))
    }

    /// The Service with an address of its own.
    pub fn at(&self, address: IpAddr) -> Option<&ServiceName> {
        self.addresses.get(&address)
    }

    /// The Services with an endpoint at an address.
    pub fn with_endpoint(&self, address: IpAddr) -> impl Iterator<Item = (&ServiceName, &Arc<Service>)> {
        let names = self.endpoints.get(&address).into_iter().flatten();
        names.filter_map(|name| self.services.get_key_value(name))
    }

    /// All Services, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ServiceName, &Arc<Service>)> {
        self.services.iter()
    }

    /// Whether a namespace has a Service.
    pub fn has_namespace(&self, namespace: &str) -> bool {
        let from = ServiceName::new(namespace, "");
        self.services.range(from..).next().is_some_and(|(name, _)| name.namespace == namespace)
    }
}
