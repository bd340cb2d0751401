//! What the user wrote is never lost without `--force`.

use windlass_scaffold::command::{self, CommandError, NewApi, Webhooks};
use windlass_scaffold::name::ControllerName;
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
fn ordinary_additions_of_a_user_stop_no_command() {
    let dir = Dir::new(&project());
    dir.create(api("webapp", "v1", "Guestbook"));
    // A role of their own at the end of the list, and a module of tests.
    let roles = dir.path().join("config/rbac/kustomization.yaml");
    let text = std::fs::read_to_string(&roles).unwrap();
    std::fs::write(&roles, format!("{text}  - mine.yaml\n")).unwrap();
    dir.edit("tests/it/main.rs", "mod guestbook;", "mod guestbook;\nmod more;");
    let before = dir.files();
    dir.create(api("webapp", "v1", "Author"));
    dir.webhook(&selector("v1", "Author"), &Webhooks { defaulting: true, ..Webhooks::default() });
    let text = std::fs::read_to_string(&roles).unwrap();
    assert!(text.contains("author_admin_role.yaml\n") && text.ends_with("  - mine.yaml\n"), "{text}");
    dir.run(|project| command::delete_webhook(project, &selector("v1", "Author"), &Webhooks::default()));
    dir.run(|project| command::delete_api(project, &selector("v1", "Author")));
    assert_eq!(dir.files(), before);
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

#[test]
fn directories_that_the_user_deleted_stay_deleted() {
    let dir = Dir::new(&project());
    dir.create(api("shop", "v1", "Widget"));
    for path in ["config/network-policy", "config/prometheus", ".github"] {
        std::fs::remove_dir_all(dir.path().join(path)).unwrap();
    }
    std::fs::remove_file(dir.path().join("Makefile")).unwrap();
    let before = dir.files();
    let all = command::Webhooks { defaulting: true, validation: true, ..command::Webhooks::default() };
    dir.webhook(&selector("v1", "Widget"), &all);
    dir.create(api("shop", "v1", "Gadget"));
    for path in ["config/network-policy", "config/prometheus", ".github", "Makefile"] {
        assert!(!dir.path().join(path).exists(), "{path} is there again");
    }
    assert!(dir.path().join("config/webhook/service.yaml").exists());
    dir.run(|project| command::delete_api(project, &selector("v1", "Gadget")));
    dir.run(|project| command::delete_webhook(project, &selector("v1", "Widget"), &command::Webhooks::default()));
    assert_eq!(dir.files(), before);
    // Code is not optional.
    std::fs::remove_file(dir.path().join("src/controller.rs")).unwrap();
    refused(
        &dir,
        |project| command::create_api(project, api("shop", "v1", "Gadget")),
        "src/controller.rs was removed by you and would be changed",
    );
}

#[test]
fn a_license_is_written_once_and_then_the_users() {
    use windlass_scaffold::project::License;
    let mut new = project();
    new.settings_mut().license = License::Mit;
    new.settings_mut().owner = Some("Ada".into());
    let dir = Dir::new(&new);
    assert!(dir.read("LICENSE").contains("Copyright (c) Ada\n"));
    assert!(dir.read("Cargo.toml").contains("license = \"MIT\""));
    dir.run(|project| command::edit(project, command::Edit { license: Some(License::Apache2), ..Default::default() }));
    assert!(dir.read("LICENSE").contains("Apache License"));
    dir.run(|project| {
        command::edit(project, command::Edit { license: Some(License::Copyright), ..Default::default() })
    });
    assert!(!dir.path().join("LICENSE").exists() && !dir.read("Cargo.toml").contains("license"));
    assert!(dir.read("src/main.rs").starts_with("// SPDX-FileCopyrightText: Ada\n"));
    // One that is there already stays.
    std::fs::write(dir.path().join("LICENSE"), "mine\n").unwrap();
    dir.run(|project| command::edit(project, command::Edit { license: Some(License::Mit), ..Default::default() }));
    assert_eq!(dir.read("LICENSE"), "mine\n");
}

#[test]
fn a_kind_of_two_groups_has_two_controllers() {
    let mut new = project();
    new.multigroup = true;
    let dir = Dir::new(&new);
    dir.create(api("sales", "v1", "Order"));
    dir.create(api("kitchen.hot", "v1", "Order"));
    assert!(dir.path().join("src/controller/sales/order.rs").exists());
    let second = dir.read("src/controller/kitchen_hot/kitchen_hot_order.rs");
    assert!(second.contains("\"kitchen-hot-order\""), "{second}");
    let again = NewApi { resource: false, ..api("sales", "v1", "Order") };
    refused(&dir, |project| command::create_api(project, again), "--controller-name=order-2");
    // Whatever has the name, the default is another one.
    dir.create(NewApi { controller_name: Some(ControllerName::new("meal").unwrap()), ..api("sales", "v1", "Menu") });
    dir.create(api("kitchen.hot", "v1", "Meal"));
    assert!(dir.read("src/controller/kitchen_hot/kitchen_hot_meal.rs").contains("\"kitchen-hot-meal\""));
    dir.create(NewApi { controller: false, ..api("sales", "v2", "Order") });
    let hub = |version: &str| command::Selector {
        group: Some(windlass_scaffold::name::Group::new("sales").unwrap()),
        ..selector(version, "Order")
    };
    let conversion = command::Webhooks { conversion: true, ..command::Webhooks::default() };
    dir.webhook(&hub("v2"), &conversion);
    refused(
        &dir,
        |project| command::create_webhook(project, &hub("v1"), &conversion),
        "`windlass delete webhook --group sales --kind Order --version v2 --conversion`",
    );
    refused(&dir, |project| command::delete_api(project, &hub("v1")), "webhook --group sales --kind Order");
}

#[test]
fn a_file_is_no_place_for_a_project() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("afile");
    std::fs::write(&file, "mine").unwrap();
    let error = scaffold::init(&file, &project(), Mode::default()).unwrap_err().to_string();
    assert!(error.contains("afile is a file, and a project is a directory"), "{error}");
}

#[test]
fn commands_at_the_same_time_wait_for_each_other() {
    let dir = Dir::new(&project());
    let kinds = ["Apple", "Banana", "Cherry", "Damson"];
    std::thread::scope(|scope| {
        for kind in kinds {
            let root = dir.path();
            scope.spawn(move || {
                let create = |project: &mut Project| command::create_api(project, api("fruit", "v1", kind));
                scaffold::change(root, Mode::default(), create).unwrap();
            });
        }
    });
    assert_eq!(scaffold::open(dir.path()).unwrap().resources.len(), kinds.len());
    for kind in kinds {
        let delete = |project: &mut Project| command::delete_api(project, &selector("v1", kind));
        scaffold::change(dir.path(), Mode::default(), delete).unwrap();
    }
    assert_eq!(dir.files(), Dir::new(&project()).files());
}

#[test]
fn names_that_a_server_would_refuse_beside_others_are_refused() {
    let dir = Dir::new(&project());
    let named = |kind: &str, short: &str| NewApi {
        short_names: vec![windlass_scaffold::name::Plural::new(short).unwrap()],
        ..api("shop", "v1", kind)
    };
    dir.create(named("Widget", "wd"));
    let create = |new: NewApi| move |project: &mut Project| command::create_api(project, new);
    refused(&dir, create(api("shop", "v1", "WidgetList")), "WidgetList is too similar to Widget");
    refused(&dir, create(api("shop", "v1", "Wd")), "Wd is too similar to Widget");
    // The singular of one is the plural of the other.
    refused(&dir, create(api("shop", "v1", "Widgets")), "Widgets is too similar to Widget");
    let plural = |plural: &str| Some(windlass_scaffold::name::Plural::new(plural).unwrap());
    let other = NewApi { plural: plural("widget"), ..api("shop", "v1", "Other") };
    refused(&dir, create(other), "Other is too similar to Widget");
    for short in ["widget", "widgets", "wd"] {
        refused(&dir, create(named("Other", short)), &format!("the short name {short} is a name of Widget"));
    }
    let plural =
        NewApi { plural: Some(windlass_scaffold::name::Plural::new("wids").unwrap()), ..api("shop", "v2", "Widget") };
    refused(&dir, create(plural), "other versions of Widget have the plural widgets: use --plural widgets");
}

#[test]
fn settings_of_external_kinds_must_be_rust_and_toml() {
    let dir = Dir::new(&project());
    let external = |path: &str, module: &str| {
        let external = command::External { path: path.into(), domain: None, module: Some(module.into()) };
        let new = NewApi { resource: false, external: Some(external), ..api("shop", "v1", "Route") };
        move |project: &mut Project| command::create_api(project, new)
    };
    refused(&dir, external("x y", "a = \"1\""), "is no Rust path");
    for module in ["bad toml =", "a = \"1\"\nb = \"2\"", "a = 1", "= \"1\"", "a b = \"1\"", "a"] {
        refused(&dir, external("a::v1", module), "is no line of [dependencies]");
    }
    for module in ["a-b = \"1\"", "a = { git = \"https://example.com/a\", tag = \"v1\" }"] {
        scaffold::change(dir.path(), Mode { dry_run: true, force: false }, external("a::v1", module)).unwrap();
    }
}

#[test]
fn a_readme_of_the_users_own_is_left_alone() {
    for own in [Some("# Mine\n"), None] {
        let dir = Dir::new(&project());
        dir.create(api("shop", "v1", "Widget"));
        let path = dir.path().join("README.md");
        match own {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let webhooks = command::Webhooks { defaulting: true, ..command::Webhooks::default() };
        let create = |project: &mut Project| command::create_webhook(project, &selector("v1", "Widget"), &webhooks);
        let plan = scaffold::change(dir.path(), Mode::default(), create).unwrap();
        assert!(plan.changes.iter().all(|change| change.path != "README.md"));
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), own);
    }
}

#[test]
fn a_new_repository_keeps_what_it_came_with() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("README.md", "# Mine\n");
    write("LICENSE", "mine\n");
    write(".gitignore", "*.swp\n/local");
    let plan = scaffold::init(dir.path(), &project(), Mode::default()).unwrap();
    assert!(plan.changes.iter().any(|change| change.path == ".gitignore" && change.verb() == "update"));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!([read("README.md"), read("LICENSE")], ["# Mine\n", "mine\n"]);
    assert!(read(".gitignore").starts_with("*.swp\n/local\n/target\n"), "{}", read(".gitignore"));
    assert_eq!(read(".gitignore").matches("*.swp").count(), 1);
    let new = api("shop", "v1", "Widget");
    scaffold::change(dir.path(), Mode::default(), |project| command::create_api(project, new)).unwrap();
    assert_eq!(read("README.md"), "# Mine\n");
}

#[test]
fn a_second_controller_of_a_kind_is_for_another_version() {
    let dir = Dir::new(&project());
    dir.create(api("zoo", "v1", "Pet"));
    let before = dir.files();
    let v2 = api("zoo", "v2", "Pet");
    refused(&dir, |project| command::create_api(project, v2.clone()), "Pet v1 has the controller \"pet\"");
    refused(&dir, |project| command::create_api(project, v2.clone()), "add --controller=false");
    let name = Some(windlass_scaffold::name::ControllerName::new("pet-v2").unwrap());
    dir.create(NewApi { controller_name: name.clone(), ..v2.clone() });
    let both = dir.files();
    assert!(dir.read("tests/it/pet_v2.rs").contains("v2::Pet"));
    assert!(dir.read("tests/it/main.rs").contains("mod pet;\nmod pet_v2;"), "{}", dir.read("tests/it/main.rs"));
    dir.run(|project| command::delete_api(project, &selector("v2", "Pet")));
    assert_eq!(dir.files(), before);
    dir.create(NewApi { controller: false, ..v2.clone() });
    dir.create(NewApi { resource: false, controller_name: name, ..v2 });
    assert_eq!(dir.files(), both);
}

#[test]
fn parts_of_a_project_with_the_same_file_are_refused() {
    let dir = Dir::new(&project());
    let create = |new: NewApi| move |project: &mut Project| command::create_api(project, new);
    let plain = |version: &str, kind: &str| NewApi { controller: false, ..api("zoo", version, kind) };
    for new in [plain("v1", "Pet"), plain("v2", "Pet"), plain("v1", "PetConversion")] {
        dir.create(new);
    }
    let conversion = command::Webhooks { conversion: true, ..command::Webhooks::default() };
    let add = |project: &mut Project| command::create_webhook(project, &selector("v2", "Pet"), &conversion);
    refused(&dir, add, "api/src/v1/pet_conversion.rs would be generated for two parts of this project");
    dir.run(|project| command::delete_api(project, &selector("v1", "PetConversion")));
    dir.run(add);
    refused(&dir, create(plain("v1", "PetConversion")), "api/src/v1/pet_conversion.rs would be generated for two");

    let mut several = project();
    several.multigroup = true;
    let dir = Dir::new(&several);
    dir.create(api("a-b", "v1", "Pet"));
    refused(&dir, create(api("a", "v1", "BPet")), "tests/it/a_b_pet.rs would be generated for two parts");
    dir.create(api("web", "v1", "URLMap"));
    refused(&dir, create(api("web-url", "v1", "Map")), "tests/it/web_url_map.rs would be generated for two parts");
    // Cargo and the compiler give these files a meaning.
    for group in ["lib", "bin"] {
        dir.create(api(group, "v1", "Book"));
        assert!(dir.path().join(format!("api/src/{group}_group/v1/book.rs")).exists());
        dir.run(|project| command::delete_api(project, &selector("v1", "Book")));
    }
}

#[test]
fn project_names_leave_room_for_the_names_of_services() {
    let named = |length: usize| {
        let mut project = project();
        project.project_name = windlass_scaffold::name::ProjectName::new("n".repeat(length)).unwrap();
        project
    };
    let root = tempfile::tempdir().unwrap();
    let error = scaffold::init(root.path(), &named(29), Mode::default()).unwrap_err().to_string();
    assert!(error.contains("is longer than 28 characters"), "{error}");
    let dir = Dir::new(&named(28));
    // A project that has a longer name can be changed.
    let text = dir.read("PROJECT").replace(&"n".repeat(28), &"n".repeat(40));
    std::fs::write(dir.path().join("PROJECT"), text).unwrap();
    assert_eq!(scaffold::open(dir.path()).unwrap(), named(40));
}

#[test]
fn an_interrupted_init_is_completed_by_the_next() {
    let whole = Dir::new(&project()).files();
    let dir = Dir::new(&project());
    let interrupt = |done: &[&str]| {
        let stage = dir.path().join(".windlass-changes");
        std::fs::create_dir(&stage).unwrap();
        let mut moves = Vec::new();
        for (number, (path, text)) in whole.iter().enumerate() {
            if !done.contains(&path.as_str()) {
                std::fs::remove_file(dir.path().join(path)).unwrap();
                std::fs::write(stage.join(number.to_string()), text).unwrap();
            }
            moves.push(serde_json::json!({"path": path, "from": number.to_string(), "executable": false}));
        }
        std::fs::write(stage.join("list.json"), serde_json::to_vec(&moves).unwrap()).unwrap();
    };
    for done in [&["Cargo.toml"][..], &["Cargo.toml", "PROJECT"]] {
        interrupt(done);
        scaffold::ensure_new(dir.path()).unwrap();
        let plan = scaffold::init(dir.path(), &project(), Mode::default()).unwrap();
        assert_eq!(plan.changes.len() + 1, whole.len());
        assert_eq!(dir.files(), whole);
    }
    interrupt(&["PROJECT"]);
    let mut other = project();
    other.namespaced = true;
    let error = scaffold::init(dir.path(), &other, Mode::default()).unwrap_err().to_string();
    assert!(error.contains("has a project already"), "{error}");
    assert_eq!(dir.files(), whole);
}

#[test]
fn an_edited_license_is_not_replaced() {
    use windlass_scaffold::project::License;
    let mut licensed = project();
    licensed.settings_mut().license = License::Apache2;
    let dir = Dir::new(&licensed);
    dir.create(api("shop", "v1", "Widget"));
    dir.edit("src/main.rs", "    let options = Options::parse();", "    // Mine.\n    let options = Options::parse();");
    dir.edit(
        "src/lib.rs",
        "// SPDX-License-Identifier: Apache-2.0\n",
        "// Mine.\n// SPDX-License-Identifier: Apache-2.0\n",
    );
    let license = |license: License| {
        move |project: &mut Project| {
            command::edit(project, command::Edit { license: Some(license), ..command::Edit::default() })
        }
    };
    let text = dir.read("LICENSE");
    std::fs::write(dir.path().join("LICENSE"), format!("Mine.\n{text}")).unwrap();
    refused(&dir, license(License::Mit), "LICENSE has changes of yours at the same place");
    refused(&dir, license(License::None), "LICENSE has changes of yours and would be removed");
    std::fs::write(dir.path().join("LICENSE"), text).unwrap();
    dir.run(license(License::Mit));
    assert!(dir.read("LICENSE").starts_with("MIT License"), "{}", dir.read("LICENSE"));
    let main = dir.read("src/main.rs");
    assert!(main.starts_with("// SPDX-License-Identifier: MIT\n\n//!") && main.contains("// Mine."), "{main}");
    let lib = dir.read("src/lib.rs");
    assert!(lib.starts_with("// Mine.\n// SPDX-License-Identifier: MIT\n"), "{lib}");
    dir.run(license(License::None));
    assert!(dir.read("src/main.rs").starts_with("//!"));
    dir.run(license(License::Apache2));
    assert!(dir.read("src/main.rs").starts_with("// SPDX-License-Identifier: Apache-2.0\n\n//!"));
}
