//! The call-back of the bootstrap protocol: kops-controller calls a machine that made a request, and the machine answers.

mod caller;
mod open;
mod server;

#[cfg(test)]
mod tests;

pub use caller::{CallFailed, Caller, Proof};
pub use server::{CallbackServer, CallbackServerError};

/// The content type of gRPC, and the headers that report how a call ended.
mod grpc {
    pub(crate) const CONTENT_TYPE: &str = "application/grpc";
    pub(crate) const STATUS: &str = "grpc-status";
    pub(crate) const MESSAGE: &str = "grpc-message";
    pub(crate) const OK: &str = "0";
}
