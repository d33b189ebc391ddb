//! The effects on a machine other than writing files. Each one is a trait with two implementations: the real machine,
//! and a recorder that only notes the requests.

pub(crate) mod apart;
mod child;
pub(crate) mod clock;
pub mod commands;
pub(crate) mod ctr;
pub(crate) mod deadline;
pub mod devices;
pub mod health;
pub mod images;
pub mod kernel;
pub mod listeners;
mod modprobe;
pub mod mounts;
pub mod packages;
pub mod pod_network;
pub mod pods;
pub mod processes;
pub mod programs;
pub(crate) mod recorded;
pub mod remote;
pub mod sandbox;
mod starting;
pub mod sysctls;
pub mod systemd;
pub(crate) mod tether;
pub mod users;
