//! All integration tests of `agent/host` in one program, so that they share scenes and are linked once.

#![allow(clippy::unwrap_used)]

mod converge;
mod downloads;
mod faults;
mod first_sight;
mod hooks;
mod interrupted;
mod issued_anew;
mod late_pods;
mod located;
mod mirrors;
mod mounts;
mod operators_units;
mod overlap;
mod own_root;
mod ownership;
mod package_files;
mod packages;
mod pod_network;
mod remote;
mod reset_mounts;
mod rollback;
mod selinux;
mod starting;
mod support;
mod taking_over;
mod units;
mod users;
