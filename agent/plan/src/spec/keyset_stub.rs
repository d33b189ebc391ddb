//! stand-in
/// stand-in
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyset;
