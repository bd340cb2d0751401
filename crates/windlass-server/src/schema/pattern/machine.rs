//! Compiled patterns, and matching that says what it takes.
//!
//! A pattern becomes a lazy DFA: its states are worked out as texts need them, and are kept. A byte of text whose
//! state is known takes nanoseconds, whatever the pattern. One whose state is not takes time in proportion to the
//! number of places in the pattern where a match can be, and with some patterns there is a text that always needs
//! another state. Nobody can tell beforehand, so what matching takes is measured on the way, and whoever asks says
//! when it is too much: [`Spend`].

use std::ops::Range;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use regex_automata::hybrid::dfa::{self, Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::hir::{Class, Hir, HirKind};

/// No compiled pattern is larger, in bytes. The `regex` crate has the same limit.
const LARGEST: usize = 10 << 20;
/// What the states of one pattern take at most, in bytes, unless a few of them take more.
const CACHE: usize = 2 << 20;
/// The longest that one state may take for each place of a pattern, in nanoseconds. A thread that has to wait for its
/// core does not match meanwhile, and what it waits beyond this is not counted.
const SLOWEST: u64 = 100;

/// Takes note of time that was spent. `false` if it is too much.
pub type Spend<'s> = &'s mut dyn FnMut(Duration) -> bool;

/// Why there is no telling whether a text matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// A compiled pattern, and how much work it is to match.
#[derive(Debug)]
pub struct Machine {
    forward: Searcher,
    /// Finds where a match begins that is known to end somewhere.
    reverse: OnceLock<Option<Searcher>>,
    hir: Hir,
    /// In how many places of the pattern a match can be, roughly. Each character of a text takes time in proportion
    /// at worst.
    states: u64,
}

impl Machine {
    /// Compiles a pattern; fails if it is too large.
    pub(super) fn new(hir: Hir) -> Result<Self, String> {
        let states = count_states(&hir);
        Ok(Self { forward: Searcher::new(&hir, false)?, reverse: OnceLock::new(), hir, states })
    }

    /// Whether `text` contains a match.
    pub fn is_match(&self, text: &str, spend: Spend<'_>) -> Result<bool, TooLong> {
        self.end(text, 0, true, spend).map(|end| end.is_some())
    }

    /// The first match in `text` that does not begin before `from`.
    pub fn find(&self, text: &str, from: usize, spend: Spend<'_>) -> Result<Option<Range<usize>>, TooLong> {
        let Some(end) = self.end(text, from, false, spend)? else { return Ok(None) };
        let reverse = self.reverse.get_or_init(|| Searcher::new(&self.hir, true).ok());
        let start = reverse.as_ref().ok_or(TooLong)?.backward(text, from..end, self.stride(), spend)?;
        Ok(start.map(|start| start..end))
    }

    /// The first so many matches, none of them within another. An empty one right after another is none.
    pub fn find_all(&self, text: &str, most: usize, spend: Spend<'_>) -> Result<Vec<Range<usize>>, TooLong> {
        let mut all: Vec<Range<usize>> = Vec::new();
        let mut from = 0;
        while all.len() < most && from <= text.len() {
            let Some(found) = self.find(text, from, spend)? else { break };
            from = if found.is_empty() {
                found.end + text[found.end..].chars().next().map_or(1, char::len_utf8)
            } else {
                found.end
            };
            if !(found.is_empty() && all.last().is_some_and(|last| last.end == found.end)) {
                all.push(found);
            }
        }
        Ok(all)
    }

    /// Where the first match ends that does not begin before `from`, or as soon as it is one.
    fn end(&self, text: &str, mut from: usize, earliest: bool, spend: Spend<'_>) -> Result<Option<usize>, TooLong> {
        while from <= text.len() {
            match self.forward.forward(text, from, earliest, self.stride(), spend)? {
                // Nothing at all matches between the bytes of a character, which is no place to Go.
                Some(end) if !text.is_char_boundary(end) => from = end + 1,
                end => return Ok(end),
            }
        }
        Ok(None)
    }

    fn stride(&self) -> Stride {
        let bytes = usize::try_from(1_000_000 / self.states.max(1)).unwrap_or(usize::MAX).clamp(16, 4096);
        Stride { bytes, slowest: Duration::from_nanos(self.states.saturating_mul(SLOWEST)) }
    }
}

/// How far to go before looking at the clock, and what one byte takes at most.
#[derive(Clone, Copy)]
struct Stride {
    bytes: usize,
    slowest: Duration,
}

impl Stride {
    /// Accounts for so many bytes.
    fn done(self, bytes: usize, since: Instant, spend: Spend<'_>) -> Result<(), TooLong> {
        let most = self.slowest.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        if spend(since.elapsed().min(most)) { Ok(()) } else { Err(TooLong) }
    }
}

/// A lazy DFA with the states that it came to know: as many sets of them as there were threads at once.
#[derive(Debug)]
struct Searcher {
    dfa: DFA,
    caches: Mutex<Vec<Cache>>,
}

impl Searcher {
    fn new(hir: &Hir, reverse: bool) -> Result<Self, String> {
        let thompson = thompson::Config::new()
            .utf8(false)
            .reverse(reverse)
            .nfa_size_limit(Some(LARGEST))
            .which_captures(WhichCaptures::None);
        let nfa =
            thompson::Compiler::new().configure(thompson).build_from_hir(hir).map_err(|error| error.to_string())?;
        let kind = if reverse { MatchKind::All } else { MatchKind::LeftmostFirst };
        let lazy = DFA::config().match_kind(kind).cache_capacity(CACHE).skip_cache_capacity_check(true);
        let dfa = dfa::Builder::new().configure(lazy).build_from_nfa(nfa);
        let dfa = dfa.map_err(|error| error.to_string())?;
        Ok(Self { dfa, caches: Mutex::new(Vec::new()) })
    }

    fn with_cache<T>(&self, search: impl FnOnce(&mut Cache) -> T) -> T {
        let known = self.caches.lock().pop();
        let mut cache = known.unwrap_or_else(|| self.dfa.create_cache());
        let found = search(&mut cache);
        self.caches.lock().push(cache);
        found
    }

    /// Where the first match from `from` on ends. Matches are seen one byte after they end.
    fn forward(
        &self,
        text: &str,
        from: usize,
        earliest: bool,
        stride: Stride,
        spend: Spend<'_>,
    ) -> Result<Option<usize>, TooLong> {
        self.with_cache(|cache| {
            let input = Input::new(text).range(from..);
            let mut state = self.dfa.start_state_forward(cache, &input).map_err(|_| TooLong)?;
            let (mut at, mut end) = (from, None);
            for bytes in text.as_bytes()[from..].chunks(stride.bytes) {
                let since = Instant::now();
                for byte in bytes {
                    state = self.dfa.next_state(cache, state, *byte).map_err(|_| TooLong)?;
                    if state.is_match() {
                        end = Some(at);
                    }
                    if state.is_dead() || (earliest && end.is_some()) {
                        return stride.done(bytes.len(), since, spend).map(|()| end);
                    }
                    at += 1;
                }
                stride.done(bytes.len(), since, spend)?;
            }
            state = self.dfa.next_eoi_state(cache, state).map_err(|_| TooLong)?;
            Ok(if state.is_match() { Some(at) } else { end })
        })
    }

    /// Where the longest match begins that ends where `span` does.
    fn backward(
        &self,
        text: &str,
        span: Range<usize>,
        stride: Stride,
        spend: Spend<'_>,
    ) -> Result<Option<usize>, TooLong> {
        self.with_cache(|cache| {
            let input = Input::new(text).range(span.clone()).anchored(Anchored::Yes);
            let mut state = self.dfa.start_state_reverse(cache, &input).map_err(|_| TooLong)?;
            let (mut at, mut start) = (span.end, None);
            for bytes in text.as_bytes()[span.clone()].rchunks(stride.bytes) {
                let since = Instant::now();
                for byte in bytes.iter().rev() {
                    state = self.dfa.next_state(cache, state, *byte).map_err(|_| TooLong)?;
                    if state.is_match() {
                        start = Some(at);
                    }
                    if state.is_dead() {
                        return stride.done(bytes.len(), since, spend).map(|()| start);
                    }
                    at -= 1;
                }
                stride.done(bytes.len(), since, spend)?;
            }
            state = match span.start.checked_sub(1) {
                Some(before) => self.dfa.next_state(cache, state, text.as_bytes()[before]),
                None => self.dfa.next_eoi_state(cache, state),
            }
            .map_err(|_| TooLong)?;
            Ok(if state.is_match() { Some(at) } else { start })
        })
    }
}

/// In how many places of a pattern a match can be, roughly.
pub(super) fn count_states(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        // Characters of several bytes are matched byte by byte.
        HirKind::Class(Class::Unicode(class)) if class.is_ascii() => 1,
        HirKind::Class(Class::Unicode(class)) => 4 + class.ranges().len() as u64,
        HirKind::Capture(capture) => count_states(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(1, |sum: u64, part| sum.saturating_add(count_states(part)))
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            count_states(&repetition.sub).saturating_add(1).saturating_mul(times.into())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::super::{compile, translate};
    use super::*;

    fn forever(_: Duration) -> bool {
        true
    }

    fn found(machine: &Machine, text: &str) -> Vec<Range<usize>> {
        machine.find_all(text, usize::MAX, &mut forever).unwrap()
    }

    #[test]
    fn matches_are_found_where_they_are() {
        let check = |pattern: &str, text: &str, expected: &[&str]| {
            let machine = compile(pattern).unwrap();
            let found: Vec<_> = found(&machine, text).into_iter().map(|range| &text[range]).collect();
            assert_eq!(found, expected, "{pattern} in {text}");
            assert_eq!(machine.is_match(text, &mut forever), Ok(!expected.is_empty()));
        };
        check("a+", "aabaa", &["aa", "aa"]);
        check("a|ab", "abab", &["a", "a"]);
        check("a*", "baac", &["", "aa", ""]);
        check("", "é日", &["", "", ""]);
        check(r"\b", "aé b", &["", "", "", ""]);
        check(r"\B", "aéb", &[]);
        check(r"\Bé", "é", &["é"]);
        check("(?m)^.", "a\nb", &["a", "b"]);
        check("^a", "aa", &["a"]);
        check("[^b]$", "aé", &["é"]);
    }

    proptest! {
        #[test]
        fn matches_are_those_of_another_engine(
            pattern in "(\\^|\\\\b)?([abé.]|[ab]\\?|\\(a\\|b\\[\\^a\\]\\*\\)|é\\+|b\\{1,2\\}){1,4}(\\||\\$)?",
            text in "[abé\\n ]{0,12}",
        ) {
            let machine = compile(&pattern).unwrap();
            let regex = regex::Regex::new(&translate(&pattern).unwrap()).unwrap();
            let expected: Vec<_> = regex.find_iter(&text).map(|found| found.range()).collect();
            prop_assert_eq!(machine.is_match(&text, &mut forever), Ok(!expected.is_empty()));
            prop_assert_eq!(found(&machine, &text), expected);
        }
    }

    /// Texts that are not hostile are matched at the same speed by all patterns.
    #[test]
    fn only_what_matching_takes_is_counted() {
        let machine = compile("^.{0,1000}$").unwrap();
        let texts: Vec<_> = (0..200).map(|n| format!("{n:01000}")).collect();
        let mut spent = Duration::ZERO;
        let all = texts.iter().all(|text| {
            machine.is_match(text, &mut |time| {
                spent += time;
                true
            }) == Ok(true)
        });
        assert!(all && spent < Duration::from_secs(1), "{spent:?}");
    }

    #[test]
    fn whoever_asks_ends_what_takes_long() {
        // Whether the letter so far back is an `a` is something to remember for each of them.
        let machine = compile("a[ab]{900}c").unwrap();
        let mut seed = 1_u32;
        let text: String = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if seed >> 31 == 0 { 'a' } else { 'b' }
        })
        .take(1_000_000)
        .collect();
        let mut left = Duration::from_millis(100);
        let mut spend = |time| match left.checked_sub(time) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        };
        assert_eq!(machine.is_match(&text, &mut spend), Err(TooLong));
        assert_eq!(machine.find(&text, 0, &mut spend), Err(TooLong));
        assert_eq!(machine.is_match("b", &mut |_| false), Err(TooLong));
    }
}
