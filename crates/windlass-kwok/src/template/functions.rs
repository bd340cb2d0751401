//! The functions of templates: Go's own, those of kwok that need nothing around them, and a part of sprig's.

use std::fmt;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Go's own, kwok's, then sprig's.
const NAMES: &[&str] = &[
    "and",
    "or",
    "not",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "index",
    "slice",
    "len",
    "print",
    "println",
    "printf",
    "Quote",
    "Now",
    "YAML",
    "NodeConditions", //
    "dict",
    "list",
    "default",
    "empty",
    "coalesce",
    "ternary",
    "hasKey",
    "get",
    "keys",
    "values",
    "upper",
    "lower",
    "title",
    "trim",
    "trimSuffix",
    "trimPrefix",
    "trimAll",
    "replace",
    "contains",
    "hasPrefix",
    "hasSuffix",
    "quote",
    "squote",
    "toString",
    "int",
    "int64",
    "float64",
    "atoi",
    "add",
    "add1",
    "sub",
    "mul",
    "div",
    "mod",
    "max",
    "min",
    "join",
    "splitList",
    "first",
    "last",
    "rest",
    "initial",
    "append",
    "concat",
    "has",
    "uniq",
    "sortAlpha",
    "until",
    "now",
    "randAlphaNum",
    "randInt",
    "b64enc",
    "b64dec",
    "toJson",
    "fromJson",
    "indent",
    "nindent",
    "repeat",
    "substr",
    "trunc",
    "cat",
    "kindOf",
    "fail",
    "required",
];

pub(super) fn is_builtin(name: &str) -> bool {
    NAMES.contains(&name)
}

/// As Go's templates judge values.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// As Go's templates print values; lists and maps as JSON.
pub(super) struct Printed<'v>(pub(super) &'v Value);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<no value>"),
            Value::String(text) => f.write_str(text),
            value => write!(f, "{value}"),
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => Printed(value).to_string(),
    }
}

fn number(value: &Value) -> Result<f64, String> {
    match value {
        Value::Number(number) => number.as_f64().ok_or_else(|| format!("{number} is too large")),
        Value::String(text) => text.trim().parse().map_err(|_| format!("{text:?} is no number")),
        Value::Bool(value) => Ok(f64::from(u8::from(*value))),
        Value::Null => Ok(0.0),
        value => Err(format!("{value} is no number")),
    }
}

fn integer(value: &Value) -> Result<i64, String> {
    match value {
        Value::Number(number) if number.is_i64() => Ok(number.as_i64().unwrap_or_default()),
        value => number(value).map(|number| number as i64),
    }
}

fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        // Numbers of the object are texts to Go's templates.
        (Value::Number(number), Value::String(text)) | (Value::String(text), Value::Number(number)) => {
            *text == number.to_string()
        }
        (left, right) => left == right,
    }
}

fn is_less(left: &Value, right: &Value) -> Result<bool, String> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(left < right),
        (left, right) => Ok(number(left)? < number(right)?),
    }
}

/// What `kwok` quotes values to: a text in double quotes, whatever the value is.
fn quote(value: &Value) -> String {
    match value {
        Value::String(_) => value.to_string(),
        value => Value::String(value.to_string()).to_string(),
    }
}

pub(super) fn call(name: &str, arguments: &[Value]) -> Result<Value, String> {
    let argument =
        |at: usize| arguments.get(at).ok_or_else(|| format!("wants more than {} arguments", arguments.len()));
    let string = |at: usize| argument(at).map(text);
    let items = |at: usize| argument(at).map(|value| value.as_array().cloned().unwrap_or_default());
    let last = || arguments.last().ok_or_else(|| "wants an argument".to_owned());
    Ok(match name {
        "not" | "empty" => (!is_true(argument(0)?)).into(),
        "eq" => {
            argument(1)?;
            arguments[1..].iter().any(|other| same(&arguments[0], other)).into()
        }
        "ne" => (!same(argument(0)?, argument(1)?)).into(),
        "lt" => is_less(argument(0)?, argument(1)?)?.into(),
        "le" => (!is_less(argument(1)?, argument(0)?)?).into(),
        "gt" => is_less(argument(1)?, argument(0)?)?.into(),
        "ge" => (!is_less(argument(0)?, argument(1)?)?).into(),
        "index" => {
            let mut value = argument(0)?.clone();
            for key in &arguments[1..] {
                value = index(value, key)?;
            }
            value
        }
        "slice" => slice(arguments)?,
        "len" => match argument(0)? {
            Value::String(text) => text.len().into(),
            Value::Array(items) => items.len().into(),
            Value::Object(fields) => fields.len().into(),
            Value::Null => return Err("len of nil pointer".to_owned()),
            value => return Err(format!("len of {value}")),
        },
        "print" => arguments.iter().map(|value| Printed(value).to_string()).collect::<String>().into(),
        "println" => {
            let words: Vec<String> = arguments.iter().map(|value| Printed(value).to_string()).collect();
            format!("{}\n", words.join(" ")).into()
        }
        "printf" => printf(&string(0)?, &arguments[1..]).into(),
        "Quote" => quote(argument(0)?).into(),
        "Now" | "now" => Timestamp::now().to_string().into(),
        "YAML" => {
            // In block style, as Go's: kwok's stages put a list at the column of its key, where one in brackets is no YAML.
            let yaml = serde_saphyr::to_string(argument(0)?).map_err(|error| error.to_string())?;
            let yaml = format!("{}\n", yaml.trim_end_matches('\n'));
            let indent = arguments.get(1).map_or(Ok(0), integer)?.clamp(0, 32) as usize;
            let pad = " ".repeat(indent * 2);
            if indent == 0 { yaml.into() } else { format!("\n{yaml}").replace('\n', &format!("\n{pad}")).into() }
        }
        "NodeConditions" => node_conditions(),
        "dict" => {
            let pairs = arguments.chunks(2).map(|pair| (text(&pair[0]), pair.get(1).cloned().unwrap_or_default()));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        "list" => arguments.to_vec().into(),
        "default" => if is_true(last()?) { last()? } else { argument(0)? }.clone(),
        "coalesce" => arguments.iter().find(|value| is_true(value)).cloned().unwrap_or_default(),
        "ternary" => if is_true(argument(2)?) { argument(0)? } else { argument(1)? }.clone(),
        "hasKey" => argument(0)?.get(string(1)?).is_some().into(),
        "get" => argument(0)?.get(string(1)?).cloned().unwrap_or_else(|| "".into()),
        "keys" => argument(0)?.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>()).into(),
        "values" => argument(0)?.as_object().map(|fields| fields.values().cloned().collect::<Vec<_>>()).into(),
        "upper" => string(0)?.to_uppercase().into(),
        "lower" => string(0)?.to_lowercase().into(),
        "title" => {
            let words: Vec<String> = string(0)?.split(' ').map(capitalized).collect();
            words.join(" ").into()
        }
        "trim" => string(0)?.trim().into(),
        "trimSuffix" => {
            string(1)?.strip_suffix(&string(0)?).map_or_else(|| string(1), |text| Ok(text.to_owned()))?.into()
        }
        "trimPrefix" => {
            string(1)?.strip_prefix(&string(0)?).map_or_else(|| string(1), |text| Ok(text.to_owned()))?.into()
        }
        "trimAll" => {
            let set = string(0)?;
            string(1)?.trim_matches(|c| set.contains(c)).into()
        }
        "replace" => string(2)?.replace(&string(0)?, &string(1)?).into(),
        "contains" => string(1)?.contains(&string(0)?).into(),
        "hasPrefix" => string(1)?.starts_with(&string(0)?).into(),
        "hasSuffix" => string(1)?.ends_with(&string(0)?).into(),
        "quote" => {
            arguments.iter().map(|value| Value::String(text(value)).to_string()).collect::<Vec<_>>().join(" ").into()
        }
        "squote" => arguments.iter().map(|value| format!("'{}'", text(value))).collect::<Vec<_>>().join(" ").into(),
        "toString" => string(0)?.into(),
        "int" | "int64" | "atoi" => integer(argument(0)?)?.into(),
        "float64" => number(argument(0)?)?.into(),
        "add" | "mul" => {
            let numbers: Vec<i64> = arguments.iter().map(integer).collect::<Result<_, _>>()?;
            let combined = match name {
                "add" => numbers.iter().try_fold(0_i64, |sum, number| sum.checked_add(*number)),
                _ => numbers.iter().try_fold(1_i64, |product, number| product.checked_mul(*number)),
            };
            combined.ok_or("the number is too large")?.into()
        }
        "add1" => integer(argument(0)?)?.saturating_add(1).into(),
        "sub" => integer(argument(0)?)?.saturating_sub(integer(argument(1)?)?).into(),
        "div" => integer(argument(0)?)?.checked_div(integer(argument(1)?)?).ok_or("division by zero")?.into(),
        "mod" => integer(argument(0)?)?.checked_rem(integer(argument(1)?)?).ok_or("division by zero")?.into(),
        "max" => arguments.iter().map(integer).collect::<Result<Vec<_>, _>>()?.into_iter().max().into(),
        "min" => arguments.iter().map(integer).collect::<Result<Vec<_>, _>>()?.into_iter().min().into(),
        "join" => items(1)?.iter().map(text).collect::<Vec<_>>().join(&string(0)?).into(),
        "splitList" => string(1)?.split(&string(0)?).map(str::to_owned).collect::<Vec<_>>().into(),
        "first" => items(0)?.first().cloned().unwrap_or_default(),
        "last" => items(0)?.pop().unwrap_or_default(),
        "rest" => items(0)?.into_iter().skip(1).collect(),
        "initial" => {
            let mut items = items(0)?;
            items.pop();
            items.into()
        }
        "append" => {
            let mut items = items(0)?;
            items.push(argument(1)?.clone());
            items.into()
        }
        "concat" => arguments.iter().flat_map(|list| list.as_array().cloned().unwrap_or_default()).collect(),
        "has" => items(1)?.iter().any(|item| same(item, &arguments[0])).into(),
        "uniq" => {
            let mut unique: Vec<Value> = Vec::new();
            for item in items(0)? {
                if !unique.contains(&item) {
                    unique.push(item);
                }
            }
            unique.into()
        }
        "sortAlpha" => {
            let mut words: Vec<String> = items(0)?.iter().map(text).collect();
            words.sort();
            words.into()
        }
        "until" => (0..integer(argument(0)?)?.clamp(0, 100_000)).collect::<Vec<_>>().into(),
        "randAlphaNum" => {
            let length = integer(argument(0)?)?.clamp(0, 10_000) as usize;
            std::iter::repeat_with(fastrand::alphanumeric).take(length).collect::<String>().into()
        }
        "randInt" => {
            let (from, to) = (integer(argument(0)?)?, integer(argument(1)?)?);
            if from < to { fastrand::i64(from..to).into() } else { return Err("the range is empty".to_owned()) }
        }
        "b64enc" => STANDARD.encode(string(0)?).into(),
        "b64dec" => {
            let bytes = STANDARD.decode(string(0)?).map_err(|error| error.to_string())?;
            String::from_utf8_lossy(&bytes).into_owned().into()
        }
        "toJson" => argument(0)?.to_string().into(),
        "fromJson" => serde_json::from_str(&string(0)?).map_err(|error| error.to_string())?,
        "indent" | "nindent" => {
            let pad = " ".repeat(integer(argument(0)?)?.clamp(0, 256) as usize);
            let indented = format!("{pad}{}", string(1)?.replace('\n', &format!("\n{pad}")));
            if name == "nindent" { format!("\n{indented}") } else { indented }.into()
        }
        "repeat" => string(1)?.repeat(integer(argument(0)?)?.clamp(0, 10_000) as usize).into(),
        "substr" => {
            let (from, to) = (integer(argument(0)?)?.max(0) as usize, integer(argument(1)?)?);
            let text = string(2)?;
            let to = usize::try_from(to).unwrap_or(usize::MAX);
            text.chars().take(to).skip(from).collect::<String>().into()
        }
        "trunc" => {
            let (length, text) = (integer(argument(0)?)?, string(1)?);
            let skip = text.chars().count().saturating_sub(length.unsigned_abs() as usize);
            if length < 0 {
                text.chars().skip(skip).collect::<String>()
            } else {
                text.chars().take(length as usize).collect()
            }
            .into()
        }
        "cat" => arguments.iter().map(text).collect::<Vec<_>>().join(" ").into(),
        "kindOf" => match argument(0)? {
            Value::Null => "invalid",
            Value::Bool(_) => "bool",
            Value::Number(_) => "float64",
            Value::String(_) => "string",
            Value::Array(_) => "slice",
            Value::Object(_) => "map",
        }
        .into(),
        "fail" => return Err(string(0)?),
        "required" => {
            if is_true(argument(1)?) {
                argument(1)?.clone()
            } else {
                return Err(string(0)?);
            }
        }
        _ => return Err("is not defined".to_owned()),
    })
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn index(value: Value, key: &Value) -> Result<Value, String> {
    match (value, key) {
        (Value::Null, _) => Err("index of untyped nil".to_owned()),
        (Value::Object(mut fields), key) => Ok(fields.remove(&text(key)).unwrap_or_default()),
        (Value::Array(mut items), key) => {
            let at = usize::try_from(integer(key)?).ok().filter(|at| *at < items.len());
            at.map(|at| items.swap_remove(at)).ok_or_else(|| format!("index out of range: {key}"))
        }
        (Value::String(text), key) => {
            let at = usize::try_from(integer(key)?).ok();
            let byte = at.and_then(|at| text.as_bytes().get(at).copied());
            byte.map(Into::into).ok_or_else(|| format!("index out of range: {key}"))
        }
        (value, _) => Err(format!("can't index item of {value}")),
    }
}

fn slice(arguments: &[Value]) -> Result<Value, String> {
    let Some((value, places)) = arguments.split_first() else { return Err("wants an argument".to_owned()) };
    let length = match value {
        Value::Array(items) => items.len(),
        Value::String(text) => text.len(),
        value => return Err(format!("can't slice item of {value}")),
    };
    let place = |at: usize, otherwise: usize| match places.get(at) {
        Some(place) => usize::try_from(integer(place)?).map_err(|_| "index out of range".to_owned()),
        None => Ok(otherwise),
    };
    let (from, to) = (place(0, 0)?, place(1, length)?);
    let sliced = match value {
        Value::Array(items) => items.get(from..to).map(|items| items.to_vec().into()),
        Value::String(text) => text.get(from..to).map(Into::into),
        _ => None,
    };
    sliced.ok_or_else(|| "index out of range".to_owned())
}

/// The verbs that templates use: `%s %v %d %q %t %x %f %%`, with flags, width and precision.
fn printf(format: &str, arguments: &[Value]) -> String {
    let mut output = String::new();
    let mut arguments = arguments.iter();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            output.push(c);
            continue;
        }
        let flags: String =
            std::iter::from_fn(|| chars.next_if(|c| matches!(c, '-' | '+' | '0' | '#' | ' '))).collect();
        let width: String = std::iter::from_fn(|| chars.next_if(char::is_ascii_digit)).collect();
        let precision = chars.next_if_eq(&'.').map(|_| {
            let digits: String = std::iter::from_fn(|| chars.next_if(char::is_ascii_digit)).collect();
            digits.parse::<usize>().unwrap_or(0).min(100)
        });
        let Some(verb) = chars.next() else {
            output.push_str("%!(NOVERB)");
            break;
        };
        if verb == '%' {
            output.push('%');
            continue;
        }
        let Some(argument) = arguments.next() else {
            let _ = write!(output, "%!{verb}(MISSING)");
            continue;
        };
        let printed = match verb {
            'd' => {
                integer(argument).map_or_else(|_| format!("%!d({})", Printed(argument)), |number| number.to_string())
            }
            'x' => integer(argument).map_or_else(|_| Printed(argument).to_string(), |number| format!("{number:x}")),
            'f' | 'g' | 'e' => number(argument).map_or_else(
                |_| format!("%!{verb}({})", Printed(argument)),
                |number| format!("{number:.*}", precision.unwrap_or(6)),
            ),
            'q' => Value::String(text(argument)).to_string(),
            _ => {
                let printed = Printed(argument).to_string();
                precision.map_or(printed.clone(), |most| printed.chars().take(most).collect())
            }
        };
        let width = width.parse::<usize>().unwrap_or(0).min(10_000);
        let pad = width.saturating_sub(printed.chars().count());
        if flags.contains('-') {
            output.push_str(&printed);
            output.extend(std::iter::repeat_n(' ', pad));
        } else {
            let zero = if flags.contains('0') && matches!(verb, 'd' | 'x' | 'f') { '0' } else { ' ' };
            output.extend(std::iter::repeat_n(zero, pad));
            output.push_str(&printed);
        }
    }
    output
}

/// The conditions of a node that is well, as kwok has them.
fn node_conditions() -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": null, "lastTransitionTime": null,
        })
    };
    json!([
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    ])
}
