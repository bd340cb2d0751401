//! kwok's functions about nodes and pods, for templates.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use windlass_node::PodAccess;

use crate::template::Functions;

/// The names of kwok's functions about nodes and pods.
pub(super) struct Names;

const FUNCTIONS: [&str; 12] = [
    "NodeIP",
    "NodeIPs",
    "NodeName",
    "NodePort",
    "NodeIPWith",
    "NodeIPsWith",
    "PodIP",
    "PodIPs",
    "PodIPWith",
    "PodIPsWith",
    "Version",
    "StartTime",
];

impl Functions for Names {
    fn has(&self, name: &str) -> bool {
        FUNCTIONS.contains(&name)
    }

    fn call(&self, name: &str, _: &[Value]) -> Result<Value, String> {
        Err(format!("{name} has no answer here"))
    }
}

/// Kwok's functions, for one object.
pub(super) struct ObjectFunctions<'a> {
    pub(super) access: &'a PodAccess,
    pub(super) pod: Option<&'a Pod>,
    /// The node that the object is, or that it is bound to.
    pub(super) node: &'a str,
}

impl Functions for ObjectFunctions<'_> {
    fn has(&self, name: &str) -> bool {
        Names.has(name)
    }

    fn call(&self, name: &str, arguments: &[Value]) -> Result<Value, String> {
        let node = arguments.first().and_then(Value::as_str).unwrap_or(self.node);
        let address = match name {
            "NodeIP" | "NodeIPs" | "NodeIPWith" | "NodeIPsWith" => self.access.node_address(node),
            "PodIP" | "PodIPs" | "PodIPWith" | "PodIPsWith" => self.pod.and_then(|pod| self.access.lend_address(pod)),
            "NodeName" => return Ok(self.node.into()),
            "NodePort" => return Ok(10250.into()),
            "Version" => return Ok(concat!("v", env!("CARGO_PKG_VERSION")).into()),
            "StartTime" => return Ok(Timestamp::now().to_string().into()),
            _ => return Err("is not defined".to_owned()),
        };
        let address = address.map(|address| address.to_string());
        Ok(if name.contains("IPs") {
            address.into_iter().collect::<Vec<_>>().into()
        } else {
            address.unwrap_or_default().into()
        })
    }
}
