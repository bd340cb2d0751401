// SPDX-License-Identifier: Apache-2.0

//! Version v1beta1 of the group petstore.example.com.

pub mod pet;

pub use pet::{DeletionPolicy, Pet, PetSpec, PetStatus, Species};
