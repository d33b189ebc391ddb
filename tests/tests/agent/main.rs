//! The real binary, driven as a person or a boot script drives it, against real servers on loopback.

#![allow(clippy::unwrap_used)]

mod converge;
mod support;
