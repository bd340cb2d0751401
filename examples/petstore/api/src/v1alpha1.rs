// SPDX-License-Identifier: Apache-2.0

//! Version v1alpha1 of the group petstore.example.com.

pub mod pet;
#[cfg(feature = "conversion")]
mod pet_conversion;

pub use pet::{Pet, PetSpec, PetStatus, PetType};
