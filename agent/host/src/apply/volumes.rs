//! The stage of volumes and bind mounts.
//!
//! If a volume is missing, a new machine still gets everything else: its files, its units, and the start of units that
//! need no pod. kubelet and the container runtime are neither started nor enabled, because they would write to the
//! empty folder of the volume. The run writes nothing below that folder either. A working node is left unchanged. A
//! missing volume with the mount option `nofail` has no such effect, as in fstab(5).
//!
//! Upstream starts no unit as long as a volume is not mounted. nodeup mounts volumes while it still builds the node's
//! model, and it retries forever (nodeup/pkg/model/volumes.go).

use std::sync::Arc;

use kops_agent_plan::diff::{CONTAINER_RUNTIME, KUBELET, Step};
use kops_agent_plan::resource::{BindMount, Kind, Mount, Resource, ResourceId};

use super::run::{Run, Steps};
use crate::error::{Error, Result};
use crate::system::apart::apart;
use crate::volumes::is_optional;
use crate::volumes::is_volume_mounted;

impl Run<'_> {
    pub(super) async fn volumes(&self, steps: &Steps<'_>) -> Result<()> {
        for (step, resource) in steps {
            self.progress.applying(step);
            match resource {
                Resource::Mount(mount) => self.volume(step, mount).await?,
                Resource::BindMount(bind) if !self.is_on_missing(bind) => {
                    self.host.root.make_dirs(&bind.source)?;
                    self.host.root.make_dirs(&bind.path)?;
                    self.host.mounts.bind(bind)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn volume(&self, step: &Step, mount: &Mount) -> Result<()> {
        let Err(error) = self.mount(mount).await else { return self.host.mount_at_boot(mount) };
        if self.changing.is_some() && !is_optional(mount) {
            return Err(error);
        }
        self.starts.note(&step.resource, &error);
        // Write the boot unit although the mount failed, because at the next boot, units must not start without the volume. If another file
        // system is mounted at the path, write no boot unit: the other file system stays mounted.
        match self.host.mounts.mounted(mount)? {
            None => self.host.mount_at_boot(mount),
            Some(_) => Ok(()),
        }
    }

    async fn mount(&self, mount: &Mount) -> Result<()> {
        if let Some(missing) = self.missing_below(&mount.path) {
            return Err(Error::Path {
                doing: "mount",
                path: mount.device.clone(),
                reason: format!("{} is within {missing}, whose volume is not mounted", mount.path),
            });
        }
        if is_volume_mounted(&*self.host.mounts, mount)? {
            return Ok(());
        }
        self.host.root.make_dirs(&mount.path)?;
        let (mounts, device) = (Arc::clone(&self.host.mounts), mount.device.clone());
        // Only the wait can be interrupted. The mount must not be interrupted: it may create a file system, and a half-created file system
        // would look like data.
        apart("waiting for a device", move || mounts.wait_for(&device)).await?;
        self.host.mounts.mount(mount)
    }

    /// The mount point of a missing volume at or above a path.
    fn missing_below(&self, path: &str) -> Option<String> {
        let is_below = |missing: &String| {
            path.strip_prefix(missing.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.starts.failed(Kind::Mount).into_iter().find(is_below)
    }

    fn is_on_missing(&self, bind: &BindMount) -> bool {
        [&bind.source, &bind.path].iter().any(|path| self.missing_below(path).is_some())
    }

    /// Whether a resource would be written to the empty folder of a missing volume. A later mount of the volume would hide the resource.
    pub(super) fn is_below_missing(&self, resource: &ResourceId) -> bool {
        matches!(resource.kind, Kind::Directory | Kind::File | Kind::Symlink)
            && self.missing_below(&resource.name).is_some()
    }

    /// The mount point of a required volume that could not be mounted. Because of this volume, the run does not enable, start or restart
    /// the unit. `None` for all units except the container runtime and kubelet.
    pub(super) fn kept_down_by(&self, unit: &str) -> Option<String> {
        if ![CONTAINER_RUNTIME, KUBELET].contains(&unit) {
            return None;
        }
        let is_needed = |path: &String| match self.desired.get(&ResourceId::new(Kind::Mount, path)) {
            Some(Resource::Mount(mount)) => !is_optional(mount),
            _ => true,
        };
        self.starts.failed(Kind::Mount).into_iter().find(is_needed)
    }
}
