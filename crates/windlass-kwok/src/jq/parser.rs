//! From the words of a query to its meaning.
//!
//! ```text
//! pipe: comma ("|" comma)*          comma: alternative ("," alternative)*     alternative: or ("//" or)*
//! or ▸ and ▸ comparison ▸ sum ▸ product ▸ negation ▸ path: term (".name" | "[...]" | "?")*
//! ```

use serde_json::Value;

use super::lexer::Token;
use super::{Comparison, Expr, FUNCTIONS};

/// How deep a query may nest.
const DEPTH: usize = 64;

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    depth: usize,
}

type Parsed = Result<Expr, String>;

pub(super) fn parse(tokens: Vec<Token>) -> Parsed {
    let mut parser = Parser { tokens: tokens.into_iter().peekable(), depth: 0 };
    let query = parser.pipe()?;
    match parser.tokens.next() {
        None => Ok(query),
        Some(token) => Err(format!("unexpected {token:?}")),
    }
}

fn boxed(left: Expr, right: Expr, make: fn(Box<Expr>, Box<Expr>) -> Expr) -> Expr {
    make(Box::new(left), Box::new(right))
}

impl Parser {
    fn take(&mut self, sign: &str) -> bool {
        self.tokens.next_if(|token| matches!(token, Token::Sign(found) if *found == sign)).is_some()
    }

    fn take_word(&mut self, word: &str) -> bool {
        self.tokens.next_if(|token| matches!(token, Token::Word(found) if found == word)).is_some()
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(format!("{sign:?} is missing before {:?}", self.tokens.peek())) }
    }

    fn expect_word(&mut self, word: &str) -> Result<(), String> {
        if self.take_word(word) { Ok(()) } else { Err(format!("{word:?} is missing")) }
    }

    fn pipe(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("it nests too deep".to_owned());
        }
        let mut parsed = self.comma()?;
        if self.take("|") {
            parsed = boxed(parsed, self.pipe()?, Expr::Pipe);
        }
        self.depth -= 1;
        Ok(parsed)
    }

    fn comma(&mut self) -> Parsed {
        let mut parsed = self.alternative()?;
        while self.take(",") {
            parsed = boxed(parsed, self.alternative()?, Expr::Comma);
        }
        Ok(parsed)
    }

    fn alternative(&mut self) -> Parsed {
        let mut all = vec![self.or()?];
        while self.take("//") {
            all.push(self.or()?);
        }
        let last = all.pop().ok_or("nothing is there")?;
        Ok(all.into_iter().rev().fold(last, |right, left| boxed(left, right, Expr::Alternative)))
    }

    fn or(&mut self) -> Parsed {
        let mut parsed = self.and()?;
        while self.take_word("or") {
            parsed = boxed(parsed, self.and()?, Expr::Or);
        }
        Ok(parsed)
    }

    fn and(&mut self) -> Parsed {
        let mut parsed = self.comparison()?;
        while self.take_word("and") {
            parsed = boxed(parsed, self.comparison()?, Expr::And);
        }
        Ok(parsed)
    }

    fn comparison(&mut self) -> Parsed {
        let left = self.sum()?;
        let comparison = match self.tokens.peek() {
            Some(Token::Sign("==")) => Comparison::Equal,
            Some(Token::Sign("!=")) => Comparison::NotEqual,
            Some(Token::Sign("<")) => Comparison::Less,
            Some(Token::Sign("<=")) => Comparison::LessOrEqual,
            Some(Token::Sign(">")) => Comparison::Greater,
            Some(Token::Sign(">=")) => Comparison::GreaterOrEqual,
            _ => return Ok(left),
        };
        self.tokens.next();
        Ok(Expr::Compare(comparison, Box::new(left), Box::new(self.sum()?)))
    }

    fn sum(&mut self) -> Parsed {
        let mut parsed = self.product()?;
        loop {
            let operator = if self.take("+") {
                '+'
            } else if self.take("-") {
                '-'
            } else {
                return Ok(parsed);
            };
            parsed = Expr::Arithmetic(operator, Box::new(parsed), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Parsed {
        let mut parsed = self.negation()?;
        loop {
            let found = ["*", "/", "%"].into_iter().find(|sign| self.take(sign));
            let Some(operator) = found.and_then(|sign| sign.chars().next()) else { return Ok(parsed) };
            parsed = Expr::Arithmetic(operator, Box::new(parsed), Box::new(self.negation()?));
        }
    }

    fn negation(&mut self) -> Parsed {
        if self.take("-") { Ok(Expr::Negate(Box::new(self.path()?))) } else { self.path() }
    }

    fn path(&mut self) -> Parsed {
        let mut parsed = self.term()?;
        loop {
            if let Some(Token::Field(name)) = self.tokens.next_if(|token| matches!(token, Token::Field(_))) {
                parsed = boxed(parsed, Expr::Literal(name.into()), Expr::Index);
            } else if self.take("?") {
                parsed = Expr::Try(Box::new(parsed));
            } else if self.take("[") {
                parsed = self.bracket(parsed)?;
            } else if self.take(".") {
                // `.a.[0]`, as newer versions have it.
                self.expect("[")?;
                parsed = self.bracket(parsed)?;
            } else {
                return Ok(parsed);
            }
        }
    }

    /// What follows an opening bracket in a path.
    fn bracket(&mut self, of: Expr) -> Parsed {
        if self.take("]") {
            return Ok(Expr::Iterate(Box::new(of)));
        }
        if self.take(":") {
            let to = self.pipe()?;
            self.expect("]")?;
            return Ok(Expr::Slice(Box::new(of), None, Some(Box::new(to))));
        }
        let from = self.pipe()?;
        if self.take(":") {
            let to = if matches!(self.tokens.peek(), Some(Token::Sign("]"))) { None } else { Some(self.pipe()?) };
            self.expect("]")?;
            return Ok(Expr::Slice(Box::new(of), Some(Box::new(from)), to.map(Box::new)));
        }
        self.expect("]")?;
        Ok(boxed(of, from, Expr::Index))
    }

    fn term(&mut self) -> Parsed {
        match self.tokens.next() {
            Some(Token::Sign(".")) => Ok(Expr::Identity),
            Some(Token::Field(name)) => Ok(boxed(Expr::Identity, Expr::Literal(name.into()), Expr::Index)),
            Some(Token::Text(text)) => Ok(Expr::Literal(text.into())),
            Some(Token::Number(number)) => Ok(Expr::Literal(number)),
            Some(Token::Sign("(")) => {
                let parsed = self.pipe()?;
                self.expect(")")?;
                Ok(parsed)
            }
            Some(Token::Sign("[")) => {
                if self.take("]") {
                    return Ok(Expr::Array(None));
                }
                let items = self.pipe()?;
                self.expect("]")?;
                Ok(Expr::Array(Some(Box::new(items))))
            }
            Some(Token::Sign("{")) => self.object(),
            Some(Token::Word(word)) => self.word(word),
            Some(token) => Err(format!("unexpected {token:?}")),
            None => Err("it ends too early".to_owned()),
        }
    }

    fn word(&mut self, word: String) -> Parsed {
        match word.as_str() {
            "true" => return Ok(Expr::Literal(true.into())),
            "false" => return Ok(Expr::Literal(false.into())),
            "null" => return Ok(Expr::Literal(Value::Null)),
            "if" => return self.condition(),
            _ => {}
        }
        let mut arguments = Vec::new();
        if self.take("(") {
            arguments.push(self.pipe()?);
            while self.take(";") {
                arguments.push(self.pipe()?);
            }
            self.expect(")")?;
        }
        if FUNCTIONS.contains(&(word.as_str(), arguments.len())) {
            return Ok(Expr::Call(word, arguments));
        }
        Err(format!("the function {word}/{} is not known", arguments.len()))
    }

    fn condition(&mut self) -> Parsed {
        let condition = self.pipe()?;
        self.expect_word("then")?;
        let then = self.pipe()?;
        let otherwise = if self.take_word("elif") {
            self.depth += 1;
            if self.depth > DEPTH {
                return Err("it nests too deep".to_owned());
            }
            let otherwise = self.condition()?;
            self.depth -= 1;
            otherwise
        } else {
            let otherwise = if self.take_word("else") { self.pipe()? } else { Expr::Identity };
            self.expect_word("end")?;
            otherwise
        };
        Ok(Expr::If(Box::new(condition), Box::new(then), Box::new(otherwise)))
    }

    fn object(&mut self) -> Parsed {
        let mut fields = Vec::new();
        if self.take("}") {
            return Ok(Expr::Object(fields));
        }
        loop {
            let (key, short) = match self.tokens.next() {
                Some(Token::Word(word)) => (Expr::Literal(word.clone().into()), Some(word)),
                Some(Token::Text(text)) => (Expr::Literal(text.clone().into()), Some(text)),
                Some(Token::Sign("(")) => {
                    let key = self.pipe()?;
                    self.expect(")")?;
                    (key, None)
                }
                token => return Err(format!("{token:?} is no key")),
            };
            let value = match short {
                _ if self.take(":") => self.alternative()?,
                Some(name) => boxed(Expr::Identity, Expr::Literal(name.into()), Expr::Index),
                None => return Err("a value is missing".to_owned()),
            };
            fields.push((key, value));
            if self.take("}") {
                return Ok(Expr::Object(fields));
            }
            self.expect(",")?;
        }
    }
}
