//! Matching by the places of a pattern that a match may have come to, as Go matches.
//!
//! The text is read once, character by character, with all places of the [`Program`] at once where a match may be,
//! those first that are preferred. Each knows where its match begins. A character takes time in proportion to the
//! places that are in use, and never more than the program is long, so there is no text that takes forever.
//!
//! Programs are small and quickly built where an automaton of bytes has hundreds of states for each letter. In exchange
//! every character takes longer.

use std::ops::Range;
use std::time::{Duration, Instant};

use regex_syntax::hir::Look;

use super::machine::{SLOWEST, Spend};
use super::program::{Instruction, Program};

/// How many steps there are between two looks at the clock.
const STRIDE: u64 = 4096;

impl Program {
    /// The first match that does not begin before `from`, or just where one can end as soon as that is known. `from` is
    /// where a character begins.
    pub(super) fn search(
        &self,
        text: &str,
        from: usize,
        earliest: bool,
        room: &mut Room,
        steps: &mut Steps<'_>,
    ) -> Result<Option<Range<usize>>, Stop> {
        room.fit(self);
        let mut found = None;
        let mut rest = text[from..].chars();
        loop {
            let at = text.len() - rest.as_str().len();
            if found.is_none() && (at == 0 || !self.anchored) {
                self.enter(text, at, Place { at: self.first, start: at }, room);
            }
            if room.places.is_empty() && (found.is_some() || self.anchored) {
                break;
            }
            let next = rest.next();
            let after = text.len() - rest.as_str().len();
            if let Some(start) = self.step(text, next, after, room) {
                found = Some(start..at);
                if earliest {
                    break;
                }
            }
            if next.is_none() {
                break;
            }
            steps.took(std::mem::take(&mut room.steps))?;
        }
        steps.took(std::mem::take(&mut room.steps))?;
        steps.end()?;
        Ok(found)
    }

    /// Goes on from all places by one character, to where it ends. Says where the match begins that is complete before
    /// it, if there is one: with it, all that is preferred less comes to an end.
    fn step(&self, text: &str, c: Option<char>, after: usize, room: &mut Room) -> Option<usize> {
        let mut places = room.turn();
        let mut complete = None;
        room.steps += places.len() as u64;
        for Place { at, start } in places.drain(..) {
            let next = match self.instructions[at as usize] {
                Instruction::Done => {
                    complete = Some(start);
                    break;
                }
                Instruction::Character(wanted, next) if c == Some(wanted) => next,
                Instruction::Class(class, next) if c.is_some_and(|c| self.is_in(class, c, room)) => next,
                _ => continue,
            };
            self.enter(text, after, Place { at: next, start }, room);
        }
        room.spare = places;
        complete
    }

    /// Whether a character is in a class, which is looked up once for all places.
    fn is_in(&self, class: u32, c: char, room: &mut Room) -> bool {
        let (turn, known) = &mut room.classes[class as usize];
        if *turn != room.turn {
            *turn = room.turn;
            *known = self.classes[class as usize].contains(c);
        }
        *known
    }

    /// Adds a place before the byte `at`, and all that are reached from it without a character. Those that are there
    /// already are preferred.
    fn enter(&self, text: &str, at: usize, place: Place, room: &mut Room) {
        room.ahead.push(place.at);
        while let Some(ahead) = room.ahead.pop() {
            room.steps += 1;
            let seen = &mut room.seen[ahead as usize];
            if *seen == room.turn {
                continue;
            }
            *seen = room.turn;
            match self.instructions[ahead as usize] {
                Instruction::Either(preferred, other) => room.ahead.extend([other, preferred]),
                Instruction::Look(look, next) if holds(look, text.as_bytes(), at) => room.ahead.push(next),
                Instruction::Look(..) => {}
                _ => room.places.push(Place { at: ahead, start: place.start }),
            }
        }
    }
}

/// Whether something is true of the place before the byte `at`.
fn holds(look: Look, text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| text[before]);
    let after = text.get(at).copied();
    let is_word = |byte: Option<u8>| byte.is_some_and(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    match look {
        Look::Start => before.is_none(),
        Look::End => after.is_none(),
        Look::StartLF => before.is_none_or(|byte| byte == b'\n'),
        Look::EndLF => after.is_none_or(|byte| byte == b'\n'),
        Look::WordAscii => is_word(before) != is_word(after),
        Look::WordAsciiNegate => is_word(before) == is_word(after),
        // Go has no others.
        _ => false,
    }
}

/// An instruction that a match has come to, and where in the text that match begins.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u32,
    start: usize,
}

/// What a search keeps on its way. One after another may use the same.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Where matches are, those first that are preferred.
    places: Vec<Place>,
    /// Places of before, for their memory.
    spare: Vec<Place>,
    /// Instructions still to be entered.
    ahead: Vec<u32>,
    /// Each position in a text is a turn of its own.
    turn: u32,
    /// The turn in which an instruction was entered last.
    seen: Vec<u32>,
    /// The turn in which a class was last asked for, and what it said.
    classes: Vec<(u32, bool)>,
    /// What was done since that was last asked.
    steps: u64,
    /// A program that is not kept elsewhere.
    pub(super) program: Option<Program>,
}

impl Room {
    /// Makes this room for a search with a program.
    fn fit(&mut self, program: &Program) {
        self.seen.resize(program.instructions.len(), 0);
        self.classes.resize(program.classes.len(), (0, false));
        self.ahead.clear();
        let mut places = self.turn();
        places.clear();
        self.spare = places;
    }

    /// Begins the next turn, and gives away the places of this one.
    fn turn(&mut self) -> Vec<Place> {
        if self.turn == u32::MAX {
            self.turn = 0;
            self.seen.fill(0);
            self.classes.fill((0, false));
        }
        self.turn += 1;
        std::mem::replace(&mut self.places, std::mem::take(&mut self.spare))
    }
}

/// Why a search came to no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The caller does not want to wait longer.
    TooLong,
    /// It took all steps that it was given.
    Enough,
}

/// How many steps a search takes, and who is told about the time.
pub(super) struct Steps<'s> {
    /// The steps since the last look at the clock.
    recent: u64,
    since: Instant,
    taken: u64,
    most: u64,
    spend: Spend<'s>,
}

impl<'s> Steps<'s> {
    pub(super) fn new(most: u64, spend: Spend<'s>) -> Self {
        Self { recent: 0, since: Instant::now(), taken: 0, most, spend }
    }

    /// Builds something, which takes as long as it takes.
    pub(super) fn build<T>(&mut self, build: impl FnOnce() -> T) -> Result<T, Stop> {
        let built = build();
        let now = Instant::now();
        let time = now.duration_since(std::mem::replace(&mut self.since, now));
        if (self.spend)(time) { Ok(built) } else { Err(Stop::TooLong) }
    }

    /// All steps until now.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    fn took(&mut self, steps: u64) -> Result<(), Stop> {
        self.taken += steps;
        self.recent += steps;
        if self.recent >= STRIDE {
            self.end()?;
        }
        if self.taken > self.most {
            self.end()?;
            return Err(Stop::Enough);
        }
        Ok(())
    }

    /// Accounts for the steps since the last look at the clock.
    fn end(&mut self) -> Result<(), Stop> {
        let most = Duration::from_nanos(std::mem::take(&mut self.recent).saturating_mul(SLOWEST));
        let now = Instant::now();
        let time = now.duration_since(std::mem::replace(&mut self.since, now));
        if (self.spend)(time.min(most)) { Ok(()) } else { Err(Stop::TooLong) }
    }
}
