// SPDX-License-Identifier: Apache-2.0

//! The pet store as a gRPC server.
//!
//! [`PetStore`] is the service: it checks messages, asks the [`Inventory`] and answers. It is a cheap handle; clones share
//! one inventory, so an embedder can look into the store that its server serves, and can serve the same store again after
//! a stop.
//!
//! What always holds: nothing is answered, and nothing is found by a search, before the database has it.
//!
//! [`PetStoreServer`] binds first and serves later, so that a port of 0 is known before the first request and a taken port
//! is reported before anything runs.

use std::{
    fmt, io,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{Stream, stream};
use parking_lot::Mutex;
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Request, Response, Status, metadata::MetadataMap};
use tracing::{error, info, info_span};

use super::{
    database::{Database, DatabaseError},
    inventory::{Changes, Cursor, Filter, Inventory, Page},
    message,
    proto::{self, pet_store_server},
    sampler::Sampler,
};

/// The metadata that makes a call of AddPets repeatable.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// How many pets a search takes from the inventory at a time. The inventory is unlocked between two pages, and one page
/// per search is all that a slow reader makes the server hold.
const PAGE: usize = 256;

/// How long requests may go on after the server was told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// The pet store: an inventory, the database that keeps it, and the sampler of requests.
#[derive(Clone, Debug)]
pub struct PetStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inventory: Mutex<Inventory>,
    /// Locked for the whole of a write, so that a write is planned on what the one before it has left.
    writer: tokio::sync::Mutex<Database>,
    sampler: Mutex<Sampler>,
}

impl PetStore {
    /// An empty store that is gone with its process.
    pub fn in_memory() -> Self {
        Self::new(Database::in_memory(), Inventory::default())
    }

    /// The store whose pets are in a directory. What it has answered survives `kill -9`.
    pub async fn open(directory: &Path) -> Result<Self, DatabaseError> {
        let database = Database::open(directory)?;
        let inventory = database.load().await?;
        Ok(Self::new(database, inventory))
    }

    fn new(database: Database, inventory: Inventory) -> Self {
        let writer = tokio::sync::Mutex::new(database);
        Self { shared: Arc::new(Shared { inventory: Mutex::new(inventory), writer, sampler: Mutex::default() }) }
    }

    /// Calls `work` with the inventory, which is locked meanwhile.
    pub fn with_inventory<R>(&self, work: impl FnOnce(&Inventory) -> R) -> R {
        work(&self.shared.inventory.lock())
    }

    /// Changes the inventory: `plan` says how.
    ///
    /// A task of its own does the work. A client that goes away in the middle of its request could otherwise leave the
    /// database with changes that the inventory does not have.
    async fn write<R, P>(&self, plan: P) -> Result<R, Status>
    where
        P: FnOnce(&Inventory) -> Result<(R, Changes), Status> + Send + 'static,
        R: Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let written = tokio::spawn(async move {
            let database = shared.writer.lock().await;
            let (answer, changes) = plan(&shared.inventory.lock())?;
            if !changes.is_empty() {
                database.write(&changes).await.map_err(internal)?;
                shared.inventory.lock().apply(changes);
            }
            Ok(answer)
        });
        written.await.map_err(internal)?
    }

    /// Changes which requests are traced from now on.
    pub fn set_sampler(&self, sampler: Sampler) {
        *self.shared.sampler.lock() = sampler;
    }

    /// Which requests are traced.
    pub fn sampler(&self) -> Sampler {
        *self.shared.sampler.lock()
    }

    /// Does the work of one request, and traces it if the sampler picks it.
    async fn traced<T, R>(
        &self,
        rpc: &'static str,
        request: Request<T>,
        work: impl AsyncFnOnce(Request<T>) -> Result<R, Status>,
    ) -> Result<Response<R>, Status> {
        if !self.sampler().picks(fastrand::f64()) {
            return work(request).await.map(Response::new);
        }
        let span = info_span!("request", rpc, peer = request.remote_addr().map(tracing::field::display));
        let started = Instant::now();
        let result = work(request).await;
        let code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
        info!(parent: &span, ?code, elapsed = ?started.elapsed(), "request served");
        result.map(Response::new)
    }

    fn page(&self, filter: &Filter, from: Cursor) -> Page {
        self.with_inventory(|inventory| inventory.search(filter, from, PAGE))
    }

    /// Streams the whole result of a search, a page at a time.
    fn found(self, filter: Filter) -> impl Stream<Item = Result<proto::Pet, Status>> + Send {
        let first = self.page(&filter, Cursor::default());
        stream::unfold(
            (self, filter, first.next, first.pets.into_iter()),
            |(store, filter, mut next, mut pets)| async move {
                let pet = match (pets.next(), next) {
                    (Some(pet), _) => pet,
                    (None, None) => return None,
                    (None, Some(from)) => {
                        let page = store.page(&filter, from);
                        next = page.next;
                        pets = page.pets.into_iter();
                        pets.next()?
                    }
                };
                Some((Ok(pet.into()), (store, filter, next, pets)))
            },
        )
    }
}

#[tonic::async_trait]
impl pet_store_server::PetStore for PetStore {
    async fn add_pets(&self, request: Request<proto::AddPetsReq>) -> Result<Response<proto::AddPetsResp>, Status> {
        let answer = self.traced("AddPets", request, async |request| {
            let key = idempotency_key(request.metadata())?;
            let pets = request.into_inner().pets;
            let ids = self.write(move |inventory| add(inventory, pets, key.as_deref())).await?;
            Ok(proto::AddPetsResp { ids })
        });
        answer.await
    }

    async fn update_pets(
        &self,
        request: Request<proto::UpdatePetsReq>,
    ) -> Result<Response<proto::UpdatePetsResp>, Status> {
        let answer = self.traced("UpdatePets", request, async |request| {
            let pets = checked(request.into_inner().pets, message::changed_pet)?;
            self.write(|inventory| match inventory.update(pets) {
                Ok(changes) => Ok((proto::UpdatePetsResp {}, changes)),
                Err(unknown) => Err(Status::not_found(unknown.to_string())),
            })
            .await
        });
        answer.await
    }

    async fn delete_pets(
        &self,
        request: Request<proto::DeletePetsReq>,
    ) -> Result<Response<proto::DeletePetsResp>, Status> {
        let answer = self.traced("DeletePets", request, async |request| {
            let ids = request.into_inner().ids;
            let delete = move |inventory: &Inventory| inventory.delete(ids.iter().map(String::as_str));
            self.write(move |inventory| Ok((proto::DeletePetsResp {}, delete(inventory)))).await
        });
        answer.await
    }

    type SearchPetsStream = stream::BoxStream<'static, Result<proto::Pet, Status>>;

    async fn search_pets(
        &self,
        request: Request<proto::SearchPetsReq>,
    ) -> Result<Response<Self::SearchPetsStream>, Status> {
        let answer = self.traced("SearchPets", request, async |request| {
            let filter = message::filter(request.into_inner()).map_err(invalid_argument)?;
            Ok(Box::pin(self.clone().found(filter)) as _)
        });
        answer.await
    }

    async fn change_sampler(
        &self,
        request: Request<proto::ChangeSamplerReq>,
    ) -> Result<Response<proto::ChangeSamplerResp>, Status> {
        let answer = self.traced("ChangeSampler", request, async |request| {
            let sampler = Sampler::try_from(request.into_inner()).map_err(invalid_argument)?;
            self.set_sampler(sampler);
            Ok(proto::ChangeSamplerResp {})
        });
        answer.await
    }
}

/// Adds pets, unless this is a repeated call.
fn add(inventory: &Inventory, pets: Vec<proto::Pet>, key: Option<&str>) -> Result<(Vec<String>, Changes), Status> {
    // A repeated call is answered before its pets are looked at: what the first call added is in the store, whatever the
    // caller would add today.
    if let Some(ids) = key.and_then(|key| inventory.added_under(key)) {
        return Ok((ids.to_vec(), Changes::default()));
    }
    let pets = checked(pets, message::new_pet)?;
    Ok(inventory.add(pets, key))
}

/// The checked pets of a message, if all of them are valid.
fn checked<T>(
    pets: Vec<proto::Pet>,
    check: impl FnMut(proto::Pet) -> Result<T, message::Invalid>,
) -> Result<Vec<T>, Status> {
    pets.into_iter().map(check).collect::<Result<_, _>>().map_err(invalid_argument)
}

fn invalid_argument(reason: impl fmt::Display) -> Status {
    Status::invalid_argument(reason.to_string())
}

/// What went wrong is for the log; a caller can do nothing with it.
fn internal(error: impl std::error::Error + 'static) -> Status {
    error!(error = &error as &dyn std::error::Error, "request failed");
    Status::internal(error.to_string())
}

fn idempotency_key(metadata: &MetadataMap) -> Result<Option<String>, Status> {
    let Some(key) = metadata.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    match key.to_str() {
        Ok(key) if !key.is_empty() => Ok(Some(key.to_owned())),
        _ => Err(invalid_argument("the idempotency-key is not a text")),
    }
}

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The transport failed.
    #[error("the pet store's transport failed")]
    Transport(#[from] tonic::transport::Error),
    /// The descriptors compiled into this crate cannot be served over reflection.
    #[error("the pet store cannot describe itself")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A pet store that listens, but does not serve before [`serve`](Self::serve) is called.
#[derive(Debug)]
#[must_use = "a bound server does nothing until `serve` is awaited"]
pub struct PetStoreServer {
    store: PetStore,
    listener: TcpListener,
    local_addr: SocketAddr,
}

impl PetStoreServer {
    /// Listens on `addr` on behalf of `store`.
    pub async fn bind(addr: impl ToSocketAddrs, store: PetStore) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let local_addr = listener.local_addr()?;
        Ok(Self { store, listener, local_addr })
    }

    /// Where the server listens: the port that was picked, if it was bound to port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The store that is served.
    pub fn store(&self) -> &PetStore {
        &self.store
    }

    /// Serves in a task of its own until what is returned is dropped.
    #[must_use = "the server stops when this is dropped"]
    pub fn spawn(self) -> DropGuard {
        let shutdown = CancellationToken::new();
        tokio::spawn(self.serve(shutdown.clone()));
        shutdown.drop_guard()
    }

    /// Serves until `shutdown` is cancelled, and then until the requests under way are answered,
    /// for ten seconds at most.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let serving = tonic::transport::Server::builder()
            .add_service(reflection)
            .add_service(pet_store_server::PetStoreServer::new(self.store))
            .serve_with_incoming_shutdown(TcpListenerStream::new(self.listener), shutdown.cancelled());
        let too_late = async {
            shutdown.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        // The port is free at once, and new requests are refused. A reader that stalls in the
        // middle of a search may keep its connection beyond this point, until the runtime ends.
        tokio::select! {
            served = serving => Ok(served?),
            () = too_late => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use pet_store_server::PetStore as _;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[tokio::test]
    async fn only_sampled_requests_are_traced() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
        let _guard = tracing::subscriber::set_default(subscriber);

        let store = PetStore::in_memory();
        for (sampler, traces) in
            [(Sampler::Never, 0), (Sampler::Always, 1), (Sampler::Fraction(0.0), 1), (Sampler::Fraction(1.0), 2)]
        {
            store.set_sampler(sampler);
            let request = proto::UpdatePetsReq { pets: vec![proto::Pet::default()] };
            store.update_pets(Request::new(request)).await.unwrap_err();
            let text = String::from_utf8(log.0.lock().clone()).unwrap();
            assert_eq!(text.matches("request served").count(), traces, "{text}");
            assert_eq!(text.matches("rpc=\"UpdatePets\"").count(), traces, "{text}");
            assert_eq!(text.matches("code=InvalidArgument").count(), traces);
        }
    }
}
