//! Durations as people read them in a column: `5s`, `3m20s`, `4h`, `2d3h`, `1y20d`.
//!
//! Mirrors `k8s.io/apimachinery/pkg/util/duration`: two or three significant figures, coarser with age.

use jiff::{SignedDuration, Timestamp};

/// The time from `then` to `now`.
pub(crate) fn since(then: Timestamp, now: Timestamp) -> String {
    human(now.duration_since(then))
}

/// A duration with about two significant figures.
pub(crate) fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    // Clocks of different machines may differ by a second or so.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |big: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => pair(days, 'd', hours % 24, 'h'),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => pair(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_get_coarser_with_age() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (2 * MINUTE + 1, "2m1s"),
            (10 * MINUTE - 1, "9m59s"),
            (10 * MINUTE, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (48 * HOUR - 1, "47h"),
            (48 * HOUR, "2d"),
            (49 * HOUR, "2d1h"),
            (8 * DAY, "8d"),
            (2 * 365 * DAY - 1, "729d"),
            (2 * 365 * DAY, "2y"),
            (2 * 365 * DAY + DAY, "2y1d"),
            (8 * 365 * DAY - 1, "7y364d"),
            (8 * 365 * DAY, "8y"),
            (100 * 365 * DAY + DAY, "100y"),
        ] {
            assert_eq!(human(SignedDuration::from_secs(seconds)), expected);
        }
    }
}
