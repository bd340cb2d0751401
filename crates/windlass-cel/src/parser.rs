//! From tokens to a tree, following cel-go's grammar (`parser/gen/CEL.g4`) and its visitor.
//!
//! Nesting, the number of problems and the number of nodes are bounded, so that no text can exhaust
//! the stack or the memory. After the first syntax error parsing stops; its wording follows ANTLR
//! where the expectation is clear.

use super::ast::{Const, Entry, Expr, Field, Id, Item, Kind};
use super::lexer::{Token, TokenKind, tokens};
use super::source::Issues;
use super::unescape::unescape;

/// Longer texts are refused.
const MAX_CHARS: usize = 100_000;
/// How deep each kind of rule may nest.
const MAX_DEPTH: usize = 250;
/// How many nodes an expression may have once its macros are expanded.
const MAX_NODES: usize = 100_000;

const OPERANDS: &str =
    "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER";

/// A parsed expression: its tree, and where each node is written.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) root: Expr,
    pub(super) offsets: Vec<usize>,
}

/// Parses an expression. `binds` says whether `cel.bind` is a macro.
pub(super) fn parse(text: &str, binds: bool) -> Result<Parsed, Issues> {
    let mut issues = Issues::default();
    let size = text.chars().count();
    if size > MAX_CHARS {
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MAX_CHARS}");
        issues.push(None, message);
        return Err(issues);
    }
    let tokens = tokens(text, &mut issues);
    let mut parser = Parser { tokens, at: 0, offsets: vec![0], depth: [0; RULES], binds, issues };
    let root = parser.start();
    match root {
        Ok(root) if parser.issues.is_empty() => Ok(Parsed { root, offsets: parser.offsets }),
        _ => Err(parser.issues),
    }
}

/// Parsing cannot go on; the reason is among the issues.
pub(super) struct Stop;

type Result_<T> = Result<T, Stop>;

const RULES: usize = 4;

#[derive(Clone, Copy)]
enum Rule {
    Expr,
    Relation,
    Calc,
    Member,
}

pub(super) struct Parser {
    tokens: Vec<Token>,
    at: usize,
    offsets: Vec<usize>,
    depth: [usize; RULES],
    pub(super) binds: bool,
    issues: Issues,
}

impl Parser {
    fn start(&mut self) -> Result_<Expr> {
        let expr = self.expr()?;
        let token = self.peek();
        if token.kind == TokenKind::End {
            return Ok(expr);
        }
        let extra = self.tokens.get(self.at + 1).is_some_and(|next| next.kind == TokenKind::End);
        let what = if extra { "extraneous" } else { "mismatched" };
        Err(self.syntax(&format!("{what} input '{}' expecting <EOF>", token.shown())))
    }

    /// A new node at a place.
    pub(super) fn id(&mut self, offset: usize) -> Id {
        self.offsets.push(offset);
        self.offsets.len() as Id - 1
    }

    /// Whether more nodes may be made.
    pub(super) fn has_room(&mut self) -> bool {
        if self.offsets.len() < MAX_NODES {
            return true;
        }
        if self.offsets.len() < 2 * MAX_NODES {
            self.issues.push(None, format!("expression is too large: it has more than {MAX_NODES} nodes"));
            self.offsets.resize(2 * MAX_NODES, 0);
        }
        false
    }

    pub(super) fn offset(&self, id: Id) -> usize {
        self.offsets.get(id as usize).copied().unwrap_or_default()
    }

    /// Reports a problem and stands in for what could not be understood.
    pub(super) fn broken(&mut self, offset: usize, message: impl Into<String>) -> Expr {
        self.issues.push(Some(offset), message);
        Expr { id: self.id(offset), kind: Kind::Broken }
    }

    fn peek(&self) -> Token {
        self.tokens[self.at.min(self.tokens.len() - 1)].clone()
    }

    fn next_is(&self, symbol: &str) -> bool {
        self.tokens.get(self.at).is_some_and(|token| token.is(symbol))
    }

    fn take(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn take_if(&mut self, symbol: &str) -> Option<Token> {
        self.next_is(symbol).then(|| self.take())
    }

    fn expect(&mut self, symbol: &str) -> Result_<Token> {
        if let Some(token) = self.take_if(symbol) {
            return Ok(token);
        }
        let token = self.peek();
        Err(match token.kind {
            TokenKind::End => self.syntax(&format!("missing '{symbol}' at '<EOF>'")),
            _ => self.syntax(&format!("mismatched input '{}' expecting '{symbol}'", token.shown())),
        })
    }

    fn syntax(&mut self, message: &str) -> Stop {
        let offset = self.peek().offset;
        self.issues.push(Some(offset), format!("Syntax error: {message}"));
        Stop
    }

    fn enter(&mut self, rule: Rule) -> Result_<()> {
        self.depth[rule as usize] += 1;
        if self.depth[rule as usize] > MAX_DEPTH {
            self.issues.push(None, format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            return Err(Stop);
        }
        if self.has_room() { Ok(()) } else { Err(Stop) }
    }

    fn leave(&mut self, rule: Rule, count: usize) {
        self.depth[rule as usize] -= count;
    }

    fn expr(&mut self) -> Result_<Expr> {
        self.enter(Rule::Expr)?;
        let condition = self.or()?;
        let expr = match self.take_if("?") {
            None => condition,
            Some(question) => {
                let id = self.id(question.offset);
                let yes = self.or()?;
                self.expect(":")?;
                let no = self.expr()?;
                call(id, "_?_:_", vec![condition, yes, no])
            }
        };
        self.leave(Rule::Expr, 1);
        Ok(expr)
    }

    fn or(&mut self) -> Result_<Expr> {
        self.logic("||", "_||_", Self::and)
    }

    fn and(&mut self) -> Result_<Expr> {
        self.logic("&&", "_&&_", Self::relation)
    }

    fn logic(&mut self, symbol: &str, function: &str, term: fn(&mut Self) -> Result_<Expr>) -> Result_<Expr> {
        let first = term(self)?;
        let mut terms = vec![Some(first)];
        let mut operators = Vec::new();
        while let Some(operator) = self.take_if(symbol) {
            let next = term(self)?;
            terms.push(Some(next));
            operators.push(self.id(operator.offset));
        }
        Ok(balanced(function, &mut terms, &operators))
    }

    fn relation(&mut self) -> Result_<Expr> {
        const OPERATORS: [(&str, &str); 7] =
            [("<", "_<_"), ("<=", "_<=_"), (">=", "_>=_"), (">", "_>_"), ("==", "_==_"), ("!=", "_!=_"), ("in", "@in")];
        self.binary(Rule::Relation, 1, &OPERATORS, Self::sum)
    }

    fn sum(&mut self) -> Result_<Expr> {
        self.binary(Rule::Calc, 1, &[("+", "_+_"), ("-", "_-_")], Self::product)
    }

    fn product(&mut self) -> Result_<Expr> {
        // Sums and products are one rule of the grammar: it was entered with the sum.
        self.binary(Rule::Calc, 0, &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
    }

    fn binary(
        &mut self,
        rule: Rule,
        mut entered: usize,
        operators: &[(&str, &str)],
        operand: fn(&mut Self) -> Result_<Expr>,
    ) -> Result_<Expr> {
        if entered > 0 {
            self.enter(rule)?;
        }
        let mut left = operand(self)?;
        while let Some((_, function)) = operators.iter().find(|(symbol, _)| self.next_is(symbol)) {
            self.enter(rule)?;
            entered += 1;
            let offset = self.take().offset;
            let id = self.id(offset);
            let right = operand(self)?;
            left = call(id, function, vec![left, right]);
        }
        self.leave(rule, entered);
        Ok(left)
    }

    fn unary(&mut self) -> Result_<Expr> {
        let first = self.peek();
        let function = match first.text.as_str() {
            "!" if first.kind == TokenKind::Symbol => "!_",
            "-" if first.kind == TokenKind::Symbol && !self.signed_literal() => "-_",
            _ => return self.member(),
        };
        let mut count = 0;
        while self.next_is(&first.text) && !(count > 0 && self.signed_literal()) {
            self.at += 1;
            count += 1;
        }
        if count % 2 == 0 {
            return self.member();
        }
        let id = self.id(first.offset);
        let operand = self.member()?;
        Ok(call(id, function, vec![operand]))
    }

    /// Whether a minus comes that belongs to the number after it.
    fn signed_literal(&self) -> bool {
        self.next_is("-")
            && self.tokens.get(self.at + 1).is_some_and(|next| matches!(next.kind, TokenKind::Int | TokenKind::Float))
    }

    fn member(&mut self) -> Result_<Expr> {
        self.enter(Rule::Member)?;
        let mut entered = 1;
        let mut operand = self.primary()?;
        while self.next_is(".") || self.next_is("[") {
            self.enter(Rule::Member)?;
            entered += 1;
            let operator = self.take();
            operand = if operator.text == "." {
                self.select(operand, operator.offset)?
            } else {
                self.index(operand, operator.offset)?
            };
        }
        self.leave(Rule::Member, entered);
        Ok(operand)
    }

    fn index(&mut self, operand: Expr, offset: usize) -> Result_<Expr> {
        let optional = self.take_if("?").is_some();
        let id = self.id(offset);
        let index = self.expr()?;
        self.expect("]")?;
        Ok(call(id, if optional { "_[?_]" } else { "_[_]" }, vec![operand, index]))
    }

    fn select(&mut self, operand: Expr, offset: usize) -> Result_<Expr> {
        let optional = self.take_if("?").is_some();
        let name = self.peek();
        let field = match name.kind {
            TokenKind::Ident => name.text.clone(),
            TokenKind::EscapedIdent => name.text.trim_matches('`').to_owned(),
            TokenKind::Symbol if matches!(name.text.as_str(), "true" | "false" | "null") && !optional => {
                return Err(self.syntax(&format!("mismatched input '{}' expecting IDENTIFIER", name.text)));
            }
            TokenKind::End => {
                return Err(
                    self.syntax(&format!("no viable alternative at input '{}'", if optional { ".?" } else { "." }))
                );
            }
            _ => return Err(self.syntax(&format!("no viable alternative at input '.{}'", name.shown()))),
        };
        self.at += 1;
        if name.kind == TokenKind::Ident
            && !optional
            && let Some(open) = self.take_if("(")
        {
            let id = self.id(open.offset);
            let args = self.arguments()?;
            return Ok(self.call_or_macro(id, &field, Some(operand), args));
        }
        let id = self.id(offset);
        if optional {
            let literal = Expr { id: self.id(name.offset), kind: Kind::Const(Const::String(field.into())) };
            return Ok(call(id, "_?._", vec![operand, literal]));
        }
        Ok(Expr { id, kind: Kind::Select { operand: Box::new(operand), field, test_only: false } })
    }

    fn arguments(&mut self) -> Result_<Vec<Expr>> {
        let mut args = Vec::new();
        if self.take_if(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if self.take_if(",").is_none() {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Result_<Expr> {
        let token = self.peek();
        match (token.kind, token.text.as_str()) {
            (TokenKind::Ident, _) => self.ident(""),
            (TokenKind::Symbol, ".") => {
                self.at += 1;
                if self.peek().kind != TokenKind::Ident {
                    let found = self.peek();
                    return Err(self.syntax(&format!("mismatched input '{}' expecting IDENTIFIER", found.shown())));
                }
                self.ident(".")
            }
            (TokenKind::Symbol, "(") => {
                self.at += 1;
                let expr = self.expr()?;
                self.expect(")")?;
                Ok(expr)
            }
            (TokenKind::Symbol, "[") => self.list(),
            (TokenKind::Symbol, "{") => self.map(),
            _ => self.literal(),
        }
    }

    fn ident(&mut self, dot: &str) -> Result_<Expr> {
        if self.is_message() {
            return self.message(dot);
        }
        let token = self.take();
        let name = format!("{dot}{}", token.text);
        if is_reserved(&token.text) {
            let expr = self.broken(token.offset, format!("reserved identifier: {}", token.text));
            if self.take_if("(").is_some() {
                self.arguments()?;
            }
            return Ok(expr);
        }
        if let Some(open) = self.take_if("(") {
            let id = self.id(open.offset);
            let args = self.arguments()?;
            return Ok(self.call_or_macro(id, &name, None, args));
        }
        Ok(Expr { id: self.id(token.offset), kind: Kind::Ident(name) })
    }

    /// Whether a dotted name and an opening brace come.
    fn is_message(&self) -> bool {
        let mut at = self.at;
        loop {
            let ident = self.tokens.get(at).is_some_and(|token| token.kind == TokenKind::Ident);
            match self.tokens.get(at + 1) {
                Some(next) if ident && next.is("{") => return true,
                Some(next) if ident && next.is(".") => at += 2,
                _ => return false,
            }
        }
    }

    fn message(&mut self, dot: &str) -> Result_<Expr> {
        let mut name = dot.to_owned();
        while !self.next_is("{") {
            name.push_str(&self.take().text);
        }
        let open = self.take();
        let id = self.id(open.offset);
        let mut fields = Vec::new();
        while !self.next_is("}") && !self.next_is(",") {
            let optional = self.take_if("?").is_some();
            let token = self.peek();
            if !matches!(token.kind, TokenKind::Ident | TokenKind::EscapedIdent) {
                let expected = "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}";
                return Err(self.syntax(&format!("mismatched input '{}' expecting {expected}", token.shown())));
            }
            self.at += 1;
            let colon = self.expect(":")?;
            let field = self.id(colon.offset);
            let value = self.expr()?;
            fields.push(Field { id: field, name: token.text.trim_matches('`').to_owned(), value, optional });
            if !self.another("}") {
                break;
            }
        }
        self.take_if(",");
        self.expect("}")?;
        Ok(Expr { id, kind: Kind::Struct { name, fields } })
    }

    /// Takes a comma if something other than the closing bracket follows it.
    fn another(&mut self, close: &str) -> bool {
        if self.next_is(",") && !self.tokens.get(self.at + 1).is_some_and(|next| next.is(close)) {
            self.at += 1;
            return true;
        }
        false
    }

    fn list(&mut self) -> Result_<Expr> {
        let open = self.take();
        let id = self.id(open.offset);
        let mut items = Vec::new();
        while !self.next_is("]") && !self.next_is(",") {
            let optional = self.take_if("?").is_some();
            let value = self.expr()?;
            items.push(Item { value, optional });
            if !self.another("]") {
                break;
            }
        }
        self.take_if(",");
        self.expect("]")?;
        Ok(Expr { id, kind: Kind::List(items) })
    }

    fn map(&mut self) -> Result_<Expr> {
        let open = self.take();
        let id = self.id(open.offset);
        let mut entries = Vec::new();
        while !self.next_is("}") && !self.next_is(",") {
            let optional = self.take_if("?").is_some();
            let key = self.expr()?;
            let colon = self.expect(":")?;
            self.id(colon.offset);
            let value = self.expr()?;
            entries.push(Entry { key, value, optional });
            if !self.another("}") {
                break;
            }
        }
        self.take_if(",");
        self.expect("}")?;
        Ok(Expr { id, kind: Kind::Map(entries) })
    }

    fn literal(&mut self) -> Result_<Expr> {
        let offset = self.peek().offset;
        let sign = if self.signed_literal() { self.take().text } else { String::new() };
        let token = self.peek();
        let value = match token.kind {
            TokenKind::Int => integer(&sign, &token.text).map(Const::Int).ok_or("invalid int literal".to_owned()),
            TokenKind::Uint => {
                let text = &token.text[..token.text.len() - 1];
                unsigned(text).map(Const::Uint).ok_or("invalid uint literal".to_owned())
            }
            TokenKind::Float => match format!("{sign}{}", token.text).parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(Const::Double(value)),
                _ => Err("invalid double literal".to_owned()),
            },
            TokenKind::String => unescape(&token.text, false)
                .map(|bytes| Const::String(String::from_utf8_lossy(&bytes).into_owned().into())),
            TokenKind::Bytes => unescape(&token.text[1..], true).map(|bytes| Const::Bytes(bytes.into())),
            TokenKind::Symbol if token.text == "true" => Ok(Const::Bool(true)),
            TokenKind::Symbol if token.text == "false" => Ok(Const::Bool(false)),
            TokenKind::Symbol if token.text == "null" => Ok(Const::Null),
            _ => {
                let next = self.tokens.get(self.at + 1).is_some_and(starts_operand);
                let what = if next && token.kind != TokenKind::End { "extraneous" } else { "mismatched" };
                return Err(self.syntax(&format!("{what} input '{}' expecting {{{OPERANDS}}}", token.shown())));
            }
        };
        self.at += 1;
        match value {
            Ok(value) => Ok(Expr { id: self.id(offset), kind: Kind::Const(value) }),
            Err(message) => Ok(self.broken(offset, message)),
        }
    }
}

/// A call of a function that has no receiver.
pub(super) fn call(id: Id, function: &str, args: Vec<Expr>) -> Expr {
    Expr { id, kind: Kind::Call { target: None, function: function.to_owned(), args } }
}

fn starts_operand(token: &Token) -> bool {
    match token.kind {
        TokenKind::Symbol => {
            matches!(token.text.as_str(), "[" | "{" | "(" | "." | "-" | "!" | "true" | "false" | "null")
        }
        TokenKind::End | TokenKind::EscapedIdent => false,
        _ => true,
    }
}

/// `a && b && c` as a tree that is no deeper than it must be.
fn balanced(function: &str, terms: &mut [Option<Expr>], operators: &[Id]) -> Expr {
    if operators.is_empty() {
        return terms[0].take().expect("invariant: each term is used once");
    }
    let middle = operators.len() / 2;
    let (left, right) = terms.split_at_mut(middle + 1);
    let left = balanced(function, left, &operators[..middle]);
    let right = balanced(function, right, &operators[middle + 1..]);
    call(operators[middle], function, vec![left, right])
}

fn integer(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Words that cannot be variables.
pub(super) fn is_reserved(word: &str) -> bool {
    matches!(
        word,
        "as" | "break"
            | "const"
            | "continue"
            | "else"
            | "false"
            | "for"
            | "function"
            | "if"
            | "import"
            | "in"
            | "let"
            | "loop"
            | "package"
            | "namespace"
            | "null"
            | "return"
            | "true"
            | "var"
            | "void"
            | "while"
    )
}
