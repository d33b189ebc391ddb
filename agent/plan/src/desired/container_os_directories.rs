//! Directories for programs on Container-Optimized OS. Its root is read-only, and its writable file
//! systems are mounted without `exec`. So these directories are bind mounts with their own options.
//!
//! Source: nodeup/pkg/model/directories.go.

use crate::resolve::{NodeConfig, Project};
use crate::resource::{BindMount, DesiredState, Directory, File, Mode};

use super::paths;

/// The directory that is mounted at `/opt`, on the partition that survives a restart.
const OPT: &str = "/mnt/stateful_partition/opt";

/// The crash filter that the distribution has under `/opt`. It discards all crash reports.
const CRASH_FILTER: &str = "#!/bin/bash\n# Crashes of programs are not collected.\nexit 1\n";

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.distribution.project != Project::ContainerOS {
        return;
    }
    for (path, options) in [
        (node.distribution.kubernetes_bin, &["exec"][..]),
        (paths::KUBELET, &["exec", "suid", "dev"]),
        ("/home/kubernetes/flexvolume", &["exec", "nosuid", "nodev"]),
    ] {
        state.add(Directory::new(path));
        state.add(bind_mount(path, path, options));
    }
    for directory in ["", "/google", "/google/crash-reporter", "/kops", "/kops/bin", "/cni", "/cni/bin"] {
        state.add(Directory::new(format!("{OPT}{directory}")));
    }
    // The mount at `/opt` hides the distribution's own crash filter.
    state.add(File::text(format!("{OPT}/google/crash-reporter/filter"), CRASH_FILTER).mode(Mode::EXECUTABLE));
    state.add(bind_mount(OPT, "/opt", &["ro"]));
    for (directory, path) in [("kops/bin", "/opt/kops/bin"), ("cni/bin", paths::CNI_BIN)] {
        state.add(bind_mount(&format!("{OPT}/{directory}"), path, &["exec", "nosuid", "nodev"]));
    }
}

fn bind_mount(source: &str, path: &str, options: &[&str]) -> BindMount {
    BindMount {
        source: source.into(),
        path: path.into(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        recursive: false,
    }
}
