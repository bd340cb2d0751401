//! Projects whose files are not as they were written: checked out with other line ends, or behind links.

use std::collections::BTreeMap;

use windlass_scaffold::command::{self, Edit, Webhooks};
use windlass_scaffold::scaffold::{self, Mode};
use windlass_scaffold::upgrade::{self, OnConflict};

use super::{Dir, api, project, selector};

/// Gives all files the line ends that git gives them on Windows.
fn check_out_with_crlf(dir: &Dir) {
    for (path, text) in dir.files() {
        if !text.starts_with("#!") {
            std::fs::write(dir.path().join(path), text.replace('\n', "\r\n")).unwrap();
        }
    }
}

fn has_only_crlf(files: &BTreeMap<String, String>) {
    for (path, text) in files.iter().filter(|(_, text)| !text.starts_with("#!")) {
        assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{path} has other line ends");
        assert!(!text.contains("\r\r"), "{path}");
    }
}

#[test]
fn a_checkout_with_crlf_keeps_its_line_ends() {
    let plain = Dir::new(&project());
    plain.create(api("shop", "v1", "Widget"));
    let dir = Dir::new(&project());
    dir.create(api("shop", "v1", "Widget"));
    check_out_with_crlf(&dir);
    let before = dir.files();
    let mine = "        Ok(Outcome::Done)";
    dir.edit("src/controller/widget.rs", mine, &format!("        // Mine.\r\n{mine}"));
    dir.edit("README.md", "# ", "My own words.\r\n\r\n# ");
    let edited = dir.files();

    // The plan has the same changes as one for a checkout with other line ends, and no whole files.
    let create = |dir: &Dir, mode: Mode| {
        scaffold::change(dir.path(), mode, |project| command::create_api(project, api("shop", "v1", "Gadget"))).unwrap()
    };
    let dry = Mode { dry_run: true, ..Mode::default() };
    let names = |plan: &windlass_scaffold::Plan| -> Vec<String> {
        plan.changes.iter().map(|change| format!("{} {}", change.verb(), change.path)).collect()
    };
    let plan = create(&dir, dry);
    assert_eq!(names(&plan), names(&create(&plain, dry)));
    assert!(!plan.diff().contains('\r'), "{}", plan.diff());
    assert_eq!(dir.files(), edited);

    create(&dir, Mode::default());
    has_only_crlf(&dir.files());
    assert!(dir.read("src/controller.rs").contains("pub mod gadget;\r\npub mod widget;\r\n"));
    dir.webhook(&selector("v1", "Gadget"), &Webhooks { defaulting: true, ..Webhooks::default() });
    dir.run(|project| command::edit(project, Edit { multigroup: Some(true), ..Edit::default() }));
    assert!(dir.read("src/controller/shop/widget.rs").contains("// Mine.\r\n"));
    has_only_crlf(&dir.files());
    dir.run(|project| command::edit(project, Edit { multigroup: Some(false), ..Edit::default() }));
    dir.run(|project| command::delete_api(project, &selector("v1", "Gadget")));
    assert_eq!(dir.files(), edited);

    std::fs::write(dir.path().join("README.md"), &before["README.md"]).unwrap();
    std::fs::write(dir.path().join("src/controller/widget.rs"), &before["src/controller/widget.rs"]).unwrap();
    let upgraded = upgrade::upgrade(dir.path(), Mode::default(), OnConflict::Refuse, None).unwrap();
    assert!(upgraded.plan.changes.is_empty() && upgraded.contradictions.is_empty(), "{:?}", names(&upgraded.plan));
    assert_eq!(dir.files(), before);
}

#[test]
#[cfg(unix)]
fn a_linked_file_stays_a_link() {
    let dir = Dir::new(&project());
    dir.create(api("shop", "v1", "Widget"));
    std::fs::create_dir(dir.path().join("docs")).unwrap();
    std::fs::rename(dir.path().join("README.md"), dir.path().join("docs/about.md")).unwrap();
    std::os::unix::fs::symlink("docs/about.md", dir.path().join("README.md")).unwrap();
    let before = dir.files();
    let defaulting = Webhooks { defaulting: true, ..Webhooks::default() };
    dir.webhook(&selector("v1", "Widget"), &defaulting);
    assert!(dir.path().join("README.md").is_symlink());
    assert!(dir.read("docs/about.md").contains("`src/webhook/`"));
    dir.run(|project| command::delete_webhook(project, &selector("v1", "Widget"), &defaulting));
    assert!(dir.path().join("README.md").is_symlink());
    assert_eq!(dir.files(), before);
}

#[test]
fn other_parameters_of_add_to_are_coped_with() {
    let dir = Dir::new(&project());
    dir.create(api("shop", "v1", "Widget"));
    let with = "pub fn add_to(m: &mut Manager, limit: usize) -> Result<(), ManagerError> {\n    m.add";
    dir.edit(
        "src/controller.rs",
        "pub fn add_to(manager: &mut Manager) -> Result<(), ManagerError> {\n    manager.add",
        with,
    );
    let before = dir.files();
    dir.create(api("shop", "v1", "Gadget"));
    let text = dir.read("src/controller.rs");
    assert!(text.contains(&format!("{with}(gadget::controller())?;\n    m.add(widget::controller())?;")), "{text}");
    dir.run(|project| command::delete_api(project, &selector("v1", "Gadget")));
    assert_eq!(dir.files(), before);

    // Where that is not possible, the message says what to do, and doing so is enough.
    dir.edit("src/controller.rs", "m: &mut Manager, limit: usize", "operator: &mut Operator");
    dir.edit("src/controller.rs", "m.add(", "operator.add(");
    let create = || {
        scaffold::change(dir.path(), Mode::default(), |project| {
            command::create_api(project, api("shop", "v1", "Gadget"))
        })
    };
    let error = create().unwrap_err().to_string();
    assert!(error.contains("src/controller.rs has changes of yours at the same place"), "{error}");
    assert!(error.contains("Make the change that is shown below yourself and run the command again"), "{error}");
    assert!(error.contains("+    manager.add(gadget::controller())?;"), "{error}");
    dir.edit("src/controller.rs", "pub mod widget;", "pub mod gadget;\npub mod widget;");
    dir.edit("src/controller.rs", "    operator.add(", "    operator.add(gadget::controller())?;\n    operator.add(");
    create().unwrap();
}
