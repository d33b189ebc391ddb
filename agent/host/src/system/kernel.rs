//! Kernel modules.

use std::path::Path;

use super::commands::run;
use crate::error::Result;

/// The running kernel.
pub trait Kernel: Send + Sync {
    /// Whether a module is loaded, or built in.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    fn is_loaded(&self, module: &str) -> Result<bool>;

    /// Loads a module.
    ///
    /// # Errors
    /// There is no such module.
    fn load(&self, module: &str) -> Result<()>;
}

/// This machine's kernel.
pub struct Machine;

impl Kernel for Machine {
    fn is_loaded(&self, module: &str) -> Result<bool> {
        // The kernel writes all names with underscores. What is built in without parameters has no
        // folder here; loading it again does no harm.
        Ok(Path::new("/sys/module").join(module.replace('-', "_")).exists())
    }

    fn load(&self, module: &str) -> Result<()> {
        run(&["modprobe", "--", module]).map(drop)
    }
}

/// The file by which systemd loads a module at every boot.
pub(crate) fn boot_file(module: &str) -> String {
    format!("/etc/modules-load.d/{module}.conf")
}
