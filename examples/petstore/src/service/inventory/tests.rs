// SPDX-License-Identifier: Apache-2.0

//! The inventory, driven directly.

use super::*;

const EVERYTHING: usize = usize::MAX;

fn add(inventory: &mut Inventory, pets: Vec<Details>, key: Option<&str>) -> Vec<String> {
    let (ids, changes) = inventory.add(pets, key);
    inventory.apply(changes);
    ids
}

fn update(inventory: &mut Inventory, pets: Vec<Pet>) -> Result<(), UnknownPet> {
    let changes = inventory.update(pets)?;
    inventory.apply(changes);
    Ok(())
}

fn delete<'a>(inventory: &mut Inventory, ids: impl IntoIterator<Item = &'a str>) {
    let changes = inventory.delete(ids);
    inventory.apply(changes);
}

fn details(name: &str, species: Species, birthday: &str) -> Details {
    Details::new(name, species, birthday.parse().unwrap()).unwrap()
}

/// Thor, Tron, a second Thor, Kaa and Iago, oldest entry first.
fn stocked() -> (Inventory, Vec<String>) {
    let mut inventory = Inventory::default();
    let ids = add(
        &mut inventory,
        vec![
            details("Thor", Species::Canine, "2021-04-01"),
            details("Tron", Species::Feline, "2020-06-25"),
            details("Thor", Species::Feline, "2020-06-25"),
            details("Kaa", Species::Reptile, "2019-12-31"),
            details("Iago", Species::Bird, "2022-02-28"),
        ],
        None,
    );
    (inventory, ids)
}

fn search(inventory: &Inventory, filter: &Filter) -> Vec<String> {
    let page = inventory.search(filter, Cursor::default(), EVERYTHING);
    assert_eq!(page.next, None);
    page.pets.into_iter().map(|pet| pet.id).collect()
}

fn check(filter: &Filter, expected: &[usize]) {
    let (inventory, ids) = stocked();
    let expected: Vec<_> = expected.iter().map(|index| ids[*index].clone()).collect();
    assert_eq!(search(&inventory, filter), expected, "{filter:?}");
}

fn names<const N: usize>(names: [&str; N]) -> Filter {
    Filter { names: names.map(String::from).into(), ..Filter::default() }
}

fn species<const N: usize>(species: [Species; N]) -> Filter {
    Filter { species: species.into(), ..Filter::default() }
}

fn born(start: &str, end: &str) -> Filter {
    Filter { born: Some(start.parse().unwrap()..end.parse().unwrap()), ..Filter::default() }
}

#[test]
fn by_names() {
    check(&names(["Thor"]), &[0, 2]);
    check(&names(["Kaa", "Thor"]), &[0, 2, 3]);
    check(&names(["thor"]), &[]);
    check(&names(["Nobody"]), &[]);
}

#[test]
fn by_types() {
    check(&species([Species::Canine]), &[0]);
    check(&species([Species::Feline, Species::Bird]), &[1, 2, 4]);
}

#[test]
fn by_birthdays() {
    check(&born("2020-06-25", "2020-06-26"), &[1, 2]);
    check(&born("2019-12-31", "2021-04-01"), &[1, 2, 3]);
    check(&born("2020-06-25", "2020-06-25"), &[]);
    check(&born("0001-01-01", "9999-12-31"), &[0, 1, 2, 3, 4]);
}

#[test]
fn filters_are_joined_with_and() {
    check(&Filter { species: [Species::Feline].into(), ..names(["Thor", "Kaa"]) }, &[2]);
    check(&Filter { species: [Species::Reptile, Species::Feline].into(), ..born("2019-01-01", "2020-01-01") }, &[3]);
    check(
        &Filter { born: born("2021-01-01", "2022-01-01").born, species: [Species::Feline].into(), ..names(["Thor"]) },
        &[],
    );
}

#[test]
fn no_filter_finds_every_pet_oldest_first() {
    check(&Filter::default(), &[0, 1, 2, 3, 4]);
}

#[test]
fn pages_join_into_the_whole_result() {
    let (mut inventory, ids) = stocked();
    for filter in [Filter::default(), names(["Thor", "Tron", "Kaa", "Iago"])] {
        let first = inventory.search(&filter, Cursor::default(), 2);
        let second = inventory.search(&filter, first.next.unwrap(), 2);
        let third = inventory.search(&filter, second.next.unwrap(), 2);
        assert_eq!(third.next, None);
        let found: Vec<_> = [first, second, third].into_iter().flat_map(|page| page.pets).map(|pet| pet.id).collect();
        assert_eq!(found, ids);
    }

    // A page that is exactly full is known to be the last one.
    let whole = inventory.search(&Filter::default(), Cursor::default(), 5);
    assert_eq!((whole.pets.len(), whole.next), (5, None));

    // The next page starts after pets that were deleted in the meantime.
    let first = inventory.search(&Filter::default(), Cursor::default(), 2);
    delete(&mut inventory, [ids[1].as_str(), ids[2].as_str()]);
    let rest = inventory.search(&Filter::default(), first.next.unwrap(), 9);
    let rest: Vec<_> = rest.pets.into_iter().map(|pet| pet.id).collect();
    assert_eq!(rest, ids[3..]);
}

#[test]
fn ids_are_shaped_like_version_4_uuids_and_differ() {
    let ids: HashSet<String> = std::iter::repeat_with(new_id).take(1000).collect();
    assert_eq!(ids.len(), 1000);
    for id in ids {
        let groups: Vec<&str> = id.split('-').collect();
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
        assert!(groups.concat().chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')), "{id}");
        assert!(groups[2].starts_with('4'), "{id}");
        assert!(groups[3].starts_with(['8', '9', 'a', 'b']), "{id}");
    }
}

#[test]
fn an_update_keeps_id_and_place_and_leaves_no_stale_index_entry() {
    let (mut inventory, ids) = stocked();
    let thorbert = Pet { id: ids[0].clone(), details: details("Thorbert", Species::Reptile, "2021-04-02") };
    update(&mut inventory, vec![thorbert.clone()]).unwrap();

    assert_eq!(inventory.get(&ids[0]), Some(&thorbert));
    assert_eq!(inventory.len(), 5);
    assert_eq!(search(&inventory, &names(["Thor"])), [ids[2].clone()]);
    assert_eq!(search(&inventory, &names(["Thorbert"])), [ids[0].clone()]);
    assert_eq!(search(&inventory, &species([Species::Canine])), [""; 0]);
    assert_eq!(search(&inventory, &Filter::default()), ids);
}

#[test]
fn an_update_with_an_unknown_pet_changes_nothing() {
    let (mut inventory, ids) = stocked();
    let pet = |id: &str| Pet { id: id.to_owned(), details: details("Renamed", Species::Bird, "2000-01-01") };
    let unknown = update(&mut inventory, vec![pet(&ids[0]), pet("nobody")]);
    assert_eq!(unknown.unwrap_err().to_string(), "no pet has the id \"nobody\"");
    assert_eq!(inventory.get(&ids[0]).unwrap().details.name(), "Thor");
}

#[test]
fn deleting_ignores_unknown_ids() {
    let (mut inventory, ids) = stocked();
    delete(&mut inventory, ["nobody", ids[0].as_str(), ids[0].as_str()]);
    assert_eq!(inventory.len(), 4);
    assert_eq!(inventory.get(&ids[0]), None);
    assert_eq!(search(&inventory, &names(["Thor"])), [ids[2].clone()]);
}

#[test]
fn an_addition_under_a_key_happens_once() {
    let mut inventory = Inventory::default();
    let thor = details("Thor", Species::Canine, "2021-04-01");
    let first = add(&mut inventory, vec![thor.clone()], Some("key"));
    let thorbert = details("Thorbert", Species::Canine, "2021-04-01");
    assert_eq!(add(&mut inventory, vec![thorbert], Some("key")), first);
    assert_eq!(inventory.len(), 1);
    assert_eq!(inventory.get(&first[0]).unwrap().details, thor);

    // An update does not loosen the tie, another key and no key are other additions.
    let renamed = Pet { id: first[0].clone(), details: details("Thorbert", Species::Canine, "2021-04-01") };
    update(&mut inventory, vec![renamed]).unwrap();
    assert_eq!(add(&mut inventory, vec![thor.clone()], Some("key")), first);
    assert_ne!(add(&mut inventory, vec![thor.clone()], Some("other")), first);
    assert_ne!(add(&mut inventory, vec![thor], None), first);
    assert_eq!(inventory.len(), 3);
}

#[test]
fn a_key_is_forgotten_with_the_last_of_its_pets() {
    let mut inventory = Inventory::default();
    let pets = || vec![details("Thor", Species::Canine, "2021-04-01"), details("Tron", Species::Feline, "2020-06-25")];
    let first = add(&mut inventory, pets(), Some("key"));
    delete(&mut inventory, [first[0].as_str()]);
    assert_eq!(add(&mut inventory, pets(), Some("key")), first);
    delete(&mut inventory, [first[1].as_str()]);
    assert_eq!(inventory.added_under("key"), None);
    assert!(inventory.additions.is_empty());
    let second = add(&mut inventory, pets(), Some("key"));
    assert_ne!(second, first);
    assert_eq!(inventory.len(), 2);

    // An addition of nothing has nothing to remember.
    assert!(add(&mut inventory, Vec::new(), Some("empty")).is_empty());
    assert_eq!(inventory.added_under("empty"), None);
}

/// However the store is used, its indexes agree with its entries.
#[test]
fn indexes_agree_with_the_entries_after_any_history() {
    let mut rng = fastrand::Rng::with_seed(42);
    let mut inventory = Inventory::default();
    let mut model: BTreeMap<String, Details> = BTreeMap::new();
    for _ in 0..2000 {
        let name = ["a", "b", "c"][rng.usize(..3)];
        let kinds = [Species::Canine, Species::Bird];
        let pet = details(name, kinds[rng.usize(..2)], "2020-01-01");
        let known = model.keys().nth(rng.usize(..=model.len())).cloned();
        match (rng.u8(..4), known) {
            (0, Some(id)) => {
                delete(&mut inventory, [id.as_str()]);
                model.remove(&id);
            }
            (1, Some(id)) => {
                model.insert(id.clone(), pet.clone());
                let details = pet;
                update(&mut inventory, vec![Pet { id, details }]).unwrap();
            }
            _ => {
                let id = add(&mut inventory, vec![pet.clone()], None).remove(0);
                model.insert(id, pet);
            }
        }
        let mut found = search(&inventory, &names([name]));
        found.sort();
        let expected: Vec<_> =
            model.iter().filter(|(_, details)| details.name() == name).map(|(id, _)| id.clone()).collect();
        assert_eq!(found, expected);
    }
    assert_eq!(inventory.len(), model.len());
    assert_eq!(inventory.by_id.len(), model.len());
    assert_eq!(inventory.by_name.values().map(BTreeSet::len).sum::<usize>(), model.len());
}
