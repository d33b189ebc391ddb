//! Kernel modules.

use std::path::Path;

use nix::sys::utsname::uname;

use super::commands::run;
use super::{modprobe, sandbox};
use crate::error::{Error, Result};
use crate::root::Root;

pub trait Kernel: Send + Sync {
    /// Whether a module is loaded or built in.
    fn is_loaded(&self, module: &str) -> Result<bool>;

    /// Whether the running kernel has this module, loaded or not.
    fn has(&self, module: &str) -> bool;

    /// The modprobe configuration line that prevents loading the module, and the path of its file. `None` if no line
    /// prevents it.
    fn forbidden(&self, module: &str) -> Result<Option<String>> {
        let _ = module;
        Ok(None)
    }

    /// An ID that is different at each boot of the machine (random(4)).
    fn boot_id(&self) -> Result<String> {
        const PATH: &str = "/proc/sys/kernel/random/boot_id";
        let id = std::fs::read_to_string(PATH).map_err(|error| Error::path("read", PATH, error))?;
        Ok(id.trim().to_owned())
    }

    fn load(&self, module: &str) -> Result<()>;
}

pub(crate) struct Machine(pub(crate) Root);

impl Kernel for Machine {
    fn is_loaded(&self, module: &str) -> Result<bool> {
        let release = uname()
            .map_err(|error| Error::path("ask for", "the kernel's release", error))?
            .release()
            .to_owned();
        let built_in = sandbox::on_machine("/lib/modules").join(release).join("modules.builtin");
        Ok(Path::new("/sys/module").join(kernel_name(module)).exists()
            || std::fs::read_to_string(built_in).is_ok_and(|list| is_listed(&list, module)))
    }

    fn has(&self, module: &str) -> bool {
        run(&["modprobe", "--dry-run", "--quiet", "--", module]).is_ok()
    }

    fn forbidden(&self, module: &str) -> Result<Option<String>> {
        modprobe::forbidding_line(&self.0, module)
    }

    fn load(&self, module: &str) -> Result<()> {
        run(&["modprobe", "--", module]).map(drop)
    }
}

/// The kernel's name of a module: the kernel writes all names with underscores.
fn kernel_name(module: &str) -> String {
    module.replace('-', "_")
}

/// Whether a module is in the kernel's list of built-in modules, which has lines such as
/// `kernel/net/bridge/br_netfilter.ko`. A built-in module without parameters is only in this list, not in
/// `/sys/module`.
fn is_listed(modules_builtin: &str, module: &str) -> bool {
    modules_builtin.lines().any(|path| {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.strip_suffix(".ko").is_some_and(|name| kernel_name(name) == kernel_name(module))
    })
}

/// The file by which systemd loads a module at every boot.
pub(crate) fn boot_file(module: &str) -> String {
    format!("/etc/modules-load.d/{module}.conf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_modules_are_found_by_either_spelling() {
        let list = "kernel/net/bridge/br_netfilter.ko\nkernel/drivers/nvme/host/nvme-core.ko\n";
        assert!(is_listed(list, "br_netfilter") && is_listed(list, "nvme_core"));
        assert!(!is_listed(list, "netfilter") && !is_listed(list, "br_netfilter.ko"));
    }
}
