//! A container runtime whose images arrive, fail or hang.

use std::collections::BTreeSet;
use std::io::Read;

use kops_agent_host::Error;
use kops_agent_host::system::images::{Images, Tether};
use parking_lot::Mutex;

/// A container runtime with images. The pull or load of an image fails if the image's name contains `failing`, and
/// hangs if the name contains `hanging`.
#[derive(Default)]
pub(crate) struct Runtime {
    images: Mutex<BTreeSet<String>>,
    asked: Mutex<Vec<String>>,
    failing: Mutex<Option<&'static str>>,
    hanging: Mutex<Option<&'static str>>,
}

impl Runtime {
    /// Makes the pull or load of an image fail if the image's name contains `part`.
    pub(crate) fn failing(self, part: &'static str) -> Runtime {
        Runtime { failing: Mutex::new(Some(part)), ..self }
    }

    /// Makes the pull or load of an image hang if the image's name contains `part`.
    pub(crate) fn hanging(self, part: &'static str) -> Runtime {
        Runtime { hanging: Mutex::new(Some(part)), ..self }
    }

    /// From now on, the pull or load of every image succeeds.
    pub(crate) fn mend(&self) {
        *self.failing.lock() = None;
        *self.hanging.lock() = None;
    }

    /// Adds an image, as another program would.
    pub(crate) fn insert(&self, name: &str) {
        self.images.lock().insert(name.to_owned());
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.images.lock().contains(name)
    }

    /// Whether the runtime was asked to `pull NAME` or to `import NAME`.
    pub(crate) fn has_been_asked(&self, request: &str) -> bool {
        self.asked.lock().iter().any(|asked| asked == request)
    }

    /// The requests since the last call of `take_asked`.
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
