//! Lists of the scenarios that pass: their names, sorted, below a header of comments.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// The list and where it is kept.
pub(crate) struct Passing {
    pub path: PathBuf,
    /// The same, from the root of the repository.
    file: String,
    pub names: BTreeSet<String>,
    /// The comments on top, written back as they were.
    header: String,
}

impl Passing {
    pub(crate) fn read(repository: &Path, file: &str) -> Result<Self> {
        let path = repository.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let header = text.lines().take_while(|line| line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
        Ok(Self { path, file: file.to_owned(), names: names(&text), header })
    }

    pub(crate) fn write(&self) -> Result<()> {
        let lines = self.names.iter().flat_map(|name| [name.as_str(), "\n"]);
        let text: String = std::iter::once(self.header.as_str()).chain(lines).collect();
        std::fs::write(&self.path, text).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Names that any commit listed, that are still scenarios, and that are not listed now.
    ///
    /// `None` without git or without history: then nobody can tell.
    pub(crate) fn lost(&self, repository: &Path, scenarios: &BTreeSet<String>) -> Option<Vec<String>> {
        let git = |args: &[&str]| {
            let output = Command::new("git").arg("-C").arg(repository).args(args).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let file = self.file.as_str();
        let commits = git(&["log", "--format=%H", "--", file]).filter(|commits| !commits.is_empty())?;
        let once: BTreeSet<String> = commits
            .lines()
            .filter_map(|commit| git(&["show", &format!("{commit}:{file}")]))
            .flat_map(|text| names(&text))
            .collect();
        Some(once.intersection(scenarios).filter(|name| !self.names.contains(*name)).cloned().collect())
    }
}

fn names(text: &str) -> BTreeSet<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_written_back_sorted() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("passing.txt");
        std::fs::write(&path, "# one\n# two\nzebra\n\n# between\nape\n").expect("written");
        let list = Passing::read(dir.path(), "passing.txt").expect("read");
        list.write().expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "# one\n# two\nape\nzebra\n");
    }
}
