//! How the seats of the server are divided among priority levels, and how levels lend each other what they do not use.
//!
//! Each level has a nominal number of seats by its share. It lends up to a part of them, and borrows up to a limit. Every
//! few seconds [`adjust`] divides all seats again, in proportion to what each level could have used. Pure functions;
//! mirrors `conc_alloc.go` and `updateBorrowingLocked` of `apf_controller.go`.

use super::demand::Demand;

/// Targets below this count as much.
const MIN_TARGET: f64 = 0.001;
const EPSILON: f64 = 1e-7;

/// What a PriorityLevelConfiguration says about its seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) exempt: bool,
    pub(super) shares: u32,
    pub(super) lendable_percent: u32,
    pub(super) borrowing_limit_percent: Option<u32>,
}

/// Between what a level's seats stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) nominal: u32,
    pub(super) min: u32,
    pub(super) max: u32,
}

/// The bounds of levels that divide `seats` by their shares. Nominal seats are rounded up, so they may be more together.
pub(super) fn bounds(seats: u32, shares: &[Share]) -> Vec<Bounds> {
    let sum: f64 = shares.iter().map(|share| f64::from(share.shares)).sum();
    let percent = |nominal: u32, percent: u32| round(f64::from(nominal) * f64::from(percent) / 100.0);
    shares
        .iter()
        .map(|share| {
            let nominal = if sum > 0.0 { round((f64::from(seats) * f64::from(share.shares) / sum).ceil()) } else { 0 };
            let lendable = percent(nominal, share.lendable_percent).min(nominal);
            let borrowing = share.borrowing_limit_percent.map_or(seats, |limit| percent(nominal, limit));
            Bounds { nominal, min: nominal - lendable, max: nominal.saturating_add(borrowing) }
        })
        .collect()
}

/// A level among which seats are divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) exempt: bool,
    pub(super) bounds: Bounds,
    pub(super) demand: Demand,
    /// How many seats it has now.
    pub(super) current: u32,
}

impl Level {
    /// What it needs at least: it does not lend what it has used.
    fn floor(&self) -> u32 {
        let Bounds { nominal, min, .. } = self.bounds;
        let used = self.demand.high_watermark;
        min.max(if self.exempt { used } else { nominal.min(used) })
    }

    /// What it would have if there were enough for all.
    pub(super) fn target(&self) -> f64 {
        f64::from(self.floor()).max(self.demand.smoothed)
    }
}

/// What [`adjust`] has come to.
#[derive(Debug, Default)]
pub(super) struct Adjusted {
    /// The seats of each level.
    pub(super) seats: Vec<u32>,
    /// The part of its target that a level gets unless a bound is in the way.
    pub(super) fair_fraction: f64,
}

/// Divides the nominal seats of all levels among them.
pub(super) fn adjust(levels: &[Level]) -> Adjusted {
    let total: u32 = levels.iter().map(|level| level.bounds.nominal).sum();
    let limited = || levels.iter().filter(|level| !level.exempt);
    let exempt: u32 = levels.iter().filter(|level| level.exempt).map(Level::floor).sum();
    let left = i64::from(total) - i64::from(exempt);
    let least: u32 = limited().map(|level| level.bounds.min).sum();
    let floors: u32 = limited().map(Level::floor).sum();
    let (fair_fraction, mut parts) = if left <= i64::from(least) {
        (0.0, limited().map(|level| level.bounds.min).collect::<Vec<_>>())
    } else if left <= i64::from(floors) {
        // Not everybody can keep what they have used.
        let part = (left as f64 - f64::from(least)) / f64::from(floors - least);
        let seats = |level: &Level| level.bounds.min + round(f64::from(level.floor() - level.bounds.min) * part);
        (0.0, limited().map(seats).collect())
    } else {
        let items: Vec<Item> = limited()
            .map(|level| Item {
                target: level.target(),
                lower: f64::from(level.floor()),
                upper: f64::from(level.bounds.max.max(level.floor())),
            })
            .collect();
        match divide(f64::from(total), &items) {
            Some((fraction, parts)) => (fraction, parts.into_iter().map(round).collect()),
            None => (0.0, limited().map(|level| level.current).collect()),
        }
    };
    parts.reverse();
    let seats = |level: &Level| if level.exempt { level.floor() } else { parts.pop().unwrap_or(level.current) };
    Adjusted { seats: levels.iter().map(seats).collect(), fair_fraction }
}

/// One of those among whom a sum is divided. The target is not below the lower bound.
#[derive(Clone, Copy, Debug)]
struct Item {
    target: f64,
    lower: f64,
    upper: f64,
}

impl Item {
    fn at(&self, fraction: f64) -> f64 {
        (fraction * self.target.max(MIN_TARGET)).clamp(self.lower, self.upper)
    }
}

/// Divides a sum: everybody gets the same fraction of their target, unless that is out of their bounds. `None` if the
/// bounds do not allow the sum.
fn divide(sum: f64, items: &[Item]) -> Option<(f64, Vec<f64>)> {
    let total = |fraction: f64| items.iter().map(|item| item.at(fraction)).sum::<f64>();
    let (least, most) = (total(0.0), items.iter().map(|item| item.upper).sum::<f64>());
    if least - sum > EPSILON || sum - most > EPSILON {
        return None;
    }
    // The total is a line between the fractions where a level meets a bound.
    let mut corners: Vec<f64> = items
        .iter()
        .flat_map(|item| {
            let target = item.target.max(MIN_TARGET);
            [item.lower / target, item.upper / target]
        })
        .collect();
    corners.sort_by(f64::total_cmp);
    let mut below = (corners.first().copied().unwrap_or_default(), least);
    let mut fraction = below.0;
    for corner in corners {
        let above = total(corner);
        if above >= sum {
            let (from, reached) = below;
            fraction =
                if above > reached { from + (corner - from) * (sum - reached) / (above - reached) } else { from };
            break;
        }
        below = (corner, above);
        fraction = corner;
    }
    Some((fraction, items.iter().map(|item| item.at(fraction)).collect()))
}

fn round(value: f64) -> u32 {
    value.round().clamp(0.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(shares: u32, lendable_percent: u32) -> Share {
        Share { exempt: false, shares, lendable_percent, borrowing_limit_percent: None }
    }

    fn level(bounds: Bounds, high_watermark: u32, smoothed: f64) -> Level {
        let demand = Demand { high_watermark, smoothed, ..Demand::default() };
        Level { exempt: false, bounds, demand, current: bounds.nominal }
    }

    #[test]
    fn seats_are_divided_by_shares() {
        // The default levels with the default limit: upstream's numbers.
        let shares = [
            Share { exempt: true, shares: 0, lendable_percent: 0, borrowing_limit_percent: None },
            share(5, 0),
            share(30, 33),
            share(40, 25),
            share(10, 0),
            share(40, 50),
            share(100, 90),
            share(20, 50),
        ];
        let bounds = bounds(600, &shares);
        let nominal: Vec<u32> = bounds.iter().map(|bounds| bounds.nominal).collect();
        assert_eq!(nominal, [0, 13, 74, 98, 25, 98, 245, 49]);
        let min: Vec<u32> = bounds.iter().map(|bounds| bounds.min).collect();
        assert_eq!(min, [0, 13, 50, 73, 25, 49, 24, 24]);
        assert!(bounds.iter().all(|bounds| bounds.max == bounds.nominal + 600));
    }

    #[test]
    fn an_idle_level_lends_seats_and_gets_them_back() {
        let bounds = Bounds { nominal: 100, min: 20, max: 300 };
        let busy = level(bounds, 500, 500.0);
        let adjusted = adjust(&[busy, level(bounds, 0, 0.0)]);
        assert_eq!(adjusted.seats, [180, 20]);
        let adjusted = adjust(&[busy, level(bounds, 150, 150.0)]);
        assert_eq!(adjusted.seats, [100, 100]);
    }

    #[test]
    fn no_level_borrows_above_its_limit() {
        let lends = Bounds { nominal: 100, min: 0, max: 100 };
        let borrows = Bounds { nominal: 100, min: 100, max: 120 };
        let adjusted = adjust(&[level(borrows, 400, 400.0), level(lends, 0, 0.0)]);
        assert_eq!(adjusted.seats, [120, 80]);
    }

    #[test]
    fn exempt_requests_take_seats_from_others() {
        let bounds = Bounds { nominal: 100, min: 50, max: 200 };
        let exempt = Level { exempt: true, ..level(Bounds::default(), 60, 60.0) };
        let adjusted = adjust(&[exempt, level(bounds, 100, 100.0)]);
        assert_eq!(adjusted.seats, [60, 50]);
    }

    proptest! {
        #[test]
        fn everybody_stays_within_bounds_and_the_sum_is_used(
            items in proptest::collection::vec((0_u32..200, 0_u32..200, 0_u32..300, 0_u32..400), 1..8)
        ) {
            let levels: Vec<Level> = items.into_iter().map(|(min, lendable, borrowing, demand)| {
                let nominal = min + lendable;
                level(Bounds { nominal, min, max: nominal + borrowing }, demand, f64::from(demand))
            }).collect();
            let adjusted = adjust(&levels);
            let total: u32 = levels.iter().map(|level| level.bounds.nominal).sum();
            let used: u32 = adjusted.seats.iter().sum();
            prop_assert!(used.abs_diff(total) as usize <= levels.len(), "{used} of {total}");
            for (level, seats) in levels.iter().zip(&adjusted.seats) {
                prop_assert!((level.bounds.min..=level.bounds.max).contains(seats));
                prop_assert!(*seats >= level.floor().min(level.bounds.nominal));
            }
        }
    }
}
