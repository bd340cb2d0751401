//! Functions about URLs.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Builtin, Context, no_overload};
use crate::opaque::url::{Url, check, parse, unescape};
use crate::value::{Error, Key, Map, Outcome, Text, Value};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "url" => |context, args| match args {
            [Value::String(text)] => match parse(text) {
                Ok(url) => Ok(Value::Url(url.into())),
                Err(problem) => Err(Error::new(format!("URL parse error during conversion from string: {problem}"))),
            },
            _ => Err(no_overload(context, args)),
        },
        "isURL" => |context, args| match args {
            [Value::String(text)] => Ok(Value::Bool(check(text).is_ok())),
            _ => Err(no_overload(context, args)),
        },
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" | "getQuery" => part,
        _ => return None,
    })
}

fn part<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Url(url)] = args else { return Err(no_overload(context, args)) };
    Ok(match context.function {
        "getScheme" => Value::text(url.scheme.as_str()),
        "getHost" => Value::text(url.host.as_str()),
        "getHostname" => Value::text(url.hostname()),
        "getPort" => Value::text(url.port()),
        "getEscapedPath" => Value::text(url.escaped_path()),
        _ => query(url),
    })
}

/// The parameters of a URL's query, each with all its values.
fn query<'a>(url: &Url) -> Value<'a> {
    let mut values: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        values.entry(unescape(key, true)).or_default().push(Value::text(unescape(value, true)));
    }
    let map = values.into_iter().map(|(key, values)| (Key::String(Text::Shared(key.into())), Value::list(values)));
    Value::Map(Map::Made(Rc::new(map.collect())))
}
