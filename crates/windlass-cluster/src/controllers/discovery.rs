//! What the server serves now: every kind, in every version, and which version is preferred.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kube::api::ApiResource;
use kube::core::Status;
use serde::Deserialize;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A served resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    /// Group, version, kind and plural.
    pub(crate) resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub(crate) namespaced: bool,
    verbs: Vec<String>,
}

impl Served {
    /// Whether all these verbs are supported.
    pub(crate) fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|known| known == verb))
    }

    /// Whether both describe the same objects. What may be done to them aside, which changes while a kind is deleted.
    pub(crate) fn has_same_objects(&self, other: &Self) -> bool {
        self.resource == other.resource && self.namespaced == other.namespaced
    }

    /// Group, version and plural, as upstream prints a GroupVersionResource.
    pub(crate) fn describe(&self) -> String {
        let ApiResource { group, version, plural, .. } = &self.resource;
        format!("{group}/{version}, Resource={plural}")
    }
}

/// Everything that is served.
#[derive(Debug, Default)]
pub(crate) struct Discovered {
    /// Every resource in the version its group prefers.
    pub(crate) preferred: Vec<Arc<Served>>,
    /// Versions of groups that another server serves and that could not be asked about, as `group/version`.
    pub(crate) stale: Vec<String>,
    /// By apiVersion and kind.
    by_kind: HashMap<(String, String), Arc<Served>>,
}

impl Discovered {
    /// The resource of a kind in exactly this version.
    pub(crate) fn find(&self, api_version: &str, kind: &str) -> Option<&Arc<Served>> {
        self.by_kind.get(&(api_version.to_owned(), kind.to_owned()))
    }

    fn add(&mut self, groups: Groups) {
        for group in groups.items {
            let mut seen = HashSet::new();
            for version in group.versions {
                if version.freshness == "Stale" {
                    self.stale.push(format!("{}/{}", group.metadata.name, version.version));
                }
                for resource in version.resources {
                    let Some(kind) = resource.response_kind else { continue };
                    let name = &group.metadata.name;
                    let api_version = match name.as_str() {
                        "" => version.version.clone(),
                        name => format!("{name}/{}", version.version),
                    };
                    let served = Arc::new(Served {
                        resource: ApiResource {
                            group: name.clone(),
                            version: version.version.clone(),
                            api_version: api_version.clone(),
                            kind: kind.kind.clone(),
                            plural: resource.resource.clone(),
                        },
                        namespaced: resource.scope == "Namespaced",
                        verbs: resource.verbs,
                    });
                    // Versions come in order of preference.
                    if seen.insert(resource.resource) {
                        self.preferred.push(Arc::clone(&served));
                    }
                    self.by_kind.insert((api_version, kind.kind), served);
                }
            }
        }
    }
}

/// Asks the server.
pub(crate) async fn discover(client: &kube::Client) -> Result<Discovered, kube::Error> {
    let mut discovered = Discovered::default();
    for path in ["/api", "/apis"] {
        let request = http::Request::get(path).header(http::header::ACCEPT, AGGREGATED).body(Vec::new());
        let groups = client.request(request.map_err(kube::Error::HttpError)?).await?;
        discovered.add(groups);
    }
    Ok(discovered)
}

/// Whether a server says that it has no object of a name. A server that does not serve the kind, or not any more, says
/// 404 as well, but that means nothing for objects: they may be served again.
pub(crate) fn is_absent(status: &Status, name: &str) -> bool {
    status.is_not_found() && status.details.as_ref().is_some_and(|details| details.name == name)
}

#[derive(Deserialize)]
struct Groups {
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Named,
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize, Default)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
    #[serde(default)]
    resources: Vec<Listed>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    resource: String,
    response_kind: Option<Kind>,
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_404_that_names_the_object_is_about_it() {
        let status = |value| serde_json::from_value::<Status>(value).expect("readable");
        let named = serde_json::json!({"code": 404, "reason": "NotFound", "details": {"name": "a", "kind": "jars"}});
        assert!(is_absent(&status(named.clone()), "a") && !is_absent(&status(named), "b"));
        let unserved = serde_json::json!({"code": 404, "reason": "NotFound", "details": {}});
        assert!(!is_absent(&status(unserved), "a"));
        assert!(!is_absent(&status(serde_json::json!({"code": 404, "message": "404 page not found"})), "a"));
        let conflict = serde_json::json!({"code": 409, "reason": "Conflict", "details": {"name": "a"}});
        assert!(!is_absent(&status(conflict), "a"));
    }

    #[test]
    fn the_first_version_of_a_resource_is_preferred() {
        let resource = |name: &str, kind: &str| {
            serde_json::json!({
                "resource": name, "responseKind": {"group": "", "version": "", "kind": kind},
                "scope": "Namespaced", "verbs": ["delete", "list"],
            })
        };
        let groups = serde_json::json!({"items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v2", "resources": [resource("as", "A")]},
            {"version": "v1", "resources": [resource("as", "A"), resource("bs", "B")], "freshness": "Current"},
            {"version": "v1alpha1", "freshness": "Stale"},
        ]}]});
        let mut discovered = Discovered::default();
        discovered.add(serde_json::from_value(groups).expect("readable"));
        let preferred: Vec<String> = discovered.preferred.iter().map(|served| served.describe()).collect();
        assert_eq!(preferred, ["g/v2, Resource=as", "g/v1, Resource=bs"]);
        assert_eq!(discovered.stale, ["g/v1alpha1"]);
        let old = discovered.find("g/v1", "A").expect("served");
        assert_eq!(old.resource.version, "v1");
        assert!(old.supports(&["list"]) && !old.supports(&["list", "watch"]));
    }
}
