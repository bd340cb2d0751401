//! The JSONPath dialect of printer columns: what `k8s.io/client-go/util/jsonpath` understands of it.
//!
//! Fields (`.spec.size`, with `\.` for a dot in a name), indexes and slices (`[0]`, `[-1]`, `[1:3]`), keys
//! (`['key']`), wildcards, recursive descent (`..name`), unions (`[0,2]`) and filters
//! (`[?(@.type=="Ready")].status`). The template language around it (`range`, `end`) parses and selects
//! nothing, because a column shows one value.
//!
//! Parsing never panics and is bounded in depth: paths come from users.

mod evaluate;
mod parse;

use serde_json::Value;

use crate::codec::go_json;

/// Why a path does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text ends inside an expression.
    #[error("unclosed action")]
    UnclosedAction,
    /// A character that cannot start anything.
    #[error("unrecognized character in action: U+{:04X} '{}'", u32::from(*.0), .0)]
    UnrecognizedCharacter(char),
    /// `....`.
    #[error("invalid multiple recursive descent")]
    RepeatedDescent,
    /// A number that is none.
    #[error("cannot parse number {0}")]
    Number(Box<str>),
    /// `[` without `]`.
    #[error("unterminated array")]
    UnterminatedArray,
    /// Something in brackets that is neither a key, an index nor a slice.
    #[error("invalid array index {0}")]
    ArrayIndex(Box<str>),
    /// An index that is no number.
    #[error("array index {0} is not a number")]
    IndexNumber(Box<str>),
    /// `[?(` without `)`.
    #[error("unterminated filter")]
    UnterminatedFilter,
    /// `[?(…)` without `]`.
    #[error("unclosed array expect ]")]
    UnclosedFilter,
    /// A quote without its partner.
    #[error("unterminated quoted string")]
    UnterminatedQuote,
    /// A bad escape in a quoted string.
    #[error("unquote string {0} error invalid syntax")]
    Unquote(Box<str>),
    /// Expressions inside expressions beyond any use.
    #[error("expression is nested too deeply")]
    TooDeep,
}

/// A parsed path.
#[derive(Clone, Debug)]
pub struct JsonPath {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Text(String),
    Field(String),
    Slice { start: Option<i64>, end: End, step: Option<i64> },
    Filter { left: Vec<Node>, operator: Option<Box<str>>, right: Vec<Node> },
    Int(i64),
    Float(f64),
    Bool(bool),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Node>>),
    Identifier,
}

/// Where a slice ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// A plain index: one element after the start.
    One,
    At(i64),
    Open,
}

impl JsonPath {
    /// Parses a path as a CRD's `additionalPrinterColumns[].jsonPath` has it, without braces.
    pub fn parse(path: &str) -> Result<Self, ParseError> {
        parse::template(&format!("{{{path}}}"), 0).map(|nodes| Self { nodes })
    }

    /// The first value the path selects in `data`; none if it selects nothing or cannot be evaluated.
    pub fn first(&self, data: &Value) -> Option<Value> {
        let found = evaluate::list(&self.nodes, vec![std::borrow::Cow::Borrowed(data)]).ok()?;
        found.into_iter().next().map(std::borrow::Cow::into_owned)
    }
}

/// A value as a column of type `string` shows it: scalars as Go prints them, the rest as JSON.
pub fn print(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => windlass_cel::go::float::general(float),
            _ => number.to_string(),
        },
        Value::Array(_) | Value::Object(_) => {
            let mut out = String::new();
            go_json::write_value(value, &mut out);
            out
        }
    }
}

#[cfg(test)]
mod tests;
