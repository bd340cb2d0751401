// SPDX-License-Identifier: Apache-2.0

//! A pet store on a free port of this machine, served until it is dropped.

use std::net::SocketAddr;

use petstore::service::client::StoreClient;
use petstore::service::inventory::{Cursor, Filter};
use petstore::service::proto::DeletePetsReq;
use petstore::service::proto::pet_store_client::PetStoreClient;
use petstore::service::server::{PetStore, PetStoreServer, ServeError};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) struct Serving {
    pub(crate) addr: SocketAddr,
    pub(crate) store: PetStore,
    shutdown: DropGuard,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Serving {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), PetStore::in_memory()).await
    }

    pub(crate) async fn start_at(addr: SocketAddr, store: PetStore) -> Self {
        let server = PetStoreServer::bind(addr, store).await.unwrap();
        let shutdown = CancellationToken::new();
        Self {
            addr: server.local_addr(),
            store: server.store().clone(),
            task: tokio::spawn(server.serve(shutdown.clone())),
            shutdown: shutdown.drop_guard(),
        }
    }

    /// Stops serving, and returns the address and the store to serve it again.
    pub(crate) async fn stop(self) -> (SocketAddr, PetStore) {
        drop(self.shutdown);
        self.task.await.unwrap().unwrap();
        (self.addr, self.store)
    }

    pub(crate) async fn grpc(&self) -> PetStoreClient<tonic::transport::Channel> {
        PetStoreClient::connect(format!("http://{}", self.addr)).await.unwrap()
    }

    pub(crate) fn client(&self) -> StoreClient {
        StoreClient::connect_lazy(&self.addr.to_string()).unwrap()
    }

    /// Deletes an entry, as others who use the store may.
    pub(crate) async fn delete(&self, id: &str) {
        self.grpc().await.delete_pets(DeletePetsReq { ids: vec![id.to_owned()] }).await.unwrap();
    }

    /// Every pet in the store, by name: name, species and birthday.
    pub(crate) fn pets(&self) -> Vec<String> {
        pets(&self.store)
    }
}

pub(crate) fn pets(store: &PetStore) -> Vec<String> {
    let page = store.with_inventory(|inventory| inventory.search(&Filter::default(), Cursor::default(), usize::MAX));
    let shown = page.pets.iter().map(|pet| {
        let details = &pet.details;
        format!("{} {:?} {}", details.name(), details.species(), details.birthday())
    });
    // In whatever order they were stored.
    let mut shown: Vec<String> = shown.collect();
    shown.sort();
    shown
}
