//! A tree of files in memory. Copies share the contents of files, so that copying and comparing trees is cheap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use nix::errno::Errno;

use super::operation::{Logged, Operation};

/// The inode number of a file, directory or symlink.
pub type Inode = u64;

/// The inode of the root directory, as FUSE defines it.
pub const ROOT: Inode = 1;

/// The metadata and content of an inode.
#[derive(Clone, Debug)]
pub struct Node {
    pub mode: u32,
    pub owner: (u32, u32),
    /// The time of the last change of the content.
    pub modified: SystemTime,
    /// The time of the last change of the content or the metadata.
    pub changed: SystemTime,
    pub body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    File(Arc<Vec<u8>>),
    Directory(BTreeMap<String, Inode>),
    Symlink(String),
}

#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<Inode, Node>,
}

impl Tree {
    /// A tree with an empty root directory.
    pub fn empty(at: SystemTime) -> Tree {
        let body = Body::Directory(BTreeMap::new());
        let root = Node { mode: 0o755, owner: (0, 0), modified: at, changed: at, body };
        Tree { nodes: BTreeMap::from([(ROOT, root)]) }
    }

    /// A tree of these inodes. Leaves out names without an inode, and inodes without a name.
    pub fn new(mut nodes: BTreeMap<Inode, Node>) -> Tree {
        let known: BTreeSet<Inode> = nodes.keys().copied().collect();
        for node in nodes.values_mut() {
            if let Body::Directory(names) = &mut node.body {
                names.retain(|_, inode| known.contains(inode));
            }
        }
        let mut tree = Tree { nodes };
        let reached: BTreeSet<Inode> = tree.walk().into_iter().map(|(_, inode)| inode).collect();
        tree.nodes.retain(|inode, _| *inode == ROOT || reached.contains(inode));
        tree
    }

    /// All inodes by number. Inodes without a name are included, because a process may still have these files open.
    pub fn nodes(&self) -> &BTreeMap<Inode, Node> {
        &self.nodes
    }

    pub fn node(&self, inode: Inode) -> Result<&Node, Errno> {
        self.nodes.get(&inode).ok_or(Errno::ENOENT)
    }

    fn node_mut(&mut self, inode: Inode) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&inode).ok_or(Errno::ENOENT)
    }

    pub fn names(&self, inode: Inode) -> Result<&BTreeMap<String, Inode>, Errno> {
        match &self.node(inode)?.body {
            Body::Directory(names) => Ok(names),
            Body::File(_) | Body::Symlink(_) => Err(Errno::ENOTDIR),
        }
    }

    fn names_mut(&mut self, inode: Inode, at: SystemTime) -> Result<&mut BTreeMap<String, Inode>, Errno> {
        let node = self.node_mut(inode)?;
        (node.modified, node.changed) = (at, at);
        match &mut node.body {
            Body::Directory(names) => Ok(names),
            Body::File(_) | Body::Symlink(_) => Err(Errno::ENOTDIR),
        }
    }

    /// The inode with this name in a directory.
    pub fn lookup(&self, parent: Inode, name: &str) -> Result<Inode, Errno> {
        self.names(parent)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    /// The inode at a path that is relative to the root.
    pub fn at(&self, path: &str) -> Result<Inode, Errno> {
        path.split('/').filter(|part| !part.is_empty()).try_fold(ROOT, |at, part| self.lookup(at, part))
    }

    /// The paths and inodes of everything below the root. No path begins with a slash.
    pub fn walk(&self) -> Vec<(String, Inode)> {
        let mut found = Vec::new();
        self.walk_from("", ROOT, &mut found);
        found
    }

    fn walk_from(&self, above: &str, inode: Inode, found: &mut Vec<(String, Inode)>) {
        let Ok(names) = self.names(inode) else { return };
        for (name, inode) in names {
            let path = if above.is_empty() { name.clone() } else { format!("{above}/{name}") };
            found.push((path.clone(), *inode));
            self.walk_from(&path, *inode, found);
        }
    }

    /// The paths and nodes of everything below the root.
    pub fn entries(&self) -> BTreeMap<String, &Node> {
        self.walk().into_iter().map(|(path, inode)| (path, &self.nodes[&inode])).collect()
    }

    /// The number of names of an inode.
    pub fn links(&self, inode: Inode) -> usize {
        let names = self.nodes.values().filter_map(|node| match &node.body {
            Body::Directory(names) => Some(names.values()),
            Body::File(_) | Body::Symlink(_) => None,
        });
        names.flatten().filter(|named| **named == inode).count()
    }

    /// A path of an inode. The path is empty for the root and for an inode without a name.
    pub fn path_of(&self, inode: Inode) -> String {
        self.walk().into_iter().find(|(_, found)| *found == inode).map(|(path, _)| path).unwrap_or_default()
    }

    /// A number that no inode of the tree has.
    pub fn unused(&self) -> Inode {
        self.nodes.keys().next_back().map_or(ROOT, |last| last + 1)
    }

    /// Applies an operation. If the operation fails, names and contents stay unchanged.
    pub fn apply(&mut self, logged: &Logged) -> Result<(), Errno> {
        let at = logged.at;
        match &logged.operation {
            Operation::Make { parent, name, inode, node } => {
                self.is_free(*parent, name)?;
                self.names_mut(*parent, at)?.insert(name.clone(), *inode);
                self.nodes.insert(*inode, node.clone());
            }
            Operation::Link { inode, parent, name } => {
                self.is_free(*parent, name)?;
                self.node_mut(*inode)?.changed = at;
                self.names_mut(*parent, at)?.insert(name.clone(), *inode);
            }
            Operation::Rename { parent, name, to, to_name } => {
                let inode = self.lookup(*parent, name)?;
                if let Ok(replaced) = self.lookup(*to, to_name) {
                    let is_directory = self.names(inode).is_ok();
                    match self.names(replaced) {
                        Ok(_) if !is_directory => return Err(Errno::EISDIR),
                        Ok(names) if !names.is_empty() => return Err(Errno::ENOTEMPTY),
                        Err(_) if is_directory => return Err(Errno::ENOTDIR),
                        _ => {}
                    }
                }
                self.names(*to)?;
                self.node_mut(inode)?.changed = at;
                self.names_mut(*parent, at)?.remove(name);
                self.names_mut(*to, at)?.insert(to_name.clone(), inode);
            }
            Operation::Unlink { parent, name } => {
                let inode = self.lookup(*parent, name)?;
                if self.names(inode).is_ok() {
                    return Err(Errno::EISDIR);
                }
                self.node_mut(inode)?.changed = at;
                self.names_mut(*parent, at)?.remove(name);
            }
            Operation::RemoveDirectory { parent, name } => {
                let inode = self.lookup(*parent, name)?;
                if !self.names(inode)?.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
                self.names_mut(*parent, at)?.remove(name);
            }
            Operation::Write { inode, offset, bytes } => {
                let file = self.bytes_mut(*inode, at)?;
                let end = offset + bytes.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[*offset..end].copy_from_slice(bytes);
            }
            Operation::Change { inode, mode, owner, size, modified } => {
                if let Some(size) = size {
                    self.bytes_mut(*inode, at)?.resize(*size, 0);
                }
                let node = self.node_mut(*inode)?;
                node.changed = at;
                node.mode = mode.unwrap_or(node.mode);
                node.owner = (owner.0.unwrap_or(node.owner.0), owner.1.unwrap_or(node.owner.1));
                node.modified = modified.unwrap_or(node.modified);
            }
            Operation::Sync { inode } => drop(self.node(*inode)?),
        }
        Ok(())
    }

    fn is_free(&self, parent: Inode, name: &str) -> Result<(), Errno> {
        match self.names(parent)?.contains_key(name) {
            true => Err(Errno::EEXIST),
            false => Ok(()),
        }
    }

    fn bytes_mut(&mut self, inode: Inode, at: SystemTime) -> Result<&mut Vec<u8>, Errno> {
        let node = self.node_mut(inode)?;
        (node.modified, node.changed) = (at, at);
        match &mut node.body {
            Body::File(bytes) => Ok(Arc::make_mut(bytes)),
            Body::Directory(_) => Err(Errno::EISDIR),
            Body::Symlink(_) => Err(Errno::EINVAL),
        }
    }
}
