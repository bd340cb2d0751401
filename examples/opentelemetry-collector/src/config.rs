// SPDX-License-Identifier: Apache-2.0

//! What the operator has to know of a collector's configuration: whether it is YAML, and which ports its receivers have.
//! Pure. Everything else is the collector's own business.

use std::collections::BTreeMap;

use windlass::serde_json::Value;

/// Ports by name, such as `otlp-grpc`. An error says what cannot be read.
pub fn ports(config: &str) -> Result<BTreeMap<String, u16>, String> {
    let config: Value = serde_saphyr::from_str(config).map_err(|error| error.to_string())?;
    let Some(receivers) = config.get("receivers").and_then(Value::as_object) else {
        return Err("it has no receivers".into());
    };
    let mut ports = BTreeMap::new();
    for (receiver, settings) in receivers {
        // A receiver may have a name of its own: `otlp/internal`.
        let kind = receiver.split('/').next().unwrap_or(receiver);
        let protocols = settings.get("protocols").and_then(Value::as_object);
        let listeners = protocols.into_iter().flatten().map(|(protocol, settings)| (Some(protocol.as_str()), settings));
        let itself = protocols.is_none().then_some((None, settings));
        for (protocol, settings) in listeners.chain(itself) {
            let named = settings.get("endpoint").and_then(Value::as_str).and_then(port_of);
            if let Some(port) = named.or_else(|| default_port(kind, protocol)) {
                let name = protocol.map_or_else(|| receiver.clone(), |protocol| format!("{receiver}-{protocol}"));
                ports.insert(port_name(&name), port);
            }
        }
    }
    Ok(ports)
}

fn port_of(endpoint: &str) -> Option<u16> {
    endpoint.rsplit_once(':')?.1.parse().ok()
}

/// The ports that receivers have if the configuration names none.
fn default_port(receiver: &str, protocol: Option<&str>) -> Option<u16> {
    match (receiver, protocol) {
        ("otlp", Some("grpc")) => Some(4317),
        ("otlp", Some("http")) => Some(4318),
        ("jaeger", Some("grpc")) => Some(14250),
        ("jaeger", Some("thrift_http")) => Some(14268),
        ("zipkin", None) => Some(9411),
        _ => None,
    }
}

/// Names of ports have at most 15 lower-case letters, digits and dashes.
fn port_name(text: &str) -> String {
    let allowed = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    text.chars().map(allowed).take(15).collect::<String>().trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &str, expected: &[(&str, u16)]) {
        let expected = expected.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
        assert_eq!(ports(config), Ok(expected), "{config}");
    }

    #[test]
    fn receivers_say_which_ports_there_are() {
        check(
            "receivers:\n  otlp:\n    protocols:\n      grpc:\n      http:\n",
            &[("otlp-grpc", 4317), ("otlp-http", 4318)],
        );
        check(
            "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: 0.0.0.0:55680\n",
            &[("otlp-grpc", 55680)],
        );
        check("receivers:\n  zipkin:\n  hostmetrics:\n", &[("zipkin", 9411)]);
        check("receivers:\n  otlp/internal:\n    protocols:\n      grpc:\n", &[("otlp-internal-g", 4317)]);
        check("receivers: {}\n", &[]);
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        for wrong in ["", "receivers: [otlp", "exporters: {}", "a text"] {
            assert!(ports(wrong).is_err(), "{wrong:?}");
        }
    }
}
