// SPDX-License-Identifier: Apache-2.0

//! Version v1 of the group ajd.my.domain.

pub mod home;

pub use home::{Home, HomeSpec, HomeStatus, Room};
