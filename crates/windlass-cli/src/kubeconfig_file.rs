//! How clusters get into the user's kubeconfig and out of it again.
//!
//! The user's file is edited as text ([`text`]): what is not ours stays as it was written.

mod text;
mod tree;

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::private;
pub(crate) use text::{Before, Replaced};
use text::{CURRENT, SECTIONS, Text};

/// What a kubeconfig begins with that is made for a cluster.
const HEADER: &str = "apiVersion: v1\nkind: Config\n";

/// The user's kubeconfig: the first file of `$KUBECONFIG`, else `~/.kube/config`.
fn path() -> Result<PathBuf> {
    if let Some(paths) = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty())
        && let Some(first) = std::env::split_paths(&paths).find(|path| !path.as_os_str().is_empty())
    {
        return Ok(first);
    }
    let home = std::env::var_os("HOME").context("HOME is not set; set KUBECONFIG to a file")?;
    Ok(Path::new(&home).join(".kube").join("config"))
}

/// Reads a kubeconfig.
pub(crate) fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    serde_saphyr::from_str(&text).with_context(|| not_one(path))
}

/// The user's kubeconfig as text, with what it says; `None` if there is none.
fn read_text(path: &Path) -> Result<Option<(Text, Value)>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => Text::new(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let value = text.value().with_context(|| not_one(path))?;
    Ok(Some((text, value)))
}

fn not_one(path: &Path) -> String {
    format!("{} is not a kubeconfig", path.display())
}

/// What to do about a file that cannot be edited.
fn refused(path: &Path) -> String {
    format!(
        "{} cannot be edited; let `windlass up --kubeconfig FILE` write another file, or name one in KUBECONFIG",
        path.display()
    )
}

/// Writes a kubeconfig that only its owner can read, all of it or nothing.
pub(crate) fn write(path: &Path, config: &Value) -> Result<()> {
    write_text(path, &to_yaml(config)?)
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    // A link stays one: what it leads to is written.
    let path = target(path);
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    private::write(&path, text)
}

/// The file that links lead to; it need not be there.
fn target(path: &Path) -> PathBuf {
    /// As many links in a row as Linux follows.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| next.clone(), |dir| dir.join(&next));
    }
    path
}

/// A kubeconfig as kubectl writes it.
pub(crate) fn to_yaml(config: &Value) -> Result<String> {
    serde_saphyr::to_string(config).context("the kubeconfig cannot be written as YAML")
}

/// Adds a cluster to the user's kubeconfig and makes its context current. Returns the file.
///
/// Before the file is edited, `record` is told what was there: whatever happens then, it can be again.
pub(crate) fn merge(ours: &Value, record: impl FnOnce(Before) -> Result<()>) -> Result<PathBuf> {
    let file = path()?;
    let _lock = Lock::take(&file)?;
    let read = read_text(&file)?;
    let is_new = read.is_none();
    let mut text = read.map_or_else(|| Text::new(HEADER), |(text, _)| text);
    let mut before = text.merge(ours).with_context(|| refused(&file))?;
    if is_new {
        // The file stays, as kubectl writes one without a cluster.
        before.replaced.clear();
    }
    record(before)?;
    write_text(&file, &text.written())?;
    Ok(file)
}

/// Whether the user's kubeconfig knows a cluster.
pub(crate) fn names(name: &str) -> Result<bool> {
    let Some((_, config)) = read_text(&path()?)? else { return Ok(false) };
    let listed = |section: &str| config[section].as_array().into_iter().flatten().any(|entry| entry["name"] == name);
    Ok(SECTIONS.into_iter().any(listed) || config[CURRENT] == name)
}

/// Takes a cluster out of the user's kubeconfig. If its context was current, the one before it is again.
pub(crate) fn forget(name: &str, before: &Before) -> Result<()> {
    let file = path()?;
    if !file.exists() {
        return Ok(());
    }
    let _lock = Lock::take(&file)?;
    let Some((mut text, _)) = read_text(&file)? else { return Ok(()) };
    let unedited = text.written();
    text.forget(name, before).with_context(|| refused(&file))?;
    let edited = text.written();
    if edited == unedited { Ok(()) } else { write_text(&file, &edited) }
}

/// The lock that kubectl takes too before it edits a kubeconfig: a file beside it. Given back when dropped.
///
/// A file of ours says so and is locked by the system too, which gives that back however a process ends: one that was
/// left behind can be told from one that is in use.
struct Lock {
    path: PathBuf,
    _held: File,
}

impl Lock {
    /// How long another program may take for its edit.
    const EDIT_TIMEOUT: Duration = Duration::from_secs(5);

    /// What a file of ours holds; kubectl's are empty.
    const OURS: &str = "windlass\n";

    fn take(file: &Path) -> Result<Self> {
        let mut path = file.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let started = Instant::now();
        loop {
            match File::create_new(&path) {
                Ok(mut held) => {
                    // Another process that holds it in this moment looks whether it was left behind, and must not find
                    // that it says so. Where neither can be done, the file is a lock all the same.
                    let _ = flock(&held, FlockOperation::LockExclusive)
                        .map_err(io::Error::from)
                        .and_then(|()| held.write_all(Self::OURS.as_bytes()));
                    return Ok(Self { path, _held: held });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot create {}", path.display())),
            }
            if let Some(held) = Self::left_behind(&path) {
                return Ok(Self { path, _held: held });
            }
            if started.elapsed() >= Self::EDIT_TIMEOUT {
                bail!("another program is editing {}; if none is, delete {}", file.display(), path.display());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes over the lock of a windlass that was killed.
    fn left_behind(path: &Path) -> Option<File> {
        let mut file = File::open(path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        // Its owner may have removed it since it was opened, and another one may be there.
        let (opened, there) = (file.metadata().ok()?, path.metadata().ok()?);
        (text == Self::OURS && (opened.dev(), opened.ino()) == (there.dev(), there.ino())).then_some(file)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
