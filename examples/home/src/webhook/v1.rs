// SPDX-License-Identifier: Apache-2.0

//! Webhooks of v1.

pub mod home;
