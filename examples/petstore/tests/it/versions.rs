// SPDX-License-Identifier: Apache-2.0

//! Tests of Pets in both versions, converted by the operator.

use petstore::service::client::StoreClient;
use windlass::ObjectKey;
use windlass_testing::{Env, Running};

use petstore_api::{v1alpha1, v1beta1};

use crate::pet::synced;
use crate::serving::Serving;
use crate::{TIMING, install, start_again};

fn alpha(birthday: &str) -> v1alpha1::Pet {
    let birthday = birthday.to_owned();
    v1alpha1::Pet::new("thor", v1alpha1::PetSpec { name: "Thor".into(), r#type: v1alpha1::PetType::Dog, birthday })
}

#[windlass_testing::test(setup = crate::start)]
async fn both_versions_show_the_same_pet_and_lose_nothing(env: Env, (serving, _operator): (Serving, Running)) {
    env.create(alpha("2021-04-01T13:37:00+02:00")).await;
    let beta = synced(&env, "thor").await;
    assert_eq!((beta.spec.species, beta.spec.birthday.as_str()), (v1beta1::Species::Dog, "2021-04-01"));
    assert_eq!(serving.pets(), ["Thor Canine 2021-04-01"]);

    // What only v1beta1 has survives a write in v1alpha1, and the other way around.
    env.modify::<v1beta1::Pet>("thor", |pet| pet.spec.deletion_policy = v1beta1::DeletionPolicy::Retain).await;
    env.modify::<v1alpha1::Pet>("thor", |pet| pet.spec.r#type = v1alpha1::PetType::Cat).await;
    let beta = synced(&env, "thor").await;
    assert_eq!(beta.spec.deletion_policy, v1beta1::DeletionPolicy::Retain);
    let shown = env.get::<v1alpha1::Pet>("thor").await;
    assert_eq!(shown.spec.birthday, "2021-04-01T13:37:00+02:00");
    assert_eq!(shown.status.as_ref().and_then(|status| status.id.as_deref()), beta.entry_id());
    assert_eq!(serving.pets(), ["Thor Feline 2021-04-01"]);

    env.modify::<v1beta1::Pet>("thor", |pet| pet.spec.birthday = "2021-04-02".into()).await;
    assert_eq!(env.get::<v1alpha1::Pet>("thor").await.spec.birthday, "2021-04-02T00:00:00Z");
    env.modify::<v1alpha1::Pet>("thor", |pet| {
        // The annotation is the policy in this version.
        pet.metadata.annotations.take();
    })
    .await;
    assert_eq!(synced(&env, "thor").await.spec.deletion_policy, v1beta1::DeletionPolicy::Delete);
    env.delete::<v1alpha1::Pet>("thor").await;
    env.wait_gone::<v1beta1::Pet>("thor").await;
    assert!(serving.pets().is_empty());
}

/// The schema's `date-time` lets these pass.
#[windlass_testing::test(setup = crate::start)]
async fn a_birthday_outside_of_the_calendar_is_refused(env: Env, (_serving, _operator): (Serving, Running)) {
    for birthday in ["2020-01-01T00:00:00.123456789123Z", "9999-12-31T23:59:59-12:00", "2020-01-01T00:00:00+99:99"] {
        let refused = env.client().create(&in_default(alpha(birthday))).await.expect_err(birthday);
        assert!(refused.is_invalid() && refused.to_string().contains("no day of the calendar"), "{refused}");
    }
    let created = env.create(alpha("2020-02-29T00:00:00Z")).await;
    let mut changed = env.get::<v1beta1::Pet>(ObjectKey::of(&created)).await;
    changed.spec.birthday = "2021-02-29".into();
    let refused = env.client().update(&changed).await.expect_err("no leap year");
    assert!(refused.is_invalid(), "{refused}");
}

fn in_default(mut pet: v1alpha1::Pet) -> v1alpha1::Pet {
    pet.metadata.namespace = Some("default".into());
    pet
}

/// Objects are stored in v1beta1, so the operator needs no conversion to do its work.
#[windlass_testing::test]
async fn the_operator_works_while_nothing_converts(env: Env) {
    install(&env).await;
    let serving = Serving::start().await;
    let first = start_again(&env, serving.client(), TIMING).await;
    env.create(alpha("2021-04-01T13:37:00Z")).await;
    synced(&env, "thor").await;
    first.stop().await.unwrap();

    let store = StoreClient::connect_lazy(&serving.addr.to_string()).unwrap();
    env.run_ready(::petstore::operator(env.manager(), store, TIMING).unwrap()).await;
    env.delete::<v1beta1::Pet>("thor").await;
    env.wait_gone::<v1beta1::Pet>("thor").await;
    assert!(serving.pets().is_empty());
}
