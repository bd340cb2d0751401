//! The protobuf encoding of an OpenAPI document, here that of v2, as `gnostic-models/openapiv2` defines it.
//!
//! Field numbers are those of `OpenAPIv2.proto`. The input is the JSON form, one path or definition at a time;
//! only what the server writes is understood. Values of unknown shape (defaults, enums, extensions) travel as
//! YAML text, for which JSON serves.

use serde_json::{Map, Value};

pub mod v3;

/// A document in the making.
pub struct Document {
    head: Message,
    paths: Message,
    definitions: Message,
}

impl Document {
    /// A document about an API.
    pub fn new(title: &str, version: &str) -> Self {
        let mut info = Message::default();
        info.text(1, title);
        info.text(2, version);
        let mut head = Message::default();
        head.text(1, "2.0");
        head.message(2, &info);
        Self { head, paths: Message::default(), definitions: Message::default() }
    }

    /// Adds a path.
    pub fn path(&mut self, path: &str, item: &Value) {
        self.paths.message(2, &named(path, &path_item(item)));
    }

    /// Adds a definition.
    pub fn definition(&mut self, name: &str, definition: &Value) {
        self.definitions.message(1, &named(name, &schema(definition)));
    }

    /// The whole document.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let mut out = self.head;
        out.message(8, &self.paths);
        out.message(9, &self.definitions);
        out.0
    }
}

/// An encoded message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire_type: u8) {
        self.varint(u64::from(field << 3) | u64::from(wire_type));
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, message: &Message) {
        self.bytes(field, &message.0);
    }

    /// Empty texts are the default and left out.
    fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn text_of(&mut self, field: u32, value: &Value, key: &str) {
        self.text(field, value[key].as_str().unwrap_or_default());
    }

    fn texts_of(&mut self, field: u32, value: &Value, key: &str) {
        for text in items(value, key).filter_map(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag_of(&mut self, field: u32, value: &Value, key: &str) {
        if value[key] == true {
            self.tag(field, 0);
            self.varint(1);
        }
    }

    fn int_of(&mut self, field: u32, value: &Value, key: &str) {
        if let Some(int) = value[key].as_i64().filter(|int| *int != 0) {
            self.tag(field, 0);
            self.varint(int as u64);
        }
    }

    fn double_of(&mut self, field: u32, value: &Value, key: &str) {
        if let Some(double) = value[key].as_f64().filter(|double| *double != 0.0) {
            self.tag(field, 1);
            self.0.extend_from_slice(&double.to_le_bytes());
        }
    }

    fn any(&mut self, field: u32, value: &Value) {
        self.message(field, &any(value));
    }

    /// What a path has for each method, `get` at the first of `fields`.
    fn operations_of(&mut self, fields: [u32; 5], value: &Value, operation: fn(&Value) -> Message) {
        for (field, method) in fields.into_iter().zip(["get", "put", "post", "delete", "patch"]) {
            if let Some(value) = value.get(method) {
                self.message(field, &operation(value));
            }
        }
    }

    /// How an operation is introduced.
    fn operation_head(&mut self, value: &Value) {
        self.texts_of(1, value, "tags");
        self.text_of(3, value, "description");
        self.text_of(5, value, "operationId");
    }

    /// What a schema demands of values; its fields follow one another from `first`.
    fn constraints(&mut self, first: u32, value: &Value) {
        self.double_of(first, value, "multipleOf");
        self.double_of(first + 1, value, "maximum");
        self.flag_of(first + 2, value, "exclusiveMaximum");
        self.double_of(first + 3, value, "minimum");
        self.flag_of(first + 4, value, "exclusiveMinimum");
        self.int_of(first + 5, value, "maxLength");
        self.int_of(first + 6, value, "minLength");
        self.text_of(first + 7, value, "pattern");
        self.int_of(first + 8, value, "maxItems");
        self.int_of(first + 9, value, "minItems");
        self.flag_of(first + 10, value, "uniqueItems");
        self.int_of(first + 11, value, "maxProperties");
        self.int_of(first + 12, value, "minProperties");
        self.texts_of(first + 13, value, "required");
        for item in items(value, "enum") {
            self.any(first + 14, item);
        }
    }

    /// An empty set of properties would tell kubectl that there may be none.
    fn properties_of(&mut self, field: u32, value: &Value, schema: fn(&Value) -> Message) {
        if entries(&value["properties"]).next().is_some() {
            let mut properties = Message::default();
            for (name, property) in entries(&value["properties"]) {
                properties.message(1, &named(name, &schema(property)));
            }
            self.message(field, &properties);
        }
    }

    /// Everything whose name starts with `x-`.
    fn extensions(&mut self, field: u32, value: &Value) {
        for (name, extension) in entries(value).filter(|(name, _)| name.starts_with("x-")) {
            self.message(field, &named(name, &any(extension)));
        }
    }
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().map(Map::iter).into_iter().flatten()
}

/// Any of the `Named…` messages.
fn named(name: &str, value: &Message) -> Message {
    let mut out = Message::default();
    out.text(1, name);
    out.message(2, value);
    out
}

fn any(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(2, &value.to_string());
    out
}

/// A message that holds one of several others.
fn one_of(field: u32, value: &Message) -> Message {
    let mut out = Message::default();
    out.message(field, value);
    out
}

fn path_item(value: &Value) -> Message {
    let mut out = Message::default();
    out.operations_of([2, 3, 4, 5, 8], value, operation);
    for item in items(value, "parameters") {
        out.message(9, &one_of(1, &parameter(item)));
    }
    out
}

fn operation(value: &Value) -> Message {
    let mut out = Message::default();
    out.operation_head(value);
    out.texts_of(6, value, "produces");
    out.texts_of(7, value, "consumes");
    for item in items(value, "parameters") {
        out.message(8, &one_of(1, &parameter(item)));
    }
    let mut responses = Message::default();
    for (code, response) in entries(&value["responses"]) {
        let mut message = Message::default();
        message.text_of(1, response, "description");
        if let Some(body) = response.get("schema") {
            message.message(2, &one_of(1, &schema(body)));
        }
        responses.message(1, &named(code, &one_of(1, &message)));
    }
    out.message(9, &responses);
    out.texts_of(10, value, "schemes");
    out.extensions(13, value);
    out
}

fn parameter(value: &Value) -> Message {
    let mut out = Message::default();
    match value["in"].as_str() {
        Some("body") => {
            out.text_of(1, value, "description");
            out.text_of(2, value, "name");
            out.text_of(3, value, "in");
            out.flag_of(4, value, "required");
            out.message(5, &schema(&value["schema"]));
            one_of(1, &out)
        }
        place => {
            let in_query = place == Some("query");
            // Query parameters have one field more in the middle.
            let shift = u32::from(in_query);
            out.flag_of(1, value, "required");
            out.text_of(2, value, "in");
            out.text_of(3, value, "description");
            out.text_of(4, value, "name");
            out.text_of(5 + shift, value, "type");
            out.text_of(6 + shift, value, "format");
            out.flag_of(19 + shift, value, "uniqueItems");
            one_of(2, &one_of(if in_query { 3 } else { 4 }, &out))
        }
    }
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    out.text_of(1, value, "$ref");
    out.text_of(2, value, "format");
    out.text_of(4, value, "description");
    if let Some(default) = value.get("default") {
        out.any(5, default);
    }
    out.constraints(6, value);
    if let Some(additional) = value.get("additionalProperties") {
        out.message(21, &one_of(1, &schema(additional)));
    }
    if let Some(ty) = value["type"].as_str() {
        let mut types = Message::default();
        types.text(1, ty);
        out.message(22, &types);
    }
    if let Some(of) = value.get("items") {
        out.message(23, &one_of(1, &schema(of)));
    }
    out.properties_of(25, value, schema);
    out.extensions(31, value);
    out
}
