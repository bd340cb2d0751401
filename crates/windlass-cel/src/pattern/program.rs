//! Patterns as programs: take a character, go either way, look around, be done.
//!
//! Repetitions are written out, as Go does: [`instructions`] says which patterns are too long for that. A class of
//! characters is one instruction however many characters it has, and all copies of a repetition share its ranges.

use std::collections::{BTreeMap, HashMap};

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look, Repetition};

/// No program is longer. Go refuses what would take 128 MiB at 40 bytes each; here that is 40 MiB.
const MOST_INSTRUCTIONS: u64 = (128 << 20) / 40;

/// How many instructions a pattern comes to, as Go counts them. `None` if they are too many.
pub(super) fn instructions(hir: &Hir) -> Option<u64> {
    Some(count(hir)).filter(|count| *count <= MOST_INSTRUCTIONS)
}

/// How many bytes the program for a pattern takes, classes apart, which are no more than in the pattern.
pub(super) fn size(hir: &Hir) -> usize {
    usize::try_from(count(hir)).unwrap_or(usize::MAX).saturating_mul(size_of::<Instruction>())
}

fn count(hir: &Hir) -> u64 {
    let sum = |parts: &[Hir]| parts.iter().map(count).fold(0, u64::saturating_add);
    let count = match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => 1,
        HirKind::Literal(literal) => String::from_utf8_lossy(&literal.0).chars().count() as u64,
        HirKind::Capture(capture) => count(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) => sum(parts),
        HirKind::Alternation(parts) => sum(parts).saturating_add(parts.len() as u64 - 1),
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            let (once, min) = (count(sub), u64::from(*min));
            match max.map(u64::from) {
                None if min == 0 => once.saturating_add(2),
                None => once.saturating_mul(min).saturating_add(1),
                Some(max) => once.saturating_mul(max).saturating_add(max.saturating_sub(min)),
            }
        }
    };
    count.max(1)
}

/// A pattern as a program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) instructions: Vec<Instruction>,
    pub(super) classes: Vec<Characters>,
    /// The instruction that all matches begin with.
    pub(super) first: u32,
    /// Whether matches begin only where the text does.
    pub(super) anchored: bool,
}

/// What to do in a place, and which are next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    Done,
    Character(char, u32),
    Class(u32, u32),
    Look(Look, u32),
    /// Both of them, but rather the first.
    Either(u32, u32),
}

/// The characters of a class.
#[derive(Debug)]
pub(super) struct Characters {
    /// One bit for each of ASCII.
    ascii: u128,
    ranges: Box<[(char, char)]>,
}

impl Characters {
    fn new(ranges: Box<[(char, char)]>) -> Self {
        let below = ranges.iter().take_while(|(low, _)| low.is_ascii());
        let ascii =
            below.flat_map(|(low, high)| *low..=(*high).min('\x7F')).fold(0, |bits, c| bits | 1 << u32::from(c));
        Self { ascii, ranges }
    }

    /// Whether a character is among them.
    pub(super) fn contains(&self, c: char) -> bool {
        if c.is_ascii() {
            return self.ascii >> u32::from(c) & 1 == 1;
        }
        let at = self.ranges.partition_point(|(_, high)| *high < c);
        self.ranges.get(at).is_some_and(|(low, _)| *low <= c)
    }
}

impl Program {
    /// The program for a pattern, which [`instructions`] allows.
    pub(super) fn new(hir: &Hir) -> Self {
        let mut builder = Builder::default();
        let done = builder.push(Instruction::Done);
        let first = builder.part(hir, done);
        let anchored = hir.properties().look_set_prefix().contains(Look::Start);
        Self { instructions: builder.instructions, classes: builder.classes, first, anchored }
    }
}

/// Writes programs, from their end to their beginning: what follows is known.
#[derive(Default)]
struct Builder<'h> {
    instructions: Vec<Instruction>,
    classes: Vec<Characters>,
    /// The classes by where they are in the pattern, as repetitions meet them many times.
    met: HashMap<*const ClassUnicode, u32>,
    /// The classes by what is in them.
    known: BTreeMap<&'h [ClassUnicodeRange], u32>,
}

impl<'h> Builder<'h> {
    fn push(&mut self, instruction: Instruction) -> u32 {
        self.instructions.push(instruction);
        u32::try_from(self.instructions.len() - 1).expect("invariant: programs are shorter than MOST_INSTRUCTIONS")
    }

    /// The instruction that begins a part of the pattern which is followed by `next`.
    fn part(&mut self, hir: &'h Hir, next: u32) -> u32 {
        match hir.kind() {
            HirKind::Empty => next,
            HirKind::Literal(literal) => {
                let text = String::from_utf8_lossy(&literal.0);
                text.chars().rev().fold(next, |next, c| self.push(Instruction::Character(c, next)))
            }
            HirKind::Class(Class::Unicode(class)) => {
                let class = self.class(class);
                self.push(Instruction::Class(class, next))
            }
            // A byte is a character only in ASCII.
            HirKind::Class(Class::Bytes(class)) => {
                let ascii = class.ranges().iter().filter(|range| range.start().is_ascii());
                let ranges = ascii.map(|range| (range.start().into(), range.end().min(0x7F).into())).collect();
                let class = self.add(ranges);
                self.push(Instruction::Class(class, next))
            }
            HirKind::Look(look) => self.push(Instruction::Look(*look, next)),
            HirKind::Capture(capture) => self.part(&capture.sub, next),
            HirKind::Concat(parts) => parts.iter().rev().fold(next, |next, part| self.part(part, next)),
            HirKind::Alternation(parts) => {
                let mut parts = parts.iter().rev();
                let last = parts.next().map_or(next, |last| self.part(last, next));
                parts.fold(last, |other, part| {
                    let preferred = self.part(part, next);
                    self.push(Instruction::Either(preferred, other))
                })
            }
            HirKind::Repetition(repetition) => self.repetition(repetition, next),
        }
    }

    /// A repetition as that many copies: `x{2,4}` is `xx(x(x)?)?`, `x{2,}` is `xx+`.
    fn repetition(&mut self, repetition: &'h Repetition, next: u32) -> u32 {
        let Repetition { min, max, greedy, sub } = repetition;
        let either =
            |again, next| if *greedy { Instruction::Either(again, next) } else { Instruction::Either(next, again) };
        let (mut begin, required) = if let Some(max) = max {
            let optional = (*min..*max).fold(next, |rest, _| {
                let again = self.part(sub, rest);
                self.push(either(again, next))
            });
            (optional, *min)
        } else {
            let turn = self.push(Instruction::Done);
            let again = self.part(sub, turn);
            self.instructions[turn as usize] = either(again, next);
            let solid = sub.properties().minimum_len().is_some_and(|len| len > 0);
            match min {
                0 if solid => (turn, 0),
                // `x*` is `(x+)?` where `x` may be empty: its first choice counts even if that is to be empty.
                0 => (self.push(either(again, next)), 0),
                _ => (again, min - 1),
            }
        };
        for _ in 0..required {
            begin = self.part(sub, begin);
        }
        begin
    }

    fn class(&mut self, class: &'h ClassUnicode) -> u32 {
        if let Some(met) = self.met.get(&std::ptr::from_ref(class)) {
            return *met;
        }
        let id = match self.known.get(class.ranges()) {
            Some(known) => *known,
            None => self.add(class.ranges().iter().map(|range| (range.start(), range.end())).collect()),
        };
        self.met.insert(class, id);
        self.known.insert(class.ranges(), id);
        id
    }

    fn add(&mut self, ranges: Box<[(char, char)]>) -> u32 {
        self.classes.push(Characters::new(ranges));
        u32::try_from(self.classes.len() - 1).expect("invariant: there are fewer classes than instructions")
    }
}
