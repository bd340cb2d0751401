//! Commands in the directory of a project, which must succeed or must fail.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The programs, and where projects are.
pub(crate) struct Commands {
    pub windlass: PathBuf,
    pub directory: PathBuf,
    /// The versions of dependencies that all projects use.
    pub lock: PathBuf,
}

impl Commands {
    pub(crate) fn new(windlass: &Path, directory: &Path, lock: &Path) -> Result<Self> {
        let whole = |path: &Path| path.canonicalize().with_context(|| format!("there is no {}", path.display()));
        Ok(Self { windlass: whole(windlass)?, directory: whole(directory)?, lock: whole(lock)? })
    }

    /// An empty directory, but for the versions of dependencies: all projects use the same.
    pub(crate) fn empty(&self, name: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        std::fs::create_dir_all(&path)?;
        std::fs::copy(&self.lock, path.join("Cargo.lock"))?;
        Ok(path)
    }

    /// `windlass` with these arguments, which are separated by spaces, in a project. It has a home of its own.
    pub(crate) fn windlass(&self, project: &Path, args: &str) -> Command {
        let mut command = Command::new(&self.windlass);
        command.args(words(args)).current_dir(project).stdin(Stdio::null());
        command.env("WINDLASS_HOME", self.directory.join("home")).env("CARGO_NET_OFFLINE", "true");
        command
    }

    /// Runs `windlass`, which must succeed.
    pub(crate) fn succeeds(&self, project: &Path, args: &str) -> Result<String> {
        let output = self.windlass(project, args).stderr(Stdio::piped()).output()?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !output.status.success() {
            bail!("windlass {args}: {}\n{}{}", output.status, said(&output.stdout), said(&output.stderr));
        }
        Ok(said(&output.stdout))
    }

    /// Runs `windlass`, which must fail, and returns what it says is wrong.
    pub(crate) fn fails(&self, project: &Path, args: &str) -> Result<String> {
        let output = self.windlass(project, args).output()?;
        if output.status.success() {
            bail!("windlass {args} should fail");
        }
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs cargo, which must succeed.
    pub(crate) fn cargo(project: &Path, args: &[&str]) -> Result<()> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo).args(args).current_dir(project).stdin(Stdio::null()).status()?;
        if !status.success() {
            bail!("cargo {}: {status}", args.join(" "));
        }
        Ok(())
    }
}

/// Words between spaces; a part in single quotes is one word.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    #[test]
    fn quotes_hold_a_word_together() {
        assert_eq!(super::words("a --b 'c = { d }' e"), ["a", "--b", "c = { d }", "e"]);
    }
}
