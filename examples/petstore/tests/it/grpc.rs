// SPDX-License-Identifier: Apache-2.0

//! The gRPC service, as any client sees it.

use petstore::service::proto::{
    self, AddPetsReq, ChangeSamplerReq, Date, DateRange, DeletePetsReq, Pet, PetType, SearchPetsReq, UpdatePetsReq,
};
use petstore::service::sampler::Sampler;
use petstore::service::server::IDEMPOTENCY_KEY;
use tonic::{Code, Request, Status};

use crate::serving::Serving;

type Client = proto::pet_store_client::PetStoreClient<tonic::transport::Channel>;

fn pet(name: &str, pet_type: PetType, (year, month, day): (i32, i32, i32)) -> Pet {
    Pet { id: String::new(), name: name.into(), r#type: pet_type.into(), birthday: Some(Date { year, month, day }) }
}

fn thor() -> Pet {
    pet("Thor", PetType::PtCanine, (2021, 4, 1))
}

fn tron() -> Pet {
    pet("Tron", PetType::PtFeline, (2020, 6, 25))
}

async fn add(client: &mut Client, pets: Vec<Pet>) -> Result<Vec<String>, Status> {
    let response = client.add_pets(AddPetsReq { pets }).await?;
    Ok(response.into_inner().ids)
}

async fn search(client: &mut Client, request: SearchPetsReq) -> Result<Vec<Pet>, Status> {
    let mut stream = client.search_pets(request).await?.into_inner();
    let mut pets = Vec::new();
    while let Some(pet) = stream.message().await? {
        pets.push(pet);
    }
    Ok(pets)
}

#[tokio::test]
async fn pets_are_added_found_updated_and_deleted() {
    let serving = Serving::start().await;
    let mut client = serving.grpc().await;

    let ids = add(&mut client, vec![thor(), tron()]).await.unwrap();
    let thor = Pet { id: ids[0].clone(), ..thor() };
    let tron = Pet { id: ids[1].clone(), ..tron() };
    let all = || SearchPetsReq::default();
    assert_eq!(search(&mut client, all()).await.unwrap(), [thor.clone(), tron.clone()]);

    let thorbert = Pet { name: "Thorbert".into(), r#type: PetType::PtBird.into(), ..thor };
    let pets = vec![thorbert.clone()];
    client.update_pets(UpdatePetsReq { pets }).await.unwrap();
    assert_eq!(search(&mut client, all()).await.unwrap(), [thorbert.clone(), tron.clone()]);
    let old_name = SearchPetsReq { names: vec!["Thor".into()], ..all() };
    assert_eq!(search(&mut client, old_name).await.unwrap(), []);

    let ids = vec!["unknown".into(), thorbert.id];
    client.delete_pets(DeletePetsReq { ids }).await.unwrap();
    assert_eq!(search(&mut client, all()).await.unwrap(), [tron]);
    serving.stop().await;
}

#[tokio::test]
async fn a_search_joins_its_filters_with_and() {
    let serving = Serving::start().await;
    let mut client = serving.grpc().await;
    let namesake = pet("Thor", PetType::PtFeline, (2020, 6, 25));
    add(&mut client, vec![thor(), tron(), namesake]).await.unwrap();

    let day = |day| Some(Date { year: 2020, month: 6, day });
    let mut request = SearchPetsReq {
        names: vec!["Thor".into()],
        types: vec![PetType::PtFeline.into(), PetType::PtCanine.into()],
        birthdate_range: Some(DateRange { start: day(25), end: day(26) }),
    };
    let found = search(&mut client, request.clone()).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].r#type(), PetType::PtFeline);

    // The end of the range is not part of it.
    request.birthdate_range = Some(DateRange { start: day(1), end: day(25) });
    assert_eq!(search(&mut client, request).await.unwrap(), []);
    serving.stop().await;
}

#[tokio::test]
async fn a_search_streams_more_than_one_page() {
    let serving = Serving::start().await;
    let mut client = serving.grpc().await;
    let pets = (0..1000).map(|number| Pet { name: format!("pet {number}"), ..thor() }).collect();
    let ids = add(&mut client, pets).await.unwrap();
    let found = search(&mut client, SearchPetsReq::default()).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|pet| pet.id).collect();
    assert_eq!(found, ids);
    serving.stop().await;
}

#[tokio::test]
async fn an_invalid_pet_adds_nothing() {
    let serving = Serving::start().await;
    let mut client = serving.grpc().await;
    let invalid = [
        Pet { id: "mine".into(), ..thor() },
        Pet { name: "  ".into(), ..thor() },
        Pet { r#type: 0, ..thor() },
        Pet { birthday: None, ..thor() },
        pet("Thor", PetType::PtCanine, (2021, 2, 29)),
    ];
    for pet in invalid {
        let refused = add(&mut client, vec![tron(), pet.clone()]).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument, "{pet:?}");
    }
    assert!(serving.pets().is_empty());
    serving.stop().await;
}

#[tokio::test]
async fn an_update_needs_an_id_that_the_store_knows() {
    let serving = Serving::start().await;
    let mut client = serving.grpc().await;
    for (id, code) in [("", Code::InvalidArgument), ("a8098c1a-f86e-41da-bd1a-00112444be1e", Code::NotFound)] {
        let pets = vec![Pet { id: id.into(), ..thor() }];
        let refused = client.update_pets(UpdatePetsReq { pets }).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }
    serving.stop().await;
}

#[tokio::test]
async fn an_addition_with_an_idempotency_key_can_be_repeated() {
    let serving = Serving::start().await;
    let mut client = serving.grpc().await;
    let mut ids = Vec::new();
    // The second call would not be valid, but it is a repetition.
    for pets in [vec![thor()], vec![Pet::default()]] {
        let mut request = Request::new(AddPetsReq { pets });
        let key = "one".parse().unwrap();
        request.metadata_mut().insert(IDEMPOTENCY_KEY, key);
        ids.push(client.add_pets(request).await.unwrap().into_inner().ids);
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
    serving.stop().await;
}

#[tokio::test]
async fn the_sampler_can_be_changed() {
    let serving = Serving::start().await;
    let mut client = serving.grpc().await;
    assert_eq!(serving.store.sampler(), Sampler::Never);
    let request = |r#type, float_value| ChangeSamplerReq { sampler: Some(proto::Sampler { r#type, float_value }) };
    client.change_sampler(request(3, 0.5)).await.unwrap();
    assert_eq!(serving.store.sampler(), Sampler::Fraction(0.5));
    let refused = client.change_sampler(request(3, 2.0)).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    client.change_sampler(request(2, 0.0)).await.unwrap();
    assert_eq!(serving.store.sampler(), Sampler::Always);
    serving.stop().await;
}
