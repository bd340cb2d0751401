//! Bytes to values. Hostile input ends in an error: lengths are checked against what is there, nesting is
//! bounded, and nothing is allocated ahead of the bytes that fill it.

use serde_json::{Map, Number, Value};

use super::table::{self, Field, Form, Kind, Message, Shape};
use crate::codec::json::{self, lossy};
use crate::codec::{base64, time};
use crate::depth;

/// Decodes the message of an object.
pub(super) fn object(message: &Message, bytes: &[u8]) -> Result<Value, String> {
    let mut map = Map::new();
    fields(message, bytes, 0, &mut map)?;
    Ok(Value::Object(map))
}

/// Walks over the fields of a message.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    message: &'a str,
}

/// A field as it is on the wire.
pub(super) struct WireField<'a> {
    pub(super) number: u32,
    value: Wire<'a>,
}

#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
    /// A group, which nothing here uses, already skipped.
    Group,
}

impl Wire<'_> {
    const fn number(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Group => 3,
            Self::Fixed32 => 5,
        }
    }
}

impl<'a> WireField<'a> {
    fn wrong(&self, field: &str) -> String {
        let mut name = field.to_owned();
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        format!("proto: wrong wireType = {} for field {name}", self.value.number())
    }

    /// The content of a field with a length.
    pub(super) fn bytes(&self, field: &str) -> Result<&'a [u8], String> {
        match self.value {
            Wire::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wrong(field)),
        }
    }

    fn varint(&self, field: &str) -> Result<u64, String> {
        match self.value {
            Wire::Varint(value) => Ok(value),
            _ => Err(self.wrong(field)),
        }
    }
}

impl<'a> Reader<'a> {
    /// A reader over a message, whose name errors show.
    pub(super) fn new(bytes: &'a [u8], message: &'a str) -> Self {
        Self { bytes, message }
    }

    /// The next field.
    pub(super) fn next(&mut self) -> Result<Option<WireField<'a>>, String> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let (number, wire) = ((tag >> 3) as u32 & 0x1FFF_FFFF, tag & 7);
        if wire == 4 {
            return Err(format!("proto: {}: wiretype end group for non-group", self.message));
        }
        if number == 0 {
            return Err(format!("proto: {}: illegal tag {} (wire type {tag})", self.message, tag >> 3));
        }
        let value = match wire {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length =
                    usize::try_from(self.varint()?).map_err(|_| "proto: negative length found during unmarshaling")?;
                Wire::Bytes(self.take(length)?)
            }
            3 => self.skip_group()?,
            5 => {
                self.array::<4>()?;
                Wire::Fixed32
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        Ok(Some(WireField { number, value }))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or("unexpected EOF")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.bytes.split_first().ok_or("unexpected EOF")?;
            self.bytes = rest;
            value |= u64::from(first & 0x7F) << shift;
            if *first < 0x80 {
                return Ok(value);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    /// Skips a group up to its end, without recursion.
    fn skip_group(&mut self) -> Result<Wire<'a>, String> {
        let mut depth = 1usize;
        while depth > 0 {
            match self.varint()? & 7 {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => {
                    let length = usize::try_from(self.varint()?).map_err(|_| "unexpected EOF")?;
                    self.take(length)?;
                }
                3 => depth += 1,
                4 => depth -= 1,
                5 => drop(self.take(4)?),
                other => return Err(format!("proto: illegal wireType {other}")),
            }
        }
        Ok(Wire::Group)
    }
}

/// Decodes fields into an object. Fields that come again add to lists and maps, and merge into messages.
fn fields(message: &Message, bytes: &[u8], depth: usize, map: &mut Map<String, Value>) -> Result<(), String> {
    if depth >= depth::limit() {
        return Err("proto: exceeded max depth".to_owned());
    }
    let mut reader = Reader::new(bytes, message.name);
    while let Some(wire) = reader.next()? {
        let Some(field) = message.field(wire.number) else { continue };
        match field.shape {
            Shape::Inline => {
                let Kind::Message(index) = field.kind else { continue };
                fields(table::by_index(index), wire.bytes(field.json)?, depth, map)?;
            }
            Shape::Map => {
                let (key, value) = entry(field, wire.bytes(field.json)?, depth + 1)?;
                if let Value::Object(map) = member(map, field, || Value::Object(Map::new())) {
                    map.insert(key, value);
                }
            }
            Shape::Repeated => {
                let Value::Array(items) = member(map, field, || Value::Array(Vec::new())) else { continue };
                match (field.kind, wire.value) {
                    (Kind::Bool | Kind::Int32 | Kind::Int64, Wire::Bytes(packed)) => {
                        let mut packed = Reader::new(packed, message.name);
                        while !packed.bytes.is_empty() {
                            items.push(integer(field.kind, packed.varint()?));
                        }
                    }
                    _ => items.push(single(field, &wire, depth + 1)?),
                }
            }
            Shape::Single => match field.kind {
                Kind::Message(index) if table::by_index(index).form == Form::Object => {
                    let bytes = wire.bytes(field.json)?;
                    if let Value::Object(below) = member(map, field, || Value::Object(Map::new())) {
                        fields(table::by_index(index), bytes, depth + 1, below)?;
                    }
                }
                _ => {
                    let value = single(field, &wire, depth + 1)?;
                    map.insert(field.json.to_owned(), value);
                }
            },
        }
    }
    Ok(())
}

fn member<'m>(map: &'m mut Map<String, Value>, field: &Field, empty: impl FnOnce() -> Value) -> &'m mut Value {
    if !map.contains_key(field.json) {
        map.insert(field.json.to_owned(), empty());
    }
    &mut map[field.json]
}

/// Decodes one value.
fn single(field: &Field, wire: &WireField<'_>, depth: usize) -> Result<Value, String> {
    match field.kind {
        Kind::String => Ok(lossy(wire.bytes(field.json)?).into_owned().into()),
        Kind::Bytes => Ok(base64::encode(wire.bytes(field.json)?).into()),
        Kind::Bool | Kind::Int32 | Kind::Int64 => Ok(integer(field.kind, wire.varint(field.json)?)),
        Kind::Double => match wire.value {
            Wire::Fixed64(bits) => Ok(Number::from_f64(f64::from_bits(bits)).map_or(Value::Null, Value::Number)),
            _ => Err(wire.wrong(field.json)),
        },
        Kind::Message(index) => message(table::by_index(index), wire.bytes(field.json)?, depth),
    }
}

fn integer(kind: Kind, value: u64) -> Value {
    match kind {
        Kind::Bool => (value != 0).into(),
        Kind::Int32 => (value as i32).into(),
        _ => (value as i64).into(),
    }
}

/// Decodes an entry of a map: a message with the key and the value, either of which may be left out.
fn entry(field: &Field, bytes: &[u8], depth: usize) -> Result<(String, Value), String> {
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader::new(bytes, field.json);
    while let Some(wire) = reader.next()? {
        match wire.number {
            1 => key = lossy(wire.bytes(field.json)?).into_owned(),
            2 => value = Some(single(field, &wire, depth)?),
            _ => {}
        }
    }
    let value = match (value, field.kind) {
        (Some(value), _) => value,
        (None, Kind::Message(index)) => message(table::by_index(index), &[], depth)?,
        (None, Kind::Double) => 0.into(),
        (None, Kind::Bool | Kind::Int32 | Kind::Int64) => integer(field.kind, 0),
        (None, Kind::String | Kind::Bytes) => "".into(),
    };
    Ok((key, value))
}

/// Decodes a message in its own form.
fn message(message: &Message, bytes: &[u8], depth: usize) -> Result<Value, String> {
    if message.form == Form::Object {
        let mut map = Map::new();
        fields(message, bytes, depth, &mut map)?;
        return Ok(Value::Object(map));
    }
    let mut reader = Reader::new(bytes, message.name);
    match message.form {
        Form::Object => Ok(Value::Null),
        Form::Time(precision) => {
            if bytes.is_empty() {
                return Ok(Value::Null);
            }
            let mut moment = time::Moment { seconds: 0, nanos: 0 };
            while let Some(wire) = reader.next()? {
                match wire.number {
                    1 => moment.seconds = wire.varint("Seconds")? as i64,
                    2 => moment.nanos = wire.varint("Nanos")? as u32,
                    _ => {}
                }
            }
            // Fractions beyond a second would only come from a broken client.
            moment.nanos = moment.nanos.min(999_999_999);
            Ok(moment.format(precision).into())
        }
        Form::Quantity => {
            let mut text = "0".into();
            while let Some(wire) = reader.next()? {
                if wire.number == 1 {
                    text = lossy(wire.bytes("String_")?);
                }
            }
            Ok(text.into_owned().into())
        }
        Form::IntOrString => {
            let (mut is_text, mut number, mut text) = (false, 0, String::new());
            while let Some(wire) = reader.next()? {
                match wire.number {
                    1 => is_text = wire.varint("Type")? == 1,
                    2 => number = wire.varint("IntVal")? as i32,
                    3 => text = lossy(wire.bytes("StrVal")?).into_owned(),
                    _ => {}
                }
            }
            Ok(if is_text { text.into() } else { number.into() })
        }
        Form::Json => {
            let mut raw: &[u8] = &[];
            while let Some(wire) = reader.next()? {
                if wire.number == 1 {
                    raw = wire.bytes("Raw")?;
                }
            }
            if raw.is_empty() {
                return Ok(Value::Null);
            }
            Ok(json::parse_below(raw, depth).map_err(|error| error.message)?.value)
        }
        Form::Items => {
            let mut items = Vec::new();
            while let Some(wire) = reader.next()? {
                if wire.number == 1 {
                    items.push(lossy(wire.bytes("Items")?).into_owned().into());
                }
            }
            Ok(Value::Array(items))
        }
        Form::SchemaOrBool | Form::SchemaOrList => {
            let mut map = Map::new();
            fields(message, bytes, depth, &mut map)?;
            let schema = map.remove("schema");
            if message.form == Form::SchemaOrBool {
                return Ok(schema.unwrap_or_else(|| map.remove("allows").unwrap_or(Value::Bool(false))));
            }
            Ok(schema.or_else(|| map.into_values().next()).unwrap_or(Value::Null))
        }
    }
}
