//! The node side of kOps in one static binary.
#![allow(dead_code)]

mod cloud;
mod dns;
mod http;
mod retry;
mod store;
#[cfg(test)]
mod test_server;
mod tls;

fn main() {}
