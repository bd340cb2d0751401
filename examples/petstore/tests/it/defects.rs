// SPDX-License-Identifier: Apache-2.0

//! What was wrong with the well-known pet store operator in Go, and with its pet store: a test for each defect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::{self, BoxStream, StreamExt as _};
use petstore::controller::pet::{ADDED, UPDATED};
use petstore::service::client::{StoreClient, StoreError};
use petstore::service::inventory::{self, Details};
use petstore::service::proto::pet_store_server::{self, PetStoreServer};
use petstore::service::proto::{self, AddPetsReq, PetType, SearchPetsReq, UpdatePetsReq};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Request, Response, Status};
use windlass_testing::{Env, Running};

use petstore_api::v1beta1::{Pet, Species};

use crate::pet::{pet, synced, thor};
use crate::serving::Serving;
use crate::{TIMING, install, start_again};

fn proto_pet(id: &str, name: &str, r#type: PetType) -> proto::Pet {
    let birthday = Some(proto::Date { year: 2021, month: 4, day: 1 });
    proto::Pet { id: id.to_owned(), name: name.to_owned(), r#type: r#type.into(), birthday }
}

/// It searched for the name and type of a Pet: after a change of either it found nothing, and added a second entry.
#[windlass_testing::test(setup = crate::start)]
async fn a_renamed_or_retyped_pet_is_added_twice(env: Env, (serving, _operator): (Serving, Running)) {
    env.create(thor()).await;
    let id = synced(&env, "thor").await.entry_id().map(str::to_owned);
    env.modify::<Pet>("thor", |pet| pet.spec.name = "Thorbert".into()).await;
    assert_eq!(synced(&env, "thor").await.entry_id().map(str::to_owned), id);
    env.modify::<Pet>("thor", |pet| pet.spec.species = Species::Cat).await;
    assert_eq!(synced(&env, "thor").await.entry_id().map(str::to_owned), id);
    assert_eq!(serving.pets(), ["Thorbert Feline 2021-04-01"]);
    env.delete::<Pet>("thor").await;
    env.wait_gone::<Pet>("thor").await;
    assert!(serving.pets().is_empty(), "and the first entry stayed for ever");
}

/// UpdatePets left the old name, type and birthday in the indexes of the store.
#[tokio::test]
async fn an_update_leaves_stale_index_entries() {
    let serving = Serving::start().await;
    let mut client = serving.grpc().await;
    let pets = vec![proto_pet("", "Thor", PetType::PtCanine)];
    let id = client.add_pets(AddPetsReq { pets }).await.unwrap().into_inner().ids.remove(0);
    let mut changed = proto_pet(&id, "Thorbert", PetType::PtBird);
    changed.birthday = Some(proto::Date { year: 2020, month: 2, day: 29 });
    client.update_pets(UpdatePetsReq { pets: vec![changed] }).await.unwrap();

    let day = |year, month, day| Some(proto::Date { year, month, day });
    let born = |start, end| Some(proto::DateRange { start, end });
    let all = SearchPetsReq::default;
    for (search, found) in [
        (SearchPetsReq { names: vec!["Thor".into()], ..all() }, 0),
        (SearchPetsReq { names: vec!["Thorbert".into()], ..all() }, 1),
        (SearchPetsReq { types: vec![PetType::PtCanine.into()], ..all() }, 0),
        (SearchPetsReq { types: vec![PetType::PtBird.into()], ..all() }, 1),
        (SearchPetsReq { birthdate_range: born(day(2021, 4, 1), day(2021, 4, 2)), ..all() }, 0),
        (SearchPetsReq { birthdate_range: born(day(2020, 2, 29), day(2020, 3, 1)), ..all() }, 1),
    ] {
        let stream = client.search_pets(search.clone()).await.unwrap().into_inner();
        assert_eq!(stream.count().await, found, "{search:?}");
    }
}

/// AddPets and UpdatePets kept a lock after an error, and the next writer waited for ever.
#[tokio::test]
async fn a_refused_write_keeps_the_lock() {
    let serving = Serving::start().await;
    let mut client = serving.grpc().await;
    for _ in 0..10 {
        let pets = vec![proto_pet("", "  ", PetType::PtCanine)];
        let refused = client.add_pets(AddPetsReq { pets }).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let pets = vec![proto_pet("unknown", "Thor", PetType::PtCanine)];
        let refused = client.update_pets(UpdatePetsReq { pets }).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
    }
    let pets = vec![proto_pet("", "Thor", PetType::PtCanine)];
    client.add_pets(AddPetsReq { pets }).await.unwrap();
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
}

/// Each reconcile opened a connection, and none was closed.
#[windlass_testing::test]
async fn every_reconcile_opens_a_connection(env: Env) {
    install(&env).await;
    let serving = Serving::start().await;
    let entrance = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = entrance.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let (counted, target) = (Arc::clone(&connections), serving.addr);
    let _proxy = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((mut client, _)) = entrance.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(target).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    }));
    start_again(&env, StoreClient::connect_lazy(&addr.to_string()).unwrap(), TIMING).await;
    for number in 0..10 {
        env.create(pet(&format!("pet-{number}"), "Thor", Species::Dog, "2021-04-01")).await;
    }
    for number in 0..10 {
        synced(&env, &format!("pet-{number}")).await;
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

/// It logged "psPet was not nil" when there was none, so its log said the opposite of what it did.
#[windlass_testing::test(setup = crate::start)]
async fn the_log_says_the_opposite_of_what_was_done(env: Env, (_serving, _operator): (Serving, Running)) {
    env.create(thor()).await;
    let thor = synced(&env, "thor").await;
    env.wait_for_event(&thor, ADDED).await;
    env.modify::<Pet>("thor", |pet| pet.spec.name = "Thorbert".into()).await;
    synced(&env, "thor").await;
    env.wait_for_event(&thor, UPDATED).await;
    let events = env.events().await;
    let told: Vec<&str> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert_eq!(told, [ADDED, UPDATED]);
}

/// A store whose searches break after the first pet.
struct Broken;

#[tonic::async_trait]
impl pet_store_server::PetStore for Broken {
    type SearchPetsStream = BoxStream<'static, Result<proto::Pet, Status>>;

    async fn search_pets(&self, _: Request<SearchPetsReq>) -> Result<Response<Self::SearchPetsStream>, Status> {
        let pets = [Ok(proto_pet("other", "Thor", PetType::PtCanine)), Err(Status::data_loss("the disk is gone"))];
        Ok(Response::new(stream::iter(pets).boxed()))
    }

    async fn add_pets(&self, _: Request<AddPetsReq>) -> Result<Response<proto::AddPetsResp>, Status> {
        Err(Status::unimplemented("no additions"))
    }

    async fn update_pets(&self, _: Request<UpdatePetsReq>) -> Result<Response<proto::UpdatePetsResp>, Status> {
        Err(Status::unimplemented("no updates"))
    }

    async fn delete_pets(&self, _: Request<proto::DeletePetsReq>) -> Result<Response<proto::DeletePetsResp>, Status> {
        Err(Status::unimplemented("no deletions"))
    }

    async fn change_sampler(
        &self,
        _: Request<proto::ChangeSamplerReq>,
    ) -> Result<Response<proto::ChangeSamplerResp>, Status> {
        Err(Status::unimplemented("no sampler"))
    }
}

/// When a search broke, it reported another error, which was none.
#[tokio::test]
async fn a_broken_search_reports_the_wrong_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = StoreClient::connect_lazy(&listener.local_addr().unwrap().to_string()).unwrap();
    let server = tonic::transport::Server::builder().add_service(PetStoreServer::new(Broken));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let details = Details::new("Thor", inventory::Species::Canine, "2021-04-01".parse().unwrap()).unwrap();
    let error = client.ensure(Some("1234"), &details, "key").await.unwrap_err();
    assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
    assert_eq!(error.to_string(), "the pet store failed: the disk is gone");
}
