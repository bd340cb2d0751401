//! What the compiler says about common mistakes: `cases/NAME.rs` has the mistake, `cases/NAME.stderr` the message.
//!
//! After a change of a message, `UPDATE=1 cargo test -p windlass-ui` writes the new ones: read them as somebody does who
//! does not know the library.
//!
//! Cases are compiled against the library that this test is linked with. They name other crates through it: which of
//! several builds of `kube` is the right one cannot be told from outside. `trybuild` would need no such care, but checks
//! all dependencies anew, twice: 165 CPU seconds where this takes one.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler that `cases/*.stderr` are of. Other versions word and arrange their part of a message differently.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn mistakes_are_explained() {
    let version = Command::new("rustc").arg("--version").output().expect("rustc runs").stdout;
    let version = String::from_utf8_lossy(&version);
    if !version.starts_with(COMPILER) {
        // Not `eprintln!`, whose output is shown for tests that fail only.
        let _ = writeln!(std::io::stderr(), "SKIPPED: compiler messages are those of {COMPILER}x, this is {version}");
        return;
    }
    let library = library();
    let mut cases: Vec<PathBuf> = std::fs::read_dir("tests/cases")
        .expect("there are cases")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    let mut differ = String::new();
    for case in cases {
        let message = compile(&case, &library);
        let file = case.with_extension("stderr");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &message).expect("it can be written");
        }
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        if message != expected {
            write!(differ, "\n{}: expected\n{expected}\nbut rustc says\n{message}", case.display()).expect("a string");
        }
    }
    assert!(differ.is_empty(), "{differ}\nUPDATE=1 writes the new messages");
}

/// The build of the library that this test is linked with: the latest, as cargo has just seen to it.
fn library() -> PathBuf {
    let this = std::env::current_exe().expect("it has a path");
    let builds = std::fs::read_dir(this.parent().expect("it is in a directory")).expect("it can be read");
    let builds = builds.map(|entry| entry.expect("it can be read").path()).filter(|path| {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libwindlass-") && path.extension().is_some_and(|extension| extension == "rlib")
    });
    let latest = builds.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok());
    latest.expect("the library is beside this test")
}

/// What the compiler says about a case that it must refuse.
fn compile(case: &Path, library: &Path) -> String {
    let output = Command::new("rustc")
        .args(["--edition=2024", "--emit=metadata", "--diagnostic-width=140", "--color=never", "-Awarnings"])
        .args(["--out-dir", env!("CARGO_TARGET_TMPDIR")])
        .arg("--extern")
        .arg(format!("windlass={}", library.display()))
        .arg("-L")
        .arg(format!("dependency={}", library.parent().expect("it is in a directory").display()))
        .arg(case)
        .output()
        .expect("rustc runs");
    assert!(!output.status.success(), "{} compiles", case.display());
    normalise(&String::from_utf8_lossy(&output.stderr))
}

/// The line with the item whose bound is not met, without the modules that the item is in.
fn without_modules(line: &str) -> String {
    const START: &str = "note: required by a bound in `";
    let Some(mut item) = line.strip_prefix(START) else { return line.to_owned() };
    while let Some((module, rest)) = item.split_once("::")
        && module.starts_with(|first: char| first.is_ascii_lowercase())
    {
        item = rest;
    }
    format!("{START}{item}")
}

/// The message without what changes with the library's source: where it is, and its line numbers. And without modules
/// of the library: rustc names them where another crate has something of the same name, which depends on the features
/// of dependencies.
fn normalise(message: &str) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two levels down");
    let workspace = format!("{}/", workspace.display());
    let mut normal = String::new();
    let mut elsewhere = false;
    for line in message.lines() {
        let line = line.replace(&workspace, "").replace("windlass::", "");
        let line = without_modules(&line);
        let text = line.trim_start();
        let number = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(0);
        let (number, rest) = text.split_at(number);
        let rest = rest.trim_start();
        if let Some(place) = text.strip_prefix("--> ") {
            elsewhere = !place.starts_with("tests/cases/");
            let place = if elsewhere { place.split(':').next().unwrap_or(place) } else { place };
            let _ = writeln!(normal, "  --> {place}");
        } else if elsewhere && rest.starts_with('|') {
            // An excerpt of the library, which rustc shows if it finds the source.
        } else if rest.starts_with('|') || rest.starts_with("= ") {
            let number = if elsewhere { "" } else { number };
            let _ = writeln!(normal, "{number:>2} {rest}");
        } else if line.starts_with("error: aborting") {
            break;
        } else {
            elsewhere = false;
            // How far a line is indented depends on the widest line number.
            let indent = if line.starts_with(' ') { "  " } else { "" };
            let _ = writeln!(normal, "{indent}{text}");
        }
    }
    normal.truncate(normal.trim_end().len());
    normal.push('\n');
    normal
}
