//! From the text of a template to its nodes.

use serde_json::Value;

use super::{Base, Node, Operand, Pipeline, Template};

/// How deep a template may nest.
const DEPTH: usize = 64;

/// A word inside of an action.
#[derive(Debug, Clone, PartialEq)]
enum Word {
    Name(String),
    Variable(String),
    /// `.a`, right after what it is a field of if `joined`.
    Field {
        name: String,
        joined: bool,
    },
    Dot,
    Literal(Value),
    Sign(&'static str),
}

/// A template in pieces.
enum Piece {
    Text(String),
    Action(Vec<Word>),
}

pub(super) fn parse(text: &str, is_known: &dyn Fn(&str) -> bool) -> Result<Template, String> {
    let pieces = pieces(text)?;
    let mut parser = Parser { pieces: pieces.into_iter(), named: Vec::new(), is_known, depth: 0 };
    let (body, end) = parser.list()?;
    match end {
        End::Text => Ok(Template { body, named: parser.named }),
        End::Closed => Err("unexpected {{end}}".to_owned()),
        End::Else(_) => Err("unexpected {{else}}".to_owned()),
    }
}

fn pieces(mut text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut trims = false;
    loop {
        let start = text.find("{{");
        let mut before = &text[..start.unwrap_or(text.len())];
        if trims {
            before = before.trim_start();
        }
        let Some(start) = start else {
            pieces.push(Piece::Text(before.to_owned()));
            return Ok(pieces);
        };
        let mut rest = &text[start + 2..];
        if let Some(trimmed) = rest.strip_prefix('-').filter(|rest| rest.starts_with(char::is_whitespace)) {
            before = before.trim_end();
            rest = trimmed;
        }
        pieces.push(Piece::Text(before.to_owned()));
        let inside = rest.trim_start();
        if inside.starts_with("/*") {
            let end = inside.find("*/").ok_or("unclosed comment")?;
            rest = inside[end + 2..].trim_start();
            trims = rest.starts_with('-');
            text = rest.trim_start_matches('-').strip_prefix("}}").ok_or("comment ends before closing delimiter")?;
            continue;
        }
        let (words, left, trimmed) = words(rest)?;
        pieces.push(Piece::Action(words));
        (text, trims) = (left, trimmed);
    }
}

/// The words up to the end of an action, what follows it, and whether that is trimmed.
fn words(text: &str) -> Result<(Vec<Word>, &str, bool), String> {
    let mut words = Vec::new();
    let mut rest = text;
    loop {
        let spaced = rest.trim_start();
        let has_space = spaced.len() < rest.len();
        rest = spaced;
        if let Some(left) = rest.strip_prefix("}}") {
            return Ok((words, left, false));
        }
        if has_space && let Some(left) = rest.strip_prefix("-}}") {
            return Ok((words, left, true));
        }
        let first = rest.chars().next().ok_or("unclosed action")?;
        let name_end = |text: &str| text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
        let (word, length) = match first {
            '"' => {
                let mut texts = serde_json::Deserializer::from_str(rest).into_iter::<String>();
                let text = texts.next().and_then(Result::ok).ok_or("unterminated quoted string")?;
                (Word::Literal(text.into()), texts.byte_offset())
            }
            '`' => {
                let end = rest[1..].find('`').ok_or("unterminated raw quoted string")?;
                (Word::Literal(rest[1..=end].into()), end + 2)
            }
            '\'' => {
                let mut chars = rest[1..].chars();
                let (c, closing) = (chars.next().ok_or("unterminated character constant")?, chars.next());
                if closing != Some('\'') {
                    return Err("unterminated character constant".to_owned());
                }
                (Word::Literal(u32::from(c).into()), 2 + c.len_utf8())
            }
            '.' => {
                let name = &rest[1..][..name_end(&rest[1..])];
                if name.is_empty() {
                    (Word::Dot, 1)
                } else {
                    (Word::Field { name: name.to_owned(), joined: !has_space && !words.is_empty() }, 1 + name.len())
                }
            }
            '$' => {
                let end = 1 + name_end(&rest[1..]);
                (Word::Variable(rest[..end].to_owned()), end)
            }
            '0'..='9' | '-' | '+' => {
                let end = rest[1..]
                    .find(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '_')))
                    .map_or(rest.len(), |at| at + 1);
                (Word::Literal(number(&rest[..end])?), end)
            }
            c if c.is_alphabetic() || c == '_' => {
                let end = name_end(rest);
                let word = match &rest[..end] {
                    "true" => Word::Literal(true.into()),
                    "false" => Word::Literal(false.into()),
                    "nil" => Word::Literal(Value::Null),
                    name => Word::Name(name.to_owned()),
                };
                (word, end)
            }
            _ => {
                let signs = [":=", "=", "|", "(", ")", ","];
                let sign = signs.into_iter().find(|sign| rest.starts_with(sign));
                let sign = sign.ok_or_else(|| format!("unexpected {first:?} in an action"))?;
                (Word::Sign(sign), sign.len())
            }
        };
        words.push(word);
        rest = &rest[length..];
    }
}

fn number(text: &str) -> Result<Value, String> {
    let plain = text.replace('_', "");
    let plain = plain.strip_prefix('+').unwrap_or(&plain);
    if let Ok(integer) = plain.parse::<i64>() {
        return Ok(integer.into());
    }
    if let Some(hex) = plain.strip_prefix("0x")
        && let Ok(integer) = i64::from_str_radix(hex, 16)
    {
        return Ok(integer.into());
    }
    let float: f64 = plain.parse().map_err(|_| format!("bad number syntax: {text:?}"))?;
    Ok(float.into())
}

struct Parser<'k> {
    pieces: std::vec::IntoIter<Piece>,
    named: Vec<(String, Vec<Node>)>,
    is_known: &'k dyn Fn(&str) -> bool,
    depth: usize,
}

/// What ended a list of nodes.
enum End {
    Text,
    Closed,
    /// With what follows the word.
    Else(Vec<Word>),
}

impl Parser<'_> {
    fn list(&mut self) -> Result<(Vec<Node>, End), String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("it nests too deep".to_owned());
        }
        let mut nodes = Vec::new();
        let end = loop {
            let words = match self.pieces.next() {
                None => break End::Text,
                Some(Piece::Text(text)) => {
                    if !text.is_empty() {
                        nodes.push(Node::Text(text));
                    }
                    continue;
                }
                Some(Piece::Action(words)) => words,
            };
            let keyword = match words.first() {
                Some(Word::Name(name)) => name.clone(),
                _ => String::new(),
            };
            let rest = || words[1..].to_vec();
            match keyword.as_str() {
                "end" => break End::Closed,
                "else" => break End::Else(rest()),
                "if" => {
                    let (branches, otherwise) = self.branches("if", rest())?;
                    nodes.push(Node::If(branches, otherwise));
                }
                "with" => {
                    let (branches, otherwise) = self.branches("with", rest())?;
                    nodes.push(Node::With(branches, otherwise));
                }
                "range" => {
                    let pipeline = self.pipeline(rest())?;
                    let (body, end) = self.list()?;
                    let otherwise = match end {
                        End::Closed => Vec::new(),
                        End::Else(words) if words.is_empty() => self.closed()?,
                        _ => return Err("unexpected EOF".to_owned()),
                    };
                    nodes.push(Node::Range(pipeline, body, otherwise));
                }
                "define" | "block" => {
                    let Some(Word::Literal(Value::String(name))) = words.get(1).cloned() else {
                        return Err(format!("{keyword} needs a name"));
                    };
                    let body = self.closed()?;
                    self.named.push((name.clone(), body));
                    if keyword == "block" {
                        nodes.push(Node::Template(name, Some(self.pipeline(words[2..].to_vec())?)));
                    }
                }
                "template" => {
                    let Some(Word::Literal(Value::String(name))) = words.get(1).cloned() else {
                        return Err("template needs a name".to_owned());
                    };
                    let pipeline = if words.len() > 2 { Some(self.pipeline(words[2..].to_vec())?) } else { None };
                    nodes.push(Node::Template(name, pipeline));
                }
                "break" if words.len() == 1 => nodes.push(Node::Break),
                "continue" if words.len() == 1 => nodes.push(Node::Continue),
                _ => nodes.push(Node::Action(self.pipeline(words)?)),
            }
        };
        self.depth -= 1;
        Ok((nodes, end))
    }

    fn closed(&mut self) -> Result<Vec<Node>, String> {
        match self.list()? {
            (nodes, End::Closed) => Ok(nodes),
            _ => Err("unexpected EOF".to_owned()),
        }
    }

    #[expect(clippy::type_complexity, reason = "the two parts of a node")]
    fn branches(
        &mut self,
        keyword: &str,
        condition: Vec<Word>,
    ) -> Result<(Vec<(Pipeline, Vec<Node>)>, Vec<Node>), String> {
        let mut branches = Vec::new();
        let mut condition = self.pipeline(condition)?;
        loop {
            let (body, end) = self.list()?;
            branches.push((condition, body));
            match end {
                End::Closed => return Ok((branches, Vec::new())),
                End::Else(words) if words.is_empty() => return Ok((branches, self.closed()?)),
                End::Else(words) if words.first() == Some(&Word::Name(keyword.to_owned())) => {
                    condition = self.pipeline(words[1..].to_vec())?;
                }
                End::Else(_) => return Err("unexpected words after {{else}}".to_owned()),
                End::Text => return Err("unexpected EOF".to_owned()),
            }
        }
    }

    fn pipeline(&mut self, words: Vec<Word>) -> Result<Pipeline, String> {
        let mut words = words.into_iter().peekable();
        let pipeline = self.commands(&mut words, 0)?;
        match words.next() {
            None => Ok(pipeline),
            Some(word) => Err(format!("unexpected {word:?}")),
        }
    }

    fn commands(&mut self, words: &mut Words, depth: usize) -> Result<Pipeline, String> {
        if depth > DEPTH {
            return Err("it nests too deep".to_owned());
        }
        let (variables, assigns) = declared(words);
        let mut commands = vec![Vec::new()];
        loop {
            match words.peek() {
                None | Some(Word::Sign(")")) => break,
                Some(Word::Sign("|")) => {
                    words.next();
                    commands.push(Vec::new());
                }
                Some(_) => {
                    let operand = self.operand(words, depth)?;
                    if let Some(command) = commands.last_mut() {
                        command.push(operand);
                    }
                }
            }
        }
        if commands.iter().any(Vec::is_empty) {
            return Err("missing value for command".to_owned());
        }
        Ok(Pipeline { variables, assigns, commands })
    }

    fn operand(&mut self, words: &mut Words, depth: usize) -> Result<Operand, String> {
        let mut fields = Vec::new();
        let base = match words.next() {
            Some(Word::Dot) => Base::Dot,
            Some(Word::Field { name, .. }) => {
                fields.push(name);
                Base::Dot
            }
            Some(Word::Variable(name)) => Base::Variable(name),
            Some(Word::Literal(value)) => Base::Literal(value),
            Some(Word::Name(name)) => {
                if !(self.is_known)(&name) {
                    return Err(format!("function {name:?} not defined"));
                }
                Base::Function(name)
            }
            Some(Word::Sign("(")) => {
                let pipeline = self.commands(words, depth + 1)?;
                if words.next() != Some(Word::Sign(")")) {
                    return Err("unclosed left paren".to_owned());
                }
                Base::Pipeline(Box::new(pipeline))
            }
            word => return Err(format!("unexpected {word:?}")),
        };
        while let Some(Word::Field { name, .. }) =
            words.next_if(|word| matches!(word, Word::Field { joined: true, .. }))
        {
            fields.push(name);
        }
        Ok(Operand { base, fields })
    }
}

type Words = std::iter::Peekable<std::vec::IntoIter<Word>>;

/// The variables that a pipeline sets.
fn declared(words: &mut Words) -> (Vec<String>, bool) {
    let mut ahead = words.clone();
    let mut variables = Vec::new();
    while let Some(Word::Variable(name)) = ahead.next() {
        variables.push(name);
        match ahead.next() {
            Some(Word::Sign(",")) if variables.len() == 1 => {}
            Some(Word::Sign(sign @ (":=" | "="))) => {
                *words = ahead;
                return (variables, sign == "=");
            }
            _ => break,
        }
    }
    (Vec::new(), false)
}
