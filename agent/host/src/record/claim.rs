//! The claim on one resource, with the state in which a run left the resource.

use kops_agent_spec::go_yaml::is_zero;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::apply;

use super::begun::Begun;
use crate::root::Metadata;

/// A resource that the agent wrote.
#[apply(_ => #[serde(default, skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Claim {
    /// Whether the resource existed before the agent first wrote it.
    pub(super) was_there: bool,
    /// The state after the last finished run; `None` if no finished run has recorded the resource yet.
    pub(super) left: Option<Left>,
    /// The content that a running or interrupted run writes.
    pub(super) begun: Option<Begun>,
}

impl Claim {
    pub(super) fn new(was_there: bool) -> Claim {
        Claim { was_there, left: None, begun: None }
    }
}

/// The state of a resource after a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Left {
    /// A regular file, for example the file of a unit or kernel module.
    File {
        /// The SHA-256 of the file's content; `None` if the agent does not manage the content.
        sha256: Option<String>,
        /// Permission bits, owner and group. Also contains size, inode and ctime, which show whether the file was touched.
        metadata: Metadata,
        /// Whether the file contains a certificate of the node itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        certificate: bool,
    },
    Directory(Metadata),
    /// The target of a symbolic link.
    Symlink(String),
    /// A name in `/etc/hosts`.
    HostsEntry,
    Mount,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unknown {
    /// The recorded resources of kinds that this version does not know. Their entries stay unchanged.
    pub(super) resources: Map<String, Value>,
}
