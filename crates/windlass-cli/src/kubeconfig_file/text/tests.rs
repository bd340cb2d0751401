#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const NAME: &str = "windlass-one";

fn ours(server: &str) -> Value {
    json!({
        "clusters": [{"name": NAME, "cluster": {"server": server, "certificate-authority-data": "TFM="}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "users": [{"name": NAME, "user": {"client-certificate-data": "TFM=", "client-key-data": "TFM="}}],
        "current-context": NAME,
    })
}

/// Adds a cluster and takes it out again: the text is as before.
#[track_caller]
fn check(before: &str, expected: &str) {
    let mut text = Text::new(before);
    let replaced = text.merge(&ours("https://a")).unwrap();
    let added = text.written();
    if !expected.is_empty() {
        assert_eq!(added, expected);
    }
    let mut again = text.clone();
    let nothing = again.merge(&ours("https://a")).unwrap();
    assert_eq!((again.written(), nothing.replaced), (added, Replaced::new()), "another time changes nothing");
    text.forget(NAME, &replaced).unwrap();
    assert_eq!(text.written(), before);
}

#[track_caller]
fn refused(text: &str, because: &str) {
    let mut edited = Text::new(text);
    let error = edited.merge(&ours("https://a")).unwrap_err();
    assert!(format!("{error:#}").contains(because), "{error:#}");
}

#[test]
fn entries_go_to_the_end_of_lists() {
    check(
        "\
# Mine.
apiVersion: v1
kind: Config
preferences: {colors: true} # as they were
clusters: # of the office
- name: 'prod'   # keep
  cluster: {server: 'https://prod', timeout: 1e3}
  # about prod
# contexts
contexts:
    - context:
        user: '0123'
        cluster: \"prod\"
      name: prod
current-context: 'prod' # mine
users:
- name: \"0123\"
  user:
    token: |
      abc

# vim: ft=yaml
",
        "\
# Mine.
apiVersion: v1
kind: Config
preferences: {colors: true} # as they were
clusters: # of the office
- name: 'prod'   # keep
  cluster: {server: 'https://prod', timeout: 1e3}
  # about prod
- cluster:
    certificate-authority-data: TFM=
    server: https://a
  name: windlass-one
# contexts
contexts:
    - context:
        user: '0123'
        cluster: \"prod\"
      name: prod
    - context:
        cluster: windlass-one
        user: windlass-one
      name: windlass-one
current-context: windlass-one # mine
users:
- name: \"0123\"
  user:
    token: |
      abc

- name: windlass-one
  user:
    client-certificate-data: TFM=
    client-key-data: TFM=
# vim: ft=yaml
",
    );
}

#[test]
fn json_stays_json() {
    let text = r#"{
  "apiVersion": "v1", "kind": "Config",
  "clusters": [
    {"name": "prod", "cluster": {"server": "https://prod"}}
  ],
  "contexts": [ ],
  "users": null
}
"#;
    check(text, "");
    let mut edited = Text::new(text);
    edited.merge(&ours("https://a")).unwrap();
    serde_json::from_str::<Value>(&edited.written()).unwrap();
    for text in ["{}", "{ }\n", "{\"clusters\": []}", "{clusters: [], current-context: \"\",}"] {
        check(text, "");
    }
}

#[test]
fn texts_are_the_same_after_a_cluster() {
    for text in [
        "",
        "\n",
        "# nothing yet",
        "# nothing yet\n",
        "---\n",
        "apiVersion: v1",
        "apiVersion: v1\nkind: Config\n",
        "  apiVersion: v1\n  kind: Config",
        "clusters: null\ncontexts: ~\nusers:\ncurrent-context: \"\"\n",
        "clusters: [] # none\ncontexts: [\n  # none\n]\nusers: !!seq []\ncurrent-context:",
        "clusters: [{name: a}, {name: b},]\ncontexts: [{name: a}, # one\n  {name: b} # two\n  ]\nusers: [\n  {name: a}]",
        "clusters:\r\n- name: a\r\n  cluster: {}\r\ncurrent-context:   'a'\r\ncontexts:\r\n- name: a",
        "clusters:\n- name: a\n  cluster:\n-\ncontexts:\n  -\n    name: a\n  - # c\n    name: b\nusers:\n- &u\n  name: a\n- *u\n",
        "\u{feff}clusters:\n- name: a\ncurrent-context: >-\n  a\ncontexts:\n- name: a\n",
        "x: &c {a: 1}\nclusters:\n- <<: *c\n  name: a\n...\n",
        "users:\n- name: a\n  user:\n    token: |+\n      x\n\n\ncontexts: []\n",
        "\"clusters\" :\n- {\"name\":\"a\"}\n'current-context': \"\\x61\"\ncontexts:\n- name: a\n",
        "clusters:\n- name: a\n  note: \"- name: b # not\n\n    an entry\"\n# end",
    ] {
        check(text, "");
    }
}

#[test]
fn our_entry_is_replaced_where_it_is() {
    let text =
        "clusters:\n- name: windlass-one # ours\n  cluster: {server: x}\n# theirs\n- name: b\n- name: windlass-one\n";
    let mut edited = Text::new(text);
    edited.merge(&ours("https://a")).unwrap();
    let written = edited.written();
    assert!(
        written.starts_with(
            "clusters:\n- cluster:\n    certificate-authority-data: TFM=\n    server: https://a\n  name: windlass-one\n\
             # theirs\n- name: b\ncontexts:\n"
        ),
        "{written}"
    );
    let mut flow = Text::new("clusters: [{name: windlass-one}, {name: b}]");
    flow.merge(&ours("https://a")).unwrap();
    assert!(flow.written().ends_with("current-context: windlass-one"));
    flow.remove("clusters", NAME, &Replaced::new()).unwrap();
    assert!(flow.written().starts_with("clusters: [{name: b}]\n"), "{}", flow.written());
}

#[test]
fn a_flow_entry_leaves_with_one_comma() {
    let check = |text: &str, expected: &str| {
        let mut edited = Text::new(text);
        edited.remove("users", NAME, &Replaced::new()).unwrap();
        assert_eq!(edited.written(), expected);
    };
    check("users: [{name: windlass-one}]", "users: []");
    check("users: [{name: windlass-one}, {name: b}]", "users: [{name: b}]");
    check("users: [{name: a}, {name: windlass-one}, {name: b}]", "users: [{name: a}, {name: b}]");
    check("users: [{name: a}, {name: windlass-one}, ]", "users: [{name: a}, ]");
    check("users: [\n  {name: a}, # a\n  {name: windlass-one}\n]\n", "users: [\n  {name: a} # a\n]\n");
    check("users: [\n  {name: windlass-one},\n  {name: b}\n]\n", "users: [\n  {name: b}\n]\n");
}

#[test]
fn an_emptied_list_says_that_it_is_empty() {
    let check = |text: &str, replaced: Option<Option<&str>>, expected: &str| {
        let replaced = replaced.map(|text| ("users".to_owned(), text.map(str::to_owned)));
        let mut edited = Text::new(text);
        edited.remove("users", NAME, &replaced.into_iter().collect()).unwrap();
        assert_eq!(edited.written(), expected);
    };
    let users = "kind: Config\nusers: # mine\n# one\n- name: windlass-one\n# two\n";
    check(users, None, "kind: Config\nusers: [] # mine\n# one\n# two\n");
    check(users, Some(Some(" null")), "kind: Config\nusers: null # mine\n# one\n# two\n");
    check(users, Some(None), "kind: Config\n# one\n# two\n");
    check("users:\n- name: windlass-one\n- name: b\n", Some(None), "users:\n- name: b\n");
}

#[test]
fn a_context_that_is_gone_is_not_current_again() {
    let forget = |text: &str, previous: Option<&str>, replaced: Option<&str>| {
        let replaced = replaced.map(|text| (CURRENT.to_owned(), Some(text.to_owned())));
        let before = Before { context: previous.map(str::to_owned), replaced: replaced.into_iter().collect() };
        let mut edited = Text::new(text);
        edited.forget(NAME, &before).unwrap();
        edited.written()
    };
    let text = "contexts: [{name: prod}]\ncurrent-context: windlass-one # c\n";
    assert_eq!(forget(text, Some("gone"), Some(" gone")), "contexts: [{name: prod}]\ncurrent-context: \"\" # c\n");
    assert_eq!(forget(text, Some("prod"), Some(" 'prod'")), "contexts: [{name: prod}]\ncurrent-context: 'prod' # c\n");
    assert_eq!(forget(text, Some("prod"), None), "contexts: [{name: prod}]\ncurrent-context: prod # c\n");
    // Another context is current by now.
    let theirs = "contexts: [{name: prod}]\ncurrent-context: prod\n";
    assert_eq!(forget(theirs, Some("other"), Some(" other")), theirs);
}

#[test]
fn what_cannot_be_edited_is_refused() {
    refused("x: &c [{name: a}]\nclusters: *c\n", "\"clusters\" is an alias; write the list out");
    refused("? clusters\n: - name: a\n", "does not start a line");
    refused("base: &b {clusters: [{name: a}]}\n<<: *b\n", "");
    refused("clusters: none\n", "\"clusters\" is not a list");
    refused("- a\n", "it is not a mapping");
    refused("text\n", "it is not a mapping");
    refused("{ not yaml", "");
}

/// Texts of kubeconfigs in many styles.
fn kubeconfigs() -> impl Strategy<Value = String> {
    let scalar =
        prop::sample::select(vec!["a", "'0123'", "1e3", "\"x # y\"", "true", "~", "{}", "[1, 2]", "|-\n        b"]);
    let entry = ("[a-d]", scalar, prop::bool::ANY, prop::bool::ANY);
    let list = (prop::collection::vec(entry, 0..4), 0..3_usize, 0..6_usize, prop::bool::ANY);
    let current = prop::option::of(prop::sample::select(vec!["", " a", " 'a'", " \"\"", " null", "   b # c"]));
    let order = Just(vec![0_usize, 1, 2, 3, 4]).prop_shuffle();
    (prop::array::uniform3(prop::option::of(list)), current, order, prop::bool::ANY, prop::bool::ANY).prop_map(
        |(lists, current, order, crlf, ends)| {
            let mut blocks = vec!["# head\napiVersion: v1 # version\n".to_owned()];
            for (section, list) in SECTIONS.iter().zip(lists) {
                blocks.push(list.map_or_else(String::new, |(entries, style, indent, comment)| {
                    list_text(section, &entries, style, indent, comment)
                }));
            }
            blocks.push(current.map_or_else(String::new, |text| format!("current-context:{text}\n")));
            let mut text: String = order.into_iter().map(|index| blocks[index].clone()).collect();
            if !ends {
                text.truncate(text.trim_end_matches('\n').len());
            }
            if crlf { text.replace('\n', "\r\n") } else { text }
        },
    )
}

type Entry = (String, &'static str, bool, bool);

fn list_text(section: &str, entries: &[Entry], style: usize, indent: usize, comment: bool) -> String {
    let note = if comment { " # note" } else { "" };
    if entries.is_empty() {
        return format!("{section}:{}{note}\n", ["", " []", " null"][style]);
    }
    if style == 0 {
        let items: Vec<String> = entries
            .iter()
            .map(|(name, value, _, _)| {
                let value = if value.starts_with('|') { "b" } else { value };
                format!("{{name: {name}, x: {value}}}")
            })
            .collect();
        let separator = if comment { ", # note\n  " } else { ", " };
        return format!("{section}: [{}]\n", items.join(separator));
    }
    let spaces = " ".repeat(indent);
    let mut text = format!("{section}:{note}\n");
    for (name, value, above, below) in entries {
        if *above {
            let _ = writeln!(text, "{spaces}# above\n");
        }
        let _ =
            writeln!(text, "{spaces}- name: {name}{note}\n{spaces}  x:{}{value}", if *value == "~" { "" } else { " " });
        if *below {
            let _ = writeln!(text, "{spaces}  # below");
        }
    }
    text.replace("x:~", "x:")
}

/// What `merge` is to make of the values.
fn merged(mut config: Value) -> Value {
    let ours = ours("https://a");
    for section in SECTIONS {
        list_of(&mut config, section).push(ours[section][0].clone());
    }
    config[CURRENT] = NAME.into();
    config
}

proptest! {
    #[test]
    fn edits_of_texts_are_edits_of_values(before in kubeconfigs()) {
        let mut text = Text::new(&before);
        let value = text.value().unwrap();
        let replaced = text.merge(&ours("https://a")).unwrap();
        prop_assert_eq!(essence(text.value().unwrap()), essence(merged(value)));
        // All lines but that of the current context, and lists that were empty or in brackets, are still there, in order.
        let added = text.written();
        let mut lines = added.lines();
        for line in before.lines().filter(|line| !line.starts_with(CURRENT) && !line.contains([']', '[']) && !line.contains("null")) {
            prop_assert!(lines.any(|other| other == line), "{:?} is missing in {}", line, added);
        }
        text.forget(NAME, &replaced).unwrap();
        prop_assert_eq!(text.written(), before);
    }
}
