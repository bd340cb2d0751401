// SPDX-License-Identifier: Apache-2.0

//! Version v1 of the group webapp.my.domain.

pub mod guestbook;

pub use guestbook::{Guestbook, GuestbookSpec, GuestbookStatus, ServiceType};
