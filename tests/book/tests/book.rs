//! The book in `docs/` holds together, which is what `mdbook build` would say, and more: every page is in `SUMMARY.md` and
//! has something to say, links resolve, commands have the options that pages name, diagrams are readable on dark
//! backgrounds, and each translation is made from its English page as it is now.
//!
//! Nothing is compiled or run here. Examples in pages are compiled as doctests of the crates that include them, and
//! `tests/tutorials` does what the tutorials say.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

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

/// The pages of the repository that no book has.
fn pages_beside_the_book() -> BTreeSet<PathBuf> {
    let root = root();
    let mut pages = files(&root.join("examples"), "md");
    pages.retain(|page| !relative(page).contains("/target/"));
    pages.insert(root.join("CHANGELOG.md"));
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

/// Readers of plain files begin with an index, readers of the built book with the summary.
#[test]
fn indexes_list_the_pages_of_the_summary() {
    let docs = root().join("docs");
    let linked = |index: &str| -> BTreeSet<PathBuf> {
        let index = docs.join(index);
        let text = read(&index);
        let targets = prose(&text).flat_map(links).map(|target| target.split('#').next().unwrap());
        targets.map(|target| normal(&index.parent().unwrap().join(target))).collect()
    };
    let summary = linked("SUMMARY.md");
    for (index, is_chinese) in [("README.md", false), ("zh/README.md", true)] {
        let listed = linked(index);
        let expected = summary.iter().filter(|page| page.starts_with(docs.join("zh")) == is_chinese);
        let missing: Vec<_> = expected
            .filter(|page| **page != docs.join(index) && !listed.contains(*page))
            .map(|page| relative(page))
            .collect();
        assert!(missing.is_empty(), "add these pages of docs/SUMMARY.md to docs/{index}: {missing:?}");
    }
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

/// A block without its first line, which says how it is run, and without comments, which are translated.
fn without_comments(block: &str) -> String {
    let lines = block.lines().skip(1).map(|line| line.split(" #").next().unwrap_or_default().trim_end());
    lines.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// What a reader of a translation types is what the test of the tutorials has run.
#[test]
fn translated_concepts_have_the_commands_of_their_pages() {
    let docs = root().join("docs");
    let typed = |page: &Path| -> BTreeSet<String> {
        let blocks = code(&read(page));
        let console = blocks.iter().filter(|block| block.starts_with("```console")).flat_map(|block| block.lines());
        let prompts = console.filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned);
        // Of these blocks every line is typed.
        let scripts = blocks.iter().filter(|block| block.starts_with("```sh")).map(|block| without_comments(block));
        prompts.chain(scripts).collect()
    };
    for page in files(&docs.join("concepts"), "md") {
        let translation = docs.join("zh/concepts").join(page.file_name().unwrap());
        assert_eq!(typed(&page), typed(&translation), "{}", relative(&translation));
    }
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
    for page in pages().into_iter().chain(pages_beside_the_book()) {
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

#[test]
fn no_page_is_a_stub() {
    for page in files(&root().join("docs"), "md") {
        let text = read(&page);
        let name = relative(&page);
        assert!(text.lines().any(|line| line.starts_with("# ")), "{name} has no heading");
        let words = text.split_whitespace().count();
        // A Chinese sentence is one word here.
        assert!(words > 80, "{name} has {words} words");
        for mark in ["TODO", "TBD", "FIXME", "coming soon"] {
            assert!(!prose(&text).any(|line| line.contains(mark)), "{name} says {mark}");
        }
    }
}

/// What `windlass COMMAND --help` says, by the words of the command, from the page that the command itself writes.
fn reference() -> BTreeMap<String, String> {
    let page = read(&root().join("docs/reference/cli.md"));
    let sections = page.split("\n## `windlass ").skip(1);
    sections
        .filter_map(|section| section.split_once('`'))
        .map(|(name, rest)| (name.to_owned(), rest.to_owned()))
        .collect()
}

/// The command lines of `windlass` in the shell blocks of a page.
fn typed(page: &str) -> Vec<Vec<String>> {
    let shell = |block: &&String| ["```sh", "```console"].iter().any(|info| block.starts_with(info));
    let mut found = Vec::new();
    for block in code(page).iter().filter(shell) {
        let joined = block.replace("\\\n", " ");
        for line in joined.lines() {
            let line = line.strip_prefix("$ ").unwrap_or(line);
            let line = line.split(" #").next().unwrap_or_default();
            // Of a pipeline or a substitution, what `windlass` itself is given.
            let Some(at) = line.match_indices("windlass ").map(|(at, _)| at).find(|at| {
                let before = line[..*at].chars().next_back();
                before.is_none_or(|letter| letter.is_whitespace() || "(;".contains(letter))
                    && line[..*at].chars().all(|letter| !"\"'".contains(letter))
            }) else {
                continue;
            };
            let rest = &line[at + "windlass ".len()..];
            let end = rest.find(['|', ';', ')', '>', '&']).unwrap_or(rest.len());
            found.push(rest[..end].split_whitespace().take_while(|word| *word != "--").map(str::to_owned).collect());
        }
    }
    found
}

/// Options that `--help` does not list: kubebuilder's names for others. The tutorials type them.
const KUBEBUILDER_NAMES: [&str; 2] = ["--programmatic-validation", "--repo"];

#[test]
fn commands_of_the_book_have_the_options_that_it_names() {
    let reference = reference();
    let mut pages = pages();
    pages.extend(files(&root().join("examples"), "md"));
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in pages {
        for words in typed(&read(&page)) {
            let plain: Vec<&str> = words.iter().map(String::as_str).take_while(|word| !word.starts_with('-')).collect();
            let candidates = (1..=plain.len().min(2)).rev().map(|count| plain[..count].join(" "));
            let Some(help) = candidates.into_iter().find_map(|command| reference.get(&command)) else {
                // Output of a command begins like one now and then; a lone word in capitals stands for a command.
                if plain.first().is_some_and(|word| word.chars().all(|letter| letter.is_ascii_lowercase())) {
                    wrong.push(format!("{}: windlass {}: no such command", relative(&page), words.join(" ")));
                }
                continue;
            };
            checked += 1;
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let option = option.split('=').next().unwrap_or_default();
                let is_there = |line: &str| line.split([' ', ',', '=', '[']).any(|word| word == option);
                if !help.lines().any(is_there) && !KUBEBUILDER_NAMES.contains(&option) {
                    wrong.push(format!("{}: windlass {}: no option {option}", relative(&page), words.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 100, "only {checked} commands were found");
}

/// The shell blocks of a page, with whether each says why it is not run.
fn shell_blocks(page: &str) -> Vec<(usize, bool)> {
    let mut blocks = Vec::new();
    let (mut inside, mut excused) = (false, false);
    for (number, line) in page.lines().enumerate().map(|(number, line)| (number + 1, line.trim_start())) {
        excused |= line.starts_with("<!-- not run: ") && line.ends_with(" -->");
        let Some(info) = line.strip_prefix("```") else { continue };
        if !inside && ["sh", "console"].contains(&info.split_whitespace().next().unwrap_or_default()) {
            blocks.push((number, std::mem::take(&mut excused)));
        }
        inside = !inside;
    }
    blocks
}

/// `tests/tutorials/pages.txt` has the pages whose commands are run.
#[test]
fn every_command_is_run_or_says_why_not() {
    let walked = read(&root().join("tests/tutorials/pages.txt"));
    let walked: BTreeSet<&str> = walked.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let mut pages = pages();
    pages.extend(files(&root().join("examples"), "md"));
    let (mut all, mut excused, mut unrun) = (0, 0, Vec::new());
    for page in pages {
        let name = relative(&page);
        // The code of translations is that of their pages, and so is what makes it run.
        if name.starts_with("docs/zh/") || name.contains("/target/") {
            continue;
        }
        for (line, says_why) in shell_blocks(&read(&page)) {
            all += 1;
            excused += usize::from(says_why);
            if !says_why && !walked.contains(name.as_str()) {
                unrun.push(format!("{name}:{line}"));
            }
        }
    }
    println!("{all} blocks of commands; {excused} say why they are not run");
    assert!(unrun.is_empty(), "nothing runs these commands, and nothing says why:\n{}", unrun.join("\n"));
    assert!(excused * 2 < all, "{excused} of {all} blocks of commands are not run");
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

/// mdBook calls a page README.md index.html, and changes no link to it.
#[test]
fn the_built_book_redirects_links_to_readmes() {
    let docs = root().join("docs");
    let settings = read(&docs.join("book.toml"));
    for page in files(&docs, "md") {
        let directory = page.parent().unwrap();
        for target in read(&page).lines().flat_map(links).map(|target| target.split('#').next().unwrap().to_owned()) {
            let linked = normal(&directory.join(&target));
            let Ok(linked) = linked.strip_prefix(&docs) else { continue };
            if target.ends_with("README.md") && !page.ends_with("SUMMARY.md") {
                let redirect = format!("\"/{}\" = ", linked.with_extension("html").display());
                assert!(settings.contains(&redirect), "{}: docs/book.toml has no {redirect}", relative(&page));
            }
        }
    }
}

/// Runs `links.js` on the links of a page, as a browser does.
#[test]
fn links_out_of_the_built_book_lead_to_the_repository() {
    const BROWSER: &str = r#"
        const links = process.argv.slice(2).map((href) => ({
            href,
            getAttribute() { return this.href; },
            setAttribute(_, href) { this.href = href; },
        }));
        globalThis.path_to_root = "../";
        globalThis.document = { location: { pathname: "/the/book/tutorial/home.html" }, querySelectorAll: () => links };
        require(process.argv[1]);
        console.log(links.map((link) => link.href).join("\n"));
    "#;
    let cases = [
        ("../../examples/home", "https://github.com/windlass-rs/windlass/blob/main/examples/home"),
        (
            "../../ARCHITECTURE.html#code-map",
            "https://github.com/windlass-rs/windlass/blob/main/ARCHITECTURE.md#code-map",
        ),
        ("../concepts/watch.html#bookmarks", "../concepts/watch.html#bookmarks"),
        ("guestbook.html", "guestbook.html"),
        ("#steps", "#steps"),
        ("https://example.com/a", "https://example.com/a"),
    ];
    assert!(read(&root().join("docs/book.toml")).contains(r#"additional-js = ["links.js"]"#));
    let mut node = std::process::Command::new("node");
    node.arg("-e").arg(BROWSER).arg(root().join("docs/links.js")).args(cases.map(|(href, _)| href));
    let Ok(output) = node.output() else {
        println!("SKIPPED: node is missing, the links of the built book are not checked");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let changed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(changed.lines().collect::<Vec<_>>(), cases.map(|(_, expected)| expected));
}
