//! Originals and what came back, compared.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_scaffold::types::normal;

use crate::Case;
use crate::packages::Results;

#[derive(Default)]
struct Count {
    kinds: usize,
    versions: usize,
    equal: usize,
}

/// Prints the tables; returns how many versions differ.
pub(crate) fn report(cases: &[Case], results: &Results) -> usize {
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    let mut differences = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let count = counts.entry(&case.project).or_default();
        count.kinds += 1;
        for version in &case.definition.versions {
            count.versions += 1;
            let original = normal::definition(&case.original, &version.name);
            let found = match results.get(&(number, version.name.clone())) {
                Some(Ok(crd)) => compare(&original, &normal::definition(crd, &version.name)),
                Some(Err(panic)) => vec![format!("panic: {panic}")],
                None => vec!["nothing was printed".to_owned()],
            };
            if found.is_empty() {
                count.equal += 1;
            } else {
                differences.push((case, version.name.as_str(), found));
            }
        }
    }
    println!("\n| project | kinds | versions | equal |\n|---|---:|---:|---:|");
    let mut total = Count::default();
    for (project, count) in &counts {
        println!("| {project} | {} | {} | {} |", count.kinds, count.versions, count.equal);
        total.kinds += count.kinds;
        total.versions += count.versions;
        total.equal += count.equal;
    }
    println!("| **{} projects** | {} | {} | {} |\n", counts.len(), total.kinds, total.versions, total.equal);
    for (case, version, found) in &differences {
        println!("{} {version} ({}):", case.definition.name, case.file.display());
        for difference in found.iter().take(8) {
            println!("    {difference}");
        }
        if found.len() > 8 {
            println!("    and {} more", found.len() - 8);
        }
    }
    differences.len()
}

/// What differs, by JSON pointer.
fn compare(original: &Value, result: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(original, result, &mut String::new(), &mut found);
    found
}

fn walk(original: &Value, result: &Value, path: &mut String, found: &mut Vec<String>) {
    if original == result {
        return;
    }
    if let (Value::Object(one), Value::Object(other)) = (original, result) {
        let mut keys: Vec<&String> = one.keys().chain(other.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let length = path.len();
            path.push('/');
            path.push_str(key);
            match (one.get(key), other.get(key)) {
                (Some(one), Some(other)) => walk(one, other, path, found),
                (Some(one), None) => found.push(format!("{path}: {} is lost", shown(one))),
                (None, Some(other)) => found.push(format!("{path}: {} is added", shown(other))),
                (None, None) => {}
            }
            path.truncate(length);
        }
        return;
    }
    found.push(format!("{path}: {} became {}", shown(original), shown(result)));
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 200 { text } else { text.chars().take(200).chain("...".chars()).collect() }
}
