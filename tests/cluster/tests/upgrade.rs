//! The next patch release of Kubernetes is published, and one rollout upgrades the cluster to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use kops_agent_machines::assets::{self, assets};
use kops_agent_spec::digest::sha256_hex;
use kops_agent_spec::kops_release::KopsRelease;
use kops_agent_tests::machine_store;
use kops_agent_tests::stand_ins::{OWN_ARCHITECTURE, Releases};
use serde_json::Value;

use crate::cluster::{Cluster, Member, has_condition};
use crate::ordered::{self, boot_configs};
use crate::requests::Requests;
use crate::workload;
use crate::world::World;

/// The programs whose files contain their release number.
const PROGRAMS: [&str; 6] =
    ["kubelet", "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"];

/// One rollout installs the new release first on the control plane, then on the workers. Each machine changes in a disruption slot. Pods
/// of workers keep running, because no node is drained for a patch release. The user-data does not change.
pub fn a_patch_release_is_taken_up(cluster: &Cluster) {
    let old = assets().releases.kubernetes.clone();
    let new = next_patch(&old);
    publish(&releases_with(&new), &cluster.later_downloads(), &cluster.world);
    name_release(cluster, &old, &new);

    let (pods, user_data) = (workload::pods_of_workers(cluster), boot_configs(cluster));
    let slots = |member: &Member| ordered::said_by_orders(member).matches("this node has the slot").count();
    let before: Vec<usize> = cluster.members.iter().map(slots).collect();
    let requests = Requests::begin(&cluster.workers()[0], cluster, workload::OWN);
    ordered::update(cluster);
    ordered::started(cluster, &[&["start"][..], &ordered::CHECK_PODS_AFTER].concat());
    ordered::until_phase(cluster, "done");
    requests.were_all_answered();

    all_run(cluster, &new);
    for (member, before) in cluster.members.iter().zip(before) {
        assert_eq!(slots(member), before + 1, "{} was changed without a slot, or in several", member.id);
    }
    let ordered_at = |member: &Member| ordered::ordered_at(cluster, member.id);
    let first = ordered_at(&cluster.control_planes()[0]);
    for worker in cluster.workers() {
        assert!(ordered_at(worker) > first, "{} got its order before the control plane", worker.id);
    }
    assert_eq!(workload::pods_of_workers(cluster), pods, "pods of workers were restarted");
    assert_eq!(boot_configs(cluster), user_data, "the user-data was changed");
    workload::logs_are_read(cluster);
    workload::pods_reach_each_other(cluster);
}

/// Waits until each machine runs this release. The test looks at kubelet, kube-proxy and, on a control plane, the API server.
pub fn all_run(cluster: &Cluster, release: &str) {
    cluster.control_plane().until(&format!("all kubelets are of {release}"), || {
        kubelets(cluster)?.iter().all(|kubelet| kubelet == release).then_some(())
    });
    for member in &cluster.members {
        proxies_traffic(cluster, member, release);
    }
    api_servers_run(cluster, release);
}

/// Checks the release of each API server. Afterwards, the test uses the last of these API servers.
pub fn api_servers_run(cluster: &Cluster, release: &str) {
    for control_plane in cluster.control_planes() {
        cluster.ask(control_plane);
        control_plane.machine.until("its API server is ready", || cluster.is_ready());
        let version = cluster.run_kubectl(&["get", "--raw=/version"]);
        assert!(version.contains(&format!("\"v{release}\"")), "{}: {version}", control_plane.id);
    }
}

/// Replaces the Kubernetes version in the cluster spec, as `kops edit cluster` does.
pub fn name_release(cluster: &Cluster, old: &str, new: &str) {
    let file = cluster.store.path("cluster-completed.spec");
    let spec = fs::read_to_string(&file).unwrap();
    let changed = spec.replace(&format!(":v{old}"), &format!(":v{new}"));
    let changed = changed.replace(&format!("kubernetesVersion: {old}"), &format!("kubernetesVersion: {new}"));
    assert_ne!(spec, changed, "the cluster spec names no release");
    fs::write(file, changed).unwrap();
}

/// A different patch release of the same minor release, usually the next one. Its number has as many characters as `release`, so that it
/// can replace `release` in programs.
pub fn next_patch(release: &str) -> String {
    let (minor, patch) = release.rsplit_once('.').unwrap();
    let next = if patch.ends_with('9') {
        patch.replace('9', "8")
    } else {
        (patch.parse::<u64>().unwrap() + 1).to_string()
    };
    assert_eq!(next.len(), patch.len(), "{patch}");
    format!("{minor}.{next}")
}

/// The built releases, but with this release of Kubernetes, and with the CNI plugins that kOps installs for this release.
pub fn releases_with(kubernetes: &str) -> Releases {
    let minor = kubernetes.split('.').nth(1).unwrap().parse().unwrap();
    let cni_plugins = KopsRelease::NEWEST.cni_plugins(minor).unwrap().to_owned();
    Releases { kubernetes: kubernetes.to_owned(), cni_plugins, ..assets().releases.clone() }
}

/// Publishes a release of Kubernetes in a folder of the mirror and in the registry. The published programs are the built programs
/// with a changed release number.
pub fn publish(releases: &Releases, downloads_folder: &Path, world: &World) {
    let (built_releases, new) = (&assets().releases, &releases.kubernetes);
    let old = &built_releases.kubernetes;
    let built = PathBuf::from(kops_agent_machines::script("kube/build", &[]).trim());
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(&built).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let target = folder.path().join(&name);
        if PROGRAMS.contains(&name.as_str()) {
            fs::write(target, renamed(&path, &format!("v{old}"), &format!("v{new}"))).unwrap();
        } else {
            std::os::unix::fs::symlink(&path, target).unwrap();
        }
    }
    let folders = [folder.path()];
    let program = |name: &str, version: &str| machine_store::program_in(&folders, name, version);
    // kOps requests the hashes of all architectures, so stand-ins are published for the other architecture.
    let mut downloads = releases.stand_ins().unwrap();
    downloads.extend(releases.downloads(OWN_ARCHITECTURE, Compression::none(), program).unwrap());
    let known = built_releases.stand_ins().unwrap();
    for (path, content) in downloads.into_iter().filter(|(path, _)| !known.contains_key(path)) {
        write(&downloads_folder.join(path.trim_start_matches('/')), &content);
    }
    let mut images = assets::images(folder.path(), releases);
    images.extend(&assets().images);
    world.serve_images(images);
}

/// Returns the bytes of `program`, with `new` in place of each `old`. Both texts must have the same length.
pub fn renamed(program: &Path, old: &str, new: &str) -> Vec<u8> {
    let replace = format!("s/{}/{new}/g", old.replace('.', "\\."));
    let sed = Command::new("sed").env("LC_ALL", "C").arg(replace).arg(program).output().unwrap();
    assert!(sed.status.success(), "{}", String::from_utf8_lossy(&sed.stderr));
    assert_ne!(
        sed.stdout,
        fs::read(program).unwrap(),
        "{} does not have the name {old} in it",
        program.display()
    );
    sed.stdout
}

/// Writes a download, and a file with its hash next to it.
pub fn write(file: &Path, content: &[u8]) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
    fs::write(format!("{}.sha256", file.display()), sha256_hex(content)).unwrap();
}

/// The release of each machine's kubelet, as its Node reports. `None` if a Node is not Ready or cannot be read.
pub fn kubelets(cluster: &Cluster) -> Option<Vec<String>> {
    let version = |member: &Member| {
        let node = cluster.get("node", member.id)?;
        let version =
            node["status"]["nodeInfo"]["kubeletVersion"].as_str()?.trim_start_matches('v').to_owned();
        has_condition(&node, "Ready").then_some(version)
    };
    cluster.members.iter().map(version).collect()
}

/// Waits until the machine's kube-proxy has this release and is ready.
fn proxies_traffic(cluster: &Cluster, member: &Member, release: &str) {
    let name = format!("pod/kube-proxy-{}", member.id);
    member.machine.until(&format!("{name} is of {release}"), || {
        let pod = cluster.kubectl(&["get", &name, "--namespace=kube-system", "--output=json"])?;
        let pod: Value = serde_json::from_str(&pod).unwrap();
        let image = pod["status"]["containerStatuses"][0]["image"].as_str()?;
        (image.ends_with(&format!(":v{release}")) && has_condition(&pod, "Ready")).then_some(())
    });
}
