//! Matching by a lazy DFA.
//!
//! Its states are worked out as texts need them, and are kept. A byte of text whose state is known takes nanoseconds,
//! whatever the pattern. One whose state is not takes time in proportion to the number of places in the pattern where
//! a match can be, and with some patterns there is a text that always needs another state.

use std::ops::Range;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use regex_automata::hybrid::dfa::{self, Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::hir::Hir;

use super::machine::{LARGEST, SLOWEST, Spend, TooLong};

/// What the states of one pattern take at most, in bytes, unless a few of them take more.
const CACHE: usize = 2 << 20;

/// A pattern as an automaton that reads bytes.
#[derive(Debug)]
pub(super) struct Automaton {
    forward: Searcher,
    /// Finds where a match begins that is known to end somewhere.
    reverse: OnceLock<Option<Searcher>>,
    stride: Stride,
}

impl Automaton {
    /// The automaton of a pattern with so many states; `None` if it is too large.
    pub(super) fn new(hir: &Hir, states: u64) -> Option<Self> {
        let forward = Searcher::new(hir, false)?;
        Some(Self { forward, reverse: OnceLock::new(), stride: Stride::new(states) })
    }

    /// Whether `text` contains a match.
    pub(super) fn is_match(&self, text: &str, spend: Spend<'_>) -> Result<bool, TooLong> {
        self.end(text, 0, true, spend).map(|end| end.is_some())
    }

    /// Whether this can say where a match begins; `hir` is the pattern.
    pub(super) fn finds(&self, hir: &Hir) -> bool {
        self.reverse.get_or_init(|| Searcher::new(hir, true)).is_some()
    }

    /// The first match in `text` that does not begin before `from`, if this [finds](Self::finds) any.
    pub(super) fn find(&self, text: &str, from: usize, spend: Spend<'_>) -> Result<Option<Range<usize>>, TooLong> {
        let Some(end) = self.end(text, from, false, spend)? else { return Ok(None) };
        let Some(Some(reverse)) = self.reverse.get() else { return Err(TooLong) };
        let start = reverse.backward(text, from..end, self.stride, spend)?;
        Ok(start.map(|start| start..end))
    }

    /// Where the first match ends that does not begin before `from`, or as soon as it is one.
    fn end(&self, text: &str, mut from: usize, earliest: bool, spend: Spend<'_>) -> Result<Option<usize>, TooLong> {
        while from <= text.len() {
            match self.forward.forward(text, from, earliest, self.stride, spend)? {
                // Nothing at all matches between the bytes of a character, which is no place to Go.
                Some(end) if !text.is_char_boundary(end) => from = end + 1,
                end => return Ok(end),
            }
        }
        Ok(None)
    }
}

/// How far to go before looking at the clock, and what one byte takes at most.
#[derive(Clone, Copy, Debug)]
struct Stride {
    bytes: usize,
    slowest: Duration,
}

impl Stride {
    fn new(states: u64) -> Self {
        let bytes = usize::try_from(1_000_000 / states.max(1)).unwrap_or(usize::MAX).clamp(16, 4096);
        Self { bytes, slowest: Duration::from_nanos(states.saturating_mul(SLOWEST)) }
    }

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
    fn new(hir: &Hir, reverse: bool) -> Option<Self> {
        let thompson = thompson::Config::new()
            .utf8(false)
            .reverse(reverse)
            .nfa_size_limit(Some(LARGEST))
            .which_captures(WhichCaptures::None);
        let nfa = thompson::Compiler::new().configure(thompson).build_from_hir(hir).ok()?;
        let kind = if reverse { MatchKind::All } else { MatchKind::LeftmostFirst };
        let lazy = DFA::config().match_kind(kind).cache_capacity(CACHE).skip_cache_capacity_check(true);
        let dfa = dfa::Builder::new().configure(lazy).build_from_nfa(nfa).ok()?;
        Some(Self { dfa, caches: Mutex::new(Vec::new()) })
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
                    // One between the bytes of a character is none, and another may be under way.
                    if state.is_dead() || (earliest && end.is_some_and(|end| text.is_char_boundary(end))) {
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
