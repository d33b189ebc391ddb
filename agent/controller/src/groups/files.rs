//! The files of the state store that tell which groups there are, and what their nodes have.

use std::collections::BTreeMap;

use kops_agent_store::StoreError;

/// The labels of a group's nodes.
pub type Labels = BTreeMap<String, String>;

/// The configurations of nodes that kOps has written.
pub(super) const GROUPS: &str = "igconfig/";
/// What comes after every file of [`GROUPS`].
pub(super) const BEHIND_GROUPS: &str = "igconfig/\u{7f}";
/// The groups that there are, as `kops edit ig` saves them (upstream: `pkg/client/simple/vfsclientset/instancegroup.go`).
pub(super) const INSTANCE_GROUPS: &str = "instancegroup/";
/// What comes after every file of [`INSTANCE_GROUPS`].
pub(super) const BEHIND_INSTANCE_GROUPS: &str = "instancegroup/\u{7f}";
/// What each of them is called.
pub(super) const CONFIGURATION: &str = "nodeupconfig.yaml";
/// The folders of the roles whose machines are Nodes (upstream: `pkg/nodelabels/builder.go`).
const ROLES: [&str; 3] = ["control-plane", "apiserver", "node"];

/// The group whose nodes a file of the store is for, if it is one of kOps' configurations of nodes, or a group.
pub(super) fn group_of(file: &str) -> Option<&str> {
    if let Some(name) = file.strip_prefix(INSTANCE_GROUPS) {
        return (!name.is_empty() && !name.contains('/')).then_some(name);
    }
    let mut parts = file.strip_prefix(GROUPS)?.split('/');
    let (role, name, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let is_one = ROLES.contains(&role) && !name.is_empty() && rest == CONFIGURATION && parts.next().is_none();
    is_one.then_some(name)
}

/// Whether a file alone is the trouble, as where its key may not be used, and others can be read.
pub(super) fn is_of_file(error: &StoreError) -> bool {
    match error {
        StoreError::Forbidden { .. } | StoreError::TooLarge { .. } | StoreError::Io { .. } => true,
        StoreError::Refused { status, .. } => *status < 500,
        _ => false,
    }
}
