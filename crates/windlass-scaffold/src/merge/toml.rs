//! Merges TOML files by tables and keys, because lines that stand beside each other have nothing to do with each other
//! there: a dependency that the user has added is no reason not to raise the version of the next one.
//!
//! A key that both have changed is merged by its value: lists keep the elements that either side has added, and of two
//! versions the higher one stays. The user's order, comments and formatting stay, except in values that are merged.

use std::fmt::Write as _;

/// `None` if the changes contradict each other, or if a file has TOML that is not understood here.
pub(super) fn merge(base: &str, target: &str, disk: &str) -> Option<String> {
    let (base, target, mut disk) = (File::parse(base)?, File::parse(target)?, File::parse(disk)?);
    for table in &base.tables {
        if target.table(&table.header).is_none()
            && let Some(at) = disk.tables.iter().position(|other| other.header == table.header)
        {
            let kept = |entry: &Entry| table.entry(&entry.key).is_none_or(|known| known.text != entry.text);
            disk.tables[at].entries.retain(kept);
            if disk.tables[at].entries.is_empty() {
                disk.tables.remove(at);
            }
        }
    }
    let none = Table::default();
    for (at, table) in target.tables.iter().enumerate() {
        let before = base.table(&table.header);
        if let Some(users) = disk.tables.iter_mut().find(|other| other.header == table.header) {
            merge_table(before.unwrap_or(&none), table, users)?;
        } else if before.is_none() {
            let behind = target.tables[..at].iter().rev().find_map(|known| disk.position(&known.header));
            disk.tables.insert(behind.map_or(disk.tables.len(), |place| place + 1), table.clone());
        }
        // A table that the user has removed stays away.
    }
    Some(disk.to_text())
}

fn merge_table(base: &Table, target: &Table, disk: &mut Table) -> Option<()> {
    for known in &base.entries {
        if target.entry(&known.key).is_none() {
            disk.entries.retain(|entry| entry.key != known.key || entry.text != known.text);
        }
    }
    for (at, wanted) in target.entries.iter().enumerate() {
        let before = base.entry(&wanted.key);
        if before.is_some_and(|before| before.text == wanted.text) {
            continue;
        }
        if let Some(users) = disk.entries.iter_mut().find(|entry| entry.key == wanted.key) {
            if before.is_some_and(|before| before.text == users.text) {
                users.text.clone_from(&wanted.text);
            } else if users.text != wanted.text {
                let value = |entry: &Entry| Value::parse(entry.text.split_once('=')?.1);
                let before = before.map_or(Some(None), |before| value(before).map(Some))?;
                let merged = Value::merge(before.as_ref(), &value(wanted)?, &value(users)?)?;
                users.text = format!("{} = {}", users.key, merged.to_text());
            }
        } else if before.is_none() {
            let behind = target.entries[..at].iter().rev().find_map(|known| disk.position(&known.key));
            disk.entries.insert(behind.map_or(disk.entries.len(), |place| place + 1), wanted.clone());
        }
    }
    Some(())
}

#[derive(Debug)]
struct File {
    tables: Vec<Table>,
    /// What follows the last entry.
    tail: String,
}

/// The entries below one header; those of the file's beginning have an empty one.
#[derive(Debug, Clone, Default)]
struct Table {
    /// Comments and blank lines in front of it.
    lead: String,
    header: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    lead: String,
    key: String,
    /// The entry as it is written, without the end of its last line.
    text: String,
}

impl File {
    fn parse(text: &str) -> Option<Self> {
        let mut tables = vec![Table::default()];
        let mut lead = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                lead += line;
                lead.push('\n');
            } else if trimmed.starts_with('[') {
                tables.push(Table { lead: std::mem::take(&mut lead), header: trimmed.to_owned(), entries: Vec::new() });
            } else {
                let mut text = line.trim_end().to_owned();
                while open_brackets(&text)? > 0 {
                    text.push('\n');
                    text += lines.next()?.trim_end();
                }
                let key = text.split_once('=')?.0.trim().to_owned();
                let entry = Entry { lead: std::mem::take(&mut lead), key, text };
                tables.last_mut()?.entries.push(entry);
            }
        }
        if tables[0].entries.is_empty() && tables.len() > 1 {
            tables.remove(0);
        }
        Some(Self { tables, tail: lead })
    }

    fn table(&self, header: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.header == header)
    }

    fn position(&self, header: &str) -> Option<usize> {
        self.tables.iter().position(|table| table.header == header)
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            text += &table.lead;
            if !table.header.is_empty() {
                let _ = writeln!(text, "{}", table.header);
            }
            for entry in &table.entries {
                let _ = writeln!(text, "{}{}", entry.lead, entry.text);
            }
        }
        text + &self.tail
    }
}

impl Table {
    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn position(&self, key: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key == key)
    }
}

/// How many brackets are open at the end; `None` for strings that go over several lines.
fn open_brackets(text: &str) -> Option<usize> {
    if text.contains("\"\"\"") || text.contains("'''") {
        return None;
    }
    let (mut open, mut quote, mut escaped, mut comment) = (0_usize, None, false, false);
    for c in text.chars() {
        match quote {
            _ if comment => comment = c != '\n',
            Some('"') if escaped => escaped = false,
            Some('"') if c == '\\' => escaped = true,
            Some(end) if c == end => quote = None,
            Some(_) => {}
            None => match c {
                '"' | '\'' => quote = Some(c),
                '#' => comment = true,
                '[' | '{' => open += 1,
                ']' | '}' => open = open.checked_sub(1)?,
                _ => {}
            },
        }
    }
    Some(open)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    /// A string, a number or a boolean, as it is written.
    Plain(String),
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

impl Value {
    fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        let value = Self::read(&mut rest)?;
        let rest = rest.trim();
        // A comment behind the value would be lost.
        rest.is_empty().then_some(value)
    }

    fn read(rest: &mut &str) -> Option<Self> {
        *rest = rest.trim_start();
        if let Some(inner) = rest.strip_prefix('[') {
            *rest = inner;
            let mut values = Vec::new();
            while !close(rest, ']')? {
                values.push(Self::read(rest)?);
            }
            return Some(Self::List(values));
        }
        if let Some(inner) = rest.strip_prefix('{') {
            *rest = inner;
            let mut entries = Vec::new();
            while !close(rest, '}')? {
                let (key, value) = rest.split_once('=')?;
                *rest = value;
                entries.push((key.trim().to_owned(), Self::read(rest)?));
            }
            return Some(Self::Table(entries));
        }
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let end = match quote {
            Some(quote) => rest[1..].find(quote)? + 2,
            None => rest.find([',', ']', '}', '\n', '#']).unwrap_or(rest.len()),
        };
        let (value, after) = rest.split_at(end);
        *rest = after;
        let value = value.trim();
        // Strings with escapes are left to the user.
        (!value.is_empty() && !value.contains('\\')).then(|| Self::Plain(value.to_owned()))
    }

    /// `None` if both sides changed the same thing in different ways.
    fn merge(base: Option<&Self>, target: &Self, disk: &Self) -> Option<Self> {
        if base == Some(disk) || target == disk {
            return Some(target.clone());
        }
        if base == Some(target) {
            return Some(disk.clone());
        }
        match (target, disk) {
            (Self::List(target), Self::List(disk)) => {
                let base = if let Some(Self::List(base)) = base { base.as_slice() } else { &[] };
                let kept = disk.iter().filter(|value| !base.contains(value) || target.contains(value));
                let mut merged: Vec<Self> = kept.cloned().collect();
                let new: Vec<Self> =
                    target.iter().filter(|value| !base.contains(value) && !merged.contains(value)).cloned().collect();
                merged.extend(new);
                Some(Self::List(merged))
            }
            (Self::Plain(new), Self::Plain(users)) => {
                let (new_version, users_version) = (version(new)?, version(users)?);
                Some(if users_version > new_version { disk.clone() } else { target.clone() })
            }
            (Self::List(_), _) | (_, Self::List(_)) => None,
            (target, disk) => {
                let base = base.map(Self::entries).unwrap_or_default();
                let (target, disk) = (target.entries(), disk.entries());
                let of = |entries: &[(String, Self)], key: &str| {
                    entries.iter().find(|(other, _)| other == key).map(|(_, value)| value.clone())
                };
                let mut merged = Vec::new();
                for (key, users) in &disk {
                    match (of(&base, key), of(&target, key)) {
                        (Some(base), None) if base == *users => {}
                        (_, None) => merged.push((key.clone(), users.clone())),
                        (base, Some(new)) => merged.push((key.clone(), Self::merge(base.as_ref(), &new, users)?)),
                    }
                }
                for (key, new) in &target {
                    if of(&disk, key).is_none() && of(&base, key).is_none() {
                        merged.push((key.clone(), new.clone()));
                    }
                }
                Some(Self::Table(merged))
            }
        }
    }

    /// A dependency's version alone is short for a table with it.
    fn entries(&self) -> Vec<(String, Self)> {
        match self {
            Self::Table(entries) => entries.clone(),
            other => vec![("version".to_owned(), other.clone())],
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::Plain(text) => text.clone(),
            Self::List(values) => {
                format!("[{}]", values.iter().map(Self::to_text).collect::<Vec<_>>().join(", "))
            }
            Self::Table(entries) => {
                let entries = entries.iter().map(|(key, value)| format!("{key} = {}", value.to_text()));
                format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Whether the list or table ends here; if not, what separates its values is skipped.
fn close(rest: &mut &str, end: char) -> Option<bool> {
    loop {
        *rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix(',') {
            *rest = after;
        } else if rest.starts_with('#') {
            return None; // would be lost
        } else if let Some(after) = rest.strip_prefix(end) {
            *rest = after;
            return Some(true);
        } else {
            return if rest.is_empty() { None } else { Some(false) };
        }
    }
}

/// The numbers of a version requirement, if the text is one.
fn version(text: &str) -> Option<Vec<u64>> {
    let text = text.trim_matches(['"', '\'']).trim_start_matches(['^', '~', '=']).trim();
    let numbers: Option<Vec<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
    numbers.filter(|numbers| !numbers.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "[workspace]\nmembers = [\"api\"]\n\n[dependencies]\nclap = { version = \"4\", features = [\"derive\"] }\n\
                        kube = \"5\"\n# Async.\ntokio = \"1\"\n\n[profile.dev]\ndebug = 1\n";

    fn check(changes: &[(&str, &str)], edits: &[(&str, &str)], expected: &[(&str, &str)]) {
        let apply = |pairs: &[(&str, &str)]| {
            pairs.iter().fold(BASE.to_owned(), |text, (from, to)| {
                assert!(text.contains(from), "{from:?}");
                text.replacen(from, to, 1)
            })
        };
        let merged = merge(BASE, &apply(changes), &apply(edits));
        assert_eq!(merged.as_deref(), Some(apply(expected).as_str()));
    }

    #[test]
    fn a_file_is_read_and_written_unchanged() {
        assert_eq!(File::parse(BASE).unwrap().to_text(), BASE);
    }

    #[test]
    fn neighbours_do_not_contradict() {
        check(
            &[("kube = \"5\"", "kube = \"6\"")],
            &[("# Async.", "serde = \"1\"\n# Async.")],
            &[("kube = \"5\"\n", "kube = \"6\"\nserde = \"1\"\n")],
        );
    }

    #[test]
    fn versions_and_features_are_merged_as_data() {
        check(
            &[
                ("\"4\", features = [\"derive\"]", "\"4.5\", features = [\"derive\", \"env\"]"),
                ("kube = \"5\"", "kube = \"6\""),
            ],
            &[
                ("features = [\"derive\"]", "features = [\"derive\", \"wrap_help\"]"),
                ("kube = \"5\"", "kube = \"5.2\""),
            ],
            &[
                ("\"4\", features = [\"derive\"]", "\"4.5\", features = [\"derive\", \"wrap_help\", \"env\"]"),
                ("kube = \"5\"", "kube = \"6\""),
            ],
        );
        check(
            &[("tokio = \"1\"", "tokio = \"1.40\"")],
            &[("tokio = \"1\"", "tokio = { version = \"1.50\", features = [\"full\"] }")],
            &[("tokio = \"1\"", "tokio = { version = \"1.50\", features = [\"full\"] }")],
        );
    }

    #[test]
    fn tables_and_keys_come_and_go() {
        check(
            &[("[profile.dev]\ndebug = 1\n", "[lints]\nworkspace = true\n"), ("kube = \"5\"\n", "")],
            &[("members = [\"api\"]", "members = [\"api\", \"tools\"]")],
            &[
                ("members = [\"api\"]", "members = [\"api\", \"tools\"]"),
                ("[profile.dev]\ndebug = 1\n", "[lints]\nworkspace = true\n"),
                ("kube = \"5\"\n", ""),
            ],
        );
    }

    #[test]
    fn what_the_user_removed_stays_away() {
        check(&[("kube = \"5\"", "kube = \"6\"")], &[("kube = \"5\"\n", "")], &[("kube = \"5\"\n", "")]);
    }

    #[test]
    fn different_settings_contradict() {
        let (target, disk) = (BASE.replace("debug = 1", "debug = false"), BASE.replace("debug = 1", "debug = true"));
        assert_eq!(merge(BASE, &target, &disk), None);
    }
}
