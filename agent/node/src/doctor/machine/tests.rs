use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use kops_agent_plan::doctor::{Cgroups, Listener, Process};

use super::disks::disks;
use super::kernel::{cgroups, missing_parameters, parameters_are_read_only};
use super::listeners::listeners;
use super::processes::{processes, swap};
use super::runs_systemd;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const TCP: &str = "  sl  local_address\n   0: 00000000:280A 00000000:0000 0A 0:0 0:0 0 0 0 77 1\n   \
                   1: 00000000:280A 00000000:0000 0A 0:0 0:0 0 0 0 78 1\n";

#[test]
fn an_empty_root_shows_nothing() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    assert!(runs_systemd(root).is_err() && listeners(root).is_err() && processes(root).is_err());
    assert!(cgroups(root).is_err() && swap(root).is_err() && missing_parameters(root, &[]).is_err());
    fs::create_dir_all(root.join("run")).unwrap();
    fs::create_dir_all(root.join("sys")).unwrap();
    assert_eq!((runs_systemd(root), cgroups(root)), (Ok(false), Ok(Cgroups::Missing)));
}

#[test]
fn a_port_has_its_process_if_that_is_visible() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write(root, "proc/net/tcp", TCP);
    write(root, "proc/42/comm", "nginx\n");
    fs::create_dir_all(root.join("proc/42/fd")).unwrap();
    symlink("socket:[77]", root.join("proc/42/fd/3")).unwrap();
    symlink("/dev/null", root.join("proc/42/fd/4")).unwrap();
    let expected = [None, Some(("nginx".to_owned(), 42))].map(|process| Listener { port: 10250, process });
    assert_eq!(listeners(root).unwrap(), expected);
}

#[test]
fn the_name_of_a_process_has_no_terminal_control_characters() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write(root, "proc/net/tcp", TCP);
    write(root, "proc/42/comm", "\u{1b}[2J\nx\u{9b}\n");
    fs::create_dir_all(root.join("proc/42/fd")).unwrap();
    symlink("socket:[77]", root.join("proc/42/fd/3")).unwrap();
    let names: Vec<String> =
        listeners(root).unwrap().into_iter().filter_map(|listener| Some(listener.process?.0)).collect();
    assert_eq!(names, ["?[2J?x?"]);
}

#[test]
fn the_sum_of_sizes_does_not_overflow() {
    let root = tempfile::tempdir().unwrap();
    let folders = [("/a".to_owned(), u64::MAX), ("/b".to_owned(), 2)];
    assert_eq!(disks(root.path(), &folders).unwrap()[0].needed, u64::MAX);
}

#[test]
fn a_process_has_its_unit() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    write(root, "proc/7/comm", "kubelet\n");
    write(root, "proc/7/cgroup", "0::/system.slice/kubelet.service\n");
    write(root, "proc/12/comm", "dockerd\n");
    write(root, "proc/12/cgroup", "2:cpu:/x\n1:name=systemd:/system.slice/docker.service/inner\n");
    write(root, "proc/9/comm", "bash\n");
    // A kubelet in a pod does not belong to the machine.
    write(root, "proc/13/comm", "kubelet\n");
    write(root, "proc/13/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope\n");
    let process =
        |name: &str, number, unit: &str| Process { name: name.into(), number, unit: Some(unit.into()) };
    let expected = [process("kubelet", 7, "kubelet.service"), process("dockerd", 12, "docker.service")];
    assert_eq!(processes(root).unwrap(), expected);
}

#[test]
fn cgroups_swap_and_parameters_are_read_as_the_kernel_writes_them() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    fs::create_dir_all(root.join("sys/fs/cgroup/cpu,cpuacct")).unwrap();
    fs::create_dir_all(root.join("sys/fs/cgroup/memory")).unwrap();
    let Ok(Cgroups::V1(controllers)) = cgroups(root) else { panic!("{:?}", cgroups(root)) };
    assert!(controllers.contains("cpu") && controllers.contains("memory"), "{controllers:?}");
    write(root, "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
    assert!(matches!(cgroups(root), Ok(Cgroups::V2(controllers)) if controllers.len() == 5));

    write(root, "proc/swaps", "Filename\t\t\t\tType\n/dev/zram0  partition 1 0 -2\n");
    assert_eq!(swap(root).unwrap(), ["/dev/zram0"]);

    write(root, "proc/sys/vm/overcommit_memory", "0\n");
    let text = "vm.overcommit_memory = 1\nnet.bridge.bridge-nf-call-iptables=1\n-no.such=1\nnet.*.x = 1\n"
        .to_owned();
    assert_eq!(missing_parameters(root, &[text]).unwrap(), ["net.bridge.bridge-nf-call-iptables"]);
    assert_eq!(parameters_are_read_only(root), Ok(false));
}

#[test]
fn folders_of_one_file_system_are_one_disk() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("var/lib")).unwrap();
    let folders = [("/var/lib/kubelet".to_owned(), 3), ("/opt/cni/bin".to_owned(), 4)];
    let disks = disks(root.path(), &folders).unwrap();
    assert_eq!(disks.len(), 1, "{disks:?}");
    assert_eq!(
        (disks[0].path.as_str(), disks[0].needed, disks[0].is_read_only),
        ("/var/lib/kubelet", 7, false)
    );
    assert!(disks[0].total > 0);
}
