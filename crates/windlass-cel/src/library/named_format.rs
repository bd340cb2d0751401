//! Functions about named formats.

use super::{Builtin, no_overload, strings};
use crate::opaque::named_format::named;
use crate::value::{Error, Value};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "validate" => |context, args| match args {
            [Value::Format(format), Value::String(text)] => {
                context.meter.work(text.len())?;
                let problems = (format.check)(text);
                if problems.is_empty() {
                    return Ok(Value::Optional(None));
                }
                strings(context, problems).map(Value::some)
            }
            _ => Err(no_overload(context, args)),
        },
        "format.named" => |context, args| match args {
            [Value::String(name)] => Ok(match named(name) {
                Some(format) => Value::some(Value::Format(format)),
                None => Value::Optional(None),
            }),
            _ => Err(no_overload(context, args)),
        },
        _ if name.strip_prefix("format.").is_some_and(|name| named(name).is_some()) => |context, _| {
            let name = context.function.strip_prefix("format.").unwrap_or_default();
            named(name).map(Value::Format).ok_or_else(Error::no_overload)
        },
        _ => return None,
    })
}
