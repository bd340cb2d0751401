//! What is created and deleted again leaves nothing behind.

use proptest::prelude::*;
use proptest::sample::select;
use windlass_scaffold::command::{self, Webhooks};
use windlass_scaffold::scaffold::{self, Mode};

use super::{Dir, api, project, selector};

#[test]
fn a_deleted_kind_leaves_nothing_behind() {
    let dir = Dir::new(&project());
    let before = dir.files();
    dir.create(api("webapp", "v1", "Guestbook"));
    assert!(dir.files().contains_key("src/controller/guestbook.rs"));
    dir.run(|project| command::delete_api(project, &selector("v1", "Guestbook")));
    assert_eq!(dir.files(), before);
    assert!(!dir.path().join("src/controller").exists());
}

#[test]
fn a_client_follows_the_kinds() {
    let dir = Dir::new(&project());
    scaffold::generate_client(dir.path(), Mode::default()).unwrap();
    let before = dir.files();
    dir.create(api("webapp", "v1", "Guestbook"));
    dir.edit("api/Cargo.toml", "serde.workspace = true\n", "serde.workspace = true\nmine = \"1\"\n");
    let lib = dir.read("api/src/lib.rs");
    assert!(lib.contains("#[cfg(feature = \"client\")]\npub mod client;\npub mod v1;\n"), "{lib}");
    assert!(scaffold::generate_client(dir.path(), Mode::default()).unwrap().changes.is_empty());
    dir.edit("api/Cargo.toml", "mine = \"1\"\n", "");
    dir.run(|project| command::delete_api(project, &selector("v1", "Guestbook")));
    assert_eq!(dir.files(), before);
}

#[test]
fn a_deleted_client_leaves_nothing_behind() {
    let dir = Dir::new(&project());
    dir.create(api("webapp", "v1", "Guestbook"));
    let before = dir.files();
    let error = scaffold::delete_client(dir.path(), Mode::default()).unwrap_err().to_string();
    assert!(error.contains("`windlass generate client` adds one"), "{error}");
    scaffold::generate_client(dir.path(), Mode::default()).unwrap();
    assert!(dir.files().contains_key("api/src/client.rs"));
    scaffold::delete_client(dir.path(), Mode::default()).unwrap();
    assert_eq!(dir.files(), before);
}

#[test]
fn lines_that_name_a_deleted_kind_are_found() {
    use windlass_scaffold::leftover;
    let dir = Dir::new(&project());
    dir.create(api("webapp", "v1", "Guestbook"));
    dir.create(api("webapp", "v1", "Toy"));
    dir.edit("src/controller.rs", "guestbook::controller()", "guestbook::controller_of(1)");
    let main = dir.read("src/main.rs");
    let number = main.lines().count() + 2;
    std::fs::write(dir.path().join("src/main.rs"), format!("{main}\nfn mine(_: &shop_api::v1::Guestbook) {{}}\n"))
        .unwrap();
    let before = scaffold::open(dir.path()).unwrap();
    dir.run(|project| command::delete_api(project, &selector("v1", "Guestbook")));
    let after = scaffold::open(dir.path()).unwrap();
    let found = leftover::find(dir.path(), &before, &after);
    let lines: Vec<(&str, &str)> = found.iter().map(|one| (one.path.as_str(), one.text.as_str())).collect();
    let controller = "manager.add(guestbook::controller_of(1))?;";
    assert_eq!(lines, [("src/controller.rs", controller), ("src/main.rs", "fn mine(_: &shop_api::v1::Guestbook) {}")]);
    assert_eq!(found[1].line, number);
    assert_eq!(leftover::find(dir.path(), &after, &after), []);
}

#[test]
fn deletion_leaves_the_users_changes() {
    let dir = Dir::new(&project());
    dir.create(api("webapp", "v1", "Guestbook"));
    dir.edit("src/lib.rs", "    Ok(manager)", "    manager.add_ready_check(\"mine\", || Ok(()));\n    Ok(manager)");
    dir.edit("src/main.rs", "    let options = Options::parse();", "    // Mine.\n    let options = Options::parse();");
    dir.edit("src/controller.rs", "    Ok(())", "    tracing::info!(\"all added\");\n    Ok(())");
    dir.edit("Cargo.toml", "clap.workspace = true\n", "anyhow = \"1\"\nclap.workspace = true\n");
    let before = dir.files();
    dir.create(api("webapp", "v1", "Order"));
    let guestbook = selector("v1", "Guestbook");
    dir.webhook(&guestbook, &Webhooks { defaulting: true, ..Webhooks::default() });
    let added = dir.read("src/controller.rs");
    let calls =
        "    manager.add(guestbook::controller())?;\n    manager.add(order::controller())?;\n    tracing::info!";
    assert!(added.contains(calls), "{added}");
    dir.run(|project| command::delete_webhook(project, &guestbook, &Webhooks::default()));
    dir.run(|project| command::delete_api(project, &selector("v1", "Order")));
    assert_eq!(dir.files(), before);
}

#[test]
fn webhooks_come_one_after_the_other() {
    let dir = Dir::new(&project());
    dir.create(api("webapp", "v1", "Guestbook"));
    let guestbook = selector("v1", "Guestbook");
    dir.webhook(&guestbook, &Webhooks { defaulting: true, ..Webhooks::default() });
    dir.edit("src/webhook/v1/guestbook.rs", "        Ok(())", "        // Mine.\n        Ok(())");
    dir.webhook(&guestbook, &Webhooks { validation: true, ..Webhooks::default() });
    let text = dir.read("src/webhook/v1/guestbook.rs");
    assert!(text.contains("// Mine.") && text.contains("impl Validate<v1::Guestbook>"), "{text}");
}

#[test]
fn repeated_commands_are_refused_and_dry_runs_write_nothing() {
    let dir = Dir::new(&project());
    let before = dir.files();
    let mode = Mode { dry_run: true, force: false };
    let new = api("webapp", "v1", "Guestbook");
    let plan = scaffold::change(dir.path(), mode, |project| command::create_api(project, new.clone())).unwrap();
    assert!(plan.diff().contains("+++ b/src/controller/guestbook.rs"), "{}", plan.diff());
    assert_eq!(dir.files(), before);
    dir.create(new.clone());
    let again = scaffold::change(dir.path(), Mode::default(), |project| command::create_api(project, new));
    assert!(again.unwrap_err().to_string().contains("exists already"));
}

#[test]
fn kinds_of_other_projects_bring_their_crate() {
    let dir = Dir::new(&project());
    let before = dir.files();
    let external = command::External {
        path: "their_api::v1".into(),
        domain: Some(super::Domain::new("io").unwrap()),
        module: Some("their-api = \"1\"".into()),
    };
    dir.create(super::NewApi { resource: false, external: Some(external), ..api("cert-manager", "v1", "Issuer") });
    assert!(dir.read("Cargo.toml").contains("their-api = \"1\"\ntokio.workspace"), "{}", dir.read("Cargo.toml"));
    let reconciler = dir.read("src/controller/issuer.rs");
    assert!(
        reconciler.contains("use their_api::v1;") && reconciler.contains("Controller::<v1::Issuer>"),
        "{reconciler}"
    );
    dir.run(|project| command::delete_api(project, &selector("v1", "Issuer")));
    assert_eq!(dir.files(), before);
}

/// Things that can be created.
#[derive(Debug, Clone, Copy)]
enum Step {
    Api(&'static str, &'static str, &'static str),
    Webhook(&'static str, &'static str, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let api = (select(vec!["webapp", "batch"]), select(vec!["v1", "v1beta1"]), select(vec!["At", "IPPool", "Home"]));
    let webhook = (select(vec!["v1", "v1beta1"]), select(vec!["At", "IPPool", "Home"]), any::<bool>());
    let step = prop_oneof![
        api.prop_map(|(group, version, kind)| Step::Api(group, version, kind)),
        webhook.prop_map(|(version, kind, defaulting)| Step::Webhook(version, kind, defaulting)),
    ];
    proptest::collection::vec(step, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every command that succeeds can be taken back, in the reverse order, file by file.
    #[test]
    fn everything_can_be_taken_back(multigroup in any::<bool>(), namespaced in any::<bool>(), steps in steps()) {
        let mut new = project();
        new.multigroup = multigroup;
        new.namespaced = namespaced;
        let dir = Dir::new(&new);
        let mut undo = Vec::new();
        for step in steps {
            let before = dir.files();
            let done = scaffold::change(dir.path(), Mode::default(), |project| match step {
                Step::Api(group, version, kind) => command::create_api(project, super::NewApi { controller: version == "v1", ..api(group, version, kind) }),
                Step::Webhook(version, kind, defaulting) => {
                    let wanted = Webhooks { defaulting, validation: !defaulting, ..Webhooks::default() };
                    command::create_webhook(project, &selector(version, kind), &wanted)
                }
            });
            if done.is_ok() {
                undo.push((step, before));
            } else {
                prop_assert_eq!(dir.files(), before);
            }
        }
        for (step, before) in undo.into_iter().rev() {
            dir.run(|project| match step {
                Step::Api(group, version, kind) => {
                    let group = Some(super::Group::new(group).unwrap());
                    command::delete_api(project, &super::Selector { group, ..selector(version, kind) })
                }
                Step::Webhook(version, kind, defaulting) => {
                    let gone = Webhooks { defaulting, validation: !defaulting, ..Webhooks::default() };
                    command::delete_webhook(project, &selector(version, kind), &gone)
                }
            });
            prop_assert_eq!(dir.files(), before);
        }
    }
}

#[test]
fn versions_join_a_conversion_and_leave_it() {
    let dir = Dir::new(&project());
    let plain = |version: &str| super::NewApi { controller: false, ..api("zoo", version, "Pet") };
    for version in ["v1beta1", "v1", "v1alpha1"] {
        dir.create(plain(version));
    }
    let conversion = |spokes: &[&str]| Webhooks {
        conversion: true,
        spokes: spokes.iter().map(|version| super::Version::new(*version).unwrap()).collect(),
        ..Webhooks::default()
    };
    let hub = selector("v1beta1", "Pet");
    dir.webhook(&hub, &conversion(&["v1", "v1"]));
    dir.edit("api/src/v1/pet_conversion.rs", "        Ok(hub::Pet {", "        // Mine.\n        Ok(hub::Pet {");
    dir.edit("src/webhook.rs", "    webhooks = webhooks.conv", "    // Mine.\n    webhooks = webhooks.conv");
    dir.webhook(&hub, &conversion(&["v1alpha1"]));
    assert!(dir.path().join("api/src/v1alpha1/pet_conversion.rs").exists());
    let again = |spokes: &[&str]| {
        let new = conversion(spokes);
        let create = |project: &mut _| command::create_webhook(project, &hub, &new);
        scaffold::change(dir.path(), Mode::default(), create).unwrap_err().to_string()
    };
    for spokes in [&[][..], &["v1alpha1"]] {
        assert!(again(spokes).contains("Pet has a conversion with the hub v1beta1 already"));
    }
    let before = dir.files();
    let one = conversion(&["v1alpha1"]);
    // The version that has the conversion need not be named.
    let pet = command::Selector { version: None, ..selector("v1beta1", "Pet") };
    dir.run(|project| command::delete_webhook(project, &pet, &one));
    assert!(!dir.path().join("api/src/v1alpha1/pet_conversion.rs").exists());
    dir.webhook(&hub, &one);
    assert_eq!(dir.files(), before);
    // A version that comes later is converted from the beginning.
    dir.create(plain("v2"));
    assert!(dir.read("api/src/v2/pet_conversion.rs").contains("use crate::v1beta1::pet as hub;"));
    let webhook = dir.read("src/webhook.rs");
    let calls = ["v1", "v1alpha1", "v2"].map(|version| {
        webhook.find(&format!("conversion.spoke::<shop_api::{version}::Pet>()")).unwrap_or_else(|| panic!("{webhook}"))
    });
    assert!(calls.is_sorted() && webhook.contains("// Mine."), "{webhook}");
    dir.run(|project| command::delete_api(project, &selector("v2", "Pet")));
    assert_eq!(dir.files(), before);
    dir.run(|project| command::delete_api(project, &selector("v1alpha1", "Pet")));
    assert!(dir.read("api/src/v1/pet_conversion.rs").contains("// Mine."));
    assert!(!dir.read("src/webhook.rs").contains("v1alpha1"));
    let last = |project: &mut _| command::delete_api(project, &selector("v1", "Pet"));
    let error = scaffold::change(dir.path(), Mode::default(), last).unwrap_err().to_string();
    assert!(error.contains("--version v1beta1 --conversion` first"), "{error}");
}

#[test]
fn built_in_kinds_are_deleted_with_their_creation_flags() {
    let dir = Dir::new(&project());
    let before = dir.files();
    for (group, kind) in [("networking", "Ingress"), ("core", "Pod"), ("apps", "Deployment")] {
        dir.create(super::NewApi { resource: false, ..api(group, "v1", kind) });
        let group = Some(super::Group::new(group).unwrap());
        dir.run(|project| command::delete_api(project, &super::Selector { group, ..selector("v1", kind) }));
        assert_eq!(dir.files(), before);
    }
}

#[test]
fn deleted_tests_stay_deleted() {
    let dir = Dir::new(&project());
    dir.create(api("shop", "v1", "Widget"));
    std::fs::remove_dir_all(dir.path().join("tests")).unwrap();
    let before = dir.files();
    dir.create(api("shop", "v1", "Gadget"));
    assert!(!dir.path().join("tests").exists());
    dir.run(|project| command::delete_api(project, &selector("v1", "Gadget")));
    assert_eq!(dir.files(), before);
}

#[test]
fn a_controller_is_taken_back_alone() {
    let dir = Dir::new(&project());
    dir.create(api("webapp", "v1", "Guestbook"));
    let before = dir.files();
    let backup = super::ControllerName::new("backup").unwrap();
    let further =
        super::NewApi { resource: false, controller_name: Some(backup.clone()), ..api("webapp", "v1", "Guestbook") };
    dir.create(further);
    assert!(dir.files().contains_key("src/controller/backup.rs"));
    let guestbook = selector("v1", "Guestbook");
    dir.run(|project| command::delete_controller(project, &guestbook, &backup));
    assert_eq!(dir.files(), before);
    let again = |project: &mut _| command::delete_controller(project, &guestbook, &backup);
    let error = scaffold::change(dir.path(), Mode::default(), again).unwrap_err().to_string();
    assert!(error.contains("Guestbook has no controller \"backup\"; it has: guestbook"), "{error}");
    // It is all that a project has of a built-in kind.
    dir.create(super::NewApi { resource: false, ..api("core", "v1", "Pod") });
    let pod = super::ControllerName::new("pod").unwrap();
    dir.run(|project| command::delete_controller(project, &selector("v1", "Pod"), &pod));
    assert_eq!(dir.files(), before);
}

#[test]
fn webhooks_of_kinds_from_elsewhere_need_no_controller() {
    let dir = Dir::new(&project());
    let before = dir.files();
    let all = Webhooks { defaulting: true, validation: true, ..Webhooks::default() };
    let group = |name: &str| Some(super::Group::new(name).unwrap());
    let pod = super::Selector { group: group("core"), ..selector("v1", "Pod") };
    dir.webhook(&pod, &all);
    assert!(dir.read("src/webhook/v1/pod.rs").contains("use k8s_openapi::api::core::v1;"));
    assert!(!dir.path().join("src/controller/pod.rs").exists());
    dir.run(|project| command::delete_webhook(project, &pod, &all));
    assert_eq!(dir.files(), before);

    let external =
        command::External { path: "their_api::v1".into(), domain: None, module: Some("their-api = \"1\"".into()) };
    let issuer = super::Selector { group: group("cert-manager.io"), ..selector("v1", "Issuer") };
    dir.webhook(&issuer, &Webhooks { external: Some(external), ..all.clone() });
    assert!(dir.read("Cargo.toml").contains("their-api = \"1\""));
    dir.run(|project| command::delete_webhook(project, &issuer, &Webhooks::default()));
    assert_eq!(dir.files(), before);

    let refused = |selector: &super::Selector, new: &Webhooks| {
        let create = |project: &mut _| command::create_webhook(project, selector, new);
        scaffold::change(dir.path(), Mode::default(), create).unwrap_err().to_string()
    };
    assert!(refused(&selector("v1", "Order"), &all).contains("no kinds yet"));
    let conversion = Webhooks { conversion: true, ..Webhooks::default() };
    assert!(refused(&pod, &conversion).contains("declared elsewhere"));
}
