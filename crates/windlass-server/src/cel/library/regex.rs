//! `matches`, `find` and `findAll`.

use std::sync::Arc;

use super::{Builtin, MAX_ITEMS, Value, list, no_overload, part};
use crate::cel::eval::Context;
use crate::cel::value::{Error, Outcome};
use crate::schema::pattern::{Machine, TooLong};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "matches" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let machine = compiled(context, pattern)?.map_err(Error::new)?;
                let matches = machine.is_match(text, &mut |time| context.meter.matched(time));
                Ok(Value::Bool(matches.map_err(exhausted)?))
            }
            _ => Err(Error::no_overload()),
        },
        "find" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let machine = compiled(context, pattern)?.map_err(illegal)?;
                let found = machine.find(text, 0, &mut |time| context.meter.matched(time));
                Ok(match found.map_err(exhausted)? {
                    Some(found) => part(text, found.start, found.end),
                    None => Value::text(""),
                })
            }
            _ => Err(no_overload(context, args)),
        },
        "findAll" => find_all,
        _ => return None,
    })
}

fn illegal(problem: impl std::fmt::Display) -> Error {
    Error::new(format!("Illegal regex: {problem}"))
}

fn exhausted(_: TooLong) -> Error {
    Error::Exhausted
}

fn compiled(context: &mut Context<'_>, pattern: &str) -> Result<Result<Arc<Machine>, String>, Error> {
    match context.regex {
        Some(machine) => Ok(Ok(Arc::clone(machine))),
        None => context.meter.regex(pattern),
    }
}

fn find_all<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => (text, pattern, *limit),
        _ => return Err(no_overload(context, args)),
    };
    let machine = compiled(context, pattern)?.map_err(illegal)?;
    context.meter.work(text.len())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(MAX_ITEMS + 1);
    let found = machine.find_all(text, limit, &mut |time| context.meter.matched(time)).map_err(exhausted)?;
    let found = found.into_iter().map(|found| part(text, found.start, found.end)).collect();
    list(context, found)
}
