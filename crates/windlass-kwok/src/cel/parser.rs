//! From words to what they mean.

use serde_json::Value;

use super::functions::FUNCTIONS;
use super::lexer::Token;
use super::{Binary, Comprehension, Expr};

/// How deep expressions may nest.
const DEPTH: usize = 64;

pub(super) fn parse(tokens: Vec<Token>) -> Result<Expr, String> {
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let expression = parser.ternary()?;
    match parser.peek() {
        None => Ok(expression),
        Some(token) => Err(format!("unexpected {token:?}")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) {
            return Ok(());
        }
        Err(self
            .peek()
            .map_or_else(|| format!("{sign:?} is missing"), |token| format!("{token:?} instead of {sign:?}")))
    }

    fn ternary(&mut self) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("it is nested too deeply".to_owned());
        }
        let condition = self.binary(0)?;
        let expression = if self.takes("?") {
            let then = self.binary(0)?;
            self.expect(":")?;
            let otherwise = self.ternary()?;
            Expr::If(Box::new(condition), Box::new(then), Box::new(otherwise))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expression)
    }

    /// The operator that comes next, if it binds at least this tightly.
    fn operator(&self, least: u8) -> Option<(Binary, u8)> {
        let (operator, level) = match self.peek()? {
            Token::Sign("||") => (Binary::Or, 0),
            Token::Sign("&&") => (Binary::And, 1),
            Token::Sign("==") => (Binary::Equal, 2),
            Token::Sign("!=") => (Binary::NotEqual, 2),
            Token::Sign("<") => (Binary::Less, 2),
            Token::Sign("<=") => (Binary::LessOrEqual, 2),
            Token::Sign(">") => (Binary::Greater, 2),
            Token::Sign(">=") => (Binary::GreaterOrEqual, 2),
            Token::Word(word) if word == "in" => (Binary::In, 2),
            Token::Sign("+") => (Binary::Add, 3),
            Token::Sign("-") => (Binary::Subtract, 3),
            Token::Sign("*") => (Binary::Multiply, 4),
            Token::Sign("/") => (Binary::Divide, 4),
            Token::Sign("%") => (Binary::Remainder, 4),
            _ => return None,
        };
        (level >= least).then_some((operator, level))
    }

    fn binary(&mut self, least: u8) -> Result<Expr, String> {
        let mut left = self.unary()?;
        while let Some((operator, level)) = self.operator(least) {
            self.at += 1;
            let right = self.binary(level + 1)?;
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, String> {
        let mut signs = Vec::new();
        while let Some(sign) = ["!", "-"].into_iter().find(|sign| self.takes(sign)) {
            signs.push(sign);
        }
        if signs.len() > DEPTH {
            return Err("it is nested too deeply".to_owned());
        }
        let expression = self.member()?;
        Ok(signs.into_iter().rev().fold(expression, |of, sign| match sign {
            "!" => Expr::Not(Box::new(of)),
            _ => Expr::Negate(Box::new(of)),
        }))
    }

    fn member(&mut self) -> Result<Expr, String> {
        let mut expression = self.primary()?;
        let mut length = 0;
        loop {
            length += 1;
            if length > DEPTH {
                return Err("it is nested too deeply".to_owned());
            }
            if self.takes(".") {
                let Some(Token::Word(name)) = self.next() else {
                    return Err("a name is missing after \".\"".to_owned());
                };
                expression = if self.takes("(") {
                    let arguments = self.list(")")?;
                    method(expression, name, arguments)?
                } else {
                    Expr::Field(Box::new(expression), name)
                };
            } else if self.takes("[") {
                let index = self.ternary()?;
                self.expect("]")?;
                expression = Expr::Index(Box::new(expression), Box::new(index));
            } else {
                return Ok(expression);
            }
        }
    }

    fn list(&mut self, end: &str) -> Result<Vec<Expr>, String> {
        let mut items = Vec::new();
        while !self.takes(end) {
            items.push(self.ternary()?);
            if !self.takes(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(items)
    }

    fn primary(&mut self) -> Result<Expr, String> {
        match self.next() {
            Some(Token::Text(text)) => Ok(Expr::Literal(text.into())),
            Some(Token::Number(number)) => Ok(Expr::Literal(number)),
            Some(Token::Sign("(")) => {
                let expression = self.ternary()?;
                self.expect(")")?;
                Ok(expression)
            }
            Some(Token::Sign("[")) => Ok(Expr::List(self.list("]")?)),
            Some(Token::Sign("{")) => self.map(),
            Some(Token::Word(word)) => match word.as_str() {
                "true" => Ok(Expr::Literal(true.into())),
                "false" => Ok(Expr::Literal(false.into())),
                "null" => Ok(Expr::Literal(Value::Null)),
                _ if self.takes("(") => {
                    let arguments = self.list(")")?;
                    function(word, arguments)
                }
                _ => Ok(Expr::Variable(word)),
            },
            Some(token) => Err(format!("unexpected {token:?}")),
            None => Err("it ends too early".to_owned()),
        }
    }

    fn map(&mut self) -> Result<Expr, String> {
        let mut entries = Vec::new();
        while !self.takes("}") {
            let key = self.ternary()?;
            self.expect(":")?;
            entries.push((key, self.ternary()?));
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Expr::Map(entries))
    }
}

fn function(name: String, mut arguments: Vec<Expr>) -> Result<Expr, String> {
    if name != "has" {
        return known(&name).map(|()| Expr::Call(None, name, arguments));
    }
    match (arguments.pop(), arguments.is_empty()) {
        (Some(Expr::Field(of, field)), true) => Ok(Expr::Has(of, field)),
        _ => Err("has() takes a field".to_owned()),
    }
}

/// Refuses a function that nothing has, before an object is seen.
fn known(name: &str) -> Result<(), String> {
    if FUNCTIONS.contains(&name) { Ok(()) } else { Err(format!("undeclared reference to '{name}'")) }
}

/// A method, or one of the macros that look like methods.
fn method(of: Expr, name: String, mut arguments: Vec<Expr>) -> Result<Expr, String> {
    let kind = match name.as_str() {
        "all" => Comprehension::All,
        "exists" => Comprehension::Exists,
        "exists_one" => Comprehension::ExistsOne,
        "filter" => Comprehension::Filter,
        "map" => Comprehension::Map,
        _ => return known(&name).map(|()| Expr::Call(Some(Box::new(of)), name, arguments)),
    };
    let is_filtered = kind == Comprehension::Map && arguments.len() == 3;
    if arguments.len() != 2 && !is_filtered {
        return Err(format!("{name}() takes a name and an expression"));
    }
    let body = arguments.pop().ok_or("an argument is missing")?;
    let filter = if is_filtered { arguments.pop() } else { None };
    let Some(Expr::Variable(variable)) = arguments.pop() else { return Err(format!("{name}() takes a name first")) };
    let of = match filter {
        Some(filter) => Expr::Each(Comprehension::Filter, Box::new(of), variable.clone(), Box::new(filter)),
        None => of,
    };
    Ok(Expr::Each(kind, Box::new(of), variable, Box::new(body)))
}
