//! Optional values.

use super::{Builtin, Context, Value, items, list, no_overload};
use crate::value::{Error, Outcome};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "optional.of" => |_, args| args.first().cloned().map(Value::some).ok_or_else(Error::no_overload),
        "optional.ofNonZeroValue" => |_, args| match args {
            [value] if is_zero(value) => Ok(Value::Optional(None)),
            [value] => Ok(Value::some(value.clone())),
            _ => Err(Error::no_overload()),
        },
        "optional.none" => |_, _| Ok(Value::Optional(None)),
        "value" => |context, args| match args {
            [Value::Optional(Some(value))] => Ok((**value).clone()),
            [Value::Optional(None)] => Err(Error::new("optional.none() dereference")),
            _ => Err(no_overload(context, args)),
        },
        "hasValue" => |context, args| match args {
            [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
            _ => Err(no_overload(context, args)),
        },
        "first" | "last" => |context, args| match args {
            [Value::List(list)] if list.is_empty() => Ok(Value::Optional(None)),
            [Value::List(list)] => {
                let index = if context.function == "first" { 0 } else { list.len() - 1 };
                list.get(index).map(Value::some)
            }
            _ => Err(no_overload(context, args)),
        },
        "optional.unwrap" | "unwrapOpt" => unwrap,
        _ => return None,
    })
}

fn unwrap<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(values)] = args else { return Err(no_overload(context, args)) };
    let mut out = Vec::new();
    for value in items(context, values)? {
        match value {
            Value::Optional(None) => {}
            Value::Optional(Some(value)) => out.push((*value).clone()),
            other => {
                let shown = super::format_string::go_value(&other);
                return Err(Error::new(format!("value {shown} is not optional")));
            }
        }
    }
    list(context, out)
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) => true,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Timestamp(time) => time.is_zero(),
        Value::Optional(value) => value.is_none(),
        _ => false,
    }
}
