//! The trees that a machine may have after a power cut.
//!
//! The model is simple, and harsher than ext4 or XFS. A sync of a file makes its content and metadata durable. A sync of
//! a directory makes its names durable. Nothing else is durable. The tests try three of the many possible trees. All
//! changes survive, or only durable state survives, or all names and metadata survive with only durable content.

use std::collections::BTreeMap;
use std::sync::Arc;

use nix::errno::Errno;

use super::operation::{Logged, Operation};
use super::tree::{Body, Inode, Node, Tree};

/// The unsynced changes that survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Survives {
    Everything,
    /// No unsynced change survives.
    OnlyWhatIsSynced,
    /// Unsynced names and metadata survive, but unsynced content does not.
    NamesButNoData,
}

pub const SURVIVES: [Survives; 3] =
    [Survives::Everything, Survives::OnlyWhatIsSynced, Survives::NamesButNoData];

/// A disk on which a log of operations is replayed.
pub struct Disk {
    live: Tree,
    sure: BTreeMap<Inode, Node>,
    born: BTreeMap<Inode, Node>,
}

impl Disk {
    /// A disk on which the whole tree `before` is synced.
    pub fn new(before: &Tree) -> Disk {
        Disk { live: before.clone(), sure: before.nodes().clone(), born: BTreeMap::new() }
    }

    pub fn replay(&mut self, logged: &Logged) -> Result<(), Errno> {
        self.live.apply(logged)?;
        match &logged.operation {
            Operation::Make { inode, node, .. } => drop(self.born.insert(*inode, node.clone())),
            Operation::Sync { inode } => self.sync(*inode)?,
            _ => {}
        }
        Ok(())
    }

    fn sync(&mut self, inode: Inode) -> Result<(), Errno> {
        let node = self.live.node(inode)?.clone();
        if let Body::Directory(names) = &node.body {
            for child in names.values() {
                // A durable name makes its inode durable as well. Until the inode is synced, only its initial state is
                // durable.
                if let Some(new) = self.born.get(child) {
                    self.sure.entry(*child).or_insert_with(|| new.clone());
                }
            }
        }
        self.sure.insert(inode, node);
        Ok(())
    }

    /// The tree after a power cut that follows the last replayed operation.
    pub fn after_cut(&self, survives: Survives) -> Tree {
        match survives {
            Survives::Everything => Tree::new(self.live.nodes().clone()),
            Survives::OnlyWhatIsSynced => Tree::new(self.sure.clone()),
            Survives::NamesButNoData => {
                let mut nodes = self.live.nodes().clone();
                for (inode, node) in &mut nodes {
                    if let Body::File(bytes) = &mut node.body {
                        *bytes = match self.sure.get(inode).map(|sure| &sure.body) {
                            Some(Body::File(sure)) => Arc::clone(sure),
                            _ => Arc::default(),
                        };
                    }
                }
                Tree::new(nodes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::tree::ROOT;

    const NEW: Inode = 2;

    fn logged(operation: Operation) -> Logged {
        Logged { operation, at: SystemTime::UNIX_EPOCH }
    }

    fn make() -> Operation {
        let at = SystemTime::UNIX_EPOCH;
        let body = Body::File(Arc::default());
        let node = Node { mode: 0o600, owner: (0, 0), modified: at, changed: at, body };
        Operation::Make { parent: ROOT, name: ".a".into(), inode: NEW, node }
    }

    fn write() -> Operation {
        Operation::Write { inode: NEW, offset: 0, bytes: Arc::from(*b"whole") }
    }

    fn rename() -> Operation {
        Operation::Rename { parent: ROOT, name: ".a".into(), to: ROOT, to_name: "a".into() }
    }

    /// The names and contents after these operations and a power cut.
    fn after(operations: &[Operation], survives: Survives) -> Vec<(String, Vec<u8>)> {
        let mut disk = Disk::new(&Tree::empty(SystemTime::UNIX_EPOCH));
        for operation in operations {
            disk.replay(&logged(operation.clone())).unwrap();
        }
        let tree = disk.after_cut(survives);
        let content = |node: &Node| match &node.body {
            Body::File(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        };
        tree.entries().into_iter().map(|(path, node)| (path, content(node))).collect()
    }

    fn one(name: &str, content: &str) -> Vec<(String, Vec<u8>)> {
        vec![(name.to_owned(), content.as_bytes().to_vec())]
    }

    #[test]
    fn a_renamed_file_without_a_sync_is_empty_or_missing() {
        let hasty = [make(), write(), rename()];
        assert_eq!(after(&hasty, Survives::Everything), one("a", "whole"));
        assert_eq!(after(&hasty, Survives::OnlyWhatIsSynced), []);
        assert_eq!(after(&hasty, Survives::NamesButNoData), one("a", ""));
        let named = [make(), write(), rename(), Operation::Sync { inode: ROOT }];
        assert_eq!(after(&named, Survives::OnlyWhatIsSynced), one("a", ""));
    }

    #[test]
    fn a_file_synced_before_its_rename_is_complete() {
        let mut careful = vec![make(), write(), Operation::Sync { inode: NEW }, rename()];
        assert_eq!(after(&careful, Survives::OnlyWhatIsSynced), []);
        assert_eq!(after(&careful, Survives::NamesButNoData), one("a", "whole"));
        careful.push(Operation::Sync { inode: ROOT });
        assert_eq!(after(&careful, Survives::OnlyWhatIsSynced), one("a", "whole"));
    }
}
