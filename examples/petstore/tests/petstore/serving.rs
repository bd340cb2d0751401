//! A pet store on a free port of this machine, served for the length of a test.

use std::net::SocketAddr;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass_petstore::{
    client::StoreClient,
    proto::pet_store_client::PetStoreClient,
    server::{PetStore, PetStoreServer, ServeError},
};

pub(crate) struct Serving {
    pub(crate) addr: SocketAddr,
    pub(crate) store: PetStore,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Serving {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), PetStore::new()).await
    }

    pub(crate) async fn start_at(addr: SocketAddr, store: PetStore) -> Self {
        let server = PetStoreServer::bind_store(addr, store).await.unwrap();
        let shutdown = CancellationToken::new();
        Self {
            addr: server.local_addr(),
            store: server.store().clone(),
            task: tokio::spawn(server.serve(shutdown.clone())),
            shutdown,
        }
    }

    /// Stops serving, and returns the address and the store to serve it again.
    pub(crate) async fn stop(self) -> (SocketAddr, PetStore) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
        (self.addr, self.store)
    }

    pub(crate) async fn grpc(&self) -> PetStoreClient<tonic::transport::Channel> {
        PetStoreClient::connect(format!("http://{}", self.addr)).await.unwrap()
    }

    pub(crate) fn client(&self) -> StoreClient {
        StoreClient::connect_lazy(&self.addr.to_string()).unwrap()
    }

    /// Every pet in the store, by name: name, type and birthday.
    pub(crate) fn pets(&self) -> Vec<String> {
        pets(&self.store)
    }
}

pub(crate) fn pets(store: &PetStore) -> Vec<String> {
    let page = store.with_inventory(|inventory| {
        inventory.search(
            &windlass_petstore::store::Filter::default(),
            windlass_petstore::store::Cursor::default(),
            usize::MAX,
        )
    });
    let shown = page.pets.iter().map(|pet| {
        let details = &pet.details;
        format!("{} {:?} {}", details.name(), details.species(), details.birthday())
    });
    // Whichever was stored first.
    let mut shown: Vec<String> = shown.collect();
    shown.sort();
    shown
}
