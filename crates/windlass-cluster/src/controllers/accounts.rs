//! The ServiceAccounts of `kube-system` that controllers act as.
//!
//! Requests in their names are made whether or not the accounts are there: they are for people and tools that look for them,
//! bind roles to them, or ask for their tokens. Mirrors `GetOrCreateServiceAccount` in
//! `staging/src/k8s.io/controller-manager/pkg/clientbuilder`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "kube-system";

/// Creates the accounts that are missing, until `stop`.
pub(super) async fn ensure(client: kube::Client, names: BTreeSet<&'static str>, stop: CancellationToken) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, NAMESPACE);
    let create = async {
        for name in names {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let account = ServiceAccount { metadata, ..ServiceAccount::default() };
            match accounts.create(&PostParams::default(), &account).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => tracing::warn!(name, %error, "the account of a controller cannot be created"),
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = create => {}
    }
}
