// SPDX-License-Identifier: Apache-2.0

//! Clients, listers and informers of the kinds of ippool, behind the feature `client` of this package: for
//! programs that use the kinds and are not their operator.
//!
//! | in Go | here |
//! |---|---|
//! | client-gen: a `Clientset` | `Clientset`, whose methods return [`kube::Api`] |
//! | lister-gen: a `Lister` for each kind | `lister()` of an informer: [`windlass::cache::Lister`] |
//! | informer-gen: a `SharedInformerFactory` | `Informers`, with a [`windlass::informer::InformerFactory`] |
//!
//! ```no_run
//! use ippool_api::client::{Clientset, Informers};
//! use windlass::informer::InformerFactory;
//!
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let objects = Clientset::new(client.clone()).v1alpha1_ipallocations();
//! println!("{} on the server", objects.list(&Default::default()).await?.items.len());
//!
//! let factory = InformerFactory::new(client);
//! let lister = Informers::new(factory.clone()).v1alpha1_ipallocations().lister();
//! factory.start();
//! factory.wait_synced().await?;
//! println!("{} in the cache", lister.len());
//! # Ok(()) }
//! ```

use kube::{Api, Client};
use windlass::informer::{Informer, InformerFactory};

use crate::v1alpha1;

/// Clients of all kinds.
#[derive(Clone)]
pub struct Clientset {
    client: Client,
}

impl Clientset {
    /// Clients that send their requests with this one.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Objects of the kind IPAllocation, version v1alpha1.
    pub fn v1alpha1_ipallocations(&self) -> Api<v1alpha1::IPAllocation> {
        Api::all(self.client.clone())
    }

    /// Objects of the kind IPClaim, version v1alpha1, in a namespace.
    pub fn v1alpha1_ipclaims(&self, namespace: &str) -> Api<v1alpha1::IPClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Objects of the kind IPClaim, version v1alpha1, in all namespaces.
    pub fn all_v1alpha1_ipclaims(&self) -> Api<v1alpha1::IPClaim> {
        Api::all(self.client.clone())
    }

    /// Objects of the kind IPPool, version v1alpha1.
    pub fn v1alpha1_ippools(&self) -> Api<v1alpha1::IPPool> {
        Api::all(self.client.clone())
    }
}

/// Informers of all kinds. Those of the same factory share watches and caches.
#[derive(Clone, Debug)]
pub struct Informers {
    factory: InformerFactory,
}

impl Informers {
    /// Informers of this factory, which starts and stops them.
    pub fn new(factory: InformerFactory) -> Self {
        Self { factory }
    }

    /// The informer of the kind IPAllocation, version v1alpha1; its `lister()` reads from the cache.
    pub fn v1alpha1_ipallocations(&self) -> Informer<v1alpha1::IPAllocation> {
        self.factory.informer()
    }

    /// The informer of the kind IPClaim, version v1alpha1; its `lister()` reads from the cache.
    pub fn v1alpha1_ipclaims(&self) -> Informer<v1alpha1::IPClaim> {
        self.factory.informer()
    }

    /// The informer of the kind IPPool, version v1alpha1; its `lister()` reads from the cache.
    pub fn v1alpha1_ippools(&self) -> Informer<v1alpha1::IPPool> {
        self.factory.informer()
    }
}
