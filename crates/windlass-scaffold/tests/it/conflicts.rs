//! What the user wrote is never lost without `--force`.

use windlass_scaffold::command::{self, CommandError, NewApi};
use windlass_scaffold::scaffold::{self, Mode};
use windlass_scaffold::{Plan, Project};

use super::{Dir, api, project, selector};

fn refused(dir: &Dir, change: impl FnOnce(&mut Project) -> Result<(), CommandError>, part: &str) {
    let before = dir.files();
    let error = scaffold::change(dir.path(), Mode::default(), change).unwrap_err().to_string();
    assert!(error.contains(part), "{part:?} is not in: {error}");
    assert_eq!(dir.files(), before);
}

fn forced(dir: &Dir, change: impl FnOnce(&mut Project) -> Result<(), CommandError>) -> Plan {
    scaffold::change(dir.path(), Mode { dry_run: false, force: true }, change).unwrap()
}

#[test]
fn an_edited_reconciler_is_not_removed() {
    let dir = Dir::new(&project());
    dir.create(api("webapp", "v1", "Guestbook"));
    dir.edit("src/controller/guestbook.rs", "Ok(Outcome::Done)", "Ok(Outcome::Done) // mine");
    let delete = |project: &mut Project| command::delete_api(project, &selector("v1", "Guestbook"));
    refused(&dir, delete, "src/controller/guestbook.rs has changes of yours and would be removed");
    forced(&dir, delete);
    assert!(!dir.path().join("src/controller/guestbook.rs").exists());
}

#[test]
fn a_file_in_the_way_is_not_overwritten() {
    let dir = Dir::new(&project());
    std::fs::create_dir(dir.path().join("src/controller")).unwrap();
    std::fs::write(dir.path().join("src/controller/guestbook.rs"), "// mine\n").unwrap();
    let new = api("webapp", "v1", "Guestbook");
    refused(&dir, |project| command::create_api(project, new), "src/controller/guestbook.rs exists already");
}

#[test]
fn a_project_is_not_made_twice_nor_over_files() {
    let dir = Dir::new(&project());
    let error = scaffold::init(dir.path(), &project(), Mode::default()).unwrap_err().to_string();
    assert!(error.contains("has a project already"), "{error}");
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("Cargo.toml"), "[package]\n").unwrap();
    let error = scaffold::init(other.path(), &project(), Mode::default()).unwrap_err().to_string();
    assert!(error.contains("Cargo.toml exists already"), "{error}");
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1);
}

#[test]
fn commands_that_cannot_be_are_refused() {
    let dir = Dir::new(&project());
    dir.create(api("webapp", "v1", "Guestbook"));
    let cases: [(NewApi, &str); 6] = [
        (api("webapp", "v1", "Guestbook"), "Guestbook v1 exists already"),
        (api("other", "v1", "Order"), "windlass edit --multigroup"),
        (api("webapp", "v1", "Pod"), "Kubernetes has a kind Pod"),
        (api("webapp", "v1", "GuestBook"), "too similar to Guestbook"),
        (NewApi { namespaced: false, controller: false, ..api("webapp", "v2", "Guestbook") }, "the other scope"),
        (NewApi { resource: false, ..api("apps", "v1", "Nothing") }, "--external-api-path"),
    ];
    for (new, part) in cases {
        refused(&dir, |project| command::create_api(project, new), part);
    }
    refused(
        &dir,
        |project| command::delete_api(project, &selector("v2", "Guestbook")),
        "it has: Guestbook webapp.my.domain/v1",
    );
    let conversion = command::Webhooks { conversion: true, ..command::Webhooks::default() };
    refused(
        &dir,
        |project| command::create_webhook(project, &selector("v1", "Guestbook"), &conversion),
        "one version only",
    );
}
