//! The call-back of the bootstrap protocol, both sides of it: what a machine answers that asks for something, and how
//! kops-controller asks it.

mod caller;
mod open;
mod server;

#[cfg(test)]
mod tests;

pub use caller::Caller;
pub use server::{CallbackServer, CallbackServerError};

/// What gRPC calls its own content, and the headers with which it says how a call ended.
mod grpc {
    pub(super) const CONTENT_TYPE: &str = "application/grpc";
    pub(super) const STATUS: &str = "grpc-status";
    pub(super) const MESSAGE: &str = "grpc-message";
    pub(super) const OK: &str = "0";
}
