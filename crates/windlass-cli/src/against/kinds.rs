//! Where the objects of a kind are on a server, as its discovery says.

use std::collections::HashMap;

use anyhow::Result;
use serde_json::Value;

use super::{is_missing, request};

/// How the objects of a kind are addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The path of the version: `/api/v1`, `/apis/apps/v1`.
    base: String,
    plural: String,
    pub namespaced: bool,
}

impl Place {
    /// The path of all objects, or of those in a namespace.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{}/namespaces/{namespace}/{}", self.base, self.plural),
            None => format!("{}/{}", self.base, self.plural),
        }
    }

    /// The path of one object.
    pub(crate) fn object(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }
}

/// What the server serves, asked once for each version of a group.
pub(crate) struct Kinds {
    client: kube::Client,
    /// By version of a group, then by kind.
    known: HashMap<String, HashMap<String, Place>>,
}

impl Kinds {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client, known: HashMap::new() }
    }

    /// Where objects of a kind are; nothing if the server does not have it.
    pub(crate) async fn place(&mut self, api_version: &str, kind: &str) -> Result<Option<Place>> {
        if let Some(place) = self.known.get(api_version).and_then(|kinds| kinds.get(kind)) {
            return Ok(Some(place.clone()));
        }
        let base = base(api_version);
        let kinds = match self.client.request::<Value>(request("GET", &base, None)?).await {
            Ok(list) => read(&base, &list),
            Err(error) if is_missing(&error) => HashMap::new(),
            Err(error) => return Err(error.into()),
        };
        let place = kinds.get(kind).cloned();
        self.known.insert(api_version.to_owned(), kinds);
        Ok(place)
    }
}

fn base(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

fn read(base: &str, list: &Value) -> HashMap<String, Place> {
    let resources = list["resources"].as_array().into_iter().flatten();
    let whole = resources.filter(|resource| resource["name"].as_str().is_some_and(|name| !name.contains('/')));
    let place = |resource: &Value| {
        let place = Place {
            base: base.to_owned(),
            plural: resource["name"].as_str()?.to_owned(),
            namespaced: resource["namespaced"].as_bool()?,
        };
        Some((resource["kind"].as_str()?.to_owned(), place))
    };
    whole.filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let list = json!({"resources": [
            {"name": "pods", "kind": "Pod", "namespaced": true},
            {"name": "pods/eviction", "kind": "Eviction", "namespaced": true},
            {"name": "nodes", "kind": "Node", "namespaced": false},
        ]});
        let kinds = read(&base("v1"), &list);
        assert_eq!(kinds.len(), 2);
        assert_eq!(kinds["Pod"].object(Some("a"), "b"), "/api/v1/namespaces/a/pods/b");
        assert_eq!(kinds["Pod"].collection(None), "/api/v1/pods");
        assert_eq!(kinds["Node"].object(Some("a"), "b"), "/api/v1/nodes/b");
        assert_eq!(base("apps/v1"), "/apis/apps/v1");
    }
}
