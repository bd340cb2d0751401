//! How fast replicas may change, as pure functions: stabilisation windows, policies and bounds.
//!
//! Mirrors upstream's `pkg/controller/podautoscaler/horizontal.go`.

use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// For how long the highest of recent recommendations counts (`--horizontal-pod-autoscaler-downscale-stabilization`).
const DOWNSCALE_WINDOW: i32 = 300;

/// What an autoscaler has recommended and done.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    recommendations: Vec<(Timestamp, i32)>,
    ups: Vec<(Timestamp, i32)>,
    downs: Vec<(Timestamp, i32)>,
}

/// A number of replicas, and why it is that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) replicas: i32,
    /// Reason and message of the condition AbleToScale.
    pub(super) able: (&'static str, &'static str),
    /// Whether something limits it, and reason and message of the condition ScalingLimited.
    pub(super) limited: (bool, &'static str, &'static str),
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

fn seconds(seconds: i32) -> SignedDuration {
    SignedDuration::from_secs(seconds.into())
}

impl History {
    /// Remembers how many replicas there were at first, so that nothing is scaled down at once.
    pub(super) fn begin(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// Remembers a change of replicas.
    pub(super) fn scaled(&mut self, from: i32, to: i32, now: Timestamp) {
        if to > from {
            self.ups.push((now, to - from));
        } else {
            self.downs.push((now, from - to));
        }
    }

    /// Decides how many replicas there should be, given how many metrics ask for.
    pub(super) fn decide(
        &mut self,
        spec: &HorizontalPodAutoscalerSpec,
        current: i32,
        desired: i32,
        now: Timestamp,
    ) -> Decision {
        let (min, max) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
        let rules = Rules::of(spec.behavior.as_ref());
        let stabilized = self.stabilize(&rules, spec.behavior.is_some(), current, desired, now);
        self.forget(&rules, now);
        let able = if stabilized == desired {
            READY
        } else if spec.behavior.is_some() && desired >= current {
            UP_STABILIZED
        } else {
            DOWN_STABILIZED
        };
        let (replicas, why) = match &spec.behavior {
            None => limit_by_default(current, stabilized, min, max),
            Some(_) => self.limit(&rules, current, stabilized, (min, max), now),
        };
        Decision { replicas, able, limited: (replicas != stabilized, why.0, why.1) }
    }

    fn stabilize(&mut self, rules: &Rules, behaves: bool, current: i32, desired: i32, now: Timestamp) -> i32 {
        let since = |window: i32| now.checked_sub(seconds(window)).unwrap_or(Timestamp::MIN);
        let recent = |window: i32| {
            let cutoff = since(window);
            self.recommendations.iter().filter(move |(at, _)| *at > cutoff).map(|(_, replicas)| *replicas)
        };
        let highest = recent(rules.down_window).fold(desired, i32::max);
        let stabilized = if behaves {
            let lowest = recent(rules.up_window).fold(desired, i32::min);
            current.max(lowest).min(highest)
        } else {
            highest
        };
        self.recommendations.push((now, desired));
        stabilized
    }

    /// Drops what no window reaches any more.
    fn forget(&mut self, rules: &Rules, now: Timestamp) {
        let keep = |list: &mut Vec<(Timestamp, i32)>, period: i32| {
            let cutoff = now.checked_sub(seconds(period)).unwrap_or(Timestamp::MIN);
            list.retain(|(at, _)| *at > cutoff);
        };
        keep(&mut self.recommendations, rules.down_window.max(rules.up_window).max(1));
        let longest = rules.up.iter().chain(&rules.down).map(|policy| policy.period_seconds).max().unwrap_or(0);
        keep(&mut self.ups, longest);
        keep(&mut self.downs, longest);
    }

    /// How many replicas there were when a period began.
    fn at_start(&self, current: i32, period: i32, now: Timestamp) -> i32 {
        let cutoff = now.checked_sub(seconds(period)).unwrap_or(Timestamp::MIN);
        let sum = |list: &[(Timestamp, i32)]| list.iter().filter(|(at, _)| *at > cutoff).map(|(_, n)| n).sum::<i32>();
        current - sum(&self.ups) + sum(&self.downs)
    }

    fn limit(
        &self,
        rules: &Rules,
        current: i32,
        desired: i32,
        (min, max): (i32, i32),
        now: Timestamp,
    ) -> (i32, (&'static str, &'static str)) {
        if desired > current {
            let proposed: Vec<i32> = rules
                .up
                .iter()
                .map(|policy| {
                    let start = self.at_start(current, policy.period_seconds, now);
                    match &*policy.type_ {
                        "Pods" => start.saturating_add(policy.value),
                        _ => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
                    }
                })
                .collect();
            let limit = rules.up_select.choose(proposed.iter().max().copied(), proposed.iter().min().copied());
            let limit = limit.unwrap_or(current).max(current);
            let (most, why) = if max > limit { (limit, UP_LIMIT) } else { (max, TOO_MANY) };
            if desired > most {
                return (most, why);
            }
        } else if desired < current {
            let proposed: Vec<i32> = rules
                .down
                .iter()
                .map(|policy| {
                    let start = self.at_start(current, policy.period_seconds, now);
                    match &*policy.type_ {
                        "Pods" => start.saturating_sub(policy.value),
                        _ => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
                    }
                })
                .collect();
            let limit = rules.down_select.choose(proposed.iter().min().copied(), proposed.iter().max().copied());
            let limit = limit.unwrap_or(current).min(current);
            let (least, why) = if min < limit { (limit, DOWN_LIMIT) } else { (min, TOO_FEW) };
            if desired < least {
                return (least, why);
            }
        }
        (desired, WITHIN)
    }
}

/// Bounds without a behaviour: at most twice as many, but at least four.
fn limit_by_default(current: i32, desired: i32, min: i32, max: i32) -> (i32, (&'static str, &'static str)) {
    let limit = current.saturating_mul(2).max(4);
    let (most, why) = if max > limit { (limit, UP_LIMIT) } else { (max, TOO_MANY) };
    if desired < min {
        (min, TOO_FEW)
    } else if desired > most {
        (most, why)
    } else {
        (desired, WITHIN)
    }
}

/// Which of several policies counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Select {
    /// The one that allows for the largest change.
    Max,
    Min,
    Disabled,
}

impl Select {
    fn of(rules: Option<&HPAScalingRules>) -> Self {
        match rules.and_then(|rules| rules.select_policy.as_deref()) {
            Some("Min") => Self::Min,
            Some("Disabled") => Self::Disabled,
            _ => Self::Max,
        }
    }

    fn choose(self, largest_change: Option<i32>, smallest_change: Option<i32>) -> Option<i32> {
        match self {
            Self::Max => largest_change,
            Self::Min => smallest_change,
            Self::Disabled => None,
        }
    }
}

/// Behaviour with everything filled in that was left out.
struct Rules {
    up: Vec<HPAScalingPolicy>,
    up_select: Select,
    up_window: i32,
    down: Vec<HPAScalingPolicy>,
    down_select: Select,
    down_window: i32,
}

impl Rules {
    fn of(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Self {
        let up = behavior.and_then(|behavior| behavior.scale_up.as_ref());
        let down = behavior.and_then(|behavior| behavior.scale_down.as_ref());
        let policy = |type_: &str, value: i32| HPAScalingPolicy { type_: type_.to_owned(), value, period_seconds: 15 };
        let given = |rules: Option<&HPAScalingRules>| rules.and_then(|rules| rules.policies.clone());
        let window = |rules: Option<&HPAScalingRules>| rules.and_then(|rules| rules.stabilization_window_seconds);
        Self {
            up: given(up).unwrap_or_else(|| vec![policy("Pods", 4), policy("Percent", 100)]),
            up_select: Select::of(up),
            up_window: window(up).unwrap_or(0),
            down: given(down).unwrap_or_else(|| vec![policy("Percent", 100)]),
            down_select: Select::of(down),
            down_window: window(down).unwrap_or(DOWNSCALE_WINDOW),
        }
    }
}
