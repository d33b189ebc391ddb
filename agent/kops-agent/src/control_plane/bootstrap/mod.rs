//! The bootstrap server: a machine that can prove who it is gets what it needs to be a node.

// Until it is served.
#[allow(dead_code)]
pub mod gce;
#[allow(dead_code)]
pub mod verifier;
