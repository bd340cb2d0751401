//! Label selectors: `app=web,tier in (a,b),!legacy`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Expression, Selector};

use crate::names::{is_label_value, is_qualified};

/// Which labels the objects of a list have: text as `kubectl get -l` takes it, kube's [`Selector`] or
/// [`Expression`], or the [`LabelSelector`] of another object. Made by conversion; what cannot be understood is an
/// error of the list.
///
/// ```
/// use windlass::client::options::{Labels, ListOptions};
///
/// let labels = Labels::from("app=web,tier in (a, b)");
/// assert_eq!(labels.to_string(), "app=web,tier in (a,b)");
/// let options = ListOptions::new().labels(labels);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels(Result<Vec<Requirement>, Misunderstood>);

/// Text that is no selector.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Misunderstood {
    text: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    DoesNotExist,
    Equal(String),
    NotEqual(String),
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl Labels {
    /// Why it is no selector, if it is none.
    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.0 {
            Ok(_) => Ok(()),
            Err(Misunderstood { text, reason }) => Err(format!("label selector {text:?}: {reason}")),
        }
    }

    /// Whether labels are selected.
    pub(crate) fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let value = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        self.0.as_ref().is_ok_and(|all| all.iter().all(|one| one.test.matches(value(&one.key))))
    }

    fn of(text: String, requirements: impl IntoIterator<Item = Result<Requirement, String>>) -> Self {
        let requirements: Result<_, String> = requirements.into_iter().collect();
        Self(requirements.map_err(|reason| Misunderstood { text, reason }))
    }
}

impl Test {
    fn matches(&self, value: Option<&str>) -> bool {
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Equal(wanted) => value == Some(wanted),
            Self::NotEqual(unwanted) => value != Some(unwanted),
            Self::In(wanted) => value.is_some_and(|value| wanted.contains(value)),
            Self::NotIn(unwanted) => value.is_none_or(|value| !unwanted.contains(value)),
            Self::GreaterThan(bound) => integer(value).is_some_and(|value| value > *bound),
            Self::LessThan(bound) => integer(value).is_some_and(|value| value < *bound),
        }
    }
}

fn integer(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(requirements) => {
                for (index, requirement) in requirements.iter().enumerate() {
                    write!(f, "{}{requirement}", if index == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Err(misunderstood) => f.write_str(&misunderstood.text),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list(values: &BTreeSet<String>) -> String {
            values.iter().map(String::as_str).collect::<Vec<_>>().join(",")
        }
        let key = &self.key;
        match &self.test {
            Test::Exists => write!(f, "{key}"),
            Test::DoesNotExist => write!(f, "!{key}"),
            Test::Equal(value) => write!(f, "{key}={value}"),
            Test::NotEqual(value) => write!(f, "{key}!={value}"),
            Test::In(values) => write!(f, "{key} in ({})", list(values)),
            Test::NotIn(values) => write!(f, "{key} notin ({})", list(values)),
            Test::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            Test::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

impl From<&str> for Labels {
    fn from(text: &str) -> Self {
        let parsed = Parser::new(text).selector();
        Self(parsed.map_err(|reason| Misunderstood { text: text.to_owned(), reason }))
    }
}

impl From<String> for Labels {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<Selector> for Labels {
    fn from(selector: Selector) -> Self {
        Self::of(selector.to_string(), selector.into_iter().map(requirement))
    }
}

impl From<Expression> for Labels {
    fn from(expression: Expression) -> Self {
        Self::of(expression.to_string(), [requirement(expression)])
    }
}

impl From<LabelSelector> for Labels {
    fn from(selector: LabelSelector) -> Self {
        let text = || serde_json::to_string(&selector).unwrap_or_default();
        match Selector::try_from(selector.clone()) {
            Ok(selector) => selector.into(),
            Err(error) => Self(Err(Misunderstood { text: text(), reason: error.0 })),
        }
    }
}

impl From<&LabelSelector> for Labels {
    fn from(selector: &LabelSelector) -> Self {
        selector.clone().into()
    }
}

fn requirement(expression: Expression) -> Result<Requirement, String> {
    let (key, test) = match expression {
        Expression::In(key, values) => (key, Test::In(values)),
        Expression::NotIn(key, values) => (key, Test::NotIn(values)),
        Expression::Equal(key, value) => (key, Test::Equal(value)),
        Expression::NotEqual(key, value) => (key, Test::NotEqual(value)),
        Expression::Exists(key) => (key, Test::Exists),
        Expression::DoesNotExist(key) => (key, Test::DoesNotExist),
    };
    checked(key, test)
}

/// A requirement that a server would accept.
fn checked(key: String, test: Test) -> Result<Requirement, String> {
    if !is_qualified(&key) {
        return Err(format!("{key:?} is not the name of a label"));
    }
    let invalid = match &test {
        Test::Equal(value) | Test::NotEqual(value) => Some(value).filter(|value| !is_label_value(value)),
        Test::In(values) | Test::NotIn(values) if values.is_empty() => {
            return Err(format!("no value is given for {key:?}"));
        }
        Test::In(values) | Test::NotIn(values) => values.iter().find(|value| !is_label_value(value)),
        _ => None,
    };
    match invalid {
        Some(value) => Err(format!("{value:?} is not the value of a label")),
        None => Ok(Requirement { key, test }),
    }
}

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

/// Reads a selector token by token; the empty token is the end.
struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Self {
        Self { rest: text.trim_start_matches(SPACES) }
    }

    fn peek(&self) -> &'t str {
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| self.rest.starts_with(symbol)) {
            return &self.rest[..symbol.len()];
        }
        let ends = |letter: char| SPACES.contains(&letter) || "=!(),><".contains(letter);
        &self.rest[..self.rest.find(ends).unwrap_or(self.rest.len())]
    }

    fn take(&mut self) -> &'t str {
        let token = self.peek();
        self.rest = self.rest[token.len()..].trim_start_matches(SPACES);
        token
    }

    fn expected<T>(&self, what: &str) -> Result<T, String> {
        match self.peek() {
            "" => Err(format!("expected {what} at the end")),
            found => Err(format!("expected {what}, found {found:?}")),
        }
    }

    fn word(&mut self) -> Option<&'t str> {
        (!self.peek().is_empty() && !SYMBOLS.contains(&self.peek())).then(|| self.take())
    }

    fn selector(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        if self.peek().is_empty() {
            return Ok(requirements);
        }
        loop {
            requirements.push(self.requirement()?);
            match self.peek() {
                "" => return Ok(requirements),
                "," => self.take(),
                _ => return self.expected("a comma"),
            };
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == "!";
        if absent {
            self.take();
        }
        let Some(key) = self.word() else { return self.expected("the name of a label") };
        let test = match self.peek() {
            _ if absent => Test::DoesNotExist,
            "" | "," => Test::Exists,
            "=" | "==" => Test::Equal(self.operand()?),
            "!=" => Test::NotEqual(self.operand()?),
            ">" => Test::GreaterThan(self.bound()?),
            "<" => Test::LessThan(self.bound()?),
            "in" => Test::In(self.values()?),
            "notin" => Test::NotIn(self.values()?),
            _ => return self.expected("an operator (=, ==, !=, in, notin, >, <)"),
        };
        checked(key.to_owned(), test)
    }

    /// What follows an operator: a value, perhaps the empty one.
    fn operand(&mut self) -> Result<String, String> {
        self.take();
        match self.peek() {
            "" | "," => Ok(String::new()),
            _ => self.word().map(str::to_owned).map_or_else(|| self.expected("a value"), Ok),
        }
    }

    fn bound(&mut self) -> Result<i64, String> {
        let bound = self.operand()?;
        // A sign is no part of a label's value, and the server checks bounds as values.
        let parsed = Some(&bound).filter(|bound| is_label_value(bound)).and_then(|bound| bound.parse().ok());
        parsed.ok_or_else(|| format!("{bound:?} is not an integer of digits alone"))
    }

    /// `(a, b)`; what is left out is the empty value.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        self.take();
        if self.peek() != "(" {
            return self.expected("a list of values in parentheses");
        }
        self.take();
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.word().unwrap_or_default().to_owned());
            match self.peek() {
                "," => self.take(),
                ")" => {
                    self.take();
                    return Ok(values);
                }
                _ => return self.expected("a comma or a closing parenthesis"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn text_selects_as_on_the_server() {
        let labels = labels(&[("env", "prod"), ("tier", "5"), ("none", "")]);
        for yes in [
            "",
            "  ",
            "env",
            "env=prod",
            "env == prod,tier",
            "env in (prod, dev)",
            "!x",
            "x!=1",
            "x notin (a)",
            "tier>4",
            "tier<6",
            "none=",
            "none in ()",
            "none in (a,)",
            "env notin ()",
            "env!=",
            "tier = 5 , ! x",
        ] {
            let selector = Labels::from(yes);
            assert_eq!(selector.check(), Ok(()), "{yes}");
            assert!(selector.matches(Some(&labels)), "{yes}");
        }
        for no in ["!env", "env!=prod", "env in ()", "x", "env=", "tier<5", "tier>5", "env>5", "x>1", "none in (a)"] {
            let selector = Labels::from(no);
            assert_eq!(selector.check(), Ok(()), "{no}");
            assert!(!selector.matches(Some(&labels)), "{no}");
        }
        assert!(Labels::from("!x").matches(None) && !Labels::from("x").matches(None));
    }

    #[test]
    fn errors_say_what_is_not_understood() {
        let check = |text: &str, reason: &str| {
            let selector = Labels::from(text);
            assert_eq!(selector.check(), Err(format!("label selector {text:?}: {reason}")));
            assert!(!selector.matches(None), "{text}");
        };
        check("a,,b", "expected the name of a label, found \",\"");
        check("a,", "expected the name of a label at the end");
        check("=x", "expected the name of a label, found \"=\"");
        check("a=b c", "expected a comma, found \"c\"");
        check("!a=b", "expected a comma, found \"=\"");
        check("t in x", "expected a list of values in parentheses, found \"x\"");
        check("t in (x", "expected a comma or a closing parenthesis at the end");
        check("a gt 5", "expected an operator (=, ==, !=, in, notin, >, <), found \"gt\"");
        check("a=(b)", "expected a value, found \"(\"");
        check("a>b", "\"b\" is not an integer of digits alone");
        check("a<-1", "\"-1\" is not an integer of digits alone");
        check("-a", "\"-a\" is not the name of a label");
        check("a=b/c", "\"b/c\" is not the value of a label");
    }

    #[test]
    fn selectors_of_kube_and_of_objects_are_taken() {
        let selector: Selector = [("env".to_owned(), "prod".to_owned())].into_iter().collect();
        assert_eq!(Labels::from(selector), Labels::from("env=prod"));
        assert_eq!(Labels::from(Expression::DoesNotExist("x".into())), Labels::from("!x"));
        let of_object: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"env": "prod"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
        }))
        .expect("a selector");
        assert_eq!(Labels::from(&of_object).to_string(), "env=prod,tier in (a,b)");
        assert_eq!(Labels::from(LabelSelector::default()), Labels::from(""));
        for bad in [
            serde_json::json!({"matchExpressions": [{"key": "tier", "operator": "Within"}]}),
            serde_json::json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": []}]}),
        ] {
            let bad: LabelSelector = serde_json::from_value(bad).expect("a selector");
            assert!(Labels::from(bad.clone()).check().is_err(), "{bad:?}");
        }
    }

    fn test() -> impl Strategy<Value = Test> {
        let value = || "[a-c]?";
        prop_oneof![
            Just(Test::Exists),
            Just(Test::DoesNotExist),
            value().prop_map(Test::Equal),
            value().prop_map(Test::NotEqual),
            prop::collection::btree_set(value(), 1..4).prop_map(Test::In),
            prop::collection::btree_set(value(), 1..4).prop_map(Test::NotIn),
            (0i64..4).prop_map(Test::GreaterThan),
            (0i64..4).prop_map(Test::LessThan),
        ]
    }

    proptest! {
        /// What is printed is what is sent to servers.
        #[test]
        fn what_is_printed_reads_as_the_same(tests in prop::collection::vec(("[x-z]", test()), 0..5)) {
            let requirements = tests.into_iter().map(|(key, test)| Requirement { key, test }).collect();
            let labels = Labels(Ok(requirements));
            prop_assert_eq!(Labels::from(labels.to_string()), labels);
        }

        #[test]
        fn no_text_is_too_odd_to_be_parsed(text in "[ a-z=!(),<>.0-9-]{0,24}") {
            let labels = Labels::from(text);
            if labels.check().is_ok() {
                prop_assert_eq!(Labels::from(labels.to_string()), labels);
            }
        }

        /// kube matches by code of its own.
        #[test]
        fn kubes_selectors_select_the_same(
            tests in prop::collection::vec(("[x-z]", test()), 0..5),
            known in prop::collection::btree_map("[x-z]", "[a-c]?", 0..4),
        ) {
            use kube::core::SelectorExt;
            let expressions = tests.into_iter().filter_map(|(key, test)| match test {
                Test::Exists => Some(Expression::Exists(key)),
                Test::DoesNotExist => Some(Expression::DoesNotExist(key)),
                Test::Equal(value) => Some(Expression::Equal(key, value)),
                Test::NotEqual(value) => Some(Expression::NotEqual(key, value)),
                Test::In(values) => Some(Expression::In(key, values)),
                Test::NotIn(values) => Some(Expression::NotIn(key, values)),
                Test::GreaterThan(_) | Test::LessThan(_) => None,
            });
            let selector: Selector = expressions.collect();
            let expected = selector.matches(&known);
            prop_assert_eq!(Labels::from(selector.to_string()).matches(Some(&known)), expected);
            prop_assert_eq!(Labels::from(selector).matches(Some(&known)), expected);
        }
    }
}
