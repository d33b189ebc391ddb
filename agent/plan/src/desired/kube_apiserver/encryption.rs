//! Encryption of the data that the API server writes to etcd. The configuration is a secret of the
//! user.

use crate::resolve::{KubeApiServer, NodeConfig};
use crate::resource::{Content, DesiredState, File, Mode, SecretPiece};

use super::files::file;

/// Adds the configuration if the cluster uses encryption.
pub(super) fn add(node: &NodeConfig, api_server: &KubeApiServer, state: &mut DesiredState) {
    if api_server.encrypts {
        let content = Content::SecretText(vec![SecretPiece::Secret("encryptionconfig".into())]);
        state.add(File::new(configuration_file(node), content).mode(Mode::PRIVATE));
    }
}

pub(super) fn configuration_file(node: &NodeConfig) -> String {
    file(node, "encryptionconfig.yaml")
}
