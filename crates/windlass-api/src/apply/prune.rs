//! Giving back what an applier no longer says, when owners speak of several versions.
//!
//! Where all sets are in the applier's last version, [`merge::prune`] does it in one walk. Otherwise the
//! object is taken through every version that a manager speaks of, in the order of upstream's
//! `merge/update.go`: remove what was applied last, put back what anybody owns, then remove only what
//! was both applied last and lost.

use serde_json::{Map, Value};

use super::fields::{self, Trie};
use super::managers::Entry;
use super::shape::{Kind, Shape};
use super::{Manager, Unconvertible, merge, owned};
use crate::schema::Schema;
use crate::status::Status;

/// Removes from `merged` what the applier had in `last` and no manager has in `managed`, the sets of all by
/// version, the applier's new one included.
pub(super) fn prune(
    schema: &Schema,
    merged: &mut Value,
    last: &Entry,
    managed: &[(&str, &Trie)],
    who: &Manager<'_>,
) -> Result<(), Box<Status>> {
    let (Some(set), version) = (last.set(), last.api_version()) else { return Ok(()) };
    if version == who.api_version && managed.iter().all(|(other, _)| *other == version) {
        let sets: Vec<&Trie> = managed.iter().map(|(_, set)| *set).collect();
        merge::prune(Shape::root(schema), merged, set, &sets);
        return Ok(());
    }
    let reader = Reader { schema, who };
    let pruned = reader.prune(merged, set, version, managed);
    match pruned.map_err(|why| why.during("failed to prune fields")) {
        Ok(pruned) => {
            *merged = pruned;
            Ok(())
        }
        // A version that is gone takes with it what was said in it.
        Err(Unconvertible::NoSuchVersion) => Ok(()),
        Err(Unconvertible::Failed(status)) => Err(status),
    }
}

/// An object in some version.
#[derive(Clone)]
struct At<'a> {
    object: Value,
    version: String,
    shape: Shape<'a>,
}

impl At<'_> {
    /// The paths in the object, with those of named fields.
    fn paths(&self) -> Trie {
        with_named(self.shape, owned::set_of(self.shape, &self.object))
    }

    fn without(&self, set: &Trie) -> Self {
        let mut left = self.clone();
        remove(self.shape, &mut left.object, set);
        left
    }
}

struct Reader<'a> {
    schema: &'a Schema,
    who: &'a Manager<'a>,
}

impl<'a> Reader<'a> {
    fn convert(&self, from: &At<'_>, version: &str) -> Result<At<'a>, Unconvertible> {
        if from.version == version && version == self.who.api_version {
            return Ok(At {
                shape: Shape::root(self.schema),
                object: from.object.clone(),
                version: version.to_owned(),
            });
        }
        let (object, schema) = self.who.versions.convert(&from.object, version)?;
        Ok(At { object: object.into_owned(), version: version.to_owned(), shape: Shape::root(schema) })
    }

    fn prune(
        &self,
        merged: &Value,
        last: &Trie,
        version: &str,
        managed: &[(&str, &Trie)],
    ) -> Result<Value, Unconvertible> {
        let own = &self.who.api_version;
        let merged = At { object: merged.clone(), version: (*own).to_owned(), shape: Shape::root(self.schema) };
        let merged = self.convert(&merged, version);
        let merged = merged.map_err(|why| why.during("failed to convert merged object to last applied version"))?;
        let last = with_named(merged.shape, last.clone());
        let kept = self.put_back(&merged, merged.without(&last), managed);
        let mut kept = kept.map_err(|why| why.during("failed add back owned items"))?;
        if kept.version != version {
            let dangling = "failed add back dangling items: failed to convert pruned object to last applied version";
            kept = self.convert(&kept, version).map_err(|why| why.during(dangling))?;
        }
        let mut lost = merged.paths();
        fields::difference(&mut lost, &kept.paths());
        let pruned = merged.without(&fields::intersection(&lost, &last));
        Ok(if version == *own { pruned } else { self.convert(&pruned, own)? }.object)
    }

    /// Puts back what a manager owns, version by version; the version at hand comes first, as what is
    /// missing may be needed to convert.
    fn put_back(&self, merged: &At<'a>, pruned: At<'a>, managed: &[(&str, &Trie)]) -> Result<At<'a>, Unconvertible> {
        let first = merged.version.clone();
        let mut versions: Vec<&str> = managed.iter().map(|(version, _)| *version).collect();
        versions.sort_unstable_by_key(|version| (*version != first, *version));
        versions.dedup();
        let (mut merged, mut pruned) = (merged.clone(), pruned);
        for version in versions {
            let mut owned = Map::new();
            for (_, set) in managed.iter().filter(|(other, _)| *other == version) {
                fields::union(&mut owned, set);
            }
            if version != merged.version {
                let both = (self.convert(&merged, version), self.convert(&pruned, version));
                (merged, pruned) = match both {
                    (Ok(merged), Ok(pruned)) => (merged, pruned),
                    (Err(Unconvertible::NoSuchVersion), _) | (_, Err(Unconvertible::NoSuchVersion)) => continue,
                    (Err(failed), _) => {
                        return Err(failed.during(&format!("failed to convert merged object at version {version}")));
                    }
                    (_, Err(failed)) => {
                        return Err(failed.during(&format!("failed to convert pruned object at version {version}")));
                    }
                };
            }
            let mut gone = merged.paths();
            let mut stays = pruned.paths();
            fields::union(&mut stays, &with_named(merged.shape, owned));
            fields::difference(&mut gone, &stays);
            pruned = merged.without(&gone);
        }
        Ok(pruned)
    }
}

/// The set in which fields that the schema names are members once anything below them is.
fn with_named(shape: Shape<'_>, set: Trie) -> Trie {
    set.into_iter()
        .map(|(element, node)| {
            let Value::Object(trie) = node else { return (element, node) };
            if trie.is_empty() || element == fields::SELF {
                return (element, Value::Object(trie));
            }
            let name = element.strip_prefix("f:");
            let below = name.map_or_else(|| shape.item(), |name| shape.field(name));
            let mut trie = with_named(below, trie);
            if name.is_some_and(|name| shape.names_field(name)) {
                trie.insert(fields::SELF.to_owned(), fields::leaf());
            }
            (element, Value::Object(trie))
        })
        .collect()
}

/// Removes what is in the set. What has nothing left in it is null.
fn remove(shape: Shape<'_>, value: &mut Value, set: &Trie) {
    match (shape.kind_of(value), &mut *value) {
        (Kind::Map, Value::Object(map)) if !shape.map_is_atomic() && !map.is_empty() => {
            for (element, node) in set {
                let Some(name) = element.strip_prefix("f:") else { continue };
                if fields::is_member(node) {
                    map.remove(name);
                } else if let (Some(below), Some(value)) = (fields::below(node), map.get_mut(name)) {
                    remove(shape.field(name), value, below);
                }
            }
            if map.is_empty() {
                *value = Value::Null;
            }
        }
        (Kind::List, Value::Array(items)) if !shape.list_is_atomic() && !items.is_empty() => {
            items.retain_mut(|item| {
                let mut element = String::new();
                let node = shape.write_item(item, &mut element).ok().and_then(|()| set.get(&element));
                let Some(node) = node else { return true };
                if let (false, Some(below)) = (fields::is_member(node), fields::below(node)) {
                    remove(shape.item(), item, below);
                }
                !fields::is_member(node)
            });
            if items.is_empty() {
                *value = Value::Null;
            }
        }
        _ => {}
    }
}
