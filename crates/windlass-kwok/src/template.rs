//! Go templates, as kwok's stages have them: `text/template` over JSON, with Go's own functions, kwok's, and the part of
//! sprig that such templates use.
//!
//! Values are JSON. What is not there is null, and the field of null is null, as with maps in Go. A function that is not known
//! is an error when the template is parsed.

mod functions;
mod parse;

use serde_json::{Map, Value};

use functions::{Printed, is_true};

/// A template that can be rendered.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    body: Vec<Node>,
    named: Vec<(String, Vec<Node>)>,
}

/// Why a template cannot be parsed or rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// It is no template.
    #[error("cannot read the template: {0}")]
    Parse(String),
    /// Something in it cannot be evaluated.
    #[error("cannot render the template: {0}")]
    Render(String),
}

/// What a template can ask besides its object.
pub trait Functions {
    /// Whether there is such a function.
    fn has(&self, name: &str) -> bool;

    /// Calls one that [is there](Self::has).
    fn call(&self, name: &str, arguments: &[Value]) -> Result<Value, String>;
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Text(String),
    Action(Pipeline),
    If(Vec<(Pipeline, Vec<Node>)>, Vec<Node>),
    With(Vec<(Pipeline, Vec<Node>)>, Vec<Node>),
    Range(Pipeline, Vec<Node>, Vec<Node>),
    Template(String, Option<Pipeline>),
    Break,
    Continue,
}

/// `$x := command | command`.
#[derive(Debug, Clone, PartialEq)]
struct Pipeline {
    variables: Vec<String>,
    /// `=` instead of `:=`.
    assigns: bool,
    commands: Vec<Vec<Operand>>,
}

/// A word of a command, with the fields that follow it.
#[derive(Debug, Clone, PartialEq)]
struct Operand {
    base: Base,
    fields: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Base {
    Dot,
    Variable(String),
    Function(String),
    Literal(Value),
    Pipeline(Box<Pipeline>),
}

/// How many bytes a template may become.
const OUTPUT_LIMIT: usize = 4 << 20;
/// How deep named templates may call each other.
const DEPTH: usize = 32;

impl Template {
    /// Reads a template that may use these functions.
    pub fn parse(text: &str, functions: &dyn Functions) -> Result<Self, TemplateError> {
        let is_known = |name: &str| functions::is_builtin(name) || functions.has(name);
        parse::parse(text.trim(), &is_known).map_err(TemplateError::Parse)
    }

    /// The text that it becomes for an object.
    pub fn render(&self, object: &Value, functions: &dyn Functions) -> Result<String, TemplateError> {
        let mut renderer =
            Renderer { template: self, functions, output: String::new(), variables: Vec::new(), depth: 0 };
        renderer.variables.push(("$".to_owned(), object.clone()));
        renderer.walk(&self.body, object).map_err(TemplateError::Render)?;
        Ok(renderer.output)
    }
}

struct Renderer<'t> {
    template: &'t Template,
    functions: &'t dyn Functions,
    output: String,
    variables: Vec<(String, Value)>,
    depth: usize,
}

/// How a list of nodes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

impl Renderer<'_> {
    fn walk(&mut self, nodes: &[Node], dot: &Value) -> Result<Flow, String> {
        for node in nodes {
            if self.output.len() > OUTPUT_LIMIT {
                return Err("the output is too long".to_owned());
            }
            let flow = match node {
                Node::Text(text) => {
                    self.output.push_str(text);
                    Flow::On
                }
                Node::Action(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    if pipeline.variables.is_empty() {
                        self.output.push_str(&Printed(&value).to_string());
                    }
                    Flow::On
                }
                Node::If(branches, otherwise) => self.branches(branches, otherwise, dot, false)?,
                Node::With(branches, otherwise) => self.branches(branches, otherwise, dot, true)?,
                Node::Range(pipeline, body, otherwise) => self.range(pipeline, body, otherwise, dot)?,
                Node::Template(name, pipeline) => {
                    let value = match pipeline {
                        Some(pipeline) => self.pipeline(pipeline, dot)?,
                        None => Value::Null,
                    };
                    self.named(name, &value)?;
                    Flow::On
                }
                Node::Break => Flow::Break,
                Node::Continue => Flow::Continue,
            };
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    fn named(&mut self, name: &str, dot: &Value) -> Result<(), String> {
        let found = self.template.named.iter().find(|(known, _)| known == name);
        let (_, body) = found.ok_or_else(|| format!("template {name:?} is not defined"))?;
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("templates call each other too deep".to_owned());
        }
        let outer = std::mem::replace(&mut self.variables, vec![("$".to_owned(), dot.clone())]);
        self.walk(body, dot)?;
        self.variables = outer;
        self.depth -= 1;
        Ok(())
    }

    /// `if` and `with`: the first branch that is true. Variables that are declared in the condition are the branch's.
    fn branches(
        &mut self,
        branches: &[(Pipeline, Vec<Node>)],
        otherwise: &[Node],
        dot: &Value,
        moves_dot: bool,
    ) -> Result<Flow, String> {
        let mark = self.variables.len();
        let mut flow = None;
        for (condition, body) in branches {
            let value = self.pipeline(condition, dot)?;
            if is_true(&value) {
                flow = Some(self.walk(body, if moves_dot { &value } else { dot })?);
                break;
            }
        }
        let flow = match flow {
            Some(flow) => flow,
            None => self.walk(otherwise, dot)?,
        };
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn range(&mut self, pipeline: &Pipeline, body: &[Node], otherwise: &[Node], dot: &Value) -> Result<Flow, String> {
        let mark = self.variables.len();
        let bare = Pipeline { variables: Vec::new(), assigns: false, commands: pipeline.commands.clone() };
        let items: Vec<(Value, Value)> = match self.pipeline(&bare, dot)? {
            Value::Null => Vec::new(),
            Value::Array(items) => items.into_iter().enumerate().map(|(at, item)| (at.into(), item)).collect(),
            Value::Object(fields) => {
                let mut fields: Vec<(String, Value)> = fields.into_iter().collect();
                fields.sort_by(|(left, _), (right, _)| left.cmp(right));
                fields.into_iter().map(|(key, value)| (key.into(), value)).collect()
            }
            Value::Number(count) => {
                let count = count.as_u64().filter(|count| *count < 1_000_000).ok_or("range over a wrong number")?;
                (0..count).map(|at| (at.into(), at.into())).collect()
            }
            value => return Err(format!("range can't iterate over {}", Printed(&value))),
        };
        if items.is_empty() {
            let flow = self.walk(otherwise, dot)?;
            self.variables.truncate(mark);
            return Ok(flow);
        }
        for (key, item) in items {
            match pipeline.variables.as_slice() {
                [value] => self.set(value, item.clone(), pipeline.assigns)?,
                [index, value] => {
                    self.set(index, key, pipeline.assigns)?;
                    self.set(value, item.clone(), pipeline.assigns)?;
                }
                _ => {}
            }
            let flow = self.walk(body, &item)?;
            self.variables.truncate(mark);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::On)
    }

    fn set(&mut self, name: &str, value: Value, assigns: bool) -> Result<(), String> {
        if !assigns {
            self.variables.push((name.to_owned(), value));
            return Ok(());
        }
        let found = self.variables.iter_mut().rev().find(|(known, _)| known == name);
        let (_, known) = found.ok_or_else(|| format!("undefined variable {name:?}"))?;
        *known = value;
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Value, String> {
        let mut value = None;
        for command in &pipeline.commands {
            value = Some(self.command(command, value, dot)?);
        }
        let value = value.unwrap_or_default();
        if let [name] = pipeline.variables.as_slice() {
            self.set(name, value.clone(), pipeline.assigns)?;
        }
        Ok(value)
    }

    /// A command; what came before it in the pipeline is its last argument.
    fn command(&mut self, words: &[Operand], last: Option<Value>, dot: &Value) -> Result<Value, String> {
        let Some((first, rest)) = words.split_first() else { return Err("a command is empty".to_owned()) };
        let Base::Function(name) = &first.base else {
            if !rest.is_empty() || last.is_some() {
                return Err("can't give argument to non-function".to_owned());
            }
            return self.operand(first, dot);
        };
        // They stop at the first that decides.
        if let "and" | "or" = name.as_str() {
            let mut value = Value::Null;
            let decides = name == "or";
            for word in rest {
                value = self.operand(word, dot)?;
                if is_true(&value) == decides {
                    return Ok(fields(value, &first.fields));
                }
            }
            return Ok(fields(last.unwrap_or(value), &first.fields));
        }
        let mut arguments = Vec::with_capacity(rest.len() + 1);
        for word in rest {
            arguments.push(self.operand(word, dot)?);
        }
        arguments.extend(last);
        Ok(fields(self.call(name, &arguments)?, &first.fields))
    }

    fn operand(&mut self, operand: &Operand, dot: &Value) -> Result<Value, String> {
        let value = match &operand.base {
            Base::Dot => return Ok(fields_of(dot, &operand.fields)),
            Base::Variable(name) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                let (_, value) = found.ok_or_else(|| format!("undefined variable {name:?}"))?;
                return Ok(fields_of(value, &operand.fields));
            }
            Base::Literal(value) => value.clone(),
            Base::Pipeline(pipeline) => self.pipeline(pipeline, dot)?,
            Base::Function(name) => self.call(name, &[])?,
        };
        Ok(fields(value, &operand.fields))
    }

    fn call(&self, name: &str, arguments: &[Value]) -> Result<Value, String> {
        if self.functions.has(name) {
            return self.functions.call(name, arguments);
        }
        functions::call(name, arguments).map_err(|error| format!("{name}: {error}"))
    }
}

fn fields(value: Value, names: &[String]) -> Value {
    if names.is_empty() { value } else { fields_of(&value, names) }
}

fn fields_of(value: &Value, names: &[String]) -> Value {
    let empty = Map::new();
    let found = names.iter().try_fold(value, |value, name| value.as_object().unwrap_or(&empty).get(name));
    found.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    struct Known;

    impl Functions for Known {
        fn has(&self, name: &str) -> bool {
            matches!(name, "Now" | "NodeIPWith")
        }

        fn call(&self, name: &str, arguments: &[Value]) -> Result<Value, String> {
            Ok(match name {
                "Now" => "2026-01-02T03:04:05Z".into(),
                _ => format!("ip-of-{}", arguments[0].as_str().unwrap_or_default()).into(),
            })
        }
    }

    fn render(text: &str) -> Result<String, TemplateError> {
        let object = json!({
            "metadata": {"name": "web", "annotations": {"a.b/c": "x", "n": "3"}},
            "spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "i:2"}], "n": 2, "nodeName": "n1"},
        });
        Template::parse(text, &Known)?.render(&object, &Known)
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(render(text).as_deref(), Ok(expected), "{text}");
    }

    #[test]
    fn templates_render_as_in_go() {
        check("{{ .metadata.name }}", "web");
        check("a {{- .metadata.name -}} b", "awebb");
        check("{{ .metadata.nothing.deep }}", "<no value>");
        check("{{ if .metadata.nothing }}y{{ else if eq .spec.n 2 }}two{{ else }}n{{ end }}", "two");
        check("{{ range .spec.containers }}[{{ .name }}]{{ end }}", "[a][b]");
        check("{{ range $i, $c := .spec.containers }}{{ $i }}={{ $c.image }};{{ end }}", "0=i:1;1=i:2;");
        check("{{ range .nothing }}x{{ else }}none{{ end }}", "none");
        check("{{ range $k, $v := .metadata.annotations }}{{ $k }}:{{ $v }},{{ end }}", "a.b/c:x,n:3,");
        check("{{ with .metadata }}{{ .name }}{{ $.spec.n }}{{ end }}", "web2");
        check("{{ with .nothing }}x{{ else }}no{{ end }}", "no");
        check("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2");
        check("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ end }}{{ $x }}", "1");
        check("{{ or .nothing \"default\" }}{{ and 1 0 }}{{ not 0 }}", "default0true");
        check("{{ index .metadata.annotations \"a.b/c\" }}{{ index .spec.containers 1 \"name\" }}", "xb");
        check("{{ (index .spec.containers 0).name | Quote }}", "\"a\"");
        check("{{ .spec.n | Quote }}", "\"2\"");
        check("{{ printf \"%s-%03d-%v-%q%%\" .metadata.name 7 true \"x\" }}", "web-007-true-\"x\"%");
        check("{{ Now }}{{ NodeIPWith .spec.nodeName | Quote }}", "2026-01-02T03:04:05Z\"ip-of-n1\"");
        check("{{ or ( index ( or .metadata.labels dict ) \"x\" ) `raw\"` }}", "raw\"");
        check("{{/* nothing */}}{{ len .spec.containers }}", "2");
        check("{{ define \"t\" }}<{{ . }}>{{ end }}{{ template \"t\" .metadata.name }}", "<web>");
        check("{{ range .spec.containers }}{{ if eq .name \"b\" }}{{ break }}{{ end }}{{ .name }}{{ end }}", "a");
        check("{{ .metadata.name | upper | printf \"%s!\" }}{{ add 1 2 | mul 3 }}", "WEB!9");
        check("{{ YAML .metadata.annotations 1 }}", "\n  a.b/c: x\n  \"n\": \"3\"\n  ");
        check("{{ if and (gt .spec.n 1) (lt .spec.n 3) }}in{{ end }}", "in");
    }

    #[test]
    fn yaml_is_indented_and_read_back_as_it_was() {
        let odd = ["yes", "012", "1e3", "null", "", "a: b", "# x", "- x", "one\ntwo\n", " padded ", "[", "'q' \"d\""];
        let object = json!({"spec": {"list": [{"name": "m", "items": [1, 2.5, true, null]}, "plain"], "odd": odd}});
        let text = "spec:\n  list:\n  {{ YAML .spec.list 1 }}\n  odd: {{ YAML .spec.odd 2 }}\n";
        let text = Template::parse(text, &Known).expect("a template").render(&object, &Known).expect("text");
        let read: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        assert_eq!(read, object, "{text}");
    }

    #[test]
    fn mistakes_are_found_when_it_is_parsed() {
        for text in
            ["{{ if .a }}", "{{ end }}", "{{ .a", "{{ nosuch .a }}", "{{ }}", "{{ | x }}", "{{ \"a }}", "{{ $x }}"]
        {
            assert!(
                matches!(Template::parse(text, &Known), Err(TemplateError::Parse(_))) || render(text).is_err(),
                "{text}"
            );
        }
        assert!(matches!(render("{{ index .spec.containers 9 }}"), Err(TemplateError::Render(_))));
        assert!(matches!(
            render("{{ define \"t\" }}{{ template \"t\" }}{{ end }}{{ template \"t\" }}"),
            Err(TemplateError::Render(_))
        ));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "([a-z .$:=|\"()0-9-]|\\{\\{|\\}\\}|if |end|range |with |else ){0,30}") {
            let _ = render(&text);
        }
    }
}
