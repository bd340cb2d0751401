//! `matches`, `find` and `findAll`.

use regex::Regex;

use super::{Builtin, MAX_ITEMS, Value, list, no_overload, part};
use crate::cel::eval::Context;
use crate::cel::value::{Error, Outcome};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "matches" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let regex = compiled(context, pattern)?.map_err(Error::new)?;
                context.meter.work(text.len() / 8)?;
                Ok(Value::Bool(regex.is_match(text)))
            }
            _ => Err(Error::no_overload()),
        },
        "find" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let regex = compiled(context, pattern)?.map_err(illegal)?;
                context.meter.work(text.len() / 8)?;
                Ok(match regex.find(text) {
                    Some(found) => part(text, found.start(), found.end()),
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

fn compiled(context: &mut Context<'_>, pattern: &str) -> Result<Result<Regex, String>, Error> {
    match context.regex {
        Some(regex) => Ok(Ok(regex.clone())),
        None => context.meter.regex(pattern),
    }
}

fn find_all<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => (text, pattern, *limit),
        _ => return Err(no_overload(context, args)),
    };
    let regex = compiled(context, pattern)?.map_err(illegal)?;
    context.meter.work(text.len())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = regex.find_iter(text).take(limit.min(MAX_ITEMS + 1));
    let found = found.map(|found| part(text, found.start(), found.end())).collect();
    list(context, found)
}
