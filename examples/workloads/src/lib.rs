// SPDX-License-Identifier: Apache-2.0

//! Deploys a load-balanced web application with the API of Kubernetes, and follows what its pods print.
//!
//! - [`app`]: the Namespace, Deployment, Service and Ingress of the application.
//! - [`progress`]: waits until its pods are ready and its address is known.
//! - [`logs`]: follows the output of all its pods, also of those that come later.

pub mod app;
pub mod logs;
pub mod progress;
