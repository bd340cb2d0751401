// SPDX-License-Identifier: Apache-2.0

//! Version v1alpha1 of the group samplecontroller.k8s.io.

pub mod foo;

pub use foo::{Foo, FooSpec, FooStatus};
