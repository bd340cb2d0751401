//! A project on disk: what ties descriptions, plans and files together.

use std::fmt::Write as _;
use std::path::Path;

use crate::command::CommandError;
use crate::plan::{Change, Conflict, Plan, ReadError};
use crate::project::{FILE, Project, ProjectError};
use crate::record;
use crate::render::render;
use crate::tree::Tree;
use crate::write::{self, WriteError};

/// Why a project could not be changed. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ScaffoldError {
    #[error(
        "there is no project here: {path} has no file PROJECT; run `windlass init`, or go to the project's directory"
    )]
    NoProject { path: String },
    #[error("{path} has a project already")]
    ProjectExists { path: String },
    #[error("{path} is {what}, and a project is a directory: name one that exists, or one that will be created")]
    NotADirectory { path: String, what: &'static str },
    #[error("this project has no client; `windlass generate client` adds one")]
    NoClient,
    #[error(
        "{path} would be generated for two parts of this project: their names are too similar, choose another group, \
         kind or controller name for the new one"
    )]
    SameFile { path: String },
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{}", conflicts(.0))]
    Conflicts(Vec<Conflict>),
}

fn conflicts(conflicts: &[Conflict]) -> String {
    let mut text = String::from("nothing was changed, because files would lose what you wrote:\n");
    for conflict in conflicts {
        let _ = writeln!(text, "  {} {}", conflict.path, conflict.reason);
    }
    text.push_str(
        "Make the change that is shown below yourself and run the command again, or add --force to replace these \
         files; `git diff` then shows what was lost. The change would have been:\n",
    );
    for conflict in conflicts {
        text.push_str(&conflict.wanted.diff());
    }
    text
}

/// How a change is carried out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mode {
    /// Nothing is written.
    pub dry_run: bool,
    /// Files with changes of the user are replaced.
    pub force: bool,
}

/// Reads the project of a directory, after what an earlier command was ended in has been finished.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn open(root: &Path) -> Result<Project, ScaffoldError> {
    let _lock = write::lock(root)?;
    open_locked(root)
}

/// The same for a caller that has the lock.
pub(crate) fn open_locked(root: &Path) -> Result<Project, ScaffoldError> {
    write::finish(root)?;
    match std::fs::read_to_string(root.join(FILE)) {
        Ok(text) => Ok(Project::parse(&text)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(ScaffoldError::NoProject { path: root.display().to_string() })
        }
        Err(error) => Err(ProjectError::Syntax(error.to_string()).into()),
    }
}

/// Checks that a directory has no project. One whose `init` was interrupted can be initialized again.
///
/// # Errors
/// If it has one, or is no directory.
pub fn ensure_new(root: &Path) -> Result<(), ScaffoldError> {
    let known = root.ancestors().find(|path| path.symlink_metadata().is_ok());
    if let Some(path) = known.filter(|path| !path.is_dir()) {
        let what = if path.exists() { "a file" } else { "a link that leads nowhere" };
        return Err(ScaffoldError::NotADirectory { path: path.display().to_string(), what });
    }
    if root.join(FILE).exists() && !write::is_decided(root) {
        return Err(ScaffoldError::ProjectExists { path: root.display().to_string() });
    }
    Ok(())
}

/// Writes a new project. If an earlier process was ended while it wrote the same project, the rest is written.
///
/// # Errors
/// If there is one, or if files are in its way.
pub fn init(root: &Path, project: &Project, mode: Mode) -> Result<Plan, ScaffoldError> {
    let _lock = write::lock(root)?;
    if root.is_dir() && write::finish(root)? && crate::plan::read(root, FILE)? == Some(project.to_text()) {
        let created =
            |(path, text): (&str, &str)| Change { path: path.to_owned(), before: None, after: Some(text.to_owned()) };
        return Ok(Plan { changes: rendered(project)?.iter().map(created).collect(), conflicts: Vec::new() });
    }
    ensure_new(root)?;
    project.project_name.check_new().map_err(CommandError::Name)?;
    carry_out(root, &Tree::default(), &rendered(project)?, mode)
}

/// Changes a project.
///
/// # Errors
/// If the change is refused or contradicts what the user has changed.
pub fn change(
    root: &Path,
    mode: Mode,
    change: impl FnOnce(&mut Project) -> Result<(), CommandError>,
) -> Result<Plan, ScaffoldError> {
    let _lock = write::lock(root)?;
    let before = open_locked(root)?;
    let mut after = before.clone();
    change(&mut after)?;
    carry_out(root, &rendered(&before)?, &rendered(&after)?, mode)
}

/// Adds clients of the kinds to the `api` package. From then on they follow the kinds of the project.
///
/// Again, it brings back what has been removed.
///
/// # Errors
/// If the user has changed the same places.
pub fn generate_client(root: &Path, mode: Mode) -> Result<Plan, ScaffoldError> {
    let _lock = write::lock(root)?;
    let mut without = open_locked(root)?;
    let mut with = without.clone();
    without.settings_mut().client = false;
    with.settings_mut().client = true;
    carry_out(root, &rendered(&without)?, &rendered(&with)?, mode)
}

/// Takes the clients of the kinds away again.
///
/// # Errors
/// If there are none, or the user has changed them.
pub fn delete_client(root: &Path, mode: Mode) -> Result<Plan, ScaffoldError> {
    let _lock = write::lock(root)?;
    let with = open_locked(root)?;
    if !with.settings().client {
        return Err(ScaffoldError::NoClient);
    }
    let mut without = with.clone();
    without.settings_mut().client = false;
    carry_out(root, &rendered(&with)?, &rendered(&without)?, mode)
}

/// The files of a project, each of which belongs to one part of it.
pub(crate) fn rendered(project: &Project) -> Result<Tree, ScaffoldError> {
    let tree = render(project);
    match tree.clash() {
        Some(path) => Err(ScaffoldError::SameFile { path: path.to_owned() }),
        None => Ok(tree),
    }
}

fn carry_out(root: &Path, base: &Tree, target: &Tree, mode: Mode) -> Result<Plan, ScaffoldError> {
    let plan = Plan::new(root, base, target, mode.force)?;
    if !plan.conflicts.is_empty() {
        return Err(ScaffoldError::Conflicts(plan.conflicts));
    }
    if !mode.dry_run {
        let recorded = record::read(root).unwrap_or_else(|| base.clone());
        write_recorded(root, &plan, &record::follow(&recorded, base, target))?;
    }
    Ok(plan)
}

/// Carries out a plan, and keeps what was generated. For a caller that has the lock.
pub(crate) fn write_recorded(root: &Path, plan: &Plan, generated: &Tree) -> Result<(), ScaffoldError> {
    let mut plan = plan.clone();
    plan.change(record::FILE, crate::plan::read(root, record::FILE)?, Some(record::to_text(generated)));
    Ok(write::write_locked(root, &plan)?)
}
