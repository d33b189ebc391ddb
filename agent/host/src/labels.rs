//! Which of the agent's own files have another SELinux label than the policy gives them.

use kops_agent_plan::diff::{WrongLabel, WrongLabels};
use kops_agent_plan::resource::{DesiredState, File, Kind, Resource};

use crate::error::Result;
use crate::host::Host;
use crate::places::path_of;
use crate::root::labels::Mislabelled;
use crate::selinux::FileKind;

impl Host {
    /// Looks at the labels of everything desired that the agent left when it last converged; of what others brought,
    /// the labels are theirs. Nothing where SELinux is disabled or there is no policy. Changes nothing.
    ///
    /// # Errors
    /// The policy or a file cannot be looked at.
    pub fn wrong_labels(&self, desired: &DesiredState) -> Result<WrongLabels> {
        let mut wrong = WrongLabels::new();
        for (id, _) in self.record()?.claims() {
            let kind = match desired.get(id) {
                // Its content and its mode are not the agent's to set.
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
