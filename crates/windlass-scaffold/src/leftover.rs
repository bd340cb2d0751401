//! Lines of the user's own code that name what a command has taken away.
//!
//! A deleted kind goes with the code that was generated for it. Code that the user wrote or changed stays, and does not
//! compile any more if it uses the kind: these are its lines.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

use crate::project::Project;
use crate::render::render;

/// A line that names something that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The path of the file in the project.
    pub path: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// The line itself.
    pub text: String,
}

/// Looks for lines that name what `before` has and `after` does not.
pub fn find(root: &Path, before: &Project, after: &Project) -> Vec<Leftover> {
    let gone = Gone::new(before, after);
    if gone.kinds.is_empty() && gone.modules.is_empty() {
        return Vec::new();
    }
    let mut files = Vec::new();
    for directory in ["api/src", "src", "tests"] {
        collect(&root.join(directory), &mut files);
    }
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        // A file that is not Rust does not compile in any case, and the compiler says where.
        let Ok(tokens) = text.parse::<TokenStream>() else { continue };
        let mut words = Vec::new();
        flatten(tokens, &mut words);
        let path = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        // Modules beside each other are named without the path to them.
        let beside = ["api/src/", "src/controller", "src/webhook"].iter().any(|start| path.starts_with(start));
        for line in gone.lines(&words, beside) {
            let text = text.lines().nth(line - 1).unwrap_or_default().trim().to_owned();
            found.push(Leftover { path: path.clone(), line, text });
        }
    }
    found
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// A word of the source with its line; `::` is one word, and all brackets are round.
type Word = (String, usize);

fn flatten(tokens: TokenStream, words: &mut Vec<Word>) {
    for token in tokens {
        let line = token.span().start().line;
        match token {
            TokenTree::Group(group) => {
                words.push(("(".to_owned(), line));
                flatten(group.stream(), words);
                words.push((")".to_owned(), line));
            }
            TokenTree::Ident(ident) => words.push((ident.to_string(), line)),
            TokenTree::Punct(punct) => match words.last_mut() {
                Some((last, _)) if last == ":" && punct.as_char() == ':' => last.push(':'),
                _ => words.push((punct.as_char().to_string(), line)),
            },
            // Documentation is prose.
            TokenTree::Literal(_) => words.push((String::new(), line)),
        }
    }
}

/// The names that mean nothing any more.
struct Gone {
    /// Types of kinds.
    kinds: HashSet<String>,
    /// Modules of kinds and controllers.
    modules: HashSet<String>,
    /// Types of a version whose kind has other versions: `v1beta1`, `Order`.
    versions: HashSet<(String, String)>,
}

impl Gone {
    fn new(before: &Project, after: &Project) -> Self {
        let types = |project: &Project| -> HashSet<String> {
            let kinds = project.resources.iter().filter(|resource| resource.api.is_some());
            kinds.flat_map(|resource| ["", "Spec", "Status"].map(|part| format!("{}{part}", resource.kind))).collect()
        };
        let pairs = |project: &Project| -> HashSet<(String, String)> {
            let declared = project.resources.iter().filter(|resource| resource.api.is_some());
            declared.map(|resource| (resource.version.to_string(), resource.kind.to_string())).collect()
        };
        let modules = |project: &Project| -> HashSet<String> {
            let tree = render(project);
            let code = tree.paths().filter(|path| path.starts_with("src/") || path.starts_with("api/src/"));
            let stems = code.filter_map(|path| Path::new(path).file_stem()?.to_str());
            // Every API has modules with the names of versions.
            let versions: HashSet<&str> = project.resources.iter().map(|resource| resource.version.as_str()).collect();
            stems.filter(|stem| !versions.contains(stem)).map(str::to_owned).collect()
        };
        let less = |before: HashSet<String>, after: &HashSet<String>| before.difference(after).cloned().collect();
        Self {
            kinds: less(types(before), &types(after)),
            modules: less(modules(before), &modules(after)),
            versions: pairs(before).difference(&pairs(after)).cloned().collect(),
        }
    }

    /// The lines that name something, each once. A module is named by its path, or alone in a file `beside` it.
    fn lines(&self, words: &[Word], beside: bool) -> Vec<usize> {
        let word = |at: usize| words.get(at).map_or("", |(word, _)| word);
        let mut lines: Vec<usize> = Vec::new();
        for (at, (name, line)) in words.iter().enumerate() {
            let before = |by: usize| at.checked_sub(by).map_or("", word);
            let qualified = before(1) == "::" && before(2).starts_with(|c: char| c.is_ascii_alphabetic());
            let starts = beside && before(1) != "::" && word(at + 1) == "::";
            let is_module = before(1) == "mod" || qualified || starts;
            let of_version = word(at + 1) == "::" && self.versions.contains(&(name.clone(), word(at + 2).to_owned()));
            if self.kinds.contains(name) || (is_module && self.modules.contains(name)) || of_version {
                lines.push(*line);
            }
        }
        lines.dedup();
        lines
    }
}
