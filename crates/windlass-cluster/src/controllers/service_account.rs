//! Gives every active namespace the ServiceAccount `default`, again if it is deleted.
//!
//! Mirrors upstream's `pkg/controller/serviceaccount/serviceaccounts_controller.go`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::PartialObjectMeta;
use windlass::cache::Scope;
use windlass::client::ClientError;
use windlass::controller::Watch;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};

use super::namespace::{is_active, is_terminating};

const NAME: &str = "default";

type Account = PartialObjectMeta<ServiceAccount>;

pub(super) fn add(manager: &mut Manager) -> Result<(), ManagerError> {
    let accounts = Watch::<Account>::default().scope(Scope::default().fields(format!("metadata.name={NAME}")));
    manager.add(
        Controller::<Namespace>::new("serviceaccount-controller")
            .watches_with(accounts, |account: &Account, _| account.metadata.namespace.as_ref().map(ObjectKey::cluster))
            .concurrency(2)
            .complete(ServiceAccounts),
    )
}

struct ServiceAccounts;

impl Reconcile<Namespace> for ServiceAccounts {
    async fn reconcile(&self, namespace: Arc<Namespace>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&*namespace);
        let account = ObjectKey::new(key.name(), NAME);
        if !is_active(&namespace) || ctx.get::<Account>(&account).await?.is_some() {
            return Ok(Outcome::Done);
        }
        let mut account = ServiceAccount::default();
        account.metadata.namespace = Some(key.name().to_owned());
        account.metadata.name = Some(NAME.to_owned());
        match ctx.client().create(&account).await {
            Err(error) if !is_expected(&error) => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }
}

/// Whether a create failed for a reason that trying again cannot and need not help: the object is
/// there, or its namespace is on its way out.
pub(super) fn is_expected(error: &ClientError) -> bool {
    error.is_already_exists() || error.is_not_found() || is_terminating(error)
}
