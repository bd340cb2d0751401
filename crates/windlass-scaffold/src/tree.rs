//! A tree of files as a value.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Files by their path, which is relative to the project and separated by `/`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    files: BTreeMap<String, String>,
    clash: Option<String>,
    /// Which part of a project a file is, if its path depends on more than the part: the path by the part.
    parts: BTreeMap<String, String>,
}

impl Tree {
    /// Adds a file.
    ///
    /// # Panics
    /// If there is one of that path: two parts of the scaffold may not write the same file.
    pub fn add(&mut self, path: impl Into<String>, content: impl Into<String>) {
        let path = path.into();
        let earlier = self.files.insert(path.clone(), content.into());
        assert!(earlier.is_none(), "invariant: {path} is generated once");
    }

    /// Adds a file of a project. If there is one of that path, that one stays and the path is a [clash](Self::clash):
    /// the names in a project can be such that two of its parts would be the same file.
    pub(crate) fn add_once(&mut self, path: impl Into<String>, content: impl Into<String>) {
        match self.files.entry(path.into()) {
            Entry::Occupied(taken) => {
                self.clash.get_or_insert_with(|| taken.key().clone());
            }
            Entry::Vacant(free) => {
                free.insert(content.into());
            }
        }
    }

    /// Adds the file of a part of a project that keeps its identity when it gets another path.
    pub(crate) fn add_part(&mut self, part: String, path: String, content: String) {
        self.parts.insert(part, path.clone());
        self.add_once(path, content);
    }

    /// The files that have another path in `target`: the old path by the new one.
    pub(crate) fn moves<'a>(&'a self, target: &'a Self) -> BTreeMap<&'a str, &'a str> {
        let pairs =
            target.parts.iter().filter_map(|(part, path)| Some((path.as_str(), self.parts.get(part)?.as_str())));
        pairs.filter(|(new, old)| new != old).collect()
    }

    /// The first path that two parts of a project would have written.
    pub fn clash(&self) -> Option<&str> {
        self.clash.as_deref()
    }

    /// Sets the content of a file.
    pub(crate) fn set(&mut self, path: impl Into<String>, content: impl Into<String>) {
        self.files.insert(path.into(), content.into());
    }

    /// Removes a file.
    pub(crate) fn remove(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// The content of a file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// All files, ordered by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, content)| (path.as_str(), content.as_str()))
    }

    /// The paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }
}
