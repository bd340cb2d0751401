//! Arithmetic, comparison, `in` and `size`.

use std::cmp::Ordering;
use std::rc::Rc;

use super::{Builtin, Context, MAX_ITEMS, Value, items, list, no_overload, text};
use crate::equal::{compare, equal, same_keys};
use crate::shape::ListType;
use crate::value::{Error, List, Outcome};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "!_" => |_, args| match args {
            [Value::Bool(value)] => Ok(Value::Bool(!value)),
            _ => Err(Error::no_overload()),
        },
        "@not_strictly_false" => |_, args| match args {
            [Value::Bool(value)] => Ok(Value::Bool(*value)),
            _ => Ok(Value::Bool(true)),
        },
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => modulo,
        "-_" => negate,
        "_<_" => |context, args| order(context, args, Ordering::is_lt),
        "_<=_" => |context, args| order(context, args, Ordering::is_le),
        "_>_" => |context, args| order(context, args, Ordering::is_gt),
        "_>=_" => |context, args| order(context, args, Ordering::is_ge),
        "@in" => contains,
        "size" => size,
        _ => return None,
    })
}

fn int<'a>(value: Option<i64>) -> Outcome<'a> {
    value.map(Value::Int).ok_or_else(|| Error::new("integer overflow"))
}

fn uint<'a>(value: Option<u64>) -> Outcome<'a> {
    value.map(Value::Uint).ok_or_else(|| Error::new("unsigned integer overflow"))
}

fn duration<'a>(value: Option<i64>) -> Outcome<'a> {
    value.map(Value::Duration).ok_or_else(|| Error::new("duration overflow"))
}

fn operator_overload(context: &Context<'_>, args: &[Value<'_>]) -> Error {
    match args.first() {
        Some(
            Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::List(_)
            | Value::Timestamp(_)
            | Value::Duration(_),
        ) => Error::no_overload(),
        _ => Error::new(format!("no such overload: {}", context.function)),
    }
}

fn add<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(a), Value::Int(b)] => int(a.checked_add(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_add(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::String(a), Value::String(b)] => text(context, format!("{}{}", &**a, &**b)),
        [Value::Bytes(a), Value::Bytes(b)] => {
            context.meter.work((a.len() + b.len()) / 16)?;
            Ok(Value::Bytes(a.iter().chain(b.iter()).copied().collect()))
        }
        [Value::Duration(a), Value::Duration(b)] => duration(a.checked_add(*b)),
        [Value::Timestamp(time), Value::Duration(by)] | [Value::Duration(by), Value::Timestamp(time)] => {
            time.plus(*by).map(Value::Timestamp).ok_or_else(|| Error::new("timestamp overflow"))
        }
        [Value::List(a), Value::List(b)] => concatenate(context, a, b),
        _ => Err(operator_overload(context, args)),
    }
}

/// Lists that a schema calls sets or maps merge, others are put together.
fn concatenate<'a>(context: &mut Context<'_>, a: &List<'a>, b: &List<'a>) -> Outcome<'a> {
    if a.len() + b.len() > MAX_ITEMS {
        return Err(Error::Exhausted);
    }
    let mut out = items(context, a)?;
    match a.list_type() {
        ListType::Set => {
            for item in b.iter() {
                let item = item?;
                if position(context, &out, |context, known| equal(known, &item, context.meter))?.is_none() {
                    out.push(item);
                }
            }
        }
        ListType::Map(keys) => {
            for item in b.iter() {
                let item = item?;
                match position(context, &out, |context, known| same_keys(known, &item, keys, context.meter))? {
                    Some(at) => out[at] = item,
                    None => out.push(item),
                }
            }
        }
        ListType::Atomic => {
            out.extend(items(context, b)?);
            return list(context, out);
        }
    }
    context.meter.work(out.len())?;
    Ok(Value::List(List::Merged(Rc::new(out), a.list_type())))
}

fn position<'a>(
    context: &mut Context<'_>,
    items: &[Value<'a>],
    mut is_it: impl FnMut(&mut Context<'_>, &Value<'a>) -> Result<bool, Error>,
) -> Result<Option<usize>, Error> {
    for (at, item) in items.iter().enumerate() {
        if is_it(context, item)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn subtract<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(a), Value::Int(b)] => int(a.checked_sub(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_sub(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => duration(a.checked_sub(*b)),
        [Value::Timestamp(time), Value::Duration(by)] => by
            .checked_neg()
            .and_then(|by| time.plus(by))
            .map(Value::Timestamp)
            .ok_or_else(|| Error::new("timestamp overflow")),
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            a.since(*b).map(Value::Duration).ok_or_else(|| Error::new("timestamp overflow"))
        }
        _ => Err(operator_overload(context, args)),
    }
}

fn multiply<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(a), Value::Int(b)] => int(a.checked_mul(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_mul(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => Err(operator_overload(context, args)),
    }
}

fn divide<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => Err(Error::new("division by zero")),
        [Value::Int(a), Value::Int(b)] => int(a.checked_div(*b)),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a / b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => Err(operator_overload(context, args)),
    }
}

fn modulo<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => Err(Error::new("modulus by zero")),
        [Value::Int(a), Value::Int(b)] => int(a.checked_rem(*b)),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a % b)),
        _ => Err(operator_overload(context, args)),
    }
}

fn negate<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(value)] => int(value.checked_neg()),
        [Value::Double(value)] => Ok(Value::Double(-value)),
        [Value::Duration(value)] => duration(value.checked_neg()),
        _ => Err(operator_overload(context, args)),
    }
}

fn order<'a>(context: &mut Context<'_>, args: &[Value<'a>], is_it: fn(Ordering) -> bool) -> Outcome<'a> {
    match args {
        [a, b] => compare(a, b).map(|ordering| Value::Bool(is_it(ordering))),
        _ => Err(no_overload(context, args)),
    }
}

fn contains<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [item, Value::List(list)] => {
            let typed = list.is_typed();
            let mut failed = None;
            for known in list.iter() {
                let known = match known {
                    Ok(known) => known,
                    Err(Error::Exhausted) => return Err(Error::Exhausted),
                    Err(error) => {
                        failed = failed.or(Some(error));
                        continue;
                    }
                };
                match equal(&known, item, context.meter) {
                    Ok(true) => return Ok(Value::Bool(true)),
                    Ok(false) => {}
                    Err(Error::Exhausted) => return Err(Error::Exhausted),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            match failed {
                Some(error) if typed => Err(error),
                _ => Ok(Value::Bool(false)),
            }
        }
        [key, Value::Map(map)] => Ok(Value::Bool(map.find(key)?.is_some())),
        _ => Err(Error::no_overload()),
    }
}

fn size<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let size = match args {
        [Value::String(text)] => text.chars().count(),
        [Value::Bytes(bytes)] => bytes.len(),
        [Value::List(list)] => list.len(),
        [Value::Map(map)] => map.len(),
        _ => return Err(Error::new(format!("no such overload: {}", context.function))),
    };
    Ok(Value::Int(size as i64))
}
