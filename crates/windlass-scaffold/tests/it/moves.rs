//! Files that are generated at another path go there with the user's changes.

use windlass_scaffold::command::{self, Edit, NewApi, Webhooks};
use windlass_scaffold::name::ControllerName;
use windlass_scaffold::scaffold::{self, Mode};

use super::{Dir, api, project, selector};

fn multigroup(dir: &Dir, multigroup: bool) {
    dir.run(|project| command::edit(project, Edit { multigroup: Some(multigroup), ..Edit::default() }));
}

#[test]
fn edited_files_move_into_the_directories_of_groups() {
    let dir = Dir::new(&project());
    dir.create(api("shop", "v1", "Widget"));
    dir.create(NewApi { controller: false, ..api("shop", "v2", "Widget") });
    let all = Webhooks { defaulting: true, conversion: true, ..Webhooks::default() };
    dir.webhook(&selector("v1", "Widget"), &all);
    let edits = [
        ("api/src/v1/widget.rs", "api/src/shop/v1/widget.rs", "    pub foo:"),
        ("api/src/v2/widget_conversion.rs", "api/src/shop/v2/widget_conversion.rs", "        Ok(hub::Widget {"),
        ("api/src/v1.rs", "api/src/shop/v1.rs", "pub use widget"),
        ("src/controller/widget.rs", "src/controller/shop/widget.rs", "        Ok(Outcome::Done)"),
        ("src/webhook/v1/widget.rs", "src/webhook/shop/v1/widget.rs", "        Ok(())"),
        ("tests/it/widget.rs", "tests/it/shop_widget.rs", "#[windlass_testing::test"),
    ];
    for (path, _, line) in edits {
        dir.edit(path, line, &format!("// Mine.\n{line}"));
    }
    let before = dir.files();
    multigroup(&dir, true);
    for (old, new, line) in edits {
        assert!(!dir.path().join(old).exists(), "{old} is still there");
        let text = dir.read(new);
        assert!(text.contains(&format!("// Mine.\n{line}")), "{text}");
    }
    assert!(dir.read("src/controller/shop/widget.rs").contains("use shop_api::shop::v1;"));
    multigroup(&dir, false);
    assert_eq!(dir.files(), before);
}

#[test]
fn files_in_the_way_of_moves_are_kept() {
    let dir = Dir::new(&project());
    dir.create(api("shop", "v1", "Widget"));
    std::fs::write(dir.path().join("tests/it/shop_widget.rs"), "// Mine.\n").unwrap();
    let before = dir.files();
    let edit = |project: &mut _| command::edit(project, Edit { multigroup: Some(true), ..Edit::default() });
    let error = scaffold::change(dir.path(), Mode::default(), edit).unwrap_err().to_string();
    assert!(error.contains("tests/it/shop_widget.rs exists already"), "{error}");
    assert_eq!(dir.files(), before);
}

#[test]
fn an_edited_test_takes_the_place_of_a_deleted_versions() {
    let dir = Dir::new(&project());
    dir.create(api("zoo", "v1", "Pet"));
    let name = Some(ControllerName::new("pet-v2").unwrap());
    dir.create(NewApi { controller_name: name, ..api("zoo", "v2", "Pet") });
    dir.edit("tests/it/pet_v2.rs", "#[windlass_testing::test", "// Mine.\n#[windlass_testing::test");
    let both = dir.files();
    dir.edit("tests/it/pet.rs", "#[windlass_testing::test", "// Mine, too.\n#[windlass_testing::test");
    let delete = |project: &mut _| command::delete_api(project, &selector("v1", "Pet"));
    let error = scaffold::change(dir.path(), Mode::default(), delete).unwrap_err().to_string();
    assert!(error.contains("tests/it/pet.rs has changes of yours and would be removed"), "{error}");
    std::fs::write(dir.path().join("tests/it/pet.rs"), &both["tests/it/pet.rs"]).unwrap();
    dir.run(delete);
    assert_eq!(dir.read("tests/it/pet.rs"), both["tests/it/pet_v2.rs"]);
    assert!(!dir.path().join("tests/it/pet_v2.rs").exists());
}
