//! The protobuf encoding of an OpenAPI v3 document, as `gnostic-models/openapiv3` defines it.
//!
//! Field numbers are those of `OpenAPIv3.proto`. kubectl 1.24 to 1.26 read group versions in this form.

use serde_json::Value;

use super::{Message, entries, items, named, one_of};

/// A document in the making.
pub struct Document {
    head: Message,
    paths: Message,
    schemas: Message,
}

impl Document {
    /// A document about an API.
    pub fn new(title: &str, version: &str) -> Self {
        let mut info = Message::default();
        info.text(1, title);
        info.text(6, version);
        let mut head = Message::default();
        head.text(1, "3.0.0");
        head.message(2, &info);
        Self { head, paths: Message::default(), schemas: Message::default() }
    }

    /// Adds a path.
    pub fn path(&mut self, path: &str, item: &Value) {
        self.paths.message(1, &named(path, &path_item(item)));
    }

    /// Adds a schema.
    pub fn schema(&mut self, name: &str, schema: &Value) {
        self.schemas.message(1, &named(name, &schema_or_reference(schema)));
    }

    /// The whole document.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let mut bearer = Message::default();
        bearer.text(1, "apiKey");
        bearer.text(2, "Bearer Token authentication");
        bearer.text(3, "authorization");
        bearer.text(4, "header");
        let mut components = Message::default();
        components.message(1, &self.schemas);
        components.message(7, &one_of(1, &named("BearerToken", &one_of(1, &bearer))));
        let mut out = self.head;
        out.message(4, &self.paths);
        out.message(5, &components);
        out.0
    }
}

/// Any of the `…OrReference` messages: the thing itself is the first, a reference the second choice.
fn or_reference(value: &Value, thing: impl FnOnce(&Value) -> Message) -> Message {
    if value.get("$ref").is_none() {
        return one_of(1, &thing(value));
    }
    let mut reference = Message::default();
    reference.text_of(1, value, "$ref");
    one_of(2, &reference)
}

fn schema_or_reference(value: &Value) -> Message {
    or_reference(value, schema)
}

fn path_item(value: &Value) -> Message {
    let mut out = Message::default();
    out.operations_of([4, 5, 6, 7, 10], value, operation);
    for item in items(value, "parameters") {
        out.message(13, &or_reference(item, parameter));
    }
    out
}

fn operation(value: &Value) -> Message {
    let mut out = Message::default();
    out.operation_head(value);
    for item in items(value, "parameters") {
        out.message(6, &or_reference(item, parameter));
    }
    if let Some(body) = value.get("requestBody") {
        out.message(7, &or_reference(body, request_body));
    }
    let mut responses = Message::default();
    for (code, response_value) in entries(&value["responses"]) {
        responses.message(2, &named(code, &or_reference(response_value, response)));
    }
    out.message(8, &responses);
    out.extensions(13, value);
    out
}

fn parameter(value: &Value) -> Message {
    let mut out = Message::default();
    out.text_of(1, value, "name");
    out.text_of(2, value, "in");
    out.text_of(3, value, "description");
    out.flag_of(4, value, "required");
    if let Some(schema) = value.get("schema") {
        out.message(10, &schema_or_reference(schema));
    }
    out
}

fn request_body(value: &Value) -> Message {
    let mut out = Message::default();
    out.text_of(1, value, "description");
    out.message(2, &content(value));
    out.flag_of(3, value, "required");
    out
}

fn response(value: &Value) -> Message {
    let mut out = Message::default();
    out.text_of(1, value, "description");
    if value.get("content").is_some() {
        out.message(3, &content(value));
    }
    out
}

/// The media types of a body.
fn content(value: &Value) -> Message {
    let mut out = Message::default();
    for (name, media_type) in entries(&value["content"]) {
        let mut message = Message::default();
        if let Some(schema) = media_type.get("schema") {
            message.message(1, &schema_or_reference(schema));
        }
        out.message(1, &named(name, &message));
    }
    out
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    out.flag_of(1, value, "nullable");
    out.text_of(9, value, "title");
    out.constraints(10, value);
    out.text_of(25, value, "type");
    for (field, key) in [(26, "allOf"), (27, "oneOf"), (28, "anyOf")] {
        for item in items(value, key) {
            out.message(field, &schema_or_reference(item));
        }
    }
    if let Some(not) = value.get("not") {
        out.message(29, &schema(not));
    }
    if let Some(of) = value.get("items") {
        out.message(30, &one_of(1, &schema_or_reference(of)));
    }
    out.properties_of(31, value, schema_or_reference);
    match value.get("additionalProperties") {
        Some(Value::Bool(allowed)) => out.message(32, &boolean(*allowed)),
        Some(additional) => out.message(32, &one_of(1, &schema_or_reference(additional))),
        None => {}
    }
    if let Some(default) = value.get("default").and_then(default_type) {
        out.message(33, &default);
    }
    out.text_of(34, value, "description");
    out.text_of(35, value, "format");
    out.extensions(36, value);
    out
}

fn boolean(value: bool) -> Message {
    let mut out = Message::default();
    out.tag(2, 0);
    out.varint(u64::from(value));
    out
}

/// Only scalars have a place here; `{}`, which stands for an empty struct, has none.
fn default_type(value: &Value) -> Option<Message> {
    let mut out = Message::default();
    match value {
        Value::Number(number) => {
            out.tag(1, 1);
            out.0.extend_from_slice(&number.as_f64()?.to_le_bytes());
        }
        Value::Bool(value) => return Some(boolean(*value)),
        Value::String(text) => out.bytes(3, text.as_bytes()),
        _ => return None,
    }
    Some(out)
}
