//! Gives names to types: short ones, and longer ones where a name is taken.

use std::collections::VecDeque;

use crate::types::identifier::{self, Types, pascal, singular};
use crate::types::model::{Item, ItemId, Model, Status};

/// Names all items, those near the top first: what is used most is seldom deep inside.
pub(super) fn assign(model: &mut Model, kind: &str) {
    let mut types = Types::new();
    let name = types.take(&identifier::kind(kind));
    let mut open: VecDeque<ItemId> = VecDeque::new();
    let suffix = if model.root.flat { "Fields" } else { "Spec" };
    let mut first = vec![(model.root.spec, suffix)];
    if let Status::Item(status) = model.root.status {
        first.push((status, "Status"));
    }
    for (id, suffix) in first {
        model.items[id].name = types.take(&format!("{name}{suffix}"));
        open.push_back(id);
    }
    while let Some(id) = open.pop_front() {
        let parent = model.items[id].name.clone();
        let mut wanted: Vec<(ItemId, String)> = Vec::new();
        for field in model.items[id].item.fields() {
            if let Some(child) = field.usage.kind.item() {
                let many = field.usage.kind.is_many();
                let hint = if many { pascal(&singular(&field.name)) } else { pascal(&field.name) };
                wanted.push((child, hint));
            }
        }
        if let Item::Wrapper { usage, .. } = &model.items[id].item
            && let Some(child) = usage.kind.item()
        {
            wanted.push((child, format!("{parent}Item")));
        }
        for (child, hint) in wanted {
            if !model.items[child].name.is_empty() {
                continue;
            }
            // The spec of the kind is the parent of everything: its own name says nothing more.
            let parent = parent.strip_suffix("Spec").filter(|parent| *parent == name).unwrap_or(&parent);
            let nothing = matches!(&model.items[child].item,
                Item::Struct { fields, open: false, keywords } if fields.is_empty() && keywords.is_empty());
            model.items[child].name = if nothing { types.take("Empty") } else { types.take_short(parent, &hint) };
            open.push_back(child);
        }
    }
    model.root.name = name;
}
