//! The files of the state store that define the groups and the labels of their nodes.

use std::collections::BTreeMap;

use kops_agent_spec::failure::Kind;

/// The labels of a group's nodes.
pub type Labels = BTreeMap<String, String>;

/// The folder of the node configurations that kOps has written.
pub(super) const GROUPS: &str = "igconfig/";
/// A path that sorts after every file of [`GROUPS`].
pub(super) const BEHIND_GROUPS: &str = "igconfig/\u{7f}";
/// The folder of the instance groups, where `kops edit ig` saves them (upstream: `pkg/client/simple/vfsclientset/instancegroup.go`).
pub(crate) const INSTANCE_GROUPS: &str = "instancegroup/";
/// A path that sorts after every file of [`INSTANCE_GROUPS`].
pub(crate) const BEHIND_INSTANCE_GROUPS: &str = "instancegroup/\u{7f}";
/// The file name of a node configuration.
pub(super) const CONFIGURATION: &str = "nodeupconfig.yaml";
/// The folders of node configurations: one for each role whose machines are Nodes (upstream: `pkg/nodelabels/builder.go`).
const ROLES: [&str; 3] = ["control-plane", "apiserver", "node"];

/// The group to which a file of the store belongs, if the file is a node configuration or the spec of an instance group.
pub(crate) fn group_of(file: &str) -> Option<&str> {
    if let Some(name) = file.strip_prefix(INSTANCE_GROUPS) {
        return (!name.is_empty() && !name.contains('/')).then_some(name);
    }
    let mut parts = file.strip_prefix(GROUPS)?.split('/');
    let (role, name, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let is_one = ROLES.contains(&role) && !name.is_empty() && rest == CONFIGURATION && parts.next().is_none();
    is_one.then_some(name)
}

/// Whether a failure of this kind concerns only the file that was read. Example: access to the encryption key of this file is denied, but
/// other files can be read. `StoreRefused` also concerns only one file. It does not include server errors, because a store that answers
/// with a server error counts as unreachable.
pub(super) fn is_of_file(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::FileUnreadable
            | Kind::NoGroup
            | Kind::StoreForbidden
            | Kind::StoreTooLarge
            | Kind::StoreFile
            | Kind::StoreRefused
    )
}
