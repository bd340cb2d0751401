//! Merges Rust files by items and statements.
//!
//! What the generated file gained and lost is found by comparing its items, and, within functions of the same name,
//! their statements. Each addition goes into the user's file behind the neighbour that precedes it in the generated
//! file, if the user still has that, or else before the one that follows. Positions come from the parser; the text
//! is copied, so the user's formatting and comments stay.

use proc_macro2::{LineColumn, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned as _;

/// The changes contradict those of the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contradiction;

/// `None` if one of the files does not parse.
pub(super) fn merge(base: &str, target: &str, disk: &str) -> Option<Result<String, Contradiction>> {
    let renamed = renamed(&syn::parse_file(base).ok()?, &syn::parse_file(disk).ok()?);
    let (base, target) = (&rename(base, &renamed)?, &rename(target, &renamed)?);
    let (base, target, disk) = (Source::parse(base)?, Source::parse(target)?, Source::parse(disk)?);
    let mut edits = Vec::new();
    let done = sequence(&base.items(), &target.items(), &disk.items(), disk.end_of_items(), &mut edits);
    if done.is_none() {
        return Some(Err(Contradiction));
    }
    Some(finish(&disk, edits))
}

/// The same, if the user has left the items and statements alone that change.
pub(super) fn merge_untouched(base: &str, target: &str, disk: &str) -> Option<Result<String, Contradiction>> {
    let (base, target, disk) = (Source::parse(base)?, Source::parse(target)?, Source::parse(disk)?);
    if !untouched(&base.items(), &target.items(), &disk.items()) {
        return Some(Err(Contradiction));
    }
    let mut edits = Vec::new();
    let done = sequence(&base.items(), &target.items(), &disk.items(), disk.end_of_items(), &mut edits);
    Some(done.ok_or(Contradiction).and_then(|()| finish(&disk, edits)))
}

/// Whether all parts of `base` that are not in `target` are in `disk` as they were.
fn untouched(base: &[Part<'_>], target: &[Part<'_>], disk: &[Part<'_>]) -> bool {
    let gone = base.iter().filter(|part| !target.iter().any(|other| other.tokens == part.tokens));
    gone.into_iter().all(|part| {
        if disk.iter().any(|other| other.tokens == part.tokens) {
            return true;
        }
        let same = |other: &&Part<'_>| part.name.is_some() && other.name == part.name;
        let (Some(new), Some(users)) = (target.iter().find(same), disk.iter().find(same)) else { return false };
        match (&part.body, &new.body, &users.body) {
            (Some((old, _)), Some((new, _)), Some((users, _))) => untouched(old, new, users),
            _ => false,
        }
    })
}

fn finish(disk: &Source<'_>, edits: Vec<Edit>) -> Result<String, Contradiction> {
    let merged = apply(disk.text, edits);
    // What was put together has to be Rust.
    syn::parse_file(&merged).map(|_| merged).map_err(|_| Contradiction)
}

struct Source<'a> {
    text: &'a str,
    file: syn::File,
    lines: Vec<usize>,
}

/// One item or statement.
struct Part<'a> {
    /// Its tokens: equal parts mean the same.
    tokens: String,
    /// What it is, if parts of the same name may differ within: a function.
    name: Option<String>,
    /// Its text, with the comments directly above.
    text: &'a str,
    /// The space between the part in front of it and this one.
    lead: &'a str,
    start: usize,
    end: usize,
    /// The statements of a function, and where one may be added when there is none.
    body: Option<(Vec<Part<'a>>, usize)>,
    /// Where a function's name, parameters and result are.
    signature: std::ops::Range<usize>,
}

/// A change of the user's text: what to put in the place of a range.
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

impl<'a> Source<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let file = syn::parse_file(text).ok()?;
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        Some(Self { text, file, lines: std::iter::once(0).chain(starts).collect() })
    }

    fn offset(&self, at: LineColumn) -> usize {
        let line = self.lines[at.line - 1];
        let column = self.text[line..].char_indices().nth(at.column).map_or(self.text.len() - line, |(at, _)| at);
        line + column
    }

    fn items(&self) -> Vec<Part<'_>> {
        self.led(self.file.items.iter().map(|item| self.item(item)).collect())
    }

    fn led<'s>(&'s self, mut parts: Vec<Part<'s>>) -> Vec<Part<'s>> {
        for at in 1..parts.len() {
            parts[at].lead = &self.text[parts[at - 1].end..parts[at].start];
        }
        parts
    }

    fn end_of_items(&self) -> usize {
        self.text.len()
    }

    fn item(&self, item: &syn::Item) -> Part<'_> {
        let mut part = self.part(item, item.span());
        if let syn::Item::Fn(function) = item {
            part.name = Some(format!("fn {}", function.sig.ident));
            let statements = function.block.stmts.iter().map(|stmt| self.part(stmt, stmt.span())).collect();
            let statements = self.led(statements);
            let open = self.offset(function.block.brace_token.span.open().end());
            part.body = Some((statements, open));
            let span = function.sig.span();
            part.signature = self.offset(span.start())..self.offset(span.end());
        }
        part
    }

    fn part(&self, node: &impl ToTokens, span: Span) -> Part<'_> {
        let start = self.with_comments(self.offset(span.start()));
        let end = self.offset(span.end());
        let tokens = node.to_token_stream().to_string();
        Part {
            tokens,
            name: None,
            text: &self.text[start..end],
            lead: "",
            start,
            end,
            body: None,
            signature: start..start,
        }
    }

    /// The start of the plain comments directly above, which belong to what follows them.
    fn with_comments(&self, start: usize) -> usize {
        let line = self.lines.partition_point(|at| *at <= start) - 1;
        if !self.text[self.lines[line]..start].trim().is_empty() {
            return start;
        }
        let comment = |line: &usize| {
            let text = self.text[self.lines[*line]..].lines().next().unwrap_or_default().trim_start();
            text.starts_with("//") && !text.starts_with("//!") && !text.starts_with("///")
        };
        let first = (0..line).rev().take_while(comment).last();
        let Some(first) = first else { return start };
        let indent = self.text[self.lines[first]..].len() - self.text[self.lines[first]..].trim_start().len();
        self.lines[first] + indent
    }
}

/// Finds the edits that take `disk` from `base` to `target`.
fn sequence(
    base: &[Part<'_>],
    target: &[Part<'_>],
    disk: &[Part<'_>],
    end: usize,
    edits: &mut Vec<Edit>,
) -> Option<()> {
    let in_parts = |parts: &[Part<'_>], part: &Part<'_>| parts.iter().position(|other| other.tokens == part.tokens);
    let named = |parts: &[Part<'_>], part: &Part<'_>| {
        part.name.as_ref().and_then(|name| parts.iter().position(|other| other.name.as_ref() == Some(name)))
    };
    for part in base {
        if in_parts(target, part).is_some() {
            continue;
        }
        match named(target, part) {
            // The same function with another body.
            Some(changed) => {
                let (old, _) = part.body.as_ref()?;
                let (new, _) = target[changed].body.as_ref()?;
                if part.signature() != target[changed].signature() {
                    edits.extend(signature_edit(part, &target[changed], disk).ok()?);
                }
                // New statements use the parameters by the names that they have in the generated function.
                let names = parameters(&part.tokens);
                let users = named(disk, part).map(|at| &disk[at]);
                let fits = |users: &&Part<'_>| {
                    let own = parameters(&users.tokens);
                    names.iter().all(|(name, _)| own.iter().any(|(other, _)| other == name))
                };
                match users.filter(fits) {
                    Some(users) => {
                        let (current, open) = users.body.as_ref()?;
                        sequence(old, new, current, *open, edits)?;
                    }
                    // The user may have made the change in another way.
                    None if is_made(old, new, disk, &names) => {}
                    None => return None,
                }
            }
            None => {
                // Gone already, or found and taken out; one that the user has changed is a contradiction.
                match in_parts(disk, part) {
                    Some(at) => edits.push(removal(disk, at)),
                    None if named(disk, part).is_some() => return None,
                    None => {}
                }
            }
        }
    }
    for (at, part) in target.iter().enumerate() {
        if in_parts(base, part).is_some() || named(base, part).is_some() || in_parts(disk, part).is_some() {
            continue;
        }
        if named(disk, part).is_some() {
            return None;
        }
        edits.push(insertion(target, at, disk, end));
    }
    Some(())
}

/// The names of a function's parameters, without `mut`, and their types.
type Parameters = Vec<(String, String)>;

fn parameters(function: &str) -> Parameters {
    syn::parse_str::<syn::ItemFn>(function).map(|function| parameters_of(&function)).unwrap_or_default()
}

fn parameters_of(function: &syn::ItemFn) -> Parameters {
    let both = function.sig.inputs.iter().map(|input| match input {
        syn::FnArg::Typed(input) => {
            let name = match &*input.pat {
                syn::Pat::Ident(name) => name.ident.to_string(),
                other => other.to_token_stream().to_string(),
            };
            (name, input.ty.to_token_stream().to_string())
        }
        syn::FnArg::Receiver(_) => ("self".to_owned(), String::new()),
    });
    both.collect()
}

/// Whether the statements that are to come are in the user's file, and those that are to go are not, by whatever names
/// the parameters have there.
fn is_made(old: &[Part<'_>], new: &[Part<'_>], disk: &[Part<'_>], names: &Parameters) -> bool {
    let has = |part: &Part<'_>| {
        let is_name = |word: &&str| names.iter().any(|(name, _)| name == *word);
        let words: Vec<&str> = part.tokens.split(' ').collect();
        let rest = words.split(is_name).max_by_key(|words| words.len()).unwrap_or_default().join(" ");
        disk.iter().any(|item| item.tokens.contains(&rest))
    };
    let only_in = |one: &[Part<'_>], other: &[Part<'_>], there: bool| {
        let changed = one.iter().filter(|part| !other.iter().any(|same| same.tokens == part.tokens));
        // Statements that name no module, such as `let _ = manager`, do no harm.
        changed.filter(|part| part.tokens.contains("::")).all(|part| has(part) == there)
    };
    only_in(new, old, true) && only_in(old, new, false)
}

/// A parameter that has another name in the user's function: the function, and both names.
type Renamed = (String, String, String);

/// The parameters that the user has renamed: those without their name in the user's function, if one parameter there has
/// their type.
fn renamed(base: &syn::File, disk: &syn::File) -> Vec<Renamed> {
    let functions = |file: &syn::File| -> Vec<(String, Parameters)> {
        let functions = file.items.iter().filter_map(|item| match item {
            syn::Item::Fn(function) => Some((function.sig.ident.to_string(), parameters_of(function))),
            _ => None,
        });
        functions.collect()
    };
    let users = functions(disk);
    let mut found = Vec::new();
    for (function, parameters) in functions(base) {
        let Some((_, own)) = users.iter().find(|(name, _)| *name == function) else { continue };
        for (name, kind) in parameters.iter().filter(|(name, _)| !own.iter().any(|(other, _)| other == name)) {
            let same: Vec<&String> = own.iter().filter(|(_, other)| other == kind).map(|(name, _)| name).collect();
            if let [new] = same[..]
                && !parameters.iter().any(|(other, _)| other == new)
            {
                // Generated code puts `_` in front of one that it does not use.
                let used = name.trim_start_matches('_');
                for name in [used.to_owned(), format!("_{used}")] {
                    found.push((function.clone(), name, new.clone()));
                }
            }
        }
    }
    found
}

/// The file with other names for parameters, in the functions that have them.
fn rename(text: &str, renamed: &[Renamed]) -> Option<String> {
    if renamed.is_empty() {
        return Some(text.to_owned());
    }
    let source = Source::parse(text)?;
    let mut edits = Vec::new();
    for item in &source.file.items {
        let syn::Item::Fn(function) = item else { continue };
        let names: Vec<&Renamed> = renamed.iter().filter(|(name, ..)| function.sig.ident == name).collect();
        if !names.is_empty() {
            source.rename(function.to_token_stream(), &names, &mut edits);
        }
    }
    Some(apply(text, edits))
}

impl Source<'_> {
    /// Names that are a part of a path, or fields and methods, are other names.
    fn rename(&self, tokens: TokenStream, names: &[&Renamed], edits: &mut Vec<Edit>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: Option<usize>, what: char| matches!(at.and_then(|at| tokens.get(at)), Some(TokenTree::Punct(punct)) if punct.as_char() == what);
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.rename(group.stream(), names, edits),
                TokenTree::Ident(ident) => {
                    let before = at.checked_sub(1);
                    let in_path = is(Some(at + 1), ':') && is(Some(at + 2), ':');
                    if in_path || is(before, '.') || (is(before, ':') && is(at.checked_sub(2), ':')) {
                        continue;
                    }
                    let Some((.., new)) = names.iter().find(|(_, old, _)| ident == old) else { continue };
                    let (start, end) = (self.offset(ident.span().start()), self.offset(ident.span().end()));
                    edits.push(Edit { start, end, text: new.clone() });
                }
                _ => {}
            }
        }
    }
}

impl<'a> Part<'a> {
    /// The name, parameters and result of a function.
    fn signature(&self) -> &'a str {
        &self.text[self.signature.start - self.start..self.signature.end - self.start]
    }

    /// The same, whether its parameters are used or not: `_env` and `env` are one.
    fn signature_of_all(&self) -> String {
        self.signature().replace("(_", "(").replace(" _", " ")
    }
}

/// How a function gets the parameters that it has in the target: none but their being used may change, unless the user
/// has left the function alone.
fn signature_edit(base: &Part<'_>, target: &Part<'_>, disk: &[Part<'_>]) -> Result<Option<Edit>, Contradiction> {
    let Some(users) = disk.iter().find(|part| part.name == base.name) else { return Ok(None) };
    let is_same = users.tokens == base.tokens;
    if !is_same && base.signature_of_all() != target.signature_of_all() {
        return Err(Contradiction);
    }
    // What the generated statements no longer use, those of the user may.
    if users.signature() != base.signature() || (!is_same && target.signature().len() > base.signature().len()) {
        return Ok(None);
    }
    Ok(Some(Edit { start: users.signature.start, end: users.signature.end, text: target.signature().to_owned() }))
}

fn removal(parts: &[Part<'_>], at: usize) -> Edit {
    // With the space in front of it, so that no blank lines stay behind; a first part takes the space after it.
    let (start, end) = match at.checked_sub(1) {
        Some(before) => (parts[before].end, parts[at].end),
        None => (parts[at].start, parts.get(at + 1).map_or(parts[at].end, |next| next.start)),
    };
    Edit { start, end, text: String::new() }
}

fn insertion(target: &[Part<'_>], at: usize, disk: &[Part<'_>], end: usize) -> Edit {
    let in_disk = |part: &Part<'_>| {
        disk.iter().position(|other| other.tokens == part.tokens || (part.name.is_some() && other.name == part.name))
    };
    let part = &target[at];
    // Behind the closest neighbour in front of it that the user has, with the space that the scaffold leaves there.
    if let Some(place) = target[..at].iter().rev().find_map(in_disk) {
        let place = disk[place].end;
        return Edit { start: place, end: place, text: format!("{}{}", part.lead, part.text) };
    }
    if let Some((next, place)) = target[at + 1..].iter().find_map(|next| Some((next, in_disk(next)?))) {
        let place = disk[place].start;
        return Edit { start: place, end: place, text: format!("{}{}", part.text, next.lead) };
    }
    match disk.last() {
        Some(last) => Edit { start: last.end, end: last.end, text: format!("\n\n{}", part.text) },
        None => Edit { start: end, end, text: format!("\n{}\n", part.text) },
    }
}

fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.start, edit.end));
    let mut merged = String::with_capacity(text.len() + 200);
    let mut at = 0;
    for edit in edits {
        merged.push_str(&text[at..edit.start.max(at)]);
        merged.push_str(&edit.text);
        at = edit.end.max(at);
    }
    merged.push_str(&text[at..]);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "//! Controllers.\n\npub mod pet;\n\nuse windlass::Manager;\n\npub fn add_to(manager: &mut Manager) {\n    \
                        manager.add(pet::controller());\n}\n";
    const TARGET: &str = "//! Controllers.\n\npub mod pet;\npub mod toy;\n\nuse windlass::Manager;\n\npub fn add_to(manager: \
                          &mut Manager) {\n    manager.add(pet::controller());\n    manager.add(toy::controller());\n}\n";

    #[test]
    fn additions_go_beside_their_neighbours() {
        let disk = "//! Mine.\n\nmod helpers;\npub mod pet; // first\n\nuse windlass::Manager;\nuse std::fmt;\n\n/// Adds.\npub fn \
                    add_to(manager: &mut Manager) {\n    helpers::start();\n    manager\n        .add(pet::controller());\n    \
                    helpers::end();\n}\n";
        let expected = "//! Mine.\n\nmod helpers;\npub mod pet;\npub mod toy; // first\n\nuse windlass::Manager;\nuse std::fmt;\n\n/// \
                        Adds.\npub fn add_to(manager: &mut Manager) {\n    helpers::start();\n    manager\n        \
                        .add(pet::controller());\n    manager.add(toy::controller());\n    helpers::end();\n}\n";
        assert_eq!(merge(BASE, TARGET, disk).unwrap().unwrap(), expected);
        // And back.
        assert_eq!(merge(TARGET, BASE, expected).unwrap().unwrap(), disk);
    }

    #[test]
    fn removals_of_what_the_user_changed_contradict() {
        let disk = TARGET.replace("toy::controller()", "toy::controller(1)");
        // The statement is the user's now: it stays, and the module that it needs goes. The compiler tells.
        let merged = merge(TARGET, BASE, &disk).unwrap().unwrap();
        assert!(merged.contains("toy::controller(1)") && !merged.contains("pub mod toy;"));
    }

    #[test]
    fn the_first_and_only_parts_can_come_and_go() {
        let empty = "//! Controllers.\n";
        let one = "//! Controllers.\n\npub mod pet;\n";
        assert_eq!(merge(empty, one, "//! Mine.\n").unwrap().unwrap(), "//! Mine.\n\npub mod pet;\n");
        let user = "//! Mine.\n\nfn mine() {}\n";
        let merged = merge(empty, one, user).unwrap().unwrap();
        assert_eq!(merged, "//! Mine.\n\nfn mine() {}\n\npub mod pet;\n");
        assert_eq!(merge(one, empty, &merged).unwrap().unwrap(), user);
    }

    #[test]
    fn a_renamed_parameter_is_used_by_its_new_name() {
        let disk = BASE.replace("manager: &mut", "m: &mut").replace("manager.add", "m.add");
        let merged = merge(BASE, TARGET, &disk).unwrap().unwrap();
        assert!(merged.contains("    m.add(pet::controller());\n    m.add(toy::controller());\n"), "{merged}");
        assert_eq!(merge(TARGET, BASE, &merged).unwrap().unwrap(), disk);
        // A module of that name is another one.
        let target = TARGET.replace("toy", "manager");
        let merged = merge(BASE, &target, &disk).unwrap().unwrap();
        assert!(merged.contains("m.add(manager::controller());"), "{merged}");
    }

    #[test]
    fn more_parameters_do_no_harm() {
        let disk = BASE.replace("manager: &mut Manager", "limit: usize, manager: &mut Manager");
        let merged = merge(BASE, TARGET, &disk).unwrap().unwrap();
        assert!(merged.contains("    manager.add(toy::controller());\n"), "{merged}");
        assert_eq!(merge(TARGET, BASE, &merged).unwrap().unwrap(), disk);
    }

    #[test]
    fn other_parameters_contradict_until_the_user_makes_the_change() {
        let disk =
            BASE.replace("manager: &mut Manager", "operator: &mut Operator").replace("manager.add", "operator.add");
        assert_eq!(merge(BASE, TARGET, &disk), Some(Err(Contradiction)));
        let by_hand = disk.replace("pub mod pet;\n", "pub mod pet;\npub mod toy;\n").replace(
            "operator.add(pet::controller());\n",
            "operator.add(pet::controller());\n    operator.add(toy::controller());\n",
        );
        assert_eq!(merge(BASE, TARGET, &by_hand).unwrap().unwrap(), by_hand);
        assert_eq!(merge(TARGET, BASE, &by_hand), Some(Err(Contradiction)));
        // The function has another name.
        let disk = by_hand.replace("fn add_to", "fn register");
        assert_eq!(merge(BASE, TARGET, &disk).unwrap().unwrap(), disk);
    }

    const UNUSED: &str = "mod pet;\n\nuse a::Env;\n\nfn operator(_env: &Env, builder: Builder) -> Manager {\n    \
                          crate::operator(builder)\n}\n";
    const USED: &str = "mod pet;\n\nuse a::Env;\n\nfn operator(env: &Env, builder: Builder) -> Manager {\n    let builder = \
                        builder.webhooks(env.webhooks());\n    crate::operator(builder)\n}\n";

    #[test]
    fn a_parameter_that_is_used_now_loses_its_underscore() {
        let mine = |text: &str| text.replace("mod pet;", "mod mine;\nmod pet;");
        assert_eq!(merge(UNUSED, USED, &mine(UNUSED)).unwrap().unwrap(), mine(USED));
        assert_eq!(merge(USED, UNUSED, &mine(USED)).unwrap().unwrap(), mine(UNUSED));
        // In a function that has changes, too.
        let mine = |text: &str| text.replace("-> Manager {\n", "-> Manager {\n    mine();\n");
        assert_eq!(merge(UNUSED, USED, &mine(UNUSED)).unwrap().unwrap(), mine(USED));
    }

    #[test]
    fn a_parameter_that_the_user_uses_stays() {
        for name in ["env", "e"] {
            let before = UNUSED.replace("_env: &Env", &format!("{name}: &Env"));
            let before = before.replace("    crate::", &format!("    {name}.mine();\n    crate::"));
            let merged = merge(UNUSED, USED, &before).unwrap().unwrap();
            assert!(merged.contains(&format!("builder.webhooks({name}.webhooks())")), "{merged}");
            assert!(merged.contains(&format!("fn operator({name}: &Env, ")), "{merged}");
            assert_eq!(merge(USED, UNUSED, &merged).unwrap().unwrap(), before);
        }
    }

    #[test]
    fn what_does_not_parse_is_not_merged() {
        assert_eq!(merge(BASE, TARGET, "fn broken( {"), None);
    }
}
