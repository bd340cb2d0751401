// SPDX-License-Identifier: Apache-2.0

//! Version v1alpha1 of the group cnat.programming-kubernetes.info.

pub mod at;

pub use at::{At, AtSpec, AtStatus, Phase};
