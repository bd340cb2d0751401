//! Pods of containers on this machine, as root. What the kernel or the user forbids is skipped, loudly.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod debug;
mod faults;
mod place;
mod pods;
mod security;
mod volumes;
