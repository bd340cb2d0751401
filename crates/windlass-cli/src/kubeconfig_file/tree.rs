//! Where the nodes of a YAML document are in its text.
//!
//! The tokens are `granit-parser`'s; this module puts them together and keeps their positions: those of nodes, and those
//! of the dashes, commas and colons between them, which events of a parser do not have. Only the first document is
//! looked at, and only as far as an edit needs it: tags and anchors are part of the node that they stand before.

use anyhow::{Result, bail};
use granit_parser::{Options, ScalarStyle, Scanner, StrInput, TokenType};

/// A node: bytes `start..end` of the text, without comments around it.
#[derive(Debug)]
pub(super) struct Node {
    pub start: usize,
    pub end: usize,
    pub shape: Shape,
}

#[derive(Debug)]
pub(super) enum Shape {
    /// Nothing at all: null.
    Empty,
    Scalar(String),
    Alias,
    Sequence(Vec<Item>),
    Mapping(Vec<Pair>),
    FlowSequence {
        /// The end of the opening bracket.
        open: usize,
        items: Vec<Node>,
        /// Where commas start; each follows the item of its index.
        commas: Vec<usize>,
    },
    FlowMapping {
        open: usize,
        pairs: Vec<Pair>,
        commas: Vec<usize>,
    },
}

/// An entry of a sequence that is written with dashes.
#[derive(Debug)]
pub(super) struct Item {
    pub dash: usize,
    pub node: Node,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub key: Node,
    /// The end of the colon.
    pub colon: usize,
    pub value: Node,
}

impl Node {
    fn empty(at: usize) -> Self {
        Self { start: at, end: at, shape: Shape::Empty }
    }

    /// The pair of a mapping that has a key, in either style.
    pub(super) fn pair(&self, key: &str) -> Option<(usize, &Pair)> {
        let (Shape::Mapping(pairs) | Shape::FlowMapping { pairs, .. }) = &self.shape else { return None };
        pairs.iter().enumerate().find(|(_, pair)| matches!(&pair.key.shape, Shape::Scalar(text) if text == key))
    }
}

/// Reads the first document.
pub(super) fn parse(text: &str) -> Result<Node> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut tokens = Vec::new();
    for token in Scanner::with_options(StrInput::new(text), options) {
        let (span, token) = token?.into_parts();
        let Some(range) = span.byte_range() else { bail!("the YAML parser gives no positions") };
        let (start, end) = match &token {
            TokenType::Scalar(ScalarStyle::Literal | ScalarStyle::Folded, _) => {
                (range.start, block_end(text, range.end))
            }
            _ => (range.start, range.end),
        };
        tokens.push(Token { start, end: end.max(start), kind: token });
    }
    let mut reader = Reader { text, tokens: tokens.into_iter().peekable(), end: 0 };
    while reader.next_if(|token| {
        use TokenType::{DocumentStart, ReservedDirective, StreamStart, TagDirective, VersionDirective};
        matches!(token, StreamStart | DocumentStart | VersionDirective(..) | TagDirective(..) | ReservedDirective(..))
    }) {}
    let root = reader.node(false)?;
    match reader.peek() {
        None | Some(TokenType::StreamEnd | TokenType::DocumentEnd | TokenType::DocumentStart) => Ok(root),
        Some(_) => reader.unexpected(),
    }
}

/// The end of a block scalar, before its last line break: its token ends where the next one starts.
fn block_end(text: &str, end: usize) -> usize {
    let before = text[..end].trim_end_matches(' ');
    if before.ends_with('\n') || before.ends_with('\r') { before.len() - break_before(before) } else { end }
}

/// How long the line break is that a text ends with.
pub(super) fn break_before(text: &str) -> usize {
    if text.ends_with("\r\n") { 2 } else { usize::from(text.ends_with(['\n', '\r'])) }
}

struct Token<'a> {
    start: usize,
    end: usize,
    kind: TokenType<'a>,
}

struct Reader<'a> {
    text: &'a str,
    tokens: std::iter::Peekable<std::vec::IntoIter<Token<'a>>>,
    /// The end of the last token that has text.
    end: usize,
}

impl<'a> Reader<'a> {
    fn peek(&mut self) -> Option<&TokenType<'a>> {
        self.tokens.peek().map(|token| &token.kind)
    }

    fn take(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.next()?;
        match token.kind {
            // These have no length. A colon's position is right, a dash's is that of what follows.
            TokenType::Value => self.end = token.start + 1,
            TokenType::BlockEntry => self.end = self.dash()? + 1,
            _ if token.end > token.start => self.end = token.end,
            _ => {}
        }
        Some(token)
    }

    /// Where the next dash is: after spaces and comments.
    fn dash(&self) -> Option<usize> {
        let mut rest = &self.text[self.end..];
        loop {
            rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
            match rest.bytes().next()? {
                b'#' => rest = &rest[rest.find(['\n', '\r']).unwrap_or(rest.len())..],
                b'-' => return Some(self.text.len() - rest.len()),
                _ => return None,
            }
        }
    }

    fn next_if(&mut self, wanted: impl FnOnce(&TokenType<'a>) -> bool) -> bool {
        self.peek().is_some_and(wanted) && self.take().is_some()
    }

    /// Reads a node. A value of a mapping may be a sequence that is not indented.
    fn node(&mut self, value: bool) -> Result<Node> {
        let mut start = None;
        while matches!(self.peek(), Some(TokenType::Anchor(_) | TokenType::Tag(..))) {
            start = start.or(self.take().map(|token| token.start));
        }
        let own = self.tokens.peek().map_or(self.end, |token| token.start);
        let shape = match self.peek() {
            Some(TokenType::Scalar(..)) => match self.take().map(|token| token.kind) {
                Some(TokenType::Scalar(_, text)) => Shape::Scalar(text.into_owned()),
                _ => Shape::Empty,
            },
            Some(TokenType::Alias(_)) => {
                self.take();
                Shape::Alias
            }
            Some(TokenType::BlockSequenceStart) => {
                self.take();
                let items = self.items(false)?;
                self.block_end()?;
                Shape::Sequence(items)
            }
            Some(TokenType::BlockEntry) if value => Shape::Sequence(self.items(true)?),
            Some(TokenType::BlockMappingStart) => {
                self.take();
                let mut pairs = Vec::new();
                while matches!(self.peek(), Some(TokenType::Key | TokenType::Value)) {
                    pairs.push(self.pair(true)?);
                }
                self.block_end()?;
                Shape::Mapping(pairs)
            }
            Some(TokenType::FlowSequenceStart) => self.flow_sequence()?,
            Some(TokenType::FlowMappingStart) => self.flow_mapping()?,
            _ => {
                let mut node = Node::empty(self.end);
                node.start = start.unwrap_or(node.start);
                return Ok(node);
            }
        };
        Ok(Node { start: start.unwrap_or(own), end: self.end, shape })
    }

    fn block_end(&mut self) -> Result<()> {
        if self.next_if(|token| *token == TokenType::BlockEnd) { Ok(()) } else { self.unexpected() }
    }

    fn unexpected<T>(&mut self) -> Result<T> {
        let end = self.end;
        bail!("unexpected {:?} after byte {end}", self.peek())
    }

    fn items(&mut self, indentless: bool) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        while matches!(self.peek(), Some(TokenType::BlockEntry)) {
            if self.take().is_none() {
                return self.unexpected();
            }
            let dash = self.end - 1;
            let empty = match self.peek() {
                Some(TokenType::BlockEntry | TokenType::BlockEnd) => true,
                Some(TokenType::Key | TokenType::Value) => indentless,
                _ => false,
            };
            let node = if empty { Node::empty(self.end) } else { self.node(false)? };
            items.push(Item { dash, node });
        }
        Ok(items)
    }

    fn pair(&mut self, block: bool) -> Result<Pair> {
        self.next_if(|token| *token == TokenType::Key);
        let key = match self.peek() {
            Some(TokenType::Value | TokenType::Key) => Node::empty(self.end),
            _ => self.node(false)?,
        };
        if !self.next_if(|token| *token == TokenType::Value) {
            let value = Node::empty(self.end);
            return Ok(Pair { key, colon: self.end, value });
        }
        let colon = self.end;
        let value = match self.peek() {
            Some(TokenType::Key | TokenType::Value) => Node::empty(self.end),
            _ => self.node(block)?,
        };
        Ok(Pair { key, colon, value })
    }

    fn flow_sequence(&mut self) -> Result<Shape> {
        self.take();
        let (open, mut items, mut commas) = (self.end, Vec::new(), Vec::new());
        loop {
            match self.peek() {
                Some(TokenType::FlowSequenceEnd) => {
                    self.take();
                    return Ok(Shape::FlowSequence { open, items, commas });
                }
                Some(TokenType::FlowEntry) => commas.extend(self.take().map(|token| token.start)),
                Some(_) => items.push(self.node(false)?),
                None => return self.unexpected(),
            }
            if items.len() < commas.len() || items.len() > commas.len() + 1 {
                return self.unexpected();
            }
        }
    }

    fn flow_mapping(&mut self) -> Result<Shape> {
        self.take();
        let (open, mut pairs, mut commas) = (self.end, Vec::new(), Vec::new());
        loop {
            match self.peek() {
                Some(TokenType::FlowMappingEnd) => {
                    self.take();
                    return Ok(Shape::FlowMapping { open, pairs, commas });
                }
                Some(TokenType::FlowEntry) => commas.extend(self.take().map(|token| token.start)),
                Some(_) => pairs.push(self.pair(false)?),
                None => return self.unexpected(),
            }
            if pairs.len() < commas.len() || pairs.len() > commas.len() + 1 {
                return self.unexpected();
            }
        }
    }
}
