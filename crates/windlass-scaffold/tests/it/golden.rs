//! What is generated, pinned: a change of templates shows in a review as the change of generated files that it is.

use std::fmt::Write as _;
use std::path::Path;

use windlass_scaffold::project::Source;
use windlass_scaffold::render::render;

/// Compares files with those of `tests/golden`. `BLESS=1` accepts them.
pub(crate) fn check<'a>(name: &str, files: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut text = String::new();
    for (path, content) in files {
        // The version of this crate is not what is pinned.
        let content = content.replace(env!("CARGO_PKG_VERSION"), "VERSION");
        let _ = write!(text, "=== {path}\n{content}");
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(text == expected, "{name} differs; BLESS=1 writes it:\n{}", diffy::create_patch(&expected, &text));
}

#[test]
fn generated_trees_are_pinned() {
    for (name, project) in crate::projects() {
        check(&format!("tree-{name}.txt"), render(&project).iter());
    }
}

#[test]
fn docker_builds_get_the_checkout_of_the_library() {
    let mut project = crate::project();
    project.settings_mut().windlass = Source::Path("/src/windlass".into());
    let tree = render(&project);
    let file = |name: &str| tree.iter().find(|(path, _)| *path == name).unwrap().1;
    let dockerfile = file("Dockerfile");
    assert!(dockerfile.contains("COPY --from=windlass [\"crates\", \"/src/windlass/crates\"]\n"), "{dockerfile}");
    for name in ["Makefile", "justfile"] {
        let text = file(name);
        assert!(text.contains("docker build --build-context 'windlass=/src/windlass' -t "), "{text}");
    }
}

#[test]
fn makefile_and_justfile_have_kubebuilders_targets() {
    let mut expected =
        "help manifests generate fmt lint test run build install uninstall deploy undeploy docker-build docker-push build-installer"
            .split(' ')
            .collect::<Vec<_>>();
    // What kubebuilder's plugins add to it.
    expected.extend(["chart", "bundle"]);
    let tree = render(&crate::project());
    let file = |name: &str| tree.iter().find(|(path, _)| *path == name).unwrap().1;
    // A target opens a line; private ones (`all`, `default`, files) have no description.
    let makefile: Vec<_> =
        file("Makefile").lines().filter(|line| line.contains(": ") && line.contains(" ## ")).map(target).collect();
    let justfile = file("justfile").lines().collect::<Vec<_>>();
    let justfile: Vec<_> = justfile
        .windows(2)
        .filter(|lines| {
            lines[0].starts_with("# ") && lines[1].contains(':') && !lines[1].starts_with(char::is_whitespace)
        })
        .map(|lines| target(lines[1]))
        .collect();
    assert_eq!(makefile, expected);
    assert_eq!(justfile, expected);
}

/// The name that a line of a `Makefile` or `justfile` defines.
fn target(line: &str) -> &str {
    line.split_once(':').map_or(line, |(name, _)| name)
}
