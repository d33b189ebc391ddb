//! The node side of kOps in one static binary.

fn main() {}
