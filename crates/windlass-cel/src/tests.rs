//! Expressions and what they make.
#![allow(clippy::unwrap_used)]

use serde_json::{Value as Json, json};

use super::value::{Outcome, Shape, Value, adapt};
use super::*;

/// One variable, `x`, of unknown type.
struct One<'a>(&'a Json);

impl<'a> Globals<'a> for One<'a> {
    fn get(&mut self, _index: usize) -> Outcome<'a> {
        adapt(self.0, Shape::Dynamic)
    }
}

fn environment() -> Environment {
    Environment::new().with("x", Type::Dyn)
}

/// What an expression makes, as text: a value as `format` writes it, or what went wrong.
fn eval(text: &str, x: &Json) -> String {
    let program = match compile(text, &environment()) {
        Ok(program) => program,
        Err(CompileError::Invalid(issues)) => return issues,
        Err(CompileError::Program(problem)) => return format!("program: {problem}"),
    };
    match program.eval(&mut One(x), CALL_LIMIT).0 {
        Ok(value) => show(&value),
        Err(error) => format!("error: {error}"),
    }
}

fn show(value: &Value<'_>) -> String {
    match value {
        Value::List(list) => {
            let items: Vec<String> = list.iter().map(|item| show(&item.unwrap())).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let entries: Vec<String> = map
                .keys()
                .iter()
                .map(|key| format!("{}: {}", show(key), show(&map.find(key).unwrap().unwrap())))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(value)) => format!("some({})", show(value)),
        Value::Bytes(bytes) => format!("b{bytes:?}"),
        other => library::format_string::go_value(other),
    }
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(eval(text, &json!({"a": 1, "s": "text", "l": [1, 2, 3], "m": {"k": "v"}})), *expected, "{text}");
    }
}

#[test]
fn operators() {
    check(&[
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("7 / 2", "3"),
        ("-7 % 3", "-1"),
        ("1 / 0", "error: division by zero"),
        ("9223372036854775807 + 1", "error: integer overflow"),
        ("1u - 2u", "error: unsigned integer overflow"),
        ("1.5 + 1.5", "3"),
        ("'a' + 'b'", "ab"),
        ("[1] + [2]", "[1, 2]"),
        ("1 < 2 && 2.0 > 1 && 'a' < 'b'", "true"),
        ("1 < 1.5 && dyn(1) < 2u", "true"),
        ("dyn(1) == 1.0", "true"),
        ("!true || false", "false"),
        ("true ? 'y' : 'n'", "y"),
        ("-x.a", "-1"),
        ("2 in [1, 2]", "true"),
        ("'k' in x.m", "true"),
        ("x.l[1]", "2"),
        ("x.l[3]", "error: index out of bounds: 3"),
        ("x.zzz", "error: no such key: zzz"),
        ("x.zzz == 1 || true", "true"),
        ("true && x.zzz == 1", "error: no such key: zzz"),
        ("has(x.a) && !has(x.zzz)", "true"),
        ("{'a': 1, 'b': 2}['b']", "2"),
        ("size('héllo') == 5 && [1].size() == 1 && {1: 2}.size() == 1", "true"),
        ("duration('1h') + timestamp('2020-01-01T00:00:00Z')", "2020-01-01T01:00:00Z"),
        ("timestamp('2020-03-01T00:00:00Z') - timestamp('2020-02-01T00:00:00Z') == duration('696h')", "true"),
        ("timestamp('2020-03-01T23:00:00Z').getDayOfWeek('+02:00')", "1"),
        ("type(1) == int && type('a') == string && type(x.l) == list", "true"),
        ("string(1.5) + string(true) + string(b'a') + string(duration('90s'))", "1.5truea90s"),
        ("int('12') + int(3.9) + int(2u)", "17"),
        ("double('1e3')", "1000"),
        ("0x10 + 1", "17"),
        ("r'a\\n' + 'b\\x41\\u00e9' + '''c'''", "a\\nbAéc"),
        ("b'\\xff'", "b[255]"),
    ]);
}

#[test]
fn macros_and_optionals() {
    check(&[
        ("[1, 2, 3].all(i, i > 0)", "true"),
        ("[1, 2, 3].exists(i, i > 2)", "true"),
        ("[1, 2, 3].exists_one(i, i > 2)", "true"),
        ("[1, 2, 3].map(i, i * 2)", "[2, 4, 6]"),
        ("[1, 2, 3].map(i, i > 1, i * 2)", "[4, 6]"),
        ("[1, 2, 3].filter(i, i % 2 == 1)", "[1, 3]"),
        ("{'a': 1}.all(k, k == 'a')", "true"),
        ("[3, 4].all(i, v, i < v)", "true"),
        ("{'a': 1}.exists(k, v, k == 'a' && v == 1)", "true"),
        ("[3, 4].transformList(i, v, i + v)", "[3, 5]"),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 10)", "{b: 20}"),
        ("{'a': 'b'}.transformMapEntry(k, v, {v: k})", "{b: a}"),
        ("x.?a.orValue(5)", "1"),
        ("x.?zzz.orValue(5)", "5"),
        ("x.?zzz.?y", "none"),
        ("x.?m.k", "some(v)"),
        ("x.l[?7]", "none"),
        ("x.?a.optMap(v, v + 1)", "some(2)"),
        ("x.?zzz.optMap(v, v + 1)", "none"),
        ("x.?m.optFlatMap(m, m.?k).value()", "v"),
        ("optional.none().value()", "error: optional.none() dereference"),
        ("optional.of(1).or(optional.of(2)).hasValue()", "true"),
        ("[?x.?zzz, ?x.?a]", "[1]"),
        ("{?'q': x.?zzz, 'r': dyn(1)}", "{r: 1}"),
        ("optional.ofNonZeroValue('')", "none"),
        ("[[2, 1], [1, 3]].sortBy(l, l[0])", "[[1, 3], [2, 1]]"),
        ("[1, 1 / 0 == 1 ? 1 : 2].exists(i, i == 1)", "error: division by zero"),
        ("[1, 2].all(i, i / 0 == 1 || true)", "true"),
        ("[0, 1].exists(i, 1 / i == 1)", "true"),
    ]);
}

#[test]
fn libraries() {
    check(&[
        ("'tacocat'.charAt(3) + 'HeLLo'.lowerAscii() + 'a'.upperAscii()", "ohelloA"),
        ("'hello mellow'.indexOf('ello') + 'hello mellow'.lastIndexOf('ello')", "8"),
        ("'hello mellow'.indexOf('ello', 2)", "7"),
        ("'hello mellow'.lastIndexOf('ello', 6)", "1"),
        ("'a,b,c'.split(',') + 'abc'.split('')", "[a, b, c, a, b, c]"),
        ("'a,b,c'.split(',', 2)", "[a, b,c]"),
        ("'hello'.replace('l', 'L', 1)", "heLlo"),
        ("'hello'.substring(1, 3) + '  x '.trim()", "elx"),
        ("'hello'.substring(7)", "error: index out of range: 7"),
        ("['a', 'b'].join('-')", "a-b"),
        ("strings.quote('a\"b')", "\"a\\\"b\""),
        ("'%s is %d, %.2f %x %s'.format(['a', 3, 1234.5, 255, [1, 'b']])", "a is 3, 1,234.50 ff [1, \"b\"]"),
        ("[1, 3, 2].isSorted() || [1, 2].isSorted()", "true"),
        ("[1, 2, 3].sum() + [1, 2].max() - [1, 2].min()", "7"),
        ("[1, 2, 1].indexOf(1) + [1, 2, 1].lastIndexOf(1)", "2"),
        ("[].max()", "error: max called on empty list"),
        ("[3, 1, 2].sort() + [1, 2].reverse() + [1, 1].distinct() + lists.range(2)", "[1, 2, 3, 2, 1, 1, 0, 1]"),
        ("[3.0, 1.0, 0.0 / 0.0, 2.0, 1.0].sort()", "[1, 3, NaN, 1, 2]"),
        ("[[1], [2]].flatten() + [dyn([[1]])].flatten(2)", "[1, 2, 1]"),
        ("[1, 2, 3].slice(1, 3)", "[2, 3]"),
        ("[1, 2].first().value() + [1, 2].last().value()", "3"),
        ("sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])", "true"),
        ("'abc 123'.find('[0-9]+') + '-' + 'a1b2'.findAll('[0-9]').join(',')", "123-1,2"),
        ("'abc'.matches('^[a-c]+$')", "true"),
        ("url('https://example.com:80/a%20b?k=v&k=w').getHost()", "example.com:80"),
        ("url('https://[::1]:80/a b').getHostname() + url('https://[::1]:80/a b').getEscapedPath()", "::1/a%20b"),
        ("url('https://e.com/?k=v&k=w').getQuery()", "{k: [v, w]}"),
        ("isURL('../x') || !isURL('https://a')", "false"),
        ("quantity('1Gi').isGreaterThan(quantity('1000M')) && quantity('1k').asInteger() == 1000", "true"),
        ("quantity('50m').isInteger() || quantity('1.5').asApproximateFloat() != 1.5", "false"),
        ("quantity('50k').add(20).sub(quantity('20')) == quantity('50000')", "true"),
        ("sign(quantity('-1'))", "-1"),
        ("isQuantity(' 1') || isQuantity('1\\t') || isQuantity('\\n1')", "false"),
        (
            "quantity('10 Mo')",
            "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("ip('192.168.0.1').family() == 4 && ip('fe80::1').isLinkLocalUnicast() && isIP('::1')", "true"),
        ("ip.isCanonical('2001:DB8::1')", "false"),
        ("cidr('192.168.0.0/24').containsIP('192.168.0.9') && !cidr('10.0.0.0/8').containsCIDR('10.0.0.0/7')", "true"),
        ("string(cidr('192.168.0.1/24').masked())", "192.168.0.0/24"),
        (
            "ip('1.2.3')",
            "error: IP Address \"1.2.3\" parse error during conversion from string: ParseAddr(\"1.2.3\"): IPv4 address too short",
        ),
        (
            "cidr('10.0.0.0/300')",
            "error: network address parse error during conversion from string: network address parse error during conversion \
             from string: netip.ParsePrefix(\"10.0.0.0/300\"): prefix length out of range",
        ),
        ("semver('1.2.3').isLessThan(semver('1.2.4')) && semver('v1.2', true).minor() == 2", "true"),
        ("isSemver('1.2') || !isSemver('1.2.3-rc.1+b')", "false"),
        ("format.dns1123Label().validate('a') == optional.none() && format.named('uuid').hasValue()", "true"),
        ("format.dns1123Label().validate('A').value()[0].contains('lower case')", "true"),
    ]);
}

/// What an evaluation costs, and the work it does besides, for a list of so many items.
fn effort(text: &str, items: usize) -> (u64, u64) {
    let x = json!({"l": (0..items).collect::<Vec<_>>(), "s": (0..items).map(|i| format!("n{i}")).collect::<Vec<_>>(),
        "m": (0..items).map(|i| (format!("n{i}"), json!(i))).collect::<serde_json::Map<_, _>>()});
    let program = compile(text, &environment()).unwrap();
    let mut left = Allowance::ONE;
    let (outcome, cost) = program.eval_within(&mut One(&x), CALL_LIMIT, &mut left);
    assert!(outcome.is_ok(), "{text}: {outcome:?}");
    (cost, Allowance::ONE.worked(left))
}

#[test]
fn what_accumulates_grows_in_place() {
    for text in [
        "x.l.transformMap(i, v, v)",
        "x.l.transformMap(i, v, v % 2 == 0, v)",
        "x.m.transformMap(k, v, v)",
        "x.l.transformMapEntry(i, v, {v: i})",
        "x.l.transformMap(i, v, {'a': v}.transformMap(k, w, w))",
        "x.l.transformList(i, v, v)",
        "x.l.map(v, v)",
        "x.l.map(v, [v].map(w, w))",
        "x.l.filter(v, v % 2 == 0)",
        "x.l + x.l",
        "[x.l, x.l].flatten()",
        "x.s.join('-')",
        "x.l.reverse()",
        "x.l.slice(1, 5)",
        "x.s.map(v, v + v)",
        "'%s'.format([x.s])",
        "x.l.sort()",
        "x.s.sortBy(v, v)",
    ] {
        let ((_, small), (_, large)) = (effort(text, 500), effort(text, 5_000));
        assert!(large < small * 12, "{text}: {small} for 500, {large} for 5,000");
    }
    // Those that compare all with all are charged for it.
    for text in ["x.l.distinct()", "sets.contains(x.l, x.l)"] {
        let (cost, work) = effort(text, 500);
        assert!(work < cost * 2, "{text}: {work} for {cost}");
    }
}

#[test]
fn inserting_in_place_changes_nothing_else() {
    check(&[
        ("x.l.transformMap(i, v, v * 2)", "{0: 2, 1: 4, 2: 6}"),
        ("x.l.transformMap(i, v, i > 0, v)", "{1: 2, 2: 3}"),
        ("x.m.transformMap(k, v, v + k)", "{k: vk}"),
        ("x.l.transformMapEntry(i, v, {v: i})", "{1: 0, 2: 1, 3: 2}"),
        ("x.l.transformMapEntry(i, v, {'a': i})", "error: insert failed: key a already exists"),
        ("x.l.transformMapEntry(i, v, dyn(v))", "error: no such overload: cel.@mapInsert(map, int)"),
        ("x.l.transformMap(i, v, 1 / (v - 2))", "error: division by zero"),
        ("x.l.transformMap(i, v, [v].transformMap(j, w, w + i))", "{0: {0: 1}, 1: {0: 3}, 2: {0: 5}}"),
        ("[1].transformMapEntry(i, v, x.m)", "{k: v}"),
    ]);
    // As cel-go charges them: the range, then in each turn the accumulator, the key, the value and the call.
    assert_eq!(effort("x.l.transformMap(i, v, v)", 10).0, 2 + 10 * 4 + 1);
}

#[test]
fn what_costs_leave_out_is_limited() {
    let x = json!({"l": (0..5_000).collect::<Vec<_>>(), "t": "t".repeat(1_000_000)});
    for text in [
        "x.l.all(v, (x.l + x.l).size() > 0)",
        "x.l.all(v, x.l.all(w, x.t != 'u'))",
        "x.l.exists(v, x[x.t] == v)",
        "x.l.all(v, x.l.all(w, size(x.t) > w))",
    ] {
        let program = compile(text, &environment()).unwrap();
        let (outcome, cost) = program.eval(&mut One(&x), CALL_LIMIT);
        assert!(matches!(outcome, Err(value::Error::Exhausted)), "{text}: {outcome:?}");
        assert!(cost < CALL_LIMIT, "{text}: {cost}");
    }
}

#[test]
fn wrong_expressions_are_explained() {
    check(&[
        ("y", "ERROR: <input>:1:1: undeclared reference to 'y' (in container '')\n | y\n | ^"),
        (
            "1 + 'a'",
            "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 + 'a'\n | ..^",
        ),
        (
            "'a'.startsWith(1)",
            "ERROR: <input>:1:15: found no matching overload for 'startsWith' applied to 'string.(int)'\n | 'a'.startsWith(1)\n | ..............^",
        ),
        ("[1, 'a']", "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^"),
        (
            "1.all(a, true)",
            "ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)\n | 1.all(a, true)\n | ^",
        ),
        ("'a'.f", "ERROR: <input>:1:4: type 'string' does not support field selection\n | 'a'.f\n | ...^"),
        ("has(x)", "ERROR: <input>:1:5: invalid argument to has() macro\n | has(x)\n | ....^"),
        ("x.", "ERROR: <input>:1:3: Syntax error: no viable alternative at input '.'\n | x.\n | ..^"),
        ("duration('x')", "ERROR: <input>:1:10: invalid duration argument\n | duration('x')\n | .........^"),
        ("'a'.matches('(')", "ERROR: <input>:1:13: invalid matches argument\n | 'a'.matches('(')\n | ............^"),
        ("int('a')", "program: type conversion error from 'string' to 'int'"),
        ("x.a && 1", "ERROR: <input>:1:8: expected type 'bool' but found 'int'\n | x.a && 1\n | .......^"),
        (
            "'%d'.format(['a'])",
            "ERROR: <input>:1:14: error during formatting: decimal clause can only be used on integers, was given string\n | '%d'.format(['a'])\n | .............^",
        ),
        (
            "1 +",
            "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | 1 +\n | ...^",
        ),
    ]);
}

#[test]
fn nothing_runs_long_or_deep() {
    let deep = format!("{}1{}", "(".repeat(300), ")".repeat(300));
    assert!(eval(&deep, &Json::Null).contains("expression recursion limit exceeded: 250"));
    let chain = format!("x{}", ".a".repeat(300));
    assert!(eval(&chain, &Json::Null).contains("expression recursion limit exceeded: 250"));
    let long = "1 + ".repeat(30_000) + "1";
    assert!(eval(&long, &Json::Null).contains("code point size exceeds limit"));
    let copies = format!("optional.of(1){}", ".optMap(a, a)".repeat(60));
    assert!(eval(&copies, &Json::Null).contains("too large"));
    let loops = "[1,2,3,4,5,6,7,8,9,10]";
    let nested = (0..9).fold("true".to_owned(), |inner, depth| format!("{loops}.all(v{depth}, {inner})"));
    assert_eq!(eval(&nested, &Json::Null), "error: operation cancelled: actual cost limit exceeded");
    let doubling = format!("[x.l]{}.size()", ".map(l, l + l)".repeat(40));
    assert_eq!(eval(&doubling, &json!({"l": [1, 2, 3]})), "error: operation cancelled: actual cost limit exceeded");
    let growing = format!("x.s{}.size()", ".replace('', 'xxxxxxxxxxxxxxxxxxxxxxxxx')".repeat(12));
    assert_eq!(eval(&growing, &json!({"s": "abcdefghij"})), "error: operation cancelled: actual cost limit exceeded");
    // As deep as it gets is still fine on a small stack.
    for (count, open, inner, close, expected) in [
        (240, "-(", "1", ")", "1"),
        (120, "[1].all(x, ", "true", ")", "true"),
        (240, "true ? (", "true", ") : false", "true"),
        (60, "[1].map(x, ", "1", ")", ""),
        (240, "[", "[x] == [x]", "]", ""),
        (120, "[1].transformMap(k, v, k == 0 ? ", "[1]", " : [1])", ""),
    ] {
        let deep = format!("{}{inner}{}", open.repeat(count), close.repeat(count));
        let made = eval(&deep, &Json::Null);
        assert!(made == expected || expected.is_empty(), "{open}: {made}");
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// Pieces that expressions are made of, in any order.
    fn soup() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "x",
            ".",
            "?",
            "[",
            "]",
            "(",
            ")",
            "{",
            "}",
            ",",
            ":",
            "+",
            "-",
            "*",
            "/",
            "%",
            "!",
            "==",
            "<",
            "&&",
            "||",
            "in",
            "1",
            "2u",
            "1.5",
            "'a'",
            "b'a'",
            "r'''",
            "null",
            "true",
            ".all(",
            ".map(v,",
            ".optMap(v,",
            "has(",
            "size(",
            ".matches(",
            "duration(",
            "optional.none()",
            "[?",
            ".?a",
            "0x",
            "\\",
            "\u{1f451}",
            "\n",
            "//",
            "`a-b`",
            "type(",
            ".sortBy(v,",
            ".format([",
            "cel.",
            "%",
        ]);
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    /// Expressions that parse, of any shape.
    fn expression() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec![
            "x", "x.a", "x.l", "x.s", "1", "'é'", "[1, 2]", "{'a': 1}", "true", "null", "x.?q",
        ]);
        leaf.prop_map(str::to_owned).prop_recursive(6, 64, 3, |inner| {
            let pair = (inner.clone(), inner.clone());
            prop_oneof![
                (pair.clone(), prop::sample::select(vec!["+", "-", "*", "/", "==", "<", "&&", "||", "in"]))
                    .prop_map(|((a, b), operator)| format!("(dyn({a}) {operator} dyn({b}))")),
                (inner.clone(), inner.clone(), inner.clone())
                    .prop_map(|(a, b, c)| format!("(dyn({a}) ? dyn({b}) : dyn({c}))")),
                pair.clone().prop_map(|(a, b)| format!("dyn({a})[dyn({b})]")),
                (pair, prop::sample::select(vec!["all", "exists", "exists_one", "map", "filter"]))
                    .prop_map(|((a, b), name)| format!("dyn({a}).{name}(v, dyn({b}))")),
                (
                    inner,
                    prop::sample::select(vec![
                        "size",
                        "string",
                        "int",
                        "type",
                        "isIP",
                        "quantity",
                        "bytes",
                        "timestamp",
                        "url"
                    ])
                )
                    .prop_map(|(a, name)| format!("{name}(dyn({a}))")),
            ]
        })
    }

    /// A few numbers, and what is none.
    fn double() -> impl Strategy<Value = f64> {
        prop::sample::select(vec![-2.5, -1.0, 0.0, 1.0, 2.5, 1e9, f64::NAN])
    }

    /// Three values of one type that has an order.
    fn alike() -> impl Strategy<Value = [Value<'static>; 3]> {
        let time = (-2..2i64, 0..2u32, -1..2i32);
        let time = time.prop_map(|(seconds, nanos, offset)| time::Timestamp { seconds, nanos, offset });
        prop_oneof![
            prop::array::uniform3(-2..2i64).prop_map(|all| all.map(Value::Int)),
            prop::array::uniform3(0..3u64).prop_map(|all| all.map(Value::Uint)),
            prop::array::uniform3(-2..2i64).prop_map(|all| all.map(Value::Duration)),
            prop::array::uniform3(any::<f64>().prop_filter("a number", |double| !double.is_nan()))
                .prop_map(|all| all.map(Value::Double)),
            prop::array::uniform3("[ab]{0,2}")
                .prop_map(|all| all.map(|text| Value::String(value::Text::Shared(text.into())))),
            prop::array::uniform3(time).prop_map(|all| all.map(Value::Timestamp)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn any_text_is_compiled_or_refused(text in ".{0,200}") {
            let _ = compile(&text, &environment());
        }

        #[test]
        fn any_tokens_are_compiled_or_refused(text in soup()) {
            let _ = eval(&text, &json!({"a": 1}));
        }

        #[test]
        fn any_list_of_doubles_can_be_sorted(list in proptest::collection::vec(double(), 0..100)) {
            let text: Vec<String> = list.iter().map(|double| format!("double('{double}')")).collect();
            let sorted = eval(&format!("[{}].sort()", text.join(", ")), &json!({}));
            prop_assert!(sorted.starts_with('['), "{sorted}");
            let sorted: Vec<f64> = sorted[1..sorted.len() - 1].split(", ").filter_map(|item| item.parse().ok()).collect();
            prop_assert_eq!(sorted.len(), list.len());
            let runs = |list: &[f64]| list.split(|double| double.is_nan()).map(<[f64]>::to_vec).collect::<Vec<_>>();
            for (mut run, sorted) in runs(&list).into_iter().zip(runs(&sorted)) {
                run.sort_by(f64::total_cmp);
                prop_assert_eq!(run, sorted);
            }
        }

        #[test]
        fn values_of_one_type_are_in_a_total_order([a, b, c] in alike()) {
            let order = |a: &Value<'_>, b: &Value<'_>| equal::compare(a, b).unwrap();
            prop_assert_eq!(order(&a, &b), order(&b, &a).reverse());
            if order(&a, &b).is_le() && order(&b, &c).is_le() {
                prop_assert!(order(&a, &c).is_le());
                let equal = order(&a, &b).is_eq() && order(&b, &c).is_eq();
                prop_assert_eq!(order(&a, &c).is_eq(), equal);
            }
        }

        #[test]
        fn any_expression_makes_a_value_or_an_error(text in expression()) {
            let made = eval(&text, &json!({"a": 1, "l": [1, "a", null], "s": "text"}));
            prop_assert!(!made.contains("Syntax error"), "{text}: {made}");
        }
    }
}
