//! Shuffle sharding: the few queues that the requests of a flow are put into.
//!
//! A flow is dealt a hand of queues out of the deck, by its hash alone. Two flows rarely get the same hand, so a flow
//! that fills all of its queues leaves most others at least one. Mirrors `apiserver/pkg/util/shufflesharding`.

/// Hands have at most this many cards; validation of PriorityLevelConfigurations refuses more, as 60 bits of a hash are
/// enough for no larger ones.
const MAX_HAND: usize = 15;

/// The queues dealt to a flow.
pub(super) struct Hand {
    cards: [usize; MAX_HAND],
    size: usize,
}

impl Hand {
    /// Deals `size` different cards of a deck. A deck that is smaller than the hand is dealt completely.
    pub(super) fn deal(mut hash: u64, deck: usize, size: usize) -> Self {
        let size = size.clamp(1, MAX_HAND).min(deck.max(1));
        let mut picks = [0; MAX_HAND];
        for (i, pick) in picks[..size].iter_mut().enumerate() {
            let left = (deck.max(1) - i) as u64;
            *pick = usize::try_from(hash % left).unwrap_or_default();
            hash /= left;
        }
        // A pick counts the cards that are still in the deck.
        let mut cards = picks;
        for (i, card) in cards[..size].iter_mut().enumerate() {
            for earlier in picks[..i].iter().rev() {
                if *card >= *earlier {
                    *card += 1;
                }
            }
        }
        Self { cards, size }
    }

    /// The cards, beginning with the one at `offset`, which may be any number.
    pub(super) fn from(&self, offset: usize) -> impl Iterator<Item = usize> {
        (0..self.size).map(move |i| self.cards[offset.wrapping_add(i) % self.size])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_hand_has_different_cards_of_the_deck(hash: u64, deck in 1_usize..300, size in 1_usize..12) {
            let cards: Vec<usize> = Hand::deal(hash, deck, size).from(0).collect();
            prop_assert_eq!(cards.len(), size.min(deck));
            prop_assert!(cards.iter().all(|card| *card < deck));
            prop_assert_eq!(cards.iter().collect::<HashSet<_>>().len(), cards.len());
        }
    }

    #[test]
    fn an_offset_turns_the_hand() {
        let hand = Hand::deal(12_345, 10, 3);
        let cards: Vec<usize> = hand.from(0).collect();
        let turned: Vec<usize> = hand.from(usize::MAX).collect();
        let first = usize::MAX % 3;
        assert_eq!(turned[0], cards[first]);
    }

    #[test]
    fn most_flows_share_not_all_queues_with_a_busy_one() {
        // 128 queues and hands of 6: one chance in 5 billion.
        let busy: HashSet<usize> = Hand::deal(7, 128, 6).from(0).collect();
        let same =
            |n: u64| Hand::deal(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), 128, 6).from(0).all(|c| busy.contains(&c));
        assert!(!(0..100_000).any(same));
    }
}
