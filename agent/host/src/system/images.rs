//! Container images.

use std::collections::BTreeSet;
use std::io::Read;
use std::thread::sleep;
use std::time::{Duration, Instant};

use kops_agent_plan::desired::CONTAINERD_REGISTRIES;

use super::commands::{ask, refused};
use super::ctr::DEADLINES;
pub use super::tether::Tether;
use crate::error::Result;

/// The image store of the container runtime.
pub trait Images: Send + Sync {
    /// The references of all images; empty where no runtime runs yet.
    ///
    /// # Errors
    /// The runtime cannot be asked.
    fn references(&self) -> Result<BTreeSet<String>>;

    /// Waits until the runtime answers.
    ///
    /// # Errors
    /// It does not.
    fn wait_until_ready(&self) -> Result<()>;

    /// Pulls an image from its registry, for as long as the tether holds.
    ///
    /// # Errors
    /// It cannot be pulled, or not in time.
    fn pull(&self, reference: &str, tether: &Tether) -> Result<()>;

    /// Loads the images of an archive, for as long as the tether holds.
    ///
    /// # Errors
    /// They cannot be loaded, or not in time.
    fn load(&self, name: &str, archive: &mut dyn Read, tether: &Tether) -> Result<()>;
}

/// This machine's containerd, asked by `ctr`.
pub struct Ctr;

/// Where the kubelet looks for images.
const NAMESPACE: [&str; 4] = ["ctr", "--namespace", "k8s.io", "images"];
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A question, which is answered in time or not at all.
fn question<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["ctr"], &DEADLINES[..], words].concat()
}

/// What pulls an image, from the mirrors of its registry where the cluster has some: containerd's configuration names them for what
/// kubelet asks for, and not for `ctr`. A directory that is not there has none (containerd's core/remotes/docker/config/hosts.go).
fn pulling(reference: &str) -> Vec<&str> {
    [&NAMESPACE[..], &["pull", "--hosts-dir", CONTAINERD_REGISTRIES, reference]].concat()
}

impl Images for Ctr {
    fn references(&self) -> Result<BTreeSet<String>> {
        match ask(&question(&["--namespace", "k8s.io", "images", "list", "--quiet"])) {
            Ok(outcome) if outcome.status.success() => {
                Ok(outcome.stdout.lines().map(str::to_owned).collect())
            }
            // No runtime yet, so no images.
            Ok(_) | Err(_) => Ok(BTreeSet::new()),
        }
    }

    fn wait_until_ready(&self) -> Result<()> {
        let since = Instant::now();
        loop {
            let command = question(&["version"]);
            let outcome = ask(&command)?;
            if outcome.status.success() {
                return Ok(());
            }
            if since.elapsed() > READY_WITHIN {
                return Err(refused(&command, &outcome));
            }
            sleep(Duration::from_millis(500));
        }
    }

    fn pull(&self, reference: &str, tether: &Tether) -> Result<()> {
        tether.run(&pulling(reference))
    }

    fn load(&self, _name: &str, archive: &mut dyn Read, tether: &Tether) -> Result<()> {
        tether.feed(&[&NAMESPACE[..], &["import", "-"]].concat(), archive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_pulled_from_the_mirrors_that_the_cluster_has() {
        let words = pulling("registry.k8s.io/pause:3.10.1");
        let (flags, reference) = words.split_at(words.len() - 1);
        assert!(flags.ends_with(&["pull", "--hosts-dir", "/etc/containerd/certs.d"]), "{flags:?}");
        // What follows the reference is none of its flags.
        assert_eq!(reference, ["registry.k8s.io/pause:3.10.1"]);
    }

    #[test]
    fn a_runtime_that_hangs_is_not_waited_for() {
        let command = question(&["version"]);
        assert_eq!(command, ["ctr", "--timeout", "15s", "--connect-timeout", "5s", "version"]);
    }
}
