//! Operations on a tree. Each operation is one request of the kernel.

use std::sync::Arc;
use std::time::SystemTime;

use super::tree::{Body, Inode, Node, Tree};

/// A change of a tree, or a sync of earlier changes to the disk.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Makes a file, directory or symlink with this inode.
    Make {
        /// The directory of the new name.
        parent: Inode,
        name: String,
        inode: Inode,
        /// The initial metadata and content of the inode.
        node: Node,
    },
    /// Adds a name to an inode.
    Link {
        inode: Inode,
        /// The directory of the new name.
        parent: Inode,
        name: String,
    },
    /// Renames an inode. If another inode has the new name, the renamed inode replaces it.
    Rename {
        /// The directory of the old name.
        parent: Inode,
        name: String,
        /// The directory of the new name.
        to: Inode,
        to_name: String,
    },
    Unlink {
        parent: Inode,
        name: String,
    },
    RemoveDirectory {
        parent: Inode,
        name: String,
    },
    Write {
        inode: Inode,
        /// The offset in the file, in bytes.
        offset: usize,
        bytes: Arc<[u8]>,
    },
    /// Sets the metadata of an inode or the size of a file.
    Change {
        inode: Inode,
        mode: Option<u32>,
        owner: (Option<u32>, Option<u32>),
        /// Size in bytes.
        size: Option<usize>,
        /// Time of the last write.
        modified: Option<SystemTime>,
    },
    /// Syncs a file's content and metadata, or a directory's names, to the disk.
    Sync {
        inode: Inode,
    },
}

#[derive(Clone, Debug)]
pub struct Logged {
    pub operation: Operation,
    pub at: SystemTime,
}

impl Operation {
    pub fn kind(&self, tree: &Tree) -> &'static str {
        match self {
            Operation::Make { node: Node { body: Body::File(_), .. }, .. } => "create",
            Operation::Make { node: Node { body: Body::Directory(_), .. }, .. } => "mkdir",
            Operation::Make { node: Node { body: Body::Symlink(_), .. }, .. } => "symlink",
            Operation::Link { .. } => "link",
            Operation::Rename { .. } => "rename",
            Operation::Unlink { .. } => "unlink",
            Operation::RemoveDirectory { .. } => "rmdir",
            Operation::Write { .. } => "write",
            Operation::Change { .. } => "setattr",
            Operation::Sync { inode } if tree.names(*inode).is_ok() => "fsyncdir",
            Operation::Sync { .. } => "fsync",
        }
    }

    /// Whether this operation fails on a full disk. A sync may be the first operation that finds the disk full.
    pub fn needs_room(&self) -> bool {
        match self {
            Operation::Make { .. }
            | Operation::Link { .. }
            | Operation::Rename { .. }
            | Operation::Write { .. }
            | Operation::Sync { .. } => true,
            Operation::Change { size, .. } => size.is_some_and(|size| size > 0),
            Operation::Unlink { .. } | Operation::RemoveDirectory { .. } => false,
        }
    }

    /// The path to which this operation applies. `tree` is the tree before the operation.
    pub fn path(&self, tree: &Tree) -> String {
        let below = |parent: &Inode, name: &String| {
            let parent = tree.path_of(*parent);
            if parent.is_empty() { name.clone() } else { format!("{parent}/{name}") }
        };
        match self {
            Operation::Make { parent, name, .. }
            | Operation::Link { parent, name, .. }
            | Operation::Unlink { parent, name }
            | Operation::RemoveDirectory { parent, name } => below(parent, name),
            Operation::Rename { to, to_name, .. } => below(to, to_name),
            Operation::Write { inode, .. } | Operation::Change { inode, .. } | Operation::Sync { inode } => {
                tree.path_of(*inode)
            }
        }
    }

    /// The inode whose content or permissions this operation sets, if any.
    pub fn touches(&self) -> Option<Inode> {
        match self {
            Operation::Make { inode, .. }
            | Operation::Write { inode, .. }
            | Operation::Change { inode, .. } => Some(*inode),
            _ => None,
        }
    }
}
