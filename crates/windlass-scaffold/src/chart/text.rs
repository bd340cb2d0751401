//! Objects as texts of Helm templates.
//!
//! Parts of an object are replaced by marks before it is written as YAML, and the marks by template expressions
//! afterwards. Braces that are in the object itself are escaped in between.

use std::fmt::Write as _;

use serde_json::{Map, Value};

const OPEN: &str = "{{";
const ESCAPED: &str = "{{ \"{{\" }}";
const MARK: &str = "windlass-mark-";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Text that templates leave as it is.
pub(super) fn escape(text: &str) -> String {
    text.replace(OPEN, ESCAPED)
}

pub(super) fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).expect("invariant: an object is a map with text as keys")
}

/// What stands for a mark.
enum Expression {
    /// A value: `{{ .Values.x }}`.
    Scalar(String),
    /// Lines in place of the field with the mark, which are indented like the field.
    Lines(String),
}

/// The template of one object.
pub(super) struct Template<'a> {
    namespace: Option<&'a str>,
    expressions: Vec<Expression>,
}

/// A file.
pub(super) struct Text {
    kind: String,
    name: String,
    pub content: String,
}

impl Text {
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    pub(super) fn file_name(&self) -> String {
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '-' };
        let name: String = self.name.chars().map(safe).collect();
        format!("{}-{name}.yaml", self.kind.to_lowercase())
    }
}

impl<'a> Template<'a> {
    pub(super) fn new(namespace: Option<&'a str>) -> Self {
        Self { namespace, expressions: Vec::new() }
    }

    /// A mark for a value.
    pub(super) fn scalar(&mut self, expression: &str) -> Value {
        self.mark(Expression::Scalar(expression.to_owned()))
    }

    /// A mark for whole lines in place of a field.
    pub(super) fn lines(&mut self, lines: &str) -> Value {
        self.mark(Expression::Lines(lines.to_owned()))
    }

    fn mark(&mut self, expression: Expression) -> Value {
        self.expressions.push(expression);
        // The dot ends the number, so that no mark begins another.
        format!("{MARK}{}.", self.expressions.len() - 1).into()
    }

    /// The template of an object, which is only there if a value says so.
    pub(super) fn render(mut self, condition: Option<&str>, mut object: Value) -> Text {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        self.set_namespace(&mut object);
        if object["metadata"]["labels"].get(MANAGED_BY).is_some() {
            object["metadata"]["labels"][MANAGED_BY] = self.scalar("{{ .Release.Service }}");
        }
        if kind == "CustomResourceDefinition" {
            self.set_definition(&mut object);
        }
        let mut content = self.replaced(&escape(&yaml(&object)));
        if let Some(condition) = condition {
            content = format!("{{{{- if {condition} }}}}\n{content}{{{{- end }}}}\n");
        }
        Text { kind, name, content }
    }

    /// Replaces the namespace of the installation wherever it is one: in fields of that name, and in the name of a
    /// Service within the cluster.
    fn set_namespace(&mut self, object: &mut Value) {
        let Some(namespace) = self.namespace else { return };
        let mut found = Vec::new();
        find(object, &mut String::new(), &mut |path, text| {
            let field = path.rsplit('/').next().unwrap_or_default();
            if text == namespace && field == "namespace" {
                found.push((path.to_owned(), "{{ .Release.Namespace }}".to_owned()));
            } else if text.contains(&format!(".{namespace}.svc")) || text.starts_with(&format!("{namespace}/")) {
                let release = escape(text).replacen(namespace, "{{ .Release.Namespace }}", 1);
                found.push((path.to_owned(), release));
            }
        });
        for (path, expression) in found {
            let mark = self.scalar(&expression);
            if let Some(value) = object.pointer_mut(&path) {
                *value = mark;
            }
        }
    }

    /// Lets CRDs outlive the release, and converts objects only if there are webhooks.
    fn set_definition(&mut self, object: &mut Value) {
        let keep = self.lines("{{- if .Values.crd.keep }}\nhelm.sh/resource-policy: keep\n{{- end }}");
        let metadata = object["metadata"].as_object_mut().expect("invariant: objects have metadata");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.insert("helm.sh/resource-policy".into(), keep);
        } else {
            let lines = "{{- if .Values.crd.keep }}\nannotations:\n  helm.sh/resource-policy: keep\n{{- end }}";
            metadata.insert("annotations".into(), self.lines(lines));
        }
        if let Some(conversion) = object["spec"].get("conversion").cloned() {
            let fields = Value::Object(Map::from_iter([("conversion".to_owned(), conversion)]));
            // The marks within are replaced when these lines are.
            let lines = format!("{{{{- if .Values.webhook.enable }}}}\n{}{{{{- end }}}}", escape(&yaml(&fields)));
            object["spec"]["conversion"] = self.lines(&lines);
        }
    }

    /// Writes lines in place of one: that of a field, of the first field of an item, or of an item.
    fn insert(&self, result: &mut String, place: &str, lines: &str) {
        let inner = place.trim_start();
        let indent = place.len() - inner.len();
        let is_first = inner.starts_with("- ");
        let is_item = is_first && inner[2..].trim_start_matches('"').starts_with(MARK);
        let depth = if is_first { indent + 2 } else { indent };
        let lines = lines.replace(INDENT, &(depth + 2).to_string());
        let mut dash = is_first;
        for line in self.replaced(&lines).lines() {
            // Only what is not a condition is a part of the list.
            if dash && !(is_item && line.starts_with("{{-")) {
                let _ = writeln!(result, "{}- {line}", " ".repeat(indent));
                dash = false;
            } else {
                let _ = writeln!(result, "{}{line}", " ".repeat(depth));
            }
        }
    }

    fn replaced(&self, text: &str) -> String {
        let mut result = String::new();
        for line in text.lines() {
            let Some((before, number, after)) = find_mark(line) else {
                result.push_str(line);
                result.push('\n');
                continue;
            };
            match &self.expressions[number] {
                Expression::Scalar(expression) => {
                    // The mark may be in quotes, which then are the expression's.
                    result.push_str(&self.replaced(&format!("{before}{expression}{after}")));
                }
                Expression::Lines(lines) => self.insert(&mut result, line, lines),
            }
        }
        result
    }
}

/// How deep the lines after this mark are, for functions that indent.
pub(super) const INDENT: &str = "INDENT";

/// The first mark of a line: what is before it, its number, and what is after it.
fn find_mark(line: &str) -> Option<(&str, usize, &str)> {
    let at = line.find(MARK)?;
    let rest = &line[at + MARK.len()..];
    let end = rest.find('.')?;
    Some((&line[..at], rest[..end].parse().ok()?, &rest[end + 1..]))
}

/// Calls `visit` with every text and its JSON pointer.
fn find(value: &Value, path: &mut String, visit: &mut dyn FnMut(&str, &str)) {
    let length = path.len();
    let mut step = |name: String, value: &Value, path: &mut String| {
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        find(value, path, visit);
        path.truncate(length);
    };
    match value {
        Value::String(text) => visit(path, text),
        Value::Array(items) => items.iter().enumerate().for_each(|(at, item)| step(at.to_string(), item, path)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| step(name.clone(), value, path)),
        _ => {}
    }
}
