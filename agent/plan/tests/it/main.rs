//! Tests of the decisions of `agent/plan`, in one binary, so that shared modules are linked only once.

#![allow(clippy::unwrap_used)]

mod any_spec;
mod api;
#[path = "../../../spec/src/go_yaml/arbitrary.rs"]
mod arbitrary;
mod clouds;
mod conformance_stores;
mod corpus;
mod derive_conformance;
mod go_reader;
mod go_reads_our_yaml;
mod golden;
mod operating_system;
mod properties;
mod written;
