// SPDX-License-Identifier: Apache-2.0

//! Version v1alpha1 of the group appcontroller.k8s.io.

pub mod app_service;

pub use app_service::{AppService, AppServiceSpec, AppServiceStatus};
