//! Certificate authorities and the certificates that they issue, for this node and for nodes that ask the control
//! plane; also self-signed certificates. This crate makes keys, and reads and writes PEM; it does not read or write
//! files.

mod authority;
mod error;
mod issue;
pub mod kubeconfig;
mod node_key;
mod pem;
mod self_signed;
mod signing;

pub use authority::Authority;
pub use error::CertificateError;
pub use issue::{BACKDATED, lifetime};
pub use node_key::NodeKey;
pub use pem::{PemPair, ders, first_der, first_pem, is_key_of, split, with_newline, with_others};
pub use self_signed::{common_name_and_validity, self_signed, self_signed_authority};
