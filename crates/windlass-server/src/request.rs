//! What a request asks for: path and method resolved into a verb on a resource.
//!
//! Pure parsing, no lookup: whether the group, version or resource exists is the catalog's business.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

/// What is done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow changes.
    Watch,
    /// Make an object.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object.
    Patch,
    /// Remove an object.
    Delete,
    /// Remove a collection.
    DeleteCollection,
}

impl Verb {
    /// The verb as authorisation and discovery spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// The verb that is spelt so.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Get, Self::List, Self::Watch, Self::Create, Self::Update, Self::Patch, Self::Delete];
        all.into_iter().chain([Self::DeleteCollection]).find(|verb| verb.as_str() == name)
    }

    /// Whether it may change what is stored.
    pub(crate) const fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A path below `/api/v1` or `/apis/{group}/{version}` that names a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePath {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The namespace, where the path has one.
    pub namespace: Option<String>,
    /// The plural resource.
    pub resource: String,
    /// The object's name, where the path has one.
    pub name: Option<String>,
    /// The subresource, where the path has one.
    pub subresource: Option<String>,
    /// What follows a proxying subresource.
    pub rest: Option<String>,
    /// Whether the deprecated `/watch/` prefix was used.
    pub watch_prefix: bool,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A resource.
    Resource(ResourcePath),
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/{version}` (empty group) or `/apis/{group}/{version}`.
    GroupVersion(String, String),
    /// Everything else.
    Other,
}

/// The path that a URL names.
pub fn decode_path(path: &str) -> Cow<'_, str> {
    percent_decode_str(path).decode_utf8_lossy()
}

impl Target {
    /// Resolves a decoded path. An encoded slash divides as any other does, as in Go.
    pub fn parse(path: &str) -> Self {
        // Only what is proxied may have empty segments.
        if path.split("/proxy/").next().is_some_and(|own| own.contains("//")) {
            return Self::Other;
        }
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        match segments.as_slice() {
            ["api"] => Self::CoreVersions,
            ["api", version] => Self::GroupVersion(String::new(), (*version).to_owned()),
            ["api", version, rest @ ..] => resource("", version, rest),
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).to_owned()),
            ["apis", group, version] => Self::GroupVersion((*group).to_owned(), (*version).to_owned()),
            ["apis", group, version, rest @ ..] => resource(group, version, rest),
            _ => Self::Other,
        }
    }
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Target {
    let (watch_prefix, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    // `/namespaces/x` and its subresources are the namespace itself; anything else below a
    // namespace is a namespaced resource.
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..]
            if !(rest.is_empty() || group.is_empty() && matches!(rest, ["status" | "finalize"])) =>
        {
            (Some((*namespace).to_owned()), rest)
        }
        rest => (None, rest),
    };
    let [resource, rest @ ..] = rest else { return Target::Other };
    let (name, rest) = match rest {
        [] => (None, rest),
        [name, rest @ ..] => (Some((*name).to_owned()), rest),
    };
    let (subresource, rest) = match rest {
        [] => (None, None),
        [sub] => (Some((*sub).to_owned()), None),
        [sub, rest @ ..] => (Some((*sub).to_owned()), Some(rest.join("/"))),
    };
    Target::Resource(ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace,
        resource: (*resource).to_owned(),
        name,
        subresource,
        rest,
        watch_prefix,
    })
}

impl ResourcePath {
    /// The verb a method means on this path; `None` if it means nothing. HEAD reads what GET does, although few
    /// routes take it. What has a name is watched only through the path: elsewhere `watch` is no option of a GET.
    pub fn verb(&self, method: &Method, watch: bool) -> Option<Verb> {
        let named = self.name.is_some();
        Some(match *method {
            _ if self.watch_prefix => Verb::Watch,
            Method::GET | Method::HEAD if watch && !named => Verb::Watch,
            Method::GET | Method::HEAD if named => Verb::Get,
            Method::GET | Method::HEAD => Verb::List,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if named => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            _ => return None,
        })
    }
}

/// A decoded query string. Parameters keep their order; several of one name are allowed.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes a query string.
    pub fn parse(query: Option<&str>) -> Self {
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (decode(k), decode(v))).collect(),
        )
    }

    /// The first value of a parameter; empty values count as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
    }

    /// Whether the parameter is there at all, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(k, _)| k == name)
    }

    /// Every value of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// A parameter as upstream reads booleans: anything but `0`, `false` and absence is true.
    pub fn flag(&self, name: &str) -> Option<bool> {
        let (_, value) = self.0.iter().find(|(k, _)| k == name)?;
        Some(!matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expect: &str) {
        let got = match Target::parse(&decode_path(path)) {
            Target::Resource(r) => format!(
                "{}|{}|{}|{}|{}|{}",
                r.group,
                r.version,
                r.namespace.as_deref().unwrap_or("-"),
                r.resource,
                r.name.as_deref().unwrap_or("-"),
                r.subresource.as_deref().unwrap_or("-")
            ),
            other => format!("{other:?}"),
        };
        assert_eq!(got, expect, "{path}");
    }

    #[test]
    fn paths_resolve() {
        check("/api", "CoreVersions");
        check("/api/", "CoreVersions");
        check("//api/v1/namespaces", "Other");
        check("/api//v1/namespaces", "Other");
        check("/api/v1/namespaces/a/pods/p%2flog", "|v1|a|pods|p|log");
        check("/api/v1/namespaces/a/services/s/proxy/x//y", "|v1|a|services|s|proxy");
        check("/apis/apps/v1", r#"GroupVersion("apps", "v1")"#);
        check("/api/v1/namespaces", "|v1|-|namespaces|-|-");
        check("/api/v1/namespaces/a", "|v1|-|namespaces|a|-");
        check("/api/v1/namespaces/a/status", "|v1|-|namespaces|a|status");
        check("/api/v1/namespaces/a/finalize", "|v1|-|namespaces|a|finalize");
        check("/api/v1/namespaces/a/pods", "|v1|a|pods|-|-");
        check("/api/v1/namespaces/a/pods/p/log", "|v1|a|pods|p|log");
        check("/apis/apps/v1/namespaces/a/deployments/d/scale", "apps|v1|a|deployments|d|scale");
        check("/api/v1/nodes/a%2Fb", "|v1|-|nodes|a|b");
        check("/healthz", "Other");
    }

    #[test]
    fn methods_are_verbs() {
        let verb = |method: &Method, path: &str, watch: bool| match Target::parse(path) {
            Target::Resource(path) => path.verb(method, watch),
            other => panic!("{other:?}"),
        };
        for method in [&Method::GET, &Method::HEAD] {
            assert_eq!(verb(method, "/api/v1/pods", false), Some(Verb::List), "{method}");
            assert_eq!(verb(method, "/api/v1/pods", true), Some(Verb::Watch), "{method}");
            assert_eq!(verb(method, "/api/v1/watch/pods", false), Some(Verb::Watch), "{method}");
            assert_eq!(verb(method, "/api/v1/watch/nodes/a", false), Some(Verb::Watch), "{method}");
            assert_eq!(verb(method, "/api/v1/nodes/a", false), Some(Verb::Get), "{method}");
            assert_eq!(verb(method, "/api/v1/nodes/a", true), Some(Verb::Get), "{method}");
        }
        assert_eq!(verb(&Method::POST, "/api/v1/watch/nodes", false), Some(Verb::Watch));
        assert_eq!(verb(&Method::OPTIONS, "/api/v1/nodes/a/proxy", false), None);
        assert_eq!(verb(&Method::DELETE, "/api/v1/nodes", false), Some(Verb::DeleteCollection));
    }

    #[test]
    fn queries_decode() {
        let query = Query::parse(Some("labelSelector=a%3Db&watch&limit=5&x=1+2"));
        assert_eq!(query.get("labelSelector"), Some("a=b"));
        assert_eq!(query.get("x"), Some("1 2"));
        assert_eq!(query.flag("watch"), Some(true));
        assert!(query.has("watch") && query.get("watch").is_none());
    }
}
