//! Compiled patterns, and matching that says what it takes.
//!
//! There are two ways to match. The places of a [`Program`] are there at once and take some time for each
//! character. An [`Automaton`]
//! takes long to be built and is fast from then on, and of some patterns there is none because it would be too large.
//! So a pattern begins with its places. Once they have taken as long as the automaton takes to be built, it is: a
//! pattern that is used once never has one, and none costs more than twice what it must.
//!
//! How long matching takes is not known beforehand, so it is measured on the way, and the caller says when it is
//! too much: [`Spend`].

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use regex_syntax::hir::{Class, Hir, HirKind};

use super::automaton::Automaton;
use super::places::{Room, Steps, Stop};
use super::program::{self, Program};

/// No automaton is larger, in bytes. The `regex` crate has the same limit.
pub(super) const LARGEST: usize = 10 << 20;
/// The longest that one state may take for each place of a pattern, in nanoseconds, and the longest that one step of a
/// program may. A thread that has to wait for its core does not match meanwhile, and what it waits beyond this is not
/// counted.
pub(super) const SLOWEST: u64 = 100;
/// How many steps take as long as building a small automaton.
const STEPS: u64 = 2000;
/// How many more for each of its states.
const STEPS_FOR_STATE: u64 = 16;

/// Takes note of time that was spent. `false` if it is too much.
pub type Spend<'s> = &'s mut dyn FnMut(Duration) -> bool;

/// Why there is no telling whether a text matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// A compiled pattern.
#[derive(Debug)]
pub struct Machine {
    hir: Hir,
    /// The program, unless it is large: a definition may have hundreds of its kind and memory has no room for them all.
    /// Such a one is built for each search, at the expense of the caller.
    program: Option<Program>,
    /// How many steps were taken in places before there was an automaton.
    steps: AtomicU64,
    /// The automaton, once it is worth it; `None` if it is too large.
    automaton: OnceLock<Option<Automaton>>,
    /// In how many places of the pattern a match can be, roughly.
    states: u64,
}

impl Machine {
    /// Compiles a pattern that is not [too large](super::program::instructions).
    pub(super) fn new(hir: Hir) -> Self {
        let program = (program::size(&hir) <= LARGEST).then(|| Program::new(&hir));
        let states = count_states(&hir);
        Self { hir, program, steps: AtomicU64::new(0), automaton: OnceLock::new(), states }
    }

    /// Whether `text` contains a match.
    pub fn is_match(&self, text: &str, spend: Spend<'_>) -> Result<bool, TooLong> {
        let room = &mut Room::default();
        match self.try_places(text, 0, true, room, spend) {
            Ok(found) => return Ok(found.is_some()),
            Err(Stop::TooLong) => return Err(TooLong),
            Err(Stop::Enough) => {}
        }
        match self.automaton() {
            Some(automaton) => automaton.is_match(text, spend),
            None => self.in_places(text, 0, true, room, spend).map(|found| found.is_some()),
        }
    }

    /// The first match in `text` that does not begin before `from`.
    pub fn find(&self, text: &str, from: usize, spend: Spend<'_>) -> Result<Option<Range<usize>>, TooLong> {
        self.find_next(text, from, &mut Room::default(), spend)
    }

    /// The first so many matches, none of them within another. An empty one right after another is none.
    pub(crate) fn find_all(&self, text: &str, most: usize, spend: Spend<'_>) -> Result<Vec<Range<usize>>, TooLong> {
        let mut room = Room::default();
        all(text, most, |from| self.find_next(text, from, &mut room, spend))
    }

    fn find_next(
        &self,
        text: &str,
        from: usize,
        room: &mut Room,
        spend: Spend<'_>,
    ) -> Result<Option<Range<usize>>, TooLong> {
        match self.try_places(text, from, false, room, spend) {
            Ok(found) => return Ok(found),
            Err(Stop::TooLong) => return Err(TooLong),
            Err(Stop::Enough) => {}
        }
        match self.automaton().filter(|automaton| automaton.finds(&self.hir)) {
            Some(automaton) => automaton.find(text, from, spend),
            None => self.in_places(text, from, false, room, spend),
        }
    }

    /// Searches in places until an automaton is worth it.
    fn try_places(
        &self,
        text: &str,
        from: usize,
        earliest: bool,
        room: &mut Room,
        spend: Spend<'_>,
    ) -> Result<Option<Range<usize>>, Stop> {
        let enough = self.states.saturating_mul(STEPS_FOR_STATE).saturating_add(STEPS);
        let left = enough.saturating_sub(self.steps.load(Ordering::Relaxed));
        if left == 0 || self.automaton.get().is_some() {
            return Err(Stop::Enough);
        }
        let mut steps = Steps::new(left, spend);
        let found = self.search(text, from, earliest, room, &mut steps);
        self.steps.fetch_add(steps.taken(), Ordering::Relaxed);
        found
    }

    fn in_places(
        &self,
        text: &str,
        from: usize,
        earliest: bool,
        room: &mut Room,
        spend: Spend<'_>,
    ) -> Result<Option<Range<usize>>, TooLong> {
        self.search(text, from, earliest, room, &mut Steps::new(u64::MAX, spend)).map_err(|_| TooLong)
    }

    fn search(
        &self,
        text: &str,
        from: usize,
        earliest: bool,
        room: &mut Room,
        steps: &mut Steps<'_>,
    ) -> Result<Option<Range<usize>>, Stop> {
        if let Some(program) = &self.program {
            return program.search(text, from, earliest, room, steps);
        }
        let program = match room.program.take() {
            Some(program) => program,
            None => steps.build(|| Program::new(&self.hir))?,
        };
        let found = program.search(text, from, earliest, room, steps);
        room.program = Some(program);
        found
    }

    fn automaton(&self) -> Option<&Automaton> {
        self.automaton.get_or_init(|| Automaton::new(&self.hir, self.states)).as_ref()
    }
}

/// The first so many matches, where `find` tells the next one that does not begin before some place.
fn all(
    text: &str,
    most: usize,
    mut find: impl FnMut(usize) -> Result<Option<Range<usize>>, TooLong>,
) -> Result<Vec<Range<usize>>, TooLong> {
    let mut all: Vec<Range<usize>> = Vec::new();
    let mut from = 0;
    while all.len() < most && from <= text.len() {
        let Some(found) = find(from)? else { break };
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

    use super::super::{compile, read, translate};
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

    /// What both engines say about a text, which must be the same.
    fn agreed(pattern: &str, text: &str) -> Result<Vec<Range<usize>>, TestCaseError> {
        let hir = read(pattern).unwrap();
        let program = Program::new(&hir);
        let automaton = Automaton::new(&hir, count_states(&hir)).expect("small enough");
        assert!(automaton.finds(&hir));
        let mut room = Room::default();
        let mut search = |from, earliest| {
            let mut spend = forever;
            program.search(text, from, earliest, &mut room, &mut Steps::new(u64::MAX, &mut spend)).map_err(|_| TooLong)
        };
        prop_assert_eq!(search(0, true).map(|found| found.is_some()), automaton.is_match(text, &mut forever));
        for from in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
            prop_assert_eq!(search(from, false), automaton.find(text, from, &mut forever), "{} from {}", pattern, from);
        }
        let found = all(text, usize::MAX, |from| search(from, false));
        prop_assert_eq!(&found, &all(text, usize::MAX, |from| automaton.find(text, from, &mut forever)));
        let machine = compile(pattern).unwrap();
        prop_assert_eq!(&found, &machine.find_all(text, usize::MAX, &mut forever));
        Ok(found.unwrap())
    }

    /// Patterns with all that matters to what is found.
    fn patterns() -> impl Strategy<Value = String> {
        let parts = [
            "a",
            "b",
            "é",
            "日",
            ".",
            "(?s:.)",
            "[ab]",
            "[^a]",
            "[é-日]",
            r"\w",
            r"\W",
            r"\pL",
            r"\PL",
            "(?i:é|A)",
            "ab",
            "aé",
            r"\b",
            r"\B",
            "^",
            "$",
            "(?m:^)",
            "(?m:$)",
            r"\A",
            r"\z",
            "(?:)",
            "[^\\x00-\\x{10FFFF}]",
        ];
        let operators = ["*", "*?", "+", "+?", "?", "??", "{2}", "{0,2}", "{1,3}?", "{2,}", "{0,}?", "{0}", "{1,2}"];
        let part = proptest::sample::select(parts.to_vec()).prop_map(str::to_owned);
        part.prop_recursive(4, 16, 4, move |inner| {
            let several = proptest::collection::vec(inner.clone(), 1..4);
            prop_oneof![
                several.clone().prop_map(|parts| parts.concat()),
                several.prop_map(|parts| format!("({})", parts.join("|"))),
                inner.clone().prop_map(|part| format!("(?:|{part})")),
                (inner, proptest::sample::select(operators.to_vec()))
                    .prop_map(|(part, operator)| format!("(?:{part}){operator}")),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn both_engines_find_the_same(pattern in patterns(), text in "[abAÉé日_ \n😀]{0,10}") {
            agreed(&pattern, &text)?;
        }
    }

    #[test]
    fn what_is_preferred_is_found_by_both_engines() {
        let check = |pattern: &str, text: &str, expected: &[&str]| {
            let found: Vec<_> = agreed(pattern, text).unwrap().into_iter().map(|range| &text[range]).collect();
            assert_eq!(found, expected, "{pattern} in {text}");
        };
        check("a|ab|abc", "abc", &["a"]);
        check("abc|ab|a", "abab", &["ab", "ab"]);
        check("a+?", "aa", &["a", "a"]);
        check("a??b", "aab", &["ab"]);
        check("a{1,2}?é", "aaaé", &["aaé"]);
        check("(|a)*", "aa", &["", "", ""]);
        check("(|a)+", "aa", &["", "", ""]);
        check("(a|)*", "aab", &["aa", ""]);
        check("(a*)+?$", "baa", &["aa"]);
        check(r"\b.", "aé b", &["a", "é", "b"]);
        check(r"\B", "aéb", &[]);
        check(r"\B", "é日", &["", "", ""]);
        check("(?m)^.?$", "a\n\né", &["a", "", "é"]);
        check(r"[^\x00-\x{10FFFF}]|é", "aé", &["é"]);
    }

    /// Patterns whose automaton is too large were taken for malformed ones.
    #[test]
    fn patterns_without_automaton_are_matched() {
        let check = |pattern: &str, matching: &[&str], other: &[&str]| {
            let machine = compile(pattern).unwrap();
            assert!(machine.automaton().is_none(), "{pattern} has an automaton");
            for text in matching {
                assert_eq!(machine.is_match(text, &mut forever), Ok(true), "{pattern} in {text}");
                assert_eq!(found(&machine, text), std::slice::from_ref(&(0..text.len())), "{pattern} in {text}");
            }
            for text in other {
                assert_eq!(machine.is_match(text, &mut forever), Ok(false), "{pattern} in {text}");
                assert!(found(&machine, text).is_empty(), "{pattern} in {text}");
            }
        };
        let (full, long) = ("é".repeat(1000), "é".repeat(1001));
        check(r"^\p{L}{1,1000}$", &["abc", "日本", &full], &["", "a1", "a b", &long]);
        check(r"^[\p{L}\p{N} ._-]{1,1000}$", &["abc", "é 1_.-", &full], &["", "a/b", &long]);
        check(r"^\PC{1,1000}$", &["abc", "a b", &full], &["", "a\u{7}", &long]);
        check(r"^(\p{L}{1,255}/){1,3}$", &["abc/", "a/é/日/"], &["abc", "/", "a/b/c/d/", &format!("{full}/")]);
        check(r"^(\p{L}{1,100},){1,10}$", &["a,", "a,é,日,"], &["a", ",", &"a,".repeat(11)]);
        let ends = format!("a{}", "/é".repeat(10));
        check(r"^\p{L}{1,63}(/\p{L}{1,63}){0,10}$", &["a/b", "日", &ends], &["/", "a/", "a//b", &format!("{ends}/é")]);
    }

    /// An automaton takes milliseconds to be built for patterns of this kind, and thousands of them took minutes.
    #[test]
    fn patterns_that_are_used_once_have_no_automaton() {
        let mut spent = Duration::ZERO;
        for n in 0..1000 {
            let machine = compile(&format!(r"\pL{{{n}}}\pN{{9}}")).unwrap();
            let matches = machine.is_match("aaaa", &mut |time| {
                spent += time;
                true
            });
            assert_eq!(matches, Ok(false));
            assert!(machine.automaton.get().is_none());
        }
        assert!(spent < Duration::from_millis(100), "{spent:?}");
    }

    #[test]
    fn large_programs_are_not_kept() {
        let machine = compile(&"(x?y?){1000}".repeat(400)).unwrap();
        assert!(machine.program.is_none());
        let mut spent = Duration::ZERO;
        let mut spend = |time| {
            spent += time;
            true
        };
        assert_eq!(machine.find_all("éxy", 3, &mut spend), Ok(vec![0..0, 2..4]));
        assert!(spent > Duration::ZERO);
        assert_eq!(machine.is_match("x", &mut |_| false), Err(TooLong));
    }

    #[test]
    fn patterns_that_are_used_often_have_an_automaton() {
        let machine = compile("^(a|b)+$").unwrap();
        assert!(machine.is_match("abab", &mut forever).unwrap() && machine.automaton.get().is_none());
        assert_eq!(machine.is_match(&"ab".repeat(10_000), &mut forever), Ok(true));
        assert!(machine.automaton.get().is_some());
        assert_eq!(machine.find("ab\n", 0, &mut forever), Ok(None));
        assert_eq!(machine.find("ab", 0, &mut forever), Ok(Some(0..2)));
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
    fn the_caller_ends_what_takes_long() {
        // Whether the letter so far back is an `a` is something to remember for each of them.
        let machine = compile("a[ab]{900}c").unwrap();
        let mut seed = 1_u32;
        let text: String = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if seed >> 31 == 0 { 'a' } else { 'b' }
        })
        .take(1_000_000)
        .collect();
        let gives_up = |machine: &Machine| {
            let mut left = Duration::from_millis(100);
            let mut spend = |time| {
                let rest = left.checked_sub(time);
                left = rest.unwrap_or(left);
                rest.is_some()
            };
            assert_eq!(machine.is_match(&text, &mut spend), Err(TooLong));
            assert_eq!(machine.find(&text, 0, &mut spend), Err(TooLong));
            assert_eq!(machine.is_match("b", &mut |_| false), Err(TooLong));
        };
        gives_up(&machine);
        let machine = compile(r"\pL[\pL\pN]{999}1").unwrap();
        assert!(machine.automaton().is_none());
        gives_up(&machine);
    }

    #[test]
    fn an_empty_match_within_a_character_ends_nothing() {
        agreed(r"\xe9b|\B", "a\u{e9}b").unwrap();
        agreed("\u{e9}b|\\B", "a\u{e9}b").unwrap();
    }
}
