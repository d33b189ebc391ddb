//! The stage of volumes and bind mounts.
//!
//! A machine that is to become a node gets all else where a volume is missing: its files, its units, and those units
//! started that need no pod. kubelet and the container runtime are neither started nor enabled, for they would write to
//! the empty folder where the volume belongs, and nothing is written below that. A node that works is left as it is.
//! A volume with the mount option `nofail` is missed by nothing, as in fstab(5).
//!
//! Upstream starts no unit at all as long as a volume is not mounted (nodeup/pkg/model/volumes.go mounts it while the node
//! is still being decided, and nodeup tries again for ever).

use std::sync::Arc;

use kops_agent_plan::diff::{CONTAINER_RUNTIME, KUBELET, Step};
use kops_agent_plan::resource::{BindMount, Kind, Mount, Resource, ResourceId};

use super::run::{Run, Steps};
use crate::error::{Error, Result};
use crate::system::apart::apart;
use crate::volumes::is_optional;
use crate::volumes::is_volume_mounted;

impl Run<'_> {
    /// Mounts what is to be mounted.
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
        // What starts at the next boot must not start without it; where another is mounted, that stays as it is.
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
        // Only this: a file system that is half made would be taken for data.
        apart("waiting for a device", move || mounts.wait_for(&device)).await?;
        self.host.mounts.mount(mount)
    }

    /// The mount point of a volume that is missing, at or above a path.
    fn missing_below(&self, path: &str) -> Option<String> {
        let is_below = |missing: &String| {
            path.strip_prefix(missing.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.starts.failed(Kind::Mount).into_iter().find(is_below)
    }

    fn is_on_missing(&self, bind: &BindMount) -> bool {
        [&bind.source, &bind.path].iter().any(|path| self.missing_below(path).is_some())
    }

    /// Whether something would be written to the empty folder where a volume belongs, which hides it later.
    pub(super) fn is_below_missing(&self, resource: &ResourceId) -> bool {
        matches!(resource.kind, Kind::Directory | Kind::File | Kind::Symlink)
            && self.missing_below(&resource.name).is_some()
    }

    /// Why a unit may not be started, or start at boot: a volume is missing.
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
