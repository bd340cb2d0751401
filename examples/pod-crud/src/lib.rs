// SPDX-License-Identifier: Apache-2.0

//! What a program that is no operator does with the API of Kubernetes, from plain requests to a cache:
//!
//! | | |
//! |---|---|
//! | [`crud`] | create, get, update and delete a Pod |
//! | [`watch`] | be told of changes, with bookmarks |
//! | [`informer`] | be told of changes, and have a cache that is up to date |
//! | [`dynamic`] | read objects of a kind that is not known when the program is compiled |
//! | [`protobuf`] | which objects have a shorter encoding than JSON |
//!
//! To bring objects to a desired state, write an operator instead: see the other examples.

pub mod crud;
pub mod dynamic;
pub mod informer;
pub mod protobuf;
pub mod watch;
