//! Gives every namespace the ConfigMap `kube-root-ca.crt` with the certificate of the cluster's
//! authority, and sets it right if it is changed or deleted.
//!
//! Mirrors upstream's `pkg/controller/certificates/rootcacertpublisher/publisher.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use windlass::cache::Scope;
use windlass::controller::Watch;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};

use super::namespace::is_active;
use super::service_account::is_expected;

const NAME: &str = "kube-root-ca.crt";
const ANNOTATION: &str = "kubernetes.io/description";
/// Clients compare this text with the real one's.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                           endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                           guaranteed across distributions of Kubernetes clusters.";

pub(super) fn add(manager: &mut Manager, authority: String) -> Result<(), ManagerError> {
    let maps = Watch::<ConfigMap>::default().scope(Scope::default().fields(format!("metadata.name={NAME}")));
    let reconciler = RootCa { data: BTreeMap::from([("ca.crt".to_owned(), authority)]) };
    manager.add(
        Controller::<Namespace>::new("root-ca-certificate-publisher-controller")
            .watches_with(maps, |map: &ConfigMap, _| map.metadata.namespace.as_ref().map(ObjectKey::cluster))
            .concurrency(2)
            .complete(reconciler),
    )
}

struct RootCa {
    data: BTreeMap<String, String>,
}

impl Reconcile<Namespace> for RootCa {
    async fn reconcile(&self, namespace: Arc<Namespace>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&*namespace);
        if !is_active(&namespace) {
            return Ok(Outcome::Done);
        }
        let known = ctx.get::<ConfigMap>(&ObjectKey::new(key.name(), NAME)).await?;
        let mut map = match known {
            None => {
                let mut map = ConfigMap { data: Some(self.data.clone()), ..ConfigMap::default() };
                map.metadata.namespace = Some(key.name().to_owned());
                map.metadata.name = Some(NAME.to_owned());
                map.metadata.annotations = Some(BTreeMap::from([(ANNOTATION.to_owned(), DESCRIPTION.to_owned())]));
                return match ctx.client().create(&map).await {
                    Err(error) if !is_expected(&error) => Err(error.into()),
                    _ => Ok(Outcome::Done),
                };
            }
            Some(map) => ConfigMap::clone(&map),
        };
        let described = map.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
        if map.data.as_ref() == Some(&self.data) && described.is_some_and(|text| !text.is_empty()) {
            return Ok(Outcome::Done);
        }
        map.data = Some(self.data.clone());
        map.metadata.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), DESCRIPTION.to_owned());
        ctx.client().update(&map).await?;
        Ok(Outcome::Done)
    }
}
