//! The `LabelSelector` type: checking it, and matching labels with it.
//!
//! Selectors in query strings have their own syntax and are not this module's business; both end as
//! a list of [`Requirement`]s.

use std::fmt;

use serde_json::Value;

use super::access::{Access, in_order};
use super::{metadata, names, values};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};

/// Go's order of a selector's fields.
const FIELDS: &[&str] = &["matchLabels", "matchExpressions", "key", "operator", "values"];

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label is there with one of the values.
    In,
    /// The label is absent or has another value.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// The values of `In` and `NotIn`, sorted.
    pub values: Vec<String>,
}

/// A selector: all requirements must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// An absent selector, which selects nothing.
    Nothing,
    /// The conjunction of requirements; none selects everything.
    All(Vec<Requirement>),
}

impl Selector {
    /// The selector a `LabelSelector` object means; `None` where an operator or value is not valid.
    pub fn from_object(selector: &Value) -> Option<Self> {
        if selector.is_null() {
            return Some(Self::Nothing);
        }
        let mut all = Vec::new();
        for (key, value) in selector.text_entries("matchLabels") {
            if !names::qualified_name(key).is_empty() || !names::label_value(value).is_empty() {
                return None;
            }
            all.push(Requirement { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] });
        }
        for expression in selector.list("matchExpressions") {
            all.push(requirement(expression)?);
        }
        all.sort_by(|a, b| a.key.cmp(&b.key));
        Some(Self::All(all))
    }

    /// The selector of a map of labels that must all be equal: `spec.selector` of a
    /// ReplicationController or a Service.
    pub fn from_labels(labels: &Value) -> Self {
        let one = |(key, value): (&String, &Value)| Requirement {
            key: key.clone(),
            operator: Operator::In,
            values: vec![value.as_str().unwrap_or_default().to_owned()],
        };
        Self::All(labels.as_object().into_iter().flatten().map(one).collect())
    }

    /// Whether labels (a map of strings, or null) are selected.
    pub fn matches(&self, labels: &Value) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|r| r.matches(labels.text_opt(&r.key))),
        }
    }

    /// Whether every object is selected.
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }
}

impl fmt::Display for Selector {
    /// The form a query string takes: `a=b,c in (d,e),!f`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::All(requirements) = self else { return Ok(()) };
        for (i, requirement) in requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let listed = value.is_some_and(|value| self.values.iter().any(|v| v == value));
        match self.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.operator, self.values.as_slice()) {
            (Operator::In, [value]) => write!(f, "{}={value}", self.key),
            (Operator::In, values) => write!(f, "{} in ({})", self.key, values.join(",")),
            (Operator::NotIn, values) => write!(f, "{} notin ({})", self.key, values.join(",")),
            (Operator::Exists, _) => f.write_str(&self.key),
            (Operator::DoesNotExist, _) => write!(f, "!{}", self.key),
        }
    }
}

fn requirement(expression: &Value) -> Option<Requirement> {
    let operator = match expression.text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    let key = expression.text("key");
    let mut values: Vec<String> = expression.texts("values").into_iter().map(str::to_owned).collect();
    values.sort_unstable();
    let needs_values = matches!(operator, Operator::In | Operator::NotIn);
    let valid = names::qualified_name(key).is_empty()
        && needs_values != values.is_empty()
        && values.iter().all(|value| names::label_value(value).is_empty());
    valid.then(|| Requirement { key: key.to_owned(), operator, values })
}

/// Checks a `LabelSelector`. An absent one is fine here.
pub fn validate(selector: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    metadata::labels(selector, "matchLabels", path, errors);
    let path = path.child("matchExpressions");
    for (i, expression) in selector.list("matchExpressions").iter().enumerate() {
        validate_requirement(expression, &path.index(i), errors);
    }
}

fn validate_requirement(expression: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let listed = expression.list("values");
    match expression.text("operator") {
        "In" | "NotIn" => {
            if listed.is_empty() {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(&path.child("values"), detail));
            }
        }
        "Exists" | "DoesNotExist" => {
            if !listed.is_empty() {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(&path.child("values"), detail));
            }
        }
        other => errors.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator")),
    }
    let key = expression.text("key");
    values::invalid_for_each(&path.child("key"), key, names::qualified_name(key), errors);
    let path = path.child("values");
    for (i, value) in expression.texts("values").into_iter().enumerate() {
        values::invalid_for_each(&path.index(i), value, names::label_value(value), errors);
    }
}

/// A selector as Go prints it in an error.
pub fn shown(selector: &Value) -> String {
    in_order(selector, FIELDS)
}

/// `Invalid value: <selector>: <detail>`.
pub fn invalid(selector: &Value, path: &Path<'_>, detail: &str) -> FieldError {
    FieldError::shown(ErrorKind::Invalid, path, shown(selector), detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_match_labels() {
        let selector = Selector::from_object(&json!({"matchLabels": {"app": "a"}, "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["x", "b"]}, {"key": "z", "operator": "DoesNotExist"}]}))
        .expect("a valid selector");
        assert_eq!(selector.to_string(), "app=a,tier notin (b,x),!z");
        assert!(selector.matches(&json!({"app": "a"})));
        assert!(selector.matches(&json!({"app": "a", "tier": "y"})));
        assert!(!selector.matches(&json!({"app": "a", "tier": "x"})));
        assert!(!selector.matches(&json!({"app": "a", "z": ""})));
        assert!(!selector.matches(&Value::Null));
        assert!(!Selector::Nothing.matches(&json!({})));
        assert!(Selector::from_object(&json!({})).expect("valid").matches(&Value::Null));
        assert_eq!(Selector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "Like"}]})), None);
    }

    #[test]
    fn violations_name_the_requirement() {
        let check = |selector: Value, expected: &str| {
            let mut errors = FieldErrors::default();
            validate(&selector, &Path::new("spec").child("selector"), &mut errors);
            assert_eq!(errors.to_string(), expected);
        };
        check(
            json!({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["a"]}]}),
            r#"spec.selector.matchExpressions[0].operator: Invalid value: "Like": not a valid selector operator"#,
        );
        check(
            json!({"matchExpressions": [{"key": "app", "operator": "In"}]}),
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or \
             'NotIn'",
        );
    }
}
