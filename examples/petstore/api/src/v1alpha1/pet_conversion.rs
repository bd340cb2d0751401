// SPDX-License-Identifier: Apache-2.0

//! Converts Pet between its versions. v1beta1 is the hub: every other version is converted to it and from it.
//!
//! | v1alpha1 | v1beta1 |
//! |---|---|
//! | `type` | `species` |
//! | `birthday: 2021-04-01T00:00:00Z` | `birthday: 2021-04-01` |
//! | `birthday: 2021-04-01T13:37:00Z` | the same, and the annotation [`BIRTHDAY`] with the time |
//! | the annotation [`DELETION_POLICY`] | `deletionPolicy: Retain` |
//!
//! What always holds: nothing is lost, and nothing is refused. A conversion that fails would make a Pet that nobody can
//! read, or delete. What is no time stays as it is; the webhook refuses it when it is written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;
use windlass::webhook::{Convert, ConvertError};

use super::pet as spoke;
use crate::v1beta1::pet as hub;

/// The time of day of a birthday, for which v1beta1 has no field.
const BIRTHDAY: &str = "v1alpha1.petstore.example.com/birthday";
/// The policy, for which v1alpha1 has no field.
const DELETION_POLICY: &str = "v1beta1.petstore.example.com/deletion-policy";
const RETAIN: &str = "Retain";

impl Convert<hub::Pet> for spoke::Pet {
    fn into_hub(self) -> Result<hub::Pet, ConvertError> {
        let Self { mut metadata, spec, status } = self;
        let birthday = day(&spec.birthday);
        if time(&birthday) != spec.birthday {
            metadata.annotations.get_or_insert_default().insert(BIRTHDAY.to_owned(), spec.birthday);
        }
        let retain = take(&mut metadata, DELETION_POLICY, |policy| policy == RETAIN).is_some();
        let species = match spec.r#type {
            spoke::PetType::Dog => hub::Species::Dog,
            spoke::PetType::Cat => hub::Species::Cat,
            spoke::PetType::Bird => hub::Species::Bird,
            spoke::PetType::Reptile => hub::Species::Reptile,
        };
        let deletion_policy = if retain { hub::DeletionPolicy::Retain } else { hub::DeletionPolicy::Delete };
        Ok(hub::Pet { metadata, spec: hub::PetSpec { name: spec.name, species, birthday, deletion_policy }, status })
    }

    fn from_hub(hub: hub::Pet) -> Result<Self, ConvertError> {
        let hub::Pet { mut metadata, spec, status } = hub;
        // The time of another day is of no use: the birthday was changed in v1beta1.
        let kept = take(&mut metadata, BIRTHDAY, |kept| day(kept) == spec.birthday);
        let birthday = kept.unwrap_or_else(|| time(&spec.birthday));
        if spec.deletion_policy == hub::DeletionPolicy::Retain {
            metadata.annotations.get_or_insert_default().insert(DELETION_POLICY.to_owned(), RETAIN.to_owned());
        }
        let r#type = match spec.species {
            hub::Species::Dog => spoke::PetType::Dog,
            hub::Species::Cat => spoke::PetType::Cat,
            hub::Species::Bird => spoke::PetType::Bird,
            hub::Species::Reptile => spoke::PetType::Reptile,
        };
        Ok(Self { metadata, spec: spoke::PetSpec { name: spec.name, r#type, birthday }, status })
    }
}

/// The day of a time, in UTC.
fn day(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => TimeZone::UTC.to_datetime(time).date().to_string(),
        Err(_) => time.to_owned(),
    }
}

/// The time at which a day begins.
fn time(day: &str) -> String {
    match hub::date(day) {
        Some(date) => format!("{date}T00:00:00Z"),
        None => day.to_owned(),
    }
}

/// Takes an annotation away if it is as it should be.
fn take(metadata: &mut ObjectMeta, name: &str, is_wanted: impl FnOnce(&str) -> bool) -> Option<String> {
    let annotations = metadata.annotations.as_mut()?;
    if !annotations.get(name).is_some_and(|value| is_wanted(value)) {
        return None;
    }
    let value = annotations.remove(name);
    if annotations.is_empty() {
        metadata.annotations = None;
    }
    value
}

#[cfg(test)]
mod tests {
    use windlass::webhook::{Convert as _, hub_round_trip, round_trip};

    use super::{BIRTHDAY, hub, spoke};

    fn beta(birthday: &str) -> hub::Pet {
        let spec = hub::PetSpec {
            name: "Thor".into(),
            species: hub::Species::Dog,
            birthday: birthday.into(),
            deletion_policy: hub::DeletionPolicy::Retain,
        };
        let mut pet = hub::Pet::new("thor", spec);
        pet.status = Some(hub::PetStatus { id: Some("1234".into()), ..hub::PetStatus::default() });
        pet
    }

    fn alpha(birthday: &str) -> spoke::Pet {
        let spec = spoke::PetSpec { name: "Thor".into(), r#type: spoke::PetType::Reptile, birthday: birthday.into() };
        spoke::Pet::new("thor", spec)
    }

    /// Times of day and offsets, and what the schema lets pass although no calendar has it.
    const TIMES: [&str; 6] = [
        "2021-04-01T00:00:00Z",
        "2021-04-01T13:37:00.5Z",
        "2021-04-01T01:00:00+02:00",
        "2020-01-01T00:00:00.123456789123Z",
        "9999-12-31T23:59:59-12:00",
        "2020-01-01T00:00:00+99:99",
    ];

    #[test]
    fn nothing_is_lost() {
        for birthday in ["2021-04-01", "0001-01-01", "2021-02-29", ""] {
            assert!(hub_round_trip::<spoke::Pet, _>(&beta(birthday)).unwrap() > 10);
        }
        for birthday in TIMES {
            assert!(round_trip::<_, hub::Pet>(&alpha(birthday)).unwrap() > 5);
        }
    }

    #[test]
    fn a_birthday_is_a_day_in_utc() {
        for (time, day) in [
            ("2021-04-01T00:00:00Z", "2021-04-01"),
            ("2021-04-01T23:59:59Z", "2021-04-01"),
            ("2021-04-01T01:00:00+02:00", "2021-03-31"),
        ] {
            let beta = alpha(time).into_hub().unwrap();
            assert_eq!(beta.spec.birthday().unwrap().to_string(), day, "{time}");
        }
    }

    #[test]
    fn a_birthday_that_was_changed_has_no_time() {
        let mut pet = alpha("2021-04-01T13:37:00Z").into_hub().unwrap();
        assert_eq!(pet.metadata.annotations.as_ref().unwrap()[BIRTHDAY], "2021-04-01T13:37:00Z");
        pet.spec.birthday = "2021-04-02".into();
        assert_eq!(spoke::Pet::from_hub(pet).unwrap().spec.birthday, "2021-04-02T00:00:00Z");
    }
}
