//! The part of jq that kwok's stages are written in: paths, pipes, `select`, comparisons, and a few functions.
//!
//! kwok evaluates keys with `gojq`. A query that is not understood is an error when it is parsed, never a wrong answer. A query
//! that fails while it runs has no results, and results that are null count as none, as in kwok's `expression` package.

mod lexer;
mod parser;

use serde_json::{Map, Value};

/// A query that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Query(Expr);

/// Why a text is no query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the query {query:?}: {why}")]
pub struct QueryError {
    query: String,
    why: String,
}

/// What a query is made of.
#[derive(Debug, Clone, PartialEq)]
enum Expr {
    Identity,
    Literal(Value),
    /// What is below a key or an index that is computed.
    Index(Box<Expr>, Box<Expr>),
    /// From one place of a list or a text to another.
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>),
    Iterate(Box<Expr>),
    /// Errors are dropped.
    Try(Box<Expr>),
    Pipe(Box<Expr>, Box<Expr>),
    Comma(Box<Expr>, Box<Expr>),
    Alternative(Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    Arithmetic(char, Box<Expr>, Box<Expr>),
    Negate(Box<Expr>),
    Call(String, Vec<Expr>),
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    Array(Option<Box<Expr>>),
    Object(Vec<(Expr, Expr)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A query that cannot go on.
#[derive(Debug)]
struct Failed;

type Results = Result<Vec<Value>, Failed>;

/// How many results a query may have on the way, so that none runs away.
const LIMIT: usize = 100_000;

impl Query {
    /// Reads a query.
    pub fn parse(query: &str) -> Result<Self, QueryError> {
        let parsed = lexer::tokens(query).and_then(parser::parse);
        parsed.map(Self).map_err(|why| QueryError { query: query.to_owned(), why })
    }

    /// The results that are not null; `None` if it fails.
    pub fn run(&self, input: &Value) -> Option<Vec<Value>> {
        let mut results = self.0.run(input).ok()?;
        results.retain(|value| !value.is_null());
        Some(results)
    }
}

impl Expr {
    fn run(&self, input: &Value) -> Results {
        let results = match self {
            Self::Identity => vec![input.clone()],
            Self::Literal(value) => vec![value.clone()],
            Self::Index(of, key) => {
                let mut results = Vec::new();
                for key in key.run(input)? {
                    for value in of.run(input)? {
                        results.push(index(&value, &key)?);
                    }
                }
                results
            }
            Self::Slice(of, from, to) => {
                let place = |at: &Option<Box<Expr>>| match at {
                    Some(at) => at.run(input)?.first().and_then(Value::as_i64).map(Some).ok_or(Failed),
                    None => Ok(None),
                };
                let (from, to) = (place(from)?, place(to)?);
                of.run(input)?.iter().map(|value| slice(value, from, to)).collect::<Result<_, _>>()?
            }
            Self::Iterate(of) => {
                let mut results = Vec::new();
                for value in of.run(input)? {
                    match value {
                        Value::Array(items) => results.extend(items),
                        Value::Object(fields) => results.extend(fields.into_iter().map(|(_, value)| value)),
                        _ => return Err(Failed),
                    }
                }
                results
            }
            Self::Try(of) => of.run(input).unwrap_or_default(),
            Self::Pipe(first, then) => {
                let mut results = Vec::new();
                for value in first.run(input)? {
                    results.extend(then.run(&value)?);
                    if results.len() > LIMIT {
                        return Err(Failed);
                    }
                }
                results
            }
            Self::Comma(first, second) => {
                let mut results = first.run(input)?;
                results.extend(second.run(input)?);
                results
            }
            Self::Alternative(first, second) => {
                let good: Vec<Value> = first.run(input).unwrap_or_default().into_iter().filter(is_true).collect();
                if good.is_empty() { second.run(input)? } else { good }
            }
            Self::And(left, right) => logic(left, right, input, false)?,
            Self::Or(left, right) => logic(left, right, input, true)?,
            Self::Compare(comparison, left, right) => {
                combine(left, right, input, |left, right| Ok(compare(*comparison, left, right).into()))?
            }
            Self::Arithmetic(operator, left, right) => {
                combine(left, right, input, |left, right| arithmetic(*operator, left, right))?
            }
            Self::Negate(of) => {
                let negated = |value: Value| value.as_f64().map(|number| number_value(-number)).ok_or(Failed);
                of.run(input)?.into_iter().map(negated).collect::<Result<_, _>>()?
            }
            Self::Call(name, arguments) => call(name, arguments, input)?,
            Self::If(condition, then, otherwise) => {
                let mut results = Vec::new();
                for condition in condition.run(input)? {
                    results.extend(if is_true(&condition) { then.run(input)? } else { otherwise.run(input)? });
                }
                results
            }
            Self::Array(items) => match items {
                Some(items) => vec![Value::Array(items.run(input)?)],
                None => vec![Value::Array(Vec::new())],
            },
            Self::Object(fields) => object(fields, input)?,
        };
        if results.len() > LIMIT { Err(Failed) } else { Ok(results) }
    }
}

fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

fn logic(left: &Expr, right: &Expr, input: &Value, decides: bool) -> Results {
    let mut results = Vec::new();
    for left in left.run(input)? {
        if is_true(&left) == decides {
            results.push(decides.into());
        } else {
            results.extend(right.run(input)?.iter().map(|right| Value::Bool(is_true(right))));
        }
    }
    Ok(results)
}

fn combine(
    left: &Expr,
    right: &Expr,
    input: &Value,
    mut with: impl FnMut(&Value, &Value) -> Result<Value, Failed>,
) -> Results {
    let mut results = Vec::new();
    let left = left.run(input)?;
    for right in right.run(input)? {
        for left in &left {
            results.push(with(left, &right)?);
        }
    }
    Ok(results)
}

fn index(value: &Value, key: &Value) -> Result<Value, Failed> {
    Ok(match (value, key) {
        (Value::Null, Value::String(_) | Value::Number(_) | Value::Null) => Value::Null,
        (Value::Object(fields), Value::String(key)) => fields.get(key).cloned().unwrap_or_default(),
        (Value::Array(items), Value::Number(_)) => {
            let at = key.as_f64().ok_or(Failed)?.floor() as i64;
            let at = if at < 0 { at + items.len() as i64 } else { at };
            usize::try_from(at).ok().and_then(|at| items.get(at)).cloned().unwrap_or_default()
        }
        _ => return Err(Failed),
    })
}

fn slice(value: &Value, from: Option<i64>, to: Option<i64>) -> Result<Value, Failed> {
    let range = |length: usize| {
        let place = |at: i64| (if at < 0 { at + length as i64 } else { at }).clamp(0, length as i64) as usize;
        let (from, to) = (from.map_or(0, place), to.map_or(length, place));
        from..to.max(from)
    };
    Ok(match value {
        Value::Null => Value::Null,
        Value::Array(items) => items[range(items.len())].to_vec().into(),
        Value::String(text) => {
            let range = range(text.chars().count());
            text.chars().skip(range.start).take(range.len()).collect::<String>().into()
        }
        _ => return Err(Failed),
    })
}

/// How jq orders values of different types.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(false) => 1,
        Value::Bool(true) => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    }
}

fn order(left: &Value, right: &Value) -> std::cmp::Ordering {
    rank(left).cmp(&rank(right)).then_with(|| match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(std::cmp::Ordering::Equal)
        }
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| order(left, right));
            pairs.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (left, right) => left.to_string().cmp(&right.to_string()),
    })
}

fn compare(comparison: Comparison, left: &Value, right: &Value) -> bool {
    let order = order(left, right);
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

fn number_value(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 { (number as i64).into() } else { number.into() }
}

fn arithmetic(operator: char, left: &Value, right: &Value) -> Result<Value, Failed> {
    Ok(match (operator, left, right) {
        ('+', Value::Null, other) | ('+', other, Value::Null) => other.clone(),
        ('+', Value::String(left), Value::String(right)) => format!("{left}{right}").into(),
        ('+', Value::Array(left), Value::Array(right)) => [left.as_slice(), right].concat().into(),
        ('+', Value::Object(left), Value::Object(right)) => {
            let mut fields = left.clone();
            fields.extend(right.clone());
            fields.into()
        }
        ('-', Value::Array(left), Value::Array(right)) => {
            left.iter().filter(|item| !right.contains(item)).cloned().collect::<Vec<_>>().into()
        }
        (_, Value::Number(_), Value::Number(_)) => {
            let (left, right) = (left.as_f64().ok_or(Failed)?, right.as_f64().ok_or(Failed)?);
            number_value(match operator {
                '+' => left + right,
                '-' => left - right,
                '*' => left * right,
                '/' if right != 0.0 => left / right,
                '%' if right.trunc() != 0.0 => left.trunc() % right.trunc(),
                _ => return Err(Failed),
            })
        }
        _ => return Err(Failed),
    })
}

fn object(fields: &[(Expr, Expr)], input: &Value) -> Results {
    let mut objects = vec![Map::new()];
    for (key, value) in fields {
        let (keys, values) = (key.run(input)?, value.run(input)?);
        let mut next = Vec::new();
        for object in &objects {
            for key in &keys {
                let Value::String(key) = key else { return Err(Failed) };
                for value in &values {
                    let mut object = object.clone();
                    object.insert(key.clone(), value.clone());
                    next.push(object);
                }
            }
        }
        objects = next;
    }
    Ok(objects.into_iter().map(Value::Object).collect())
}

/// The functions that are known, with the number of their arguments.
const FUNCTIONS: &[(&str, usize)] = &[
    ("not", 0),
    ("length", 0),
    ("keys", 0),
    ("values", 0),
    ("empty", 0),
    ("error", 0),
    ("first", 0),
    ("last", 0),
    ("add", 0),
    ("any", 0),
    ("all", 0),
    ("type", 0),
    ("tostring", 0),
    ("tonumber", 0),
    ("ascii_downcase", 0),
    ("ascii_upcase", 0),
    ("to_entries", 0),
    ("sort", 0),
    ("unique", 0),
    ("reverse", 0),
    ("min", 0),
    ("max", 0),
    ("now", 0),
    ("select", 1),
    ("map", 1),
    ("has", 1),
    ("any", 1),
    ("all", 1),
    ("first", 1),
    ("last", 1),
    ("contains", 1),
    ("inside", 1),
    ("startswith", 1),
    ("endswith", 1),
    ("split", 1),
    ("join", 1),
    ("ltrimstr", 1),
    ("rtrimstr", 1),
    ("index", 1),
];

fn call(name: &str, arguments: &[Expr], input: &Value) -> Results {
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(Failed);
    let items = || input.as_array().ok_or(Failed);
    let one = |value: Value| Ok(vec![value]);
    let Some(argument) = arguments.first() else {
        return match name {
            "not" => one((!is_true(input)).into()),
            "length" => one(match input {
                Value::Null => 0.into(),
                Value::Number(number) => number_value(number.as_f64().ok_or(Failed)?.abs()),
                Value::String(text) => text.chars().count().into(),
                Value::Array(items) => items.len().into(),
                Value::Object(fields) => fields.len().into(),
                Value::Bool(_) => return Err(Failed),
            }),
            "keys" => one(match input {
                Value::Object(fields) => {
                    let mut keys: Vec<&String> = fields.keys().collect();
                    keys.sort();
                    keys.into_iter().cloned().collect::<Vec<_>>().into()
                }
                Value::Array(items) => (0..items.len()).collect::<Vec<_>>().into(),
                _ => return Err(Failed),
            }),
            "values" => Ok(if input.is_null() { Vec::new() } else { vec![input.clone()] }),
            "empty" => Ok(Vec::new()),
            "first" => one(index(input, &0.into())?),
            "last" => one(index(input, &(-1).into())?),
            "add" => {
                let mut sum = Value::Null;
                for item in items()? {
                    sum = arithmetic('+', &sum, item)?;
                }
                one(sum)
            }
            "any" => one(items()?.iter().any(is_true).into()),
            "all" => one(items()?.iter().all(is_true).into()),
            "type" => one(match input {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            }
            .into()),
            "tostring" => one(input.as_str().map_or_else(|| input.to_string(), str::to_owned).into()),
            "tonumber" => one(match input {
                Value::Number(_) => input.clone(),
                _ => number_value(text(input)?.trim().parse().map_err(|_| Failed)?),
            }),
            "ascii_downcase" => one(text(input)?.to_ascii_lowercase().into()),
            "ascii_upcase" => one(text(input)?.to_ascii_uppercase().into()),
            "to_entries" => {
                let fields = input.as_object().ok_or(Failed)?;
                one(fields.iter().map(|(key, value)| serde_json::json!({"key": key, "value": value})).collect())
            }
            "sort" | "unique" => {
                let mut items = items()?.clone();
                items.sort_by(order);
                if name == "unique" {
                    items.dedup();
                }
                one(items.into())
            }
            "reverse" => one(items()?.iter().rev().cloned().collect()),
            "min" => one(items()?.iter().min_by(|a, b| order(a, b)).cloned().unwrap_or_default()),
            "max" => one(items()?.iter().max_by(|a, b| order(a, b)).cloned().unwrap_or_default()),
            "now" => one((k8s_openapi::jiff::Timestamp::now().as_millisecond() as f64 / 1_000.0).into()),
            _ => Err(Failed),
        };
    };
    match name {
        "select" => {
            let chosen = argument.run(input)?.iter().filter(|value| is_true(value)).count();
            return Ok(vec![input.clone(); chosen]);
        }
        "map" => {
            let mut results = Vec::new();
            let values: Vec<&Value> = match input {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => return Err(Failed),
            };
            for value in values {
                results.extend(argument.run(value)?);
            }
            return one(results.into());
        }
        "any" | "all" => {
            let mut results = Vec::new();
            for item in items()? {
                results.extend(argument.run(item)?);
            }
            return one(if name == "any" { results.iter().any(is_true) } else { results.iter().all(is_true) }.into());
        }
        "first" => return Ok(argument.run(input)?.into_iter().take(1).collect()),
        "last" => return Ok(argument.run(input)?.pop().into_iter().collect()),
        _ => {}
    }
    let mut results = Vec::new();
    for argument in argument.run(input)? {
        results.push(match name {
            "has" => match (input, &argument) {
                (Value::Object(fields), Value::String(key)) => fields.contains_key(key).into(),
                (Value::Array(items), Value::Number(at)) => {
                    at.as_u64().is_some_and(|at| (at as usize) < items.len()).into()
                }
                _ => return Err(Failed),
            },
            "contains" => contains(input, &argument).into(),
            "inside" => contains(&argument, input).into(),
            "startswith" => text(input)?.starts_with(&text(&argument)?).into(),
            "endswith" => text(input)?.ends_with(&text(&argument)?).into(),
            "ltrimstr" => {
                let (input, prefix) = (text(input)?, text(&argument)?);
                input.strip_prefix(&prefix).unwrap_or(&input).into()
            }
            "rtrimstr" => {
                let (input, suffix) = (text(input)?, text(&argument)?);
                input.strip_suffix(&suffix).unwrap_or(&input).into()
            }
            "split" => text(input)?.split(&text(&argument)?).map(str::to_owned).collect::<Vec<_>>().into(),
            "join" => {
                let words = items()?.iter().map(|item| match item {
                    Value::Null => Ok(String::new()),
                    Value::Array(_) | Value::Object(_) => Err(Failed),
                    item => Ok(item.as_str().map_or_else(|| item.to_string(), str::to_owned)),
                });
                words.collect::<Result<Vec<_>, _>>()?.join(&text(&argument)?).into()
            }
            "index" => match text(input)?.find(&text(&argument)?) {
                Some(at) => at.into(),
                None => Value::Null,
            },
            _ => return Err(Failed),
        });
    }
    Ok(results)
}

fn contains(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::String(value), Value::String(part)) => value.contains(part.as_str()),
        (Value::Array(items), Value::Array(parts)) => {
            parts.iter().all(|part| items.iter().any(|item| contains(item, part)))
        }
        (Value::Object(fields), Value::Object(parts)) => {
            parts.iter().all(|(key, part)| fields.get(key).is_some_and(|field| contains(field, part)))
        }
        (value, part) => order(value, part).is_eq(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(query: &str, expected: impl Into<Option<Value>>) {
        let expected = expected.into();
        let pod = json!({
            "metadata": {
                "name": "web", "labels": {"app": "web", "a.b/c": "x"},
                "ownerReferences": [{"kind": "Job"}, {"kind": "Other"}],
            },
            "spec": {"replicas": 3, "hostNetwork": true},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "False"}],
            },
        });
        let results = Query::parse(query).expect("a query").run(&pod).map(Value::Array);
        assert_eq!(results, expected, "{query}");
    }

    #[test]
    fn kwoks_own_keys_are_understood() {
        check(".status.phase", Some(json!(["Running"])));
        check(".metadata.deletionTimestamp", Some(json!([])));
        check(".metadata.labels[\"a.b/c\"]", Some(json!(["x"])));
        check(".metadata.annotations[\"a.b/c\"]", Some(json!([])));
        check(".status.conditions.[] | select( .type == \"Ready\" ) | .status", Some(json!(["True"])));
        check(".metadata.ownerReferences.[].kind", Some(json!(["Job", "Other"])));
        // Iterating over nothing fails, and a failure is no result.
        check(".status.containerStatuses.[].state.running.startedAt", None);
        check(".status.containerStatuses.[]?.state", Some(json!([])));
    }

    #[test]
    fn the_rest_of_the_language_is_jqs() {
        check(".status.conditions | length", Some(json!([2])));
        check(".status.conditions | map(.type)", Some(json!([["Ready", "Initialized"]])));
        check(".metadata.labels | keys", Some(json!([["a.b/c", "app"]])));
        check(".spec.replicas > 2 and .spec.hostNetwork", Some(json!([true])));
        check(".spec.nothing // \"default\"", Some(json!(["default"])));
        check("if .spec.replicas == 3 then \"three\" else \"other\" end", Some(json!(["three"])));
        check(".spec.replicas * 2 + 1", Some(json!([7])));
        check("[.metadata.name, .status.phase] | join(\"-\")", Some(json!(["web-Running"])));
        check("{name: .metadata.name, (.status.phase): 1}", Some(json!([{"name": "web", "Running": 1}])));
        check(".status.conditions[0].type, .status.conditions[-1].type", Some(json!(["Ready", "Initialized"])));
        check(".status.conditions | any(.status == \"False\")", Some(json!([true])));
        check(".metadata | has(\"labels\")", Some(json!([true])));
        check(".metadata.name | startswith(\"w\") | not", Some(json!([false])));
        check(".metadata.name[1:]", Some(json!(["eb"])));
        check(".metadata.\"name\"", Some(json!(["web"])));
        check(".spec.replicas.x", None);
        check("-1 - -2", Some(json!([1])));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for query in ["", ".a |", "reduce .[] as $x (0; . + $x)", "nonsense", ".a == ", "select()", "(.a", ".[", "\"a"]
        {
            assert!(Query::parse(query).is_err(), "{query}");
        }
    }

    /// Values of every kind, few enough that many are equal.
    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-2_i64..3).prop_map(Value::from),
            prop_oneof![Just(1.5), Just(1e300), Just(-0.0)].prop_map(Value::from),
            Just(Value::from(u64::MAX)),
            "[ab]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                prop::collection::btree_map("[ab]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_order_of_values_is_total(a in values(), b in values(), c in values()) {
            prop_assert_eq!(order(&a, &b), order(&b, &a).reverse());
            prop_assert!(order(&a, &a).is_eq());
            if order(&a, &b).is_le() && order(&b, &c).is_le() {
                prop_assert!(order(&a, &c).is_le());
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[.a-c\\[\\]()|,=<>/\"0-9 +-]{0,40}") {
            if let Ok(query) = Query::parse(&text) {
                let _ = query.run(&json!({"a": [1, {"b": "c"}], "b": null}));
            }
        }
    }
}
