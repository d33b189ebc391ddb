//! Questions about kernel modules, packages and repositories. They change nothing. [`Host::apply`] loads modules and installs packages.

use std::collections::BTreeSet;

use kops_agent_plan::doctor::{ModuleState, PackageLock, Repositories, Seen};

use crate::error::Result;
use crate::host::Host;

impl Host {
    pub fn module_state(&self, module: &str) -> Result<ModuleState> {
        if self.kernel.is_loaded(module)? {
            return Ok(ModuleState::Loaded);
        }
        if let Some(line) = self.kernel.forbidden(module)? {
            return Ok(ModuleState::Forbidden(line));
        }
        Ok(if self.kernel.has(module) { ModuleState::Available } else { ModuleState::Missing })
    }

    /// The lock of the package manager. `None` if no process holds the lock.
    pub fn package_lock(&self) -> Result<Option<PackageLock>> {
        let held = self.packages.lock_holder()?;
        Ok(held.map(|(path, holder)| PackageLock { path, holder }))
    }

    /// Returns the `packages` that are completely installed.
    pub fn installed_packages(&self, packages: &[&str]) -> Result<BTreeSet<String>> {
        self.packages.installed(packages)
    }

    /// Checks which repositories in the machine's own lists answer. Fails if the package manager cannot check this without changing the
    /// machine.
    pub fn repositories(&self) -> Seen<Repositories> {
        self.packages.repositories()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use crate::system::kernel::Kernel;

    /// A fake kernel. The name of each module says the state of the module.
    struct Named;

    impl Kernel for Named {
        fn is_loaded(&self, module: &str) -> Result<bool> {
            Ok(module == "loaded")
        }

        fn has(&self, module: &str) -> bool {
            module != "missing"
        }

        fn forbidden(&self, module: &str) -> Result<Option<String>> {
            Ok((module == "forbidden").then(|| "blacklist forbidden".to_owned()))
        }

        fn load(&self, _module: &str) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_module_that_is_not_loaded_is_forbidden_available_or_missing() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::scratch(root.path()).unwrap().with_kernel(Arc::new(Named));
        let forbidden = ModuleState::Forbidden("blacklist forbidden".to_owned());
        for (module, state) in [
            ("loaded", ModuleState::Loaded),
            ("forbidden", forbidden),
            ("available", ModuleState::Available),
            ("missing", ModuleState::Missing),
        ] {
            assert_eq!(host.module_state(module).unwrap(), state, "{module}");
        }
    }
}
