//! What containers use, from the counters of their control groups.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use windlass_node::runtime::Usage;

use super::pod::PodHandle;
use crate::cgroup::{Cgroups, Counters};

/// Over how long the use of the CPU is averaged at least, so that questions in a row have about the same answer.
const WINDOW_NANOSECONDS: u64 = 5_000_000_000;

/// What a container had used at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    at: Instant,
    cpu_nanoseconds: u64,
    /// The answer until then.
    nanocores: u64,
}

impl Sample {
    /// The next sample, and what the container uses: since the sample before, or since its start.
    fn next(before: Option<Self>, now: Instant, counters: Counters, running_nanoseconds: u64) -> Self {
        let cpu_nanoseconds = counters.cpu_nanoseconds;
        let (spent, over) = match before {
            Some(before) => {
                let over = u64::try_from(now.saturating_duration_since(before.at).as_nanos()).unwrap_or(u64::MAX);
                if over < WINDOW_NANOSECONDS {
                    return before;
                }
                (cpu_nanoseconds.saturating_sub(before.cpu_nanoseconds), over)
            }
            None => (cpu_nanoseconds, running_nanoseconds),
        };
        let nanocores = u128::from(spent) * 1_000_000_000 / u128::from(over.max(1_000_000));
        Self { at: now, cpu_nanoseconds, nanocores: u64::try_from(nanocores).unwrap_or(u64::MAX) }
    }
}

impl PodHandle {
    /// What the containers that run use; `None` where the kernel does not count it.
    pub(super) fn usage(&self, cgroups: &Cgroups) -> Option<Vec<Usage>> {
        let now = Instant::now();
        let uid = self.uid();
        let mut found = Vec::new();
        for (name, known) in self.known().iter_mut().filter(|(_, known)| !*known.ended.borrow()) {
            let counters = cgroups.counters(&uid, &format!("{name}-{}", known.attempt))?;
            let running = Timestamp::now().as_nanosecond() - i128::from(known.started);
            let running = u64::try_from(running).unwrap_or(0);
            let sample = Sample::next(known.sample, now, counters, running);
            known.sample = Some(sample);
            found.push(Usage {
                container: name.clone(),
                cpu_nanocores: sample.nanocores,
                memory_bytes: counters.memory_bytes,
            });
        }
        found.sort_by(|one, other| one.container.cmp(&other.container));
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn use_is_averaged_since_the_last_sample() {
        let counters = |cpu_nanoseconds| Counters { cpu_nanoseconds, memory_bytes: 1 };
        let start = Instant::now();
        let first = Sample::next(None, start, counters(1_000_000_000), 2_000_000_000);
        assert_eq!(first.nanocores, 500_000_000);
        let soon = Sample::next(Some(first), start + Duration::from_secs(1), counters(2_000_000_000), 0);
        assert_eq!(soon, first);
        let later = Sample::next(Some(first), start + Duration::from_secs(10), counters(2_000_000_000), 0);
        assert_eq!(later.nanocores, 100_000_000);
    }
}
