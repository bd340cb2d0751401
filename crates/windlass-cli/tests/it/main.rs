//! The `windlass` program as people and scripts use it, and real kubectl against the cluster it starts.
//!
//! Tests that need kubectl say so and pass where there is none; `KUBECTL` names another one to use.
#![allow(clippy::unwrap_used)]

mod machine;
mod process;
mod windlass;

mod against;
mod anonymous;
mod arguments;
mod background;
mod containers;
mod dev;
mod doctor;
mod faults;
mod foreground;
mod generate;
mod image;
mod in_cluster;
mod interrupted;
mod kubectl;
mod manifests;
mod nodes;
mod pods;
mod process_pods;
mod project;
mod public_names;
mod reference;
mod restart;
mod rootless;
mod secrets;
mod services;
mod terminal;
mod tools;
mod trouble;
