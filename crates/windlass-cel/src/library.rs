//! What the functions compute: operators, conversions, cel-go's extensions and Kubernetes' libraries.
//!
//! A function gets its arguments evaluated. Types were checked before, but where the check saw `dyn`
//! anything can come: each function looks at what it got and refuses what it has no overload for.

use std::sync::Arc;

use super::ast::Const;
use super::meter::Meter;
use super::time::Timestamp;
use super::value::{Error, List, Outcome, Text, Value};
use crate::pattern::Machine;

pub(super) mod convert;
pub(super) mod format_string;
mod ip;
mod lists;
mod named_format;
mod operators;
mod optional;
mod quantity;
mod regex;
mod semver;
mod strings;
mod times;
mod url;

/// A function.
pub(super) type Builtin = for<'a> fn(&mut Context<'_>, &[Value<'a>]) -> Outcome<'a>;

/// What a function may use besides its arguments.
pub(super) struct Context<'c> {
    /// The function's name.
    pub(super) function: &'static str,
    /// The overload's id; empty if several are possible.
    pub(super) overload: &'static str,
    pub(super) meter: &'c mut Meter,
    /// The pattern, if it is known.
    pub(super) regex: Option<&'c Arc<Machine>>,
}

/// A value that is known when the expression is compiled.
#[derive(Clone, Debug)]
pub(super) enum Fixed {
    Const(Const),
    Timestamp(Timestamp),
    Duration(i64),
    Type(Box<str>),
    List(Vec<Fixed>),
    Map(Vec<(Fixed, Fixed)>),
}

/// The largest string or list an expression may make.
const MAX_TEXT: usize = 16 * 1024 * 1024;
const MAX_ITEMS: usize = 1_000_000;

/// What computes the function `name`.
pub(super) fn find(name: &str) -> Option<Builtin> {
    operators::find(name)
        .or_else(|| convert::find(name))
        .or_else(|| strings::find(name))
        .or_else(|| lists::find(name))
        .or_else(|| optional::find(name))
        .or_else(|| times::find(name))
        .or_else(|| kubernetes(name))
}

fn kubernetes(name: &str) -> Option<Builtin> {
    regex::find(name)
        .or_else(|| url::find(name))
        .or_else(|| quantity::find(name))
        .or_else(|| ip::find(name))
        .or_else(|| named_format::find(name))
        .or_else(|| semver::find(name))
        .or_else(|| foreign(name))
}

/// Methods of values from outside.
fn foreign(name: &str) -> Option<Builtin> {
    matches!(
        name,
        "path"
            | "group"
            | "serviceAccount"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "check"
            | "allowed"
            | "reason"
            | "errored"
            | "error"
            | "fieldSelector"
            | "labelSelector"
    )
    .then_some(|context, args| match args {
        [Value::Foreign(value), rest @ ..] => {
            value.call(context.function, rest).unwrap_or_else(|| Err(no_overload(context, args)))
        }
        _ => Err(no_overload(context, args)),
    })
}

/// No overload takes these arguments.
fn no_overload(context: &Context<'_>, args: &[Value<'_>]) -> Error {
    let types: Vec<&str> = args.iter().map(Value::type_name).collect();
    Error::new(format!("no such overload: {}({})", context.function, types.join(", ")))
}

/// A new string, if it is not too long.
fn text<'a>(context: &mut Context<'_>, text: String) -> Outcome<'a> {
    if text.len() > MAX_TEXT {
        return Err(Error::Exhausted);
    }
    context.meter.work(text.len() / 16)?;
    Ok(Value::text(text))
}

/// A new list, if it is not too long.
fn list<'a>(context: &mut Context<'_>, items: Vec<Value<'a>>) -> Outcome<'a> {
    if items.len() > MAX_ITEMS {
        return Err(Error::Exhausted);
    }
    context.meter.work(items.len())?;
    Ok(Value::list(items))
}

/// All items of a list.
fn items<'a>(context: &mut Context<'_>, list: &List<'a>) -> Result<Vec<Value<'a>>, Error> {
    if list.len() > MAX_ITEMS {
        return Err(Error::Exhausted);
    }
    context.meter.work(list.len())?;
    list.iter()
        .map(|item| {
            let item = item?;
            context.meter.decoded(&item)?;
            Ok(item)
        })
        .collect()
}

fn strings<'a>(context: &mut Context<'_>, texts: Vec<String>) -> Outcome<'a> {
    let total: usize = texts.iter().map(String::len).sum();
    if total > MAX_TEXT {
        return Err(Error::Exhausted);
    }
    list(context, texts.into_iter().map(Value::text).collect())
}

/// A part of a text, without copying it if it is borrowed.
fn part<'a>(text: &Text<'a>, start: usize, end: usize) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::String(Text::Borrowed(&text[start..end])),
        Text::Shared(text) => Value::text(&text[start..end]),
    }
}
