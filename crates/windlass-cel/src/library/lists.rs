//! Lists and sets: cel-go's extensions and Kubernetes' own functions.

use std::cmp::Ordering;

use super::strings::{index_of, last_index_of};
use super::{Builtin, Context, MAX_ITEMS, Value, items, list, no_overload};
use crate::equal::{compare, equal};
use crate::value::{Error, List, Outcome};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => sum,
        "min" => |context, args| extreme(context, args, Ordering::Greater),
        "max" => |context, args| extreme(context, args, Ordering::Less),
        "indexOf" => |context, args| match args {
            [Value::String(text), Value::String(other)] => index_of(text, other, 0),
            [Value::String(text), Value::String(other), Value::Int(from)] => index_of(text, other, *from),
            [Value::List(list), item] => position(context, list, item, false),
            _ => Err(no_overload(context, args)),
        },
        "lastIndexOf" => |context, args| match args {
            [Value::String(text), Value::String(other)] => last_index_of(text, other, None),
            [Value::String(text), Value::String(other), Value::Int(from)] => last_index_of(text, other, Some(*from)),
            [Value::List(list), item] => position(context, list, item, true),
            _ => Err(no_overload(context, args)),
        },
        "slice" => slice,
        "flatten" => flatten,
        "sort" => |context, args| match args {
            [Value::List(values)] => sort(context, values, values),
            _ => Err(no_overload(context, args)),
        },
        "@sortByAssociatedKeys" => |context, args| match args {
            [Value::List(values), Value::List(keys)] => sort(context, values, keys),
            _ => Err(no_overload(context, args)),
        },
        "lists.range" => range,
        "reverse" => |context, args| match args {
            [Value::List(values)] => {
                let mut values = items(context, values)?;
                values.reverse();
                list(context, values)
            }
            _ => Err(no_overload(context, args)),
        },
        "distinct" => distinct,
        "sets.contains" => |context, args| match args {
            [Value::List(a), Value::List(b)] => contains_all(context, a, b).map(Value::Bool),
            _ => Err(no_overload(context, args)),
        },
        "sets.equivalent" => |context, args| match args {
            [Value::List(a), Value::List(b)] => {
                Ok(Value::Bool(contains_all(context, a, b)? && contains_all(context, b, a)?))
            }
            _ => Err(no_overload(context, args)),
        },
        "sets.intersects" => |context, args| match args {
            [Value::List(a), Value::List(b)] => {
                for item in a.iter() {
                    if contains(context, b, &item?)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            _ => Err(no_overload(context, args)),
        },
        _ => return None,
    })
}

fn contains<'a>(context: &mut Context<'_>, list: &List<'a>, item: &Value<'a>) -> Result<bool, Error> {
    for known in list.iter() {
        match equal(item, &known?, context.meter) {
            Ok(true) => return Ok(true),
            Err(Error::Exhausted) => return Err(Error::Exhausted),
            _ => {}
        }
    }
    Ok(false)
}

fn contains_all<'a>(context: &mut Context<'_>, list: &List<'a>, items: &List<'a>) -> Result<bool, Error> {
    for item in items.iter() {
        if !contains(context, list, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_sorted<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(values)] = args else { return Err(no_overload(context, args)) };
    let values = items(context, values)?;
    for pair in values.windows(2) {
        if compare(&pair[0], &pair[1])? == Ordering::Greater {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(values)] = args else { return Err(no_overload(context, args)) };
    let mut total = None;
    for value in items(context, values)? {
        total = Some(match (total, value) {
            (None, value @ (Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_))) => value,
            (Some(Value::Int(a)), Value::Int(b)) => {
                Value::Int(a.checked_add(b).ok_or_else(|| Error::new("integer overflow"))?)
            }
            (Some(Value::Uint(a)), Value::Uint(b)) => {
                Value::Uint(a.checked_add(b).ok_or_else(|| Error::new("unsigned integer overflow"))?)
            }
            (Some(Value::Double(a)), Value::Double(b)) => Value::Double(a + b),
            (Some(Value::Duration(a)), Value::Duration(b)) => {
                Value::Duration(a.checked_add(b).ok_or_else(|| Error::new("duration overflow"))?)
            }
            _ => return Err(Error::no_overload()),
        });
    }
    Ok(total.unwrap_or(match context.overload {
        "list_uint_sum_uint" => Value::Uint(0),
        "list_double_sum_double" => Value::Double(0.0),
        "list_duration_sum_duration" => Value::Duration(0),
        _ => Value::Int(0),
    }))
}

fn extreme<'a>(context: &mut Context<'_>, args: &[Value<'a>], worse: Ordering) -> Outcome<'a> {
    let [Value::List(values)] = args else { return Err(no_overload(context, args)) };
    let mut best: Option<Value<'a>> = None;
    for value in items(context, values)? {
        best = Some(match best {
            Some(best) if compare(&best, &value)? != worse => best,
            _ => value,
        });
    }
    best.ok_or_else(|| Error::new(format!("{} called on empty list", context.function)))
}

fn position<'a>(context: &mut Context<'_>, list: &List<'a>, item: &Value<'a>, last: bool) -> Outcome<'a> {
    let mut found = -1;
    for index in 0..list.len() {
        let index = if last { list.len() - 1 - index } else { index };
        match equal(&list.get(index)?, item, context.meter) {
            Ok(true) => {
                found = index as i64;
                break;
            }
            Err(Error::Exhausted) => return Err(Error::Exhausted),
            _ => {}
        }
    }
    Ok(Value::Int(found))
}

fn slice<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(values), Value::Int(start), Value::Int(end)] = args else {
        return Err(no_overload(context, args));
    };
    let refuse = |why: String| Err(Error::new(format!("cannot slice({start}, {end}), {why}")));
    if *start < 0 || *end < 0 {
        return refuse("negative indexes not supported".to_owned());
    }
    if start > end {
        return refuse("start index must be less than or equal to end index".to_owned());
    }
    if (values.len() as i64) < *end {
        return refuse(format!("list is length {}", values.len()));
    }
    let slice = (*start as usize..*end as usize).map(|index| values.get(index)).collect::<Result<_, _>>()?;
    list(context, slice)
}

fn flatten<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (values, depth) = match args {
        [Value::List(values)] => (values, 1),
        [Value::List(_), Value::Int(depth)] if *depth < 0 => {
            return Err(Error::new("level must be non-negative"));
        }
        [Value::List(values), Value::Int(depth)] => (values, *depth),
        _ => return Err(no_overload(context, args)),
    };
    let mut flat = Vec::new();
    flatten_into(context, values, depth, &mut flat)?;
    list(context, flat)
}

fn flatten_into<'a>(
    context: &mut Context<'_>,
    values: &List<'a>,
    depth: i64,
    flat: &mut Vec<Value<'a>>,
) -> Result<(), Error> {
    for value in items(context, values)? {
        match value {
            Value::List(inner) if depth > 0 => flatten_into(context, &inner, depth - 1, flat)?,
            other => flat.push(other),
        }
        if flat.len() > MAX_ITEMS {
            return Err(Error::Exhausted);
        }
    }
    Ok(())
}

fn sort<'a>(context: &mut Context<'_>, values: &List<'a>, keys: &List<'a>) -> Outcome<'a> {
    if values.len() != keys.len() {
        return Err(Error::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            values.len(),
            keys.len()
        )));
    }
    let keys = items(context, keys)?;
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.into_iter().zip(items(context, values)?).collect();
    context.meter.work(pairs.len() * 20)?;
    // Each text is compared as often as the list can be halved.
    for _ in 0..pairs.len().checked_ilog2().unwrap_or(0) {
        context.meter.read(pairs.iter().map(|(key, _)| key))?;
    }
    if let Some(((first, _), rest)) = pairs.split_first() {
        let comparable = matches!(
            first,
            Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::Bool(_)
                | Value::String(_)
                | Value::Bytes(_)
                | Value::Timestamp(_)
                | Value::Duration(_)
        );
        if !comparable {
            return Err(Error::new("list elements must be comparable"));
        }
        if rest.iter().any(|(key, _)| key.type_name() != first.type_name()) {
            return Err(Error::new("list elements must have the same type"));
        }
    }
    // What is not a number comes neither before nor after anything: it stays where it is, and what is on either side of
    // it is sorted there. That is what cel-go's sort makes of a list of up to twelve elements.
    for between in pairs.split_mut(|(key, _)| matches!(key, Value::Double(double) if double.is_nan())) {
        between.sort_by(|(a, _), (b, _)| compare(a, b).unwrap_or(Ordering::Equal));
    }
    list(context, pairs.into_iter().map(|(_, value)| value).collect())
}

fn range<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Int(count)] = args else { return Err(no_overload(context, args)) };
    if *count < 0 {
        return Err(Error::new(format!("lists.range: size must be non-negative, got {count}")));
    }
    if *count > MAX_ITEMS as i64 {
        let message = format!("lists.range: size {count} exceeds maximum allowed ({MAX_ITEMS})");
        return Err(Error::new(message));
    }
    list(context, (0..*count).map(Value::Int).collect())
}

fn distinct<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(values)] = args else { return Err(no_overload(context, args)) };
    let mut unique: Vec<Value<'a>> = Vec::new();
    'values: for value in items(context, values)? {
        for known in &unique {
            match equal(&value, known, context.meter) {
                Ok(true) => continue 'values,
                Err(Error::Exhausted) => return Err(Error::Exhausted),
                _ => {}
            }
        }
        unique.push(value);
    }
    list(context, unique)
}
