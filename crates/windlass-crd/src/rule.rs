//! Rules in the Common Expression Language: `x-kubernetes-validations`.

use schemars::Schema;
use schemars::transform::Transform;
use serde_json::{Map, Value};

/// A rule that the API server checks whenever an object is written: `+kubebuilder:validation:XValidation`.
///
/// `#[x_kube(validation = ...)]` of `kube` does the same for fields of structs that derive `KubeSchema`; this works on
/// every field and type, and within [`items`](crate::items).
///
/// ```
/// use windlass_crd::rule;
///
/// #[derive(schemars::JsonSchema)]
/// #[schemars(transform = rule("self.low <= self.high").message("low must not exceed high").field_path(".low"))]
/// struct Range {
///     low: i32,
///     high: i32,
/// }
/// # let schema = windlass_crd::schema::<Range>().to_value();
/// # assert_eq!(schema["x-kubernetes-validations"][0]["fieldPath"], ".low");
/// ```
pub fn rule(expression: impl Into<String>) -> Rule {
    Rule(Map::from_iter([("rule".to_string(), Value::String(expression.into()))]))
}

/// See [`rule`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Rule(Map<String, Value>);

impl Rule {
    /// What the API server answers when the rule does not hold.
    pub fn message(self, message: impl Into<String>) -> Self {
        self.with("message", message.into())
    }

    /// An expression that gives the message. It takes precedence over [`message`](Self::message).
    pub fn message_expression(self, expression: impl Into<String>) -> Self {
        self.with("messageExpression", expression.into())
    }

    /// `FieldValueInvalid`, which is the default, `FieldValueForbidden`, `FieldValueRequired` or `FieldValueDuplicate`.
    pub fn reason(self, reason: impl Into<String>) -> Self {
        self.with("reason", reason.into())
    }

    /// The field that the message is about, relative to the one that has the rule.
    pub fn field_path(self, path: impl Into<String>) -> Self {
        self.with("fieldPath", path.into())
    }

    /// The rule is checked on creation as well, and `oldSelf` is an optional value.
    pub fn optional_old_self(self) -> Self {
        self.with("optionalOldSelf", true)
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_string(), value.into());
        self
    }

    /// The rule as definitions have it.
    pub(crate) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

impl Transform for Rule {
    fn transform(&mut self, schema: &mut Schema) {
        add(schema.ensure_object(), self.clone().into_value());
    }
}

/// Adds a rule to those that the schema has.
pub(crate) fn add(schema: &mut Map<String, Value>, rule: Value) {
    let rules = schema.entry("x-kubernetes-validations").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(rules) = rules {
        rules.push(rule);
    }
}
