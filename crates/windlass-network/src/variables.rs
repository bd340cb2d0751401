//! The environment variables by which containers find Services. Mirrors upstream's `pkg/kubelet/envvars/envvars.go`.

use k8s_openapi::api::core::v1::Service;

/// The variables of these Services, in their order. Services without an address of their own have none.
///
/// ```
/// use k8s_openapi::api::core::v1::Service;
/// use windlass_network::variables::variables;
///
/// let spec = serde_json::json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]});
/// let web: Service = serde_json::from_value(serde_json::json!({"metadata": {"name": "web"}, "spec": spec}))?;
/// assert_eq!(variables([&web])[0], ("WEB_SERVICE_HOST".into(), "10.96.0.7".into()));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn variables<'a>(services: impl IntoIterator<Item = &'a Service>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let name = variable_name(service.metadata.name.as_deref().unwrap_or_default());
        let Some(address) = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None") else { continue };
        let ports = spec.ports.as_deref().unwrap_or_default();
        let Some(first) = ports.first() else { continue };
        all.push((format!("{name}_SERVICE_HOST"), address.to_owned()));
        all.push((format!("{name}_SERVICE_PORT"), first.port.to_string()));
        for port in ports {
            if let Some(called) = port.name.as_deref().filter(|called| !called.is_empty()) {
                all.push((format!("{name}_SERVICE_PORT_{}", variable_name(called)), port.port.to_string()));
            }
        }
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        for (index, port) in ports.iter().enumerate() {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
            if index == 0 {
                all.push((format!("{name}_PORT"), url.clone()));
            }
            let prefix = format!("{name}_PORT_{}_{}", port.port, protocol.to_uppercase());
            all.push((prefix.clone(), url));
            all.push((format!("{prefix}_PROTO"), protocol.to_lowercase()));
            all.push((format!("{prefix}_PORT"), port.port.to_string()));
            all.push((format!("{prefix}_ADDR"), address.to_owned()));
        }
    }
    all
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(name: &str, spec: &Value, expected: &[(&str, &str)]) {
        let service = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a Service");
        let found = variables([&service]);
        let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn services_become_variables() {
        let ports = json!([{"name": "http-web", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        check(
            "my-web",
            &json!({"clusterIP": "10.96.0.7", "ports": ports}),
            &[
                ("MY_WEB_SERVICE_HOST", "10.96.0.7"),
                ("MY_WEB_SERVICE_PORT", "80"),
                ("MY_WEB_SERVICE_PORT_HTTP_WEB", "80"),
                ("MY_WEB_SERVICE_PORT_DNS", "53"),
                ("MY_WEB_PORT", "tcp://10.96.0.7:80"),
                ("MY_WEB_PORT_80_TCP", "tcp://10.96.0.7:80"),
                ("MY_WEB_PORT_80_TCP_PROTO", "tcp"),
                ("MY_WEB_PORT_80_TCP_PORT", "80"),
                ("MY_WEB_PORT_80_TCP_ADDR", "10.96.0.7"),
                ("MY_WEB_PORT_53_UDP", "udp://10.96.0.7:53"),
                ("MY_WEB_PORT_53_UDP_PROTO", "udp"),
                ("MY_WEB_PORT_53_UDP_PORT", "53"),
                ("MY_WEB_PORT_53_UDP_ADDR", "10.96.0.7"),
            ],
        );
        check("headless", &json!({"clusterIP": "None", "ports": [{"port": 80}]}), &[]);
        check("elsewhere", &json!({"type": "ExternalName", "externalName": "example.com"}), &[]);
    }
}
