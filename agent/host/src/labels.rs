//! Finds files of the agent whose SELinux label differs from the policy's.

use kops_agent_plan::diff::{WrongLabel, WrongLabels};
use kops_agent_plan::resource::{DesiredState, File, Kind, Resource};

use crate::error::Result;
use crate::host::Host;
use crate::places::path_of;
use crate::root::labels::Mislabelled;
use crate::selinux::FileKind;

impl Host {
    /// Checks the SELinux labels of all desired resources that the record contains. The agent does not manage the labels of other files.
    /// Empty if SELinux is disabled or the machine has no policy. Changes nothing.
    pub fn wrong_labels(&self, desired: &DesiredState) -> Result<WrongLabels> {
        let mut wrong = WrongLabels::new();
        for (id, _) in self.record()?.claims() {
            let kind = match desired.get(id) {
                // The agent does not manage a `create_only` file once the file exists, so the label is not checked.
                None | Some(Resource::File(File { create_only: true, .. })) => continue,
                Some(_) => match id.kind {
                    Kind::File | Kind::Unit | Kind::KernelModule => FileKind::File,
                    Kind::Directory => FileKind::Directory,
                    Kind::Symlink => FileKind::Symlink,
                    _ => continue,
                },
            };
            if let Some(Mislabelled { found, wanted }) =
                self.root.mislabelled(&path_of(&self.root, id), kind)?
            {
                wrong.insert(id.clone(), WrongLabel { found, wanted });
            }
        }
        Ok(wrong)
    }
}
