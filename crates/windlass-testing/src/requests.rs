//! [`Requests`]: which requests a fault concerns.

use std::fmt;
use std::io;

use http::Request;
use kube::Resource;
use kube::client::Body;
use serde::Deserialize;
use windlass::ObjectKey;
use windlass_server::request::{Query, ResourcePath, Target, Verb, decode_path};

/// Chooses requests, for [`Env::fail`](crate::Env::fail) and [`Env::cut_watches`](crate::Env::cut_watches).
///
/// Chosen are requests of managers of the environment, and of the clients that [`Env::kube`](crate::Env::kube) and
/// [`Env::client_as`](crate::Env::client_as) give. Requests of the test's own [`Env::client`](crate::Env::client) are
/// chosen only with [`including_test`](Self::including_test), so that a test can go on to prepare and to look at
/// objects while the operator's requests fail. Requests of the built-in controllers are never chosen.
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use windlass::ObjectKey;
/// use windlass_testing::Requests;
///
/// let every = Requests::all();
/// let writes = Requests::writes_of::<Deployment>();
/// let status = Requests::writes_of::<Deployment>().subresource("status");
/// let one = Requests::of::<ConfigMap>().verbs(["create", "patch"]).object(&ObjectKey::new("default", "settings"));
/// let watches = Requests::watches_of::<Pod>().namespace("default");
/// assert_eq!(one.to_string(), "create, patch of configmaps default/settings");
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Requests {
    /// Group and plural name.
    resource: Option<(String, String)>,
    verbs: Option<Vec<Verb>>,
    subresource: Subresource,
    namespace: Option<String>,
    name: Option<String>,
    of_test: bool,
}

#[derive(Debug, Clone, Default)]
enum Subresource {
    #[default]
    Any,
    /// The objects themselves.
    None,
    Named(String),
}

impl Requests {
    /// All requests, those for discovery and other documents too.
    pub fn all() -> Self {
        Self::default()
    }

    /// Requests for objects of a kind, in any of its versions, and for their subresources.
    pub fn of<K: Resource<DynamicType: Default>>() -> Self {
        let kind = K::DynamicType::default();
        Self::to(&K::group(&kind), &K::plural(&kind))
    }

    /// Requests for a resource that is known by name, as `("apps", "deployments")`.
    pub fn to(group: &str, resource: &str) -> Self {
        Self { resource: Some((group.to_owned(), resource.to_owned())), ..Self::default() }
    }

    /// [Writes](Self::writes) [of](Self::of) a kind.
    pub fn writes_of<K: Resource<DynamicType: Default>>() -> Self {
        Self::of::<K>().writes()
    }

    /// [Reads](Self::reads) [of](Self::of) a kind.
    pub fn reads_of<K: Resource<DynamicType: Default>>() -> Self {
        Self::of::<K>().reads()
    }

    /// Watches of a kind.
    pub fn watches_of<K: Resource<DynamicType: Default>>() -> Self {
        Self::of::<K>().verbs(["watch"])
    }

    /// Of these, only `create`, `update`, `patch`, `delete` and `deletecollection`.
    pub fn writes(self) -> Self {
        self.verbs(["create", "update", "patch", "delete", "deletecollection"])
    }

    /// Of these, only `get`, `list` and `watch`.
    pub fn reads(self) -> Self {
        self.verbs(["get", "list", "watch"])
    }

    /// Of these, only those with one of these verbs, as RBAC spells them.
    ///
    /// # Panics
    /// When there is no such verb.
    pub fn verbs<'a>(mut self, verbs: impl IntoIterator<Item = &'a str>) -> Self {
        let verb = |name| Verb::named(name).unwrap_or_else(|| panic!("there is no verb {name:?}"));
        self.verbs = Some(verbs.into_iter().map(verb).collect());
        self
    }

    /// Of these, only those for a subresource, as `status`.
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Subresource::Named(subresource.to_owned());
        self
    }

    /// Of these, only those for the objects themselves: not for `status`, `scale` and other subresources.
    pub fn without_subresources(mut self) -> Self {
        self.subresource = Subresource::None;
        self
    }

    /// Of these, only those in a namespace. A list or watch of all namespaces is not in one.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Of these, only those for one object. A list or watch is for many. A key without a namespace, as `"blog"`, means
    /// this name in any namespace.
    pub fn object(mut self, key: impl Into<ObjectKey>) -> Self {
        let key = key.into();
        self.namespace = key.namespace().map(str::to_owned);
        self.name = Some(key.name().to_owned());
        self
    }

    /// Those of the test's own [`Env::client`](crate::Env::client) too.
    pub fn including_test(mut self) -> Self {
        self.of_test = true;
        self
    }

    pub(crate) fn choose(&self, facts: &Facts) -> bool {
        let ours = match facts.caller {
            Caller::Operator => true,
            Caller::Test => self.of_test,
            Caller::Harness => false,
        };
        let resource = |(group, plural): &(String, String)| {
            facts.path.as_ref().is_some_and(|path| path.group == *group && path.resource == *plural)
        };
        let found = facts.path.as_ref().map(|path| path.subresource.as_deref());
        let subresource = match &self.subresource {
            Subresource::Any => true,
            Subresource::None => found == Some(None),
            Subresource::Named(name) => found == Some(Some(name)),
        };
        ours && self.resource.as_ref().is_none_or(resource)
            && self.verbs.as_ref().is_none_or(|verbs| facts.verb().is_some_and(|verb| verbs.contains(&verb)))
            && subresource
            && self.namespace.as_ref().is_none_or(|wanted| facts.namespace() == Some(wanted))
            && self.name.as_ref().is_none_or(|wanted| facts.name() == Some(wanted))
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verbs {
            Some(verbs) => f.write_str(&verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(", "))?,
            None => f.write_str("any request")?,
        }
        match &self.resource {
            Some((_, resource)) => write!(f, " of {resource}")?,
            None => f.write_str(" of anything")?,
        }
        if let Subresource::Named(subresource) = &self.subresource {
            write!(f, "/{subresource}")?;
        }
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, " {namespace}/{name}"),
            (None, Some(name)) => write!(f, " {name}"),
            (Some(namespace), None) => write!(f, " in {namespace}"),
            (None, None) => Ok(()),
        }
    }
}

/// Whose client sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// What is tested.
    Operator,
    /// The client of the test.
    Test,
    /// The environment, for what it does itself.
    Harness,
}

/// What is known of a request.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    caller: Caller,
    /// `None` for discovery and other documents.
    path: Option<ResourcePath>,
    verb: Option<Verb>,
}

impl Facts {
    pub(crate) fn of<B>(request: &Request<B>, caller: Caller) -> Self {
        let Target::Resource(path) = Target::parse(&decode_path(request.uri().path())) else {
            return Self { caller, path: None, verb: None };
        };
        let watch = Query::parse(request.uri().query()).flag("watch").unwrap_or(false);
        let verb = path.verb(request.method(), watch);
        Self { caller, path: Some(path), verb }
    }

    pub(crate) fn verb(&self) -> Option<Verb> {
        self.verb
    }

    fn namespace(&self) -> Option<&str> {
        self.path.as_ref()?.namespace.as_deref()
    }

    fn name(&self) -> Option<&str> {
        self.path.as_ref()?.name.as_deref()
    }

    /// Whether the object is named in the body only.
    pub(crate) fn lacks_name(&self) -> bool {
        self.verb == Some(Verb::Create) && self.name().is_none()
    }

    /// The same with the name of the object that is to be created, and the request with its body read.
    pub(crate) async fn with_name_of_created(mut self, request: Request<Body>) -> io::Result<(Self, Request<Body>)> {
        #[derive(Deserialize)]
        struct Named {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            name: Option<String>,
        }
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await.map_err(io::Error::other)?;
        if let (Some(path), Ok(named)) = (&mut self.path, serde_json::from_slice::<Named>(&bytes)) {
            path.name = named.metadata.name;
        }
        Ok((self, Request::from_parts(head, Body::from(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;

    use super::*;

    fn facts(method: &str, path: &str) -> Facts {
        let request = Request::builder().method(method).uri(path).body(()).expect("a request");
        Facts::of(&request, Caller::Operator)
    }

    #[test]
    fn requests_are_told_apart() {
        const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
        let key = ObjectKey::new("default", "web");
        let deployments = Requests::of::<Deployment>;
        let status = format!("{DEPLOYMENTS}/web/status");
        for (requests, method, path, chosen) in [
            (Requests::all(), "GET", "/apis", true),
            (Requests::all(), "PATCH", &*status, true),
            (deployments(), "GET", "/apis", false),
            (deployments(), "GET", "/apis/apps/v1/deployments", true),
            (deployments(), "GET", "/apis/apps/v1/replicasets", false),
            (deployments().writes(), "GET", DEPLOYMENTS, false),
            (deployments().writes(), "DELETE", DEPLOYMENTS, true),
            (deployments().reads(), "GET", DEPLOYMENTS, true),
            (Requests::watches_of::<Deployment>(), "GET", DEPLOYMENTS, false),
            (Requests::watches_of::<Deployment>(), "GET", "/apis/apps/v1/deployments?watch=true", true),
            (deployments().subresource("status"), "PATCH", &*status, true),
            (deployments().without_subresources(), "PATCH", &*status, false),
            (deployments().namespace("default"), "POST", DEPLOYMENTS, true),
            (deployments().namespace("default"), "GET", "/apis/apps/v1/deployments", false),
            (deployments().object(&key), "PATCH", &*status, true),
            (deployments().object(&key), "POST", DEPLOYMENTS, false),
        ] {
            assert_eq!(requests.choose(&facts(method, path)), chosen, "{requests}: {method} {path}");
        }
    }

    #[test]
    fn requests_of_the_test_are_chosen_only_when_included() {
        let of = |caller| Facts { caller, ..facts("GET", "/api/v1/pods") };
        assert!(!Requests::all().choose(&of(Caller::Test)));
        assert!(Requests::all().including_test().choose(&of(Caller::Test)));
        assert!(!Requests::all().including_test().choose(&of(Caller::Harness)));
    }
}
