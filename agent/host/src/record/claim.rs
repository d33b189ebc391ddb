//! One resource of the agent's, and how a run has left it.

use kops_agent_spec::omit::is_zero;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::apply;

use super::begun::Begun;
use crate::root::Metadata;

/// One resource of the agent's.
#[apply(_ => #[serde(default, skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Claim {
    /// Whether something was there before the agent first wrote it.
    pub(super) was_there: bool,
    /// As it was left; `None` where a run was interrupted before that was known.
    pub(super) left: Option<Left>,
    /// As a run that is under way, or was interrupted, writes it.
    pub(super) begun: Option<Begun>,
}

impl Claim {
    pub(super) fn new(was_there: bool) -> Claim {
        Claim { was_there, left: None, begun: None }
    }
}

/// How a resource was left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Left {
    /// A regular file; that of a unit or of a kernel module, too.
    File {
        /// SHA-256 of its content; `None` where the content is others' business.
        sha256: Option<String>,
        /// Permission bits, owner and group, and by what the kernel tells that it was touched.
        metadata: Metadata,
        /// Whether a certificate of the node's own is in it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        certificate: bool,
    },
    Directory(Metadata),
    /// A symbolic link to this target.
    Symlink(String),
    /// A name in `/etc/hosts`.
    HostsEntry,
    Mount,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unknown {
    /// Claims of resources that this version does not know, as they were read.
    pub(super) resources: Map<String, Value>,
}
