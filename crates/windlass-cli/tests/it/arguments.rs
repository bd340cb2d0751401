//! Bad input to the command line gets a clear answer.

use crate::windlass::{Cluster, Sandbox};

#[track_caller]
fn check(args: &str, says: &str) {
    let said = Sandbox::new().fails(args);
    assert!(said.contains(says), "windlass {args} does not say {says:?} but: {said}");
}

#[test]
fn bad_arguments_are_named() {
    check("frobnicate", "unrecognized subcommand 'frobnicate'");
    check("up --name Bad_Name", "lower-case letters, digits and dashes");
    check("up --name ../escape", "lower-case letters, digits and dashes");
    check("up --listen nonsense", "invalid value 'nonsense' for '--listen <ADDR:PORT>'");
    check("up --ephemeral --data-dir x", "cannot be used with");
    check("status -o xml", "possible values: table, json, yaml");
}

#[test]
fn missing_clusters_are_reported_as_not_running() {
    check("kubeconfig --name nope", "cluster \"nope\" is not running; start it with `windlass up --name nope`");
    let sandbox = Sandbox::new();
    let said = sandbox.windlass("status --name nope");
    assert_eq!(said.status.code(), Some(1));
    assert!(said.stdout.contains("cluster \"nope\" is not running"), "{said:?}");
    assert!(sandbox.succeeds("down --name nope").contains("was not running"));
    assert!(sandbox.succeeds("list").contains("no clusters"));
    assert_eq!(sandbox.succeeds("list -o json").trim(), "[]");
}

#[test]
fn an_address_in_use_is_named() {
    let taken = Cluster::ephemeral();
    let address = taken.server.trim_start_matches("https://");
    check(&format!("up --foreground --ephemeral --listen {address}"), &format!("cannot listen on {address}"));
    check(&format!("up --ephemeral --listen {address}"), "the cluster did not start");
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("file"), "").unwrap();
    let said = sandbox.fails("up --foreground --data-dir file");
    assert!(said.contains("file"), "{said}");
    let said = sandbox.fails("up --foreground --ephemeral --kubeconfig file/kubeconfig");
    assert!(said.contains("file"), "{said}");
}

#[test]
fn a_kubeconfig_that_is_none_is_left_alone() {
    for text in ["- just\n- a list\n", "{ not yaml", "clusters: none\n"] {
        let sandbox = Sandbox::new();
        std::fs::write(sandbox.user_kubeconfig(), text).unwrap();
        let said = sandbox.fails("up --ephemeral");
        assert!(said.contains("user-kubeconfig"), "{said}");
        assert_eq!(std::fs::read_to_string(sandbox.user_kubeconfig()).unwrap(), text);
        assert_eq!(sandbox.processes(), Vec::<String>::new(), "a cluster was left running");
    }
}

#[test]
fn help_names_every_command() {
    let help = Sandbox::new().succeeds("--help");
    for command in ["up", "down", "status", "list", "kubeconfig", "manifests"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
    }
}
