//! Edits of a kubeconfig's text: an entry is added to a list, replaced or taken out, and the current context is changed.
//!
//! Everything else stays byte for byte: comments, the order of keys, how scalars are written, indentation and line
//! breaks. An edit replaces ranges of the text that [`tree`](super::tree) finds. Its result is read again, and must say
//! what the same edit makes of the values; text that would not is refused, and the file stays as it was.
//!
//! An edit of a key that has no list yet says what stood there ([`Replaced`]), so that taking the last entry out again
//! leaves the text as it was.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::tree::{self, Item, Node, Pair, Shape, break_before};

/// For each key that was added, or whose value was replaced: nothing, or the text from its colon to the value's end.
pub(crate) type Replaced = BTreeMap<String, Option<String>>;

/// The lists of a kubeconfig whose entries have names.
pub(super) const SECTIONS: [&str; 3] = ["clusters", "contexts", "users"];
/// The key of the context that is used where none is named.
pub(super) const CURRENT: &str = "current-context";

/// What was in a kubeconfig before a cluster was added, as far as it is to be there again.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// The context that was current.
    pub context: Option<String>,
    pub replaced: Replaced,
}

const BOM: char = '\u{feff}';

/// A kubeconfig as it is written.
#[derive(Clone, Debug)]
pub(super) struct Text {
    /// Without a byte order mark.
    text: String,
    bom: bool,
}

impl Text {
    pub(super) fn new(text: &str) -> Self {
        let bom = text.starts_with(BOM);
        Self { text: text.strip_prefix(BOM).unwrap_or(text).to_owned(), bom }
    }

    /// The whole text.
    pub(super) fn written(&self) -> String {
        if self.bom { format!("{BOM}{}", self.text) } else { self.text.clone() }
    }

    /// What the text says. One without a document is an empty kubeconfig.
    pub(super) fn value(&self) -> Result<Value> {
        if self.text.trim().is_empty() || matches!(tree::parse(&self.text)?.shape, Shape::Empty) {
            return Ok(json!({}));
        }
        let value: Value = serde_saphyr::from_str(&self.text)?;
        if !value.is_object() {
            bail!("it is not a mapping");
        }
        for section in SECTIONS {
            if !value[section].is_null() && !value[section].is_array() {
                bail!("{section:?} is not a list");
            }
        }
        Ok(value)
    }

    /// Adds a cluster and makes its context current.
    pub(super) fn merge(&mut self, ours: &Value) -> Result<Before> {
        let name = ours[CURRENT].as_str().unwrap_or_default();
        let config = self.value()?;
        // One that is not there cannot be told from one that was deleted meanwhile; its text is in `replaced`.
        let current = config[CURRENT].as_str().filter(|current| *current != name && is_listed(&config, current));
        let mut replaced = Replaced::new();
        for section in SECTIONS {
            for entry in ours[section].as_array().into_iter().flatten() {
                self.set(section, entry, &mut replaced)?;
            }
        }
        self.set_current(name, &mut replaced)?;
        Ok(Before { context: current.map(str::to_owned), replaced })
    }

    /// Takes a cluster out, in the opposite order. If its context is current, the one before it is again.
    pub(super) fn forget(&mut self, name: &str, before: &Before) -> Result<()> {
        let config = self.value()?;
        if config[CURRENT] == name {
            let previous = before.context.as_deref();
            let there = previous.filter(|previous| is_listed(&config, previous));
            self.restore_current(there, before.replaced.get(CURRENT).filter(|_| there == previous))?;
        }
        SECTIONS.into_iter().rev().try_for_each(|section| self.remove(section, name, &before.replaced))
    }

    /// Puts an entry in the place of the one of its name, or at the end of a list.
    fn set(&mut self, section: &str, entry: &Value, replaced: &mut Replaced) -> Result<()> {
        let mut wanted = self.value()?;
        let list = list_of(&mut wanted, section);
        let named: Vec<usize> = positions(list, &entry["name"]);
        match named.first() {
            Some(first) => list[*first] = entry.clone(),
            None => list.push(entry.clone()),
        }
        remove_all(list, named.get(1..).unwrap_or_default());

        let mut edited = self.clone();
        for index in named.iter().skip(1).rev() {
            edited.remove_entry(section, *index)?;
        }
        match named.first() {
            Some(first) => edited.replace_entry(section, *first, entry)?,
            None => edited.add_entry(section, entry, replaced)?,
        }
        self.accept(edited, &wanted)
    }

    /// Takes the entries of a name out of a list. An emptied list becomes what it replaced.
    fn remove(&mut self, section: &str, name: &str, replaced: &Replaced) -> Result<()> {
        let mut wanted = self.value()?;
        let list = list_of(&mut wanted, section);
        let named = positions(list, &name.into());
        if named.is_empty() {
            return Ok(());
        }
        remove_all(list, &named);
        let emptied = list.is_empty();

        let mut edited = self.clone();
        for index in named.iter().rev() {
            edited.remove_entry(section, *index)?;
        }
        if emptied {
            edited.restore_list(section, replaced.get(section))?;
        }
        self.accept(edited, &wanted)
    }

    /// Makes a context current.
    fn set_current(&mut self, name: &str, replaced: &mut Replaced) -> Result<()> {
        let mut wanted = self.value()?;
        if wanted[CURRENT] == name {
            return Ok(());
        }
        wanted[CURRENT] = name.into();
        let mut edited = self.clone();
        let root = edited.root()?;
        let quoted = matches!(root.shape, Shape::FlowMapping { .. });
        let name = if quoted { format!(" \"{name}\"") } else { format!(" {name}") };
        let before = if let Some((_, pair)) = root.pair(CURRENT) {
            Some(edited.replace(pair.colon..pair.value.end.max(pair.colon), &name))
        } else {
            edited.add_pair(&root, CURRENT, &name, &[])?;
            None
        };
        replaced.insert(CURRENT.to_owned(), before);
        self.accept(edited, &wanted)
    }

    /// Makes another context current, or none. What the current one replaced is written as it was, if that is meant.
    fn restore_current(&mut self, name: Option<&str>, replaced: Option<&Option<String>>) -> Result<()> {
        let mut wanted = self.value()?;
        wanted[CURRENT] = name.unwrap_or_default().into();
        let mut edited = self.clone();
        let root = edited.root()?;
        let Some((index, pair)) = root.pair(CURRENT) else { return Ok(()) };
        let place = pair.colon..pair.value.end.max(pair.colon);
        match replaced {
            Some(None) => edited.remove_pair(&root, index)?,
            Some(Some(text)) => {
                edited.replace(place, text);
                wanted[CURRENT] = edited.value()?[CURRENT].clone();
            }
            None => {
                let quoted = name.is_none() || matches!(root.shape, Shape::FlowMapping { .. });
                let text = if quoted {
                    json!(name.unwrap_or_default()).to_string()
                } else {
                    serde_saphyr::to_string(&name)?.trim_end().to_owned()
                };
                edited.replace(place, &format!(" {text}"));
            }
        }
        self.accept(edited, &wanted)
    }

    /// Takes a result that says what is wanted.
    fn accept(&mut self, edited: Self, wanted: &Value) -> Result<()> {
        if !edited.value().is_ok_and(|value| essence(value) == essence(wanted.clone())) {
            bail!("it is written in a way that cannot be edited without changing what else it says");
        }
        *self = edited;
        Ok(())
    }

    fn root(&self) -> Result<Node> {
        tree::parse(&self.text)
    }

    fn add_entry(&mut self, section: &str, entry: &Value, replaced: &mut Replaced) -> Result<()> {
        let root = self.root()?;
        let flow_root = matches!(root.shape, Shape::FlowMapping { .. });
        let Some((_, pair)) = root.pair(section) else {
            if flow_root {
                self.add_pair(&root, section, &format!(" [{entry}]"), &[])?;
            } else {
                self.add_pair(&root, section, "", &block_entry(entry)?)?;
            }
            replaced.insert(section.to_owned(), None);
            return Ok(());
        };
        match &pair.value.shape {
            Shape::Sequence(items) => {
                let Some(last) = items.last() else { bail!("{section:?} has no entries") };
                let indent = self.indent(last.dash)?;
                let end = self.end_with_comments(last.node.end.max(last.dash + 1), indent.len());
                self.insert_lines(end, &indent, &block_entry(entry)?);
            }
            Shape::FlowSequence { open, items, .. } if flow_root || !items.is_empty() => match items.last() {
                Some(last) => drop(self.replace(last.end..last.end, &format!(", {entry}"))),
                None => drop(self.replace(*open..*open, &entry.to_string())),
            },
            Shape::Empty | Shape::Scalar(_) | Shape::FlowSequence { .. } => {
                let place = pair.colon..pair.value.end.max(pair.colon);
                let before = if flow_root {
                    self.replace(place, &format!(" [{entry}]"))
                } else {
                    let (colon, indent) = (pair.colon, self.indent(pair.key.start)?);
                    let before = self.replace(place, "");
                    self.insert_lines(self.line_end(colon), &indent, &block_entry(entry)?);
                    before
                };
                replaced.insert(section.to_owned(), Some(before));
            }
            Shape::Alias => bail!("{section:?} is an alias; write the list out"),
            Shape::Mapping(_) | Shape::FlowMapping { .. } => bail!("{section:?} is not a list"),
        }
        Ok(())
    }

    fn replace_entry(&mut self, section: &str, index: usize, entry: &Value) -> Result<()> {
        let root = self.root()?;
        match &list_in(&root, section)?.value.shape {
            Shape::Sequence(items) => {
                let indent = self.indent(items[index].dash)?;
                let lines = self.joined(&indent, &block_entry(entry)?);
                let place = self.line_start(items[index].dash)..self.line_end(end_of(&items[index]));
                self.replace(place, &lines);
            }
            Shape::FlowSequence { items, .. } => {
                self.replace(items[index].start..items[index].end, &entry.to_string());
            }
            _ => bail!("{section:?} is an alias; write the list out"),
        }
        Ok(())
    }

    fn remove_entry(&mut self, section: &str, index: usize) -> Result<()> {
        let root = self.root()?;
        match &list_in(&root, section)?.value.shape {
            Shape::Sequence(items) => {
                self.indent(items[index].dash)?;
                self.remove_lines(items[index].dash, end_of(&items[index]));
            }
            Shape::FlowSequence { items, commas, .. } => {
                let places: Vec<Range<usize>> = items.iter().map(|item| item.start..item.end).collect();
                self.remove_from_flow(&places, commas, index);
            }
            _ => bail!("{section:?} is an alias; write the list out"),
        }
        Ok(())
    }

    /// Writes what was in the place of a list that has no entries any more.
    fn restore_list(&mut self, section: &str, before: Option<&Option<String>>) -> Result<()> {
        let root = self.root()?;
        let Some((index, pair)) = root.pair(section) else { return Ok(()) };
        let block = !matches!(root.shape, Shape::FlowMapping { .. });
        match (before, &pair.value.shape) {
            (Some(None), Shape::Empty) => self.remove_pair(&root, index),
            (Some(None), Shape::FlowSequence { .. }) if !block => self.remove_pair(&root, index),
            (Some(Some(text)), _) => {
                // An anchor of the user's that was there before is part of the text.
                let place = pair.colon..pair.value.end.max(pair.colon);
                self.replace(place, text);
                Ok(())
            }
            (_, Shape::Empty) => {
                let end = pair.value.end.max(pair.colon);
                self.replace(end..end, " []");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Adds a key at the end of the document.
    fn add_pair(&mut self, root: &Node, key: &str, value: &str, lines: &[String]) -> Result<()> {
        let lines: Vec<String> = std::iter::once(format!("{key}:{value}")).chain(lines.iter().cloned()).collect();
        match &root.shape {
            Shape::Mapping(pairs) => {
                let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else { bail!("it has no keys") };
                let indent = self.indent(first.key.start)?;
                let end = self.end_with_comments(last.value.end.max(last.colon), indent.len());
                self.insert_lines(end, &indent, &lines);
            }
            Shape::FlowMapping { open, pairs, .. } => {
                let pair = format!("\"{key}\":{value}");
                match pairs.last() {
                    Some(last) => {
                        let end = last.value.end.max(last.colon);
                        self.replace(end..end, &format!(", {pair}"))
                    }
                    None => self.replace(*open..*open, &pair),
                };
            }
            Shape::Empty => {
                let end = self.text.len();
                if self.text.is_empty() || break_before(&self.text) > 0 {
                    let newline = self.newline();
                    let text: String = lines.iter().flat_map(|line| [line.as_str(), newline]).collect();
                    self.replace(end..end, &text);
                } else {
                    self.insert_lines(end, "", &lines);
                }
            }
            _ => bail!("it is not a mapping"),
        }
        Ok(())
    }

    /// Takes out a key that was added, and whose value has one line.
    fn remove_pair(&mut self, root: &Node, index: usize) -> Result<()> {
        match &root.shape {
            Shape::Mapping(pairs) => {
                let pair = &pairs[index];
                self.indent(pair.key.start)?;
                self.remove_lines(pair.key.start, pair.value.end.max(pair.colon));
            }
            Shape::FlowMapping { pairs, commas, .. } => {
                let place = |pair: &Pair| pair.key.start..pair.value.end.max(pair.colon);
                let places: Vec<Range<usize>> = pairs.iter().map(place).collect();
                self.remove_from_flow(&places, commas, index);
            }
            _ => bail!("it is not a mapping"),
        }
        Ok(())
    }

    /// Takes an element out of brackets or braces, with one of the commas beside it.
    fn remove_from_flow(&mut self, places: &[Range<usize>], commas: &[usize], index: usize) {
        let Range { start, end } = places[index].clone();
        let before = index.checked_sub(1).map(|previous| commas[previous]);
        let is_blank = |text: &str| text.chars().all(|c| c == ' ' || c == '\t');
        if let Some(comma) = before.filter(|comma| is_blank(&self.text[comma + 1..start])) {
            self.replace(comma..end, "");
        } else if let Some(comma) = commas.get(index) {
            let rest = &self.text[comma + 1..];
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
            self.remove_or_line(start..comma + 1 + blanks);
        } else {
            self.remove_or_line(start..end);
            if let Some(comma) = before {
                self.replace(comma..comma + 1, "");
            }
        }
    }

    /// Removes a range, with its line if nothing else is on it.
    fn remove_or_line(&mut self, range: Range<usize>) {
        let (start, end) = (self.line_start(range.start), self.line_end(range.end));
        let alone = self.text[start..range.start].trim().is_empty() && self.text[range.end..end].trim().is_empty();
        if alone && end < self.text.len() {
            self.remove_lines(start, end);
        } else {
            self.replace(range, "");
        }
    }

    /// Puts a text in the place of another, which is returned.
    fn replace(&mut self, range: Range<usize>, text: &str) -> String {
        let before = self.text[range.clone()].to_owned();
        self.text.replace_range(range, text);
        before
    }

    /// Removes all lines between two positions, and a line break.
    fn remove_lines(&mut self, first: usize, last: usize) {
        let (mut start, mut end) = (self.line_start(first), self.line_end(last));
        let after = self.break_after(end);
        if after > 0 {
            end += after;
        } else {
            start -= break_before(&self.text[..start]);
        }
        self.replace(start..end, "");
    }

    /// Adds lines after the line that ends at a position.
    fn insert_lines(&mut self, line_end: usize, indent: &str, lines: &[String]) {
        let (lines, newline) = (self.joined(indent, lines), self.newline());
        let after = self.break_after(line_end);
        let (at, text) = if after > 0 {
            (line_end + after, format!("{lines}{newline}"))
        } else {
            (line_end, format!("{newline}{lines}"))
        };
        self.replace(at..at, &text);
    }

    fn joined(&self, indent: &str, lines: &[String]) -> String {
        lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join(self.newline())
    }

    /// The line break of the text.
    fn newline(&self) -> &'static str {
        match self.text.find(['\n', '\r']) {
            Some(at) if self.text[at..].starts_with("\r\n") => "\r\n",
            Some(at) if self.text[at..].starts_with('\r') => "\r",
            _ => "\n",
        }
    }

    fn break_after(&self, at: usize) -> usize {
        let rest = &self.text[at..];
        if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with(['\n', '\r'])) }
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind(['\n', '\r']).map_or(0, |before| before + 1)
    }

    fn line_end(&self, at: usize) -> usize {
        self.text[at..].find(['\n', '\r']).map_or(self.text.len(), |after| at + after)
    }

    /// What stands before the first thing on its line.
    fn indent(&self, at: usize) -> Result<String> {
        let indent = &self.text[self.line_start(at)..at];
        if !indent.chars().all(|c| c == ' ') {
            bail!("it has an entry that does not start a line");
        }
        Ok(indent.to_owned())
    }

    /// The end of the line of a position, or of the comments below that are indented more than a list or a mapping and
    /// so belong to its last entry.
    fn end_with_comments(&self, at: usize, indent: usize) -> usize {
        let mut end = self.line_end(at);
        loop {
            let start = end + self.break_after(end);
            let next = self.line_end(start);
            let line = &self.text[start..next];
            let text = line.trim_start_matches(' ');
            if start == end || !text.starts_with('#') || line.len() - text.len() <= indent {
                return end;
            }
            end = next;
        }
    }
}

/// Where an entry ends.
fn end_of(item: &Item) -> usize {
    item.node.end.max(item.dash + 1)
}

fn list_in<'a>(root: &'a Node, section: &str) -> Result<&'a Pair> {
    root.pair(section).map(|(_, pair)| pair).with_context(|| format!("{section:?} comes from a merged mapping"))
}

/// An entry as the lines of a list.
fn block_entry(entry: &Value) -> Result<Vec<String>> {
    let text = serde_saphyr::to_string(entry).context("the kubeconfig cannot be written as YAML")?;
    let lines = text.trim_end().lines().enumerate();
    Ok(lines.map(|(index, line)| format!("{}{line}", if index == 0 { "- " } else { "  " })).collect())
}

/// The list of a section; one that is not there is empty.
fn list_of<'a>(config: &'a mut Value, section: &str) -> &'a mut Vec<Value> {
    let place = &mut config[section];
    if !place.is_array() {
        *place = json!([]);
    }
    place.as_array_mut().expect("invariant: it is an array by now")
}

fn is_listed(config: &Value, context: &str) -> bool {
    config["contexts"].as_array().into_iter().flatten().any(|entry| entry["name"] == context)
}

fn positions(list: &[Value], name: &Value) -> Vec<usize> {
    list.iter().enumerate().filter(|(_, entry)| entry["name"] == *name).map(|(index, _)| index).collect()
}

fn remove_all(list: &mut Vec<Value>, indices: &[usize]) {
    for index in indices.iter().rev() {
        list.remove(*index);
    }
}

/// A kubeconfig without what says nothing: lists without entries, and a current context without a name.
fn essence(mut config: Value) -> Value {
    if let Some(fields) = config.as_object_mut() {
        fields.retain(|key, value| {
            let nothing = value.is_null() || *value == json!([]) || *value == "";
            !nothing || !(key == CURRENT || SECTIONS.contains(&key.as_str()))
        });
    }
    config
}

#[cfg(test)]
mod tests;
