//! How earlier runs used the store's secrets and files.

use std::collections::BTreeSet;

/// The secrets and files of the store that earlier runs used. If the store now denies access to one of them, the machine keeps everything
/// that was made from that secret or file.
#[derive(Clone, Debug, Default)]
pub enum Before {
    /// No earlier run changed this machine, and no other program has made it a node.
    #[default]
    Nothing,
    /// The secrets and files that earlier runs used are known, even if the last run did not complete.
    Known {
        secrets: BTreeSet<String>,
        /// URLs of files that earlier runs could not read. Nothing on this machine depends on these files.
        without: BTreeSet<String>,
    },
    /// This machine is a node, or may be one, but the secrets and files that earlier runs or other programs used are unknown.
    Unclear,
}

impl Before {
    /// Whether nothing on this machine depends on this file of the store.
    pub fn is_without(&self, url: &str) -> bool {
        match self {
            Before::Nothing => true,
            Before::Known { without, .. } => without.contains(url),
            Before::Unclear => false,
        }
    }
}
