//! `kind: Table` and `kind: PartialObjectMetadata`: what kubectl prints and metadata clients read.
//!
//! A resource has its own columns (`facts` for built-in kinds, `additionalPrinterColumns` for custom ones)
//! or the default ones. Cells are computed here, from the object and the present time; the caller decides by
//! content negotiation whether a Table is wanted at all, with [`supports`] telling whether there can be one.

mod access;
mod custom;
mod descriptions;
pub mod duration;
mod printers;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::field::quote;
use crate::resource::{Column, Resource};
use crate::status::Status;
use access::View;

/// Which version of `meta.k8s.io` the client asked for; the shapes are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `v1`.
    #[default]
    V1,
    /// `v1beta1`, for old clients.
    V1Beta1,
}

impl MetaVersion {
    /// The version that goes by a name; `v1` by any other.
    pub fn of(name: &str) -> Self {
        if name == "v1beta1" { Self::V1Beta1 } else { Self::V1 }
    }

    /// The `apiVersion` of the answers.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The query parameter `includeObject`: what comes along with each row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; absent and empty mean the default.
    pub fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: \
                 must be 'Metadata', 'Object', 'None', or empty",
                quote(other)
            ))),
        }
    }
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default)]
pub struct ListMeta<'a> {
    /// The revision of the list; for a single object, its own.
    pub resource_version: Cow<'a, str>,
    /// Where the next page starts.
    pub continue_token: Option<Cow<'a, str>>,
    /// How many objects there are after this page.
    pub remaining_item_count: Option<i64>,
}

impl<'a> ListMeta<'a> {
    /// The metadata of a table that shows one object.
    pub fn of_object(object: &'a Value) -> Self {
        let resource_version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        Self { resource_version: resource_version.into(), ..Self::default() }
    }

    /// The metadata as JSON.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        if !self.resource_version.is_empty() {
            map.insert("resourceVersion".into(), self.resource_version.as_ref().into());
        }
        if let Some(token) = self.continue_token.as_deref().filter(|token| !token.is_empty()) {
            map.insert("continue".into(), token.into());
        }
        if let Some(count) = self.remaining_item_count {
            map.insert("remainingItemCount".into(), count.into());
        }
        Value::Object(map)
    }
}

/// How a table is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What comes along with each row.
    pub include: IncludeObject,
    /// Ages are relative to this.
    pub now: Timestamp,
    /// The version the client asked for.
    pub version: MetaVersion,
    /// Whether there are column definitions: in a watch, only in the first event.
    pub headers: bool,
}

impl Options {
    /// A table with headers and metadata.
    pub fn new(now: Timestamp) -> Self {
        Self { include: IncludeObject::default(), now, version: MetaVersion::default(), headers: true }
    }
}

/// One row before its object is attached.
#[derive(Debug, Default)]
struct Row {
    cells: Vec<Value>,
    conditions: Option<Value>,
}

impl From<Vec<Value>> for Row {
    fn from(cells: Vec<Value>) -> Self {
        Self { cells, conditions: None }
    }
}

/// Whether objects of this resource can be shown as a table. Reviews and bindings cannot: a client that
/// accepts nothing else gets 406.
pub fn supports(resource: &Resource) -> bool {
    resource.custom || !resource.columns.is_empty()
}

/// 406 for a resource that has no tables.
pub(crate) fn not_acceptable(resource: &Resource) -> Status {
    let message = format!("the resource {} does not support being converted to a Table", resource.qualified());
    Status::new(http::StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

/// Makes the rows of a Table, one by one.
pub struct Rows<'r> {
    resource: &'r Resource,
    columns: Option<custom::Columns<'r>>,
    options: Options,
}

impl<'r> Rows<'r> {
    /// Fails for a resource that has no tables.
    pub fn new(resource: &'r Resource, options: &Options) -> Result<Self, Status> {
        if !supports(resource) {
            return Err(not_acceptable(resource));
        }
        let columns = resource.custom.then(|| custom::Columns::new(&resource.columns));
        Ok(Self { resource, columns, options: *options })
    }

    /// The row of an object.
    pub fn row(&self, object: &Value) -> Value {
        let view = View::new(object, self.options.now);
        let row = match &self.columns {
            Some(columns) => columns.cells(&view).into(),
            None => printers::row(self.resource, &view),
        };
        finish_row(row, object, self.resource, &self.options)
    }

    /// `columnDefinitions`.
    pub fn definitions(&self) -> Value {
        match (&self.columns, self.options.headers) {
            (_, false) => Value::Null,
            (Some(columns), true) => columns.definitions(),
            (None, true) => self.resource.columns.iter().map(|column| definition(self.resource, column)).collect(),
        }
    }
}

/// Whether the rows of a list come in the order of its objects.
pub fn keeps_order(resource: &Resource) -> bool {
    !printers::sorts(resource)
}

/// `rows` of a Table without any. Upstream's default convertor never makes an empty list.
pub fn no_rows(resource: &Resource) -> Value {
    if has_default_columns(resource) { Value::Null } else { json!([]) }
}

/// The objects as a Table. A single object is a table of one row with [`ListMeta::of_object`].
pub fn table<'a>(
    resource: &Resource,
    objects: impl IntoIterator<Item = &'a Value>,
    meta: &ListMeta<'_>,
    options: &Options,
) -> Result<Value, Status> {
    let rows = Rows::new(resource, options)?;
    let mut objects: Vec<&Value> = objects.into_iter().collect();
    printers::sort(resource, &mut objects);
    let shown: Vec<Value> = objects.into_iter().map(|object| rows.row(object)).collect();
    Ok(json!({
        "kind": "Table",
        "apiVersion": options.version.api_version(),
        "metadata": meta.to_value(),
        "columnDefinitions": rows.definitions(),
        "rows": if shown.is_empty() { no_rows(resource) } else { shown.into() },
    }))
}

/// A Scale as a Table of one row.
pub fn scale(scale: &Value, options: &Options) -> Value {
    let columns = custom::scale();
    let columns = custom::Columns::new(&columns);
    let object = match options.include {
        IncludeObject::Object => scale.clone(),
        IncludeObject::Metadata => partial(scale, options.version),
        IncludeObject::None => Value::Null,
    };
    json!({
        "kind": "Table",
        "apiVersion": options.version.api_version(),
        "metadata": ListMeta::of_object(scale).to_value(),
        "columnDefinitions": columns.definitions(),
        "rows": [{"cells": columns.cells(&View::new(scale, options.now)), "object": object}],
    })
}

/// An object's metadata alone, as `kind: PartialObjectMetadata`.
pub fn partial(object: &Value, version: MetaVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// The metadata of many objects, as `kind: PartialObjectMetadataList`.
pub fn partial_list<'a>(
    objects: impl IntoIterator<Item = &'a Value>,
    meta: &ListMeta<'_>,
    version: MetaVersion,
) -> Value {
    let items: Vec<Value> = objects.into_iter().map(|object| partial(object, version)).collect();
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": version.api_version(),
        "metadata": meta.to_value(),
        "items": items,
    })
}

fn finish_row(row: Row, object: &Value, resource: &Resource, options: &Options) -> Value {
    // The bookmark that ends a watch's initial events must be recognisable whatever was asked for.
    let ends_initial_events = || {
        let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
        annotations.and_then(|a| a.get("k8s.io/initial-events-end")).is_some_and(|value| value == "true")
    };
    let included = match options.include {
        IncludeObject::Object => {
            let mut object = object.clone();
            if let Value::Object(map) = &mut object {
                map.entry("kind").or_insert_with(|| (&*resource.kind).into());
                map.entry("apiVersion").or_insert_with(|| resource.api_version().into());
            }
            object
        }
        IncludeObject::None if !ends_initial_events() => Value::Null,
        IncludeObject::None | IncludeObject::Metadata => partial(object, options.version),
    };
    let mut out = json!({"cells": row.cells, "object": included});
    if let Some(conditions) = row.conditions {
        out["conditions"] = conditions;
    }
    out
}

/// Kinds without printers of their own show their name and creation time.
fn has_default_columns(resource: &Resource) -> bool {
    !resource.custom && resource.columns.iter().any(|column| &*column.name == "Created At")
}

fn definition(resource: &Resource, column: &Column) -> Value {
    let description = if column.description.is_empty() {
        descriptions::of(&resource.kind, &column.name)
    } else {
        &column.description
    };
    define(column, description)
}

fn define(column: &Column, description: &str) -> Value {
    json!({
        "name": column.name,
        "type": column.ty,
        "format": column.format,
        "description": description,
        "priority": column.priority,
    })
}

#[cfg(test)]
mod tests;
