//! PriorityLevelConfigurations: how many seats they ask for, and what happens to requests that find none.

use serde_json::Value;

use super::allocation::Share;
use super::queue_set::Queuing;
use crate::object;
use crate::validation::access::Access as _;

/// The level whose requests never wait.
pub(super) const EXEMPT: &str = "exempt";

/// A PriorityLevelConfiguration as it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LevelSpec {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) queuing: Queuing,
    pub(super) share: Share,
}

impl LevelSpec {
    /// Reads an object; `None` if it contradicts itself, which validation does not let through.
    pub(super) fn new(object: &Value) -> Option<Self> {
        let name = object::name(object).to_owned();
        let spec = object.at("spec");
        let exempt = spec.text("type") == "Exempt";
        let limited = spec.at("limited");
        if exempt != (name == EXEMPT) || exempt == limited.is_object() {
            return None;
        }
        let number = |value: i64| u32::try_from(value).unwrap_or_default();
        let size = |value: i64| usize::try_from(value).unwrap_or_default().max(1);
        let shares = if exempt { spec.at("exempt") } else { limited };
        let response = limited.at("limitResponse");
        let queuing = match response.at("queuing") {
            _ if exempt => Queuing::Exempt,
            queuing if queuing.is_object() => Queuing::Queues {
                queues: size(queuing.int("queues")),
                hand: size(queuing.int("handSize")),
                length: size(queuing.int("queueLengthLimit")),
            },
            _ => Queuing::Reject,
        };
        let share = Share {
            exempt,
            shares: number(shares.int("nominalConcurrencyShares")),
            lendable_percent: number(shares.int("lendablePercent")),
            borrowing_limit_percent: shares.int_opt("borrowingLimitPercent").map(number).filter(|_| !exempt),
        };
        Some(Self { uid: object::text(object, "uid").to_owned(), name, queuing, share })
    }

    /// How many seats one request of the level may be estimated to take at most; 0 if nothing says so.
    pub(super) fn max_seats(&self, nominal: u32) -> u32 {
        match self.queuing {
            Queuing::Queues { hand, .. } => {
                let hand = u32::try_from(hand).unwrap_or(u32::MAX);
                // 15 % of the level, rounded up.
                (nominal * 15).div_ceil(100).min(nominal / hand).max(1)
            }
            Queuing::Exempt | Queuing::Reject => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn levels_are_read_as_validation_lets_them_through() {
        let level = json!({"metadata": {"name": "l", "uid": "u"}, "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 20, "lendablePercent": 50, "borrowingLimitPercent": 10,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 128, "handSize": 6, "queueLengthLimit": 50}},
        }}});
        let spec = LevelSpec::new(&level).expect("valid");
        let share = Share { exempt: false, shares: 20, lendable_percent: 50, borrowing_limit_percent: Some(10) };
        let queuing = Queuing::Queues { queues: 128, hand: 6, length: 50 };
        assert_eq!(spec, LevelSpec { name: "l".into(), uid: "u".into(), queuing, share });
        assert_eq!((spec.max_seats(49), spec.max_seats(245), spec.max_seats(3)), (8, 37, 1));
        let exempt = json!({"metadata": {"name": "l"}, "spec": {"type": "Exempt", "exempt": {}}});
        assert_eq!(LevelSpec::new(&exempt), None);
        let reject = json!({"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}});
        assert_eq!(LevelSpec::new(&reject).map(|spec| spec.queuing), Some(Queuing::Reject));
    }
}
