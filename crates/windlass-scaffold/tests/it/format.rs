//! Generated Rust is formatted as `cargo fmt` formats it.

use std::process::Command;

use windlass_scaffold::command::{self, NewApi, Selector, Webhooks};
use windlass_scaffold::name::{ControllerName, Group, ProjectName};
use windlass_scaffold::scaffold::{self, Mode};

use super::{Dir, api, project, selector};

/// The list of its types is two characters shorter than a line.
const EDGE: &str = "Validatingadmissionrule";
/// As long as the longest kind of Kubernetes.
const LONG: &str = "ValidatingAdmissionRuleBindings2";

#[test]
fn generated_code_is_formatted() {
    if Command::new("rustfmt").arg("--version").output().is_err() {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("SKIPPED: there is no rustfmt");
        }
        return;
    }
    for kind in ["At", "IPPool", "Guestbook", "CertificateRequest", "HorizontalPodScaler", EDGE, LONG] {
        for multigroup in [false, true] {
            let mut new = project();
            new.multigroup = multigroup;
            new.namespaced = multigroup;
            let dir = Dir::new(&new);
            check(&dir);
            dir.create(api("webapp", "v1", kind));
            dir.create(NewApi { resource: false, ..api("apps", "v1", "Deployment") });
            check(&dir);
            dir.create(NewApi { controller: false, ..api("webapp", "v1beta1", kind) });
            let hub = selector("v1", kind);
            dir.webhook(&hub, &Webhooks { conversion: true, ..Webhooks::default() });
            check(&dir);
            dir.webhook(&hub, &Webhooks { defaulting: true, ..Webhooks::default() });
            check(&dir);
            dir.webhook(&hub, &Webhooks { validation: true, ..Webhooks::default() });
            check(&dir);
            scaffold::generate_client(dir.path(), Mode::default()).unwrap();
            check(&dir);
            dir.run(|project| {
                command::delete_webhook(project, &hub, &Webhooks { defaulting: true, ..Webhooks::default() })
            });
            check(&dir);
        }
    }
}

#[test]
fn kinds_of_all_lengths_are_formatted() {
    if Command::new("rustfmt").arg("--version").output().is_err() {
        return;
    }
    for multigroup in [false, true] {
        let mut new = project();
        new.multigroup = multigroup;
        for length in 1..=59 {
            let kind = format!("K{}", "x".repeat(length - 1));
            command::create_api(&mut new, api("webapp", "v1", &kind)).unwrap();
            command::create_api(&mut new, NewApi { controller: false, ..api("webapp", "v1beta1", &kind) }).unwrap();
            let all = Webhooks { conversion: true, defaulting: true, validation: true, ..Webhooks::default() };
            command::create_webhook(&mut new, &selector("v1", &kind), &all).unwrap();
        }
        new.settings_mut().client = true;
        check(&Dir::new(&new));
    }
}

#[test]
fn names_with_numbers_are_in_order() {
    if Command::new("rustfmt").arg("--version").output().is_err() {
        return;
    }
    let mut new = project();
    new.multigroup = true;
    for group in ["a", "a2", "a10", "a-b"] {
        for kind in ["Foo", "Foo2", "Foo10", "FooBar", "Foobaz"] {
            let name = Some(ControllerName::new(format!("{group}-{}", kind.to_lowercase())).unwrap());
            command::create_api(&mut new, NewApi { controller_name: name, ..api(group, "v2", kind) }).unwrap();
            command::create_api(&mut new, NewApi { controller: false, ..api(group, "v10", kind) }).unwrap();
            let all = Webhooks { conversion: true, defaulting: true, ..Webhooks::default() };
            let hub = Selector { group: Some(Group::new(group).unwrap()), ..selector("v2", kind) };
            command::create_webhook(&mut new, &hub, &all).unwrap();
        }
    }
    new.settings_mut().client = true;
    check(&Dir::new(&new));
}

#[test]
fn groups_of_all_lengths_are_formatted() {
    if Command::new("rustfmt").arg("--version").output().is_err() {
        return;
    }
    let mut new = project();
    new.project_name = ProjectName::new("a-name-as-long-as-it-may-be2").unwrap();
    new.multigroup = true;
    for length in 1..=45 {
        let group = format!("g{}", "x".repeat(length - 1));
        let name = Some(ControllerName::new(format!("c{}", "x".repeat(length - 1))).unwrap());
        command::create_api(&mut new, NewApi { controller_name: name, ..api(&group, "v1", "Order") }).unwrap();
        command::create_api(&mut new, NewApi { controller: false, ..api(&group, "v1beta1", "Order") }).unwrap();
        let all = Webhooks { conversion: true, defaulting: true, validation: true, ..Webhooks::default() };
        let hub = Selector { group: Some(Group::new(&group).unwrap()), ..selector("v1", "Order") };
        command::create_webhook(&mut new, &hub, &all).unwrap();
    }
    new.settings_mut().client = true;
    check(&Dir::new(&new));
}

fn check(dir: &Dir) {
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args([
        "--check",
        "--edition",
        "2024",
        "--color",
        "never",
        "src/lib.rs",
        "src/main.rs",
        "api/src/lib.rs",
        "tests/it/main.rs",
    ]);
    let output = rustfmt.current_dir(dir.path()).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
