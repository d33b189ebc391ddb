//! Files with keypairs of the cluster, for components on this machine that sign with these keypairs.

use crate::resolve::NodeConfig;
use crate::resource::{Content, File, Mode, SecretPiece};

/// A file with the private key of this keyset.
pub(super) fn private_key_file(node: &NodeConfig, keyset: &str, path: &str) -> File {
    let key =
        SecretPiece::KeysetPrivateKey { keyset: keyset.to_owned(), id: node.keypair_id(keyset).to_owned() };
    File::new(path, Content::SecretText(vec![key])).mode(Mode::PRIVATE)
}

/// A file with the certificate of this keyset.
pub(super) fn certificate_file(node: &NodeConfig, keyset: &str, path: &str) -> File {
    File::text(path, node.keypair_certificate(keyset)).mode(Mode::PRIVATE)
}
