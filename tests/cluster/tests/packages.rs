//! Machines that have kops-agent from its packages. By one command of an operator, their package managers install another version, and
//! then the earlier version again. The process that carries out an order is killed in the middle of an installation.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use kops_agent_machines::machine::Machine;
use kops_agent_machines::script;
use tempfile::TempDir;

use crate::agents::{self, FOLLOW, Version};
use crate::cluster::{self, BOOT_CONFIG, Cluster, Plan, Software};
use crate::requests::Requests;
use crate::world::MIRROR;
use crate::{agent, ordered, workload};

/// A control plane with both packages, and a worker with the package of kops-agent only.
pub const MACHINES: [Plan; 2] = [cluster::MACHINES[0], cluster::MACHINES[1]];
/// The path of kops-agent after its package is installed.
pub const PROGRAM: &str = "/usr/bin/kops-agent";
/// In a new control plane, components may restart. So the first rollout waits until no process has begun or ended for this long.
const STEADY: Duration = Duration::from_secs(20);
/// While this file exists, dpkg pauses between unpacking and configuring kops-agent ([`hold_dpkg`]).
const HOLD: &str = "/run/hold-dpkg";
/// The hook of [`hold_dpkg`] creates this file when dpkg pauses.
const IS_HELD: &str = "/run/dpkg-is-held";
const HOOK: &str = "/usr/local/sbin/hold-dpkg";
const HOOK_SETTING: &str = "/etc/dpkg/dpkg.cfg.d/hold";

/// The packages of this kops-agent and of the next version, in signed repositories.
pub struct Packages {
    /// The folder that `packaging/repositories` made.
    repositories: PathBuf,
    /// The version that user-data installs.
    old: Version,
    new: Version,
    /// The folder with the program of each version. The name of each file is its version number.
    programs: TempDir,
}

pub fn software() -> Software {
    Software {
        publish: |software, folder, _| software.packages.as_ref().unwrap().publish(folder),
        packages: Some(Packages::make()),
        ..Software::newest()
    }
}

impl Packages {
    fn make() -> Packages {
        let programs = tempfile::tempdir().unwrap();
        // Debug symbols would make the packages larger and their build slower.
        let stripped = programs.path().join("stripped");
        let strip = Command::new("strip").arg("-o").arg(&stripped).arg(agent()).status().unwrap();
        assert!(strip.success(), "strip: {strip}");
        let executable = || Permissions::from_mode(0o755);
        fs::set_permissions(&stripped, executable()).unwrap();
        let old = agents::version_of(&stripped);
        let (new, next) = agents::next(&stripped, &old);
        let [old_program, new_program] = [&old, &new].map(|version| programs.path().join(version.number()));
        fs::rename(stripped, &old_program).unwrap();
        fs::write(&new_program, next).unwrap();
        fs::set_permissions(&new_program, executable()).unwrap();
        let [of_old, of_new] = [(&old, &old_program), (&new, &new_program)]
            .map(|(version, program)| format!("{}={}", version.number(), program.display()));
        let repositories = PathBuf::from(script("../vm-tests/lib/packages", &[&of_old, &of_new]).trim());
        Packages { repositories, old, new, programs }
    }

    /// Publishes the programs and the apt repository in this folder of the mirror.
    fn publish(&self, folder: &Path) {
        for version in [&self.old, &self.new] {
            let file = folder.join(&version.path()[1..]);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            symlink(self.programs.path().join(version.number()), file).unwrap();
        }
        symlink(self.repositories.join("apt"), folder.join("apt")).unwrap();
    }

    /// User-data that installs the packages as docs/install/packages.md says, writes the boot config and the variables of the state
    /// store, and makes the machine a node.
    pub fn user_data(&self, boot_config: &str, is_control_plane: bool, environment: &[String]) -> String {
        let key = fs::read_to_string(self.repositories.join("kops-agent.asc")).unwrap();
        let packages = names(is_control_plane).iter().map(|name| format!("{name}={}", of_package(&self.old)));
        let packages = packages.collect::<Vec<_>>().join(" ");
        let environment = environment.join("\n");
        format!(
            "#!/bin/sh
set -eu
mkdir -p /etc/apt/keyrings
cat >/etc/apt/keyrings/kops-agent.asc <<'END_OF_KEY'
{key}
END_OF_KEY
list=/etc/apt/sources.list.d/kops-agent.list
echo 'deb [signed-by=/etc/apt/keyrings/kops-agent.asc] http://{MIRROR}/apt stable main' >$list
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y {packages}
umask 077
mkdir -p /opt/kops/conf /etc/sysconfig
cat >{BOOT_CONFIG} <<'END_OF_BOOT_CONFIG'
{boot_config}
END_OF_BOOT_CONFIG
cat >/etc/sysconfig/kops-configuration <<'END_OF_VARIABLES'
{environment}
END_OF_VARIABLES
systemctl start --no-block kops-agent.service
"
        )
    }
}

fn names(is_control_plane: bool) -> &'static [&'static str] {
    if is_control_plane { &["kops-agent", "kops-agent-controller"] } else { &["kops-agent"] }
}

/// The version of the package that contains this version of kops-agent.
fn of_package(version: &Version) -> String {
    format!("{}-1", version.number())
}

/// The package managers of all machines install the next version, and afterwards the old version. Only services of kops-agent restart: no
/// kubelet, no containerd and no container ends, no request to the workload fails, and no Node is lost.
pub fn packages_are_upgraded_and_downgraded(cluster: &Cluster, packages: &Packages) {
    for member in &cluster.members {
        cluster.until(&format!("{} reports its kops-agent", member.id), "node", member.id, |node| {
            node["metadata"]["annotations"][agents::PROGRAM].is_string()
        });
    }
    have_packages(cluster, &packages.old);
    let (before, uids) = (steady_processes(cluster), cluster.uids());
    let requests = Requests::begin(&cluster.workers()[0], cluster, workload::OWN);

    for version in [&packages.new, &packages.old] {
        agents::reaches_all_machines(cluster, version);
        are_in_use(cluster, version);
        assert_eq!(agents::processes(cluster), before, "version {} has ended a process", version.text);
    }

    requests.were_all_answered();
    assert_eq!(cluster.uids(), uids, "Nodes were lost");
    workload::logs_are_read(cluster);
}

/// The process that carries out the order to the control plane is killed after dpkg has unpacked the packages, but before dpkg
/// configures them. dpkg continues. The next process waits until dpkg ends, and completes the order.
pub fn an_installation_outlives_its_process(cluster: &Cluster, packages: &Packages) {
    let machine = cluster.control_plane();
    let before = agents::processes(cluster);
    hold_dpkg(machine);
    agents::order(cluster, &packages.new);
    machine.until("dpkg has unpacked kops-agent", || {
        (machine.try_run(&["test", "-e", IS_HELD]).code == Some(0)).then_some(())
    });
    let program = machine.run(&["sha256sum", PROGRAM]);
    assert!(program.starts_with(&packages.new.sha256), "dpkg has unpacked another program: {program}");

    let killed = machine.show(FOLLOW, "MainPID");
    machine.run(&["kill", "-KILL", &killed]);
    let next = machine.until("another process carries out the order", || {
        Some(machine.show(FOLLOW, "MainPID")).filter(|process| *process != killed && process != "0")
    });
    let its_messages = format!("_PID={next}");
    let said = || machine.try_run(&["journalctl", "--no-pager", &its_messages]).stdout;
    machine.until("that process waits for dpkg", || said().contains("which holds the lock").then_some(()));
    machine.run(&["rm", HOLD]);
    ordered::until_phase(cluster, "done");

    let version = of_package(&packages.new);
    let installed = format!("kops-agent {version}, kops-agent-controller {version} is installed");
    let said = said();
    assert!(said.contains(&installed), "the next process has not completed the installation: {said}");
    machine.run(&["rm", HOOK, HOOK_SETTING, IS_HELD]);
    are_in_use(cluster, &packages.new);
    assert_eq!(agents::processes(cluster), before, "an interrupted installation has ended a process");
}

/// Checks that each machine has installed the packages of this version completely, and that its services run this version.
fn are_in_use(cluster: &Cluster, version: &Version) {
    have_packages(cluster, version);
    for member in &cluster.members {
        let previous = format!("{PROGRAM}.previous");
        member.machine.run(&["test", "!", "-e", &previous]);
        agents::runs(cluster, member, version);
    }
}

fn have_packages(cluster: &Cluster, version: &Version) {
    let query = ["dpkg-query", "--show", "--showformat=${Package} ${Version} ${db:Status-Abbrev}\\n"];
    for member in &cluster.members {
        let names = names(member.is_control_plane());
        let installed = member.machine.run(&[&query[..], names].concat());
        let line = |name: &&str| format!("{name} {} ii \n", of_package(version));
        let expected: String = names.iter().map(line).collect();
        assert_eq!(installed, expected, "{}", member.id);
    }
}

/// Waits until no kubelet, containerd or container has begun or ended for [`STEADY`]. Returns the running processes.
fn steady_processes(cluster: &Cluster) -> Vec<String> {
    cluster.control_plane().until("no process begins or ends", || {
        let before = agents::processes(cluster);
        thread::sleep(STEADY);
        (agents::processes(cluster) == before).then_some(before)
    })
}

/// Installs a hook that dpkg runs before each of its actions. After dpkg has unpacked kops-agent, the hook waits until [`HOLD`] is
/// removed.
fn hold_dpkg(machine: &Machine) {
    let hook = format!(
        "#!/bin/sh
[ \"$(dpkg-query --show --showformat='${{db:Status-Abbrev}}' kops-agent)\" = 'iU ' ] || exit 0
touch {IS_HELD}
while [ -e {HOLD} ]; do sleep 0.1; done
"
    );
    machine.write(HOOK, &hook);
    machine.run(&["chmod", "755", HOOK]);
    machine.write(HOLD, "");
    machine.write(HOOK_SETTING, &format!("pre-invoke={HOOK}\n"));
}
