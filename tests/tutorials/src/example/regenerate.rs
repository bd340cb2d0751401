//! Makes the project of an example again with the commands of its README, and compares: nothing differs but what a user
//! writes.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::commands::Commands;

/// Where a user writes. Everything else is as it was generated.
const USER_CODE: [&str; 9] = [
    "Cargo.toml",
    "README.md",
    "api/",
    "config/crd/bases/",
    "config/rbac/role",
    "config/samples/",
    "config/webhook/manifests.yaml",
    "src/",
    "tests/",
];

const RECORD: &str = ".windlass/generated";

pub(crate) fn check(commands: &Commands, example: &Path) -> Result<()> {
    let name = example.file_name().context("an example has a name")?;
    let readme = std::fs::read_to_string(example.join("README.md"))?;
    let typed = typed(&readme);
    ensure!(!typed.is_empty(), "README.md does not say how it was made");

    // The directories are as in this repository, so that relative paths are the same.
    let root = commands.directory.join("regenerated");
    let project = root.join("examples").join(name);
    std::fs::create_dir_all(&project)?;
    let crates = example.join("../../crates").canonicalize()?;
    if !root.join("crates").exists() {
        std::os::unix::fs::symlink(crates, root.join("crates"))?;
    }
    for line in typed {
        commands.succeeds(&project, line)?;
    }
    let (recorded, made) = (read(&example.join(RECORD))?, read(&project.join(RECORD))?);
    ensure!(recorded == made, "{RECORD} is not what is generated now: run `windlass upgrade` in {}", example.display());
    compare(&project, &project, example)
}

/// The commands of the block after the heading, but those that need the code.
fn typed(readme: &str) -> Vec<&str> {
    let Some((_, after)) = readme.split_once("\n## How it was made\n") else { return Vec::new() };
    let block = after.split("```").nth(1).unwrap_or_default();
    let commands = block.lines().filter_map(|line| line.strip_prefix("windlass "));
    commands.filter(|command| !command.starts_with("manifests")).collect()
}

fn compare(directory: &Path, project: &Path, example: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            compare(&path, project, example)?;
            continue;
        }
        let relative = path.strip_prefix(project)?;
        let name = relative.display().to_string();
        let is_user_code = USER_CODE.iter().any(|user| name.starts_with(user));
        // What a user has deleted stays deleted.
        if is_user_code || !example.join(relative).exists() {
            continue;
        }
        if read(&path)? != read(&example.join(relative))? {
            bail!("{name} differs from what is generated");
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn commands_are_read_from_the_readme() {
        let readme =
            "# at\n\n## How it was made\n\n```sh\nwindlass init --domain a.b\nwindlass manifests --write\n```\n";
        assert_eq!(super::typed(readme), ["init --domain a.b"]);
    }
}
