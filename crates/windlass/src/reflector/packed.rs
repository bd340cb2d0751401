//! Bytes of objects, kept as what is different in another object of the kind.
//!
//! The pods of a Deployment differ in a few names, addresses and times. A [`Packer`] writes an object as copies of parts
//! of a *base*, an object that was packed before, and the bytes between them. The base stays in memory for as long as an
//! object is packed with it.
//!
//! The difference is a sequence of steps: the number of bytes that follow as they are, these bytes, the number of bytes to
//! copy, and where they begin in the base. Numbers are variable-length (LEB128). The last step has no copy.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that are compared at once: shorter parts in common are not looked for.
const WINDOW: usize = 8;
/// Shorter objects are not worth the effort.
const SHORTEST: usize = 256;
/// Longer objects are not packed: the index has places of 16 bits.
const LONGEST: usize = u16::MAX as usize;
/// Objects of how many shapes are packed well at the same time: a pod changes its shape when it is bound and when it runs.
const BASES: usize = 4;
/// How many times shorter an object has to become. A base that does worse is of another shape.
const GAIN: usize = 3;
/// How many objects are kept as they are, at most, before another base is tried.
const LONGEST_WAIT: u32 = 1024;

/// What is kept of an object besides the decoded one.
pub(super) enum Kept {
    /// Nothing: it stays decoded.
    Nothing,
    Bytes(Box<[u8]>),
    Packed(Packed),
}

impl Kept {
    pub(super) fn new(bytes: Option<Box<[u8]>>) -> Self {
        bytes.map_or(Self::Nothing, Self::Bytes)
    }

    /// The bytes, if they are kept.
    pub(super) fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Nothing => None,
            Self::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
            Self::Packed(packed) => Some(Cow::Owned(packed.unpack())),
        }
    }

    pub(super) fn has_bytes(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// Makes it small, if it can be.
    pub(super) fn pack(&mut self, packer: &mut Packer) {
        if let Self::Bytes(bytes) = self {
            *self = packer.pack(std::mem::take(bytes)).map_or_else(Self::Bytes, Self::Packed);
        }
    }
}

/// An object's bytes, packed.
pub(super) struct Packed {
    base: Arc<Box<[u8]>>,
    difference: Box<[u8]>,
}

impl Packed {
    /// The bytes that were packed.
    pub(super) fn unpack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.base.len() + self.difference.len());
        let mut rest = &*self.difference;
        while !rest.is_empty() {
            let literal = take_number(&mut rest);
            let (literal, after) = rest.split_at(literal);
            bytes.extend_from_slice(literal);
            rest = after;
            let length = take_number(&mut rest);
            if length > 0 {
                let begin = take_number(&mut rest);
                bytes.extend_from_slice(&self.base[begin..begin + length]);
            }
        }
        bytes
    }
}

/// Packs objects of one kind. See the [module documentation](self).
#[derive(Default)]
pub(super) struct Packer {
    /// The one that was of use last is the first.
    bases: VecDeque<Base>,
    /// How many more objects are kept as they are before there is another base.
    wait: u32,
    /// How many objects became bases since one could be packed.
    failures: u32,
}

impl Packer {
    /// Packs an object; gives it back if that would not be worth it.
    pub(super) fn pack(&mut self, bytes: Box<[u8]>) -> Result<Packed, Box<[u8]>> {
        if !(SHORTEST..=LONGEST).contains(&bytes.len()) {
            return Err(bytes);
        }
        let most = bytes.len() / GAIN;
        for number in 0..self.bases.len() {
            if let Some(difference) = self.bases[number].difference(&bytes, most) {
                self.failures = 0;
                let base = Arc::clone(&self.bases[number].bytes);
                self.bases.swap(0, number);
                return Ok(Packed { base, difference });
            }
        }
        if self.wait > 0 {
            self.wait -= 1;
            return Err(bytes);
        }
        // Objects that have nothing in common are not all made bases, which would only take more time and memory.
        let doublings = self.failures.saturating_sub(BASES as u32);
        self.wait = 1_u32.checked_shl(doublings).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT) - 1;
        self.failures += 1;
        let base = Base::new(bytes);
        let itself = Packed { base: Arc::clone(&base.bytes), difference: whole(base.bytes.len()) };
        self.bases.truncate(BASES - 1);
        self.bases.push_front(base);
        Ok(itself)
    }
}

/// A base, and where its parts are.
struct Base {
    bytes: Arc<Box<[u8]>>,
    /// By the hash of the bytes of a window, where it begins plus one; 0 where there is none.
    places: Box<[u16]>,
}

impl Base {
    const PLACES: usize = 1 << 12;

    fn new(bytes: Box<[u8]>) -> Self {
        let mut places = vec![0; Self::PLACES].into_boxed_slice();
        for (begin, window) in bytes.windows(WINDOW).enumerate().rev() {
            places[Self::slot(window)] = u16::try_from(begin + 1).unwrap_or_default();
        }
        Self { bytes: Arc::new(bytes), places }
    }

    fn slot(window: &[u8]) -> usize {
        let word = window.try_into().map_or(0, u64::from_le_bytes);
        // Multiplicative hashing: the highest bits depend on all of the word.
        (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - Self::PLACES.trailing_zeros())) as usize
    }

    /// Where a window begins in the base. After a copy, what follows it in the base is the best guess: values of one
    /// length, such as uids and times, leave all that comes after them in its place.
    fn find(&self, window: &[u8], guess: usize) -> Option<usize> {
        let is_here = |begin: usize| self.bytes.get(begin..begin + WINDOW) == Some(window);
        if is_here(guess) {
            return Some(guess);
        }
        let begin = usize::from(self.places[Self::slot(window)]).checked_sub(1)?;
        is_here(begin).then_some(begin)
    }

    /// How an object differs, if that takes no more than `most` bytes.
    fn difference(&self, object: &[u8], most: usize) -> Option<Box<[u8]>> {
        let mut difference = Vec::with_capacity(most);
        // What is before `literal` is written; what is before `at` is in no copy.
        let (mut literal, mut at, mut guess) = (0, 0, 0);
        while let Some(window) = object.get(at..at + WINDOW) {
            let Some(mut begin) = self.find(window, guess) else {
                (at, guess) = (at + 1, guess + 1);
                if difference.len() + at - literal > most {
                    return None;
                }
                continue;
            };
            while at > literal && begin > 0 && object[at - 1] == self.bytes[begin - 1] {
                (at, begin) = (at - 1, begin - 1);
            }
            let same = object[at..].iter().zip(&self.bytes[begin..]).take_while(|(one, other)| one == other);
            let length = same.count();
            put_number(&mut difference, at - literal);
            difference.extend_from_slice(&object[literal..at]);
            put_number(&mut difference, length);
            put_number(&mut difference, begin);
            (at, guess) = (at + length, begin + length);
            literal = at;
        }
        put_number(&mut difference, object.len() - literal);
        difference.extend_from_slice(&object[literal..]);
        put_number(&mut difference, 0);
        (difference.len() <= most).then(|| difference.into_boxed_slice())
    }
}

/// The difference of a base from itself.
fn whole(length: usize) -> Box<[u8]> {
    let mut difference = vec![0];
    put_number(&mut difference, length);
    put_number(&mut difference, 0);
    difference.into_boxed_slice()
}

fn put_number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push((number & 0x7f) as u8);
}

fn take_number(bytes: &mut &[u8]) -> usize {
    let (mut number, mut shift) = (0, 0);
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
        shift += 7;
    }
    number
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// An object of a shape: objects of one shape differ in a few values.
    fn object(shape: usize, number: usize) -> Box<[u8]> {
        let field = |field: usize| format!(r#""{shape}-field-{field}":{},"#, shape * 7919 + field);
        let fields = (0..40).map(field).collect::<Vec<_>>().concat();
        format!(r#"{{"name":"web-{number}",{fields}"uid":"{:032x}","last":{number}}}"#, number * 7919)
            .into_bytes()
            .into()
    }

    /// `bytes` of text in which nothing repeats.
    fn noise(seed: u64, bytes: usize) -> Box<[u8]> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..bytes).map(|_| random.u8(..)).collect()
    }

    #[test]
    fn packed_objects_come_back_and_are_small() {
        let mut packer = Packer::default();
        for number in 0..100 {
            let bytes = object(number % BASES, number * 37);
            let packed = packer.pack(bytes.clone()).map_err(|_| number).unwrap();
            assert_eq!(packed.unpack(), &*bytes, "{number}");
            assert!(packed.difference.len() < 100, "{number}: {}", packed.difference.len());
        }
    }

    #[test]
    fn any_two_objects_can_be_packed_with_each_other() {
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..500 {
            let mut pieces: Vec<Box<[u8]>> =
                (0..random.usize(1..20)).map(|seed| noise(seed as u64, random.usize(1..200))).collect();
            let base = Base::new(pieces.concat().into());
            random.shuffle(&mut pieces);
            pieces.truncate(random.usize(0..20));
            let object = pieces.concat();
            let difference = base.difference(&object, 10_000).unwrap();
            let packed = Packed { base: Arc::clone(&base.bytes), difference };
            assert_eq!(packed.unpack(), object, "round {round}");
        }
    }

    #[test]
    fn objects_with_nothing_in_common_are_rarely_bases() {
        let mut packer = Packer::default();
        let kept = (0..3000).filter(|seed| packer.pack(noise(*seed, 400)).is_err()).count();
        assert!(kept > 2950, "{kept}");
        assert_eq!(packer.bases.len(), BASES);
        // Those that have find each other all the same.
        let packed = (0..3000).filter(|number| packer.pack(object(1, *number)).is_ok()).count();
        assert!(packed > 1900, "{packed}");
    }

    #[test]
    fn bases_are_dropped_with_the_last_object() {
        let mut packer = Packer::default();
        let first = packer.pack(object(0, 0)).ok().unwrap();
        let base = Arc::downgrade(&first.base);
        for shape in 1..=BASES {
            packer.wait = 0;
            packer.pack(object(shape, 0)).ok().unwrap();
        }
        let second = Packed { base: Arc::clone(&first.base), difference: whole(first.base.len()) };
        drop(first);
        assert_eq!(second.unpack(), &*object(0, 0));
        drop(second);
        assert!(base.upgrade().is_none());
    }

    #[test]
    fn sizes_out_of_bounds_are_left_alone() {
        let mut packer = Packer::default();
        for length in [0, SHORTEST - 1, LONGEST + 1] {
            assert_eq!(packer.pack(vec![b'a'; length].into()).err().unwrap().len(), length);
        }
        for length in [SHORTEST, LONGEST] {
            let bytes = vec![b'a'; length];
            assert_eq!(packer.pack(bytes.clone().into()).ok().unwrap().unpack(), bytes);
        }
    }
}
