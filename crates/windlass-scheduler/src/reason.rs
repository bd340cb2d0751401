//! Why nodes are out of the question, in kube-scheduler's words.
//!
//! Reasons are bits, and a decision counts them: thousands of nodes that are too small cost no allocation.

use crate::pod::PodInfo;

/// Why a node does not suit a pod. [`Scalar`](Self::Scalar) numbers the pod's own extended resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Unschedulable,
    NodeName,
    Taint,
    NodeAffinity,
    Ports,
    TooManyPods,
    Cpu,
    Memory,
    EphemeralStorage,
    DiskConflict,
    ExclusiveClaim,
    TooManyVolumes,
    VolumeNodeAffinity,
    NoVolumeToBind,
    VolumeMissing,
    VolumeZone,
    Spread,
    SpreadLabel,
    Affinity,
    AntiAffinity,
    ExistingAntiAffinity,
    CannotAllocate,
    DevicesElsewhere,
    NotNamed,
    NoVictims,
    PreemptionUseless,
    Scalar(u32),
}

/// The first bit of extended resources. A pod has few of them; the last bit stands for all beyond.
const SCALARS: u32 = 26;

impl Reason {
    const PLAIN: [(Self, &str); 26] = [
        (Self::Unschedulable, "node(s) were unschedulable"),
        (Self::NodeName, "node(s) didn't match the requested node name"),
        (Self::Taint, "node(s) had untolerated taint(s)"),
        (Self::NodeAffinity, "node(s) didn't match Pod's node affinity/selector"),
        (Self::Ports, "node(s) didn't have free ports for the requested pod ports"),
        (Self::TooManyPods, "Too many pods"),
        (Self::Cpu, "Insufficient cpu"),
        (Self::Memory, "Insufficient memory"),
        (Self::EphemeralStorage, "Insufficient ephemeral-storage"),
        (Self::DiskConflict, "node(s) had no available disk"),
        (
            Self::ExclusiveClaim,
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
        ),
        (Self::TooManyVolumes, "node(s) exceed max volume count"),
        (Self::VolumeNodeAffinity, "node(s) didn't match PersistentVolume's node affinity"),
        (Self::NoVolumeToBind, "node(s) didn't find available persistent volumes to bind"),
        (Self::VolumeMissing, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
        (Self::VolumeZone, "node(s) had no available volume zone"),
        (Self::Spread, "node(s) didn't match pod topology spread constraints"),
        (Self::SpreadLabel, "node(s) didn't match pod topology spread constraints (missing required label)"),
        (Self::Affinity, "node(s) didn't match pod affinity rules"),
        (Self::AntiAffinity, "node(s) didn't match pod anti-affinity rules"),
        (Self::ExistingAntiAffinity, "node(s) didn't satisfy existing pods anti-affinity rules"),
        (Self::CannotAllocate, "cannot allocate all claims"),
        (Self::DevicesElsewhere, "resourceclaim not available on the node"),
        (Self::NotNamed, "node(s) didn't satisfy plugin(s) [NodeAffinity]"),
        (Self::NoVictims, "No preemption victims found for incoming pod"),
        (Self::PreemptionUseless, "Preemption is not helpful for scheduling"),
    ];

    fn bit(self) -> u32 {
        match self {
            Self::Scalar(number) => (SCALARS + number).min(63),
            plain => Self::PLAIN.iter().position(|(one, _)| *one == plain).map_or(63, |at| at as u32),
        }
    }
}

/// Several reasons.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reasons(u64);

impl Reasons {
    pub(crate) fn insert(&mut self, reason: Reason) {
        self.0 |= 1 << reason.bit();
    }

    pub(crate) fn contains(self, reason: Reason) -> bool {
        self.0 & (1 << reason.bit()) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl From<Reason> for Reasons {
    fn from(reason: Reason) -> Self {
        Self(1 << reason.bit())
    }
}

/// Why a node is out of the question, and whether preemption might help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reasons: Reasons,
    pub(crate) unresolvable: bool,
}

/// How many nodes were out of the question for which reason.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    counts: [u32; 64],
    all: Reasons,
}

impl Default for Tally {
    fn default() -> Self {
        Self { counts: [0; 64], all: Reasons::default() }
    }
}

impl Tally {
    pub(crate) fn add(&mut self, reasons: Reasons, nodes: u32) {
        if nodes == 0 {
            return;
        }
        self.all.0 |= reasons.0;
        let mut bits = reasons.0;
        while bits != 0 {
            self.counts[bits.trailing_zeros() as usize] += nodes;
            bits &= bits - 1;
        }
    }

    /// Every reason of any node.
    pub(crate) fn all(&self) -> Reasons {
        self.all
    }

    /// `0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu.`
    pub(crate) fn message(&self, nodes: usize, pod: &PodInfo) -> String {
        let mut parts = Vec::new();
        for (bit, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let text = match Reason::PLAIN.get(bit) {
                Some((_, text)) => (*text).to_owned(),
                None => match pod.requests.exact.scalars.get(bit - SCALARS as usize) {
                    Some((name, _)) => format!("Insufficient {name}"),
                    None => "Insufficient resources".to_owned(),
                },
            };
            parts.push(format!("{count} {text}"));
        }
        // As strings: that is upstream's order.
        parts.sort_unstable();
        let separator = if parts.is_empty() { "" } else { " " };
        let stop = if parts.is_empty() { "" } else { "." };
        format!("0/{nodes} nodes are available:{separator}{}{stop}", parts.join(", "))
    }
}

/// Which of the scheduler's checks kept a pod from being bound: what has to change before another try makes sense.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Causes(u64);

impl Causes {
    /// Anything may help.
    pub const ANYTHING: Self = Self(u64::MAX);

    pub(crate) fn new(reasons: Reasons) -> Self {
        Self(reasons.0)
    }

    pub(crate) fn volumes() -> Self {
        let mut reasons = Reasons::default();
        for reason in [Reason::VolumeNodeAffinity, Reason::NoVolumeToBind, Reason::VolumeMissing, Reason::VolumeZone] {
            reasons.insert(reason);
        }
        Self(reasons.0)
    }

    pub(crate) fn devices() -> Self {
        let mut reasons = Reasons::from(Reason::CannotAllocate);
        reasons.insert(Reason::DevicesElsewhere);
        Self(reasons.0)
    }

    fn any_of(self, reasons: &[Reason]) -> bool {
        reasons.iter().any(|reason| Reasons(self.0).contains(*reason))
    }

    /// Whether claims, volumes and classes matter.
    pub fn is_about_volumes(self) -> bool {
        self.any_of(&[Reason::VolumeNodeAffinity, Reason::NoVolumeToBind, Reason::VolumeMissing, Reason::VolumeZone])
            || self.any_of(&[Reason::ExclusiveClaim, Reason::DiskConflict, Reason::TooManyVolumes])
    }

    /// Whether resource claims and classes of devices matter.
    pub fn is_about_devices(self) -> bool {
        self.any_of(&[Reason::CannotAllocate, Reason::DevicesElsewhere])
    }

    /// Whether the pods of other nodes matter.
    pub fn is_about_other_pods(self) -> bool {
        self.any_of(&[Reason::Spread, Reason::SpreadLabel, Reason::Affinity, Reason::AntiAffinity])
            || self.any_of(&[Reason::ExistingAntiAffinity, Reason::ExclusiveClaim])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sorted_as_strings_with_their_counts() {
        let mut tally = Tally::default();
        tally.add(Reason::Taint.into(), 1);
        tally.add(Reason::Cpu.into(), 10);
        tally.add(Reason::Memory.into(), 2);
        let pod = PodInfo::new(&k8s_openapi::api::core::v1::Pod::default());
        assert_eq!(
            tally.message(13, &pod),
            "0/13 nodes are available: 1 node(s) had untolerated taint(s), 10 Insufficient cpu, 2 Insufficient memory."
        );
    }

    #[test]
    fn every_reason_has_a_bit_of_its_own() {
        let mut seen = Reasons::default();
        for (reason, _) in Reason::PLAIN {
            assert!(!seen.contains(reason));
            seen.insert(reason);
        }
        assert!(!seen.contains(Reason::Scalar(0)));
    }
}
