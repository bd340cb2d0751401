//! Lists of objects in YAML, protobuf and indented JSON, of which one piece after the other is made.
//!
//! Each form puts the encoded items between a head and an end. In protobuf the length of all
//! comes first, so that all pieces are there before the first is sent: as much as the answer is large, and no object.

use serde_json::{Map, Value};

use crate::codec::negotiate::{Accepted, Format, Transform};
use crate::codec::protobuf::{ListMessage, NotMarshalable};
use crate::codec::{write, yaml};
use crate::resource::Resource;
use crate::table::{self, MetaVersion};

/// How the items of a list are written.
pub struct Form {
    encoding: Encoding,
    /// Whether only metadata is shown.
    metadata: Option<MetaVersion>,
    /// `kind`, `apiVersion` and `metadata` of the list.
    head: Map<String, Value>,
}

enum Encoding {
    Indented,
    Yaml,
    Protobuf(ListMessage),
}

impl Form {
    /// The form that a request asks for, if it is one of these. `meta` is the metadata of the list.
    pub fn of(accepted: &Accepted, resource: &Resource, meta: Value) -> Result<Option<Self>, NotMarshalable> {
        let metadata = match accepted.transform() {
            Some((Transform::Table, _)) => return Ok(None),
            Some((_, version)) => Some(MetaVersion::of(version)),
            None => None,
        };
        let (kind, api_version) = match metadata {
            Some(version) => ("PartialObjectMetadataList", version.api_version().to_owned()),
            None => (&*resource.list_kind, resource.api_version()),
        };
        let encoding = match accepted.format {
            Format::Json if accepted.pretty => Encoding::Indented,
            Format::Json => return Ok(None),
            Format::Yaml => Encoding::Yaml,
            Format::Protobuf => Encoding::Protobuf(ListMessage::of(&api_version, kind)?),
        };
        let mut head = Map::new();
        head.insert("kind".into(), kind.into());
        head.insert("apiVersion".into(), api_version.into());
        head.insert("metadata".into(), meta);
        Ok(Some(Self { encoding, metadata, head }))
    }

    /// Whether nothing can be sent before everything is written.
    pub fn needs_length(&self) -> bool {
        matches!(self.encoding, Encoding::Protobuf(_))
    }

    /// What comes before the items, of which there is one at least.
    pub fn head(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4096);
        match &self.encoding {
            Encoding::Indented => {
                let mut compact = write::to_vec(&self.part(|key| key < "items"));
                // The object goes on.
                compact.pop();
                write::indent(&compact, 0, &mut out);
                out.extend_from_slice(b",\n  \"items\": [");
            }
            Encoding::Yaml => {
                out.extend_from_slice(yaml::write(&self.part(|key| key < "items")).as_bytes());
                out.extend_from_slice(b"items:\n");
            }
            Encoding::Protobuf(message) => message.fields(&self.part(|key| key == "metadata"), &mut out),
        }
        out
    }

    /// What comes after the items.
    pub fn end(&self, out: &mut Vec<u8>) {
        match &self.encoding {
            Encoding::Indented => {
                let mut rest = Vec::new();
                write::indent(&write::to_vec(&self.part(|key| key > "items")), 0, &mut rest);
                out.extend_from_slice(b"\n  ],");
                out.extend_from_slice(rest.strip_prefix(b"{").unwrap_or(&rest));
                out.push(b'\n');
            }
            Encoding::Yaml => out.extend_from_slice(yaml::write(&self.part(|key| key > "items")).as_bytes()),
            Encoding::Protobuf(_) => {}
        }
    }

    /// What comes before everything that was written, if that is `length` bytes, and what comes after it.
    pub fn envelope(&self, length: usize) -> (Vec<u8>, Vec<u8>) {
        match &self.encoding {
            Encoding::Protobuf(message) => message.envelope(length),
            _ => (Vec::new(), Vec::new()),
        }
    }

    /// Writes items. `is_first` says that none were written before.
    pub fn items(&self, resource: &Resource, objects: Vec<Value>, is_first: bool, out: &mut Vec<u8>) {
        let items: Vec<Value> = objects.into_iter().map(|object| self.item(resource, object)).collect();
        match &self.encoding {
            Encoding::Indented => {
                for (i, item) in items.iter().enumerate() {
                    out.extend_from_slice(if is_first && i == 0 { b"\n    " } else { b",\n    " });
                    write::indent(&write::to_vec(item), 2, out);
                }
            }
            Encoding::Yaml => {
                let list = yaml::write(&Value::Object(Map::from_iter([("items".to_owned(), items.into())])));
                let list = list.strip_prefix("items:\n").unwrap_or(&list);
                out.extend_from_slice(list.as_bytes());
            }
            Encoding::Protobuf(message) => {
                message.fields(&Value::Object(Map::from_iter([("items".to_owned(), items.into())])), out);
            }
        }
    }

    fn item(&self, resource: &Resource, mut object: Value) -> Value {
        if let Some(version) = self.metadata {
            return table::partial(&object, version);
        }
        if let (false, Value::Object(map)) = (resource.custom, &mut object) {
            map.remove("kind");
            map.remove("apiVersion");
        }
        object
    }

    fn part(&self, has: impl Fn(&str) -> bool) -> Value {
        let fields = self.head.iter().filter(|(key, _)| has(key));
        Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::codec::negotiate::negotiate;
    use crate::codec::protobuf;
    use crate::resource::builtins;

    fn config_map(index: usize) -> Value {
        let text = ["plain", "ends with breaks\n\n", "two\nlines", " starts with a blank", "true"][index % 5];
        json!({"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": format!("a{index}"), "namespace": "default", "labels": {"a": "b"}},
            "data": {"text": text, "k10": "", "k2": "\u{e9}\t"}})
    }

    /// What the pieces of a list are together.
    fn pieced(form: &Form, resource: &Resource, objects: &[Value], size: usize) -> Vec<u8> {
        let mut list = form.head();
        for (i, piece) in objects.chunks(size).enumerate() {
            form.items(resource, piece.to_vec(), i == 0, &mut list);
        }
        form.end(&mut list);
        let (head, end) = form.envelope(list.len());
        [head, list, end].concat()
    }

    #[track_caller]
    fn check(accept: &str, pretty: bool) {
        let resource = builtins().iter().find(|resource| &*resource.plural == "configmaps").expect("a resource");
        let accepted = Accepted { pretty, ..negotiate(accept, |_, _| true).expect(accept) };
        let meta = json!({"resourceVersion": "7", "continue": "more", "remainingItemCount": 3});
        let form = Form::of(&accepted, resource, meta.clone()).expect("can be written").expect("in pieces");
        let objects: Vec<Value> = (0..9).map(config_map).collect();
        let whole = if let Some(version) = form.metadata {
            let items: Vec<Value> = objects.iter().map(|object| table::partial(object, version)).collect();
            json!({"kind": "PartialObjectMetadataList", "apiVersion": version.api_version(), "metadata": meta,
                "items": items})
        } else {
            let mut list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": meta, "items": objects});
            for item in list["items"].as_array_mut().expect("a list") {
                item.as_object_mut().expect("an object").retain(|key, _| key != "kind" && key != "apiVersion");
            }
            list
        };
        let whole = match accepted.format {
            Format::Json => {
                let mut out = Vec::new();
                write::indent(&write::to_vec(&whole), 0, &mut out);
                out.push(b'\n');
                out
            }
            Format::Yaml => yaml::write(&whole).into(),
            Format::Protobuf => protobuf::encode(&whole).expect("can be written"),
        };
        for size in [1, 2, 5, 9] {
            let pieced = pieced(&form, resource, &objects, size);
            assert_eq!(String::from_utf8_lossy(&pieced), String::from_utf8_lossy(&whole), "{accept} by {size}");
        }
    }

    #[test]
    fn pieces_are_what_the_whole_list_is() {
        let partial = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        for accept in ["application/yaml", "application/vnd.kubernetes.protobuf"] {
            check(accept, false);
            check(&format!("{accept}{partial}"), false);
        }
        check("application/json", true);
        check(&format!("application/json{partial}"), true);
    }
}
