//! Tries downloaded programs before the machine is changed. If a program does not start, a restarted component fails,
//! and a new machine does not become a node.

use std::collections::BTreeSet;
use std::path::Path;

use kops_agent_plan::resource::{Kind, ResourceId};

use crate::assets::Ready;
use crate::error::{Error, Result};
use crate::system::commands::Commands;

const CONTAINERD_ADVICE: &str = "set spec.containerd.packages to the release's containerd-static-VERSION-linux-ARCH.tar.gz, or \
                                  spec.containerd.version to an older release, or use an image of a newer distribution";
const RUNC_ADVICE: &str =
    "set spec.containerd.runc.packages to a build for this machine, or use an image of a newer distribution";
const KUBELET_ADVICE: &str = "set spec.image of the InstanceGroup to a newer distribution for the architecture of its machineType, or \
                              spec.kubernetesVersion to an older release";

/// Programs that are test-started before they are installed. Each entry has the program's name, the flag that prints
/// the version, and the advice if the program does not start.
const TRIED: [(&str, &str, &str); 5] = [
    ("containerd", "--version", CONTAINERD_ADVICE),
    ("containerd-shim-runc-v2", "-v", CONTAINERD_ADVICE),
    ("ctr", "--version", CONTAINERD_ADVICE),
    ("kubelet", "--version", KUBELET_ADVICE),
    ("runc", "--version", RUNC_ADVICE),
];

/// Refuses downloaded programs that do not start on this machine. `programs` has the downloaded files by their final
/// path. If the run installs packages (`brings_packages`), they may provide a missing library. So the programs that
/// lack a library are returned, and the caller tries them again after the installation of the packages.
pub(crate) fn refuse_what_does_not_start<'a>(
    programs: impl IntoIterator<Item = (&'a String, &'a Ready)>,
    brings_packages: bool,
    commands: &dyn Commands,
) -> Result<BTreeSet<String>> {
    let mut put_off = BTreeSet::new();
    for (path, ready) in programs {
        let name = path.rsplit('/').next().unwrap_or(path);
        let Some((_, flag, advice)) = TRIED.iter().find(|(tried, ..)| *tried == name) else { continue };
        let staged = ready.dir.shown(&ready.name);
        let Some(not) = commands.why_it_does_not_start(Path::new(&staged), flag) else { continue };
        if brings_packages && not.is_of_library {
            put_off.insert(path.clone());
            continue;
        }
        let id = ResourceId::new(Kind::File, path);
        let reason = format!("this download does not start on this machine: {}; {advice}", not.why);
        return Err(Error::Invalid { id, reason });
    }
    Ok(put_off)
}
