//! The ConfigMaps and Secrets that pods refer to. They are read in the name of the node whose pod needs them first, and
//! kept for a minute, as long as a kubelet does, for all nodes of the agent.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::api::{Api, path};
use crate::volumes::{Found, Reference};

const KEPT_FOR: Duration = Duration::from_secs(60);
/// How many objects are kept of each kind; when there are more, all are forgotten.
const KEPT: usize = 1024;

/// See the [module documentation](self).
#[derive(Default)]
pub(super) struct Sources {
    maps: Kept<ConfigMap>,
    secrets: Kept<Secret>,
}

/// Objects by namespace and name.
type Place = (String, String);

struct Kept<T> {
    objects: Mutex<HashMap<Place, (Instant, Arc<T>)>>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { objects: Mutex::default() }
    }
}

impl<T: DeserializeOwned> Kept<T> {
    async fn get(
        &self,
        api: &Api,
        node: &Arc<str>,
        namespace: &str,
        resource: &str,
        name: &str,
    ) -> Result<Option<Arc<T>>, kube::Error> {
        let place = (namespace.to_owned(), name.to_owned());
        let now = Instant::now();
        let fresh = |(at, object): &(Instant, Arc<T>)| (now.duration_since(*at) < KEPT_FOR).then(|| Arc::clone(object));
        if let Some(object) = self.objects.lock().get(&place).and_then(fresh) {
            return Ok(Some(object));
        }
        let Some(path) = path(namespace, resource, name) else { return Ok(None) };
        let Some(object) = api.get::<T>(node, &path).await? else { return Ok(None) };
        let object = Arc::new(object);
        let mut objects = self.objects.lock();
        if objects.len() >= KEPT {
            objects.clear();
        }
        objects.insert(place, (now, Arc::clone(&object)));
        Ok(Some(object))
    }
}

impl Sources {
    /// Reads an object again the next time.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        let place: Place = (namespace.to_owned(), name.to_owned());
        self.maps.objects.lock().remove(&place);
        self.secrets.objects.lock().remove(&place);
    }

    /// Reads what a pod refers to.
    pub(super) async fn find(
        &self,
        api: &Api,
        node: &Arc<str>,
        namespace: &str,
        references: &BTreeSet<Reference>,
    ) -> Result<Found, kube::Error> {
        let mut found = Found::default();
        for reference in references {
            match reference {
                Reference::ConfigMap(name) => {
                    let map = self.maps.get(api, node, namespace, "configmaps", name).await?;
                    found.maps.extend(map.map(|map| (name.clone(), map)));
                }
                Reference::Secret(name) => {
                    let secret = self.secrets.get(api, node, namespace, "secrets", name).await?;
                    found.secrets.extend(secret.map(|secret| (name.clone(), secret)));
                }
            }
        }
        Ok(found)
    }
}
