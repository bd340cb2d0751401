//! Objects as kubectl would show them: the tables that the API server makes, kind by kind.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::display::Board;
use super::table::Look;
use crate::paint::{Ink, fit, printable, width};

/// What the API server is asked for.
const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// An object that every namespace has.
const EVERYWHERE: &str = "kube-root-ca.crt";
/// Columns that say nothing in a demo of a few seconds.
const LEFT_OUT: [&str; 4] = ["Age", "Restarts", "External-IP", "Data"];
const GAP: usize = 3;

/// All tables of a demo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables(Vec<Table>);

/// The objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    resource: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Tables {
    /// Asks for the tables of resources, each a path such as `/api/v1/namespaces/default/pods`.
    pub(crate) async fn read(client: &kube::Client, resources: &[&str]) -> Result<Self> {
        let mut tables = Vec::new();
        for path in resources {
            let request = http::Request::get(*path).header("Accept", AS_TABLE).body(Vec::new())?;
            let answer: Value = client.request(request).await.with_context(|| format!("cannot list {path}"))?;
            tables.push(Table::of(path.rsplit('/').next().unwrap_or(path), &answer));
        }
        Ok(Self(tables))
    }
}

impl Table {
    fn of(resource: &str, answer: &Value) -> Self {
        let columns = answer["columnDefinitions"].as_array().cloned().unwrap_or_default();
        let is_shown = |column: &Value| {
            let name = column["name"].as_str().unwrap_or_default();
            column["priority"].as_i64().unwrap_or(0) == 0 && !LEFT_OUT.contains(&name)
        };
        let shown: Vec<usize> = (0..columns.len()).filter(|column| is_shown(&columns[*column])).collect();
        let header = shown.iter().map(|column| columns[*column]["name"].as_str().unwrap_or_default().to_uppercase());
        let rows = answer["rows"].as_array().into_iter().flatten();
        let cell = |row: &Value, column: usize| match &row["cells"][column] {
            Value::String(text) => printable(text).into_owned(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        let rows = rows.filter(|row| row["cells"][0] != EVERYWHERE);
        let rows = rows.map(|row| shown.iter().map(|column| cell(row, *column)).collect()).collect();
        Self { resource: resource.to_owned(), header: header.collect(), rows }
    }

    fn lines(&self, look: Look) -> Vec<String> {
        let mut widths: Vec<usize> = self.header.iter().map(|name| width(name)).collect();
        for row in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = width(cell).max(*widest);
            }
        }
        let line = |cells: &[String], ink: Ink| {
            let (mut line, mut room) = (String::new(), look.room);
            for (cell, wide) in cells.iter().zip(&widths) {
                let text = fit(cell, room.min(*wide));
                line += &look.paint.ink(ink, &text);
                line.extend(std::iter::repeat_n(' ', wide.saturating_sub(width(&text)) + GAP));
                room = room.saturating_sub(wide + GAP);
                if room == 0 {
                    break;
                }
            }
            line.truncate(line.trim_end().len());
            line
        };
        let header = line(&self.header, Ink::Dim);
        std::iter::once(header).chain(self.rows.iter().map(|row| line(row, Ink::Plain))).collect()
    }
}

impl Board for Tables {
    fn is_empty(&self) -> bool {
        self.0.iter().all(|table| table.rows.is_empty())
    }

    fn lines(&self, look: Look) -> Vec<String> {
        let mut lines = Vec::new();
        for table in self.0.iter().filter(|table| !table.rows.is_empty()) {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.extend(table.lines(look));
        }
        if lines.is_empty() {
            lines.push("no objects".to_owned());
        }
        lines
    }

    fn document(&self) -> Value {
        let rows = |table: &Table| -> Value {
            let named = |row: &Vec<String>| -> Value {
                let cells = table.header.iter().zip(row);
                cells
                    .map(|(name, cell)| (name.to_lowercase(), Value::from(cell.as_str())))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            };
            table.rows.iter().map(named).collect()
        };
        self.0.iter().map(|table| json!({ "resource": table.resource, "objects": rows(table) })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paint::Paint;

    fn tables() -> Tables {
        let answer = json!({
            "columnDefinitions": [
                { "name": "Name", "priority": 0 }, { "name": "Ready", "priority": 0 },
                { "name": "Age", "priority": 0 }, { "name": "Node", "priority": 1 },
            ],
            "rows": [
                { "cells": ["web-1", "1/1", "3s", "node-0"] },
                { "cells": ["a-long-name", null, "3s", "node-0"] },
            ],
        });
        Tables(vec![Table::of("pods", &answer), Table::of("services", &json!({}))])
    }

    #[test]
    fn a_table_has_the_columns_that_matter() {
        let look = Look { paint: Paint(false), room: 78, busy: None };
        assert_eq!(tables().lines(look), ["NAME          READY", "web-1         1/1", "a-long-name   -"]);
        assert_eq!(Tables::default().lines(look), ["no objects"]);
        assert!(Tables::default().is_empty() && !tables().is_empty());
    }

    #[test]
    fn no_line_is_wider_than_the_room() {
        for room in 1..40 {
            for line in tables().lines(Look { paint: Paint(false), room, busy: None }) {
                assert!(width(&line) <= room, "{} > {room}: {line}", width(&line));
            }
        }
    }

    #[test]
    fn programs_get_the_same() {
        let document = tables().document();
        assert_eq!(document[0]["objects"][0], json!({ "name": "web-1", "ready": "1/1" }));
    }
}
