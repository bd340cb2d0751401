//! `matches`, `find` and `findAll`.

use std::sync::Arc;

use super::{Builtin, Context, MAX_ITEMS, Value, list, no_overload, part};
use crate::pattern::{Machine, TooLong};
use crate::value::{Error, Outcome};

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value as Json, json};

    use crate::value::{Outcome, Shape, Value, adapt};
    use crate::{CALL_LIMIT, Environment, Globals, Type, compile};

    /// One variable, `x`.
    struct One<'a>(&'a Json);

    impl<'a> Globals<'a> for One<'a> {
        fn get(&mut self, _index: usize) -> Outcome<'a> {
            adapt(self.0, Shape::Dynamic)
        }
    }

    #[track_caller]
    fn holds(rule: &str, x: &Json) {
        let Ok(program) = compile(rule, &Environment::new().with("x", Type::Dyn)) else { panic!("{rule} is invalid") };
        let outcome = program.eval(&mut One(x), CALL_LIMIT).0;
        assert!(
            matches!(outcome, Ok(Value::Bool(true))),
            "{rule}: {:?}",
            outcome.map(|_| ()).map_err(|e| e.to_string())
        );
    }

    /// Each of them took milliseconds to be compiled.
    #[test]
    fn many_patterns_may_be_computed() {
        let patterns: Vec<_> = (0..1000).map(|n| format!(r"\pL{{{n:03}}}\pN{{9}}")).collect();
        holds("x.all(p, !'aaaa'.matches(p))", &json!(patterns));
    }

    /// Patterns that are large as automata had invalid syntax.
    #[test]
    fn large_patterns_are_matched() {
        holds(r"x.matches('^\\p{L}{1,1000}$') && !(x + '1').matches('^\\p{L}{1,1000}$')", &json!("aé日"));
        holds(r"'aé日'.matches(x) && 'aé日'.find(x) == 'aé日' && '1'.findAll(x) == []", &json!(r"^\PC{2,1000}$|é"));
    }
}
