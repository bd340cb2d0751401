//! What built-in kinds and their fields are for: the texts of Kubernetes' own specification.
//!
//! They are kept compressed in the binary and unpacked while a document is being made, so that a server that
//! nobody asks for one never holds them. `facts/make-descriptions.py` says where they come from and how the
//! file is laid out.

use std::borrow::Cow;
use std::io::Read as _;
use std::sync::{Arc, Weak};

use flate2::read::GzDecoder;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::Dialect;
use super::render::{API_VERSION, KIND, LIST_METADATA};

static PACKED: &[u8] = include_bytes!("../../facts/descriptions-1.36.gz");

/// Every description.
pub(crate) struct Descriptions {
    text: String,
    /// Where each line starts.
    lines: Vec<u32>,
    /// The lines that start a definition, in the order of the names.
    definitions: Vec<u32>,
}

impl Descriptions {
    /// The descriptions, shared with whoever else makes a document just now.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Descriptions>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        shared.upgrade().unwrap_or_else(|| {
            let unpacked = Arc::new(Self::unpack());
            *shared = Arc::downgrade(&unpacked);
            unpacked
        })
    }

    fn unpack() -> Self {
        let mut text = String::new();
        let read = GzDecoder::new(PACKED).read_to_string(&mut text);
        read.expect("invariant: the embedded descriptions are well-formed");
        let mut lines = vec![0];
        lines.extend(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at as u32 + 1));
        lines.pop();
        let definitions =
            (0_u32..).zip(&lines).filter(|(_, at)| text.as_bytes()[**at as usize] != b'\t').map(|(line, _)| line);
        let definitions = definitions.collect();
        Self { text, lines, definitions }
    }

    /// Adds descriptions to a rendered definition and its fields.
    pub(super) fn describe(&self, name: &str, schema: &mut Map<String, Value>, dialect: Dialect) {
        let start = self.definitions.binary_search_by(|line| self.entry(*line as usize).0.cmp(name));
        let Ok(start) = start else { return describe_list(schema, dialect) };
        let first = self.definitions[start] as usize;
        let own = self.text_of(first);
        if !own.is_empty() {
            schema.insert("description".into(), own.into());
        }
        let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
        let end = self.definitions.get(start + 1).map_or(self.lines.len(), |next| *next as usize);
        for line in first + 1..end {
            if let Some(property) = properties.get_mut(self.entry(line).0) {
                describe_property(property, &self.text_of(line), dialect);
            }
        }
    }

    /// The name and the text of a line.
    fn entry(&self, line: usize) -> (&str, &str) {
        let start = self.lines[line] as usize;
        let end = self.lines.get(line + 1).map_or(self.text.len(), |next| *next as usize);
        let content = self.text[start..end].trim_end_matches('\n');
        content.strip_prefix('\t').unwrap_or(content).split_once('\t').unwrap_or((content, ""))
    }

    fn text_of(&self, line: usize) -> Cow<'_, str> {
        let (_, text) = self.entry(line);
        let text = match text.parse::<usize>() {
            Ok(other) => self.entry(other).1,
            Err(_) => text,
        };
        if text.contains("\\n") { text.replace("\\n", "\n").into() } else { text.into() }
    }
}

/// Lists are described alike, all of them.
fn describe_list(schema: &mut Map<String, Value>, dialect: Dialect) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    if !properties.contains_key("items") {
        return;
    }
    for (field, text) in [("apiVersion", API_VERSION), ("kind", KIND), ("metadata", LIST_METADATA)] {
        if let Some(property) = properties.get_mut(field) {
            describe_property(property, text, dialect);
        }
    }
}

fn describe_property(property: &mut Value, text: &str, dialect: Dialect) {
    if text.is_empty() {
        return;
    }
    let Value::Object(map) = property else { return };
    // Before OpenAPI 3.1 a reference has no siblings.
    if dialect == Dialect::V3
        && let Some(target) = map.remove("$ref")
    {
        map.insert("allOf".into(), json!([{"$ref": target}]));
    }
    map.insert("description".into(), text.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;

    #[test]
    fn descriptions_cost_little_and_belong_to_known_fields() {
        assert!(PACKED.len() < 200 * 1024, "{}", PACKED.len());
        let descriptions = Descriptions::unpack();
        let mut owner = "";
        for line in 0..descriptions.lines.len() {
            let (name, _) = descriptions.entry(line);
            assert!(
                !descriptions.text_of(line).chars().all(|c| c.is_ascii_digit())
                    || descriptions.entry(line).1.is_empty()
            );
            if descriptions.definitions.binary_search(&(line as u32)).is_ok() {
                owner = name;
                continue;
            }
            let schema = builtin::definition(builtin::by_name(owner).expect(owner));
            assert!(schema.properties.contains_key(name), "{owner} has no {name}");
        }
        assert!(descriptions.definitions.len() > 500);
    }

    #[test]
    fn fields_are_described() {
        let mut schema = json!({"properties": {"metadata": {"$ref": "#/x"}, "data": {"type": "object"}}});
        let Value::Object(map) = &mut schema else { return };
        Descriptions::shared().describe("io.k8s.api.core.v1.ConfigMap", map, Dialect::V3);
        assert_eq!(map["description"], "ConfigMap holds configuration data for pods to consume.");
        assert_eq!(map["properties"]["metadata"]["allOf"], json!([{"$ref": "#/x"}]));
        let data = map["properties"]["data"]["description"].as_str().unwrap_or_default();
        assert!(data.starts_with("Data contains the configuration data."), "{data}");
        let metadata = map["properties"]["metadata"]["description"].as_str().unwrap_or_default();
        assert!(metadata.starts_with("Standard object's metadata."), "{metadata}");
    }
}
