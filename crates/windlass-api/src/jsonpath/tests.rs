//! Paths against values, with the results client-go gives.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn check(path: &str, data: &Value, expected: Option<&Value>) {
    let parsed = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(parsed.first(data).as_ref(), expected, "{path}");
}

#[test]
fn values_are_selected() {
    let data = json!({
        "spec": {
            "size": 3, "list": ["x", "y", "z"], "a.b": "dotted", "slash/key": "slashed", "null": null,
            "containers": [{"name": "c", "ports": [80, 443]}, {"name": "d"}],
        },
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "count": 2},
            {"type": "Synced", "status": "False", "count": 5},
        ]},
    });
    for (path, expected) in [
        (".spec.size", Some(json!(3))),
        ("$.spec.size", Some(json!(3))),
        ("@.spec.size", Some(json!(3))),
        ("['spec']['size']", Some(json!(3))),
        (".spec['size']", Some(json!(3))),
        (r".spec.a\.b", Some(json!("dotted"))),
        (r".spec['a\.b']", Some(json!("dotted"))),
        (".spec['a.b']", None),
        (".spec['slash/key']", Some(json!("slashed"))),
        (".spec.none", None),
        (".spec.none.deeper", None),
        (".spec.null", Some(Value::Null)),
        (".spec.null.deeper", None),
        (".spec.null[0]", None),
        (".spec.list", Some(json!(["x", "y", "z"]))),
        (".spec.list[0]", Some(json!("x"))),
        (".spec.list[-1]", Some(json!("z"))),
        (".spec.list[3]", None),
        (".spec.list[-4]", None),
        (".spec.list[1:]", Some(json!("y"))),
        (".spec.list[:1]", Some(json!("x"))),
        (".spec.list[1:1]", None),
        (".spec.list[2:1]", None),
        (".spec.list[1:3:2]", Some(json!("y"))),
        (".spec.list[0:3:0]", None),
        (".spec.list[*]", Some(json!("x"))),
        (".spec.list[2,0]", Some(json!("z"))),
        (".spec.size[0]", None),
        (".spec.containers[*].name", Some(json!("c"))),
        (".spec.containers[1].name", Some(json!("d"))),
        (".spec.containers[*].ports[1]", Some(json!(443))),
        ("..ports[0]", Some(json!(80))),
        ("..name", Some(json!("c"))),
        (r#".status.conditions[?(@.type=="Ready")].status"#, Some(json!("True"))),
        (r".status.conditions[?(@.type=='Synced')].status", Some(json!("False"))),
        (r#".status.conditions[?(@.type == "Synced")].status"#, Some(json!("False"))),
        (r#".status.conditions[?(@.type!="Ready")].type"#, Some(json!("Synced"))),
        (r#".status.conditions[?(@.type=="None")].status"#, None),
        (".status.conditions[?(@.count>2)].type", Some(json!("Synced"))),
        (".status.conditions[?(@.count<=2)].type", Some(json!("Ready"))),
        (".status.conditions[?(@.count)].type", Some(json!("Ready"))),
        (".status.conditions[?(@.none)].type", None),
        (r#".status.conditions[?(@.count=="2")].type"#, None),
        (".spec.list[?(@==\"y\")]", Some(json!("y"))),
        (r#".spec.list[?(@==")")]"#, None),
        (".spec[?(@.x)]", None),
        ("spec", None),
        ("range .spec.list[*]", None),
        ("", Some(data.clone())),
    ] {
        check(path, &data, expected.as_ref());
    }
}

#[test]
fn bad_paths_are_refused() {
    for (path, expected) in [
        ("spec..[", ParseError::UnterminatedArray),
        (".spec[", ParseError::UnterminatedArray),
        (".spec[x]", ParseError::ArrayIndex("x".into())),
        (".spec[-]", ParseError::IndexNumber("-".into())),
        (".spec[?(@.x", ParseError::UnterminatedFilter),
        (".spec[?(@.x)", ParseError::UnclosedFilter),
        ("\"x", ParseError::UnterminatedQuote),
        (r"'\q'", ParseError::Unquote(r"\q".into())),
        ("....x", ParseError::RepeatedDescent),
        ("-", ParseError::Number("-".into())),
        ("!", ParseError::UnrecognizedCharacter('!')),
        (".a\n", ParseError::UnclosedAction),
        (".a}{!", ParseError::UnrecognizedCharacter('!')),
    ] {
        assert_eq!(JsonPath::parse(path).map(|_| ()).expect_err(path), expected, "{path}");
    }
    let deep = format!(".a{}", "[?(@.a".repeat(1000)) + &")]".repeat(1000);
    assert!(JsonPath::parse(&deep).is_err());
}

#[test]
fn strings_show_values_as_go_prints_them() {
    for (value, expected) in [
        (json!("x"), "x"),
        (json!(3), "3"),
        (json!(1.5), "1.5"),
        (json!(2.0), "2"),
        (json!(1_234_567.0), "1.234567e+06"),
        (json!(0.00001), "1e-05"),
        (json!(true), "true"),
        (Value::Null, "<no value>"),
        (json!(["x", "y"]), r#"["x","y"]"#),
        (json!({"b": "<&>", "a": 1.0}), r#"{"a":1,"b":"\u003c\u0026\u003e"}"#),
        (json!([1e21, 1e-7]), "[1e+21,1e-7]"),
    ] {
        assert_eq!(print(&value), expected);
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(path in r#"[\.\[\]\(\)\?@\$\*'":,\\<>=!{}a-c0-2 \n-]{0,40}|\PC{0,20}"#) {
        if let Ok(parsed) = JsonPath::parse(&path) {
            let data = json!({"a": [1, "b", {"c": null}], "b": {"a": 1.5, "c": [[]]}, "c": "é"});
            if let Some(value) = parsed.first(&data) {
                print(&value);
            }
        }
    }
}
