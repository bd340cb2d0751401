//! The kind itself: what `kube` derives it from, and the schema of the whole object.

use std::fmt::Write as _;

use serde_json::Value;

use super::Printer;
use crate::types::doc;
use crate::types::literal::{self, string};
use crate::types::model::Status;

impl Printer<'_> {
    /// The attribute that `kube` makes the kind of.
    pub(super) fn kube(&mut self, default: bool) {
        let (definition, version, root) = (self.definition, self.version, &self.model.root);
        let mut parts = vec![
            format!("group = {}", string(&definition.group)),
            format!("version = {}", string(&version.name)),
            format!("kind = {}", string(&definition.kind)),
        ];
        if root.name != definition.kind {
            parts.push(format!("root = {}", string(&root.name)));
        }
        parts.push(format!("plural = {}", string(&definition.plural)));
        if let Some(singular) = &definition.singular
            && *singular != definition.kind.to_ascii_lowercase()
        {
            parts.push(format!("singular = {}", string(singular)));
        }
        parts.extend(definition.short_names.iter().map(|name| format!("shortname = {}", string(name))));
        parts.extend(definition.categories.iter().map(|name| format!("category = {}", string(name))));
        parts.extend(definition.namespaced.then(|| "namespaced".to_owned()));
        parts.extend(root.flat.then(|| "no_spec".to_owned()));
        parts.extend((!version.served).then(|| "served = false".to_owned()));
        parts.extend((!version.storage).then(|| "storage = false".to_owned()));
        match &version.deprecation_warning {
            Some(warning) if version.deprecated => parts.push(format!("deprecated = {}", string(warning))),
            _ if version.deprecated => parts.push("deprecated".to_owned()),
            _ => {}
        }
        match root.status {
            Status::Item(id) => parts.push(format!("status = {}", string(&self.model.items[id].name))),
            Status::Unknown => parts.push("status = \"Value\"".to_owned()),
            Status::None => {}
        }
        if let Some(scale) = version.scale() {
            let mut inner = vec![
                format!("spec_replicas_path = {}", string(&scale.spec_replicas_path)),
                format!("status_replicas_path = {}", string(&scale.status_replicas_path)),
            ];
            if let Some(path) = scale.label_selector_path.as_ref().filter(|path| !path.is_empty()) {
                inner.push(format!("label_selector_path = {}", string(path)));
            }
            parts.push(format!("scale({})", inner.join(", ")));
        }
        for column in version.columns() {
            let mut inner = vec![
                format!("name = {}", string(&column.name)),
                format!("type_ = {}", string(&column.kind)),
                format!("json_path = {}", string(&column.json_path)),
            ];
            let optional = [("description", &column.description), ("format", &column.format)];
            for (name, value) in optional {
                inner.extend(
                    value.as_ref().filter(|value| !value.is_empty()).map(|value| format!("{name} = {}", string(value))),
                );
            }
            inner.extend(
                column.priority.filter(|priority| *priority != 0).map(|priority| format!("priority = {priority}")),
            );
            parts.push(format!("printcolumn({})", inner.join(", ")));
        }
        parts.extend(version.selectable().map(|path| format!("selectable = {}", string(path))));
        if let Some(approved) = &definition.approved {
            parts.push(format!("annotation(\"api-approved.kubernetes.io\", {})", string(approved)));
        }
        parts.push("derive = \"PartialEq\"".to_owned());
        parts.extend(default.then(|| "derive = \"Default\"".to_owned()));
        let lines = doc::lines(&root.description, usize::MAX);
        parts.extend((!lines.is_empty()).then(|| format!("doc = {}", string(&lines.join("\n")))));
        parts.push("schema = \"manual\"".to_owned());
        let _ = writeln!(self.text, "#[kube(\n    {}\n)]", parts.join(",\n    "));
    }

    /// The schema of the object.
    pub(super) fn root(&mut self) {
        let root = &self.model.root;
        let name = &root.name;
        let spec = &self.model.items[root.spec].name;
        let status = match root.status {
            Status::Item(id) => Some(self.model.items[id].name.as_str()),
            Status::None | Status::Unknown => None,
        };
        let mut body = String::new();
        if root.flat {
            let _ = writeln!(body, "        let mut schema = {spec}::json_schema(generator);");
            for (key, value) in &root.keywords {
                let _ =
                    writeln!(body, "        schema.insert({}.into(), json!({}));", string(key), literal::json(value));
            }
            let mut properties: Vec<(&str, String)> = Vec::new();
            properties
                .extend(status.map(|status| ("status", format!("generator.subschema_for::<{status}>().to_value()"))));
            let implied =
                root.implied.iter().map(|(key, value)| (key.as_str(), format!("json!({})", literal::json(value))));
            properties.extend(implied);
            if !properties.is_empty() {
                body.push_str(
                    "        let object = schema.ensure_object();\n        \
                     let properties = object.entry(\"properties\").or_insert_with(|| json!({}));\n",
                );
                for (key, value) in properties {
                    let _ = writeln!(body, "        properties[{}] = {value};", string(key));
                }
            }
        } else {
            body.push_str("        let mut schema = json_schema!({\n            \"type\": \"object\",\n");
            body.push_str("            \"properties\": {\n");
            for (key, value) in &root.implied {
                let _ = writeln!(body, "                {}: {},", string(key), literal::json(value));
            }
            let _ = writeln!(body, "                \"spec\": generator.subschema_for::<{spec}>(),");
            if let Some(status) = status {
                let _ = writeln!(body, "                \"status\": generator.subschema_for::<{status}>(),");
            }
            body.push_str("            },\n");
            for (key, value) in root.keywords.iter().filter(|(_, value)| !value.is_null()) {
                let value: &Value = value;
                let _ = writeln!(body, "            {}: {},", string(key), literal::json(value));
            }
            body.push_str("        });\n");
        }
        let _ = write!(
            self.text,
            "\nimpl JsonSchema for {name} {{\n    fn schema_name() -> Cow<'static, str> {{\n        {}.into()\n    }}\n\n    \
             fn json_schema(generator: &mut SchemaGenerator) -> Schema {{\n{body}        without_nulls(&mut schema);\n        schema\n    \
             }}\n}}\n",
            string(name),
        );
    }
}
