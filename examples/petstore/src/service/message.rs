// SPDX-License-Identifier: Apache-2.0

//! Between wire messages and checked values.
//!
//! A message that comes out of this module as a value is valid: it has an id exactly when it must,
//! a name, a known type and a real date. What is wrong with a message is said in terms of the
//! message, for the caller to read.

use std::collections::HashSet;

use jiff::civil::Date;

use super::inventory::{BlankName, Details, Filter, Pet, Species};
use super::proto;

/// Why a message was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A pet to add already has an id.
    #[error("a new pet must not have an id, this one has {id:?}")]
    IdOnAdd {
        /// The id that was sent.
        id: String,
    },
    /// A pet to change has no id.
    #[error("a pet to update must have an id")]
    NoId,
    /// The pet's name is empty or white space.
    #[error(transparent)]
    Name(#[from] BlankName),
    /// The type is unknown or not set.
    #[error("{number} is not a known pet type")]
    Type {
        /// The number that was sent.
        number: i32,
    },
    /// A pet has no birthday.
    #[error("the birthday is missing")]
    NoBirthday,
    /// There is no such day in the calendar.
    #[error("{field} is not a date: {year:04}-{month:02}-{day:02}")]
    NoSuchDate {
        /// The field that holds the date.
        field: &'static str,
        /// The year that was sent.
        year: i32,
        /// The month that was sent.
        month: i32,
        /// The day that was sent.
        day: i32,
    },
    /// A range of dates lacks one of its ends.
    #[error("birthdate_range must have a start and an end")]
    OpenRange,
    /// A range of dates ends before it starts.
    #[error("birthdate_range ends before it starts")]
    BackwardRange,
}

/// The details of a pet that is to be added.
pub fn new_pet(pet: proto::Pet) -> Result<Details, Invalid> {
    if pet.id.is_empty() { details(pet) } else { Err(Invalid::IdOnAdd { id: pet.id }) }
}

/// A pet that is to replace the one with the same id.
pub fn changed_pet(mut pet: proto::Pet) -> Result<Pet, Invalid> {
    let id = std::mem::take(&mut pet.id);
    if id.is_empty() {
        return Err(Invalid::NoId);
    }
    Ok(Pet { id, details: details(pet)? })
}

/// What to search for.
pub fn filter(request: proto::SearchPetsReq) -> Result<Filter, Invalid> {
    let species = request.types.into_iter().map(species).collect::<Result<HashSet<_>, _>>()?;
    let born = match request.birthdate_range {
        None => None,
        Some(proto::DateRange { start: Some(start), end: Some(end) }) => {
            let start = date("birthdate_range.start", start)?;
            let end = date("birthdate_range.end", end)?;
            if end < start {
                return Err(Invalid::BackwardRange);
            }
            Some(start..end)
        }
        Some(_) => return Err(Invalid::OpenRange),
    };
    Ok(Filter { names: request.names.into_iter().collect(), species, born })
}

impl From<Pet> for proto::Pet {
    fn from(pet: Pet) -> Self {
        Self { id: pet.id, ..pet.details.into() }
    }
}

impl From<Details> for proto::Pet {
    fn from(details: Details) -> Self {
        Self {
            id: String::new(),
            r#type: proto::PetType::from(details.species()).into(),
            birthday: Some(details.birthday().into()),
            name: details.into_name(),
        }
    }
}

impl From<Species> for proto::PetType {
    fn from(species: Species) -> Self {
        match species {
            Species::Canine => Self::PtCanine,
            Species::Feline => Self::PtFeline,
            Species::Bird => Self::PtBird,
            Species::Reptile => Self::PtReptile,
        }
    }
}

impl From<Date> for proto::Date {
    fn from(date: Date) -> Self {
        Self { year: date.year().into(), month: date.month().into(), day: date.day().into() }
    }
}

fn details(pet: proto::Pet) -> Result<Details, Invalid> {
    let species = species(pet.r#type)?;
    let birthday = date("birthday", pet.birthday.ok_or(Invalid::NoBirthday)?)?;
    Ok(Details::new(pet.name, species, birthday)?)
}

fn species(number: i32) -> Result<Species, Invalid> {
    match proto::PetType::try_from(number) {
        Ok(proto::PetType::PtCanine) => Ok(Species::Canine),
        Ok(proto::PetType::PtFeline) => Ok(Species::Feline),
        Ok(proto::PetType::PtBird) => Ok(Species::Bird),
        Ok(proto::PetType::PtReptile) => Ok(Species::Reptile),
        Ok(proto::PetType::PtUnknown) | Err(_) => Err(Invalid::Type { number }),
    }
}

/// A date of the message, where the year counts from 1.
fn date(field: &'static str, proto::Date { year, month, day }: proto::Date) -> Result<Date, Invalid> {
    let real = || {
        let year = i16::try_from(year).ok().filter(|year| *year > 0)?;
        Date::new(year, month.try_into().ok()?, day.try_into().ok()?).ok()
    };
    real().ok_or(Invalid::NoSuchDate { field, year, month, day })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thor() -> proto::Pet {
        proto::Pet {
            id: String::new(),
            name: "Thor".into(),
            r#type: proto::PetType::PtCanine.into(),
            birthday: Some(day(2021, 4, 1)),
        }
    }

    fn day(year: i32, month: i32, day: i32) -> proto::Date {
        proto::Date { year, month, day }
    }

    fn check(change: impl FnOnce(&mut proto::Pet), expected: &str) {
        let mut pet = thor();
        change(&mut pet);
        assert_eq!(new_pet(pet).unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_valid_pet_survives_the_round_trip() {
        let details = new_pet(thor()).unwrap();
        assert_eq!(proto::Pet::from(details), thor());

        let with_id = proto::Pet { id: "an-id".into(), ..thor() };
        let pet = changed_pet(with_id.clone()).unwrap();
        assert_eq!(proto::Pet::from(pet), with_id);
    }

    #[test]
    fn an_invalid_pet_is_refused() {
        check(|pet| pet.id = "x".into(), "a new pet must not have an id, this one has \"x\"");
        check(|pet| pet.name.clear(), "the name is blank");
        check(|pet| pet.name = " \t\u{2003}".into(), "the name is blank");
        check(|pet| pet.r#type = 0, "0 is not a known pet type");
        check(|pet| pet.r#type = 5, "5 is not a known pet type");
        check(|pet| pet.birthday = None, "the birthday is missing");
        check(|pet| pet.birthday = Some(day(2021, 2, 29)), "birthday is not a date: 2021-02-29");
        check(|pet| pet.birthday = Some(day(0, 1, 1)), "birthday is not a date: 0000-01-01");
        check(|pet| pet.birthday = Some(day(70_000, 1, 300)), "birthday is not a date: 70000-01-300");
        assert_eq!(changed_pet(thor()), Err(Invalid::NoId));
    }

    #[test]
    fn a_leap_day_is_a_date() {
        let mut pet = thor();
        pet.birthday = Some(day(2020, 2, 29));
        assert!(new_pet(pet).is_ok());
    }

    #[test]
    fn an_empty_search_has_no_filter() {
        assert_eq!(filter(proto::SearchPetsReq::default()), Ok(Filter::default()));
    }

    #[test]
    fn a_search_needs_known_types_and_a_range_with_both_ends() {
        let search =
            |types, birthdate_range| filter(proto::SearchPetsReq { names: Vec::new(), types, birthdate_range });
        assert_eq!(search(vec![0], None), Err(Invalid::Type { number: 0 }));
        let range = |start, end| Some(proto::DateRange { start, end });
        assert_eq!(search(Vec::new(), range(Some(day(2020, 1, 1)), None)), Err(Invalid::OpenRange));
        assert_eq!(
            search(Vec::new(), range(Some(day(2020, 1, 2)), Some(day(2020, 1, 1)))),
            Err(Invalid::BackwardRange)
        );
        assert!(matches!(
            search(Vec::new(), range(Some(day(2020, 1, 1)), Some(day(2020, 13, 1)))),
            Err(Invalid::NoSuchDate { field: "birthdate_range.end", .. })
        ));
    }
}
