//! Projects of an older version become projects of this one, with the user's changes.

use windlass_scaffold::scaffold::Mode;
use windlass_scaffold::upgrade::{OnConflict, Upgrade, upgrade};

use super::{Dir, api, project, selector};
use windlass_scaffold::command;

const RECORD: &str = ".windlass/generated";

/// Makes it a project of an older version, whose file had something else in it.
fn age(dir: &Dir, path: &str, now: &str, then: &str) {
    dir.edit(path, now, then);
    let record = dir.read(RECORD);
    let start = record.find(&format!("\n{path}\n")).unwrap_or_else(|| panic!("{path} is not recorded"));
    let (before, after) = record.split_at(start);
    let quoted = |text: &str| text.replace('\n', "\n|");
    assert!(after.contains(&quoted(now)), "{now:?} is not in the record of {path}");
    std::fs::write(dir.path().join(RECORD), before.to_owned() + &after.replacen(&quoted(now), &quoted(then), 1))
        .unwrap();
}

fn old_project() -> Dir {
    let dir = Dir::new(&project());
    dir.create(api("webapp", "v1", "Guestbook"));
    let version = format!("cliVersion: \"{}\"", env!("CARGO_PKG_VERSION"));
    age(&dir, "PROJECT", &version, "cliVersion: \"0.0.9\"");
    age(&dir, "Cargo.toml", "clap = { version = \"4\"", "clap = { version = \"3\"");
    age(&dir, "Makefile", "lint: ## Check the code", "lint: ## Check");
    age(&dir, "src/lib.rs", "    controller::add_to(&mut manager)?;\n", "    controller::all(&mut manager)?;\n");
    dir
}

fn run(dir: &Dir, on_conflict: OnConflict) -> Upgrade {
    upgrade(dir.path(), Mode::default(), on_conflict, None).unwrap()
}

#[test]
fn an_untouched_project_becomes_a_new_one() {
    let new = Dir::new(&project());
    new.create(api("webapp", "v1", "Guestbook"));
    let dir = old_project();
    // The older version had another file, and one of today's is new.
    age(&dir, "rustfmt.toml", "max_width = 120\n", "max_width = 100\n");
    let done = run(&dir, OnConflict::Refuse);
    assert_eq!(done.contradictions, []);
    assert_eq!((done.from.as_str(), done.written), ("0.0.9", true));
    assert_eq!(dir.files(), new.files());
    assert!(run(&dir, OnConflict::Refuse).plan.changes.is_empty());
}

#[test]
fn a_dry_run_writes_nothing() {
    let dir = old_project();
    let before = dir.files();
    let mode = Mode { dry_run: true, force: false };
    let planned = upgrade(dir.path(), mode, OnConflict::Refuse, None).unwrap();
    assert!(!planned.written && planned.plan.diff().contains("+    controller::add_to(&mut manager)?;"));
    assert_eq!(dir.files(), before);
}

#[test]
fn edited_files_are_merged() {
    let dir = old_project();
    dir.edit("src/lib.rs", "    Ok(manager)", "    manager.add_ready_check(\"mine\", || Ok(()));\n    Ok(manager)");
    dir.edit("Cargo.toml", "features = [\"derive\", \"env\"]", "features = [\"derive\", \"env\", \"wrap_help\"]");
    dir.edit("Makefile", "all: build", "all: build lint");
    std::fs::remove_file(dir.path().join("justfile")).unwrap();
    let done = run(&dir, OnConflict::Refuse);
    assert_eq!(done.contradictions, []);
    let lib = dir.read("src/lib.rs");
    assert!(lib.contains("controller::add_to") && lib.contains("\"mine\""), "{lib}");
    let cargo = dir.read("Cargo.toml");
    assert!(cargo.contains("clap = { version = \"4\", features = [\"derive\", \"env\", \"wrap_help\"] }"), "{cargo}");
    let makefile = dir.read("Makefile");
    assert!(makefile.contains("all: build lint") && makefile.contains("lint: ## Check the code"), "{makefile}");
    assert!(!dir.path().join("justfile").exists(), "a file that was removed stays away");
}

#[test]
fn a_contradiction_changes_nothing() {
    let dir = old_project();
    dir.edit("src/lib.rs", "    controller::all(&mut manager)?;", "    controller::mine(&mut manager)?;");
    let before = dir.files();
    let refused = run(&dir, OnConflict::Refuse);
    let line = dir.read("src/lib.rs").lines().position(|line| line.contains("controller::mine")).unwrap() + 1;
    let found = &refused.contradictions[0];
    assert_eq!((found.path.as_str(), found.regions.as_slice()), ("src/lib.rs", &[(line, line)][..]));
    assert!(!refused.written);
    assert_eq!(dir.files(), before);
}

#[test]
fn markers_are_written_where_they_were_asked_for() {
    let dir = old_project();
    dir.edit("src/lib.rs", "    controller::all(&mut manager)?;", "    controller::mine(&mut manager)?;");
    dir.edit("Makefile", "lint: ## Check", "lint: ## Mine");
    let done = run(&dir, OnConflict::Markers);
    assert!(done.written);
    let lib = dir.read("src/lib.rs");
    assert!(lib.contains("<<<<<<<") && lib.contains("controller::mine") && lib.contains("controller::add_to"), "{lib}");
    let makefile = dir.read("Makefile");
    assert!(makefile.contains("lint: ## Mine") && !makefile.contains("<<<<<<<"), "{makefile}");
    assert!(dir.read("Makefile.windlass-new").contains("lint: ## Check the code"));
    assert!(dir.read("Cargo.toml").contains("clap = { version = \"4\""));
}

#[test]
fn commands_in_an_older_project_leave_it_upgradable() {
    let new = Dir::new(&project());
    new.create(api("webapp", "v1", "Guestbook"));
    new.create(api("webapp", "v1", "Order"));
    let dir = old_project();
    let before = dir.files();
    dir.create(api("webapp", "v1", "Order"));
    assert!(dir.read("src/lib.rs").contains("controller::all"), "only an upgrade changes the rest");
    dir.run(|project| command::delete_api(project, &selector("v1", "Order")));
    assert_eq!(dir.files(), before);
    dir.create(api("webapp", "v1", "Order"));
    assert_eq!(run(&dir, OnConflict::Refuse).contradictions, []);
    assert_eq!(dir.files(), new.files());
}

#[test]
fn files_of_an_earlier_commit_stand_in_for_the_record() {
    let dir = old_project();
    let old = dir.files();
    std::fs::remove_file(dir.path().join(RECORD)).unwrap();
    dir.edit("src/lib.rs", "    Ok(manager)", "    manager.add_ready_check(\"mine\", || Ok(()));\n    Ok(manager)");
    let unedited = |path: &str| old.get(path).cloned();
    let done = upgrade(dir.path(), Mode::default(), OnConflict::Refuse, Some(&unedited)).unwrap();
    assert_eq!(done.contradictions, []);
    let lib = dir.read("src/lib.rs");
    assert!(lib.contains("controller::add_to") && lib.contains("\"mine\""), "{lib}");
}
