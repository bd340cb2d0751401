//! Reads one field of an object of any type, as its JSON would show it, without making that JSON.
//!
//! It is a serde serializer that goes where a path leads and leaves out everything else, so that selecting by a field
//! costs little for each object.

use std::fmt::{self, Display};

use serde::Serialize;
use serde::ser::{self, Serializer};

/// What is at the end of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scalar {
    /// Text, a number or a truth value, as text.
    Value(String),
    /// Nothing, or `null`.
    Absent,
    /// An object or a list; or the path leads through a list.
    Compound,
}

/// Reads what a path leads to. A value that cannot be written as JSON is absent.
pub(super) fn read(object: &impl Serialize, path: &[&str]) -> Scalar {
    object.serialize(Reader { path }).unwrap_or(Scalar::Absent)
}

/// A type refused to be serialized.
#[derive(Debug)]
struct Refused;

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot be serialized")
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

struct Reader<'p> {
    path: &'p [&'p str],
}

impl<'p> Reader<'p> {
    fn value(&self, value: &(impl ToString + ?Sized)) -> Scalar {
        if self.path.is_empty() { Scalar::Value(value.to_string()) } else { Scalar::Absent }
    }

    fn fields(self) -> Fields<'p> {
        let found = if self.path.is_empty() { Scalar::Compound } else { Scalar::Absent };
        Fields { path: self.path, found, key: None }
    }

    /// An enum's variant with content is an object with one field: what reads that content, if the path leads there,
    /// or what is found otherwise.
    fn variant(self, variant: &str) -> Result<Self, Scalar> {
        match self.path.split_first() {
            Some((first, rest)) if *first == variant => Ok(Self { path: rest }),
            Some(_) => Err(Scalar::Absent),
            None => Err(Scalar::Compound),
        }
    }
}

/// An object's fields, of which at most one is of interest.
struct Fields<'p> {
    path: &'p [&'p str],
    found: Scalar,
    /// Of the entry of a map whose value is next.
    key: Option<String>,
}

impl Fields<'_> {
    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Refused> {
        if let Some((first, rest)) = self.path.split_first()
            && *first == name
        {
            self.found = value.serialize(Reader { path: rest })?;
        }
        Ok(())
    }
}

impl<'p> Serializer for Reader<'p> {
    type Ok = Scalar;
    type Error = Refused;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Fields<'p>;
    type SerializeStruct = Fields<'p>;
    type SerializeStructVariant = Fields<'p>;

    fn serialize_bool(self, value: bool) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_i8(self, value: i8) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_i16(self, value: i16) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_i32(self, value: i32) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_i64(self, value: i64) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_u8(self, value: u8) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_u16(self, value: u16) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_u32(self, value: u32) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_u64(self, value: u64) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_f32(self, value: f32) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_f64(self, value: f64) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_char(self, value: char) -> Result<Scalar, Refused> {
        Ok(self.value(&value))
    }

    fn serialize_str(self, value: &str) -> Result<Scalar, Refused> {
        Ok(self.value(value))
    }

    /// JSON has them as a list of numbers.
    fn serialize_bytes(self, _: &[u8]) -> Result<Scalar, Refused> {
        Ok(Scalar::Compound)
    }

    fn serialize_none(self) -> Result<Scalar, Refused> {
        Ok(Scalar::Absent)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Scalar, Refused> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Scalar, Refused> {
        Ok(Scalar::Absent)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Scalar, Refused> {
        Ok(Scalar::Absent)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Scalar, Refused> {
        Ok(self.value(variant))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Scalar, Refused> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Scalar, Refused> {
        self.variant(variant).map_or_else(Ok, |reader| value.serialize(reader))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List, Refused> {
        Ok(List(Scalar::Compound))
    }

    fn serialize_tuple(self, _: usize) -> Result<List, Refused> {
        Ok(List(Scalar::Compound))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List, Refused> {
        Ok(List(Scalar::Compound))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<List, Refused> {
        Ok(List(self.variant(variant).map_or_else(|found| found, |_| Scalar::Compound)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Fields<'p>, Refused> {
        Ok(self.fields())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields<'p>, Refused> {
        Ok(self.fields())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Fields<'p>, Refused> {
        Ok(self.variant(variant).map_or_else(|found| Fields { path: &[], found, key: None }, Reader::fields))
    }
}

impl ser::SerializeStruct for Fields<'_> {
    type Ok = Scalar;
    type Error = Refused;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Refused> {
        self.field(name, value)
    }

    fn end(self) -> Result<Scalar, Refused> {
        Ok(self.found)
    }
}

impl ser::SerializeMap for Fields<'_> {
    type Ok = Scalar;
    type Error = Refused;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        let Scalar::Value(key) = key.serialize(Reader { path: &[] })? else { return Err(Refused) };
        self.key = Some(key);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        match self.key.take() {
            Some(key) => self.field(&key, value),
            None => Ok(()),
        }
    }

    fn end(self) -> Result<Scalar, Refused> {
        Ok(self.found)
    }
}

/// A list: no single value, and no path leads through it.
struct List(Scalar);

macro_rules! ignore_elements {
    ($($of:ident $element:ident),+) => {
        $(impl ser::$of for List {
            type Ok = Scalar;
            type Error = Refused;

            fn $element<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), Refused> {
                Ok(())
            }

            fn end(self) -> Result<Scalar, Refused> {
                Ok(self.0)
            }
        })+
    };
}

ignore_elements!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

impl ser::SerializeStructVariant for Fields<'_> {
    type Ok = Scalar;
    type Error = Refused;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Refused> {
        self.field(name, value)
    }

    fn end(self) -> Result<Scalar, Refused> {
        Ok(self.found)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::DynamicObject;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web-0", "labels": {"app": "web"}, "creationTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"nodeName": "n1", "priority": 7, "hostNetwork": true, "containers": [{"name": "c"}]},
        })
    }

    #[test]
    fn typed_and_dynamic_objects_show_their_fields() {
        let typed: Pod = serde_json::from_value(pod()).expect("a pod");
        let dynamic: DynamicObject = serde_json::from_value(pod()).expect("an object");
        let value = |text: &str| Scalar::Value(text.into());
        for (path, expected) in [
            ("kind", value("Pod")),
            ("metadata.labels.app", value("web")),
            ("metadata.creationTimestamp", value("2026-01-02T03:04:05Z")),
            ("spec.nodeName", value("n1")),
            ("spec.priority", value("7")),
            ("spec.hostNetwork", value("true")),
            ("spec.schedulerName", Scalar::Absent),
            ("spec.nodeName.x", Scalar::Absent),
            ("status.phase", Scalar::Absent),
            ("spec.containers", Scalar::Compound),
            ("spec.containers.name", Scalar::Compound),
            ("spec", Scalar::Compound),
        ] {
            let names: Vec<&str> = path.split('.').collect();
            assert_eq!(read(&typed, &names), expected, "{path}");
            assert_eq!(read(&dynamic, &names), expected, "{path}");
        }
    }

    #[test]
    fn variants_are_read_as_their_json_is() {
        #[derive(Serialize)]
        enum Source {
            Nothing,
            Url(&'static str),
            File {
                path: &'static str,
            },
            Both(u8, u8),
            #[serde(untagged)]
            Plain(u8),
        }
        #[derive(Serialize)]
        struct Spec {
            sources: [Source; 1],
            a: Source,
            b: Source,
            c: Source,
            d: Source,
            e: Source,
            pair: (u8, u8),
        }
        let spec = Spec {
            sources: [Source::Nothing],
            a: Source::Nothing,
            b: Source::Url("u"),
            c: Source::Plain(3),
            d: Source::File { path: "/f" },
            e: Source::Both(1, 2),
            pair: (1, 2),
        };
        let value = |text: &str| Scalar::Value(text.into());
        assert_eq!(read(&spec, &["a"]), value("Nothing"));
        assert_eq!(read(&spec, &["b", "Url"]), value("u"));
        assert_eq!(read(&spec, &["b"]), Scalar::Compound);
        assert_eq!(read(&spec, &["c"]), value("3"));
        assert_eq!(read(&spec, &["d", "File", "path"]), value("/f"));
        assert_eq!(read(&spec, &["d", "Url"]), Scalar::Absent);
        assert_eq!(read(&spec, &["d", "File"]), Scalar::Compound);
        assert_eq!(read(&spec, &["d"]), Scalar::Compound);
        assert_eq!(read(&spec, &["e", "Both"]), Scalar::Compound);
        assert_eq!(read(&spec, &["sources"]), Scalar::Compound);
        assert_eq!(read(&spec, &["pair"]), Scalar::Compound);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// The same, read from JSON.
    fn expected(mut value: &Value, path: &[&str]) -> Scalar {
        for name in path {
            match value {
                Value::Array(_) => return Scalar::Compound,
                Value::Object(fields) => match fields.get(*name) {
                    Some(field) => value = field,
                    None => return Scalar::Absent,
                },
                _ => return Scalar::Absent,
            }
        }
        match value {
            Value::Null => Scalar::Absent,
            Value::String(text) => Scalar::Value(text.clone()),
            Value::Array(_) | Value::Object(_) => Scalar::Compound,
            other => Scalar::Value(other.to_string()),
        }
    }

    proptest! {
        #[test]
        fn a_path_leads_where_it_leads_in_json(value in json(), path in prop::collection::vec("[a-c]", 0..4)) {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            prop_assert_eq!(read(&value, &path), expected(&value, &path));
        }
    }
}
