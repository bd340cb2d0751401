//! The command's page in the book is what the command says about itself.

use crate::windlass::Sandbox;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");

const INTRODUCTION: &str = "\
# The `windlass` command

This page is what `--help` says. After a change of the command line, write it again with
`BLESS=1 cargo test -p windlass-cli the_reference`.

Environment: `WINDLASS_HOME` is where clusters are kept (`~/.windlass`), `KUBECONFIG` is the kubeconfig that `up` and
`down` edit (`~/.kube/config`; the first file of a list), `RUST_LOG` is how much a cluster logs (`info`),
`WINDLASS_IMAGES` is where images are kept (`.images` in `WINDLASS_HOME`), `WINDLASS_REGISTRIES` is where the mirrors of registries
are named (`.registries` in `WINDLASS_HOME`).

Results go to standard output, everything else to standard error. Colours are used on a terminal only, unless `NO_COLOR` is
set. Exit codes:

| code | meaning |
|---|---|
| 0 | done |
| 1 | failed; or the answer is no: `status` of a cluster that does not run or answer, `manifests --check` with drift, `doctor` with something broken |
| 2 | the command line is wrong; nothing was done |
| 129, 130, 131, 143 | ended by SIGHUP, SIGINT, SIGQUIT or SIGTERM |
";

/// The help of a command, wrapped as it is where there is no terminal.
fn help(args: &str) -> String {
    let output = Sandbox::new().command(args).env_remove("COLUMNS").env_remove("LINES").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::trim_end).flat_map(|line| [line, "\n"]).collect()
}

/// The names under `Commands:`, without `help`.
fn subcommands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

/// Adds the section of a command, and of the commands below it.
fn describe(command: &str, page: &mut String) {
    let text = help(&format!("{command} --help"));
    *page += &["\n## `windlass ", command, "`\n\n```text\n", &text, "```\n"].concat();
    for name in subcommands(&text) {
        describe(&format!("{command} {name}"), page);
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let overview = help("--help");
    let mut page = format!("{INTRODUCTION}\n```text\n{overview}```\n");
    for name in subcommands(&overview) {
        describe(name, &mut page);
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(written == page, "docs/reference/cli.md is out of date: BLESS=1 cargo test -p windlass-cli the_reference");
}
