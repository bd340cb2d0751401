//! Which backend a request goes to: a pure function of all Ingresses.
//!
//! A host that is named comes before one with a wildcard, and that before rules without a host. Among the paths of a host the
//! longest comes first, and an exact one before a prefix of the same length; among equal ones, the older Ingress. What no path
//! takes goes to a default backend.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1 as api;

/// The annotation by which Ingresses named their class before there was a field.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Backend {
    /// The namespace of the Ingress, and so of its Service.
    pub namespace: String,
    /// The Service.
    pub service: String,
    /// The number of the Service's port, or else its name.
    pub port: Result<u16, String>,
}

/// How a path is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    Exact,
    Prefix,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Path {
    pattern: String,
    kind: Match,
    backend: Backend,
}

/// All Ingresses, as a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// The paths of each host, the first to match first; `*.example.com` for wildcards, and empty for all hosts.
    hosts: BTreeMap<String, Vec<Path>>,
    /// Where requests go that no path takes.
    default: Option<Backend>,
    /// The Secret with the certificate of each host, by namespace and name.
    certificates: BTreeMap<String, (String, String)>,
}

/// Whether an Ingress is of a class, which may be that of Ingresses that name none.
pub fn is_of_class(ingress: &api::Ingress, class: &str, is_default: bool) -> bool {
    let named = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_deref());
    let annotated = ingress.metadata.annotations.as_ref().and_then(|all| all.get(CLASS_ANNOTATION));
    named.or(annotated.map(String::as_str)).map_or(is_default, |named| named == class)
}

impl Routes {
    /// The table of these Ingresses.
    pub fn new<'a>(ingresses: impl IntoIterator<Item = &'a api::Ingress>) -> Self {
        let mut sorted: Vec<&api::Ingress> = ingresses.into_iter().collect();
        sorted.sort_by_key(|ingress| {
            let meta = &ingress.metadata;
            (meta.creation_timestamp.clone().map(|time| time.0), meta.namespace.clone(), meta.name.clone())
        });
        let mut routes = Self::default();
        for ingress in sorted {
            routes.add(ingress);
        }
        for paths in routes.hosts.values_mut() {
            // Stable: the older Ingress stays first among equals.
            paths.sort_by_key(|path| (Reverse(path.pattern.len()), path.kind));
        }
        routes
    }

    fn add(&mut self, ingress: &api::Ingress) {
        let Some(spec) = &ingress.spec else { return };
        let namespace = ingress.metadata.namespace.clone().unwrap_or_default();
        for rule in spec.rules.iter().flatten() {
            let paths = self.hosts.entry(rule.host.clone().unwrap_or_default().to_ascii_lowercase()).or_default();
            for path in rule.http.iter().flat_map(|http| &http.paths) {
                let Some(backend) = backend(&namespace, &path.backend) else { continue };
                let kind = if path.path_type == "Exact" { Match::Exact } else { Match::Prefix };
                let mut text = path.path.clone().filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned());
                if kind == Match::Prefix && text.len() > 1 {
                    text.truncate(text.trim_end_matches('/').len().max(1));
                }
                paths.push(Path { pattern: text, kind, backend });
            }
        }
        if self.default.is_none() {
            self.default = spec.default_backend.as_ref().and_then(|one| backend(&namespace, one));
        }
        for tls in spec.tls.iter().flatten() {
            let Some(secret) = tls.secret_name.clone().filter(|name| !name.is_empty()) else { continue };
            let hosts = tls.hosts.clone().filter(|hosts| !hosts.is_empty()).unwrap_or_else(|| vec![String::new()]);
            for host in hosts {
                let certificate = (namespace.clone(), secret.clone());
                self.certificates.entry(host.to_ascii_lowercase()).or_insert(certificate);
            }
        }
    }

    /// Where a request for a path of a host goes; `None` if nothing takes it.
    pub fn find(&self, host: &str, path: &str) -> Option<&Backend> {
        let host = host.to_ascii_lowercase();
        let candidates = names(&host).into_iter().filter_map(|name| self.hosts.get(&name));
        for paths in candidates {
            if let Some(found) = paths.iter().find(|one| one.takes(path)) {
                return Some(&found.backend);
            }
        }
        self.default.as_ref()
    }

    /// The Secret with the certificate of a host, by namespace and name.
    pub fn certificate(&self, host: &str) -> Option<&(String, String)> {
        names(&host.to_ascii_lowercase()).iter().find_map(|name| self.certificates.get(name))
    }

    /// All Secrets with certificates, by namespace and name.
    pub fn secrets(&self) -> impl Iterator<Item = &(String, String)> {
        self.certificates.values()
    }
}

/// The names under which a host may be listed, the first to match first. A wildcard stands for one label.
fn names(host: &str) -> [String; 3] {
    let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}")).unwrap_or_default();
    [host.to_owned(), wildcard, String::new()]
}

fn backend(namespace: &str, backend: &api::IngressBackend) -> Option<Backend> {
    let service = backend.service.as_ref()?;
    let port = service.port.clone().unwrap_or_default();
    let number = port.number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number != 0);
    let port = number.ok_or_else(|| port.name.unwrap_or_default());
    Some(Backend { namespace: namespace.to_owned(), service: service.name.clone(), port })
}

impl Path {
    fn takes(&self, path: &str) -> bool {
        match self.kind {
            Match::Exact => path == self.pattern,
            Match::Prefix if self.pattern == "/" => true,
            Match::Prefix => {
                path.strip_prefix(&self.pattern).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn ingress(name: &str, spec: &Value) -> api::Ingress {
        let meta = json!({"name": name, "namespace": "default"});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).expect("an Ingress")
    }

    fn path(path: &str, kind: &str, service: &str) -> Value {
        let backend = json!({"service": {"name": service, "port": {"number": 80}}});
        json!({"path": path, "pathType": kind, "backend": backend})
    }

    fn rule(host: &str, paths: &[Value]) -> Value {
        json!({"host": host, "http": {"paths": paths}})
    }

    fn found<'a>(routes: &'a Routes, host: &str, path: &str) -> &'a str {
        routes.find(host, path).map_or("", |backend| &backend.service)
    }

    /// The examples of the documentation of Ingress.
    #[test]
    fn paths_match_as_documented() {
        for (kind, pattern, request, matches) in [
            ("Prefix", "/", "/anything", true),
            ("Exact", "/foo", "/foo", true),
            ("Exact", "/foo", "/bar", false),
            ("Exact", "/foo", "/foo/", false),
            ("Exact", "/foo/", "/foo", false),
            ("Prefix", "/foo", "/foo", true),
            ("Prefix", "/foo", "/foo/", true),
            ("Prefix", "/foo/", "/foo", true),
            ("Prefix", "/foo/", "/foo/", true),
            ("Prefix", "/aaa/bb", "/aaa/bbb", false),
            ("Prefix", "/aaa/bbb", "/aaa/bbb", true),
            ("Prefix", "/aaa/bbb/", "/aaa/bbb", true),
            ("Prefix", "/aaa/bbb", "/aaa/bbb/", true),
            ("Prefix", "/aaa/bbb", "/aaa/bbb/ccc", true),
            ("Prefix", "/aaa/bbb", "/aaa/bbbxyz", false),
            ("ImplementationSpecific", "/foo", "/foo/bar", true),
        ] {
            let routes = Routes::new([&ingress("a", &json!({"rules": [rule("", &[path(pattern, kind, "web")])]}))]);
            assert_eq!(found(&routes, "any", request) == "web", matches, "{kind} {pattern} {request}");
        }
    }

    #[test]
    fn the_longest_path_comes_first_and_exact_before_prefix() {
        let paths = [
            path("/", "Prefix", "root"),
            path("/foo", "Prefix", "prefix"),
            path("/foo", "Exact", "exact"),
            path("/foo/bar", "Prefix", "longer"),
        ];
        let routes = Routes::new([&ingress("a", &json!({"rules": [rule("", &paths)]}))]);
        for (request, service) in [("/", "root"), ("/foo", "exact"), ("/foo/", "prefix"), ("/foo/bar/x", "longer")] {
            assert_eq!(found(&routes, "any", request), service, "{request}");
        }
    }

    #[test]
    fn hosts_are_compared_by_precedence() {
        let spec = json!({
            "defaultBackend": {"service": {"name": "default", "port": {"name": "http"}}},
            "rules": [
                rule("", &[path("/all", "Prefix", "all")]), rule("*.foo.com", &[path("/", "Prefix", "wildcard")]),
                rule("bar.foo.com", &[path("/x", "Prefix", "named")]),
            ],
        });
        let routes = Routes::new([&ingress("a", &spec)]);
        for (host, request, service) in [
            ("bar.foo.com", "/x", "named"),
            ("BAR.foo.com", "/x", "named"),
            ("bar.foo.com", "/y", "wildcard"),
            ("baz.foo.com", "/x", "wildcard"),
            ("baz.bar.foo.com", "/x", "default"),
            ("foo.com", "/x", "default"),
            ("elsewhere", "/all/x", "all"),
        ] {
            assert_eq!(found(&routes, host, request), service, "{host}{request}");
        }
        assert_eq!(routes.find("x", "/").map(|backend| backend.port.clone()), Some(Err("http".to_owned())));
    }

    #[test]
    fn certificates_are_found_by_host() {
        let spec = json!({"tls": [
            {"hosts": ["*.foo.com"], "secretName": "wild"}, {"hosts": ["bar.foo.com"], "secretName": "bar"},
        ]});
        let routes = Routes::new([&ingress("a", &spec)]);
        let secret = |host: &str| routes.certificate(host).map(|(_, name)| name.as_str());
        assert_eq!((secret("bar.foo.com"), secret("x.foo.com"), secret("foo.com")), (Some("bar"), Some("wild"), None));
    }

    #[test]
    fn the_class_decides_who_serves() {
        let named = |class: &Value| ingress("a", &json!({"ingressClassName": class}));
        assert!(is_of_class(&named(&json!("windlass")), "windlass", false));
        assert!(!is_of_class(&named(&json!("nginx")), "windlass", true));
        assert!(is_of_class(&named(&Value::Null), "windlass", true));
        assert!(!is_of_class(&named(&Value::Null), "windlass", false));
        let mut old = named(&Value::Null);
        old.metadata.annotations = Some([(CLASS_ANNOTATION.to_owned(), "windlass".to_owned())].into());
        assert!(is_of_class(&old, "windlass", false));
    }

    proptest! {
        /// The order of Ingresses and rules does not matter.
        #[test]
        fn routes_do_not_depend_on_the_order(parts in prop::collection::vec("(/[ab]{1,2}){0,3}", 1..6), request in "(/[ab]{1,2}){0,4}") {
            let all: Vec<api::Ingress> = parts.iter().enumerate().map(|(at, part)| {
                ingress(&format!("i{at}"), &json!({"rules": [rule("", &[path(part, "Prefix", part)])]}))
            }).collect();
            let (forth, back) = (Routes::new(&all), Routes::new(all.iter().rev()));
            prop_assert_eq!(found(&forth, "x", &request), found(&back, "x", &request));
            // The longest prefix wins.
            let best = parts.iter().filter(|part| request == **part || request.starts_with(&format!("{part}/"))).max_by_key(|part| part.len());
            prop_assert_eq!(found(&forth, "x", &request), best.map_or("", |part| part.as_str()));
        }
    }
}
