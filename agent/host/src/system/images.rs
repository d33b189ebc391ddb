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

pub trait Images: Send + Sync {
    /// The references of all images. Empty if the container runtime does not run yet.
    fn references(&self) -> Result<BTreeSet<String>>;

    /// Waits until the container runtime answers.
    fn wait_until_ready(&self) -> Result<()>;

    /// Pulls an image from its registry. The pull is killed at the deadline of `tether`, or when its `Leash` is
    /// dropped.
    fn pull(&self, reference: &str, tether: &Tether) -> Result<()>;

    /// Loads the images of an archive. The import is killed at the deadline of `tether`, or when its `Leash` is
    /// dropped.
    fn load(&self, name: &str, archive: &mut dyn Read, tether: &Tether) -> Result<()>;
}

/// This machine's containerd, accessed through `ctr`.
pub struct Ctr;

/// The command for images in `k8s.io`, the containerd namespace that kubelet uses.
const NAMESPACE: [&str; 4] = ["ctr", "--namespace", "k8s.io", "images"];
const READY_WITHIN: Duration = Duration::from_secs(60);

fn question<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["ctr"], &DEADLINES[..], words].concat()
}

/// The command that pulls an image. containerd's configuration of registry mirrors applies only to kubelet's pulls,
/// so `--hosts-dir` names the mirrors for `ctr`. If that directory is missing, no mirrors are used (containerd's
/// core/remotes/docker/config/hosts.go).
fn pulling(reference: &str) -> Vec<&str> {
    [&NAMESPACE[..], &["pull", "--hosts-dir", CONTAINERD_REGISTRIES, reference]].concat()
}

impl Images for Ctr {
    fn references(&self) -> Result<BTreeSet<String>> {
        match ask(&question(&["--namespace", "k8s.io", "images", "list", "--quiet"])) {
            Ok(outcome) if outcome.status.success() => {
                Ok(outcome.stdout.lines().map(str::to_owned).collect())
            }
            // Without a running container runtime, there are no images.
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
        // `ctr` takes no flags after the reference.
        assert_eq!(reference, ["registry.k8s.io/pause:3.10.1"]);
    }

    #[test]
    fn a_runtime_that_hangs_is_not_waited_for() {
        let command = question(&["version"]);
        assert_eq!(command, ["ctr", "--timeout", "15s", "--connect-timeout", "5s", "version"]);
    }
}
