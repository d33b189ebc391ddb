//! Keeps the machines on after a test, whether it passed or failed, so that an engineer can look at them.

use std::io::{self, Read as _};

use crate::cluster::Cluster;

/// With `tests/cluster/run --keep`, the drop of this value waits until standard input ends, so the machines
/// stay on until then.
pub struct Kept<'a>(pub &'a Cluster);

impl Drop for Kept<'_> {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if std::env::var_os("KOPS_AGENT_CLUSTER_KEEP").is_none() {
            return;
        }
        for member in &self.0.members {
            eprintln!("{}: {}", member.machine.name(), member.machine.shell());
        }
        eprintln!("the machines stay on until standard input ends");
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
}
