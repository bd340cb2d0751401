//! Label selectors: `app=web,tier in (a,b),!legacy`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::field::{FieldError, Path};
use crate::validation::names::{label_value, qualified_name};

/// A parsed label selector; empty selects everything.
#[derive(Clone, Debug, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Equals,
    NotEquals,
    Exists,
    NotExists,
    Greater,
    Less,
}

impl LabelSelector {
    /// Parses a selector; the error is what a client reads.
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser { tokens: lex(text), next: 0 }.selector()
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether labels, looked up through `get`, are selected.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(get(&requirement.key).as_deref()))
    }
}

impl Requirement {
    fn matches(&self, label: Option<&str>) -> bool {
        match (self.operator, label) {
            (Operator::In | Operator::Equals, Some(value)) => self.values.contains(value),
            (Operator::NotIn | Operator::NotEquals, Some(value)) => !self.values.contains(value),
            (Operator::NotIn | Operator::NotEquals | Operator::NotExists, None) | (Operator::Exists, Some(_)) => true,
            (Operator::Greater, Some(value)) => self.compare(value, |label, bound| label > bound),
            (Operator::Less, Some(value)) => self.compare(value, |label, bound| label < bound),
            (Operator::NotExists, Some(_)) | (_, None) => false,
        }
    }

    fn compare(&self, label: &str, holds: impl Fn(i64, i64) -> bool) -> bool {
        let bound = self.values.first().and_then(|value| value.parse().ok());
        matches!((label.parse(), bound), (Ok(label), Some(bound)) if holds(label, bound))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Symbol(symbol) => symbol,
            Self::End => "",
        }
    }
}

fn lex(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches([' ', '\t', '\r', '\n']);
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '>', '<']).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).unwrap_or(&Token::End)
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn selector(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    let requirement = self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
                    requirements.push(requirement);
                    match self.take() {
                        Token::End => return Ok(LabelSelector { requirements }),
                        Token::Symbol(",") => {
                            let following = self.peek();
                            if !matches!(following, Token::Word(_) | Token::Symbol("!")) {
                                return Err(format!("found '{}', expected: identifier after ','", following.text()));
                            }
                        }
                        other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
                    }
                }
                Token::End => return Ok(LabelSelector { requirements }),
                other @ Token::Symbol(_) => {
                    return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text()));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = *self.peek() == Token::Symbol("!");
        if negated {
            self.next += 1;
        }
        let key = match self.take() {
            Token::Word(word) => word,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        if let Some(problem) = qualified_name(&key).into_iter().next() {
            return Err(FieldError::invalid(&Path::root(), key, problem).to_string());
        }
        if negated || matches!(self.peek(), Token::End | Token::Symbol(",")) {
            let operator = if negated { Operator::NotExists } else { Operator::Exists };
            return Ok(Requirement { key, operator, values: BTreeSet::new() });
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => BTreeSet::from([self.exact_value()?]),
        };
        check_values(&key, operator, &values)?;
        Ok(Requirement { key, operator, values })
    }

    fn operator(&mut self) -> Result<Operator, String> {
        Ok(match self.take() {
            Token::Symbol("=" | "==") => Operator::Equals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::Greater,
            Token::Symbol("<") => Operator::Less,
            Token::Word(word) if word == "in" => Operator::In,
            Token::Word(word) if word == "notin" => Operator::NotIn,
            other => return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text())),
        })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        match self.take() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut values = BTreeSet::new();
        match self.peek() {
            Token::Symbol(")") => {
                self.next += 1;
                return Ok(BTreeSet::from([String::new()]));
            }
            Token::Word(_) | Token::Symbol(",") => {}
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
        }
        loop {
            match self.take() {
                Token::Word(word) => {
                    values.insert(word);
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek() {
                        Token::Symbol(")") => {
                            values.insert(String::new());
                            break;
                        }
                        Token::Symbol(",") => {
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
        }
        self.next += 1;
        Ok(values)
    }

    fn exact_value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(_) => Ok(self.take().text().to_owned()),
            other @ Token::Symbol(_) => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }
}

fn check_values(key: &str, operator: Operator, values: &BTreeSet<String>) -> Result<(), String> {
    if matches!(operator, Operator::Greater | Operator::Less)
        && values.first().is_none_or(|value| value.parse::<i64>().is_err())
    {
        let value = values.first().cloned().unwrap_or_default();
        let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
        return Err(FieldError::invalid(&Path::new("values").index(0), value, detail).to_string());
    }
    for (i, value) in values.iter().enumerate() {
        if let Some(problem) = label_value(value).into_iter().next() {
            let values = Path::new("values");
            return Err(FieldError::invalid(&values.index(i).key(key), value.as_str(), problem).to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&'static str, &'static str)]) -> bool {
        let selector = LabelSelector::parse(selector).expect("parses");
        selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| Cow::Borrowed(*v)))
    }

    #[test]
    fn selectors_select() {
        let labels = [("env", "prod"), ("tier", "5")];
        for yes in
            ["", "env", "env=prod", "env==prod,tier", "env in (prod, dev)", "!x", "x!=1", "x notin (a)", "tier>4"]
        {
            assert!(selects(yes, &labels), "{yes}");
        }
        for no in ["!env", "env!=prod", "env in ()", "x", "env=", "tier<5", "env>5"] {
            assert!(!selects(no, &labels), "{no}");
        }
    }

    #[test]
    fn errors_read_as_upstream() {
        let check = |text: &str, expect: &str| assert_eq!(LabelSelector::parse(text).expect_err("fails"), expect);
        check("a,,b", "found ',', expected: identifier after ','");
        check("=x", "found '=', expected: !, identifier, or 'end of string'");
        check("a=b c", "found 'c', expected: ',' or 'end of string'");
        check("t in x", "unable to parse requirement: found 'x' expected: '('");
        check("a gt 5", "unable to parse requirement: found 'gt', expected: in, notin, =, ==, !=, gt, lt");
    }
}
