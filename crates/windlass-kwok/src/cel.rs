//! The part of CEL that kwok's objects are written in: conditions of stages, and what resources pods use.
//!
//! Expressions are not checked before they run: a function or a field that does not exist is an error when it is reached.
//! Values are JSON, and besides them times, durations and quantities, as in kwok's `cel` package. What is around an
//! expression is a [`Scope`].

mod functions;
mod lexer;
mod parser;

pub(crate) use functions::go_duration;

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use windlass::quantity::Amount;

/// Reads an amount such as `100m` or `1.5Gi`.
pub(crate) fn parse_quantity(text: &str) -> Option<f64> {
    text.parse::<Amount>().ok().map(Amount::as_f64)
}

/// An expression that can be evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct Program(Expr);

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the expression {expression:?}: {why}")]
pub struct CelError {
    expression: String,
    why: String,
}

/// What an expression can refer to.
pub trait Scope {
    /// The value of a variable.
    fn variable(&self, name: &str) -> Option<&Value>;

    /// The time.
    fn now(&self) -> Timestamp;

    /// A number from 0 to below 1.
    fn random(&self) -> f64;

    /// Whether objects have types, so that fields that are not set are null instead of an error.
    fn is_typed(&self) -> bool {
        false
    }

    /// The result of a function or a method of the surroundings; `None` if there is none of this name.
    fn call(&self, name: &str, of: Option<&Value>, arguments: &[Value]) -> Option<Result<f64, String>> {
        let _ = (name, of, arguments);
        None
    }
}

/// A value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Val<'a> {
    /// Null, a boolean, a number, a text, a list or a map.
    Json(Cow<'a, Value>),
    /// An amount of a resource.
    Quantity(f64),
    /// Amounts by the names of resources.
    Resources(Cow<'a, Value>),
    /// A point in time.
    Time(Timestamp),
    /// A time span.
    Duration(SignedDuration),
}

/// What an expression is made of.
#[derive(Debug, Clone, PartialEq)]
enum Expr {
    Literal(Value),
    Variable(String),
    List(Vec<Expr>),
    Map(Vec<(Expr, Expr)>),
    Field(Box<Expr>, String),
    Has(Box<Expr>, String),
    Index(Box<Expr>, Box<Expr>),
    /// A function, or a method of a value.
    Call(Option<Box<Expr>>, String, Vec<Expr>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A macro: what, over which list or map, the name of an element, and an expression about it.
    Each(Comprehension, Box<Expr>, String, Box<Expr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binary {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comprehension {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

/// How many words an expression may have.
const WORDS: usize = 1_000;
/// How many steps an evaluation may take, so that none runs away.
const STEPS: u32 = 100_000;

/// The fields whose values are amounts of resources.
const RESOURCES: [&str; 5] = ["limits", "requests", "capacity", "allocatable", "overhead"];

impl Program {
    /// Reads an expression.
    pub fn parse(expression: &str) -> Result<Self, CelError> {
        let parsed = lexer::tokens(expression).and_then(|tokens| {
            if tokens.len() > WORDS {
                return Err(format!("it has more than {WORDS} words"));
            }
            parser::parse(tokens)
        });
        parsed.map(Self).map_err(|why| CelError { expression: expression.to_owned(), why })
    }

    /// Its value.
    pub fn evaluate<'a>(&'a self, scope: &'a dyn Scope) -> Result<Val<'a>, String> {
        Evaluation { scope, steps: Cell::new(0) }.value(&self.0, None)
    }

    /// Whether it holds; an error is no.
    pub fn holds(&self, scope: &dyn Scope) -> bool {
        self.evaluate(scope).is_ok_and(|value| value.as_bool() == Some(true))
    }
}

/// The variable of a macro, and those around it.
struct Local<'a, 'l> {
    name: &'l str,
    value: Val<'a>,
    outer: Option<&'l Local<'a, 'l>>,
}

struct Evaluation<'a> {
    scope: &'a dyn Scope,
    steps: Cell<u32>,
}

type Found<'a> = Result<Val<'a>, String>;

impl<'a> Evaluation<'a> {
    fn value(&self, expression: &'a Expr, local: Option<&Local<'a, '_>>) -> Found<'a> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS {
            return Err("it takes too many steps".to_owned());
        }
        match expression {
            Expr::Literal(value) => Ok(Val::Json(Cow::Borrowed(value))),
            Expr::Variable(name) => self.variable(name, local),
            Expr::List(items) => {
                let items = items.iter().map(|item| self.json(item, local)).collect::<Result<Vec<_>, _>>()?;
                Ok(Val::from(Value::Array(items)))
            }
            Expr::Map(entries) => {
                let mut map = Map::new();
                for (key, value) in entries {
                    let key = self.json(key, local)?;
                    let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                    map.insert(key, self.json(value, local)?);
                }
                Ok(Val::from(Value::Object(map)))
            }
            Expr::Field(of, name) => self.field(self.value(of, local)?, name),
            Expr::Has(of, name) => {
                let of = self.value(of, local)?;
                Ok(Val::from(Value::Bool(has(&of, name))))
            }
            Expr::Index(of, index) => self.index(self.value(of, local)?, &self.json(index, local)?),
            Expr::Call(of, name, arguments) => self.call(of.as_deref(), name, arguments, local),
            Expr::Not(of) => match self.value(of, local)?.as_bool() {
                Some(value) => Ok(Val::from(Value::Bool(!value))),
                None => Err("no such overload: !".to_owned()),
            },
            Expr::Negate(of) => functions::negate(&self.value(of, local)?),
            Expr::Binary(Binary::And, left, right) => self.logic(false, left, right, local),
            Expr::Binary(Binary::Or, left, right) => self.logic(true, left, right, local),
            Expr::Binary(operator, left, right) => {
                functions::binary(*operator, &self.value(left, local)?, &self.value(right, local)?)
            }
            Expr::If(condition, then, otherwise) => match self.value(condition, local)?.as_bool() {
                Some(true) => self.value(then, local),
                Some(false) => self.value(otherwise, local),
                None => Err("no such overload: ?:".to_owned()),
            },
            Expr::Each(kind, of, name, body) => self.each(*kind, of, name, body, local),
        }
    }

    /// A value that a list, a map or a function can have.
    fn json(&self, expression: &'a Expr, local: Option<&Local<'a, '_>>) -> Result<Value, String> {
        Ok(self.value(expression, local)?.into_json())
    }

    fn variable(&self, name: &str, local: Option<&Local<'a, '_>>) -> Found<'a> {
        let mut at = local;
        while let Some(local) = at {
            if local.name == name {
                return Ok(local.value.clone());
            }
            at = local.outer;
        }
        let value = self.scope.variable(name).ok_or_else(|| format!("undeclared reference to '{name}'"))?;
        Ok(Val::Json(Cow::Borrowed(value)))
    }

    fn missing(&self, name: &str) -> Found<'a> {
        if self.scope.is_typed() { Ok(Val::from(Value::Null)) } else { Err(format!("no such key: {name}")) }
    }

    fn field(&self, of: Val<'a>, name: &str) -> Found<'a> {
        let found = match of {
            Val::Json(Cow::Borrowed(value)) => value.get(name).map(Cow::Borrowed),
            Val::Json(Cow::Owned(mut value)) => value.get_mut(name).map(|value| Cow::Owned(value.take())),
            Val::Resources(resources) => return amount(&resources, name),
            _ => return Err(format!("no such overload: .{name}")),
        };
        match found {
            Some(value) if RESOURCES.contains(&name) && value.is_object() => Ok(Val::Resources(value)),
            Some(value) => Ok(Val::Json(value)),
            None => self.missing(name),
        }
    }

    fn index(&self, of: Val<'a>, index: &Value) -> Found<'a> {
        match index {
            Value::String(name) => match of {
                Val::Resources(resources) => amount(&resources, name),
                of => self.field(of, name),
            },
            Value::Number(number) => {
                let at = number.as_u64().and_then(|at| usize::try_from(at).ok());
                let out = || format!("index out of bounds: {number}");
                let at = at.ok_or_else(out)?;
                let item = match of {
                    Val::Json(Cow::Borrowed(value)) => value.get(at).map(Cow::Borrowed),
                    Val::Json(Cow::Owned(mut value)) => value.get_mut(at).map(|value| Cow::Owned(value.take())),
                    _ => None,
                };
                item.map(Val::Json).ok_or_else(out)
            }
            _ => Err("no such overload: []".to_owned()),
        }
    }

    /// `&&` and `||`: what decides on one side makes an error on the other side irrelevant.
    fn logic(&self, decisive: bool, left: &'a Expr, right: &'a Expr, local: Option<&Local<'a, '_>>) -> Found<'a> {
        let side = |expression| {
            let value = self.value(expression, local)?.as_bool();
            value.ok_or_else(|| "no such overload: a boolean is needed".to_owned())
        };
        let left = side(left);
        if left == Ok(decisive) {
            return Ok(Val::from(Value::Bool(decisive)));
        }
        let right = side(right);
        if right == Ok(decisive) {
            return Ok(Val::from(Value::Bool(decisive)));
        }
        left.and(right).map(|value| Val::from(Value::Bool(value)))
    }

    fn each(
        &self,
        kind: Comprehension,
        of: &'a Expr,
        name: &str,
        body: &'a Expr,
        outer: Option<&Local<'a, '_>>,
    ) -> Found<'a> {
        let items = match self.value(of, outer)?.into_json() {
            Value::Array(items) => items,
            Value::Object(map) => map.into_iter().map(|(key, _)| Value::String(key)).collect(),
            Value::Null if self.scope.is_typed() => Vec::new(),
            _ => return Err("only lists and maps have elements".to_owned()),
        };
        let (mut kept, mut count, mut failed) = (Vec::new(), 0, None);
        for item in items {
            let local = Local { name, value: Val::from(item), outer };
            let found = self.value(body, Some(&local));
            if kind == Comprehension::Map {
                kept.push(found?.into_json());
                continue;
            }
            let holds = found.and_then(|value| value.as_bool().ok_or_else(|| "a boolean is needed".to_owned()));
            match (kind, holds) {
                (Comprehension::All, Ok(false)) => return Ok(Val::from(Value::Bool(false))),
                (Comprehension::Exists, Ok(true)) => return Ok(Val::from(Value::Bool(true))),
                (Comprehension::Filter, Ok(true)) => kept.push(local.value.into_json()),
                (Comprehension::ExistsOne, Ok(true)) => count += 1,
                (_, Ok(_)) => {}
                (Comprehension::Filter | Comprehension::ExistsOne, Err(why)) => return Err(why),
                (_, Err(why)) => failed = Some(why),
            }
        }
        match (kind, failed) {
            (_, Some(why)) => Err(why),
            (Comprehension::Filter | Comprehension::Map, None) => Ok(Val::from(Value::Array(kept))),
            (kind, None) => {
                let holds = kind == Comprehension::All || (kind == Comprehension::ExistsOne && count == 1);
                Ok(Val::from(Value::Bool(holds)))
            }
        }
    }

    fn call(
        &self,
        of: Option<&'a Expr>,
        name: &str,
        arguments: &'a [Expr],
        local: Option<&Local<'a, '_>>,
    ) -> Found<'a> {
        let of = of.map(|of| self.value(of, local)).transpose()?;
        let mut values = Vec::with_capacity(arguments.len() + 1);
        for argument in arguments {
            values.push(self.value(argument, local)?);
        }
        let is_plain = values.iter().all(|value| matches!(value, Val::Json(_)));
        if is_plain && let None | Some(Val::Json(_)) = &of {
            let arguments: Vec<Value> = values.iter().map(|value| value.clone().into_json()).collect();
            let receiver = of.as_ref().and_then(Val::as_json);
            if let Some(result) = self.scope.call(name, receiver, &arguments) {
                return result.map(|number| Val::from(Value::from(number)));
            }
        }
        functions::call(self.scope, name, of, values)
    }
}

fn has(of: &Val<'_>, name: &str) -> bool {
    match of {
        Val::Json(value) | Val::Resources(value) => !value[name].is_null(),
        _ => false,
    }
}

impl From<Value> for Val<'_> {
    fn from(value: Value) -> Self {
        Self::Json(Cow::Owned(value))
    }
}

/// An amount; none is 0, as in kwok.
fn amount(resources: &Value, name: &str) -> Found<'static> {
    match &resources[name] {
        Value::Null => Ok(Val::Quantity(0.0)),
        Value::String(text) => parse_quantity(text).map(Val::Quantity).ok_or_else(|| format!("{text} is no quantity")),
        Value::Number(number) => Ok(Val::Quantity(number.as_f64().unwrap_or(0.0))),
        other => Err(format!("{other} is no quantity")),
    }
}

impl Val<'_> {
    fn as_json(&self) -> Option<&Value> {
        match self {
            Self::Json(value) => Some(value),
            _ => None,
        }
    }

    fn as_bool(&self) -> Option<bool> {
        self.as_json().and_then(Value::as_bool)
    }

    /// As a number that is not whole.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Json(value) => match &**value {
                Value::Number(number) => number.as_f64(),
                Value::Bool(value) => Some(f64::from(u8::from(*value))),
                _ => None,
            },
            Self::Quantity(amount) => Some(*amount),
            Self::Duration(duration) => Some(duration.as_nanos() as f64),
            Self::Time(_) | Self::Resources(_) => None,
        }
    }

    /// As a time span; numbers are nanoseconds, as Go has them.
    pub fn as_duration(&self) -> Option<SignedDuration> {
        match self {
            Self::Duration(duration) => Some(*duration),
            Self::Json(value) => match &**value {
                Value::String(text) => functions::duration(text),
                Value::Number(number) => {
                    number.as_f64().map(|nanoseconds| SignedDuration::from_nanos(nanoseconds as i64))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// As a text.
    pub fn as_str(&self) -> Option<&str> {
        self.as_json().and_then(Value::as_str)
    }

    fn into_json(self) -> Value {
        match self {
            Self::Json(value) | Self::Resources(value) => value.into_owned(),
            Self::Quantity(amount) => amount.into(),
            Self::Time(time) => time.to_string().into(),
            Self::Duration(duration) => format!("{}s", duration.as_secs_f64()).into(),
        }
    }

    fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Time(left), Self::Time(right)) => Some(left.cmp(right)),
            (Self::Duration(left), Self::Duration(right)) => Some(left.cmp(right)),
            (Self::Json(left), Self::Json(right)) => match (&**left, &**right) {
                (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
                (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
                (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                    (Some(left), Some(right)) => Some(left.cmp(&right)),
                    _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
                },
                _ => None,
            },
            (Self::Quantity(left), Self::Quantity(right)) => left.partial_cmp(right),
            _ => None,
        }
    }

    fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Json(left), Self::Json(right)) => same(left, right),
            (left, right) => left.compare(right) == Some(Ordering::Equal),
        }
    }
}

/// Equality of JSON values, where `1` and `1.0` are the same.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left == right,
            _ => left.as_f64() == right.as_f64(),
        },
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        _ => left == right,
    }
}

#[cfg(test)]
mod tests;
