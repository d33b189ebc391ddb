//! What changes a tree, one request of the kernel's at a time.

use std::sync::Arc;
use std::time::SystemTime;

use super::tree::{Body, Inode, Node, Tree};

/// A change, or a request to have earlier ones on the disk.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A new file, directory or link, of this inode.
    Make {
        /// The directory that it is made in.
        parent: Inode,
        name: String,
        inode: Inode,
        /// As it is when it is new.
        node: Node,
    },
    /// One more name for an inode.
    Link {
        inode: Inode,
        /// In which directory.
        parent: Inode,
        name: String,
    },
    /// Another name, in the place of what has that name.
    Rename {
        /// The directory that it leaves.
        parent: Inode,
        /// The name that it loses.
        name: String,
        /// The directory that it comes to.
        to: Inode,
        /// The name that it gets.
        to_name: String,
    },
    Unlink {
        /// The directory that has it.
        parent: Inode,
        name: String,
    },
    RemoveDirectory {
        parent: Inode,
        name: String,
    },
    /// Bytes of a file.
    Write {
        inode: Inode,
        /// Where in it.
        offset: usize,
        bytes: Arc<[u8]>,
    },
    /// Metadata, or the size of a file.
    Change {
        inode: Inode,
        mode: Option<u32>,
        owner: (Option<u32>, Option<u32>),
        /// Size in bytes.
        size: Option<usize>,
        /// Time of the last write.
        modified: Option<SystemTime>,
    },
    /// A request to have a file's content and metadata, or a directory's names, on the disk.
    Sync {
        inode: Inode,
    },
}

/// An operation and when it was done.
#[derive(Clone, Debug)]
pub struct Logged {
    pub operation: Operation,
    pub at: SystemTime,
}

impl Operation {
    /// The system call that makes such a request.
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

    /// Whether a full disk has no room for it. A sync may be what finds that out.
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

    /// The path that it is about, in the tree before it.
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

    /// The inode whose content or permissions it sets, if any.
    pub fn touches(&self) -> Option<Inode> {
        match self {
            Operation::Make { inode, .. }
            | Operation::Write { inode, .. }
            | Operation::Change { inode, .. } => Some(*inode),
            _ => None,
        }
    }
}
