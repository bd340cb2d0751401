// SPDX-License-Identifier: Apache-2.0

//! Webhooks of v1beta1.

pub mod pet;
