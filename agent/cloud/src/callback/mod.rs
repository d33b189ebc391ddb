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
    pub(crate) const CONTENT_TYPE: &str = "application/grpc";
    pub(crate) const STATUS: &str = "grpc-status";
    pub(crate) const MESSAGE: &str = "grpc-message";
    pub(crate) const OK: &str = "0";
}
