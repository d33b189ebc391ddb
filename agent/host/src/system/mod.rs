//! What a machine can be asked to do besides keeping files, each as a trait with two makers: the
//! machine itself, and a recorder that notes what it would have asked.

pub(crate) mod apart;
mod child;
pub(crate) mod clock;
pub mod commands;
pub(crate) mod ctr;
mod deadline;
pub(crate) mod devices;
pub mod health;
pub mod images;
pub mod kernel;
mod modprobe;
pub mod mounts;
pub mod packages;
pub mod pod_network;
pub mod pods;
pub mod programs;
pub(crate) mod recorded;
pub mod remote;
mod starting;
pub(crate) mod sysctls;
pub mod systemd;
pub(crate) mod tether;
pub mod users;
