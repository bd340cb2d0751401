//! The book in `docs/` holds together: every page is in `SUMMARY.md`, links resolve, diagrams are readable on dark
//! backgrounds, and each translation is made from its English page as it is now.
//!
//! Nothing is compiled or run here. Examples in pages are compiled as doctests of the crates that include them, and
//! `tests/tutorials` does what the tutorials say.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The first line of a translation: `<!-- translates PAGE HASH -->`, with the page relative to the translation.
const MARK: (&str, &str) = ("<!-- translates ", " -->");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// All files of the book with an extension.
fn files(directory: &Path, extension: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files(&path, extension));
        } else if path.extension().is_some_and(|its| its == extension) {
            found.insert(path);
        }
    }
    found
}

/// The pages of the book, and the Markdown files beside it that lead there.
fn pages() -> BTreeSet<PathBuf> {
    let root = root();
    let mut pages = files(&root.join("docs"), "md");
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    pages
}

/// The lines of a page outside of code blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The targets of links and images in a line, without those in inline code.
fn links(line: &str) -> Vec<&str> {
    let is_code = |at: usize| line[..at].matches('`').count() % 2 == 1;
    let starts = line.match_indices("](").filter(|(at, _)| !is_code(*at));
    starts.filter_map(|(at, start)| line[at + start.len()..].split_once(')')).map(|(target, _)| target).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ' ');
    let anchor = |text: &str| text.to_lowercase().chars().filter(|letter| plain(*letter)).collect::<String>();
    headings.map(|text| anchor(text).replace(' ', "-")).collect()
}

/// A path without `.` and `..`, whether there is such a file or not.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

fn relative(page: &Path) -> String {
    page.strip_prefix(root()).unwrap().display().to_string()
}

/// FNV-1a: the same on every machine, and short enough for a comment.
fn hash(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

#[test]
fn every_page_is_in_the_summary_once() {
    let docs = root().join("docs");
    let summary = docs.join("SUMMARY.md");
    let text = read(&summary);
    let mut listed = BTreeMap::<PathBuf, usize>::new();
    for target in prose(&text).flat_map(links) {
        *listed.entry(normal(&docs.join(target))).or_default() += 1;
    }
    let twice: Vec<_> = listed.iter().filter(|(_, times)| **times > 1).map(|(page, _)| relative(page)).collect();
    assert!(twice.is_empty(), "docs/SUMMARY.md lists these pages more than once: {twice:?}");
    let pages = files(&docs, "md").into_iter().filter(|page| *page != summary);
    let missing: Vec<_> = pages.filter(|page| !listed.contains_key(page)).map(|page| relative(&page)).collect();
    assert!(missing.is_empty(), "add these pages to docs/SUMMARY.md: {missing:?}");
}

/// The code blocks of a page, each as one text.
fn code(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            let rest = lines.by_ref().take_while(|line| !line.starts_with("```"));
            blocks.push(std::iter::once(line).chain(rest).collect::<Vec<_>>().join("\n"));
        }
    }
    blocks
}

/// What a reader of a translation types and sees is what the test of the tutorials has run.
#[test]
fn translated_tutorials_have_the_code_of_their_pages() {
    let docs = root().join("docs");
    for page in files(&docs.join("tutorial"), "md") {
        let translation = docs.join("zh/tutorial").join(page.file_name().unwrap());
        let (original, translated) = (code(&read(&page)), code(&read(&translation)));
        for (number, (one, other)) in original.iter().zip(&translated).enumerate() {
            assert_eq!(one, other, "code block {} of {}", number + 1, relative(&translation));
        }
        assert_eq!(original.len(), translated.len(), "code blocks of {}", relative(&translation));
    }
}

#[test]
fn links_of_the_book_lead_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = read(&page);
        for target in prose(&text).flat_map(links).filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { page.clone() } else { normal(&page.parent().unwrap().join(file)) };
            let is_page = there.extension().is_some_and(|its| its == "md");
            let found = there.exists() && (anchor.is_empty() || !is_page || anchors(&read(&there)).contains(anchor));
            if !found {
                broken.push(format!("{}: {target}", relative(&page)));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn diagrams_follow_the_color_scheme_and_are_used() {
    let text: String = pages().iter().map(|page| read(page)).collect();
    for diagram in files(&root().join("docs"), "svg") {
        let name = diagram.file_name().unwrap().to_str().unwrap();
        assert!(read(&diagram).contains("prefers-color-scheme: dark"), "{name} is not readable on dark backgrounds");
        assert!(text.contains(name), "no page shows {name}");
    }
}

/// The names of metrics between two quotation marks of a sort.
fn metrics(text: &str, quote: char) -> BTreeSet<&str> {
    const FAMILIES: [&str; 6] =
        ["certwatcher_", "controller_runtime_", "leader_election_", "rest_client_", "windlass_", "workqueue_"];
    let is_metric = |name: &&str| {
        let plain = name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
        plain && FAMILIES.iter().any(|family| name.starts_with(family))
    };
    text.split(quote).filter(is_metric).collect()
}

#[test]
fn the_page_on_operation_has_every_metric() {
    let code: String = files(&root().join("crates/windlass/src"), "rs").iter().map(|file| read(file)).collect();
    let page = read(&root().join("docs/how-to/operate.md"));
    let table: String = page.lines().filter(|line| line.starts_with('|')).collect();
    let (registered, listed) = (metrics(&code, '"'), metrics(&table, '`'));
    assert_eq!(listed, registered, "docs/how-to/operate.md does not list the metrics of crates/windlass");
}

#[test]
fn translations_are_of_the_pages_as_they_are() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut outdated = Vec::new();
    for page in files(&root().join("docs/zh"), "md") {
        let text = read(&page);
        let line = text.lines().next().unwrap_or_default();
        let mark =
            line.strip_prefix(MARK.0).and_then(|rest| rest.strip_suffix(MARK.1)).and_then(|rest| rest.split_once(' '));
        let Some((original, then)) = mark else {
            panic!("{} does not begin with `{}PAGE HASH{}`", relative(&page), MARK.0, MARK.1);
        };
        let source = normal(&page.parent().unwrap().join(original));
        let now = hash(&read(&source));
        if then == now {
            continue;
        }
        if bless {
            fs::write(&page, text.replacen(then, &now, 1)).unwrap();
        }
        outdated.push(format!("{} has changed: update {}", relative(&source), relative(&page)));
    }
    assert!(
        bless || outdated.is_empty(),
        "{}\nthen record it with BLESS=1 cargo test -p windlass-book translations",
        outdated.join("\n")
    );
}
