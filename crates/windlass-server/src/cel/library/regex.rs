//! `matches`, `find` and `findAll`.

use std::sync::Arc;

use super::{Builtin, MAX_ITEMS, Value, list, no_overload, part};
use crate::cel::eval::Context;
use crate::cel::value::{Error, Outcome};
use crate::schema::pattern::Machine;

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "matches" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let machine = compiled(context, pattern)?.map_err(Error::new)?;
                context.meter.matching(effort(&machine, text))?;
                Ok(Value::Bool(machine.regex.is_match(text)))
            }
            _ => Err(Error::no_overload()),
        },
        "find" => |context, args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let machine = compiled(context, pattern)?.map_err(illegal)?;
                context.meter.matching(effort(&machine, text))?;
                Ok(match machine.regex.find(text) {
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

/// What matching may take at worst, in units of uncharged work.
fn effort(machine: &Machine, text: &str) -> usize {
    text.len().saturating_mul(usize::try_from(machine.states).unwrap_or(usize::MAX)) / 8
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
    context.meter.matching(effort(&machine, text))?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = machine.regex.find_iter(text).take(limit.min(MAX_ITEMS + 1));
    let found = found.map(|found| part(text, found.start(), found.end())).collect();
    list(context, found)
}
