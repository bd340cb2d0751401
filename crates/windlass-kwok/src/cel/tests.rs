//! What expressions mean.

use serde_json::json;

use super::*;

struct Surroundings(Value, bool);

impl Scope for Surroundings {
    fn variable(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    fn now(&self) -> Timestamp {
        "2026-01-01T00:01:40Z".parse().expect("a time")
    }

    fn random(&self) -> f64 {
        0.25
    }

    fn is_typed(&self) -> bool {
        self.1
    }

    fn call(&self, name: &str, of: Option<&Value>, arguments: &[Value]) -> Option<Result<f64, String>> {
        let kind = of?["kind"].as_str()?;
        (name == "Usage").then(|| match (kind, arguments) {
            ("Pod", [Value::String(resource)]) => Ok(resource.len() as f64),
            _ => Err("no such overload".to_owned()),
        })
    }
}

fn check(expression: &str, expected: Value) {
    let scope = Surroundings(
        json!({
            "pod": {"kind": "Pod",
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"a": "5Mi"}, "name": "p"},
                "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "500m"}}}, {"name": "d"}]}},
            "self": {"spec": {"class": "x", "claim": {"name": "n"}}},
        }),
        false,
    );
    let program = Program::parse(expression).unwrap_or_else(|error| panic!("{error}"));
    let value = program.evaluate(&scope).map(Val::into_json);
    let said = value.unwrap_or_else(|why| Value::String(format!("error: {why}")));
    assert_eq!((expression, said), (expression, expected));
}

#[test]
fn operators_and_literals() {
    check("1 + 2 * 3", json!(7));
    check("(1 + 2) * 3 % 5", json!(4));
    check("7 / 2", json!(3));
    check("7.0 / 2.0", json!(3.5));
    check("-5 < 3 && !false", json!(true));
    check("'a' + \"b\" + r'\\n' + '''c'd'''", json!("ab\\nc'd"));
    check("'\\x41\\u0042\\103\\n'", json!("ABC\n"));
    check("[1, 2] + [3]", json!([1, 2, 3]));
    check("{'a': 1}['a'] == 1.0", json!(true));
    check("2 in [1, 2] ? 'yes' : 'no'", json!("yes"));
    check("false ? 1 : true ? 2 : 3", json!(2));
    check("0x10 + 1u", json!(17));
    check("1e3 + 0.5", json!(1000.5));
    check("1 / 0", json!("error: division by zero"));
    check("9223372036854775807 + 1", json!("error: integer overflow"));
    check("1 < 'a'", json!("error: no such overload: the values cannot be compared"));
}

#[test]
fn fields_and_macros() {
    check("self.spec.class == 'x'", json!(true));
    check("has(self.spec.claim.name) && !has(self.metadata)", json!(true));
    check("self.status.phase != 'Bound'", json!("error: no such key: status"));
    // What decides makes the error irrelevant.
    check("self.status.phase == 'x' || true", json!(true));
    check("false && self.status.phase == 'x'", json!(false));
    check("pod.spec.containers.exists(c, c.name == 'd')", json!(true));
    check("pod.spec.containers.all(c, c.name != 'd')", json!(false));
    check("pod.spec.containers.exists_one(c, has(c.resources))", json!(true));
    check("pod.spec.containers.map(c, c.name)", json!(["c", "d"]));
    check("pod.spec.containers.map(c, c.name == 'd', c.name)", json!(["d"]));
    check("pod.spec.containers.filter(c, c.name == 'd').size()", json!(1));
    check("size(pod.spec.containers) + size('äb')", json!(4));
    check("[1, 2].exists(x, [2, 3].exists(y, x == y))", json!(true));
    check("pod.spec.containers[5]", json!("error: index out of bounds: 5"));
    check("nobody.x", json!("error: undeclared reference to 'nobody'"));
}

#[test]
fn functions_of_kwok() {
    check("pod.SinceSecond()", json!(100.0));
    check("SinceSecond(pod) / 50.0", json!(2.0));
    check("Quantity(\"1Mi\") * (pod.SinceSecond() / 50.0) == Quantity('2Mi')", json!(true));
    check("Quantity('1') > Quantity('500m')", json!(true));
    check("pod.spec.containers[0].resources.limits['cpu'] / 2 + Quantity('1m')", json!(0.251));
    check("pod.spec.containers[0].resources.limits['memory'] == Quantity('0')", json!(true));
    check(
        "'a' in pod.metadata.annotations ? Quantity(pod.metadata.annotations['a']) : Quantity('1Mi')",
        json!(5_242_880.0),
    );
    check("pod.Usage('cpu') + Rand()", json!(3.25));
    check("pod.Usage('cpu', 1)", json!("error: no such overload"));
    check("Now().UnixSecond()", json!(1_767_225_700.0));
    check("Now() - timestamp(pod.metadata.creationTimestamp) == duration('1m40s')", json!(true));
    check("(Now() + duration('1h')).getHours()", json!(1));
    check("int('5') + int(2.9)", json!(7));
    check("string(5) + '!'", json!("5!"));
    check("'abc'.startsWith('ab') && 'abc'.contains('b') && 'abc'.endsWith('c')", json!(true));
    check("'gpu-12'.matches('^gpu-[0-9]+$') && !matches('gpu', '[0-9]')", json!(true));
    check("'a'.size(1)", json!("error: no such overload: size"));
}

#[test]
fn unknown_functions_are_refused_when_read() {
    for expression in ["nothing(1)", "pod.nothing()", "has(pod.a) || pod.items.all(x, nothing(x))"] {
        let error = Program::parse(expression).expect_err("no function").to_string();
        assert!(error.contains("undeclared reference to 'nothing'"), "{error}");
    }
}

#[test]
fn fields_of_typed_objects_need_not_be_set() {
    let scope = Surroundings(json!({"pod": {"metadata": {}}}), true);
    let value = |expression: &str| {
        let program = Program::parse(expression).expect(expression);
        program.evaluate(&scope).map(Val::into_json).expect(expression)
    };
    assert_eq!(value("'a' in pod.metadata.annotations"), json!(false));
    assert_eq!(value("pod.spec.containers.exists(c, true)"), json!(false));
    assert_eq!(value("pod.status.phase == 'Running'"), json!(false));
}

#[test]
fn wrong_and_huge_expressions_are_refused() {
    for wrong in ["", "1 +", "(1", "'a", "a b", "a ? b", "has(1)", "[1].map(1, 2)", "a = b", "'\\q'", "1.2.3", "#"] {
        assert!(Program::parse(wrong).is_err(), "{wrong}");
    }
    assert!(Program::parse(&"(".repeat(10_000)).is_err());
    assert!(Program::parse(&"!".repeat(900)).is_err());
    assert!(Program::parse(&format!("1{}", "+1".repeat(10_000))).is_err());
    let scope = Surroundings(json!({}), false);
    let list = format!("[{}]", vec!["1"; 80].join(","));
    let endless = format!("{list}.all(a, {list}.all(b, {list}.all(c, {list}.all(d, true))))");
    let endless = Program::parse(&endless).expect("it can be read");
    assert_eq!(endless.evaluate(&scope), Err("it takes too many steps".to_owned()));
}
