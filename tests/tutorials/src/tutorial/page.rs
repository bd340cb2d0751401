//! A page of the book as a script: what a reader types, and what is printed then.
//!
//! | a block that begins with | is |
//! |---|---|
//! | <code>```console</code> | commands after `$ `, each with its output |
//! | <code>```sh</code> | commands, one in a line, that succeed, or fail where a comment says `is refused`; their output is not compared |
//! | <code>```console terminal=NAME until=WORD</code> | a command that runs in a terminal of its own, until the next one there; its output says WORD when it works |
//! | <code>```rust file=PATH</code> | a whole file that the reader writes |
//! | <code>```toml append=PATH</code> | lines that the reader adds to the end of a file |
//!
//! `<!-- stop NAME -->` is Ctrl-C in that terminal, where the text says so. The lines between `<!-- setup` and `-->` are
//! commands that make what a page takes for granted; readers do not see them. `<!-- not run: REASON -->` before a block says why
//! it cannot be run here, `<!-- needs root -->` that it is run only where the reader is root, on Linux.
//!
//! Other blocks are only read.

use anyhow::{Context as _, Result, ensure};

/// What a reader does.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Command { command: String, output: Vec<String> },
    Line { command: String, is_refused: bool },
    Terminal { name: String, command: String, until: String },
    Write { path: String, text: String, append: bool },
    Stop { name: String },
    Setup { script: String },
    NotRun { reason: String },
}

/// All steps of a page, in order, for a reader that is root or is not.
pub(super) fn steps(page: &str, is_root: bool) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut lines = page.lines();
    let mut not_run = None;
    while let Some(line) = lines.next() {
        if let Some(reason) = line.trim_start().strip_prefix("<!-- not run: ") {
            not_run = Some(reason.trim_end_matches(" -->").to_owned());
        }
        if line.trim_start() == "<!-- needs root -->" && !is_root {
            not_run = Some("it needs root, on Linux".to_owned());
        }
        if let Some(name) = line.strip_prefix("<!-- stop ").and_then(|rest| rest.strip_suffix(" -->")) {
            steps.push(Step::Stop { name: name.to_owned() });
        }
        if line == "<!-- setup" {
            let script: Vec<&str> = lines.by_ref().take_while(|line| *line != "-->").collect();
            steps.push(Step::Setup { script: script.join("\n") });
        }
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        // A block of a list is indented.
        let indent = line.len() - line.trim_start().len();
        let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
        let block: Vec<&str> = block.map(|line| line.get(indent..).unwrap_or_default()).collect();
        let setting = |name: &str| {
            info.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        let write = setting("file").map(|path| (path, false)).or_else(|| setting("append").map(|path| (path, true)));
        if let Some((path, append)) = write {
            steps.push(Step::Write { path, text: block.join("\n") + "\n", append });
        } else if let Some(language @ ("console" | "sh")) = info.split_whitespace().next() {
            if let Some(reason) = not_run.take() {
                steps.push(Step::NotRun { reason });
                continue;
            }
            let commands = commands(&block, language)?;
            let Some(name) = setting("terminal") else {
                let is_refused = |command: &str| command.lines().next().is_some_and(|it| it.ends_with("is refused"));
                steps.extend(commands.into_iter().map(|(command, output)| match language {
                    "sh" => Step::Line { is_refused: is_refused(&command), command },
                    _ => Step::Command { command, output },
                }));
                continue;
            };
            let until = setting("until").context("a terminal has a word to wait for")?;
            let [(command, _)] = commands.try_into().ok().context("a terminal has one command")?;
            steps.push(Step::Terminal { name, command, until });
        }
    }
    Ok(steps)
}

/// The commands of a block, each with the lines that follow it. A command goes on after `\` and to the end of `<<EOF`. A
/// command of `console` follows a prompt; every line of `sh` is one.
fn commands(block: &[&str], language: &str) -> Result<Vec<(String, Vec<String>)>> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    let mut lines = block.iter();
    while let Some(line) = lines.next() {
        let typed =
            if language == "sh" { Some(*line).filter(|line| !line.is_empty()) } else { line.strip_prefix("$ ") };
        let Some(first) = typed else {
            if language != "sh" {
                let (_, output) = commands.last_mut().context("output without a command")?;
                output.push((*line).to_owned());
            }
            continue;
        };
        let mut command = first.to_owned();
        let mut goes_on = |command: &mut String| {
            let next = lines.next().with_context(|| format!("no end of {first:?}"))?;
            command.push('\n');
            command.push_str(next);
            anyhow::Ok(*next)
        };
        if first.contains("<<EOF") || first.contains("<<'EOF'") {
            while goes_on(&mut command)? != "EOF" {}
        } else {
            while command.ends_with('\\') {
                goes_on(&mut command)?;
            }
        }
        commands.push((command, Vec::new()));
    }
    Ok(commands)
}

/// Checks what a command has printed. Numbers, ages and ids differ from run to run, `...` stands for any lines, and what
/// cargo says while it compiles is left out, as are empty lines.
pub(super) fn check_output(expected: &[String], printed: &str) -> Result<()> {
    let is_full = |line: &String| !line.is_empty();
    let expected: Vec<String> = expected.iter().map(|line| plain(line)).filter(is_full).collect();
    let lines: Vec<String> = printed.lines().filter(|line| !is_progress(line)).map(plain).filter(is_full).collect();
    ensure!(matches(&expected, &lines), "the page says:\n{}\nbut this is printed:\n{printed}", expected.join("\n"));
    Ok(())
}

fn matches(expected: &[String], lines: &[String]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((any, rest)) if any == "..." => (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..])),
        Some((first, rest)) => {
            lines.first().is_some_and(|line| line_matches(first, line)) && matches(rest, &lines[1..])
        }
    }
}

/// Whether a line is what the page shows, where `...` stands for any letters.
fn line_matches(expected: &str, line: &str) -> bool {
    let Some((start, rest)) = expected.split_once("...") else { return expected == line };
    line.strip_prefix(start).is_some_and(|line| {
        line.char_indices().map(|(at, _)| at).chain([line.len()]).any(|at| line_matches(rest, &line[at..]))
    })
}

fn is_progress(line: &str) -> bool {
    const WORDS: [&str; 9] =
        ["Adding", "Blocking", "Compiling", "Downloaded", "Downloading", "Finished", "Locking", "Running", "Updating"];
    line.starts_with(' ') && WORDS.iter().any(|word| line.trim_start().starts_with(word))
}

/// A line without what differs from run to run.
fn plain(line: &str) -> String {
    let words: Vec<String> = line.split_whitespace().map(plain_word).collect();
    words.join(" ")
}

fn plain_word(word: &str) -> String {
    let is_age = word.ends_with(['d', 'h', 'm', 's'])
        && word.starts_with(|letter: char| letter.is_ascii_digit())
        && word.chars().all(|letter| letter.is_ascii_digit() || "dhms".contains(letter));
    if is_age {
        return "AGE".to_owned();
    }
    if is_pod(word.trim_matches('"')) {
        return "POD".to_owned();
    }
    let word = without_ids(word);
    let mut plain = String::new();
    for letter in word.chars() {
        match letter {
            '0'..='9' if plain.ends_with('#') => {}
            '0'..='9' => plain.push('#'),
            other => plain.push(other),
        }
    }
    plain
}

/// Whether this is the name of a Pod of a Deployment: with a hash and five letters, of those that Kubernetes uses.
fn is_pod(word: &str) -> bool {
    let is_random = |part: &str| part.chars().all(|letter| "bcdfghjklmnpqrstvwxz2456789".contains(letter));
    let mut parts = word.rsplit('-');
    let (Some(end), Some(hash), Some(_)) = (parts.next(), parts.next(), parts.next()) else { return false };
    end.len() == 5 && (8..=10).contains(&hash.len()) && is_random(end) && is_random(hash)
}

/// A word with `ID` in place of each uid.
fn without_ids(word: &str) -> String {
    const LENGTH: usize = 36;
    let is_id = |part: &str| {
        part.match_indices('-').map(|(at, _)| at).eq([8, 13, 18, 23])
            && part.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-')
    };
    let id = (0..word.len()).find_map(|at| word.get(at..at + LENGTH).filter(|part| is_id(part)).map(|_| at));
    match id {
        Some(at) => format!("{}ID{}", &word[..at], without_ids(&word[at + LENGTH..])),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_page_is_read_as_steps() {
        let page = "# A page\n\n```console\n$ one\nsaid\n$ two <<EOF\nx: $ 1\nEOF\n```\n\n```rust\nread_only();\n```\n\n\
                    ```rust file=src/a.rs\nfn a() {}\n```\n\n```toml append=Cargo.toml\na = 1\n```\n\n\
                    ```console terminal=operator until=started\n$ run\nsome log\n```\n\n<!-- stop operator -->\n\n\
                    <!-- setup\nmake it\n-->\n\n1. List:\n\n   ```sh\n   three # why\n\n   four <<'EOF'\n   x\n   EOF\n   \
                    five   # is refused\n   ```\n\n<!-- not run: no docker -->\n```sh\nsix\n```\n";
        let command = |command: &str, output: &str| Step::Command { command: command.into(), output: lines(output) };
        let write = |path: &str, text: &str, append| Step::Write { path: path.into(), text: text.into(), append };
        let line = |command: &str, is_refused| Step::Line { command: command.into(), is_refused };
        let expected = [
            command("one", "said"),
            command("two <<EOF\nx: $ 1\nEOF", ""),
            write("src/a.rs", "fn a() {}\n", false),
            write("Cargo.toml", "a = 1\n", true),
            Step::Terminal { name: "operator".into(), command: "run".into(), until: "started".into() },
            Step::Stop { name: "operator".into() },
            Step::Setup { script: "make it".into() },
            line("three # why", false),
            line("four <<'EOF'\nx\nEOF", false),
            line("five   # is refused", true),
            Step::NotRun { reason: "no docker".into() },
        ];
        assert_eq!(steps(page, false).expect("a page"), expected);
        assert!(steps("```console\noutput only\n```", false).is_err());

        let page = "<!-- needs root -->\n```sh\nseven\n```\n\n```sh\neight\n```\n";
        assert_eq!(steps(page, true).expect("a page"), [line("seven", false), line("eight", false)]);
        let skipped = Step::NotRun { reason: "it needs root, on Linux".into() };
        assert_eq!(steps(page, false).expect("a page"), [skipped, line("eight", false)]);
    }

    #[test]
    fn output_may_differ_in_what_differs_from_run_to_run() {
        let printed =
            "   Compiling a v0.1.0\nNAME   ID  AGE\nthor   cdd8fe1e-e2f1-4aa8-b80b-3b443daeac1e   1m2s\nport 4711\n";
        let page = "NAME ID AGE\nthor  b5eb4aa2-3baa-4738-9337-c12fe8a73ad3  0s\nport 38661";
        check_output(&lines(page), printed).expect("the same");
        let owner = |uid: &str, pod: &str| format!("[{{\"uid\":\"{uid}\"}}] {pod}");
        let ours = owner("40d523ab-2da6-4aac-9d5d-796f6a447104", "\"web-7957885594-dxf9n\"");
        let theirs = owner("cdd8fe1e-e2f1-4aa8-b80b-3b443daeac1e", "\"web-6b7b4d94c9-2m7xk\"");
        check_output(&lines(&ours), &theirs).expect("the same");
        check_output(&lines("NAME ID AGE\n..."), printed).expect("the rest is not compared");
        check_output(&lines("NAME ID ...\n...thor ...\n...ort 1"), printed).expect("parts of lines are not compared");
        check_output(&lines("...\nport 1"), printed).expect("the beginning is not compared");
        for other in ["", "NAME ID AGE", "...\nport four", "NAME ID\n..."] {
            check_output(&lines(other), printed).expect_err(other);
        }
    }
}
