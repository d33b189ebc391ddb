//! The node side of kOps in one static binary.
#![allow(dead_code)]
// `pub` says here that other modules may use it: a binary has no other public.
#![allow(unreachable_pub)]

mod cloud;
mod dns;
mod http;
mod retry;
mod store;
#[cfg(test)]
mod test_server;
mod tls;

fn main() {}
