//! `windlass init`, `create`, `delete` and `edit`, as people use them.

use std::process::Command;

use crate::windlass::Sandbox;

/// A sandbox with a project that git knows.
fn project(options: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.succeeds(&format!("init --domain my.domain --name guestbook {options}"));
    git(&sandbox, "init -q");
    commit(&sandbox);
    sandbox
}

fn git(sandbox: &Sandbox, args: &str) -> String {
    let mut git = Command::new("git");
    git.args(args.split_whitespace()).current_dir(sandbox.path(".")).env("HOME", sandbox.path("."));
    let output = git.output().expect("git runs");
    assert!(output.status.success(), "git {args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn commit(sandbox: &Sandbox) {
    git(sandbox, "add -A");
    git(sandbox, "-c user.name=me -c user.email=me@example.com commit -q -m state");
}

fn assert_unchanged(sandbox: &Sandbox) {
    assert_eq!(git(sandbox, "status --porcelain --ignored"), "");
}

#[test]
fn delete_leaves_an_empty_git_diff() {
    let sandbox = project("--multigroup");
    for (create, delete) in [
        ("create api --group webapp --version v1 --kind Guestbook", "delete api --kind Guestbook"),
        ("create api --group apps --version v1 --kind Deployment --resource=false", "delete api --kind Deployment"),
    ] {
        sandbox.succeeds(create);
        assert_ne!(git(&sandbox, "status --porcelain"), "");
        // Definitions and roles that were written for the kind are written without it.
        assert!(sandbox.succeeds(delete).contains("next: cargo test --workspace; windlass manifests --write"));
        assert_unchanged(&sandbox);
    }
    sandbox.succeeds("create api --group webapp --version v1 --kind Guestbook");
    commit(&sandbox);
    sandbox.succeeds("create webhook --kind Guestbook --defaulting --programmatic-validation");
    sandbox.succeeds("delete webhook --kind Guestbook");
    assert_unchanged(&sandbox);
    let api = "api --group webapp --version v1 --kind Guestbook";
    sandbox.succeeds(&format!("create {api} --resource=false --controller-name backup"));
    sandbox.succeeds(&format!("delete {api} --controller-name backup"));
    assert_unchanged(&sandbox);
    sandbox.succeeds("create webhook --group core --version v1 --kind Pod --defaulting");
    sandbox.succeeds("delete webhook --kind Pod");
    assert_unchanged(&sandbox);
    sandbox.succeeds("generate client");
    assert!(sandbox.path("api/src/client.rs").exists());
    sandbox.succeeds("delete client");
    assert_unchanged(&sandbox);
    assert!(sandbox.fails("delete client").contains("`windlass generate client` adds one"));
}

#[test]
fn the_spellings_of_kubebuilder_are_accepted() {
    let sandbox = Sandbox::new();
    let init = "init --domain my.domain --project-name guestbook --repo my.domain/guestbook --plugins go/v4";
    sandbox.succeeds(&format!("{init} --multigroup=true --namespaced=false --skip-go-version-check=true"));
    let project = std::fs::read_to_string(sandbox.path("PROJECT")).unwrap();
    assert!(project.contains("multigroup: true") && !project.contains("namespaced: true"), "{project}");
    let kind = "--group webapp --version v1 --kind Guestbook";
    sandbox.succeeds(&format!("create api {kind} --resource=true --controller=true --make=false --ssa"));
    let webhook = format!("create webhook {kind} --plural guestbooks --make=false --force=false");
    sandbox.succeeds(&format!("{webhook} --defaulting=true --programmatic-validation=true --conversion=false"));
    assert!(sandbox.path("src/webhook/v1/guestbook.rs").exists() || sandbox.path("src/webhook/webapp/v1").exists());
    let said = sandbox.windlass("edit --plugins=helm/v2-alpha");
    assert!(said.status.success() && said.stderr.contains("windlass manifests chart"), "{said:?}");
}

#[test]
fn a_missing_cluster_is_named_before_anything_is_built() {
    let sandbox = project("");
    // Nothing can be built of this.
    std::fs::write(sandbox.path("Cargo.toml"), "no manifest").unwrap();
    for command in ["install", "uninstall", "run", "deploy"] {
        let said = sandbox.fails(&format!("{command} --kubeconfig nowhere"));
        assert!(said.contains("nowhere"), "{command}: {said}");
    }
}

#[test]
fn a_forced_deletion_names_the_lines_that_are_left() {
    let sandbox = project("");
    sandbox.succeeds("create api --group webapp --version v1 --kind Guestbook");
    let path = sandbox.path("src/controller.rs");
    let text = std::fs::read_to_string(&path).unwrap().replace("guestbook::controller()", "guestbook::mine()");
    std::fs::write(&path, text).unwrap();
    let said = sandbox.windlass("delete api --kind Guestbook --force");
    assert!(said.status.success(), "{said:?}");
    let after = std::fs::read_to_string(&path).unwrap();
    let line = 1 + after.lines().position(|line| line.contains("guestbook::mine()")).unwrap();
    let expected = format!(
        "your code still names what is gone; change or remove these lines:\n  src/controller.rs:{line}: \
         manager.add(guestbook::mine())?;\n"
    );
    assert_eq!(said.stderr, expected);
}

#[test]
fn a_license_comes_with_its_text() {
    let sandbox = project("");
    let text = |path: &str| std::fs::read_to_string(sandbox.path(path)).unwrap();
    assert!(text("LICENSE").contains("Apache License") && text("Cargo.toml").contains("license = \"Apache-2.0\""));
    sandbox.succeeds("init shop --license mit --owner Ada");
    assert!(
        text("shop/LICENSE").contains("Copyright (c) Ada") && text("shop/Cargo.toml").contains("license = \"MIT\"")
    );
    sandbox.succeeds("init plain --license none");
    assert!(!sandbox.path("plain/LICENSE").exists() && !text("plain/Cargo.toml").contains("license"));
    sandbox.succeeds("init ours --license copyright --owner Ada");
    assert!(!sandbox.path("ours/LICENSE").exists() && text("ours/src/main.rs").contains("SPDX-FileCopyrightText: Ada"));
    let said = sandbox.windlass("init bare --license copyright");
    assert!(said.status.code() == Some(2) && said.stderr.contains("--owner"), "{said:?}");
    // A license that is there already stays.
    std::fs::create_dir(sandbox.path("own")).unwrap();
    std::fs::write(sandbox.path("own/LICENSE"), "mine\n").unwrap();
    sandbox.succeeds("init own");
    assert_eq!(text("own/LICENSE"), "mine\n");
}

#[test]
fn wrong_arguments_exit_with_two() {
    let sandbox = project("");
    std::fs::write(sandbox.path("afile"), "mine").unwrap();
    commit(&sandbox);
    for (args, part) in [
        ("frobnicate", "unrecognized subcommand"),
        ("init afile", "afile is a file, and a project is a directory"),
        ("init Bad_Dir", "--name"),
        ("init other --windlass-git nonsense", "use the URL of a git repository"),
        ("create api --group webapp --version one --kind Guestbook", "such as \"v1\""),
        ("create api --version v1 --kind Pod --resource=false --controller=false", "neither a resource nor"),
        ("create webhook --kind Guestbook", "no webhook is named"),
        ("manifests install --image Bad_Image", "not the name of an image"),
        ("deploy --image Bad_Image", "not the name of an image"),
        ("deploy --image x@sha256:00", "has a digest"),
        ("image build x --tag Bad_Image", "not the name of an image"),
        ("image build x --tag app --label x", "use NAME=VALUE"),
        ("bundle run -n Bad_NS", "a namespace is at most"),
        ("run -n Bad_NS", "a namespace is at most"),
        ("run --webhook-address nowhere", "use an IP address"),
        ("dev -n Bad_NS", "a namespace is at most"),
        ("dev --samples nowhere", "--samples: there is no file or directory nowhere"),
        ("apply", "required"),
        ("down --name Bad_Name", "lower-case letters"),
    ] {
        let said = sandbox.windlass(args);
        assert_eq!(said.status.code(), Some(2), "windlass {args}: {said:?}");
        assert!(said.stderr.contains(part), "windlass {args}: {part:?} is not in: {}", said.stderr);
        assert_unchanged(&sandbox);
    }
    let mut command = sandbox.command("init other --owner");
    let said: crate::process::Said = command.arg("two\nlines").output().unwrap().into();
    assert!(said.status.code() == Some(2) && said.stderr.contains("one line of text"), "{said:?}");
    // What the project does not allow is a failure.
    assert_eq!(sandbox.windlass("delete api --kind Guestbook").status.code(), Some(1));
}

#[test]
fn a_damaged_project_names_the_line_and_a_remedy() {
    let sandbox = project("");
    let text = std::fs::read_to_string(sandbox.path("PROJECT")).unwrap();
    let number = text.lines().count() + 1;
    std::fs::write(sandbox.path("PROJECT"), format!("{text}resources: [\n")).unwrap();
    commit(&sandbox);
    let said = sandbox.fails("create api --group webapp --version v1 --kind Guestbook");
    assert!(said.contains("PROJECT cannot be read") && said.contains("`git checkout PROJECT`"), "{said}");
    assert!(said.contains(&format!("line {number}")) || said.contains(&format!("line {}", number + 1)), "{said}");
    assert_unchanged(&sandbox);
}

#[test]
fn a_dry_run_shows_a_diff_and_writes_nothing() {
    let sandbox = project("");
    let diff = sandbox.succeeds("create api --group webapp --version v1 --kind Guestbook --dry-run");
    assert!(diff.contains("+++ b/api/src/v1/guestbook.rs"), "{diff}");
    assert!(diff.contains("+    manager.add(guestbook::controller())?;"), "{diff}");
    assert_unchanged(&sandbox);
}

#[test]
fn programs_read_what_changed() {
    let sandbox = project("");
    let text = sandbox.succeeds("create api --group webapp --version v1 --kind Guestbook -o json");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let created = serde_json::json!({"action": "create", "path": "src/controller/guestbook.rs"});
    assert!(value["changes"].as_array().unwrap().contains(&created), "{value}");
}

#[test]
fn commands_work_below_the_project() {
    let sandbox = project("");
    let mut command = sandbox.command("create api --group webapp --version v1 --kind Guestbook");
    assert!(command.current_dir(sandbox.path("src")).output().unwrap().status.success());
    assert!(sandbox.path("api/src/v1/guestbook.rs").exists());
}

#[test]
fn bad_names_are_refused_with_what_is_allowed() {
    let sandbox = project("");
    for (args, part) in [
        ("create api --group webapp --version v1 --kind type", "begins with an upper case letter"),
        ("create api --group webapp --version v1 --kind Type", "reserved word"),
        ("create api --group webapp --version v1 --kind Gäste", "contains 'ä'"),
        ("create api --group webapp --version v1 --kind Option", "try \"OptionResource\""),
        ("create api --group webapp --version one --kind Guestbook", "such as \"v1\" or \"v1beta2\""),
        ("create api --group Web_App --version v1 --kind Guestbook", "contains 'W'"),
        ("create api --group webapp --version v1 --kind Pod", "Kubernetes has a kind Pod"),
        ("create api --group webapp --version v1 --kind Guestbook --plural Guests", "contains 'G'"),
        ("create webhook --kind Guestbook --defaulting", "the project has no kinds yet"),
        ("create webhook --kind Guestbook", "no webhook is named"),
        ("delete api --kind Guestbook", "the project has no kinds yet"),
        ("init --domain my.domain", "has a project already"),
        ("init other --domain my..domain", "empty part"),
        ("init other --name Shop", "contains 'S'"),
        ("init other --windlass-path .", "no crates/windlass/Cargo.toml"),
    ] {
        let said = sandbox.fails(args);
        assert!(said.contains(part), "windlass {args}: {part:?} is not in: {said}");
        assert_unchanged(&sandbox);
    }
    let long = format!("create api --group webapp --version v1 --kind {}", "A".repeat(64));
    assert!(sandbox.fails(&long).contains("longer than 63 characters"));
}

#[test]
fn a_file_in_the_way_stops_everything() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("Makefile"), "mine\n").unwrap();
    let said = sandbox.fails("init --name shop");
    assert!(said.contains("Makefile exists already") && said.contains("--force"), "{said}");
    assert_eq!(std::fs::read_dir(sandbox.path(".")).unwrap().count(), 1);
}

#[test]
fn a_file_in_the_place_of_a_directory_is_named() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("src"), "mine\n").unwrap();
    let said = sandbox.fails("init --domain my.domain --name shop");
    assert!(said.contains("src is a file, and has to be a directory: move it away"), "{said}");
    assert_eq!(std::fs::read_dir(sandbox.path(".")).unwrap().count(), 1);
}

#[test]
fn names_that_kubernetes_serves_are_refused() {
    let sandbox = project("");
    for names in ["--plural pods", "--shortname po", "--shortname svc"] {
        let said = sandbox.fails(&format!("create api --group webapp --version v1 --kind Guestbook {names}"));
        assert!(said.contains("`kubectl get") && said.contains("--force"), "{names}: {said}");
    }
    sandbox.succeeds("create api --group webapp --version v1 --kind Guestbook --plural books");
    sandbox.succeeds("create api --group webapp --version v2 --kind Guestbook --controller=false");
    let text = std::fs::read_to_string(sandbox.path("PROJECT")).unwrap();
    assert_eq!(text.matches("plural: books").count(), 2, "{text}");
}

#[test]
fn a_project_of_a_newer_version_is_left_alone() {
    let sandbox = project("");
    let text = std::fs::read_to_string(sandbox.path("PROJECT")).unwrap();
    std::fs::write(sandbox.path("PROJECT"), text.replace("version: \"3\"", "version: \"4\"")).unwrap();
    commit(&sandbox);
    let said = sandbox.fails("create api --group webapp --version v1 --kind Guestbook");
    assert!(said.contains("install a newer windlass"), "{said}");
    for command in ["dev --once", "install", "deploy"] {
        let said = sandbox.fails(command);
        assert!(said.contains("install a newer windlass"), "{command}: {said}");
    }
    assert_unchanged(&sandbox);
}

#[test]
fn without_a_project_the_error_says_how_to_get_one() {
    let sandbox = Sandbox::new();
    let said = sandbox.fails("create api --group webapp --version v1 --kind Guestbook");
    assert!(said.contains("run `windlass init`"), "{said}");
    assert_eq!(std::fs::read_dir(sandbox.path(".")).unwrap().count(), 0);
}

#[test]
fn an_owner_without_a_name_is_none() {
    let sandbox = Sandbox::new();
    for owner in ["", "  ", " Ada "] {
        let mut command = sandbox.command("init shop --name shop --license mit --force --owner");
        let said: crate::process::Said = command.arg(owner).output().unwrap().into();
        assert!(said.status.success(), "{said:?}");
        let main = std::fs::read_to_string(sandbox.path("shop/src/main.rs")).unwrap();
        assert_eq!(main.starts_with("// SPDX-FileCopyrightText: Ada\n"), owner == " Ada ", "{main}");
        assert!(main.lines().all(|line| line.trim_end() == line), "{main}");
        std::fs::remove_dir_all(sandbox.path("shop")).unwrap();
    }
}

#[test]
fn a_workspace_that_would_swallow_the_project_is_named() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("Cargo.toml"), "[workspace]\nresolver = \"3\"\nmembers = [\"ops/*\"]\n").unwrap();
    let init = |directory: &str| {
        let mut command = sandbox.command(&format!("init {directory} --domain my.domain --name shop"));
        // Cargo finds its tool chain in the real home.
        command.env("HOME", std::env::var_os("HOME").unwrap_or_default());
        let said: crate::process::Said = command.output().unwrap().into();
        assert!(said.status.success(), "{said:?}");
        said.stderr
    };
    assert_eq!(init("elsewhere"), "");
    let said = init("ops/shop");
    assert!(said.contains("Cargo.toml takes this directory for a member of its workspace"), "{said}");
    assert!(said.contains("add `exclude = [\"ops/shop\"]` to its [workspace]"), "{said}");
}

#[test]
fn an_interrupted_init_writes_all_files() {
    use crate::process::Running;
    let whole = project("");
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let sandbox = Sandbox::new();
        let root = sandbox.path("shop");
        std::fs::create_dir(&root).unwrap();
        // The command waits for the directory, and has said that it wants to hear of signals.
        let lock = std::fs::File::open(&root).unwrap();
        lock.lock().unwrap();
        let init = Running::spawn(&mut sandbox.command("init shop"));
        init.catches(signal);
        init.signal(signal);
        drop(lock);
        let code = init.wait().code();
        assert!(matches!(code, Some(0 | 130 | 143)), "{signal:?}: {code:?}");
        assert!(!root.join(".windlass-changes").exists());
        for file in ["PROJECT", "Cargo.toml", "src/main.rs", "tests/it/main.rs", "config/default/kustomization.yaml"] {
            assert!(root.join(file).is_file() && whole.path(file).is_file(), "{file}");
        }
    }
}

#[test]
fn an_upgrade_reports_lines_that_both_have_changed() {
    let sandbox = project("");
    assert!(sandbox.succeeds("upgrade").contains("nothing to change"));
    assert_unchanged(&sandbox);
    // As if an older version had generated another line, which the user has changed too.
    let edit = |path: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(sandbox.path(path)).unwrap();
        assert!(text.contains(from), "{path}: {text}");
        std::fs::write(sandbox.path(path), text.replace(from, to)).unwrap();
    };
    edit("Makefile", "lint: ## Check the code", "lint: ## Check");
    std::fs::remove_file(sandbox.path(".windlass/generated")).unwrap();
    commit(&sandbox);
    edit("Makefile", "lint: ## Check", "lint: ## Mine");
    commit(&sandbox);
    let said = sandbox.fails("upgrade --from HEAD~1");
    assert!(said.contains("Makefile: line 2") && said.contains("nothing was written"), "{said}");
    assert_unchanged(&sandbox);
    let said = sandbox.windlass("upgrade --from HEAD~1 --conflicts=markers");
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(said.stderr.contains("the new version is in Makefile.windlass-new"), "{said:?}");
    assert!(sandbox.fails("upgrade --from nowhere").contains("git knows no such commit"));
}
