//! Functions about semantic versions.

use super::{Builtin, Context, no_overload};
use crate::opaque::Semver;
use crate::value::{Error, Outcome, Value};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "semver" => |context, args| Ok(Value::Semver(parse(context, args)?.map_err(Error::new)?.into())),
        "isSemver" => |context, args| Ok(Value::Bool(parse(context, args)?.is_ok())),
        "major" | "minor" | "patch" => part,
        _ => return None,
    })
}

fn parse(context: &Context<'_>, args: &[Value<'_>]) -> Result<Result<Semver, String>, Error> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(Semver::parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(Semver::parse_lenient(text)),
        _ => Err(no_overload(context, args)),
    }
}

fn part<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Semver(version)] = args else { return Err(no_overload(context, args)) };
    Ok(Value::Int(match context.function {
        "major" => version.major,
        "minor" => version.minor,
        _ => version.patch,
    } as i64))
}
