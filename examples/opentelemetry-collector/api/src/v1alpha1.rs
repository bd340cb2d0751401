// SPDX-License-Identifier: Apache-2.0

//! Version v1alpha1 of the group opentelemetry.io.

pub mod open_telemetry_collector;

pub use open_telemetry_collector::{OpenTelemetryCollector, OpenTelemetryCollectorSpec, OpenTelemetryCollectorStatus};
