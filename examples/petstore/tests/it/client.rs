// SPDX-License-Identifier: Apache-2.0

//! The operator's client: additions that can be repeated, entries that keep their identity.

use petstore::service::client::{Change, Ensured, StoreClient, StoreError};
use petstore::service::inventory::{Details, Species};

use crate::serving::Serving;

fn thor(name: &str) -> Details {
    let birthday = "2021-04-01".parse().unwrap();
    Details::new(name, Species::Canine, birthday).unwrap()
}

async fn ensure(client: &StoreClient, known: Option<&str>, name: &str) -> Ensured {
    client.ensure(known, &thor(name), "key").await.unwrap()
}

#[tokio::test]
async fn an_entry_is_added_once_and_keeps_its_id_through_renames() {
    let serving = Serving::start().await;
    let client = serving.client();

    let Ensured { id, change } = ensure(&client, None, "Thor").await;
    assert_eq!(change, Change::Added);
    for (name, change) in [("Thor", Change::Unchanged), ("Thorbert", Change::Updated), ("Thorbert", Change::Unchanged)]
    {
        let id = id.clone();
        assert_eq!(ensure(&client, Some(&id), name).await, Ensured { id: id.clone(), change });
    }
    assert_eq!(serving.pets(), ["Thorbert Canine 2021-04-01"]);
    serving.stop().await;
}

#[tokio::test]
async fn a_lost_id_is_recovered_and_the_entry_brought_up_to_date() {
    let serving = Serving::start().await;
    let client = serving.client();
    let first = ensure(&client, None, "Thor").await;
    // The caller died before it wrote the id down, and the pet was renamed meanwhile.
    let second = ensure(&client, None, "Thorbert").await;
    assert_eq!(second.id, first.id);
    assert_eq!(serving.pets(), ["Thorbert Canine 2021-04-01"]);
    serving.stop().await;
}

#[tokio::test]
async fn look_alikes_are_entries_of_their_own() {
    let serving = Serving::start().await;
    let client = serving.client();
    let one = client.ensure(None, &thor("Thor"), "one").await.unwrap();
    let two = client.ensure(None, &thor("Thor"), "two").await.unwrap();
    assert_ne!(one.id, two.id);
    client.remove(Some(&one.id), "one").await.unwrap();
    assert_eq!(serving.pets().len(), 1);
    assert_eq!(ensure(&client, Some(&two.id), "Thor").await.change, { Change::Unchanged });
    serving.stop().await;
}

#[tokio::test]
async fn an_entry_that_somebody_deleted_is_added_again() {
    let serving = Serving::start().await;
    let client = serving.client();
    let first = ensure(&client, None, "Thor").await;
    serving.delete(&first.id).await;
    let second = ensure(&client, Some(&first.id), "Thor").await;
    assert_eq!(second.change, Change::Added);
    assert_ne!(second.id, first.id);
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);
    serving.stop().await;
}

#[tokio::test]
async fn removing_finds_an_entry_whose_id_was_lost() {
    let serving = Serving::start().await;
    let client = serving.client();
    ensure(&client, None, "Thor").await;
    client.remove(None, "key").await.unwrap();
    assert!(serving.pets().is_empty());
    // Removing again, with and without an entry that ever was, leaves nothing behind.
    client.remove(Some("gone"), "key").await.unwrap();
    client.remove(None, "key").await.unwrap();
    assert!(serving.pets().is_empty());
    serving.stop().await;
}

#[tokio::test]
async fn the_last_day_of_the_calendar_is_a_birthday() {
    let serving = Serving::start().await;
    let client = serving.client();
    let details = Details::new("Omega", Species::Reptile, "9999-12-31".parse().unwrap()).unwrap();
    let added = client.ensure(None, &details, "key").await.unwrap();
    let kept = client.ensure(Some(&added.id), &details, "key").await;
    assert_eq!(kept.unwrap().change, Change::Unchanged);
    serving.stop().await;
}

#[tokio::test]
async fn one_client_outlives_a_restart_of_the_store() {
    let serving = Serving::start().await;
    let client = serving.client();
    let first = ensure(&client, None, "Thor").await;

    let (addr, store) = serving.stop().await;
    let down = client.ensure(Some(&first.id), &thor("Thor"), "key").await;
    assert!(matches!(down, Err(StoreError::Unavailable { .. })), "{down:?}");

    let serving = Serving::start_at(addr, store).await;
    let again = ensure(&client, Some(&first.id), "Thorbert").await;
    assert_eq!(again.id, first.id);
    assert_eq!(serving.pets(), ["Thorbert Canine 2021-04-01"]);
    serving.stop().await;
}

#[tokio::test]
async fn why_a_store_is_unavailable_is_said() {
    let (addr, _) = Serving::start().await.stop().await;
    let client = StoreClient::connect_lazy(&addr.to_string()).unwrap();
    let down = client.ensure(None, &thor("Thor"), "key").await.unwrap_err();
    let said = down.to_string();
    assert!(said.starts_with("the pet store is unavailable: ") && said.contains("refused"), "{said}");
}

#[tokio::test]
async fn an_address_is_checked_before_it_is_used() {
    assert!(StoreClient::connect_lazy("127.0.0.1:1").is_ok());
    assert!(StoreClient::connect_lazy("http://store.example:6742").is_ok());
    let error = StoreClient::connect_lazy("not an address").unwrap_err();
    assert_eq!(error.to_string(), "\"not an address\" is not the address of a pet store, which looks like host:port");
}
