//! Functions about resource quantities.

use super::{Builtin, Context, no_overload};
use crate::opaque::Quantity;
use crate::value::{Error, Outcome, Value};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "quantity" => |context, args| match args {
            [Value::String(text)] => Ok(Value::Quantity(Quantity::parse(text).map_err(Error::new)?.into())),
            _ => Err(no_overload(context, args)),
        },
        "isQuantity" => |context, args| match args {
            [Value::String(text)] => Ok(Value::Bool(Quantity::parse(text).is_ok())),
            _ => Err(no_overload(context, args)),
        },
        "sign" | "asInteger" | "isInteger" | "asApproximateFloat" => inspect,
        "isGreaterThan" | "isLessThan" | "compareTo" => compare,
        "add" | "sub" => |context, args| {
            let sign = if context.function == "add" { 1 } else { -1 };
            match args {
                [Value::Quantity(a), Value::Quantity(b)] => Ok(Value::Quantity(a.plus(b, sign).into())),
                [Value::Quantity(a), Value::Int(b)] => Ok(Value::Quantity(a.plus(&Quantity::of(*b), sign).into())),
                _ => Err(no_overload(context, args)),
            }
        },
        _ => return None,
    })
}

fn inspect<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Quantity(quantity)] = args else { return Err(no_overload(context, args)) };
    Ok(match context.function {
        "sign" => Value::Int(quantity.sign()),
        "isInteger" => Value::Bool(quantity.as_integer().is_some()),
        "asInteger" => match quantity.as_integer() {
            Some(value) => Value::Int(value),
            None => return Err(Error::new("cannot convert value to integer")),
        },
        _ => Value::Double(quantity.as_float()),
    })
}

/// Quantities and versions compare with the same methods.
fn compare<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let ordering = match args {
        [Value::Quantity(a), Value::Quantity(b)] => a.cmp(b),
        [Value::Semver(a), Value::Semver(b)] => a.compare(b),
        _ => return Err(no_overload(context, args)),
    };
    Ok(match context.function {
        "isGreaterThan" => Value::Bool(ordering.is_gt()),
        "isLessThan" => Value::Bool(ordering.is_lt()),
        _ => Value::Int(ordering as i64),
    })
}
