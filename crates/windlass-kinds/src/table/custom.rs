//! Cells of custom resources: the name, then `additionalPrinterColumns`, or the age if there are none.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

use super::access::View;
use super::{define, descriptions};
use crate::resource::Column;
use windlass_api::jsonpath::{self, JsonPath};

/// A custom resource's columns with their paths parsed, without the name.
pub(super) struct Columns<'a>(Vec<(Cow<'a, Column>, JsonPath)>);

impl<'a> Columns<'a> {
    /// `columns` as the CRD has them. A path that does not parse ends the list, as upstream does it.
    pub(super) fn new(columns: &'a [Column]) -> Self {
        let written: Vec<&Column> = columns.iter().filter(|column| column.json_path.is_some()).collect();
        if written.is_empty() {
            let age = column("Age", "date", ".metadata.creationTimestamp");
            let path = JsonPath::parse(".metadata.creationTimestamp").expect("invariant: a valid path");
            return Self(vec![(Cow::Owned(age), path)]);
        }
        let parsed = written.into_iter().map_while(|column| {
            let path = JsonPath::parse(column.json_path.as_deref().unwrap_or_default()).ok()?;
            Some((Cow::Borrowed(column), path))
        });
        Self(parsed.collect())
    }

    pub(super) fn definitions(&self) -> Value {
        let name = column("Name", "string", "");
        let name = define(&Column { format: "name".into(), ..name }, descriptions::NAME);
        let others = self.0.iter().map(|(column, _)| {
            // Only the age that stands in for absent columns has upstream's own description.
            let description = match column {
                Cow::Owned(_) => Cow::Borrowed(descriptions::AGE),
                Cow::Borrowed(column) if !column.description.is_empty() => Cow::Borrowed(&*column.description),
                Cow::Borrowed(column) => {
                    let path = column.json_path.as_deref().unwrap_or_default();
                    Cow::Owned(format!("Custom resource definition column (in JSONPath format): {path}"))
                }
            };
            define(column, &description)
        });
        std::iter::once(name).chain(others).collect()
    }

    pub(super) fn cells(&self, view: &View<'_>) -> Vec<Value> {
        let others = self.0.iter().map(|(column, path)| {
            let found = path.first(view.object());
            found.map_or(Value::Null, |value| cell(&column.ty, value, view))
        });
        std::iter::once(view.name()).chain(others).collect()
    }
}

/// The columns of a Scale, whatever it is of.
pub(super) fn scale() -> [Column; 3] {
    let described = |column: Column, text: &str| Column { description: text.into(), ..column };
    [
        described(column("Desired", "integer", ".spec.replicas"), "Number of desired replicas"),
        described(column("Available", "integer", ".status.replicas"), "Number of actual replicas"),
        described(column("Age", "date", ".metadata.creationTimestamp"), descriptions::AGE),
    ]
}

fn column(name: &str, ty: &str, path: &str) -> Column {
    Column {
        name: name.into(),
        ty: ty.into(),
        format: "".into(),
        description: "".into(),
        priority: 0,
        json_path: Some(path.into()),
    }
}

/// A found value in a column of a type; values of another type show nothing.
fn cell(ty: &str, value: Value, view: &View<'_>) -> Value {
    match (ty, value) {
        ("string", value) => jsonpath::print(&value).into(),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(int), _) => int.into(),
            (None, Some(float)) => (float as i64).into(),
            (None, None) => Value::Null,
        },
        ("number", Value::Number(number)) => match number.as_f64() {
            // A whole number is written without a fraction.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
            _ => number.into(),
        },
        ("boolean", Value::Bool(flag)) => flag.into(),
        ("date", Value::String(text)) => date(&text, view).into(),
        _ => Value::Null,
    }
}

fn date(text: &str, view: &View<'_>) -> String {
    if text.is_empty() || text == "null" {
        return view.elapsed(None);
    }
    text.parse::<Timestamp>().map_or_else(|_| "<invalid>".to_owned(), |time| view.elapsed(Some(time)))
}
