//! A container runtime whose images come, fail or hang.

use std::collections::BTreeSet;
use std::io::Read;

use kops_agent_host::Error;
use kops_agent_host::system::images::{Images, Tether};
use parking_lot::Mutex;

/// Images that are there, and those that do not come: by what is in their names.
#[derive(Default)]
pub(crate) struct Runtime {
    images: Mutex<BTreeSet<String>>,
    asked: Mutex<Vec<String>>,
    failing: Mutex<Option<&'static str>>,
    hanging: Mutex<Option<&'static str>>,
}

impl Runtime {
    /// The same one, in which images with this in their names fail.
    pub(crate) fn failing(self, part: &'static str) -> Runtime {
        Runtime { failing: Mutex::new(Some(part)), ..self }
    }

    /// The same one, in which images with this in their names hang.
    pub(crate) fn hanging(self, part: &'static str) -> Runtime {
        Runtime { hanging: Mutex::new(Some(part)), ..self }
    }

    /// From now on every image comes.
    pub(crate) fn mend(&self) {
        *self.failing.lock() = None;
        *self.hanging.lock() = None;
    }

    /// Another program has brought an image.
    pub(crate) fn insert(&self, name: &str) {
        self.images.lock().insert(name.to_owned());
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.images.lock().contains(name)
    }

    /// Whether it was asked to `pull NAME` or to `import NAME`.
    pub(crate) fn has_been_asked(&self, request: &str) -> bool {
        self.asked.lock().iter().any(|asked| asked == request)
    }

    /// What it was asked since the last call of this.
    pub(crate) fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock())
    }

    fn take(&self, verb: &str, name: &str, tether: &Tether) -> Result<(), Error> {
        self.asked.lock().push(format!("{verb} {name}"));
        let is_in_name = |part: &Mutex<Option<_>>| part.lock().is_some_and(|part: &str| name.contains(part));
        if is_in_name(&self.hanging) {
            tether.run(&["sleep", "600"])?;
        }
        if is_in_name(&self.failing) {
            let outcome = "failed (exit status: 1): broken archive".to_owned();
            return Err(Error::Command { command: format!("ctr images {verb} {name}"), outcome });
        }
        self.insert(name);
        Ok(())
    }
}

impl Images for Runtime {
    fn references(&self) -> Result<BTreeSet<String>, Error> {
        Ok(self.images.lock().clone())
    }
    fn wait_until_ready(&self) -> Result<(), Error> {
        Ok(())
    }
    fn pull(&self, reference: &str, tether: &Tether) -> Result<(), Error> {
        self.take("pull", reference, tether)
    }
    fn load(&self, name: &str, _: &mut dyn Read, tether: &Tether) -> Result<(), Error> {
        self.take("import", name, tether)
    }
}
