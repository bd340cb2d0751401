//! What YAML bodies mean, and what YAML answers look like.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::json;

use super::write as to_yaml;
use super::*;

fn value(text: &str) -> Value {
    parse(text.as_bytes()).expect(text).value
}

#[test]
fn scalars_mean_what_they_do_in_yaml_1_1() {
    for (text, expected) in [
        ("y", json!(true)),
        ("Yes", json!(true)),
        ("ON", json!(true)),
        ("n", json!(false)),
        ("off", json!(false)),
        ("yEs", json!("yEs")),
        ("~", Value::Null),
        ("", Value::Null),
        ("null", Value::Null),
        ("'null'", json!("null")),
        ("\"5\"", json!("5")),
        ("12", json!(12)),
        ("+12", json!(12)),
        ("-12", json!(-12)),
        ("1_000", json!(1000)),
        ("0777", json!(511)),
        ("0o17", json!(15)),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("-0b101", json!(-5)),
        ("08", json!(8)),
        ("0", json!(0)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("1e3", json!(1000)),
        ("1.", json!(1)),
        ("1.2.3", json!("1.2.3")),
        ("2020-01-01", json!("2020-01-01")),
        ("2020-01-01T00:00:00Z", json!("2020-01-01T00:00:00Z")),
        ("1e999", json!("1e999")),
        ("18446744073709551615", json!(18_446_744_073_709_551_615.0)),
        ("!!str 5", json!("5")),
        ("!!float 5", json!(5)),
        ("!!binary aGk=", json!("hi")),
        ("!mine 5", json!("5")),
        ("100m", json!("100m")),
        ("|\n  a\n  b\n", json!("a\nb\n")),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
    assert_eq!(parse(b"!!int x").unwrap_err(), "yaml: cannot decode !!str `x` as a !!int");
    assert_eq!(parse(b"a: .inf").unwrap_err(), "json: unsupported value: +Inf");
}

#[test]
fn documents_become_objects() {
    let text =
        "# c\n---\napiVersion: v1\nmetadata:\n  name: x\n  labels: {a: b, 1: c, true: d, 1.5: e}\nlist:\n- 1\n- - 2\n";
    assert_eq!(
        value(text),
        json!({"apiVersion": "v1", "metadata": {"name": "x", "labels": {"a": "b", "1": "c", "true": "d", "1.5": "e"}},
            "list": [1, [2]]})
    );
    assert_eq!(value("a: 1\n---\nb: [\n"), json!({"a": 1}), "only the first document is read");
    assert_eq!(value(r#"{"a": ["b", null]}"#), json!({"a": ["b", null]}));
    assert!(parse(b"a: b: c").is_err() && parse(b"a: [").is_err() && parse(b"\xff").is_err());
    assert!(parse(b"{[1]: 2}").is_err() && parse(b"~: 2").is_err());
}

#[test]
fn anchors_and_merges_expand() {
    assert_eq!(value("a: &x {k: 1}\nb: *x\n"), json!({"a": {"k": 1}, "b": {"k": 1}}));
    assert_eq!(value("a: &x {k: 1, l: 1}\nb: &y {k: 2}\nc:\n  <<: [*x, *y]\n  l: 3\n")["c"], json!({"k": 1, "l": 3}));
    assert!(parse(b"a: &a [*a]").is_err() && parse(b"a: *nope").is_err() && parse(b"<<: 1").is_err());
}

#[test]
fn duplicate_keys_are_noted_with_their_lines() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yd\ndata:\n  a: \"1\"\n  a: \"2\"\n";
    let parsed = parse(text.as_bytes()).unwrap();
    assert_eq!(parsed.value["data"]["a"], "2");
    assert_eq!(parsed.duplicates.as_deref(), Some("yaml: unmarshal errors:\n  line 7: key \"a\" already set in map"));
}

#[test]
fn bombs_do_not_go_off() {
    let mut laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for i in 1..12 {
        let previous = format!("*a{}", i - 1);
        let _ = writeln!(laughs, "a{i}: &a{i} [{}]", vec![previous; 10].join(", "));
    }
    assert_eq!(parse(laughs.as_bytes()).unwrap_err(), "yaml: document contains excessive aliasing");
    assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    assert!(parse("- ".repeat(100_000).as_bytes()).is_err());
    let deep = (1..200).fold("a0: &a0 [1]\n".to_owned(), |text, i| format!("{text}a{i}: &a{i} [*a{}]\n", i - 1));
    assert!(parse(deep.as_bytes()).unwrap_err().contains("max depth"));
    let anchors: String = (0..100).fold(String::new(), |text, i| format!("{text}&a{i} ["));
    let within = format!("{anchors}{}{}", "1,".repeat(20_000), "]".repeat(100));
    assert_eq!(parse(within.as_bytes()).unwrap_err(), "yaml: document contains excessive aliasing");
}

/// A request of a hundred kilobytes became an object of thirty megabytes.
#[test]
fn aliases_add_no_more_than_a_request_may_hold() {
    let text = "x".repeat(100_000);
    let repeated = |times: usize| parse(format!("a: &a {text}\nb: [{}]", "*a,".repeat(times)).as_bytes());
    assert_eq!(repeated(31).unwrap().value["b"].as_array().unwrap().len(), 31);
    assert_eq!(repeated(300).unwrap_err(), EXCESSIVE);
    // Numbers have no text, and take their place all the same.
    let numbers = format!("a: &a [{}]\nb: [{}]", "1,".repeat(10_000), "*a,".repeat(200));
    assert_eq!(parse(numbers.as_bytes()).unwrap_err(), EXCESSIVE);
}

/// Runs a test on a thread whose stack has room for the deepest values.
fn with_deep_stack(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let deep = std::thread::Builder::new().stack_size(256 << 20);
        let test = || {
            crate::depth::allow_deepest();
            test();
        };
        deep.spawn_scoped(scope, test).unwrap().join().unwrap();
    });
}

/// Each of these anchors was kept with a text of its own, as it holds few nodes: gigabytes for a request of three
/// megabytes.
#[test]
fn long_texts_are_not_kept_for_every_anchor_around_them() {
    with_deep_stack(|| {
        let text = "x".repeat(2_900_000);
        let nested = |levels: usize| {
            let anchors = (0..levels).fold(String::new(), |all, level| format!("{all}&a{level} ["));
            parse(format!("{anchors}\"{text}\"{}", "]".repeat(levels)).as_bytes())
        };
        assert_eq!(nested(1_400).unwrap_err(), EXCESSIVE);
        assert!(nested(10).unwrap().value.pointer(&"/0".repeat(10)).unwrap() == &text);
        let repeated = |times: usize| parse(format!("a: &a {text}\nb: [{}]", "*a,".repeat(times)).as_bytes());
        assert_eq!(repeated(2).unwrap_err(), EXCESSIVE);
        assert!(repeated(1).unwrap().value["b"][0] == *text);
        let keys = (0..1_000).fold(format!("&k {text}: 1\n"), |all, n| format!("{all}? [*k, {n}]\n: 1\n"));
        assert!(parse(keys.as_bytes()).is_err());
    });
}

#[test]
fn thousands_of_levels_take_no_more_than_their_number() {
    with_deep_stack(|| {
        let deep = (0..9_000).fold(json!("<x> \u{1}"), |inner, level| match level % 2 {
            0 => Value::Array(vec![inner]),
            _ => Value::Object([("y".to_owned(), inner)].into_iter().collect()),
        });
        let text = write(&deep);
        assert!(text.len() < 300_000, "{}", text.len());
        assert!(parse(text.as_bytes()).unwrap().value == deep, "it reads back");
    });
}

#[test]
fn answers_look_like_upstreams() {
    let object = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x", "labels": {}, "finalizers": ["a", "b"]},
        "data": {"a10": "1", "a2": "yes", "t": "one\ntwo\n", "u": "x\n", "v": "no end\nline", "e": "", "d": "2020-01-01",
            "colon": "a: b", "hash": "a # b", "dash": "- x", "ok": "a:b#c", "tab": "a\tb", "emoji": "😀", "é": "ü", "q": "it's",
            "sq": "'x", "lead": " x", "trail": "x\n\n", "time": "12:30", "num": "1e3"},
        "list": [{"a": 1, "b": [1, [2, {}], []]}, null, 1.5, 1e21, true],
    });
    let expected = r#"apiVersion: v1
data:
  a2: "yes"
  a10: "1"
  colon: 'a: b'
  d: "2020-01-01"
  dash: '- x'
  e: ""
  emoji: "\U0001F600"
  hash: 'a # b'
  lead: ' x'
  num: "1e3"
  ok: a:b#c
  q: it's
  sq: '''x'
  t: |
    one
    two
  tab: "a\tb"
  time: "12:30"
  trail: |+
    x

  u: |
    x
  v: |-
    no end
    line
  é: ü
kind: ConfigMap
list:
- a: 1
  b:
  - 1
  - - 2
    - {}
  - []
- null
- 1.5
- 1e+21
- true
metadata:
  finalizers:
  - a
  - b
  labels: {}
  name: x
"#;
    assert_eq!(to_yaml(&object), expected);
}

#[test]
fn long_lines_wrap_and_long_keys_are_spelled_out() {
    let words = ["word"; 25].join(" ");
    let text = to_yaml(&json!({"a": words, "b": format!("'{words}"), "c": format!("{words}\t"), "k".repeat(129): 1}));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0].len(), 82);
    assert!(lines[1].starts_with("  word"), "{text}");
    assert!(text.contains(&format!("? {}\n: 1\n", "k".repeat(129))));
    assert_eq!(value(&text)["a"], words.as_str());
    assert_eq!(value(&text)["c"], format!("{words}\t").as_str());
}

proptest! {
    #[test]
    fn what_is_written_reads_back(value in crate::codec::json::tests::any_value()) {
        let text = to_yaml(&value);
        let read = parse(text.as_bytes());
        prop_assert!(read.is_ok(), "{:?}\n{}", read, text);
        let (read, value) = (read.unwrap().value, crate::codec::json::parse(&crate::codec::write::to_vec(&value)).unwrap().value);
        prop_assert!(crate::codec::json::tests::same(&read, &value), "{}\n{}", value, text);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,60}", looks in "[-a1:,{}\\[\\]&*!|>'\"#%?~< \n]{0,60}") {
        let _ = (parse(text.as_bytes()), parse(looks.as_bytes()));
    }
}
