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
    // kubectl, which the doctor asks for its version, keeps a cache if anything listens on localhost:8080.
    assert_eq!(git(sandbox, "status --porcelain --ignored -- . :!.kube"), "");
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
    let api = format!("create api {kind} --resource=true --controller=true --make=false --ssa");
    sandbox.succeeds(&format!("{api} --example=false --crd-version v1"));
    let webhook =
        format!("create webhook {kind} --plural guestbooks --make=false --force=false --webhook-version v1 --legacy");
    sandbox.succeeds(&format!("{webhook} --defaulting=true --programmatic-validation=true --conversion=false"));
    assert!(sandbox.path("src/webhook/v1/guestbook.rs").exists() || sandbox.path("src/webhook/webapp/v1").exists());
    let said = sandbox.windlass("edit --plugins=helm/v2-alpha");
    assert!(said.status.success() && said.stderr.contains("windlass manifests chart"), "{said:?}");
}

#[test]
fn webhooks_are_served_at_other_paths() {
    let sandbox = project("");
    sandbox.succeeds("create api --group webapp --version v1 --kind Guestbook");
    commit(&sandbox);
    let paths = "--defaulting-path=/books/defaults --validation-path /books/check";
    sandbox.succeeds(&format!("create webhook --kind Guestbook --defaulting --programmatic-validation {paths}"));
    let code = std::fs::read_to_string(sandbox.path("src/webhook/v1/guestbook.rs")).unwrap();
    assert!(code.contains(r#".at("/books/defaults")"#) && code.contains(r#".at("/books/check")"#), "{code}");
    let project = std::fs::read_to_string(sandbox.path("PROJECT")).unwrap();
    assert!(project.contains("defaultingPath: /books/defaults"), "{project}");
    assert!(project.contains("validationPath: /books/check"), "{project}");

    sandbox.succeeds("create api --group webapp --version v1 --kind Author");
    let taken = sandbox.fails("create webhook --kind Author --validation --validation-path /books/check");
    assert!(taken.contains("another webhook is served at /books/check"), "{taken}");
    for (wrong, why) in
        [("books", "begins with a slash"), ("/a//b", "empty part"), ("/a.b", "'.'"), ("/convert", "conv")]
    {
        let said = sandbox.windlass(&format!("create webhook --kind Author --validation --validation-path {wrong}"));
        assert!(said.status.code() == Some(2) && said.stderr.contains(why), "{wrong}: {said:?}");
    }
    let alone = sandbox.windlass("create webhook --kind Author --defaulting --validation-path /x");
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");

    sandbox.succeeds("delete api --kind Author");
    sandbox.succeeds("delete webhook --kind Guestbook");
    assert_unchanged(&sandbox);
}

#[test]
fn a_license_file_is_at_the_top_of_rust_files() {
    let sandbox = Sandbox::new();
    let goes = "/*\n * Copyright 2026 The Zoo.\n *\n * All rights reserved.\n */\n";
    std::fs::write(sandbox.path("boilerplate.go.txt"), goes).unwrap();
    sandbox.succeeds("init --name zoo --license none --license-file boilerplate.go.txt");
    sandbox.succeeds("create api --group a --version v1 --kind Cat");
    let head = |file: &str| {
        let text = std::fs::read_to_string(sandbox.path(file)).unwrap();
        text.lines().take_while(|line| !line.starts_with("//!")).collect::<Vec<_>>().join("|")
    };
    assert_eq!(head("src/controller/cat.rs"), "// Copyright 2026 The Zoo.|//|// All rights reserved.|");
    sandbox.succeeds("edit --license mit --owner Zoo");
    let names = "// SPDX-FileCopyrightText: Zoo|// SPDX-License-Identifier: MIT|";
    assert_eq!((head("src/controller/cat.rs").as_str(), head("src/main.rs").as_str()), (names, names));
    std::fs::write(sandbox.path("header.txt"), "// Ours.\n").unwrap();
    sandbox.succeeds("edit --license-file header.txt");
    assert_eq!(head("api/src/v1/cat.rs"), "// Ours.|");
    std::fs::write(sandbox.path("header.txt"), "/*\n*/\n").unwrap();
    assert!(sandbox.fails("edit --license-file header.txt").contains("says nothing"));
    std::fs::write(sandbox.path("header.txt"), "a\0b").unwrap();
    assert!(sandbox.fails("edit --license-file header.txt").contains("is no text"));
    assert!(sandbox.fails("edit --license-file missing.txt").contains("cannot read missing.txt"));
}

#[test]
fn the_plugin_deploy_image_is_answered_with_another_way() {
    let sandbox = project("");
    let image = "--image=memcached:1 --image-container-port=11211 --run-as-user=1001 --manifests=false --plugins=deploy-image/v1-alpha";
    let said = sandbox.fails(&format!("create api --group cache --version v1 --kind Memcached {image}"));
    assert!(said.contains("deploy-image") && said.contains("app-service"), "{said}");
    assert_unchanged(&sandbox);
}

#[test]
fn a_short_name_that_is_given_twice_is_one() {
    let sandbox = project("");
    sandbox.succeeds("create api --group a --version v1 --kind Cat --shortname ca,ca --shortname ct");
    let types = std::fs::read_to_string(sandbox.path("api/src/v1/cat.rs")).unwrap();
    assert_eq!(types.matches("shortname = \"ca\"").count(), 1, "{types}");
    assert_eq!(types.matches("shortname = ").count(), 2, "{types}");
}

#[test]
fn commands_say_that_there_is_no_project() {
    let sandbox = Sandbox::new();
    for command in
        ["create api --version v1 --kind Cat", "edit", "upgrade", "manifests", "manifests --write", "dev", "test"]
    {
        let said = sandbox.fails(command);
        assert!(said.contains("there is no project here") && said.contains("`windlass init`"), "{command}: {said}");
    }
    assert!(sandbox.fails("bundle run").contains("`windlass manifests bundle` writes one"));
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
    std::os::unix::fs::symlink("missing", sandbox.path("alink")).unwrap();
    commit(&sandbox);
    for (args, part) in [
        ("frobnicate", "unrecognized subcommand"),
        ("init afile", "afile is a file, and a project is a directory"),
        ("init afile/shop", "afile is a file, and a project is a directory"),
        ("init alink --name shop", "alink is a link that leads nowhere, and a project is a directory"),
        ("init Bad_Dir", "--name"),
        ("init my.domain", "The domain of its groups is --domain my.domain"),
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
fn git_applies_the_diff_of_a_dry_run() {
    let sandbox = project("");
    sandbox.succeeds("create api --group webapp --version v1 --kind Guestbook");
    commit(&sandbox);
    // The last lines of these diffs are empty ones.
    for command in
        ["edit --license none", "delete api --kind Guestbook", "create webhook --kind Guestbook --defaulting"]
    {
        let diff = sandbox.succeeds(&format!("{command} --dry-run"));
        std::fs::write(sandbox.path(".git/change.diff"), diff).unwrap();
        git(&sandbox, "apply .git/change.diff");
        git(&sandbox, "add -A");
        let applied = git(&sandbox, "write-tree");
        git(&sandbox, "reset -q --hard");
        sandbox.succeeds(command);
        git(&sandbox, "add -A");
        let differ = format!("diff --cached --name-only {}", applied.trim());
        // Only the record of what was generated is not shown.
        assert_eq!(git(&sandbox, &differ), ".windlass/generated\n", "windlass {command}");
        git(&sandbox, "reset -q --hard");
    }
    assert_eq!(sandbox.succeeds("edit --multigroup=false --dry-run"), "nothing to change\n");
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
    assert!(sandbox.fails(&long).contains("longer than 59 characters"));
}

#[test]
fn names_of_every_sort_are_refused_without_a_trace() {
    let sandbox = project("--multigroup");
    let api = "create api --group webapp --version v1 --kind";
    let group = "create api --version v1 --kind Guestbook --group";
    let version = "create api --group webapp --kind Guestbook --version";
    let plural = "create api --group webapp --version v1 --kind Guestbook --plural";
    let short = "create api --group webapp --version v1 --kind Guestbook --shortname";
    let controller = "create api --group webapp --version v1 --kind Guestbook --controller-name";
    let long = "a".repeat(300);
    for (args, name, part) in [
        // Spaces.
        (api, "Guest book", "contains ' '"),
        (api, "", "is empty"),
        (group, "web app", "contains ' '"),
        (version, "v1 ", "is not a version"),
        (plural, "guest books", "contains ' '"),
        (controller, "guest book", "contains ' '"),
        ("init other --name", "my shop", "contains ' '"),
        ("init other --domain", "my domain", "contains ' '"),
        // Letters of other scripts, and those that only look like ours.
        (api, "留言板", "contains '留'"),
        (api, "Guestb\u{43e}\u{43e}k", "a kind is at most 59 letters and digits"),
        (group, "wébapp", "contains 'é'"),
        (plural, "gästebücher", "contains 'ä'"),
        (short, "ß", "contains 'ß'"),
        ("init other --name", "läden", "contains 'ä'"),
        ("init other --domain", "mÿ.domain", "contains 'ÿ'"),
        ("init", "läden", "choose one with --name"),
        ("init", "my shop", "choose one with --name"),
        // Length.
        (api, &"A".repeat(60), "longer than 59 characters"),
        (group, &["group"; 41].join("."), "has more than 253 characters"),
        (group, &long, "longer than 253 characters"),
        (group, &"a".repeat(64), "a part of more than 63 characters"),
        (version, "v12345", "is not a version"),
        (plural, &long, "longer than 63 characters"),
        (controller, &long, "longer than 63 characters"),
        ("init other --domain", &long, "longer than 253 characters"),
        ("init other --name", &"a".repeat(29), "longer than 28 characters"),
        // Reserved words, of Rust and of the generated code.
        (group, "type", "reserved word"),
        (group, "crate", "reserved word"),
        (controller, "async", "reserved word"),
        (controller, "windlass", "generated code uses itself"),
        (api, "Self", "generated code uses"),
        (api, "Fn", "generated code uses"),
        (api, "List", "kubectl takes for a list"),
        ("init other --name", "impl", "reserved word"),
        ("init other --name", "tokio", "generated code uses itself"),
        ("init other --name", "windlass-api", "is the name of a package of windlass"),
        // Groups and versions that Kubernetes does not have.
        (group, "9lives", "begins with a digit"),
        ("create api --version v1 --kind Guestbook", "--group=-web", "begins or ends with `-`"),
        (group, "web..app", "empty part"),
        (version, "1", "is not a version"),
        (version, "v0", "is not a version"),
        (version, "v1gamma1", "is not a version"),
        // Paths.
        (api, "../Guestbook", "contains '.'"),
        (group, "../../etc", "contains '/'"),
        ("init other --name", "../shop", "contains '.'"),
        // Kinds of Kubernetes.
        (api, "Deployment", "Kubernetes has a kind Deployment"),
        (api, "Namespace", "Kubernetes has a kind Namespace"),
        (api, "CustomResourceDefinition", "Kubernetes has a kind CustomResourceDefinition"),
    ] {
        let said: crate::process::Said = sandbox.command(args).arg(name).output().unwrap().into();
        assert!(matches!(said.status.code(), Some(1 | 2)), "windlass {args} {name:?}: {said:?}");
        assert!(said.stderr.contains(part), "windlass {args} {name:?}: {part:?} is not in: {}", said.stderr);
        assert!(!said.stderr.contains("panicked"), "windlass {args} {name:?}: {said:?}");
        assert_unchanged(&sandbox);
    }
}

#[test]
fn a_controller_without_a_short_name_is_to_be_named() {
    let sandbox = project("--multigroup");
    sandbox.succeeds("create api --group webapp --version v1 --kind Guestbook");
    commit(&sandbox);
    let api = format!("create api --group {} --version v1 --kind Guestbook", "a".repeat(63));
    let said = sandbox.fails(&api);
    assert!(said.contains("aa-guestbook\"") && said.contains("--controller-name"), "{said}");
    assert_unchanged(&sandbox);
    sandbox.succeeds(&format!("{api} --controller-name books"));
}

#[test]
fn groups_of_kubernetes_are_refused_or_annotated() {
    let gadget = "--version v1 --kind Gadget";
    for (domain, group, note) in [
        ("k8s.io", "--group networking", None),
        ("storage.k8s.io", "", None),
        ("k8s.io", "--group pets", Some("pets.k8s.io is a group of the Kubernetes community")),
        ("kubernetes.io", "", Some("kubernetes.io is a group of the Kubernetes community")),
        ("x-k8s.io", "--group pets", Some("")),
    ] {
        let sandbox = Sandbox::new();
        sandbox.succeeds(&format!("init --name zoo --domain {domain}"));
        let said = sandbox.windlass(&format!("create api {group} {gadget}"));
        let Some(note) = note else {
            assert_eq!(said.status.code(), Some(1), "{domain}: {said:?}");
            assert!(said.stderr.contains("is a group of Kubernetes itself"), "{domain}: {said:?}");
            assert!(!sandbox.path("api/src/v1").exists(), "{domain}");
            continue;
        };
        assert!(said.status.success() && said.stderr.starts_with(note), "{domain}: {said:?}");
        assert_eq!(said.stderr.is_empty(), note.is_empty(), "{domain}: {said:?}");
        let types = std::fs::read_to_string(sandbox.path("api/src/v1/gadget.rs")).unwrap();
        let annotation = r#"annotation("api-approved.kubernetes.io", "unapproved, experimental-only")"#;
        assert_eq!(types.contains(annotation), !note.is_empty(), "{domain}: {types}");
        // Not where the types are those of another crate.
        let said = sandbox.windlass("create api --group core --version v1 --kind Pod --resource=false");
        assert!(said.status.success() && said.stderr.is_empty(), "{domain}: {said:?}");
    }
}

#[test]
fn a_read_only_directory_is_named_and_left_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = project("");
    let allow = |path: &str, mode: u32| {
        std::fs::set_permissions(sandbox.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for directory in [".", "src", "api/src", "config"] {
        allow(directory, 0o555);
        let said = sandbox.fails("create api --group webapp --version v1 --kind Guestbook");
        allow(directory, 0o755);
        assert!(said.contains("nothing was changed. Make the directory writable"), "{directory}: {said}");
        let path = sandbox.path(directory).canonicalize().unwrap();
        assert!(said.contains(path.to_str().unwrap()), "{directory}: {said}");
        assert_unchanged(&sandbox);
    }
    let other = Sandbox::new();
    std::fs::create_dir(other.path("shop")).unwrap();
    std::fs::set_permissions(other.path("shop"), std::fs::Permissions::from_mode(0o555)).unwrap();
    for place in ["shop", "shop/inner"] {
        let said = other.fails(&format!("init {place} --name shop --domain my.domain"));
        assert!(said.contains("Make the directory writable"), "{place}: {said}");
        assert_eq!(std::fs::read_dir(other.path("shop")).unwrap().count(), 0, "{place}");
    }
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
        assert!(said.contains("`kubectl get") && said.contains("--allow-builtin-name"), "{names}: {said}");
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
    // Nothing can be built of this, and there is no cluster: neither may be looked at before PROJECT is.
    std::fs::write(sandbox.path("Cargo.toml"), "no manifest").unwrap();
    let own = format!("cliVersion: \"{}\"", env!("CARGO_PKG_VERSION"));
    for (old, new, expected) in [
        (
            "\nversion: \"3\"",
            "\nversion: \"4\"",
            "error: PROJECT has version \"4\", and this windlass knows version \"3\": install a newer windlass\n"
                .to_owned(),
        ),
        (
            &own,
            "cliVersion: 99.0.0",
            format!(
                "error: PROJECT was written by windlass 99.0.0, and this is {}: install the newer version\n",
                env!("CARGO_PKG_VERSION")
            ),
        ),
    ] {
        assert!(text.contains(old), "{text}");
        std::fs::write(sandbox.path("PROJECT"), text.replace(old, new)).unwrap();
        commit(&sandbox);
        for command in [
            "create api --group webapp --version v1 --kind Guestbook",
            "create webhook --kind Guestbook --defaulting",
            "delete api --kind Guestbook",
            "delete webhook --kind Guestbook",
            "delete client",
            "edit --multigroup",
            "generate client",
            "generate client --check",
            "upgrade",
            "upgrade --from HEAD",
            "manifests",
            "manifests --write",
            "manifests --check",
            "manifests --program nowhere",
            "manifests install",
            "manifests chart",
            "manifests bundle",
            "install",
            "install -f config/crd",
            "uninstall",
            "run",
            "run --program nowhere",
            "deploy",
            "deploy --skip-build",
            "undeploy",
            "dev",
            "dev --once",
            "dev --tiltfile",
            "test",
        ] {
            let said = sandbox.windlass(command);
            assert_eq!((said.status.code(), &said.stderr), (Some(1), &expected), "windlass {command}");
            assert_unchanged(&sandbox);
        }
        // The doctor goes on, and says what to do.
        let said = sandbox.windlass("doctor --kubeconfig nowhere -o json");
        let report: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["check"] == "project").unwrap();
        assert_eq!(found["remedy"], "install a newer windlass; `windlass version` says which one this is", "{found}");
        assert!(findings.iter().all(|finding| finding["check"] != "operator"), "{report}");
        assert_unchanged(&sandbox);
    }
    assert!(sandbox.fails("init").contains("has a project already"));
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
fn an_interrupted_change_is_whole() {
    use crate::process::Running;
    let whole = project("");
    whole.succeeds("create api --group webapp --version v1 --kind Guestbook");
    commit(&whole);
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let sandbox = project("");
        // The command waits for the project, and has said that it wants to hear of signals.
        let lock = std::fs::File::open(sandbox.path(".")).unwrap();
        lock.lock().unwrap();
        let create = Running::spawn(&mut sandbox.command("create api --group webapp --version v1 --kind Guestbook"));
        create.catches(signal);
        create.signal(signal);
        drop(lock);
        let code = create.wait().code();
        assert!(matches!(code, Some(0 | 130 | 143)), "{signal:?}: {code:?}");
        commit(&sandbox);
        let tree = "ls-tree -r HEAD";
        assert_eq!(git(&sandbox, tree), git(&whole, tree), "{signal:?}");
        // Killed before anything is decided: nothing is changed.
        let lock = std::fs::File::open(sandbox.path(".")).unwrap();
        lock.lock().unwrap();
        let delete = Running::spawn(&mut sandbox.command("delete api --kind Guestbook"));
        delete.catches(signal);
        delete.signal(rustix::process::Signal::KILL);
        delete.wait();
        drop(lock);
        assert_unchanged(&sandbox);
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

#[test]
fn consent_to_a_built_in_name_replaces_no_edits() {
    let sandbox = project("");
    let api = "create api --group webapp --version v1 --kind Guestbook --plural pods";
    assert!(sandbox.fails(&format!("{api} --force")).contains("add --allow-builtin-name"));
    std::fs::create_dir_all(sandbox.path("api/src/v1")).unwrap();
    std::fs::write(sandbox.path("api/src/v1/guestbook.rs"), "// mine\n").unwrap();
    let said = sandbox.fails(&format!("{api} --allow-builtin-name"));
    assert!(said.contains("api/src/v1/guestbook.rs") && said.contains("add --force"), "{said}");
    assert_eq!(std::fs::read_to_string(sandbox.path("api/src/v1/guestbook.rs")).unwrap(), "// mine\n");
    sandbox.succeeds(&format!("{api} --allow-builtin-name --force"));
    assert!(std::fs::read_to_string(sandbox.path("PROJECT")).unwrap().contains("plural: pods"));
}

#[test]
fn each_flag_of_deploy_image_is_refused() {
    let sandbox = project("");
    let api = "create api --group webapp --version v1 --kind Guestbook";
    for flag in [
        "--plugins=deploy-image/v1-alpha",
        "--plugins deploy-image.go.kubebuilder.io/v1-alpha",
        "--image=nginx",
        "--image-container-port=80",
        "--run-as-user=1000",
    ] {
        let said = sandbox.fails(&format!("{api} {flag}"));
        assert!(said.contains("no plugin deploy-image") && said.contains("apply a Deployment"), "{flag}: {said}");
    }
    assert!(!sandbox.path("api/src/v1").exists());
    sandbox.succeeds(&format!("{api} --plugins=go/v4 --manifests=false"));
}
